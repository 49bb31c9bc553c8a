"""Look up things of a capture: names of operations, calls and paths; gaps without compute; moments.

Gaps come with their causes, and with where to find them in the timeline of Nsight Systems.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from wallscope.attribution.prepared import Trace
from wallscope.model.capture import Capture
from wallscope.model.enums import LinkKind, OperationKind
from wallscope.model.report import GAPS, Gap, GapGroup, Link, Moment
from wallscope.records import dataclass
from wallscope.render.texts import shorten_name


@dataclass(frozen=True)
class NameLookup:
    """Looks up names; numbers below 0 have none, and are null."""

    parts: Trace

    def operations(self, numbers: pl.Series) -> pl.Series:
        """What operations are called: the kernel, or kind and direction of a copy."""
        return self._operation_names.gather(mask_negative(numbers))

    def streams(self, column: str, streams: pl.Series) -> pl.Series:
        """A column of `DEVICE_STREAMS` for each of the streams."""
        known = self.parts.capture.streams.select("stream", column)
        return streams.to_frame("stream").join(known, on="stream", how="left", maintain_order="left")[column]

    def calls(self, numbers: pl.Series) -> pl.Series:
        """Return the names of the functions of calls."""
        capture = self.parts.capture
        return capture.call_names["text"].gather(capture.calls["name"].gather(mask_negative(numbers)))

    def call_starts(self, numbers: pl.Series) -> pl.Series:
        """When calls began."""
        return self.parts.capture.calls["start_ns"].gather(mask_negative(numbers))

    def tids(self, threads: pl.Series) -> pl.Series:
        """The system's numbers of threads."""
        return self.parts.capture.threads["tid"].gather(mask_negative(threads))

    def pids(self, threads: pl.Series) -> pl.Series:
        """The system's numbers of the processes of threads."""
        return self.parts.capture.threads["pid"].gather(mask_negative(threads))

    def paths(self, ranges: pl.Series) -> pl.Series:
        """Folded names from the outermost range to each range."""
        return self.parts.range_tree.texts.gather(self._path_of_range.gather(mask_negative(ranges)))

    def at(self, rows: pl.DataFrame, column: str, numbers: pl.Series) -> pl.Series:
        """A column of rows that have an `op`, for the operations of these numbers; null without a row."""
        wanted = numbers.to_frame("op")
        found = wanted.join(rows.select("op", column), on="op", how="left", maintain_order="left")
        return found[column]

    @cached_property
    def shown_operations(self) -> pl.DataFrame:
        """Operations (`CLASSIFIED`) of the selected ranks that run in the selected time."""
        rows, stretches = self.parts.operations, self.stretches
        if stretches is None:
            return rows
        joined = rows.join(stretches, on="rank_id", maintain_order="left")
        inside = (pl.col("start_ns") < pl.col("until_ns")) & (pl.col("end_ns") > pl.col("from_ns"))
        return joined.filter(inside).select(rows.columns)

    @cached_property
    def shown_calls(self) -> pl.DataFrame:
        """Calls (`CALLS`) of the same processes in the host's time for it, and those that issued them."""
        rows, host_time = self._of_processes(self.parts.capture.calls), self._host_time()
        if host_time is None:
            return rows
        issuers = self.shown_operations.filter(pl.col("call") >= 0)["call"].unique().cast(pl.UInt32)
        return rows.filter(host_time | pl.col("call").is_in(issuers.implode()))

    @cached_property
    def shown_ranges(self) -> pl.DataFrame:
        """Ranges (`NESTED`) of the same processes in that time, in order of their numbers."""
        rows, host_time = self._of_processes(self.parts.range_tree.tree).sort("range"), self._host_time()
        return rows if host_time is None else rows.filter(host_time)

    @cached_property
    def stretches(self) -> pl.DataFrame | None:
        """From when until when each rank is selected, and its host; `None` where all is."""
        selection = self.parts.selection
        if selection.steps is None and selection.time_ns is None:
            return None
        chosen = self.parts.windows.filter(pl.col("selected"))
        return chosen.group_by("rank_id", maintain_order=True).agg(
            from_ns=pl.col("start_ns").min(),
            until_ns=pl.col("end_ns").max(),
            host_from_ns=pl.min_horizontal(pl.col("start_ns").min(), pl.col("issue_start_ns").min()),
        )

    def _host_time(self) -> pl.Expr | None:
        """Return whether something on the host lies in the selected time; `None` where all is selected."""
        stretches = self.stretches
        if stretches is None:
            return None
        from_ns, until_ns = stretches["host_from_ns"].min(), stretches["until_ns"].max()
        return (pl.col("start_ns") < until_ns) & (pl.col("end_ns") > from_ns)

    def _of_processes(self, rows: pl.DataFrame) -> pl.DataFrame:
        capture = self.parts.capture
        of = capture.threads.filter(pl.col("process").is_in(capture.ranks["process"].implode()))
        return rows.filter(pl.col("thread").is_in(of["thread"].implode()))

    @cached_property
    def _operation_names(self) -> pl.Series:
        capture = self.parts.capture
        return name_operations(capture, capture.operations, capture.names["text"])

    @cached_property
    def _path_of_range(self) -> pl.Series:
        return self.parts.range_tree.tree.sort("range")["path"]


def name_operations(capture: Capture, operations: pl.DataFrame, texts: pl.Series) -> pl.Series:
    """Name operations: kernels by `texts`, copies and memsets by kind and direction.

    Args:
        capture: the capture.
        operations: `OPERATIONS`, some rows of it or null.
        texts: String[name], what kernels are called.
    """
    directions = capture.copies.select("op", pl.col("direction").cast(pl.String))
    kind = pl.col("kind").cast(pl.String)
    return (
        operations.select("op", "kind", text=texts.gather(operations["name"]))
        .join(directions, on="op", how="left", maintain_order="left")
        .select(
            name=pl.when(pl.col("kind") == OperationKind.KERNEL)
            .then("text")
            .when(pl.col("kind") == OperationKind.GRAPH)
            .then(pl.lit("CUDA graph"))
            .when(pl.col("direction") == kind)
            .then(kind)
            .otherwise(pl.concat_str(kind, pl.lit(" "), "direction"))
        )
        .to_series()
    )


def write_thread_id(tid: int | None) -> str:
    """Write the number of a thread; profilers of PyTorch store the lower half of a long one with a sign.

    >>> write_thread_id(4711), write_thread_id(-1029147072), write_thread_id(-1), write_thread_id(None)
    ('4711', '3265820224', 'unknown', 'unknown')
    """
    if tid is None or tid == -1:
        return "unknown"
    return str(tid if tid >= 0 else tid % (1 << 32))


def mask_negative(numbers: pl.Series) -> pl.Series:
    """Return the numbers as indexes of rows; those below 0 are null."""
    return pl.select(pl.when(numbers >= 0).then(numbers)).to_series()


_LENGTH = pl.col("end_ns") - pl.col("start_ns")
_WHO = ("rank", "pid", "device")


class GapLookup:
    """Looks up the gaps and moments of slices (`SLICES`, all ranks)."""

    def __init__(self, trace: Trace, slices: pl.DataFrame) -> None:
        self._capture, self._ranges, self._projected = trace.capture, trace.range_tree, trace.projected
        self._steps = trace.windows.select("rank_id", "step", "steady")
        self._slices = number_gaps(slices)

    def gaps(self, most: int) -> tuple[Gap, ...]:
        """The longest gaps of each rank, those of steady steps before all others, the longest first."""
        return tuple(
            gap for rank in self._capture.ranks.iter_rows(named=True) for gap in self._of_rank(rank, most)
        )

    def groups(self, most: int) -> tuple[GapGroup, ...]:
        """Return like gaps of each rank, those that take most first: same cause, next operation and range."""
        return tuple(
            group
            for rank in self._capture.ranks.iter_rows(named=True)
            for group in self._group_of_rank(rank, most)
        )

    def moments(self, at_ns: int) -> tuple[Moment, ...]:
        """Return what each rank did at one moment."""
        return tuple(self._at(rank, at_ns) for rank in self._capture.ranks.iter_rows(named=True))

    def _at(self, rank: dict[str, Any], at_ns: int) -> Moment:
        own = self._slices.filter(pl.col("rank_id") == rank["rank_id"])
        running = own.filter((pl.col("start_ns") <= at_ns) & (at_ns < pl.col("end_ns")))
        if running.is_empty():
            return Moment(rank, None, ())
        row = running.row(0, named=True)
        together = own.filter(pl.col("number") == row["number"]) if row["number"] is not None else running
        row["path"] = self._path(row["range"])
        return Moment(rank, row, tuple(self.links(together)))

    def links(self, slices: pl.DataFrame) -> Iterator[Link]:
        """Yield the links of adjacent slices; time outside CUDA calls is one, named by its longest part."""
        together: Link | None = None
        longest_ns = 0
        for row in slices.iter_rows(named=True):
            length_ns = row["end_ns"] - row["start_ns"]
            link = self._describe_link(row)
            if (
                together is not None
                and link.cause == together.cause
                and (link.what == together.what or row["kind"] == LinkKind.OUTSIDE_CALLS)
            ):
                longer = link if length_ns > longest_ns else together
                longest_ns = max(longest_ns, length_ns)
                together = replace(
                    longer, start_ns=together.start_ns, end_ns=link.end_ns, slack_ns=link.slack_ns
                )
                continue
            if together is not None:
                yield together
            together, longest_ns = link, length_ns
        if together is not None:
            yield together

    def operation(self, op: int) -> str:
        """The name of an operation: its kernel, or the direction of a copy."""
        row = self._capture.operations.row(op, named=True)
        if row["kind"] == OperationKind.KERNEL:
            return str(self._capture.names["text"][row["name"]])
        copied = self._capture.copies.filter(pl.col("op") == op)
        what = copied["direction"][0] if len(copied) else "CUDA graph"
        return what if row["kind"] == OperationKind.GRAPH else f"{row['kind']} {what}"

    def _of_rank(self, rank: dict[str, Any], most: int) -> Iterator[Gap]:
        own = self._slices_in_gaps(rank)
        longest = (
            _measure_gaps(own)
            .join(self._steadiness(rank), on="step", maintain_order="left")
            .sort("steady", "duration_ns", "start_ns", descending=[True, True, False])
            .head(most)
        )
        yield from self._describe_each(rank, own, longest)

    def _steadiness(self, rank: dict[str, Any]) -> pl.DataFrame:
        """Return which steps of a rank are steady (`step`, `steady`)."""
        return self._steps.filter(pl.col("rank_id") == rank["rank_id"]).drop("rank_id")

    def _slices_in_gaps(self, rank: dict[str, Any]) -> pl.DataFrame:
        return self._slices.filter((pl.col("rank_id") == rank["rank_id"]) & pl.col("number").is_not_null())

    def _group_of_rank(self, rank: dict[str, Any], most: int) -> Iterator[GapGroup]:
        own = self._slices_in_gaps(rank)
        found = (
            self._find_enders(_measure_gaps(own))
            .join(_find_main_causes(own), on="number")
            .sort("duration_ns", "start_ns", descending=[True, False])
            .group_by("cause", "ender", "path", maintain_order=True)
            .agg(
                pl.col("number", "step", "start_ns", "end_ns", "gap", "duration_ns").first(),
                count=pl.len(),
                steps=pl.col("step").n_unique(),
                total_ns=pl.col("duration_ns").sum(),
            )
            .sort("total_ns", "start_ns", descending=[True, False])
            .head(most)
        )
        longest = found.select("number", "step", "start_ns", "end_ns", "gap", "duration_ns")
        longest = longest.join(self._steadiness(rank), on="step", maintain_order="left")
        gaps = self._describe_each(rank, own, longest)
        sums = found.select("count", "steps", "total_ns").iter_rows()
        yield from (GapGroup(gap, *each) for gap, each in zip(gaps, sums, strict=True))

    def _describe_each(self, rank: dict[str, Any], own: pl.DataFrame, longest: pl.DataFrame) -> Iterator[Gap]:
        """Describe some gaps; `own` are the slices in gaps of the rank."""
        numbers = own["number"].to_numpy()
        wanted = longest["number"].to_numpy()
        first, last = np.searchsorted(numbers, wanted), np.searchsorted(numbers, wanted, side="right")
        for found, begin, end in zip(
            longest.iter_rows(named=True), first.tolist(), last.tolist(), strict=True
        ):
            links = tuple(self.links(own[begin:end]))
            row = {name: rank[name] for name in _WHO} | found | _describe_gap(links)
            row |= self._ender(found["gap"], found["end_ns"])
            yield Gap({name: row[name] for name in GAPS}, links)

    def _find_enders(self, measured: pl.DataFrame) -> pl.DataFrame:
        """Add the short name of what ends each gap, and the number of the path that issued it; else null."""
        capture, known = self._capture, mask_negative(measured["gap"])
        begins = capture.operations["start_ns"].gather(known)
        rows = measured.with_columns(op=known, begins_ns=begins).with_columns(
            op=pl.when(pl.col("begins_ns") <= pl.col("end_ns")).then("op")
        )
        names = capture.operations["name"].gather(rows["op"])
        texts = capture.names.select("name", "text").filter(pl.col("name").is_in(names.unique().implode()))
        texts = texts.with_columns(
            ender=pl.Series([shorten_name(text) for text in texts["text"].to_list()], dtype=pl.String)
        )
        inside = self._projected["range"].gather(rows["op"]).fill_null(-1).to_numpy()
        return (
            rows.with_columns(
                names.alias("name"),
                capture.operations["kind"].gather(rows["op"]).cast(pl.String).alias("kind"),
                path=pl.Series(self._ranges.path_of_range[inside]),
            )
            .join(texts.select("name", "ender"), on="name", how="left", maintain_order="left")
            .with_columns(
                ender=pl.when(pl.col("kind") == OperationKind.KERNEL).then("ender").otherwise("kind")
            )
            .drop("name", "kind", "op", "begins_ns")
        )

    def _ender(self, op: int, end_ns: int) -> dict[str, Any]:
        """The operation that ends a gap, unless the window ends before."""
        capture = self._capture
        nobody = dict.fromkeys(("ended_by", "stream", "call", "call_start_ns", "tid", "path"))
        if op < 0 or capture.operations["start_ns"][op] > end_ns:
            return nobody
        call = capture.operations["call"][op]
        streams = capture.streams.filter(pl.col("stream") == capture.operations["stream"][op])
        ender = nobody | {
            "ended_by": self.operation(op),
            "stream": streams["number"][0],
            "path": self._path(self._projected["range"][op]),
        }
        if call >= 0:
            ender["call"] = self._call(call)
            ender["call_start_ns"] = capture.calls["start_ns"][call]
            ender["tid"] = self._tid(capture.calls["thread"][call])
        return ender

    def _describe_link(self, row: dict[str, Any]) -> Link:
        """Describe a slice: the operation, the call, or the thread with its ranges."""
        kind, path = row["kind"], None
        if kind in {None, LinkKind.OPERATION, LinkKind.HAND_OVER}:
            name = self.operation(row["op"])
        elif kind == LinkKind.UNRESOLVED:
            name = "cause unknown"
        elif kind == LinkKind.OUTSIDE_CALLS:
            name, path = f"thread {self._tid(row['thread'])}", self._path(row["range"])
        else:
            name = self._call(row["call"])
        is_after = kind == LinkKind.HAND_OVER
        return Link(row["start_ns"], row["end_ns"], row["cause"], name, row["slack_ns"], path, is_after)

    def _call(self, call: int) -> str:
        return str(self._capture.call_names["text"][self._capture.calls["name"][call]])

    def _tid(self, thread: int) -> int | None:
        tid: int | None = self._capture.threads["tid"][thread]
        return tid

    def _path(self, number: int) -> str | None:
        if number < 0:
            return None
        return str(self._ranges.texts[int(self._ranges.path_of_range[number])])


def _describe_gap(links: tuple[Link, ...]) -> dict[str, Any]:
    """Return the main cause of a gap with its least slack, and the chain as text."""
    owned_ns: Counter[str] = Counter()
    for link in links:
        owned_ns[link.cause] += link.end_ns - link.start_ns
    cause, cause_ns = min(owned_ns.items(), key=lambda owner: (-owner[1], owner[0]))
    slacks = [link.slack_ns for link in links if link.cause == cause and link.slack_ns is not None]
    chain = (f"{link.cause} {link.end_ns - link.start_ns} ns ({link.what})" for link in links)
    return {
        "cause": cause,
        "cause_ns": cause_ns,
        "slack_ns": min(slacks, default=None),
        "chain": " → ".join(chain),
    }


def number_gaps(slices: pl.DataFrame) -> pl.DataFrame:
    """The slices in order of rank and time with `number`, that of their gap; null where compute ran."""
    ordered = slices.sort("rank_id", "start_ns")
    in_gap = pl.col("kind").is_not_null()
    goes_on = (
        in_gap
        & in_gap.shift(1, fill_value=False)
        & (pl.col("start_ns") == pl.col("end_ns").shift(1))
        & (pl.col("step") == pl.col("step").shift(1))
        & (pl.col("rank_id") == pl.col("rank_id").shift(1))
    )
    begins = in_gap & ~goes_on.fill_null(value=False)
    return ordered.with_columns(number=pl.when(in_gap).then(begins.cum_sum()))


def _measure_gaps(slices: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each gap: its step, bounds, length, and the operation that ends it (`gap`)."""
    return (
        slices.group_by("number", maintain_order=True)
        .agg(pl.col("step", "start_ns").first(), pl.col("end_ns", "gap").last())
        .with_columns(duration_ns=_LENGTH)
    )


def _find_main_causes(slices: pl.DataFrame) -> pl.DataFrame:
    """Return the cause that takes most of each gap."""
    return (
        slices.group_by("number", "cause")
        .agg(ns=_LENGTH.sum())
        .sort("number", "ns", "cause", descending=[False, True, False])
        .group_by("number", maintain_order=True)
        .agg(pl.col("cause").first())
    )


_GAP = ("rank_id", "number")


def build_gap_table(slices: pl.DataFrame, parts: Trace, named: NameLookup) -> pl.DataFrame:
    """Each gap of `slices` (`SLICES`), with `rank_id`; columns as the table `gaps` declares them."""
    inside = number_gaps(slices).filter(pl.col("number").is_not_null())
    bounds = inside.group_by(_GAP, maintain_order=True).agg(
        pl.col("step", "start_ns").first(), pl.col("end_ns", "gap").last(), links=pl.len()
    )
    owners = (
        inside.group_by(*_GAP, "wall", "cause")
        .agg(cause_ns=_LENGTH.sum())
        .sort(*_GAP, "cause_ns", "cause", descending=[False, False, True, False])
        .unique(_GAP, keep="first", maintain_order=True)
    )
    found = bounds.join(owners, on=_GAP, how="left", maintain_order="left")
    operations = parts.capture.operations
    op = pl.select(pl.when(found["gap"] >= 0).then(found["gap"])).to_series()
    ends = operations["start_ns"].gather(op) <= found["end_ns"]
    ender = pl.select(pl.when(ends).then(op)).to_series()
    return found.with_columns(
        duration_ns=_LENGTH,
        ended_by_op=ender,
        ended_by=named.operations(ender),
        path=named.paths(parts.projected["range"].gather(ender)),
        call_start_ns=named.call_starts(operations["call"].gather(ender)),
    )
