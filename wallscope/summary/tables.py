"""A capture and its answer as the tables of `model.table_columns`, and as tracks of a trace.

Of ranks there are tracks of steps, walls, causes and streams, of threads those of calls and ranges.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from wallscope.attribution.prepared import Prepared, Trace
from wallscope.errors import UnknownWordError
from wallscope.model.analysis import Analysis, Budget, Rank
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import LinkKind, Wall
from wallscope.model.report import COUNTED, TRACED, Track
from wallscope.model.schemas import BUDGET_PARTS
from wallscope.model.table_columns import TABLES
from wallscope.summary.lookups import NameLookup, build_gap_table, write_thread_id
from wallscope.summary.rank import build_kernel_table, build_range_table

_DECLARED = {table.name: table for table in TABLES}
_SEPARATOR = "; "
_WHO = ("rank", "pid", "device")
_LENGTH = pl.col("end_ns") - pl.col("start_ns")
_NO_FLOWS = {"flows_out": pl.lit(None, TRACED["flows_out"]), "flow_in": pl.lit(None, TRACED["flow_in"])}
_SEGMENT = ("step", "cause", "wall", "state", "absent", "kind", "gap", "who", "call", "thread")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class TrackBuilder:
    """Makes the tracks one after the other; `slices` (`SLICES`) are those of the selected steps.

    `path` is a rank, by its id, with the critical paths of its steps (`SHOWN_PATH`).
    """

    parts: Trace
    slices: pl.DataFrame
    named: NameLookup
    path: tuple[int, pl.DataFrame] | None = None

    def earliest_ns(self) -> int:
        """When the first thing on any track begins."""
        frames = (self.named.shown_operations, self.named.shown_calls, self.named.shown_ranges, self.slices)
        firsts = [frame["start_ns"].min() for frame in frames if len(frame)]
        return min((int(first) for first in firsts if isinstance(first, int)), default=0)

    def tracks(self) -> Iterator[Track]:
        """All tracks, parents before what they hold."""
        ranks, threads = self.parts.capture.ranks, self.parts.capture.threads
        by_pid = pl.concat([ranks.select("process", "pid"), threads.select("process", "pid")]).unique()
        shared = by_pid.filter(pl.col("pid").is_duplicated())["pid"].to_list()
        place = 0
        for (process,), own in ranks.group_by("process", maintain_order=True):
            pid = own["pid"][0]
            has_pid = pid is not None and pid > 0 and pid not in shared
            name = "process" if pid is None else f"process {pid}"
            yield Track(name, None, pid=pid if has_pid else None)
            around, place = place, place + 1
            for rank in own.iter_rows(named=True):
                for track in self._of_rank(rank, around, place):
                    yield track
                    place += 1
            of_process = threads.filter(pl.col("process") == process)
            for thread in of_process.iter_rows(named=True):
                for track in self._of_thread(thread, around, place, has_pid=has_pid):
                    yield track
                    place += 1

    def _of_rank(self, rank: dict[str, Any], parent: int, place: int) -> Iterator[Track]:
        device = "device" if rank["device"] is None else f"device {rank['device']}"
        yield Track(device if rank["rank"] is None else f"rank {rank['rank']}, {device}", parent)
        is_own = pl.col("rank_id") == rank["rank_id"]
        slices = self.slices.filter(is_own).sort("start_ns")
        yield Track("steps", place, slices=self._steps(rank["rank_id"]))
        yield Track("walls", place, slices=_join_runs(slices, ("step", "wall"), "wall"))
        yield Track("causes", place, slices=self._causes(slices))
        yield Track("device state", place, slices=_join_runs(slices, ("step", "state"), "state"))
        if self.path is not None and self.path[0] == rank["rank_id"] and len(self.path[1]):
            yield Track("critical path", place, slices=_of_path(self.path[1]))
        operations = self.named.shown_operations.filter(is_own)
        numbers = self.parts.capture.streams.filter(is_own).select("stream", "number")
        streams = operations.select("stream").unique().join(numbers, on="stream", how="left")
        for stream, number in streams.sort("number", "stream").iter_rows():
            shown = self._operations(operations.filter(pl.col("stream") == stream))
            yield Track("stream" if number is None else f"stream {number}", place, slices=shown)
        yield from self._counters(rank, place)

    def _of_thread(
        self, thread: dict[str, Any], parent: int, place: int, *, has_pid: bool
    ) -> Iterator[Track]:
        is_own = pl.col("thread") == thread["thread"]
        calls = self._calls(self.named.shown_calls.filter(is_own))
        ranges = self._ranges(self.named.shown_ranges.filter(is_own))
        if calls.is_empty() and ranges.is_empty():
            return
        tid = thread["tid"]
        name = " ".join(filter(None, ("thread", "" if tid is None else write_thread_id(tid), thread["role"])))
        known = has_pid and tid is not None and tid > 0
        yield Track(name, parent, pid=thread["pid"] if known else None, tid=tid if known else None)
        if len(ranges):
            yield Track("NVTX", place, slices=ranges, nesting="nested")
        if len(calls):
            yield Track("CUDA API", place, slices=calls, nesting="nested")

    def _steps(self, rank_id: int) -> pl.DataFrame:
        windows = self.parts.windows.filter((pl.col("rank_id") == rank_id) & pl.col("selected"))
        counts = pl.when("steady").then(pl.lit("steady")).otherwise(pl.lit("not steady"))
        return _make_track_rows(
            windows.sort("start_ns"),
            "step",
            "reason",
            name=pl.concat_str(pl.lit("step "), pl.col("step").cast(pl.String)),
            category=counts,
        )

    def _causes(self, slices: pl.DataFrame) -> pl.DataFrame:
        """Return consecutive segments of one cause, with its operation, what ends the gap, and the slack."""
        op = pl.when(pl.col("kind").is_not_null()).then("op")
        runs = _join_runs(slices.with_columns(who=op), _SEGMENT, "cause", *slices.columns)
        is_device = pl.col("kind") == LinkKind.OPERATION
        of_op, of_call = self.named.operations(runs["op"]), self.named.calls(runs["call"])
        ended_by = self.named.operations(runs["gap"])
        return _make_track_rows(
            runs.with_columns(of_op=of_op, of_call=of_call, ended_by=ended_by),
            "absent",
            "link",
            "owner",
            "ended_by",
            "path",
            "slack_ns",
            name=pl.col("cause"),
            category=pl.col("wall").cast(pl.String),
            link=pl.col("kind").cast(pl.String),
            absent=pl.col("absent").cast(pl.String),
            owner=pl.when(is_device).then("of_op").when(pl.col("kind").is_not_null()).then("of_call"),
            path=self.named.paths(runs["range"]),
        )

    def _operations(self, operations: pl.DataFrame) -> pl.DataFrame:
        ordered = operations.sort("start_ns", "end_ns", "op", descending=[False, True, False])
        return _make_track_rows(
            ordered,
            "op",
            "bytes",
            "path",
            name=self.named.operations(ordered["op"]),
            category=pl.col("category").cast(pl.String),
            path=self.named.paths(self.parts.projected["range"].gather(ordered["op"])),
            flow_in=pl.when(pl.col("call") >= 0).then(_flow(pl.col("op"))),
        )

    def _calls(self, calls: pl.DataFrame) -> pl.DataFrame:
        """Calls with an arrow to each operation that they issued and that is shown."""
        issued = self.named.shown_operations.filter(pl.col("call") >= 0).select(
            pl.col("call").cast(pl.UInt32), flows_out=_flow(pl.col("op"))
        )
        arrows = issued.join(calls, on="call", how="semi").group_by("call").agg(pl.col("flows_out").sort())
        ordered = calls.sort("start_ns", "end_ns", "call", descending=[False, True, False])
        names = self.parts.capture.call_names["text"].gather(ordered["name"])
        return _make_track_rows(
            ordered.join(arrows, on="call", how="left", maintain_order="left"),
            name=names,
            category=pl.col("role").cast(pl.String),
            flows_out=pl.col("flows_out"),
        )

    def _ranges(self, ranges: pl.DataFrame) -> pl.DataFrame:
        ordered = ranges.sort("start_ns", "end_ns", "range", descending=[False, True, False])
        names = self.parts.capture.range_names["text"].gather(ordered["name"])
        return _make_track_rows(ordered, name=names, category=pl.lit("NVTX"))

    def _counters(self, rank: dict[str, Any], place: int) -> Iterator[Track]:
        """Memory in use, and the samples of its GPU."""
        capture = self.parts.capture
        if rank["device"] is not None:
            is_own = (pl.col("process") == rank["process"]) & (pl.col("device") == rank["device"])
            memory = self._in_time(capture.memory.filter(is_own), rank)
            if len(memory):
                yield Track("memory in use", place, counter=_counter(memory, "bytes_used"), unit="bytes")
        if rank["gpu"] is not None:
            samples = self._in_time(capture.samples.filter(pl.col("gpu") == rank["gpu"]), rank)
            for (metric,), own in samples.group_by("metric", maintain_order=True):
                name = capture.metric_names.filter(pl.col("name") == metric)["text"][0]
                yield Track(name, place, counter=_counter(own, "value"), unit="as Nsight names it")

    def _in_time(self, rows: pl.DataFrame, rank: dict[str, Any]) -> pl.DataFrame:
        stretches = self.named.stretches
        if stretches is None:
            return rows
        own = stretches.filter(pl.col("rank_id") == rank["rank_id"]).row(0, named=True)
        return rows.filter((pl.col("at_ns") >= own["from_ns"]) & (pl.col("at_ns") < own["until_ns"]))


def _of_path(path: pl.DataFrame) -> pl.DataFrame:
    """Return the segments of a path by kind, with their causes."""
    own = pl.when(pl.col("name") == "").then("cause").otherwise("name")
    return _make_track_rows(path, "cause", "bound", "step", name=own, category=pl.col("wall").cast(pl.String))


def _join_runs(slices: pl.DataFrame, keys: tuple[str, ...], name: str, *kept: str) -> pl.DataFrame:
    """Join adjacent rows with equal keys: `TRACED`, or the first row's `kept` columns."""
    changes = pl.any_horizontal(pl.col(key).ne_missing(pl.col(key).shift()) for key in keys)
    apart = pl.col("start_ns") != pl.col("end_ns").shift(fill_value=0)
    others = dict.fromkeys(column for column in (*keys, *kept) if column not in {"start_ns", "end_ns"})
    runs = (
        slices.with_columns(run=(changes | apart).cum_sum())
        .group_by("run", maintain_order=True)
        .agg(pl.col("start_ns").first(), pl.col("end_ns").last(), pl.col(*others).first())
    )
    if kept:
        return runs
    return _make_track_rows(runs, name=pl.col(name).cast(pl.String), category=pl.lit(None, pl.String))


def _make_track_rows(rows: pl.DataFrame, *notes: str, **columns: pl.Expr | pl.Series) -> pl.DataFrame:
    """Rows as `TRACED` with notes."""
    made = rows.with_columns(**(_NO_FLOWS | columns))
    return made.select(*TRACED.names(), *notes).cast(TRACED)


def _counter(rows: pl.DataFrame, value: str) -> pl.DataFrame:
    return rows.select("at_ns", value=pl.col(value)).cast(COUNTED).sort("at_ns", maintain_order=True)


def _flow(op: pl.Expr) -> pl.Expr:
    """The number of the arrow to an operation; 0 is none."""
    return op.cast(pl.UInt64) + 1


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
    of_walls = zip((f"{wall}_wall_ns" for wall in Wall), walls.parts(), strict=True)
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
