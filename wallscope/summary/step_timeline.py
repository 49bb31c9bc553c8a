"""Frames from which a page draws: a whole step with its operations, and all steps in little detail."""

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO

import polars as pl

from wallscope.attribution.prepared import Trace
from wallscope.model.analysis import Rank
from wallscope.model.enums import LinkKind, OperationClass, OperationKind, Wall
from wallscope.model.report import (
    OVERVIEW_OPERATIONS,
    OVERVIEW_SLICES,
    OVERVIEW_STEPS,
    SHOWN_HOST,
    SHOWN_OPERATIONS,
    SHOWN_SLICES,
    StepOverviews,
    StepTimeline,
)
from wallscope.summary.lookups import mask_negative, name_operations, write_thread_id
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
    trace: Trace, slices: pl.DataFrame, place: int, rank: Rank, find_path: Callable[[int], pl.DataFrame]
) -> tuple[StepTimeline, ...]:
    """The typical and the worst step of the rank at `place`; one where both are the same.

    `slices` (`SLICES`) include those of all ranks. `find_path` returns the critical path of a step.
    """
    counted = [step for step in rank.steps if step.steady] or list(rank.steps)
    typical = min(
        counted, key=lambda step: (abs(step.end_ns - step.start_ns - rank.typical.step_ns), step.index)
    )
    worst = max(counted, key=lambda step: (step.end_ns - step.start_ns, -step.index))
    shown = _TimelineReader(trace, slices, place, find_path)
    timelines = [shown.timeline("typical", typical.index, typical.start_ns, typical.end_ns)]
    if worst.index != typical.index:
        timelines.append(shown.timeline("worst", worst.index, worst.start_ns, worst.end_ns))
    return tuple(timelines)


class _TimelineReader:
    """Looks up what stands in the timelines of one rank."""

    def __init__(
        self, trace: Trace, slices: pl.DataFrame, place: int, find_path: Callable[[int], pl.DataFrame]
    ) -> None:
        capture, rank = trace.capture, trace.capture.ranks.row(place, named=True)
        self._find_path = find_path
        self._trace, self._process = trace, rank["process"]
        is_own = pl.col("rank_id") == rank["rank_id"]
        self._slices = slices.filter(is_own)
        self._operations = trace.operations.filter(is_own)
        self._texts, self._call_texts = (
            _cut_names(capture.names["text"]),
            _cut_names(capture.call_names["text"]),
        )
        self._calls = capture.calls.select("thread", "start_ns", "end_ns", "name")

    def timeline(self, role: str, step: int, start_ns: int, end_ns: int) -> StepTimeline:
        threads = self._threads(start_ns, end_ns)
        shown = threads.head(_MOST_THREADS)
        return StepTimeline(
            role="typical" if role == "typical" else "worst",
            step=step,
            start_ns=start_ns,
            end_ns=end_ns,
            operations=self._operations_of(start_ns, end_ns),
            calls=self._host(self._calls_of(start_ns, end_ns), shown),
            ranges=self._host(self._ranges(start_ns, end_ns), shown),
            slices=self._slices_of(step),
            threads_left_out=len(threads) - len(shown),
            path=self._find_path(step),
        )

    def _threads(self, start_ns: int, end_ns: int) -> pl.DataFrame:
        """Return the threads with calls or ranges in an interval, those with most calls first."""
        threads = self._trace.capture.threads.filter(pl.col("process") == self._process)
        calls = _within(self._calls, start_ns, end_ns)["thread"].value_counts(name="calls")
        ranges = _within(self._trace.range_tree.tree, start_ns, end_ns)["thread"].value_counts(name="ranges")
        lane = _name_thread()
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
            name=_cut_names(range_tree.names["text"].gather(range_tree.paths["name"].gather(inside["path"]))),
        )

    def _calls_of(self, start_ns: int, end_ns: int) -> pl.DataFrame:
        inside = _within(self._calls, start_ns, end_ns)
        return inside.with_columns(depth=0, name=self._call_texts.gather(inside["name"]))

    def _operations_of(self, start_ns: int, end_ns: int) -> pl.DataFrame:
        capture = self._trace.capture
        numbers = capture.streams.select("stream", "number")
        wall = pl.col("class").cast(pl.String).replace_strict(_WALL_OF_CLASS, return_dtype=pl.String)
        inside = _within(self._operations, start_ns, end_ns)
        calls = mask_negative(inside["call"])
        found = inside.with_columns(
            name=self._name_operations(inside["op"]),
            call=self._name_calls(calls),
            call_start_ns=capture.calls["start_ns"].gather(calls),
            correlation=capture.calls["correlation"].gather(calls),
            range=self._trace.projected["range"].gather(inside["op"]),
        )
        return (
            found.join(numbers, on="stream", how="left")
            .join(self._paths(found["range"]), on="range", how="left")
            .sort("number", "start_ns", "op")
            .select(
                "start_ns",
                "end_ns",
                lane=pl.concat_str(pl.lit("stream "), pl.col("number").cast(pl.String).fill_null("unknown")),
                name="name",
                what=pl.col("category").cast(pl.String),
                wall=wall,
                call="call",
                call_start_ns="call_start_ns",
                correlation="correlation",
                path="text",
            )
            .cast(SHOWN_OPERATIONS)
        )

    def _slices_of(self, step: int) -> pl.DataFrame:
        own = self._slices.filter(pl.col("step") == step).sort("start_ns")
        is_device = pl.col("kind").is_null() | (pl.col("kind") == LinkKind.OPERATION)
        return (
            own.with_columns(
                op_name=self._name_operations(own["op"]),
                call_name=self._name_calls(mask_negative(own["call"])),
                tid=self._trace.capture.threads["tid"].gather(mask_negative(own["thread"])),
                ended_by=self._name_operations(own["gap"]),
            )
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
                .then(pl.concat_str(pl.lit("behind "), pl.col("op_name")))
                .when(pl.col("kind") == LinkKind.OUTSIDE_CALLS)
                .then(_name_thread())
                .otherwise("call_name"),
                ended_by="ended_by",
                path="text",
                slack_ns="slack_ns",
            )
            .cast(SHOWN_SLICES)
        )

    def _name_calls(self, calls: pl.Series) -> pl.Series:
        return self._call_texts.gather(self._trace.capture.calls["name"].gather(calls))

    def _name_operations(self, numbers: pl.Series) -> pl.Series:
        """Name operations, by their kernel or the direction of a copy; null for numbers below 0."""
        known = mask_negative(numbers)
        rows = self._trace.capture.operations.select(pl.col("op", "kind", "name").gather(known))
        return name_operations(self._trace.capture, rows, self._texts)

    def _paths(self, ranges: pl.Series) -> pl.DataFrame:
        """Return the written path of each of these ranges."""
        range_tree = self._trace.range_tree
        wanted = pl.DataFrame({"range": ranges.unique()}).filter(pl.col("range") >= 0)
        tree = range_tree.tree.select(pl.col("range").cast(pl.Int32), "path")
        found = wanted.join(tree, on="range", maintain_order="left").sort("range")
        distinct = found.select(pl.col("path").unique().sort())
        texts = distinct.with_columns(text=write_paths(range_tree.paths, range_tree.names, distinct["path"]))
        return found.join(texts, on="path", maintain_order="left").select("range", "text")


def _name_thread() -> pl.Expr:
    number = pl.col("tid").map_elements(write_thread_id, return_dtype=pl.String, skip_nulls=False)
    return pl.concat_str(pl.lit("thread "), number)


def _cut_names(texts: pl.Series) -> pl.Series:
    return texts.str.slice(0, _LONGEST_NAME)


def _within(rows: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    return rows.filter((pl.col("start_ns") < end_ns) & (pl.col("end_ns") > start_ns))


_MOST_STEPS, _MOST_RANKS, _MOST_LANES = 400, 8, 6
_MOST_OPERATIONS = 600_000
"""Of other ranks together; beyond it only the rank of the diagnosis is shown."""
_MOST_ROWS, _FINEST, _COARSEST = 40_000, 240, 15
_MOST_STEPS_OF_RANK, _MOST_ROWS_OF_RANK = 60, 5_000
"""Of each rank of a job of several exports, so that the page has room for eight."""
_STEP = ["place", "step"]


def build_step_overviews(
    trace: Trace,
    ranks: Sequence[Rank],
    place: int,
    slices_of: Callable[[int], pl.DataFrame],
    *,
    is_part: bool = False,
) -> StepOverviews:
    """Return the steps of the rank at `place`, then of others, with slices and operations merged.

    Args:
        trace: the capture.
        ranks: the ranks of the answer, in the order of `trace.capture.ranks`.
        place: the rank that the page is about.
        slices_of: returns `SLICES` of the rank at a place.
        is_part: whether the export is one of several of a job.
    """
    places = _choose_ranks(trace, len(ranks), place)
    most_steps = _MOST_STEPS_OF_RANK if is_part else _MOST_STEPS // len(places)
    most_rows = _MOST_ROWS_OF_RANK * len(places) if is_part else _MOST_ROWS
    steps = pl.concat([_tabulate_overview_steps(ranks[one], one, most_steps) for one in places])
    slices = pl.concat([slices_of(one).with_columns(place=pl.lit(one, pl.UInt32)) for one in places]).join(
        steps, on=_STEP, suffix="_of_step"
    )
    found = {number: one for one, number in enumerate(trace.capture.ranks["rank_id"].to_list())}
    operations = _find_operations(
        trace, steps, {number: one for number, one in found.items() if one in places}
    )
    buckets = max(min(_FINEST, most_rows // max(len(steps), 1)), _COARSEST)
    merged = merge_slices(slices, buckets)
    while len(merged) > most_rows and buckets > _COARSEST:
        buckets //= 2
        merged = merge_slices(slices, buckets)
    return order_by_places(
        StepOverviews(
            steps.cast(OVERVIEW_STEPS), merged, _merge_operations(operations, buckets, trace.capture.names)
        ),
        places,
    )


def order_by_places(found: StepOverviews, places: Sequence[int]) -> StepOverviews:
    """Return the overviews of some ranks alone, all three tables in the order of these."""
    order = pl.DataFrame({"place": places}, {"place": pl.UInt32()})
    frames = (found.steps, found.slices, found.operations)
    return StepOverviews(*(order.join(one, on="place", maintain_order="left_right") for one in frames))


def _choose_ranks(trace: Trace, count: int, place: int) -> list[int]:
    """Choose the rank of the diagnosis first, then others where that is cheap."""
    others = [one for one in range(count) if one != place][: _MOST_RANKS - 1]
    ids = trace.capture.ranks["rank_id"]
    own = trace.operations["rank_id"].is_in(
        pl.Series([ids[one] for one in others], dtype=ids.dtype).implode()
    )
    return [place, *(others if own.sum() <= _MOST_OPERATIONS else [])]


def encode_overviews(found: StepOverviews) -> bytes:
    """Write overviews as three Arrow streams, each after its length."""
    parts = []
    for frame in (found.steps, found.slices, found.operations):
        stream = BytesIO()
        frame.write_ipc_stream(stream, compression="zstd")
        parts += [len(stream.getvalue()).to_bytes(8, "little"), stream.getvalue()]
    return b"".join(parts)


def decode_overviews(content: bytes) -> StepOverviews:
    """Read what `encode_overviews` wrote."""
    frames, at = [], 0
    for _ in range(3):
        size = int.from_bytes(content[at : at + 8], "little")
        frames.append(pl.read_ipc_stream(BytesIO(content[at + 8 : at + 8 + size])))
        at += 8 + size
    return StepOverviews(*frames)


def _tabulate_overview_steps(rank: Rank, place: int, most: int) -> pl.DataFrame:
    rows = [(place, one.index, one.start_ns, one.end_ns, one.steady, 0) for one in rank.steps[:most]]
    return pl.DataFrame(rows, OVERVIEW_STEPS, orient="row")


def merge_slices(slices: pl.DataFrame, buckets: int) -> pl.DataFrame:
    """Merge slices that are shorter than a part of their step; the sums by cause stay exact.

    Args:
        slices: `SLICES` that tile their steps, with `place`, `start_ns_of_step` and `end_ns_of_step`.
        buckets: parts of a step; shorter slices that begin in the same one are put together by cause.
    """
    grain = ((pl.col("end_ns_of_step") - pl.col("start_ns_of_step")) // buckets).clip(lower_bound=1)
    length = pl.col("end_ns") - pl.col("start_ns")
    ordered = slices.sort(*_STEP, "start_ns").select(
        *_STEP,
        "wall",
        "cause",
        length_ns=length,
        is_gap=pl.col("kind").is_not_null(),
        bucket=pl.when(length < grain).then((pl.col("start_ns") - pl.col("start_ns_of_step")) // grain),
    )
    changed = pl.col("bucket").is_null() | (pl.col("bucket") != pl.col("bucket").shift(1)).fill_null(
        value=True
    )
    runs = ordered.with_columns(run=(changed | (pl.col("step") != pl.col("step").shift(1))).cum_sum())
    return (
        runs.group_by(*_STEP, "run", "is_gap", "wall", "cause", maintain_order=True)
        .agg(pl.col("length_ns").sum())
        .select(OVERVIEW_SLICES.names())
        .cast(OVERVIEW_SLICES)
    )


def _find_operations(trace: Trace, steps: pl.DataFrame, places: Mapping[int, int]) -> pl.DataFrame:
    """Find the operations of the busiest streams of each rank, with the step in which they begin."""
    own = trace.operations.filter(pl.col("rank_id").is_in([*places])).select(
        "start_ns",
        "end_ns",
        "stream",
        "class",
        "kind",
        "name",
        place=pl.col("rank_id").replace_strict(places, return_dtype=pl.UInt32),
    )
    busy = (
        own.group_by("place", "stream", maintain_order=True)
        .len("count")
        .sort("place", "count", "stream", descending=[False, True, False])
        .group_by("place", maintain_order=True)
        .head(_MOST_LANES)
        .join(trace.capture.streams.select("stream", "number"), on="stream", how="left")
    )
    begun = steps.select("place", "step", step_start_ns="start_ns", step_end_ns="end_ns").sort(
        "step_start_ns"
    )
    return (
        own.join(busy.drop("count"), on=["place", "stream"])
        .sort("start_ns")
        .join_asof(begun, left_on="start_ns", right_on="step_start_ns", by="place", check_sortedness=False)
        .filter(pl.col("start_ns") < pl.col("step_end_ns"))
        .with_columns(pl.min_horizontal("end_ns", "step_end_ns").alias("end_ns"))
    )


def _merge_operations(operations: pl.DataFrame, buckets: int, names: pl.DataFrame) -> pl.DataFrame:
    """Merge operations shorter than a part of their step, named by the longest of them (`NAMES`)."""
    grain = ((pl.col("step_end_ns") - pl.col("step_start_ns")) // buckets).clip(lower_bound=1)
    length = pl.col("end_ns") - pl.col("start_ns")
    bucket = (pl.col("start_ns") - pl.col("step_start_ns")) // grain
    apart = -1 - pl.int_range(pl.len())
    kernel, other = pl.col("text").str.slice(0, _LONGEST_NAME), pl.col("kind").cast(pl.String)
    return (
        operations.with_columns(length=length, bucket=pl.when(length < grain).then(bucket).otherwise(apart))
        .sort("length", "start_ns", descending=[True, False])
        .group_by(*_STEP, "number", "bucket", maintain_order=True)
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col("name", "kind", "class").first())
        .join(names.select("name", "text"), on="name", how="left", maintain_order="left")
        .sort("place", "step", "number", "start_ns", "end_ns", nulls_last=True)
        .select(
            *_STEP,
            "start_ns",
            "end_ns",
            lane=pl.format("stream {}", pl.col("number")).fill_null("stream unknown"),
            name=pl.when(pl.col("kind") == OperationKind.KERNEL)
            .then(kernel)
            .otherwise(other)
            .fill_null("unknown"),
            wall=pl.col("class").cast(pl.String).replace_strict(_WALL_OF_CLASS, return_dtype=pl.String),
        )
        .select(OVERVIEW_OPERATIONS.names())
        .cast(OVERVIEW_OPERATIONS)
    )
