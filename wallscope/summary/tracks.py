"""A capture as tracks of a trace: steps, walls, causes and streams of ranks, calls and ranges of threads."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from wallscope.attribution.prepared import Trace
from wallscope.model.enums import LinkKind
from wallscope.model.report import COUNTED, TRACED, Track
from wallscope.records import dataclass
from wallscope.summary.lookups import NameLookup, write_thread_id

_NO_FLOWS = {"flows_out": pl.lit(None, TRACED["flows_out"]), "flow_in": pl.lit(None, TRACED["flow_in"])}
_SEGMENT = ("step", "cause", "wall", "state", "absent", "kind", "gap", "who", "call", "thread")


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
