"""A capture and its answer as the tables of `model.table_columns`, and the tables of single commands."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import polars as pl

from wallscope.attribution.prepared import Prepared, Trace, measure_rank_work
from wallscope.attribution.totals import sum_slices, sum_walls_by_step
from wallscope.errors import UnknownWordError
from wallscope.model.analysis import Analysis, Budget, Rank
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import OperationKind, Wall
from wallscope.model.schemas import BUDGET_PARTS, KERNEL_FLOPS
from wallscope.model.table_columns import TABLES
from wallscope.records import dataclass
from wallscope.summary.kernel_work import rate_kernels
from wallscope.summary.lookups import NameLookup, build_gap_table
from wallscope.summary.ranges import build_range_work
from wallscope.summary.tracks import TrackBuilder

_DECLARED = {table.name: table for table in TABLES}
_SEPARATOR = "; "
_WHO = ("rank", "pid", "device")
WALL_COLUMNS = tuple(f"{wall}_wall_ns" for wall in Wall)
_LENGTH = pl.col("end_ns") - pl.col("start_ns")

Row = Mapping[str, Any]


def _rank(analysis: Analysis, rank: Rank) -> Row:
    gpu = analysis.inputs[rank.input].gpu(rank.gpu)
    return {
        **_who(rank),
        "rank_source": rank.rank_source,
        "gpu": None if gpu is None else gpu.name,
        "steps": len(rank.steps),
        "steady_steps": sum(step.steady for step in rank.steps),
        "typical_step_ns": rank.typical.step_ns,
        "outside_ns": rank.outside_ns,
        **_list_time_columns(rank.typical.budget, rank.typical.walls),
    }


def _list_step_rows(analysis: Analysis) -> Iterator[Row]:
    for rank in analysis.ranks:
        for step in rank.steps:
            yield {
                **_who(rank),
                "step": step.index,
                "start_ns": step.start_ns,
                "end_ns": step.end_ns,
                "duration_ns": step.end_ns - step.start_ns,
                **_list_time_columns(step.budget, step.walls),
                "launch_starved_ns": step.compute_absent.launch_starved,
                "blocking_ns": step.compute_absent.blocking,
                "dependency_stalled_ns": step.compute_absent.dependency_stalled,
                "steady": step.steady,
                "reason": step.reason,
            }


def _of(analysis: Analysis, entries: Any) -> Iterator[dict[str, Any]]:
    for rank in analysis.ranks:
        for entry in entries(rank):
            yield _who(rank) | _row(entry)


def _row(noun: Any) -> dict[str, Any]:
    """Return the fields of a row; semicolons separate several texts in one cell."""
    values = {name: getattr(noun, name) for name in noun.__slots__}
    return {
        name: _SEPARATOR.join(map(str, value))
        if isinstance(value, tuple)
        else str(value)
        if isinstance(value, str)
        else value
        for name, value in values.items()
    }


def _who(rank: Rank) -> dict[str, Any]:
    return {"rank": rank.rank, "pid": rank.pid, "device": rank.device}


def _list_time_columns(budget: Budget, walls: Walls) -> dict[str, int]:
    of_budget = zip(BUDGET_PARTS, budget.parts(), strict=True)
    of_walls = zip(WALL_COLUMNS, walls.parts(), strict=True)
    return dict((*of_budget, *of_walls))


_ROWS: Mapping[str, Callable[[Analysis], Iterable[Row]]] = {
    "ranks": lambda answer: (_rank(answer, rank) for rank in answer.ranks),
    "steps": _list_step_rows,
    "causes": lambda answer: (
        row | {"step_share": row["share"]} for row in _of(answer, lambda rank: rank.causes)
    ),
    "communication": lambda answer: _of(answer, lambda rank: rank.communication.operations),
    "copies": lambda answer: _of(answer, lambda rank: rank.memory.copies),
    "compute": lambda answer: (
        row | {"work_share": row["share"]} for row in _of(answer, lambda rank: rank.compute)
    ),
    "blocking_calls": lambda answer: _of(
        answer, lambda rank: rank.host_details.blocking_calls if rank.host_details else ()
    ),
    "gpu_metrics": lambda answer: _of(
        answer, lambda rank: rank.gpu_metrics.means if rank.gpu_metrics else ()
    ),
    "opportunities": lambda answer: map(_row, answer.opportunities),
    "fixes": lambda answer: (
        _row(fix) | {"place": place, "fix": fix.id} for place, fix in enumerate(answer.fixes or (), start=1)
    ),
    "settings": lambda answer: (
        _row(one) | {"fix": fix.id} for fix in answer.fixes or () for one in fix.settings
    ),
    "preconditions": lambda answer: (
        _row(one) | {"fix": fix.id, "precondition": one.id}
        for fix in answer.fixes or ()
        for one in fix.preconditions
    ),
    "findings": lambda answer: map(_row, answer.capture.findings),
}
ANSWER_TABLES = tuple(_ROWS)
"""The tables that stand in an answer, also in that of a whole job."""


def build_answer_table(analysis: Analysis, name: str) -> pl.DataFrame:
    """One of `ANSWER_TABLES`, for which the answer alone is enough.

    Raises:
        UnknownWordError: there is no such table among them; says which there are.
    """
    if name not in _ROWS:
        raise UnknownWordError(f"{name} — is not a table of an answer — these are {', '.join(ANSWER_TABLES)}")
    schema = _DECLARED[name].schema
    rows = _ROWS[name](analysis)
    return pl.DataFrame([{column: row[column] for column in schema} for row in rows], schema=schema)


@dataclass(frozen=True)
class TableBuilder:
    """Makes tables on demand, those of the selected steps and time; the slices are kept between calls.

    `path` finds a rank, by its id, and the critical paths of its steps (`SHOWN_PATH`).
    """

    analysis: Analysis
    prepared: Prepared
    path: Callable[[], tuple[int, pl.DataFrame]] | None = None

    def frame(self, name: str) -> pl.DataFrame:
        """The table of that name, with the columns and types of its declaration.

        Raises:
            UnknownWordError: there is no such table; says which there are.
        """
        if name not in _DECLARED:
            raise UnknownWordError(f"{name} — is not a table — the tables are {', '.join(_DECLARED)}")
        if name in _ROWS:
            return build_answer_table(self.analysis, name)
        schema = _DECLARED[name].schema
        return _OF_PARTS[name](self).select(schema.names()).cast(schema)

    @cached_property
    def _slices(self) -> pl.DataFrame:
        found = self.prepared.slices()
        chosen = self.prepared.trace.windows.filter(pl.col("selected")).select("rank_id", "step")
        return found.join(chosen, on=["rank_id", "step"], how="semi").sort("rank_id", "start_ns")

    def build_tracks(self) -> TrackBuilder:
        """The same as tracks of a trace."""
        path = None if self.path is None else self.path()
        return TrackBuilder(self.prepared.trace, self._slices, self._named, path)

    @cached_property
    def _named(self) -> NameLookup:
        return NameLookup(self.prepared.trace)

    def _who(self, rows: pl.DataFrame) -> pl.DataFrame:
        ranks = self.prepared.trace.capture.ranks.select("rank_id", *_WHO)
        return rows.join(ranks, on="rank_id", how="left", maintain_order="left")

    def slices(self) -> pl.DataFrame:
        """`slices`: numbers of what takes part, and its names."""
        rows, named = self._slices, self._named
        numbers = [
            pl.when(pl.col(name) >= 0).then(pl.col(name)).alias(name)
            for name in ("op", "next_op", "gap", "call")
        ]
        return (
            self._who(rows)
            .with_columns(
                *numbers,
                duration_ns=_LENGTH,
                link=pl.col("kind").cast(pl.String),
                name=named.operations(rows["op"]),
                call_name=named.calls(rows["call"]),
                path=named.paths(rows["range"]),
                tid=named.tids(rows["thread"]),
            )
            .rename({"gap": "gap_op"})
        )

    def step_causes(self) -> pl.DataFrame:
        """`step_causes`: the slices of each step added up."""
        keys = ("rank_id", "step", "wall", "cause", "state", "absent")
        return self._who(self._slices.group_by(keys).agg(owned_ns=_LENGTH.sum()).sort(keys, nulls_last=True))

    def gaps(self) -> pl.DataFrame:
        """`gaps`, in order of rank and time."""
        return self._who(build_gap_table(self._slices, self.prepared.trace, self._named))

    def operations(self) -> pl.DataFrame:
        """`operations`: those that run in the selected steps and time, all without such a selection."""
        rows, named = self._named.shown_operations, self._named
        op = rows["op"]
        projected = self.prepared.trace.projected
        return self._who(rows).with_columns(
            duration_ns=_LENGTH,
            stream=named.streams("number", rows["stream"]),
            context=named.streams("context", rows["stream"]),
            name=named.operations(op),
            axis=named.at(self.prepared.facts.axes, "axis", op),
            call=pl.when(pl.col("call") >= 0).then("call"),
            call_start_ns=named.call_starts(rows["call"]),
            path=named.paths(projected["range"].gather(op)),
            path_by=projected["how"].gather(op).cast(pl.String),
        )

    def collectives(self) -> pl.DataFrame:
        """`collectives`: each operation that has an axis, known or not."""
        named, facts = self._named, self.prepared.facts.collectives.drop("operation")
        rows = (
            named.shown_operations.drop("bytes", "operation", strict=False)
            .join(self.prepared.facts.axes, on="op", maintain_order="left")
            .join(facts, on="op", how="left", maintain_order="left")
        )
        communicator = rows["communicator"].to_list()
        return self._who(rows).with_columns(
            pl.Series(
                "communicator", [None if one is None else f"{one:#x}" for one in communicator], pl.String
            ),
            duration_ns=_LENGTH,
            name=named.operations(rows["op"]),
        )

    def calls(self) -> pl.DataFrame:
        """`calls` of the processes of the selected ranks."""
        rows, named = self._named.shown_calls, self._named
        return rows.with_columns(
            duration_ns=_LENGTH,
            pid=named.pids(rows["thread"]),
            tid=named.tids(rows["thread"]),
            name=self.prepared.trace.capture.call_names["text"].gather(rows["name"]),
        )

    def ranges(self) -> pl.DataFrame:
        """`ranges` of the processes of the selected ranks."""
        rows, named = self._named.shown_ranges, self._named
        return rows.with_columns(
            duration_ns=_LENGTH,
            pid=named.pids(rows["thread"]),
            tid=named.tids(rows["thread"]),
            name=self.prepared.trace.capture.range_names["text"].gather(rows["name"]),
            path=named.paths(rows["range"]),
            parent=pl.when(pl.col("parent") >= 0).then("parent"),
        )


_OF_PARTS: Mapping[str, Callable[[TableBuilder], pl.DataFrame]] = {
    "step_causes": TableBuilder.step_causes,
    "slices": TableBuilder.slices,
    "gaps": TableBuilder.gaps,
    "operations": TableBuilder.operations,
    "calls": TableBuilder.calls,
    "ranges": TableBuilder.ranges,
    "range_work": lambda made: build_range_table(made.prepared.trace),
    "kernels": lambda made: build_kernel_table(made.prepared.trace),
    "collectives": TableBuilder.collectives,
}


def build_step_table(trace: Trace, slices: pl.DataFrame) -> pl.DataFrame:
    """Return each window with its bounds, duration, budget, walls, steadiness and reason (`SLICES`).

    A window that the selected time cuts has only its remaining bounds.
    """
    walled = [
        windows.hstack(_tabulate_step_walls(windows, slices))
        for windows in trace.windows.partition_by("rank_id", maintain_order=True)
    ]
    ranks = trace.capture.ranks.select("rank_id", *_WHO)
    return (
        pl.concat(walled)
        .join(ranks, on="rank_id", how="left", maintain_order="left")
        .with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns"))
        .select(
            *(*_WHO, "step", "start_ns", "end_ns", "duration_ns", *BUDGET_PARTS, *WALL_COLUMNS),
            *("steady", "reason"),
        )
    )


def _tabulate_step_walls(windows: pl.DataFrame, slices: pl.DataFrame) -> pl.DataFrame:
    """Return the time of each wall in the windows of one rank."""
    own = slices.filter(pl.col("rank_id") == windows["rank_id"][0])
    return pl.DataFrame(
        sum_walls_by_step(sum_slices(own), windows["step"]), schema=list(WALL_COLUMNS), orient="row"
    )


def build_kernel_table(trace: Trace) -> pl.DataFrame:
    """Return each kernel name in the typical step, the most work first.

    `count`, the kernels that begin in a step, and `work_ns`, their time inside it, are means over the steps
    of the typical step. `step_share` is work divided by the step, null for a step of length 0. `median_ns`,
    `mean_ns`, `least_ns`, `most_ns` and `deviation_ns` describe the durations of whole kernels that begin in
    those steps, even if one ends outside its step or the selected time. The standard deviation
    `deviation_ns` divides by one less than their count, and is null for one kernel. `flops_per_s` and
    `peak_share` are null unless shapes of operators give the FLOPs.
    """
    return _of_each_rank(trace, _tabulate_kernels)


def build_range_table(trace: Trace) -> pl.DataFrame:
    """Return each NVTX range path in the typical step of its rank, with the work and walls inside it."""
    return _of_each_rank(trace, _tabulate_ranges)


def _of_each_rank(trace: Trace, table: Callable[[Trace, int, int], pl.DataFrame]) -> pl.DataFrame:
    frames = []
    for row in trace.capture.ranks.iter_rows(named=True):
        who = [pl.lit(row[name], pl.Int32).alias(name) for name in _WHO]
        found = table(trace, row["rank_id"], row["process"])
        frames.append(found.select(*who, *found.columns))
    return pl.concat(frames)


def _tabulate_kernels(trace: Trace, rank_id: int, _: int) -> pl.DataFrame:
    work = measure_rank_work(trace, rank_id)
    step_count = work.steps.start_ns.size
    step_ns = int((work.steps.end_ns - work.steps.start_ns).sum())
    duration = (pl.col("end_ns") - pl.col("start_ns")).filter("begins")
    capture = trace.capture
    flops = KERNEL_FLOPS.to_frame() if capture.kernel_flops is None else capture.kernel_flops
    gpu = capture.export.gpu(capture.ranks.filter(pl.col("rank_id") == rank_id)["gpu"][0])
    return (
        work.operations.filter(pl.col("kind") == OperationKind.KERNEL)
        .group_by("name", "class", "category", "backend")
        .agg(
            count=pl.col("begins").sum() / step_count,
            work_ns=(pl.col("inside_ns").sum() / step_count).round().cast(pl.Int64),
            step_share=pl.col("inside_ns").sum() / (step_ns or None),
            median_ns=duration.median().round().cast(pl.Int64),
            mean_ns=duration.mean().round().cast(pl.Int64),
            least_ns=duration.min(),
            most_ns=duration.max(),
            deviation_ns=duration.std().round().cast(pl.Int64),
        )
        .join(rate_kernels(work.operations, flops, capture.names, gpu), on="name", how="left")
        .join(capture.names, on="name", how="left")
        .sort("work_ns", "text", descending=[True, False])
        .select(
            pl.col("class").cast(pl.String),
            pl.col("category").cast(pl.String),
            pl.col("backend").cast(pl.String),
            "count",
            "work_ns",
            "step_share",
            "median_ns",
            "mean_ns",
            "least_ns",
            "most_ns",
            "deviation_ns",
            "flops_per_s",
            "peak_share",
            name="text",
        )
    )


def _tabulate_ranges(trace: Trace, rank_id: int, process: int) -> pl.DataFrame:
    found = build_range_work(trace.range_tree, measure_rank_work(trace, rank_id), trace.projected, process)
    return found.drop("path").rename({"text": "path"})
