"""Divide the time of a rank into slices and give each its wall and cause, by what the rank waited for.

Each device operation has one cause, whatever waits for it. The cause of a link on a thread comes from the
call, from the ranges and waits of the thread, and from blocking calls that left the device without work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property

import numpy as np
import polars as pl

from wallscope.attribution.host_causes import CAUSES, HostActivity, QueueDrains, assign_host_causes
from wallscope.attribution.host_waits import (
    DRIVER_LOCK,
    find_batches,
    find_brought_back,
    find_loader_stages,
    find_loading_waits,
    find_offload_work,
    find_stage_waits,
    list_locked_calls,
    mark_lock_waits,
)
from wallscope.attribution.slices import (
    NO_SLACK,
    Constraints,
    Slices,
    blame_gaps,
    collect_constraints,
    slice_windows,
)
from wallscope.attribution.start_up import StartUp, find_start_up
from wallscope.columns import (
    Codes,
    Flags,
    Rows,
    as_integers,
    encode_member,
    list_members,
    mark_numbers,
    number_values,
    split_by_rank,
)
from wallscope.model.capture import FOREVER_NS, Capture
from wallscope.model.cause_catalogue import (
    COMMUNICATION_UNKNOWN_PEER_WAIT,
    COMMUNICATION_UNRESOLVED,
    COMPUTE_HAND_OVER,
    COMPUTE_KERNEL_GAP,
    HOST_FILE,
    HOST_FRAMEWORK,
    HOST_LAUNCH_CALL,
    HOST_LAUNCH_LATENCY,
    HOST_LOCK,
    HOST_OTHER_CALL,
    HOST_START_UP,
    HOST_SYNCHRONISATION,
    MEMORY_ALLOCATOR,
    MEMORY_RECOMPUTE,
    MEMORY_UNRESOLVED,
    UNATTRIBUTED_HELD_WHILE_IDLE,
    UNATTRIBUTED_OPAQUE_GRAPH,
    UNATTRIBUTED_UNRESOLVED,
    UNRECOGNIZED,
)
from wallscope.model.enums import (
    LINK_KINDS,
    Absent,
    Axis,
    CallRole,
    Collective,
    ComputeCategory,
    CopyCause,
    DeviceState,
    LinkKind,
    OperationClass,
)
from wallscope.model.finding_codes import FindingCode
from wallscope.model.schemas import CATEGORY, ROLE, SLICES
from wallscope.process_tuning import run_both, run_side_by_side
from wallscope.records import dataclass
from wallscope.trace.bystander_locks import find_bystander_holds
from wallscope.trace.collectives import find_partners, match_nccl_calls
from wallscope.trace.copies import classify_copies, find_offloaded_spans
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.forward_backward import (
    find_backward_ranks,
    find_recompute,
    identify_passes,
    mark_autograd_ranges,
    mark_autograd_threads,
)
from wallscope.trace.intervals import Spans
from wallscope.trace.kernel_classes import is_compute
from wallscope.trace.parallel_axes import RangePaths, infer_axes
from wallscope.trace.ranges import RangeTree
from wallscope.trace.silent_waits import find_silent_waits

KERNEL_GAP, HELD_WHILE_IDLE = COMPUTE_KERNEL_GAP, UNATTRIBUTED_HELD_WHILE_IDLE
PEER = COMMUNICATION_UNKNOWN_PEER_WAIT
_OF_KIND = {
    LinkKind.LAUNCH_LATENCY: HOST_LAUNCH_LATENCY,
    LinkKind.LAUNCH_CALL: HOST_LAUNCH_CALL,
    LinkKind.OTHER_CALL: HOST_OTHER_CALL,
    LinkKind.SYNCHRONISATION: HOST_SYNCHRONISATION,
    LinkKind.ALLOCATION: MEMORY_ALLOCATOR,
    LinkKind.DRIVER_LOCK: DRIVER_LOCK,
}
_UNRESOLVED = {
    DeviceState.EXPOSED_COMMUNICATION: COMMUNICATION_UNRESOLVED,
    DeviceState.EXPOSED_COPY: MEMORY_UNRESOLVED,
}
_BY_KIND: tuple[str | None, ...] = (*(_OF_KIND.get(kind) for kind in LinkKind), PEER)
_BY_STATE = tuple(_UNRESOLVED.get(state, UNATTRIBUTED_UNRESOLVED) for state in DeviceState)
_FIXED = (*_BY_KIND, *_BY_STATE, HOST_START_UP, HELD_WHILE_IDLE, KERNEL_GAP)
"""Causes known without operations and threads: kind of link, device state, start-up, gaps between kernels."""
_OF_CATEGORY = (*CATEGORY.categories, None)
_OF_AXIS = (*Axis, None)
_OF_COPY = (*CopyCause, None)
_OF_CLASS = (*OperationClass, None)
_KINDS = (len(_OF_CLASS), len(_OF_CATEGORY), len(_OF_AXIS), len(_OF_COPY), 2)


@dataclass(frozen=True)
class OperationCauses:
    """The cause of each operation; arrays by number of the operation.

    `causes` is its cause, and `befores` that of the time between its end and the start of its dependent, both
    as indices in `texts`. `chain` is its order: operations of one stream share it.
    """

    texts: tuple[str, ...]
    causes: Codes
    befores: Codes
    chain: Codes
    computes: Flags

    def name_causes(self, op: Codes) -> pl.Series:
        """Return the causes of some operations, as an enumeration."""
        return self._names[self.causes[op]]

    def name_befores(self, op: Codes) -> pl.Series:
        """Return the causes of the time after some operations, as an enumeration."""
        return self._names[self.befores[op]]

    @cached_property
    def _names(self) -> pl.Series:
        return pl.Series(self.texts, dtype=pl.Enum(self.texts))


def assign_operation_causes(  # noqa: PLR0913  # all inputs of the causes of operations
    operations: pl.DataFrame,
    count: int,
    axes: pl.DataFrame,
    copies: pl.DataFrame,
    recomputed: pl.Series,
    *,
    may_communicate: bool = False,
) -> OperationCauses:
    """Return the causes of all operations of a capture; operations of unselected ranks count as peers.

    Args:
        operations: `CLASSIFIED`, of the selected ranks.
        count: number of operations of the capture.
        axes: `AXES`.
        copies: `COPY_CAUSES`.
        recomputed: numbers of the operations that repeat forward work.
        may_communicate: whether kernels with unrecognized names may communicate in this capture.
    """
    op = operations["op"].to_numpy()
    of_class = _beside(op, as_integers(operations["class"]), count)
    told_by = (
        of_class,
        _beside(op, as_integers(operations["category"]), count),
        _beside(axes["op"].to_numpy(), as_integers(axes["axis"]), count),
        _beside(copies["op"].to_numpy(), as_integers(copies["cause"]), count),
        mark_numbers(recomputed.to_numpy(), count),
    )
    kind = np.ravel_multi_index(told_by, _KINDS, mode="wrap")  # -1 is the last
    kinds = np.flatnonzero(np.bincount(kind))
    places = zip(*np.unravel_index(kinds, _KINDS), strict=True)
    pairs = [_choose_cause(*map(int, one), may_communicate=may_communicate) for one in places]
    texts = tuple(dict.fromkeys(text for pair in pairs for text in pair))
    found = np.zeros((2, int(np.prod(_KINDS))), np.uint16)
    found[:, kinds] = np.array([[texts.index(text) for text in pair] for pair in pairs]).reshape(-1, 2).T
    causes, befores = found[:, kind]
    return OperationCauses(
        texts,
        causes,
        befores,
        _beside(op, operations["stream"].to_numpy(), count),
        is_compute(of_class),
    )


def _beside(op: Rows, values: Codes, count: int) -> Codes:
    """Return values of some operations in an array for all, -1 for the others."""
    found = np.full(count, -1, np.int32)
    found[op] = values
    return found


def _choose_cause(  # noqa: PLR0913  # all inputs of the cause of a kind
    of_class: int, category: int, axis: int, copied: int, again: int, *, may_communicate: bool
) -> tuple[str, str]:
    """Return the cause of a kind of operation, given by indices, and that of the time before the next one."""
    kind, of_axis, moved = _OF_CLASS[of_class], _OF_AXIS[axis] or "unknown", _OF_COPY[copied]
    if kind is None:
        return PEER, COMPUTE_HAND_OVER
    if kind is OperationClass.COMMUNICATION:
        part = "peer-wait" if _OF_CATEGORY[category] == Collective.SYNCHRONISE else "unsplit"  # moves no data
        return f"communication/{of_axis}/{part}", f"communication/{of_axis}/hand-over"
    if kind is OperationClass.COPY:
        wall = "host" if moved is CopyCause.SMALL_COPY else "memory"
        return f"{wall}/{moved or 'unknown-copy'}", f"{wall}/hand-over"
    if kind is OperationClass.OPAQUE_GRAPH:
        return UNATTRIBUTED_OPAQUE_GRAPH, COMPUTE_HAND_OVER
    is_open = may_communicate and _OF_CATEGORY[category] == ComputeCategory.UNRECOGNIZED
    cause = UNRECOGNIZED if is_open else f"compute/{_OF_CATEGORY[category]}"
    return MEMORY_RECOMPUTE if again else cause, COMPUTE_HAND_OVER


_WITHOUT_WORK = [
    encode_member(kind)
    for kind in (LinkKind.OUTSIDE_CALLS, LinkKind.SYNCHRONISATION, LinkKind.LAUNCH_LATENCY)
]
"""Kinds of links during which the export shows only that no kernel computes."""
_ON_THREADS = [
    encode_member(kind)
    for kind in LinkKind
    if kind not in {LinkKind.OPERATION, LinkKind.HAND_OVER, LinkKind.UNRESOLVED}
]
"""Kinds of links that compare the times of the device with those of threads."""
_OF_START_UP = [CAUSES.index(cause) for cause in (HOST_FRAMEWORK, HOST_LOCK, HOST_FILE)]
"""Causes of time outside calls that start-up replaces: loading libraries reads files and waits for locks."""
_WITHOUT_CALLS = {FindingCode.TRACE_FILTERED, FindingCode.TRACE_CUT_OFF}
"""Findings on captures in which a thread outside calls may have been inside one that is missing."""
_INCOMPLETE = {
    FindingCode.TRACE_FILTERED,
    FindingCode.TRACE_EVENTS_LOST,
    FindingCode.RECORDS_LOST,
    FindingCode.LAUNCHES_WITHOUT_WORK,
    FindingCode.GRAPH_REPLAYS_MISSING,
    FindingCode.FILTERED_EXPORT,
    FindingCode.UNTIMED_OPERATIONS,
}
"""Findings on captures that lack operations or waits: an idle device may have worked there."""


def assign_slice_causes(  # noqa: PLR0913  # all inputs of the causes of slices
    slices: Slices,
    causes: OperationCauses,
    on_thread: Rows,
    texts: list[str],
    in_graph: Rows,
    *,
    is_complete: bool = True,
    open_kinds: Sequence[int] = (),
    starts_up: Flags | None = None,
    silent: Flags | None = None,
) -> tuple[Rows, list[str | None]]:
    """Return the cause of each slice, as an index in the returned texts.

    Args:
        slices: the slices.
        causes: of the operations.
        on_thread: the cause of each slice that is time outside calls on a thread, -1 for others.
        texts: the meaning of those indices.
        in_graph: number of the graph launch of each operation, -1 outside graphs.
        is_complete: whether no operation or wait is known to be missing from the capture.
        open_kinds: kinds of links whose cause is unknown in this capture, encoded.
        starts_up: which slices belong to the start-up of the program, `None` if there is none.
        silent: whether each operation may have waited for what no row records; `None`: none did.
    """
    first_of_op, first_of_thread = len(_FIXED), len(_FIXED) + len(causes.texts)
    kind = slices.kind
    found = np.where(on_thread >= 0, first_of_thread + on_thread, kind)
    if starts_up is not None:
        is_general = (on_thread < 0) | (on_thread >= len(CAUSES)) | np.isin(on_thread, _OF_START_UP)
        found[starts_up & is_general & np.isin(kind, _ON_THREADS)] = _FIXED.index(HOST_START_UP)
    if open_kinds:
        is_open = np.isin(kind, open_kinds)
        found[is_open] = len(_BY_KIND) + slices.state[is_open]
    rows = np.flatnonzero(kind == encode_member(LinkKind.UNRESOLVED))
    is_idle = slices.state[rows] == encode_member(DeviceState.IDLE)
    is_held = is_idle & (slices.next_op[rows] >= 0) & is_complete
    if silent is not None:
        is_held &= ~silent[slices.next_op[rows]]
    found[rows] = np.where(is_held, len(_FIXED) - 2, len(_BY_KIND) + slices.state[rows])

    rows = np.flatnonzero(kind == encode_member(LinkKind.HAND_OVER))
    op, next_op = slices.op[rows], slices.next_op[rows]
    same_graph = (in_graph[op] == in_graph[next_op]) & (in_graph[op] >= 0)
    in_order = (causes.chain[op] == causes.chain[next_op]) | same_graph
    is_gap = in_order & causes.computes[op] & causes.computes[next_op]
    found[rows] = np.where(is_gap, len(_FIXED) - 1, first_of_op + causes.befores[op])

    rows = np.flatnonzero((kind < 0) | (kind == encode_member(LinkKind.OPERATION)))
    op = slices.op[rows]
    is_gap = (kind[rows] >= 0) & causes.computes[op]
    found[rows] = np.where(is_gap, len(LinkKind), first_of_op + causes.causes[op])
    return found, [*_FIXED, *causes.texts, *texts]


_OF_ROLE = {
    CallRole.LAUNCH: LinkKind.LAUNCH_CALL,
    CallRole.GRAPH: LinkKind.LAUNCH_CALL,
    CallRole.ALLOC: LinkKind.ALLOCATION,
    CallRole.SYNC: LinkKind.SYNCHRONISATION,
}


@dataclass(frozen=True, slots=True)
class OperationFacts:
    """Data on operations in addition to their class.

    `AXES`, `COLLECTIVES`, `PARTNERS`, `COPY_CAUSES`, `RECOMPUTE`; `backward_ranks` are the ids of the ranks
    in which a range names a backward pass.
    """

    axes: pl.DataFrame
    collectives: pl.DataFrame
    partners: pl.DataFrame
    copies: pl.DataFrame
    recomputed: pl.DataFrame
    backward_ranks: frozenset[int]

    def select(self, op: pl.Series) -> "OperationFacts":
        """Return the data on some operations."""
        is_own = pl.col("op").is_in(op.implode())
        return OperationFacts(
            self.axes.filter(is_own),
            self.collectives.filter(is_own),
            self.partners.filter(is_own),
            self.copies.filter(is_own),
            self.recomputed.filter(is_own),
            self.backward_ranks,
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """All inputs of slices, of the whole capture.

    Attributes:
        waits: the dependencies.
        causes: of the operations.
        activity: ranges and waits of the threads.
        calls: `CALLS`.
        constraints: dependencies of operations and threads, in the layout of the blame chain.
        names_of_calls: the name of each call, by number, as an enumeration.
        projected: `PROJECTION`.
        graph: number of the graph launch of each operation, -1 outside graphs.
        recomputed: numbers of the operations that repeat forward work.
        drained: blocking calls that left each rank without work, by id of the rank.
        locked: calls that waited while another thread held the driver, by number.
        is_complete: whether no operation or wait is known to be missing.
        open_kinds: kinds of links whose cause is unknown, because calls may be missing or clocks differ.
        start_ups: the start-up of each rank, by id of the rank; none in a capture with steps.
        silent: whether each operation may have waited for what no row records; `None`: none did.
    """

    waits: Dependencies
    causes: OperationCauses
    activity: HostActivity
    calls: pl.DataFrame
    constraints: Constraints
    names_of_calls: pl.Series
    projected: pl.DataFrame
    graph: pl.Series
    recomputed: pl.Series
    drained: Mapping[int, QueueDrains]
    locked: Rows
    is_complete: bool
    open_kinds: Sequence[int] = ()
    start_ups: Mapping[int, StartUp | None] = field(default_factory=dict)
    silent: Flags | None = None


def identify_operations(
    operations: pl.DataFrame,
    windows: pl.DataFrame,
    capture: Capture,
    around: RangePaths,
    streams: Mapping[int, Axis],
) -> OperationFacts:
    """Return data on operations (`CLASSIFIED`, `WINDOWS`); `streams` is the user's map of axes."""

    def told_by_calls() -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        asked = match_nccl_calls(operations, capture)
        return (
            asked,
            infer_axes(operations, capture, asked, around, streams),
            find_partners(operations, asked),
        )

    def told_by_ranges() -> tuple[pl.DataFrame, pl.DataFrame, frozenset[int]]:
        by_ranges = identify_passes(around.projected, around.tree, around.paths, around.names)
        by_ranges = mark_autograd_ranges(by_ranges, around.projected, around.tree, capture.autograd_ranges)
        of_passes = mark_autograd_threads(by_ranges, capture.operations, capture.calls, capture.threads)
        again = find_recompute(operations, windows, capture.names, of_passes)
        copies = classify_copies(capture.operations, capture.copies, of_passes)
        return copies, again, find_backward_ranks(operations, by_ranges)

    (copies, recomputed, backward_ranks), (asked, named, between) = run_both(told_by_ranges, told_by_calls)
    return OperationFacts(
        axes=named,
        collectives=asked,
        partners=between,
        copies=copies,
        recomputed=recomputed,
        backward_ranks=backward_ranks,
    )


def collect_evidence(  # noqa: PLR0913, PLR0917  # all earlier results
    operations: pl.DataFrame,
    capture: Capture,
    waits: Dependencies,
    facts: OperationFacts,
    range_tree: RangeTree,
    projected: pl.DataFrame,
    *,
    may_communicate: bool = False,
    has_steps: bool = True,
    is_undivided: bool = False,
) -> Evidence:
    """Return the inputs of slices; `operations` are the `CLASSIFIED` ones of the selected ranks.

    `may_communicate` is whether kernels with unrecognized names may communicate in this capture. Only in
    steps can a copy at the end of a wait be a batch. `is_undivided` is whether the capture has no steps at
    all: then start-up is a cause.
    """
    again = facts.recomputed["op"]
    names_of_calls = _names_of_calls(capture)
    of_ranks = split_by_rank(operations)
    is_node = capture.operations["graph_node"].is_not_null().to_numpy()
    causes, drained = run_both(
        lambda: assign_operation_causes(
            operations,
            len(capture.operations),
            facts.axes,
            facts.copies,
            again,
            may_communicate=may_communicate,
        ),
        lambda: {rank_id: QueueDrains(own, waits, names_of_calls) for rank_id, own in of_ranks.items()},
    )
    stages = find_loader_stages(range_tree, capture.threads["process"])
    batches = find_batches(capture.copies, facts.copies)
    brought_back = find_brought_back(capture.copies, facts.copies)

    def find_waits(own: pl.DataFrame) -> tuple[Spans, dict[int, Spans], Mapping[int, Spans]]:
        batch_waits = find_loading_waits(own, batches, waits) if has_steps else {}
        loading = {**batch_waits, **find_stage_waits(own, waits, stages)}
        work = find_offload_work(own, brought_back, waits) if has_steps else {}
        return find_offloaded_spans(own, capture.copies, facts.copies), loading, work

    found = dict(zip(of_ranks, run_side_by_side(find_waits, of_ranks.values()), strict=True))
    silent = find_silent_waits(operations, capture, waits)
    return Evidence(
        waits=waits,
        causes=causes,
        activity=HostActivity(
            tree=range_tree.tree,
            paths=range_tree.paths,
            path_names=range_tree.names,
            events=capture.host_events,
            event_names=capture.host_names,
            calls=capture.calls,
            process=capture.threads["process"],
            away={rank_id: away for rank_id, (away, _, _) in found.items()},
            loading={rank_id: loading for rank_id, (_, loading, _) in found.items()},
            updating={rank_id: work for rank_id, (_, _, work) in found.items()},
            bystander_holds=find_bystander_holds(capture),
        ),
        calls=capture.calls,
        constraints=collect_constraints(waits, _kinds_of_calls(capture.calls)),
        names_of_calls=names_of_calls,
        projected=projected,
        graph=pl.Series(np.where(is_node, capture.operations["call"].to_numpy(), -1)),
        recomputed=again,
        drained=drained,
        locked=list_locked_calls(waits, capture.calls["role"]),
        is_complete=_INCOMPLETE.isdisjoint(finding.code for finding in capture.findings),
        open_kinds=_list_open_kinds(capture),
        start_ups=_find_start_ups(of_ranks, capture) if is_undivided else {},
        silent=np.logical_or.reduce([waits.mark_late_launches(), *(one.may_hold for one in silent)]),
    )


def _find_start_ups(of_ranks: Mapping[int, pl.DataFrame], capture: Capture) -> dict[int, StartUp | None]:
    processes = dict(capture.ranks.select("rank_id", "process").iter_rows())
    return {
        rank_id: find_start_up(own, capture, processes[rank_id])
        for rank_id, own in of_ranks.items()
        if rank_id in processes  # others have no selected window
    }


def _list_open_kinds(capture: Capture) -> Sequence[int]:
    """Return the kinds of links whose cause is unknown where calls may be missing or clocks contradict."""
    codes = {finding.code for finding in capture.findings}
    if FindingCode.DEVICE_CLOCK_UNKNOWN in codes:
        return _ON_THREADS
    return () if _WITHOUT_CALLS.isdisjoint(codes) else _WITHOUT_WORK


def _names_of_calls(capture: Capture) -> pl.Series:
    """Return the name of each call, by number; there are millions of calls and dozens of names."""
    names = capture.call_names["text"]
    return names.cast(pl.Enum(names)).gather(capture.calls["name"])


def _kinds_of_calls(calls: pl.DataFrame) -> Codes:
    """Return the kind of link of each call, by number; for blocking calls the awaited operation decides."""
    of_role = [_OF_ROLE.get(CallRole(role), LinkKind.OTHER_CALL) for role in ROLE.categories]
    places = np.array([LINK_KINDS.index(kind) for kind in of_role], np.int8)
    return places[as_integers(calls["role"])]


_ABSENT = {LinkKind.OPERATION: Absent.BLOCKING} | dict.fromkeys(
    (LinkKind.HAND_OVER, LinkKind.UNRESOLVED), Absent.DEPENDENCY_STALLED
)
_ABSENT_OF_KIND = pl.Series(
    [*(_ABSENT.get(kind, Absent.LAUNCH_STARVED) for kind in LinkKind), None], dtype=SLICES["absent"]
)
_LINK_KINDS, _STATES = list_members(LinkKind), list_members(DeviceState)


def attribute_rank(evidence: Evidence, operations: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return the slices (`SLICES`) of one rank, from its operations (`CLASSIFIED`) and windows (`WINDOWS`).

    Their causes are a separate enumeration, in alphabetical order.
    """
    first_ns = int(windows["start_ns"].to_numpy().min(initial=FOREVER_NS))
    last_ns = int(windows["end_ns"].to_numpy().max(initial=-FOREVER_NS))
    links = blame_gaps(operations, evidence.constraints, (first_ns, last_ns))
    links = mark_lock_waits(links, evidence.waits, evidence.locked)
    threads = np.flatnonzero(np.bincount(links.thread[links.thread >= 0])).tolist()
    rank_id = operations["rank_id"][0]
    drained = evidence.drained[rank_id]
    moments = evidence.activity.moments(threads, drained.threads)
    slices = slice_windows(operations, links, windows, evidence.recomputed, moments)
    ranges, on_thread, host_cause = assign_host_causes(
        slices.thread, slices.start_ns, slices.kind, evidence.activity, drained
    )
    start_up = evidence.start_ups.get(rank_id)
    of_op = evidence.projected["range"].to_numpy()[np.maximum(slices.op, 0)]
    cause, texts = assign_slice_causes(
        slices,
        evidence.causes,
        on_thread,
        host_cause,
        evidence.graph.to_numpy(),
        is_complete=evidence.is_complete,
        open_kinds=evidence.open_kinds,
        starts_up=None if start_up is None else start_up.mark_slices(slices.start_ns, slices.call),
        silent=evidence.silent,
    )
    number, names = number_values(texts)
    named = number.astype(np.uint32)[cause]  # polars takes signed places slowly
    kind = np.minimum(slices.kind.view(np.uint8), len(LinkKind))  # the last is null
    walls = [name.split("/", 1)[0] for name in names]
    return pl.DataFrame(
        {
            "rank_id": np.full(cause.size, rank_id, np.uint32),
            "step": windows["step"].to_numpy()[slices.window],
            "start_ns": slices.start_ns,
            "end_ns": slices.end_ns,
            "state": _STATES[slices.state.view(np.uint8)],
            "absent": _ABSENT_OF_KIND[kind],
            "wall": pl.Series(walls, dtype=SLICES["wall"])[named],
            "cause": pl.Series(names, dtype=pl.Enum(names))[named],
            "kind": _LINK_KINDS[kind],
            "gap": slices.gap,
            "op": slices.op.astype(np.int32),
            "next_op": slices.next_op,
            "call": slices.call,
            "thread": slices.thread,
            "range": np.where(slices.thread >= 0, ranges, np.where(slices.op < 0, -1, of_op)).astype(
                np.int32
            ),
            "slack_ns": pl.Series(slices.slack_ns).set(pl.Series(slices.slack_ns == NO_SLACK), None),
            "inferred": slices.inferred,
        },
        schema={**SLICES, "cause": pl.Enum(names)},
    )
