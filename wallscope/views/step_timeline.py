"""Timelines of single steps, for people to look at."""

import polars as pl

from wallscope.attribution.prepared import Trace
from wallscope.model.analysis import Rank
from wallscope.model.enums import LinkKind, OperationClass, OperationKind, Wall
from wallscope.model.report import SHOWN_HOST, SHOWN_OPERATIONS, SHOWN_SLICES, StepTimeline
from wallscope.trace.ranges import write_paths

_MOST_THREADS = 12
_LONGEST_NAME = 400
_WALL_OF_CLASS = {
    OperationClass.COMPUTE: Wall.COMPUTE,
    OperationClass.OPAQUE_GRAPH: Wall.UNATTRIBUTED,
    OperationClass.COMMUNICATION: Wall.COMMUNICATION,
    OperationClass.COPY: Wall.MEMORY,
}


def build_step_timelines(
    trace: Trace, slices: pl.DataFrame, place: int, rank: Rank
) -> tuple[StepTimeline, ...]:
    """The typical and the worst step of the rank at `place`; one where both are the same.

    `slices` (`SLICES`) are of all ranks.
    """
    counted = [step for step in rank.steps if step.steady] or list(rank.steps)
    typical = min(
        counted, key=lambda step: (abs(step.end_ns - step.start_ns - rank.typical.step_ns), step.index)
    )
    worst = max(counted, key=lambda step: (step.end_ns - step.start_ns, -step.index))
    shown = _Shown(trace, slices, place)
    timelines = [shown.timeline("typical", typical.index, typical.start_ns, typical.end_ns)]
    if worst.index != typical.index:
        timelines.append(shown.timeline("worst", worst.index, worst.start_ns, worst.end_ns))
    return tuple(timelines)


class _Shown:
    """Looks up what stands in the timelines of one rank."""

    def __init__(self, trace: Trace, slices: pl.DataFrame, place: int) -> None:
        capture, rank = trace.capture, trace.capture.ranks.row(place, named=True)
        self._trace, self._process = trace, rank["process"]
        is_own = pl.col("rank_id") == rank["rank_id"]
        self._slices = slices.filter(is_own)
        self._operations = trace.operations.filter(is_own)
        self._names = _operation_names(trace)
        self._calls = capture.calls.select("call", "thread", "start_ns", "end_ns", "name").with_columns(
            name=_cut(capture.call_names["text"].gather(capture.calls["name"]))
        )

    def timeline(self, role: str, step: int, start_ns: int, end_ns: int) -> StepTimeline:
        threads = self._threads(start_ns, end_ns)
        shown = threads.head(_MOST_THREADS)
        return StepTimeline(
            role="typical" if role == "typical" else "worst",
            step=step,
            start_ns=start_ns,
            end_ns=end_ns,
            operations=self._operations_of(start_ns, end_ns),
            calls=self._host(_within(self._calls, start_ns, end_ns).with_columns(depth=0), shown),
            ranges=self._host(self._ranges(start_ns, end_ns), shown),
            slices=self._slices_of(step),
            threads_left_out=len(threads) - len(shown),
        )

    def _threads(self, start_ns: int, end_ns: int) -> pl.DataFrame:
        """The threads of the process that were seen in a stretch, those with most calls first."""
        threads = self._trace.capture.threads.filter(pl.col("process") == self._process)
        calls = _within(self._calls, start_ns, end_ns)["thread"].value_counts(name="calls")
        ranges = _within(self._trace.range_tree.tree, start_ns, end_ns)["thread"].value_counts(name="ranges")
        lane = pl.concat_str(pl.lit("thread "), pl.col("tid").cast(pl.String))
        return (
            threads.join(calls, on="thread", how="left")
            .join(ranges, on="thread", how="left")
            .with_columns(pl.col("calls", "ranges").fill_null(0))
            .filter((pl.col("calls") > 0) | (pl.col("ranges") > 0))
            .sort("calls", "ranges", "thread", descending=[True, True, False])
            .select(
                "thread",
                lane=pl.when(pl.col("role").is_null())
                .then(lane)
                .otherwise(pl.concat_str(lane, pl.lit(" "), pl.col("role"))),
            )
        )

    def _host(self, rows: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
        return (
            rows.join(threads.with_row_index("place"), on="thread")
            .sort("place", "depth", "start_ns", maintain_order=True)
            .select(SHOWN_HOST.names())
            .cast(SHOWN_HOST)
        )

    def _ranges(self, start_ns: int, end_ns: int) -> pl.DataFrame:
        range_tree = self._trace.range_tree
        inside = _within(range_tree.tree, start_ns, end_ns).filter(~pl.col("crosses"))
        return inside.with_columns(
            depth=range_tree.paths["depth"].gather(inside["path"]),
            name=_cut(range_tree.names["text"].gather(range_tree.paths["name"].gather(inside["path"]))),
        )

    def _operations_of(self, start_ns: int, end_ns: int) -> pl.DataFrame:
        capture = self._trace.capture
        numbers = capture.streams.select("stream", "number")
        calls = capture.calls.select(
            call=pl.col("call").cast(pl.Int32), call_start_ns="start_ns", correlation="correlation"
        )
        called = self._calls.select(call=pl.col("call").cast(pl.Int32), call_name="name")
        wall = pl.col("class").cast(pl.String).replace_strict(_WALL_OF_CLASS, return_dtype=pl.String)
        found = (
            _within(self._operations.drop("name"), start_ns, end_ns)
            .join(numbers, on="stream", how="left")
            .join(self._names, on="op", how="left")
            .join(calls, on="call", how="left")
            .join(called, on="call", how="left")
            .join(self._trace.projected.select("op", "range"), on="op", how="left")
        )
        return (
            found.join(self._paths(found["range"].fill_null(-1)), on="range", how="left")
            .sort("number", "start_ns", "op")
            .select(
                "start_ns",
                "end_ns",
                lane=pl.concat_str(pl.lit("stream "), pl.col("number").cast(pl.String).fill_null("unknown")),
                name="name",
                what=pl.col("category").cast(pl.String),
                wall=wall,
                call="call_name",
                call_start_ns="call_start_ns",
                correlation="correlation",
                path="text",
            )
            .cast(SHOWN_OPERATIONS)
        )

    def _slices_of(self, step: int) -> pl.DataFrame:
        capture = self._trace.capture
        own = self._slices.filter(pl.col("step") == step).sort("start_ns")
        called = self._calls.select(pl.col("call").cast(pl.Int32), call_name="name")
        threads = capture.threads.select(pl.col("thread").cast(pl.Int32), "tid")
        operation = self._names.select(pl.col("op").cast(pl.Int32), op_name="name")
        ender = self._names.select(pl.col("op").cast(pl.Int32).alias("gap"), ended_by="name")
        is_device = pl.col("kind").is_null() | (pl.col("kind") == LinkKind.OPERATION)
        handed = pl.concat_str(pl.lit("behind "), pl.col("op_name"))
        outside = pl.concat_str(pl.lit("thread "), pl.col("tid").cast(pl.String))
        return (
            own.join(operation, on="op", how="left", maintain_order="left")
            .join(called, on="call", how="left", maintain_order="left")
            .join(threads, on="thread", how="left", maintain_order="left")
            .join(ender, on="gap", how="left", maintain_order="left")
            .join(self._paths(own["range"]), on="range", how="left", maintain_order="left")
            .select(
                "start_ns",
                "end_ns",
                "state",
                "wall",
                "cause",
                what=pl.when(is_device)
                .then("op_name")
                .when(pl.col("kind") == LinkKind.HAND_OVER)
                .then(handed)
                .when(pl.col("kind") == LinkKind.OUTSIDE_CALLS)
                .then(outside)
                .otherwise("call_name"),
                ended_by="ended_by",
                path="text",
                slack_ns="slack_ns",
            )
            .cast(SHOWN_SLICES)
        )

    def _paths(self, ranges: pl.Series) -> pl.DataFrame:
        """The path of each range that is asked for, written out."""
        range_tree = self._trace.range_tree
        asked = pl.DataFrame({"range": ranges.unique()}).filter(pl.col("range") >= 0)
        tree = range_tree.tree.select(pl.col("range").cast(pl.Int32), "path")
        found = asked.join(tree, on="range", maintain_order="left").sort("range")
        distinct = found.select(pl.col("path").unique().sort())
        texts = distinct.with_columns(text=write_paths(range_tree.paths, range_tree.names, distinct["path"]))
        return found.join(texts, on="path", maintain_order="left").select("range", "text")


def _operation_names(trace: Trace) -> pl.DataFrame:
    """What each operation is called: its kernel, or the direction of a copy (`op`, `name`)."""
    capture = trace.capture
    directions = capture.copies.select("op", pl.col("direction").cast(pl.String))
    texts = capture.names.select("name", text=_cut(capture.names["text"]))
    copied = pl.concat_str(pl.col("kind").cast(pl.String), pl.lit(" "), pl.col("direction"))
    return (
        trace.operations.select("op", "kind", "name")
        .join(texts, on="name", how="left", maintain_order="left")
        .join(directions, on="op", how="left", maintain_order="left")
        .select(
            "op",
            name=pl.when(pl.col("kind") == OperationKind.KERNEL)
            .then("text")
            .when(pl.col("kind") == OperationKind.GRAPH)
            .then(pl.lit("CUDA graph"))
            .otherwise(copied),
        )
    )


def _cut(texts: pl.Series) -> pl.Series:
    return texts.str.slice(0, _LONGEST_NAME)


def _within(rows: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    return rows.filter((pl.col("start_ns") < end_ns) & (pl.col("end_ns") > start_ns))
