"""Phases: what the device did for each range path, in the typical step of one rank.

A range is credited with the operations issued inside it: inclusive of the ranges inside, and alone.
Time is the length of a union inside the steps; work adds durations up.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.model.analysis import RangeWork, Walls
from wallscope.model.frames import RANGE_WORK
from wallscope.model.kinds import Wall
from wallscope.timeline.nesting import Rows
from wallscope.timeline.paths import path_texts
from wallscope.timeline.spans import ordered, union
from wallscope.walls.typical import TypicalWork

_DEEPEST = 64
_MOST_LISTED = 200
_SUMS = ("gpu_ns", "work_ns", "operations")


@dataclass(frozen=True, slots=True)
class Phases:
    """The ranges of all processes: `NESTED` with `process`, `PATHS`, and the folded names (`NAMES`)."""

    tree: pl.DataFrame
    paths: pl.DataFrame
    names: pl.DataFrame

    def work(self, work: TypicalWork, projected: pl.DataFrame, process: int) -> pl.DataFrame:
        """Range paths of one rank (`RANGE_WORK`) with the columns `name` and `text`, the path written out."""
        own = self.tree.filter(pl.col("process") == process)
        found = range_work(work, projected, own, self.paths)
        return found.with_columns(
            name=self.names["text"].gather(self.paths["name"].gather(found["path"])),
            text=path_texts(self.paths, self.names, found["path"]),
        )

    def listed(
        self, work: TypicalWork, projected: pl.DataFrame, process: int, slices: pl.DataFrame
    ) -> tuple[RangeWork, ...]:
        """The paths with most device time; `slices` (`SLICES`) are those of the steps of `work`."""
        listed = self.work(work, projected, process).head(_MOST_LISTED)
        walls = self.walls(slices, work.steps.start_ns.size, listed["path"])
        return tuple(
            RangeWork(
                name=row["name"],
                path=row["text"],
                count=row["count"],
                host_ns=row["host_ns"],
                gpu_ns=row["gpu_ns"],
                own_gpu_ns=row["own_gpu_ns"],
                work_ns=row["work_ns"],
                own_work_ns=row["own_work_ns"],
                walls=walls[row["path"]],
            )
            for row in listed.iter_rows(named=True)
        )

    def walls(self, slices: pl.DataFrame, step_count: int, paths: Iterable[int]) -> dict[int, Walls]:
        """What each wall owns in some paths and the paths inside each, in ns of the mean step."""
        columns = [str(wall) for wall in Wall]
        path_of_range = self.tree.select(pl.col("range").cast(pl.Int32), "path")
        sums = (
            slices.join(path_of_range, on="range")
            .group_by("path", "wall")
            .agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
        )
        inside = np.zeros((len(self.paths), len(columns)), np.int64)
        for path, wall, time_ns in sums.iter_rows():
            inside[path, columns.index(wall)] = time_ns
        parent = self.paths["parent"].to_list()
        for path in range(len(parent) - 1, -1, -1):  # paths stand behind those around them
            if parent[path] >= 0:
                inside[parent[path]] += inside[path]
        return {
            path: Walls(*(round(Fraction(part, step_count)) for part in inside[path].tolist()))
            for path in paths
        }


def range_work(
    work: TypicalWork, projected: pl.DataFrame, tree: pl.DataFrame, paths: pl.DataFrame
) -> pl.DataFrame:
    """Means over the steps for each path that did something (`RANGE_WORK`), the most device time first.

    Args:
        work: the operations of one rank beside its steps.
        projected: `PROJECTION`.
        tree: `NESTED`, the ranges of the rank's process alone.
        paths: `PATHS`.
    """
    path_of_range = np.full(int(tree["range"].to_numpy().max()) + 1 if len(tree) else 0, -1, dtype=np.int64)
    path_of_range[tree["range"].to_numpy()] = tree["path"].to_numpy()
    own = work.operations.join(projected.select("op", "range"), on="op").filter(pl.col("range") >= 0)
    path = path_of_range[own["range"].to_numpy()]
    alone = pl.DataFrame(list(_credited(work, own, path)), schema=_schema("own_"), orient="row")
    inside = pl.DataFrame(
        [row for level in _levels(path, paths) for row in _credited(work, own, level)],
        schema=_schema(""),
        orient="row",
    )
    hosts = _host(work, tree)
    found = hosts.join(inside, on="path", how="full", coalesce=True).join(alone, on="path", how="left")
    return (
        found.with_columns(pl.exclude("path", "count", "host_ns").fill_null(0))
        .sort("gpu_ns", "host_ns", "path", descending=[True, True, False], nulls_last=True)
        .select(RANGE_WORK.names())
        .cast(RANGE_WORK)
    )


def _schema(prefix: str) -> dict[str, pl.DataType]:
    return {"path": pl.UInt32(), **{f"{prefix}{name}": pl.Int64() for name in _SUMS}}


def _credited(work: TypicalWork, operations: pl.DataFrame, path: Rows) -> Iterator[tuple[int, int, int, int]]:
    """Path, device time, work and count of each path; rows with path -1 belong to none."""
    start_ns, end_ns = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    inside_ns, begins = operations["inside_ns"].to_numpy(), operations["begins"].to_numpy()
    order = np.argsort(path, kind="stable")
    edges = np.flatnonzero(np.diff(path[order])) + 1
    for rows in np.split(order, edges):
        if rows.size and path[rows[0]] >= 0:
            covered = work.covered_ns(union(ordered(start_ns[rows], end_ns[rows])))
            yield (
                int(path[rows[0]]),
                covered,
                work.mean(int(inside_ns[rows].sum())),
                work.mean(int(begins[rows].sum())),
            )


def _levels(path: Rows, paths: pl.DataFrame) -> Iterator[Rows]:
    """The ancestor of each path at every depth, from the deepest up; -1 where the path is above it.

    Ranges deeper than 64 count for the one around them at that depth.
    """
    if len(paths) == 0:
        return
    parent, depth = paths["parent"].to_list(), paths["depth"].to_numpy()
    capped: list[int] = []
    for row, above in enumerate(parent):
        capped.append(row if depth[row] <= _DEEPEST else capped[above])
    current = np.array(capped)[path]
    up = np.array(parent)
    for level in range(int(depth[current].max(initial=0)), -1, -1):
        deeper: npt.NDArray[np.bool_] = depth[current] > level
        current = np.where(deeper, up[current], current)
        yield np.where(depth[current] == level, current, -1)


def _host(work: TypicalWork, tree: pl.DataFrame) -> pl.DataFrame:
    """Instances of each path that begin in the host's time for the steps, and their added-up time.

    What reaches beyond the selected time counts until its end.
    """
    start_ns, end_ns = tree["start_ns"].to_numpy(), tree["end_ns"].to_numpy()
    window = np.searchsorted(work.issued.start_ns, start_ns, side="right") - 1
    inside = (window >= 0) & (start_ns < work.issued.end_ns[window])
    until_ns = np.minimum(end_ns, work.host_until_ns[window])
    totals = (
        tree.select("path", host_ns=pl.Series(until_ns - start_ns))
        .filter(pl.Series(inside, dtype=pl.Boolean))
        .group_by("path")
        .agg(count=pl.len(), host_ns=pl.col("host_ns").sum())
    )
    rows = [(path, work.mean(count), work.mean(host_ns)) for path, count, host_ns in totals.iter_rows()]
    return pl.DataFrame(
        rows, schema={"path": pl.UInt32, "count": pl.Int64, "host_ns": pl.Int64}, orient="row"
    )
