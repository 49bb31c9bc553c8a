"""Numbers of a capture turned into text, many at a time; and what of it lies in the selected steps."""

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from wallscope.attribution.prepared import Trace
from wallscope.model.enums import OperationKind


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
        asked = numbers.to_frame("op")
        found = asked.join(rows.select("op", column), on="op", how="left", maintain_order="left")
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
        directions = capture.copies.select("op", pl.col("direction").cast(pl.String))
        return (
            capture.operations.select(
                "op", "kind", text=capture.names["text"].gather(capture.operations["name"])
            )
            .join(directions, on="op", how="left", maintain_order="left")
            .select(
                name=pl.when(pl.col("kind") == OperationKind.KERNEL)
                .then("text")
                .when(pl.col("kind") == OperationKind.GRAPH)
                .then(pl.lit("CUDA graph"))
                .otherwise(name_copies())
            )
            .to_series()
        )

    @cached_property
    def _path_of_range(self) -> pl.Series:
        return self.parts.range_tree.tree.sort("range")["path"]


def name_copies() -> pl.Expr:
    """Return the names of copies, by kind and direction, and of memsets."""
    kind = pl.col("kind").cast(pl.String)
    return (
        pl.when(pl.col("direction") == kind)
        .then(kind)
        .otherwise(pl.concat_str(kind, pl.lit(" "), "direction"))
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
