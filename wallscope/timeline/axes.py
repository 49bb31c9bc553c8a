"""The axis of each communication operation: over which dimension of the job it communicates.

Sources in order of trust: the user's map of streams, the kernel, the ranges around the issue from the
innermost outwards, what is known of the same communicator, of the same stream, and an all-to-all on a
rank that runs kernels of a mixture of experts. Without evidence the axis is unknown: neither the kind
of an operation nor two neighbours in a ring tell gradients from activations, or a ring from a pipeline.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
import polars as pl

from wallscope.errors import SelectionError
from wallscope.model.capture import Capture
from wallscope.model.frames import AXES
from wallscope.model.kinds import Axis, Backend, Collective, OperationClass
from wallscope.timeline.nesting import nearest

_OPERATION, _AXIS = AXES["operation"], AXES["axis"]
_OF_BACKEND = {
    Backend.DEEP_EP: Axis.EP,
    Backend.HYBRID_EP: Axis.EP,
    Backend.NCCL_EP: Axis.EP,
    Backend.USERBUFFERS: Axis.TP,
}
_OF_DATA = {Collective.REDUCE_SCATTER: Axis.DP_GRADIENT, Collective.ALL_GATHER: Axis.DP_PARAMETER}
_GIVEN = tuple(axis for axis in Axis if axis is not Axis.UNKNOWN)
_LONGEST_NAME = 80
_NOT_TOLD = (str(Collective.SEND_RECV), str(Collective.OTHER))
"""Categories of kernels that leave open what the operation does."""


@dataclass(frozen=True, slots=True)
class RangePaths:
    """Ranges around operations: `PROJECTION`, `NESTED`, `PATHS`, and the folded names (`NAMES`)."""

    projected: pl.DataFrame
    tree: pl.DataFrame
    paths: pl.DataFrame
    names: pl.DataFrame


@dataclass(frozen=True, slots=True)
class _RangeRule:
    axis: Axis
    pattern: str
    operations: frozenset[Collective]


@dataclass(frozen=True, slots=True)
class _Rules:
    ranges: tuple[_RangeRule, ...]
    exchange: str
    expert: str


@cache
def _rules() -> _Rules:
    document = tomllib.loads((files("wallscope.timeline") / "axes.toml").read_text(encoding="utf-8"))
    return _Rules(
        tuple(
            _RangeRule(
                Axis(rule["axis"]),
                rule["pattern"],
                frozenset(map(Collective, rule.get("operations", Collective))),
            )
            for rule in document["range"]
        ),
        *("|".join(rule["pattern"] for rule in document[key]) for key in ("exchange", "expert")),
    )


def stream_axes(texts: Iterable[str]) -> dict[int, Axis]:
    """The user's map from the number of a CUDA stream to an axis, each written `20=ep`.

    Raises:
        SelectionError: one is written in another way, or a stream is given two axes.
    """
    found: dict[int, Axis] = {}
    for text in texts:
        number, _, name = text.partition("=")
        if not re.fullmatch(r"[0-9]{1,18}", number.strip()) or name.strip() not in _GIVEN:
            raise SelectionError(
                f"--stream {text} — is no stream and axis — write 20=ep; axes are {', '.join(_GIVEN)}"
            )
        stream, axis = int(number), Axis(name.strip())
        if found.setdefault(stream, axis) is not axis:
            raise SelectionError(
                f"--stream {text} — stream {stream} is also given as {found[stream]} — keep one of them"
            )
    return found


def axes(
    operations: pl.DataFrame,
    capture: Capture,
    collectives: pl.DataFrame,
    ranges: RangePaths,
    given: Mapping[int, Axis],
) -> pl.DataFrame:
    """The axis of each communication operation with its evidence (`CLASSIFIED`, `COLLECTIVES` to `AXES`).

    `given` is the user's map, by the number that CUDA gives a stream.
    """
    own = operations.filter(pl.col("class") == OperationClass.COMMUNICATION).select(
        "op", "rank_id", "stream", "name", "category", "backend"
    )
    if own.is_empty():
        return AXES.to_frame()
    told = _with_operation(_beside(own, capture, collectives, ranges), ranges)
    told = told.with_columns(axis=pl.lit(None, _AXIS), evidence=pl.lit(None, pl.String))
    told = _or_else(told, _by_stream_number(told, given))
    told = _or_else(told, _by_kernel(told, capture.names))
    told = _or_else(told, _by_ranges(told, ranges))
    apart = (
        ~pl.col("stream").is_in(_computing_streams(operations).implode()) & pl.col("communicator").is_null()
    )
    told = _shared(told, apart)
    told = _or_else(told, _by_experts(told, _expert_ranks(operations, capture.names)))
    told = _shared(told, apart)
    return told.with_columns(pl.col("axis").fill_null(Axis.UNKNOWN)).select(AXES.names()).cast(AXES)


def _beside(
    own: pl.DataFrame, capture: Capture, collectives: pl.DataFrame, ranges: RangePaths
) -> pl.DataFrame:
    """The operations with `asked`, `communicator` and `peers` of NCCL's calls, stream `number`, `path`."""
    asked = collectives.select("op", "communicator", "peers", asked="operation")
    paths = (
        ranges.projected.filter(pl.col("range") >= 0)
        .select("op", range=pl.col("range").cast(pl.UInt32))
        .join(ranges.tree.select("range", "path"), on="range")
        .select("op", "path")
    )
    return (
        own.join(asked, on="op", how="left")
        .join(capture.streams.select("stream", "number"), on="stream", how="left")
        .join(paths, on="op", how="left")
        .sort("op")
    )


def _with_operation(told: pl.DataFrame, ranges: RangePaths) -> pl.DataFrame:
    """What each operation does: where its kernel leaves it open, its calls or its ranges tell."""
    exchanging = ranges.names.filter(pl.col("text").str.contains(_rules().exchange))["name"]
    exchanges = _on_paths(told, ranges, set(exchanging))
    category = pl.col("category").cast(pl.String)
    by_range = pl.when(pl.Series(exchanges)).then(pl.lit(str(Collective.ALL_TO_ALL)))
    by_calls = pl.col("asked").cast(pl.String)
    by_calls = pl.when(~by_calls.is_in(_NOT_TOLD)).then(by_calls)
    return told.with_columns(
        operation=pl.when(category.is_in(_NOT_TOLD))
        .then(pl.coalesce(by_calls, by_range, category))
        .otherwise(category)
        .cast(_OPERATION)
    )


def _on_paths(told: pl.DataFrame, ranges: RangePaths, labels: set[int]) -> list[bool]:
    """Whether a range of one of these folded names is around each operation."""
    around = _label_around(told["path"].fill_null(len(ranges.paths)), ranges, labels)
    return [label >= 0 for label in around]


def _label_around(paths: pl.Series, ranges: RangePaths, labels: set[int]) -> list[int]:
    """The folded name nearest to the end of each path of those that are wanted, -1 without one.

    A path behind the last is none.
    """
    label = ranges.paths["name"].to_numpy().astype(np.int64)
    parent = ranges.paths["parent"].to_numpy().astype(np.int64)
    at = nearest(paths.to_numpy().astype(np.int64), parent, np.isin(label, list(labels)))
    found: list[int] = np.append(label, -1)[at].tolist()
    return found


def _or_else(told: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """Axes with those of `found` (`op`, `axis`, `evidence`) where none is known yet."""
    if found.is_empty():
        return told
    later = found.rename({"axis": "later_axis", "evidence": "later_evidence"}).with_columns(
        pl.col("later_axis").cast(_AXIS)
    )
    return (
        told.join(later, on="op", how="left", maintain_order="left")
        .with_columns(
            evidence=pl.when(pl.col("axis").is_null()).then("later_evidence").otherwise("evidence"),
            axis=pl.coalesce("axis", "later_axis"),
        )
        .drop("later_axis", "later_evidence")
    )


def _by_stream_number(told: pl.DataFrame, given: Mapping[int, Axis]) -> pl.DataFrame:
    numbers = pl.DataFrame(
        [(number, str(axis)) for number, axis in given.items()],
        schema={"number": pl.Int64, "axis": pl.String},
        orient="row",
    )
    return (
        told.select("op", "number")
        .join(numbers, on="number")
        .select("op", "axis", evidence=pl.format("stream {} given by the user", "number"))
    )


def _by_kernel(told: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Libraries that serve one axis; DeepEP's sends and receives between two ranks serve pipelines."""
    short = names.select(
        "name",
        kernel=pl.col("text")
        .str.replace(r"^void ", "")
        .str.extract(r"^([^<(]*)")
        .str.slice(0, _LONGEST_NAME),
    )
    is_pipeline = (pl.col("backend") == Backend.DEEP_EP) & (pl.col("category") == Collective.SEND_RECV)
    of_backend = (
        pl.col("backend")
        .cast(pl.String)
        .replace_strict(
            {str(backend): str(axis) for backend, axis in _OF_BACKEND.items()},
            default=None,
            return_dtype=pl.String,
        )
    )
    return (
        told.join(short, on="name")
        .select(
            "op",
            axis=pl.when(is_pipeline).then(pl.lit(str(Axis.PP))).otherwise(of_backend),
            evidence=pl.format("kernel {}", "kernel"),
        )
        .drop_nulls("axis")
    )


def _by_ranges(told: pl.DataFrame, ranges: RangePaths) -> pl.DataFrame:
    rules = _rules().ranges
    hits = [ranges.names["text"].str.contains(rule.pattern).to_list() for rule in rules]
    texts = ranges.names["text"].str.slice(0, _LONGEST_NAME)
    rows = []
    asked = told.select("path", "operation").drop_nulls().unique()
    for own in asked.partition_by("operation", maintain_order=True):
        operation = own["operation"][0]
        fitting = [(rule, hit) for rule, hit in zip(rules, hits, strict=True) if operation in rule.operations]
        telling = {label for label in range(len(ranges.names)) if any(hit[label] for _, hit in fitting)}
        for path, label in zip(own["path"], _label_around(own["path"], ranges, telling), strict=True):
            if label >= 0:
                rule = next(rule for rule, hit in fitting if hit[label])
                rows.append((path, operation, str(rule.axis), f"range '{texts[label]}'"))
    schema = pl.Schema(
        {"path": pl.UInt32(), "operation": _OPERATION, "axis": pl.String(), "evidence": pl.String()}
    )
    found = pl.DataFrame(rows, schema=schema, orient="row")
    return (
        told.select("op", "path", "operation")
        .join(found, on=["path", "operation"])
        .select("op", "axis", "evidence")
    )


def _computing_streams(operations: pl.DataFrame) -> pl.Series:
    return operations.filter(pl.col("class") == OperationClass.COMPUTE)["stream"].unique()


def _shared(told: pl.DataFrame, apart: pl.Expr) -> pl.DataFrame:
    """Axes with those that others of the communicator, or of a stream for communication alone, agree on.

    Only operations without a communicator take theirs from the stream.
    """
    for of, where in (("communicator", pl.col("communicator").is_not_null()), ("stream", apart)):
        beside = told.filter(where)
        if beside["axis"].null_count() not in {0, len(beside)}:
            told = _or_else(told, _agreed(beside, of, [of, "operation"]))
            told = _or_else(told, _agreed(beside, of, [of]))
    return told


def _agreed(told: pl.DataFrame, of: str, keys: list[str]) -> pl.DataFrame:
    """The one axis that is known of each group, for its members.

    Gradients and parameters share a communicator: what a member does tells which it moves.
    """
    known = told.drop_nulls("axis").sort("op")
    is_data = pl.col("axis").is_in([Axis.DP_GRADIENT, Axis.DP_PARAMETER])
    groups = (
        known.group_by("rank_id", *keys, maintain_order=True)
        .agg(
            one=pl.when(pl.col("axis").n_unique() == 1).then(pl.col("axis").first()),
            is_data=is_data.all(),
            first=pl.col("evidence").first().str.strip_prefix(f"same {of}: "),
        )
        .filter(pl.col("one").is_not_null() | pl.col("is_data"))
    )
    by_kind = (
        pl.col("operation")
        .cast(pl.String)
        .replace_strict(
            {str(kind): str(axis) for kind, axis in _OF_DATA.items()}, default=None, return_dtype=pl.String
        )
    )
    is_finest = pl.lit("operation" in keys) & pl.col("one").is_not_null()
    return (
        told.filter(pl.col("axis").is_null())
        .join(groups, on=["rank_id", *keys])
        .select(
            "op",
            axis=pl.when(pl.col("is_data") & ~is_finest)
            .then(by_kind)
            .otherwise(pl.col("one").cast(pl.String)),
            evidence=pl.format("same {}: {}", pl.lit(of), "first"),
        )
        .drop_nulls("axis")
    )


def _expert_ranks(operations: pl.DataFrame, names: pl.DataFrame) -> pl.Series:
    """Ranks that run kernels which only mixtures of experts run."""
    telling = names.filter(pl.col("text").str.contains(_rules().expert))["name"]
    return operations.filter(pl.col("name").is_in(telling.implode()))["rank_id"].unique()


def _by_experts(told: pl.DataFrame, ranks: pl.Series) -> pl.DataFrame:
    """All-to-alls of ranks with experts."""
    how = (
        pl.when(pl.col("peers") == 1)
        .then(pl.lit("group of sends to 1 peer and itself"))
        .when(pl.col("peers").is_not_null())
        .then(pl.format("group of sends to {} peers", "peers"))
        .otherwise(pl.lit("all-to-all"))
    )
    return told.filter(
        (pl.col("operation") == Collective.ALL_TO_ALL) & pl.col("rank_id").is_in(ranks.implode())
    ).select(
        "op",
        axis=pl.lit(str(Axis.EP)),
        evidence=pl.concat_str(how, pl.lit(" beside kernels of a mixture of experts")),
    )
