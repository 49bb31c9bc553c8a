"""The tables behind the answer, all ranks in one frame each: steps, kernels, ranges.

Each begins with the columns `rank` (in the job, null if unknown), `pid` and `device`.
"""

from collections.abc import Callable

import polars as pl

from wallscope.attribution.totals import summed, walls_of_steps
from wallscope.model.frames import BUDGET_PARTS
from wallscope.model.kinds import OperationKind, Wall
from wallscope.summary.ranges import build_range_work
from wallscope.summary.rank import Divided, rank_work

_WHO = ("rank", "pid", "device")
WALL_COLUMNS = tuple(f"{wall}_wall_ns" for wall in Wall)


def step_table(divided: Divided, slices: pl.DataFrame) -> pl.DataFrame:
    """Each window with its bounds, duration, budget, walls, steadiness and reason; `slices` follow `SLICES`.

    A window that the selected time cuts has the bounds that are left of it.
    """
    walled = [
        windows.hstack(_walls(windows, slices))
        for windows in divided.windows.partition_by("rank_id", maintain_order=True)
    ]
    ranks = divided.capture.ranks.select("rank_id", *_WHO)
    return (
        pl.concat(walled)
        .join(ranks, on="rank_id", how="left", maintain_order="left")
        .with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns"))
        .select(
            *(*_WHO, "step", "start_ns", "end_ns", "duration_ns", *BUDGET_PARTS, *WALL_COLUMNS),
            *("steady", "reason"),
        )
    )


def _walls(windows: pl.DataFrame, slices: pl.DataFrame) -> pl.DataFrame:
    """What each wall owns of the windows of one rank."""
    own = slices.filter(pl.col("rank_id") == windows["rank_id"][0])
    return pl.DataFrame(walls_of_steps(summed(own), windows["step"]), schema=list(WALL_COLUMNS), orient="row")


def kernel_table(divided: Divided) -> pl.DataFrame:
    """Each kernel name in the typical step, the most work first.

    `count`, the kernels that begin in a step, and `work_ns`, what lies inside it, are means over the steps
    of the typical step; `step_share` is work over the step, null where that has no length. `median_ns`,
    `least_ns` and `most_ns` are durations of the kernels that begin in those steps, whole also where one
    reaches beyond its step or the selected time.
    """
    return _of_each_rank(divided, _kernels)


def range_table(divided: Divided) -> pl.DataFrame:
    """Each range path in the typical step, the most device time first (`RANGE_WORK`, `name`, `path`)."""
    return _of_each_rank(divided, _ranges)


def _of_each_rank(divided: Divided, table: Callable[[Divided, int, int], pl.DataFrame]) -> pl.DataFrame:
    frames = []
    for row in divided.capture.ranks.iter_rows(named=True):
        who = [pl.lit(row[name], pl.Int32).alias(name) for name in _WHO]
        found = table(divided, row["rank_id"], row["process"])
        frames.append(found.select(*who, *found.columns))
    return pl.concat(frames)


def _kernels(divided: Divided, rank_id: int, _: int) -> pl.DataFrame:
    work = rank_work(divided, rank_id)
    step_count = work.steps.start_ns.size
    step_ns = int((work.steps.end_ns - work.steps.start_ns).sum())
    duration = (pl.col("end_ns") - pl.col("start_ns")).filter("begins")
    return (
        work.operations.filter(pl.col("kind") == OperationKind.KERNEL)
        .group_by("name", "class", "category", "backend")
        .agg(
            count=pl.col("begins").sum() / step_count,
            work_ns=(pl.col("inside_ns").sum() / step_count).round().cast(pl.Int64),
            step_share=pl.col("inside_ns").sum() / (step_ns or None),
            median_ns=duration.median().round().cast(pl.Int64),
            least_ns=duration.min(),
            most_ns=duration.max(),
        )
        .join(divided.capture.names, on="name", how="left")
        .sort("work_ns", "text", descending=[True, False])
        .select(
            pl.col("class").cast(pl.String),
            pl.col("category").cast(pl.String),
            pl.col("backend").cast(pl.String),
            "count",
            "work_ns",
            "step_share",
            "median_ns",
            "least_ns",
            "most_ns",
            name="text",
        )
    )


def _ranges(divided: Divided, rank_id: int, process: int) -> pl.DataFrame:
    found = build_range_work(divided.range_tree, rank_work(divided, rank_id), divided.projected, process)
    return found.drop("path").rename({"text": "path"})
