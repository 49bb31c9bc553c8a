"""The axis of each communication operation: over which dimension of the job it communicates.

Sources in order of trust: the user's map of streams, the kernel, the ranges around the issue from the
innermost outwards, the same communicator, the same stream. Then come an all-to-all on a rank that runs
kernels of a mixture of experts, messages between such kernels, and reductions issued by PyTorch's backward
thread. Without evidence the axis
is unknown. Neither the kind of an operation nor two neighbors in a ring separate gradients from activations,
or a ring from a pipeline.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Flags, Rows, as_integers, find_places, take_or
from wallscope.errors import SelectionError
from wallscope.model.capture import Capture
from wallscope.model.enums import Axis, Backend, Collective, ComputeCategory, OperationClass
from wallscope.model.schemas import AXES, CATEGORY
from wallscope.records import dataclass
from wallscope.thresholds.causes import (
    EXPERT_KERNELS_NEAR_COUNT,
    EXPERT_MESSAGES_SHARE,
    FORWARD_PARTS_COUNT,
)
from wallscope.trace.kernel_classes import shorten_kernel
from wallscope.trace.names import TextMemo, mark_changes
from wallscope.trace.ranges import find_nearest

_OPERATIONS, _BACKENDS = tuple(Collective), tuple(Backend)
_EACH_OPERATION = pl.Series(_OPERATIONS, dtype=AXES["operation"])
_EACH_AXIS = pl.Series(list(Axis), dtype=AXES["axis"])
_COMMUNICATION = list(OperationClass).index(OperationClass.COMMUNICATION)
_ALL_TO_ALL, _SEND_RECV = map(_OPERATIONS.index, (Collective.ALL_TO_ALL, Collective.SEND_RECV))
_OF_CATEGORY = np.array(
    [_OPERATIONS.index(Collective(each)) if each in _OPERATIONS else -1 for each in CATEGORY.categories]
)
_EXCHANGES = 1 << 62
_OF_BACKEND = {
    Backend.DEEP_EP: Axis.EP,
    Backend.HYBRID_EP: Axis.EP,
    Backend.NCCL_EP: Axis.EP,
    Backend.USERBUFFERS: Axis.TP,
}
_GROUPED = ComputeCategory.GROUPED_GEMM
_OF_DATA = {Collective.REDUCE_SCATTER: Axis.DP_GRADIENT, Collective.ALL_GATHER: Axis.DP_PARAMETER}
_REDUCING = [
    _OPERATIONS.index(each) for each in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE)
]
_GIVEN = tuple(axis for axis in Axis if axis is not Axis.UNKNOWN)
_LONGEST_NAME = 80
_MOST_STREAMS = 24
_PLACES = {axis: place for place, axis in enumerate(Axis)}
_AXIS_OF_BACKEND = np.array([_PLACES[_OF_BACKEND[each]] if each in _OF_BACKEND else -1 for each in _BACKENDS])
_AXIS_OF_DATA = np.array([_PLACES[_OF_DATA[each]] if each in _OF_DATA else -1 for each in _OPERATIONS])
_DATA = [_PLACES[axis] for axis in _OF_DATA.values()]
_NOT_TOLD = (_SEND_RECV, _OPERATIONS.index(Collective.OTHER))
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
def _load_axis_rules() -> _Rules:
    document = tomllib.loads(Path(__file__).with_name("axes.toml").read_text(encoding="utf-8"))
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


def parse_stream_axes(texts: Iterable[str]) -> dict[int, Axis]:
    """The user's map from the number of a CUDA stream to an axis, each written `20=ep`.

    Raises:
        SelectionError: one is written in another way, or a stream is given two axes.
    """
    found: dict[int, Axis] = {}
    for text in texts:
        number, _, name = text.partition("=")
        if not re.fullmatch(r"[0-9]{1,18}", number.strip()) or name.strip() not in _GIVEN:
            raise SelectionError(
                f"--stream {text} — is not a stream and axis — write 20=ep; axes are {', '.join(_GIVEN)}"
            )
        stream, axis = int(number), Axis(name.strip())
        if found.setdefault(stream, axis) is not axis:
            raise SelectionError(
                f"--stream {text} — stream {stream} is also given as {found[stream]} — keep one of them"
            )
    return found


@dataclass(frozen=True, slots=True)
class _Assignment:
    """Communication operations, a row each in order of number, and the axes found for them so far.

    Attributes:
        op, rank, stream: as in `CLASSIFIED`.
        name: of the kernel, -1 without one.
        category: index in `Collective`, by the kernel.
        does: the same, by calls and ranges if the kernel leaves it open.
        backend: index in `Backend`.
        communicator: a number for each, -1 if unknown.
        peers: how many, -1 for collectives.
        path: of the ranges around the issue, -1 without one.
        axis: index in `Axis`, -1 if unknown so far.
        evidence: the source of the axis.
    """

    op: Rows
    rank: Rows
    stream: Rows
    name: Rows
    category: Rows
    does: Rows
    backend: Rows
    communicator: Rows
    peers: Rows
    path: Rows
    axis: Rows
    evidence: npt.NDArray[np.object_]

    def open_rows(self, *conditions: Flags) -> Rows:
        """The rows without an axis for which all conditions hold."""
        return np.flatnonzero(np.logical_and.reduce([self.axis < 0, *conditions]))

    def settle(self, rows: Rows, axis: Rows, evidence: Sequence[str]) -> None:
        """Set the axis and evidence of rows, except those that have one already or get none (-1)."""
        is_new = (self.axis[rows] < 0) & (axis >= 0)
        self.axis[rows[is_new]] = axis[is_new]
        self.evidence[rows[is_new]] = np.array(evidence, object)[is_new]


def infer_axes(
    operations: pl.DataFrame,
    capture: Capture,
    collectives: pl.DataFrame,
    ranges: RangePaths,
    given: Mapping[int, Axis],
) -> pl.DataFrame:
    """The axis of each communication operation with its evidence (`CLASSIFIED`, `COLLECTIVES` to `AXES`).

    `given` is the user's map, by the number that CUDA gives a stream.

    Raises:
        SelectionError: a given stream is not in the capture.
    """
    _check_streams(given, capture.streams)
    rows = np.flatnonzero(as_integers(operations["class"]) == _COMMUNICATION)
    if rows.size == 0:
        return AXES.to_frame()
    marks = _MARKED.of(ranges.names["text"])
    assignment = _select_operations(operations, rows, collectives, ranges, marks)
    _by_stream_number(assignment, capture.streams, given)
    _by_kernel(assignment, capture.names)
    _assign_by_ranges(assignment, ranges, marks)
    _share_axes(assignment, operations)
    _by_experts(assignment, operations, capture.names)
    _by_expert_kernels(assignment, operations, capture)
    _share_axes(assignment, operations)
    _by_backward(assignment, operations, capture)
    axis = np.where(assignment.axis < 0, _PLACES[Axis.UNKNOWN], assignment.axis)
    return pl.DataFrame(
        {
            "op": assignment.op,
            "operation": _EACH_OPERATION[assignment.does],
            "axis": _EACH_AXIS[axis],
            "evidence": pl.Series(assignment.evidence.tolist(), dtype=pl.String),
        },
        schema=AXES,
    )


def _select_operations(
    operations: pl.DataFrame, rows: Rows, collectives: pl.DataFrame, ranges: RangePaths, marks: Rows
) -> _Assignment:
    """Return the operations of some rows with the data of NCCL's calls, without axes."""
    op = operations["op"].to_numpy()[rows]
    asked = find_places(op, collectives["op"].to_numpy())
    does, peers = (take_or(as_integers(collectives[column]), asked, -1) for column in ("operation", "peers"))
    path = _find_operation_paths(op, ranges)
    category = _OF_CATEGORY[as_integers(operations["category"][rows])]
    is_exchange = _label_around(path, ranges, marks & _EXCHANGES > 0) >= 0
    asked_or_else = np.where(
        (does >= 0) & ~np.isin(does, _NOT_TOLD), does, np.where(is_exchange, _ALL_TO_ALL, category)
    )
    return _Assignment(
        op=op,
        rank=operations["rank_id"].to_numpy()[rows].astype(np.int64),
        stream=operations["stream"].to_numpy()[rows].astype(np.int64),
        name=as_integers(operations["name"][rows]),
        category=category,
        does=np.where(np.isin(category, _NOT_TOLD), asked_or_else, category),
        backend=as_integers(operations["backend"][rows]),
        communicator=take_or(_number_values(collectives["communicator"]), asked, -1),
        peers=peers,
        path=path,
        axis=np.full(rows.size, -1),
        evidence=np.full(rows.size, None, object),
    )


def _match_range_rules(texts: pl.Series) -> Rows:
    """Return the rules that match each folded name, a bit each, and whether it has an exchange."""
    marks = np.zeros(len(texts), np.int64)
    for place, rule in enumerate(_load_axis_rules().ranges):
        marks[texts.str.contains(rule.pattern).to_numpy()] |= 1 << place
    marks[texts.str.contains(_load_axis_rules().exchange).to_numpy()] |= _EXCHANGES
    return marks


def _match_kernel_rules(texts: pl.Series) -> Rows:
    """Whether only mixtures of experts run kernels of each name."""
    return texts.str.contains(_load_axis_rules().expert).to_numpy().astype(np.int64)


_MARKED, _EXPERTS = TextMemo(_match_range_rules), TextMemo(_match_kernel_rules)


def _number_values(column: pl.Series) -> Rows:
    """A number for each value, -1 for null."""
    values = np.unique(column.fill_null(0).to_numpy(), return_inverse=True)[1]
    return np.where(column.is_null().to_numpy(), -1, values) if column.null_count() else values


def _find_operation_paths(op: Rows, ranges: RangePaths) -> Rows:
    """The path of the range of each operation, -1 without one."""
    around = take_or(
        ranges.projected["range"].to_numpy(), find_places(op, ranges.projected["op"].to_numpy()), -1
    )
    row = find_places(around, ranges.tree["range"].to_numpy())
    return take_or(ranges.tree["path"].to_numpy(), row, -1)


def _label_around(paths: Rows, ranges: RangePaths, is_wanted: Flags) -> Rows:
    """The folded name nearest to the end of each path of those that are wanted, -1 without one.

    Path -1 is none.
    """
    label = ranges.paths["name"].to_numpy().astype(np.int64)
    found = take_or(find_nearest(ranges.paths["parent"].to_numpy(), is_wanted[label]), paths, -1)
    return take_or(label, found, -1)


def _check_streams(given: Mapping[int, Axis], streams: pl.DataFrame) -> None:
    there = streams["number"].drop_nulls().unique().sort().to_list()
    missing = next((number for number in given if number not in there), None)
    if missing is None:
        return
    shown = ", ".join(map(str, there[:_MOST_STREAMS]))
    rest = f" and {len(there) - _MOST_STREAMS} more" if len(there) > _MOST_STREAMS else ""
    said = f"it has stream {shown}{rest}" if there else "it has no stream"
    raise SelectionError(f"--stream {missing}={given[missing]} — is not in this export — {said}")


def _by_stream_number(assignment: _Assignment, streams: pl.DataFrame, given: Mapping[int, Axis]) -> None:
    if not given:
        return
    number = dict(zip(streams["stream"].to_list(), streams["number"].to_list(), strict=True))
    asked = [number.get(stream) for stream in assignment.stream.tolist()]
    axis = [-1 if one is None or one not in given else _PLACES[given[one]] for one in asked]
    assignment.settle(
        np.arange(assignment.op.size), np.array(axis), [f"stream {one} given by the user" for one in asked]
    )


def _by_kernel(assignment: _Assignment, names: pl.DataFrame) -> None:
    """Libraries that serve one axis; DeepEP's sends and receives between two ranks serve pipelines."""
    axis = np.append(_AXIS_OF_BACKEND, -1)[assignment.backend]
    is_pipeline = (assignment.backend == _BACKENDS.index(Backend.DEEP_EP)) & (
        assignment.category == _SEND_RECV
    )
    rows = assignment.open_rows((axis >= 0) & (assignment.name >= 0))
    short = {name: shorten_kernel(names["text"][name]) for name in np.unique(assignment.name[rows]).tolist()}
    assignment.settle(
        rows,
        np.where(is_pipeline, _PLACES[Axis.PP], axis)[rows],
        [f"kernel {short[name]}" for name in assignment.name[rows].tolist()],
    )


def _assign_by_ranges(assignment: _Assignment, ranges: RangePaths, marks: Rows) -> None:
    rules, texts = _load_axis_rules().ranges, ranges.names["text"]
    rows = assignment.open_rows(assignment.path >= 0)
    for does in np.unique(assignment.does[rows]).tolist():
        fitting = sum(1 << place for place, rule in enumerate(rules) if _OPERATIONS[does] in rule.operations)
        own = rows[assignment.does[rows] == does]
        label = _label_around(assignment.path[own], ranges, marks & fitting > 0)
        own, label = own[label >= 0], label[label >= 0]
        axis, evidence = np.full(len(texts), -1), [""] * len(texts)
        for one in np.unique(label).tolist():
            hits = int(marks[one]) & fitting
            axis[one] = _PLACES[rules[(hits & -hits).bit_length() - 1].axis]
            evidence[one] = f"range '{texts[one][:_LONGEST_NAME]}'"
        assignment.settle(own, axis[label], [evidence[one] for one in label.tolist()])


def _share_axes(assignment: _Assignment, operations: pl.DataFrame) -> None:
    """Axes with those that others of the communicator, or of a stream for communication alone, agree on.

    Only operations without a communicator take theirs from the stream.
    """
    has_communicator = assignment.communicator >= 0
    _agree(assignment, np.flatnonzero(has_communicator), assignment.communicator, "communicator")
    if assignment.open_rows(~has_communicator).size:
        is_apart = ~has_communicator & ~np.isin(assignment.stream, _computing_streams(operations))
        _agree(assignment, np.flatnonzero(is_apart), assignment.stream, "stream")


def _computing_streams(operations: pl.DataFrame) -> Rows:
    computing = as_integers(operations["class"]) == list(OperationClass).index(OperationClass.COMPUTE)
    return np.flatnonzero(np.bincount(operations["stream"].to_numpy()[np.flatnonzero(computing)]))


def _agree(assignment: _Assignment, beside: Rows, of: Rows, word: str) -> None:
    """Members of a group without an axis get the one that is known of it, first by what they do.

    Gradients and parameters share a communicator: the kind of a member's operation shows which it moves.
    """
    known, unknown = (beside[is_so] for is_so in (assignment.axis[beside] >= 0, assignment.axis[beside] < 0))
    if known.size == 0:
        return
    for kinds in (assignment.does, np.zeros_like(assignment.does)):
        key = (assignment.rank * (int(of.max()) + 1) + of) * len(_OPERATIONS) + kinds
        members = known[np.argsort(key[known], kind="stable")]
        first = np.flatnonzero(mark_changes(key[members]))
        axis = assignment.axis[members]
        one = np.minimum.reduceat(axis, first)
        one[one != np.maximum.reduceat(axis, first)] = -1
        is_data = np.logical_and.reduceat(np.isin(axis, _DATA), first)
        texts = [
            f"same {word}: {str(text).removeprefix(f'same {word}: ')}"
            for text in assignment.evidence[members[first]]
        ]
        group = find_places(key[unknown], key[members[first]])
        rows, group = unknown[group >= 0], group[group >= 0]
        is_finest = (one[group] >= 0) & (kinds is assignment.does)
        found = np.where(is_data[group] & ~is_finest, _AXIS_OF_DATA[assignment.does[rows]], one[group])
        assignment.settle(rows, found, [texts[each] for each in group.tolist()])


def _by_experts(assignment: _Assignment, operations: pl.DataFrame, names: pl.DataFrame) -> None:
    """All-to-alls of ranks that run kernels which only mixtures of experts run."""
    rows = assignment.open_rows(assignment.does == _ALL_TO_ALL)
    if rows.size == 0:
        return
    is_telling = np.append(_EXPERTS.of(names["text"]) > 0, False)
    ranks = np.unique(operations["rank_id"].to_numpy()[is_telling[as_integers(operations["name"])]])
    rows = rows[np.isin(assignment.rank[rows], ranks)]
    assignment.settle(
        rows,
        np.full(rows.size, _PLACES[Axis.EP]),
        [
            f"{_describe_messages(peers)} next to kernels of a mixture of experts"
            for peers in assignment.peers[rows].tolist()
        ],
    )


def _by_expert_kernels(assignment: _Assignment, operations: pl.DataFrame, capture: Capture) -> None:
    """Sends and receives between kernels of experts: tokens are permuted, sent, multiplied and sent back.

    In the order of issue, a grouped multiplication is close on one side of such a message, and another kernel
    of experts on the other side. No message of another group is in between. Next to a message between
    pipeline stages, a message of experts comes first.
    """
    open_rows = assignment.open_rows(assignment.does == _SEND_RECV, assignment.peers < 0)
    is_expert = np.append(_EXPERTS.of(capture.names["text"]) > 0, False)
    if open_rows.size == 0 or not is_expert.any():
        return
    call, at_ns = operations["call"].to_numpy(), operations["start_ns"].to_numpy()
    if len(capture.calls):
        at_ns = np.where(call >= 0, capture.calls["start_ns"].to_numpy()[np.maximum(call, 0)], at_ns)
    computes = as_integers(operations["class"]) == list(OperationClass).index(OperationClass.COMPUTE)
    multiplies = as_integers(operations["category"]) == list(CATEGORY.categories).index(_GROUPED)
    of_rank, name = operations["rank_id"].to_numpy(), as_integers(operations["name"])
    sent_ns = at_ns[find_places(assignment.op, operations["op"].to_numpy())]
    group = np.where(assignment.communicator >= 0, assignment.communicator, -2 - assignment.stream)
    for rank in np.unique(assignment.rank[open_rows]).tolist():
        kernels = np.flatnonzero(computes & (of_rank == rank))
        kernels = kernels[np.argsort(at_ns[kernels], kind="stable")]
        kernels_ns, is_one = at_ns[kernels], is_expert[name[kernels]] | multiplies[kernels]
        is_own = assignment.rank == rank
        for one in np.unique(group[open_rows][is_own[open_rows]]).tolist():
            rows = open_rows[(group == one)[open_rows] & is_own[open_rows]]
            is_other = is_own & (group != one) & np.isin(assignment.does, (_SEND_RECV, _ALL_TO_ALL))
            others = np.sort(np.searchsorted(kernels_ns, sent_ns[is_other]))
            at = np.searchsorted(kernels_ns, sent_ns[rows])
            sides = [_are_near(at, others, flags) for flags in (is_one, multiplies[kernels])]
            (before, after), (product_before, product_after) = sides
            fits = (before & product_after) | (product_before & after)
            if np.count_nonzero(fits) >= EXPERT_MESSAGES_SHARE * rows.size and fits.any():
                text = "sends and receives between kernels that permute tokens or multiply them by expert"
                assignment.settle(
                    rows[fits], np.full(rows[fits].size, _PLACES[Axis.EP]), [text] * rows[fits].size
                )


def _are_near(at: Rows, others: Rows, is_wanted: Flags) -> tuple[Flags, Flags]:
    """Return whether a wanted kernel is near before each place among kernels, and near after it.

    `others` are places that the search does not pass, in order.
    """
    first = np.append(-1, others)[np.searchsorted(others, at, side="right")]
    first = np.maximum(np.maximum(first, at - EXPERT_KERNELS_NEAR_COUNT), 0)
    last = np.append(others, is_wanted.size)[np.searchsorted(others, at, side="left")]
    last = np.minimum(np.maximum(last, at), at + EXPERT_KERNELS_NEAR_COUNT).clip(0, is_wanted.size)
    so_far = np.append(0, np.cumsum(is_wanted))
    return so_far[at] > so_far[first], so_far[last] > so_far[at]


def _by_backward(assignment: _Assignment, operations: pl.DataFrame, capture: Capture) -> None:
    """Reductions that the thread of the backward pass issues, and hardly the main thread: gradients.

    PyTorch runs backward on a thread of its own. Tensor parallelism reduces in the forward pass as often, on
    the main thread.
    """
    rows = assignment.open_rows(np.isin(assignment.does, _REDUCING))
    if rows.size == 0 or capture.calls.is_empty():
        return
    call = operations["call"].to_numpy()
    of_call = capture.calls["thread"].to_numpy().astype(np.int64)
    computes = as_integers(operations["class"]) == list(OperationClass).index(OperationClass.COMPUTE)
    launching = np.flatnonzero(np.bincount(of_call[call[computes & (call >= 0)]]))
    main = _find_main_threads(capture.threads, launching)
    own_call = call[find_places(assignment.op, operations["op"].to_numpy())]
    thread = np.where(own_call >= 0, of_call[np.maximum(own_call, 0)], -1)
    is_backward = np.isin(thread, np.setdiff1d(launching, main)) & np.isin(
        capture.threads["process"].to_numpy()[np.maximum(thread, 0)],
        capture.threads["process"].to_numpy()[main],
    )
    group = np.where(assignment.communicator >= 0, assignment.communicator, -2 - assignment.stream)
    for one in np.unique(group[rows]).tolist():
        own = rows[group[rows] == one]
        chosen = own[is_backward[own]]
        if chosen.size and (own.size - chosen.size) * FORWARD_PARTS_COUNT <= own.size:
            text = (
                f"{_OPERATIONS[int(assignment.does[chosen[0]])]} that the thread of the backward pass issues"
            )
            assignment.settle(chosen, np.full(chosen.size, _PLACES[Axis.DP_GRADIENT]), [text] * chosen.size)


def _find_main_threads(threads: pl.DataFrame, launching: Rows) -> Rows:
    """The main threads of processes, of those that launch: their number is that of the process."""
    main = threads.filter(pl.col("tid") == pl.col("pid"))["thread"].to_numpy().astype(np.int64)
    return np.intersect1d(main, launching)


def _describe_messages(peers: int) -> str:
    if peers < 0:
        return "all-to-all"
    return "group of sends to 1 peer and itself" if peers == 1 else f"group of sends to {peers} peers"
