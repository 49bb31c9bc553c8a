"""The tables of a profile from the slices of a rank and its operations."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.model.capture import Capture
from wallscope.model.frames import BUDGET_PARTS, CATEGORY
from wallscope.model.kinds import (
    Axis,
    Collective,
    ComputeCategory,
    LinkKind,
    OperationClass,
    OperationKind,
    Wall,
)
from wallscope.model.profile import (
    OPERATION_KEYS,
    PROFILE_STEPS,
    STEP_CAUSES,
    STEP_OWNED,
    STEP_WORK,
    Communicators,
    Header,
    Profile,
)
from wallscope.profile.collectives import rank_collectives
from wallscope.timeline.folding import folded
from wallscope.timeline.precision import precisions
from wallscope.timeline.spans import Spans, covered_ns, ordered, union

HOST = "host"
_LONGEST_NAME = 240
_MOST_ROWS, _FEWEST_KEYS = 60_000, 100
_OTHERS = "other operations"
_SAID = ("path", "category", "name")
_KEY = [name for name in OPERATION_KEYS.names() if name != "key"]
_COMPUTING = (OperationClass.COMPUTE, OperationClass.OPAQUE_GRAPH)
_MULTIPLYING = (ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM)
_LENGTH = pl.col("end_ns") - pl.col("start_ns")


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a profile that one capture fills."""

    steps: pl.DataFrame
    keys: pl.DataFrame
    work: pl.DataFrame
    owned: pl.DataFrame
    causes: pl.DataFrame
    communicators: tuple[Communicators, ...]
    collectives: pl.DataFrame

    def profile(self, header: Header, recoverable: pl.DataFrame) -> Profile:
        """The profile, with what only the whole answer knows."""
        return Profile(
            header, self.steps, self.keys, self.work, self.owned, self.causes, recoverable, self.collectives
        )


@dataclass(frozen=True, slots=True)
class Described:
    """What is known of operations, of the whole capture.

    `texts` are all that is said of them, in order; elsewhere stands the place of a text there. `kernels`
    has the columns `name`, `text` and `precision`; `calls` and `ranges` tell those of each, with the empty
    text at the end; `range_of` is the range of each operation, -1 without one; `axes` follows `AXES`,
    `counted` follows `COLLECTIVES`.
    """

    texts: pl.Series
    kernels: pl.DataFrame
    calls: pl.Series
    ranges: pl.Series
    range_of: pl.Series
    axes: pl.DataFrame
    counted: pl.DataFrame


def described(
    capture: Capture, projected: pl.DataFrame, written: pl.Series, axes: pl.DataFrame, counted: pl.DataFrame
) -> Described:
    """What is known of the operations of a capture.

    Args:
        capture: the capture.
        projected: `PROJECTION`.
        written: the path of each range, written out, by number.
        axes: `AXES`.
        counted: `COLLECTIVES`, as far as they are known.
    """
    kernels = capture.names.select("name", text=folded(capture.names["text"]).str.slice(0, _LONGEST_NAME))
    called = capture.call_names["text"].str.slice(0, _LONGEST_NAME)
    fixed = pl.Series(["", HOST, _OTHERS, *Collective, *(str(name) for name in CATEGORY.categories)])
    texts = pl.concat(
        [kernels["text"], called.alias("text"), written.unique().alias("text"), fixed.alias("text")]
    )
    texts = texts.unique().sort()
    nothing = _placed(pl.Series([""]), texts)
    return Described(
        texts=texts,
        kernels=kernels.with_columns(text=_placed(kernels["text"], texts)).join(
            precisions(capture.names), on="name"
        ),
        calls=pl.concat([_placed(called, texts).gather(capture.calls["name"]), nothing]),
        ranges=pl.concat([_placed(written, texts), nothing]),
        range_of=projected.sort("op")["range"],
        axes=axes,
        counted=counted,
    )


def _placed(told: pl.Series, texts: pl.Series) -> pl.Series:
    """The place of each text among all of them."""
    return told.cast(pl.Enum(texts)).to_physical().cast(pl.UInt32).alias("text")


def tables(
    operations: pl.DataFrame, windows: pl.DataFrame, slices: pl.DataFrame, described: Described
) -> Tables:
    """The tables of one rank from its `CLASSIFIED` operations, windows (`STEPS`, `BUDGETS`) and `SLICES`.

    Of a rank with very many kinds of operations the smallest are one, named `other operations`, per category.
    """
    keyed = _keyed(operations, described)
    pieces = _pieces(keyed, windows)
    owned = _owned(slices, keyed, described)
    communicating = keyed.filter(pl.col("class") == OperationClass.COMMUNICATION).select("op", *_KEY)
    keys = _distinct(pieces, owned)
    other = int(described.texts.search_sorted(_OTHERS))
    nowhere = int(described.texts.search_sorted(""))
    most = max(_MOST_ROWS // max(len(windows), 1), _FEWEST_KEYS)
    if len(keys) > most:
        kept = _largest(pieces, owned, most)
        pieces, owned, communicating = (
            _others(rows, kept, nowhere, other) for rows in (pieces, owned, communicating)
        )
        keys = _distinct(pieces, owned)
    keys = keys.with_row_index("key")
    spelled = keys.with_columns(described.texts.gather(keys[name]).alias(name) for name in _SAID)
    return Tables(
        steps=_steps(windows, slices),
        keys=spelled.select(OPERATION_KEYS.names()).cast(OPERATION_KEYS),
        work=_work(_numbered(pieces, keys)),
        owned=_table(
            _numbered(owned, keys)
            .group_by("step", "key", "cause")
            .agg(pl.col("owned_ns").sum(), pl.col("blocking_ns").sum()),
            STEP_OWNED,
            ["step", "key", "cause"],
        ),
        causes=_table(
            slices.group_by("step", "cause", "state", "absent").agg(ns=_LENGTH.sum()),
            STEP_CAUSES,
            ["step", "cause", "state", "absent"],
        ),
        communicators=_communicators(keyed),
        collectives=rank_collectives(
            operations,
            windows,
            slices,
            described.axes.join(_numbered(communicating, keys).select("op", "key"), on="op", how="left"),
            described.counted,
        ),
    )


def _keyed(operations: pl.DataFrame, described: Described) -> pl.DataFrame:
    """Operations with what they are told apart by, and their bytes."""
    is_kernel = pl.col("kind") == OperationKind.KERNEL
    is_product = pl.col("category").cast(pl.String).is_in([str(part) for part in _MULTIPLYING])
    around = described.range_of.gather(operations["op"])
    return (
        operations.select("op", "start_ns", "end_ns", "class", "kind", "category", "name", "backend", "bytes")
        .with_columns(path=described.ranges.gather(_or_last(around, len(described.ranges))))
        .join(described.kernels, on="name", how="left", maintain_order="left")
        .join(described.axes.select("op", "operation", "axis"), on="op", how="left", maintain_order="left")
        .join(
            described.counted.select("op", "participants", counted="bytes"),
            on="op",
            how="left",
            maintain_order="left",
        )
        .with_columns(
            category=pl.coalesce(
                _translated("operation", Collective, described.texts),
                _translated("category", CATEGORY.categories, described.texts),
            ),
            name=pl.when(is_kernel).then("text").otherwise(described.texts.search_sorted("")),
            precision=pl.when(is_kernel & is_product).then("precision"),
            bytes=pl.coalesce("bytes", "counted"),
        )
    )


def _translated(column: str, categories: Iterable[str], texts: pl.Series) -> pl.Expr:
    """The place of what an enumeration says among the texts."""
    named = pl.Series([str(name) for name in categories])
    return pl.col(column).replace_strict(
        named, texts.search_sorted(named), default=None, return_dtype=pl.UInt32
    )


def _communicators(keyed: pl.DataFrame) -> tuple[Communicators, ...]:
    told = (
        keyed.drop_nulls(["axis", "participants"])
        .group_by(pl.col("axis").cast(pl.String))
        .agg(pl.col("participants").unique().sort())
    )
    return tuple(Communicators(Axis(axis), tuple(sizes)) for axis, sizes in told.sort("axis").iter_rows())


def _or_last(numbers: pl.Series, length: int) -> pl.Series:
    places = numbers.to_numpy().astype(np.int64)
    return pl.Series(np.where(places < 0, length - 1, places), dtype=pl.UInt32)


def _pieces(keyed: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Operations cut at the borders of steps: a row for each step that one touches."""
    bounds = Spans(windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy())
    start_ns, end_ns = keyed["start_ns"].to_numpy(), keyed["end_ns"].to_numpy()
    first = np.maximum(np.searchsorted(bounds.end_ns, start_ns, side="right"), 0)
    behind = np.searchsorted(bounds.start_ns, np.maximum(end_ns, start_ns + 1), side="left")
    parts = np.maximum(behind - first, 0)
    row = np.repeat(np.arange(start_ns.size), parts)
    window = first[row] + np.arange(row.size) - np.repeat(np.cumsum(parts) - parts, parts)
    cut = Spans(
        np.maximum(start_ns[row], bounds.start_ns[window]), np.minimum(end_ns[row], bounds.end_ns[window])
    )
    computing = keyed.filter(pl.col("class").is_in(_COMPUTING))
    busy = union(ordered(computing["start_ns"].to_numpy(), computing["end_ns"].to_numpy()))
    work_ns = cut.end_ns - cut.start_ns
    return (
        keyed[row]
        .with_columns(
            windows["step"].gather(pl.Series(window, dtype=pl.UInt32)),
            pl.Series("begins", start_ns[row] >= bounds.start_ns[window]),
            pl.Series("work_ns", work_ns),
            pl.Series("exposed_ns", work_ns - covered_ns(busy, cut)),
        )
        .with_columns(exposed_ns=pl.when(~pl.col("class").is_in(_COMPUTING)).then("exposed_ns"))
        .select("step", *_KEY, "begins", "work_ns", "exposed_ns", "bytes")
    )


def _owned(slices: pl.DataFrame, keyed: pl.DataFrame, described: Described) -> pl.DataFrame:
    """The slices with the key of the operation that owns each; of time on a thread, that of its call."""
    on_thread = pl.col("op") < 0
    host = int(described.texts.search_sorted(HOST))
    ranges, calls = described.ranges, described.calls
    is_bound = pl.col("kind") == LinkKind.OPERATION
    own = slices.select(
        "step",
        "cause",
        pl.col("op").cast(pl.Int64),
        owned_ns=_LENGTH,
        blocking_ns=pl.when(is_bound.fill_null(value=False)).then(_LENGTH).otherwise(0),
    ).with_columns(
        ranges.gather(_or_last(slices["range"], len(ranges))).alias("around"),
        calls.gather(_or_last(slices["call"], len(calls))).alias("called"),
    )
    return (
        own.join(keyed.select(pl.col("op").cast(pl.Int64), *_KEY), on="op", how="left")
        .with_columns(
            path=pl.when(on_thread).then("around").otherwise("path"),
            category=pl.when(on_thread).then(pl.lit(host, pl.UInt32)).otherwise("category"),
            name=pl.when(on_thread).then("called").otherwise("name"),
        )
        .select("step", *_KEY, "cause", "owned_ns", "blocking_ns")
    )


def _distinct(pieces: pl.DataFrame, owned: pl.DataFrame) -> pl.DataFrame:
    both = [pieces.select(_KEY).unique(), owned.select(_KEY).unique()]
    return pl.concat(both).unique().sort(_KEY, nulls_last=True)


def _largest(pieces: pl.DataFrame, owned: pl.DataFrame, most: int) -> pl.DataFrame:
    """The keys with most time."""
    both = [pieces.select(*_KEY, ns="work_ns"), owned.select(*_KEY, ns="owned_ns")]
    sizes = pl.concat(both).group_by(_KEY).agg(pl.col("ns").sum())
    return sizes.sort("ns", *_KEY, descending=[True] + [False] * len(_KEY)).head(most).select(_KEY)


def _others(rows: pl.DataFrame, kept: pl.DataFrame, nowhere: int, other: int) -> pl.DataFrame:
    """The rows with those of other keys under one name a category, in no range."""
    found = rows.join(kept.with_columns(is_kept=pl.lit(value=True)), on=_KEY, how="left", nulls_equal=True)
    is_kept = pl.col("is_kept").fill_null(value=False)
    return found.with_columns(
        path=pl.when(is_kept).then("path").otherwise(pl.lit(nowhere, pl.UInt32)),
        name=pl.when(is_kept).then("name").otherwise(pl.lit(other, pl.UInt32)),
    ).drop("is_kept")


def _numbered(rows: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
    return rows.join(keys, on=_KEY, how="left", nulls_equal=True)


def _work(pieces: pl.DataFrame) -> pl.DataFrame:
    begun = pl.col("bytes").filter(pl.col("begins"))
    sums = pieces.group_by("step", "key").agg(
        count=pl.col("begins").sum(),
        work_ns=pl.col("work_ns").sum(),
        exposed_ns=pl.when(pl.col("exposed_ns").null_count() == 0).then(pl.col("exposed_ns").sum()),
        bytes=pl.when(begun.null_count() == 0).then(begun.sum()),
    )
    return _table(sums, STEP_WORK, ["step", "key"])


def _steps(windows: pl.DataFrame, slices: pl.DataFrame) -> pl.DataFrame:
    sums = slices.group_by("step").agg(
        **{f"{wall}_wall_ns": _LENGTH.filter(pl.col("wall") == wall).sum() for wall in Wall}
    )
    told = windows.select("step", "start_ns", "end_ns", "steady", "reason", *BUDGET_PARTS)
    none = pl.col("end_ns") == pl.col("start_ns")  # a step that takes no time has no slices
    both = told.join(sums, on="step", how="left").with_columns(
        pl.when(none).then(0).otherwise(pl.col(f"{wall}_wall_ns")).alias(f"{wall}_wall_ns") for wall in Wall
    )
    return _table(both, PROFILE_STEPS, ["step"])


def _table(rows: pl.DataFrame, schema: pl.Schema, by: list[str]) -> pl.DataFrame:
    """Rows of one capture, which has place 0, sorted."""
    placed = rows.with_columns(input=pl.lit(0, pl.UInt32)).select(schema.names()).cast(schema)
    return placed.sort(by, nulls_last=True)
