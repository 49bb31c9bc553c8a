"""Replay windows: the ranks and steps that are simulated together, and the activities of their threads."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.attribution.attribute import Evidence
from wallscope.attribution.host_causes import QueueDrains, assign_host_causes
from wallscope.attribution.prepared import RankWindows
from wallscope.columns import Codes, Flags, Places, Rows, are_among, as_integers, as_texts, number_values
from wallscope.errors import NothingToAnalyzeError
from wallscope.model.cause_catalogue import (
    HOST_LAUNCH_CALL,
    HOST_OTHER_CALL,
    HOST_SYNCHRONISATION,
    MEMORY_ALLOCATOR,
)
from wallscope.model.enums import CallRole, LinkKind
from wallscope.model.schemas import ROLE, STEPS
from wallscope.records import dataclass
from wallscope.replay.graph import ReplayGraph, build_graph
from wallscope.thresholds.causes import REPLAYED_LENGTH_SHARE
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.intervals import BEFORE_ALL, Spans, Times, as_times, number_spans
from wallscope.trace.kernel_classes import is_compute
from wallscope.trace.names import mark_changes
from wallscope.trace.ranges import RangeTree
from wallscope.trace.streams import Tail
from wallscope.trace.thread_timeline import Activities, ThreadSegments


@dataclass(frozen=True)
class ReplayWindow:
    """An interval of some ranks, ready to be simulated; series of texts are enumerations.

    Attributes:
        graph: the graph to simulate.
        waits: the dependencies of the capture.
        segments: the host segments.
        causes: of each segment, `wall/cause[/detail]`; the awaited operation of a blocking call is not its
            cause.
        operations: `CLASSIFIED`, those that are issued in the window, or before it and start in it, with
            `cause`.
        call_name, call_role: of each call, by number; its text, its `CallRole`.
        releasing: calls that free memory, and the last work before each.
    """

    graph: ReplayGraph
    waits: Dependencies
    segments: ThreadSegments
    causes: pl.Series
    operations: pl.DataFrame
    call_name: pl.Series
    call_role: pl.Series
    releasing: Mapping[int, Tail]

    @cached_property
    def role(self) -> Rows:
        """The role of the call that each segment is in, as an index in `ROLE`; -1 outside calls."""
        call, roles = np.asarray(self.segments.call), self.call_role.to_physical().to_numpy()
        found = np.full(call.size, -1, np.int64)
        found[call >= 0] = roles[call[call >= 0]]
        return found

    @cached_property
    def replayed(self) -> pl.DataFrame:
        """The simulated operations, by position."""
        row_of = Places(self.operations["op"].to_numpy())
        return self.operations[row_of.of(self.graph.op)]


@dataclass(frozen=True)
class SimulatedSteps(ReplayWindow):
    """A replay window with the steps of one rank and the names of its content.

    Attributes:
        operations: also with `before` (the cause of the time between their end and the start of their
            dependents), `text` (of kernels their name), `range` and `path` (null outside ranges).
        steps: the steps of the rank (`STEPS`) with the operations `first` and `behind` that begin them and
            the next; answers refer to `typical` ones, `checked` ones show the error.
        others: of each other rank: int64[steps, 2], the operations that begin its windows nearest to the
            begin and end of each step; -1 outside the window.
        ranges, paths: `NESTED` with `text`, and `PATHS`.
        rank_id: the rank of the steps.
    """

    steps: pl.DataFrame
    others: tuple[npt.NDArray[np.int64], ...]
    ranges: pl.DataFrame
    paths: pl.DataFrame
    rank_id: int

    def edges(self, which: str) -> Rows:
        """The indices at which the steps of a kind (a column of `steps`) begin and end, in two columns."""
        held = np.flatnonzero(self.steps[which].to_numpy())
        ops = np.column_stack([self.steps["first"].to_numpy(), self.steps["behind"].to_numpy()])[held]
        return self.graph.positions(ops.ravel()).reshape(-1, 2)

    def edges_of_others(self) -> list[npt.NDArray[np.int64]]:
        """The same of the windows of each other rank nearest to the typical steps, -1 without."""
        held = np.flatnonzero(self.steps["typical"].to_numpy())
        return [self.graph.positions(ops[held].ravel()).reshape(-1, 2) for ops in self.others]


NO_ISSUER = "the export has no call that issued the operations of its steps"
_REPLAYED = pl.Schema(
    {
        **STEPS,
        "typical": pl.Boolean(),
        "checked": pl.Boolean(),
        "first": pl.Int64(),
        "behind": pl.Int64(),
    }
)
_RELEASES = (
    r"^(cuda|hip)(Free(Array|MipmappedArray|Host)?|Host(Free|Unregister))$"
    r"|^cu(MemFree(Host)?|MemHostUnregister|(Mipmapped)?ArrayDestroy)$"
)
_OTHER_CALL = HOST_OTHER_CALL
_OF_ROLE = {
    CallRole.LAUNCH: HOST_LAUNCH_CALL,
    CallRole.GRAPH: HOST_LAUNCH_CALL,
    CallRole.ALLOC: MEMORY_ALLOCATOR,
    CallRole.SYNC: HOST_SYNCHRONISATION,
}
_INSIDE, _OUTSIDE = map(list(LinkKind).index, (LinkKind.OTHER_CALL, LinkKind.OUTSIDE_CALLS))


def find_connected_ranks(ranks: Sequence[RankWindows], partners: pl.DataFrame) -> list[list[RankWindows]]:
    """Return ranks that communicate with each other, possibly through others."""
    op, collective = partners["op"].to_numpy(), partners["collective"].to_numpy()
    rank_of, groups = np.zeros(op.size, np.int64), np.arange(len(ranks))
    for place, rank in enumerate(ranks):
        rank_of[are_among(op, rank.operations["op"].to_numpy())] = place
    while True:
        first = np.full(int(collective.max(initial=0)) + 1, len(ranks))
        np.minimum.at(first, collective, groups[rank_of])
        joined = groups.copy()
        np.minimum.at(joined, rank_of, first[collective])
        if np.array_equal(joined, groups):
            break
        groups = joined
    return [
        [ranks[place] for place in np.flatnonzero(groups == one).tolist()]
        for one in np.unique(groups).tolist()
    ]


def select_neighbouring_steps(rank: RankWindows, most: int) -> pl.DataFrame:
    """Return adjacent windows that are quick to replay: all typical ones, or from the most ordinary one on.

    One more precedes the first of them, because the host's work ahead of it is also replayed.
    """
    windows, typical, operations = rank.windows, rank.typical, rank.operations
    steps = windows["step"].to_list()
    bounds = np.append(windows["start_ns"].to_numpy(), windows["end_ns"][-1])
    held = np.searchsorted(operations["start_ns"].to_numpy(), bounds)
    first, last = steps.index(typical["step"][0]), steps.index(typical["step"][-1])
    if held[last + 1] - held[max(first - 1, 0)] > most:
        length_ns = (typical["end_ns"] - typical["start_ns"]).to_numpy()
        first = steps.index(typical["step"][int(np.abs(length_ns - length_ns.mean()).argmin())])
    before = max(first - 1, 0)
    quick = int(np.searchsorted(held[before:] - held[before], most, side="right")) - 1 + before
    return windows[before : max(min(last + 1, quick), first + 1)]


def find_held_between(rank: RankWindows, begin_ns: int, end_ns: int) -> pl.DataFrame:
    """Return the windows of a rank whose middle lies in an interval, both ends included."""
    starts_ns, ends_ns = rank.windows["start_ns"].to_numpy(), rank.windows["end_ns"].to_numpy()
    middle_ns = starts_ns + (ends_ns - starts_ns) // 2
    return rank.windows[np.flatnonzero((middle_ns >= begin_ns) & (middle_ns <= end_ns))]


def select_replay_window(  # noqa: PLR0913, PLR0917  # the parts of a window
    evidence: Evidence,
    ranks: Sequence[RankWindows],
    partners: pl.DataFrame,
    range_tree: RangeTree,
    kernel_names: pl.DataFrame,
    place: int,
    most: int,
) -> SimulatedSteps:
    """Return the steps of one of the ranks, by its index; `partners` (`PARTNERS`) are collectives.

    These are adjacent steps from the first typical one on, with at most so many operations, but at least one
    step. One more step precedes them.

    Raises:
        NothingToAnalyzeError: the calls that issued them are unknown.
    """
    shown = ranks[place]
    together = next(group for group in find_connected_ranks(ranks, partners) if shown in group)
    chosen = select_neighbouring_steps(shown, most // len(together))
    begin_ns, end_ns = chosen["start_ns"][0], chosen["end_ns"][-1]
    others = [(rank, find_held_between(rank, begin_ns, end_ns)) for rank in together if rank is not shown]
    return make_simulated_steps(evidence, [(shown, chosen), *others], partners, range_tree, kernel_names)


def make_simulated_steps(
    evidence: Evidence,
    ranks: Sequence[tuple[RankWindows, pl.DataFrame]],
    partners: pl.DataFrame,
    range_tree: RangeTree,
    kernel_names: pl.DataFrame,
) -> SimulatedSteps:
    """Return windows of some ranks, ready to be simulated together; the steps are those of the first one.

    Raises:
        NothingToAnalyzeError: the calls that issued them are unknown.
    """
    together = sorted((rank for rank, _ in ranks), key=lambda rank: rank.rank_id)
    window = make_replay_window(evidence, together, partners, *find_host_times(evidence, ranks))
    if not (window.operations["call"].to_numpy() >= 0).any():
        raise NothingToAnalyzeError(NO_ISSUER, "capture with --trace=cuda, starting before the steps")
    known = {one.name: getattr(window, one.name) for one in fields(window)}
    described = _describe_operations(window.operations, evidence, range_tree, kernel_names)
    made = ReplayWindow(**known | {"operations": described})
    return view_rank_steps(made, ranks, range_tree)


def view_rank_steps(
    window: ReplayWindow, ranks: Sequence[tuple[RankWindows, pl.DataFrame]], range_tree: RangeTree
) -> SimulatedSteps:
    """Return a window with the steps of the first of its ranks; its operations have their names."""
    known = {one.name: getattr(window, one.name) for one in fields(ReplayWindow)}
    (shown, chosen), *others = ranks
    steps = _select_replayed_steps(chosen, shown, window)
    edges_ns = np.column_stack([steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()])
    return SimulatedSteps(
        **known,
        steps=steps,
        others=tuple(_find_nearest_begins(edges_ns, rank, window) for rank, _ in others),
        ranges=range_tree.tree,
        paths=range_tree.paths,
        rank_id=shown.rank_id,
    )


def find_host_times(
    evidence: Evidence, windows: Sequence[tuple[RankWindows, pl.DataFrame]]
) -> tuple[int, int]:
    """Return the host time of windows of some ranks, up to the issue of the first operation behind them."""
    calls, begins_ns, ends_ns = evidence.waits.calls, [], []
    for rank, own in windows:
        if own.is_empty():
            continue
        behind = find_first_operations(rank.operations, rank.rank_id, own["end_ns"].to_numpy()[-1:])
        call = rank.operations["call"].to_numpy()[are_among(rank.operations["op"].to_numpy(), behind)]
        begins_ns.append(int(own["issue_start_ns"].to_numpy().min()))
        ends_ns += [int(own["issue_end_ns"].to_numpy().max()), *calls.start_ns[call].tolist()]
    return min(begins_ns), max(ends_ns)


def find_held_operations(rank: RankWindows, most: int) -> int:
    """Return the number of replayed operations of a rank under a limit."""
    chosen = select_neighbouring_steps(rank, most)
    starts_ns = rank.operations["start_ns"].to_numpy()
    begin, end = np.searchsorted(starts_ns, (chosen["start_ns"][0], chosen["end_ns"][-1]))
    return int(end - begin)


def find_longest_waiting(ranks: Sequence[RankWindows], unmarked: Collection[int]) -> int:
    """Return the index of the rank that computes for the smallest share of its typical step.

    `unmarked` indices count only if there are no others.
    """

    def computed_share(place: int) -> float:
        typical = ranks[place].typical
        whole_ns = (typical["end_ns"] - typical["start_ns"]).to_numpy().sum()
        return float(typical["compute_ns"].to_numpy().sum() / max(int(whole_ns), 1))

    marked = [place for place in range(len(ranks)) if place not in unmarked]
    return min(marked or range(len(ranks)), key=computed_share)


def _describe_operations(
    own: pl.DataFrame, evidence: Evidence, range_tree: RangeTree, kernel_names: pl.DataFrame
) -> pl.DataFrame:
    """Return the operations with their causes, their names, and the range and path of each."""
    op = own["op"].to_numpy()
    inside = evidence.projected["range"].to_numpy()[op]
    of_path = pl.Series("path", range_tree.path_of_range[inside])
    return own.hstack(
        [
            evidence.causes.name_befores(op).alias("before"),
            pl.Series("range", inside, pl.Int32),
            of_path.set(of_path < 0, None).cast(range_tree.tree.schema["path"]),
        ]
    ).join(kernel_names, on="name", how="left", maintain_order="left")


def _select_replayed_steps(chosen: pl.DataFrame, shown: RankWindows, window: ReplayWindow) -> pl.DataFrame:
    """Return the windows whose two ends are replayed."""
    edges = find_step_operations(chosen, shown, window.operations)
    edges = np.where(window.graph.positions(edges.ravel()) >= 0, edges.ravel(), -1).reshape(-1, 2)
    typical = pl.Series(np.isin(chosen["step"].to_numpy(), shown.typical["step"].to_numpy()))
    checked = chosen["steady"] if shown.windows["steady"].any() else typical
    steps = chosen.hstack(
        [typical.alias("typical"), checked.alias("checked"), *map(pl.Series, ("first", "behind"), edges.T)]
    )
    return steps[_REPLAYED.names()][np.flatnonzero((edges >= 0).all(axis=1))]


def _find_nearest_begins(
    at_ns: npt.NDArray[np.int64], rank: RankWindows, window: ReplayWindow
) -> npt.NDArray[np.int64]:
    """Return the operations that begin the windows of a rank nearest to moments, -1 outside the graph."""
    starts_ns = rank.windows["start_ns"].to_numpy()
    middles_ns = starts_ns[:-1] + np.diff(starts_ns) // 2
    nearest_ns = starts_ns[np.searchsorted(middles_ns, at_ns.ravel())]
    op = find_first_operations(window.operations, rank.rank_id, nearest_ns)
    return np.where(window.graph.positions(op) >= 0, op, -1).reshape(at_ns.shape)


def make_replay_window(
    evidence: Evidence, ranks: Sequence[RankWindows], partners: pl.DataFrame, begin_ns: int, until_ns: int
) -> ReplayWindow:
    """Return the work that ranks issued in an interval of the host, ready to be simulated together.

    `partners` (`PARTNERS`) are the collectives between them.
    """
    waits = evidence.waits
    entered_ns = [waits.calls.start_ns[rank.operations["call"].to_numpy()] for rank in ranks]
    until_ns = _find_partners_issued(ranks, entered_ns, partners, begin_ns, until_ns)
    own = _select_issued(ranks, entered_ns, begin_ns, until_ns)
    drained = [evidence.drained[rank.rank_id] for rank in ranks]
    segments, causes = _pieces_between(evidence, _issuing(own, drained, waits), begin_ns, until_ns)
    given_back = _releasing(evidence, np.asarray(segments.call))
    return ReplayWindow(
        graph=build_graph(own, waits, segments, given_back, partners, as_integers(evidence.names_of_calls)),
        waits=waits,
        segments=segments,
        causes=causes,
        operations=own.hstack([evidence.causes.name_causes(own["op"].to_numpy()).alias("cause")]),
        call_name=evidence.names_of_calls,
        call_role=evidence.calls["role"],
        releasing=given_back,
    )


def _find_partners_issued(
    ranks: Sequence[RankWindows],
    entered_ns: Sequence[Times],
    partners: pl.DataFrame,
    begin_ns: int,
    until_ns: int,
) -> int:
    """Return when the last participant of collectives that begin in an interval is issued, or its end.

    Without it a collective would last as long as in the capture, with its wait for that participant. The
    interval at most doubles. `entered_ns` are the starts of the calls that issue the operations of each rank.
    """
    op, collective = partners["op"].to_numpy(), partners["collective"].to_numpy()
    of_ranks = [rank.operations["op"].to_numpy() for rank in ranks]
    held = [
        own[_is_between(at_ns, begin_ns, until_ns)] for own, at_ns in zip(of_ranks, entered_ns, strict=True)
    ]
    begun = np.unique(collective[are_among(op, np.concatenate(held))])
    wanted = op[are_among(collective, begun)]
    last_ns = until_ns
    for own, at_ns in zip(of_ranks, entered_ns, strict=True):
        last_ns = max(last_ns, int(at_ns[are_among(own, wanted)].max(initial=until_ns)))
    return min(last_ns, until_ns + (until_ns - begin_ns))


def _select_issued(
    ranks: Sequence[RankWindows], entered_ns: Sequence[Times], begin_ns: int, until_ns: int
) -> pl.DataFrame:
    """Return the operations of ranks (`CLASSIFIED`) issued in an interval, or before it and started later.

    The latter are why the host is ahead of the device. A change that makes them faster makes it less so.
    """
    found = []
    for rank, own_ns in zip(ranks, entered_ns, strict=True):
        is_pending = (own_ns < begin_ns) & (own_ns > BEFORE_ALL)
        is_pending &= rank.operations["start_ns"].to_numpy() >= begin_ns
        found.append(rank.operations[np.flatnonzero(is_pending | _is_between(own_ns, begin_ns, until_ns))])
    own = pl.concat(found)
    return own[np.lexsort((own["op"].to_numpy(), own["start_ns"].to_numpy()))]


def _is_between(at_ns: Times, begin_ns: int, until_ns: int) -> Flags:
    """Return whether moments lie in an interval, both ends included."""
    return (at_ns >= begin_ns) & (at_ns <= until_ns)


def find_first_operations(operations: pl.DataFrame, rank_id: int, at_ns: Times) -> Rows:
    """Return the first compute operation of a rank from each moment on; -1 if none follows."""
    is_own = operations["rank_id"].to_numpy() == rank_id
    own = np.flatnonzero(is_own & is_compute(as_integers(operations["class"])))
    place = np.searchsorted(operations["start_ns"].to_numpy()[own], at_ns)
    return np.append(operations["op"].to_numpy()[own].astype(np.int64), -1)[place]


def find_step_operations(
    windows: pl.DataFrame, rank: RankWindows, operations: pl.DataFrame
) -> npt.NDArray[np.int64]:
    """Return the first compute of windows of a rank and of the next ones: int64[windows, 2], -1 without.

    Between these, the replay measures a step. It then contains the host's work before the first compute of
    the next step instead of its own, which matters only if the next step is not typical. Steps before such a
    one that differ much by this are left out (-1), unless no other is left.
    """
    bounds_ns = np.column_stack([windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy()])
    found = find_first_operations(operations, rank.rank_id, bounds_ns.ravel()).reshape(-1, 2)
    row_of = Places(operations["op"].to_numpy())
    begins_ns = np.append(operations["start_ns"].to_numpy(), 0)[row_of.of(found.ravel())].reshape(-1, 2)
    length_ns = bounds_ns[:, 1] - bounds_ns[:, 0]
    is_alike = np.abs(begins_ns[:, 1] - begins_ns[:, 0] - length_ns) <= REPLAYED_LENGTH_SHARE * length_ns
    step, typical = windows["step"].to_numpy(), rank.typical["step"].to_numpy()
    is_typical = np.isin(step, typical)
    is_alike |= np.isin(step + 1, typical)
    is_whole = (found >= 0).all(axis=1)
    is_left_out = ~is_alike if (is_alike & is_typical & is_whole).any() else ~is_whole
    found[is_left_out] = -1
    return found


def _releasing(evidence: Evidence, call: Rows) -> dict[int, Tail]:
    """Return calls among some that wait for an idle device to free memory, and the last work before each."""
    waits, names = evidence.waits, evidence.names_of_calls
    releases = [bool(re.search(_RELEASES, name)) for name in as_texts(names).to_list()]
    made = call[call >= 0]
    is_one = np.array(releases, np.bool_)[names.to_physical().to_numpy()[made]]
    calls = np.unique(made[is_one])
    process, group = np.unique(
        evidence.activity.process.to_numpy()[waits.calls.thread[calls]], return_inverse=True
    )
    tails = waits.order.tails(
        list(map(waits.order.process, process.tolist())), group, waits.calls.start_ns[calls]
    )
    return {one: tails.of(row) for row, one in enumerate(calls.tolist())}


def _issuing(
    operations: pl.DataFrame, drained: Sequence[QueueDrains], waits: Dependencies
) -> list[tuple[QueueDrains, list[int]]]:
    """Return the threads that issue operations, each with the first rank that it issues to.

    With them are those that hold locks for which they wait.
    """
    taken: set[int] = set()
    found = []
    rank_id, thread = operations["rank_id"].to_numpy(), waits.calls.thread[operations["call"].to_numpy()]
    issuing = set(np.unique(thread).tolist())
    for own in drained:
        times = np.bincount(thread[rank_id == own.rank_id] + 1)[1:]
        threads = set(np.flatnonzero(times).tolist())
        threads = threads.union(_with_holders(threads, waits) - issuing) - taken
        taken |= threads
        found.append((own, sorted(threads)))
    return found


def _with_holders(threads: set[int], waits: Dependencies) -> set[int]:
    """Return some threads and those in whose calls they wait for locks, one after the other."""
    thread = waits.calls.thread
    asked = np.flatnonzero(waits.outside.let_go >= 0)
    pairs = set(zip(thread[asked].tolist(), thread[waits.outside.let_go[asked]].tolist(), strict=True))
    found = set(threads)
    while more := {holder for waiter, holder in pairs if waiter in found} - found:
        found |= more
    return found


def _pieces_between(
    evidence: Evidence, threads_of: Sequence[tuple[QueueDrains, list[int]]], begin_ns: int, until_ns: int
) -> tuple[ThreadSegments, pl.Series]:
    """Return the activities of threads in an interval, and the cause of each segment, as an enumeration."""
    roles = evidence.calls["role"].to_physical().to_numpy()
    of_ranks = [_of_rank(evidence, roles, own, begin_ns, until_ns) for own in threads_of]
    names = sorted({name for of_rank in of_ranks for name in of_rank.names})
    number = {name: place for place, name in enumerate(names)}
    codes = [np.array([number[name] for name in one.names], np.uint32)[one.cause] for one in of_ranks]
    causes = pl.Series("cause", names, pl.Enum(names))[np.concatenate(codes)]
    columns = (np.concatenate([getattr(one, name) for one in of_ranks]) for name in _COLUMNS)
    process = dict(enumerate(evidence.activity.process.to_list()))
    return ThreadSegments(process, *map(as_times, columns)), causes


@dataclass(frozen=True, slots=True)
class _RankPieces:
    """Return segments of the threads of a rank as in `ThreadSegments`; causes are indices in `names`."""

    thread: Rows
    start_ns: Times
    end_ns: Times
    call: Rows
    cause: Rows
    names: list[str]


_COLUMNS = ("thread", "start_ns", "end_ns", "call")


def _of_rank(
    evidence: Evidence,
    roles: Codes,
    threads_of: tuple[QueueDrains, list[int]],
    begin_ns: int,
    until_ns: int,
) -> _RankPieces:
    """Return the segments of a rank's threads; adjacent ones outside calls with one cause are joined.

    `roles` are those of calls, as numbers.
    """
    drained, threads = threads_of
    waits = evidence.waits
    moments = evidence.activity.moments(threads, drained.threads, (begin_ns, until_ns))
    spinning, op = waits.outside.spins
    ended_ns = waits.end_ns[op]
    held = np.flatnonzero(_is_between(ended_ns, begin_ns, until_ns))
    of_spin, ended_ns = waits.calls.thread[spinning[held]], ended_ns[held]
    spun_ns = {one: number_spans(ended_ns[of_spin == one]) for one in threads}
    of_threads = [
        _of_thread(
            waits.activities,
            thread,
            number_spans(np.concatenate((moments[thread], spun_ns[thread]))),
            (begin_ns, until_ns),
        )
        for thread in threads
    ]
    none = (np.empty(0, np.int64),) * len(_COLUMNS[1:])
    start_ns, end_ns, call = map(np.concatenate, zip(none, *of_threads, strict=True))
    thread = np.repeat(np.array(threads, np.int64), [own[0].size for own in of_threads])
    kind = np.where(call < 0, _OUTSIDE, _INSIDE)
    _, cause, texts = assign_host_causes(thread, start_ns, kind, evidence.activity, drained)
    cause, names = _find_segment_causes(cause, texts, roles, call)
    has_spun = [np.isin(own[0], spun_ns[one]) for one, own in zip(threads, of_threads, strict=True)]
    is_first = mark_changes(thread, call, cause) | np.concatenate([np.empty(0, np.bool_), *has_spun])
    first = np.flatnonzero(is_first)
    last = np.append(first[1:], call.size)[: first.size] - 1
    return _RankPieces(thread[first], start_ns[first], end_ns[last], call[first], cause[first], names)


def _find_segment_causes(codes: Rows, texts: list[str], roles: Codes, call: Rows) -> tuple[Rows, list[str]]:
    """Return the cause of each segment, given or else (-1) by the role of its call, as an index in a list."""
    of_role = [_OF_ROLE.get(CallRole(role), _OTHER_CALL) for role in ROLE.categories]
    number, names = number_values([*texts, *of_role])
    cause, unknown = codes.copy(), np.flatnonzero(codes < 0)
    cause[unknown] = len(texts) + roles[call[unknown]].astype(np.int64)
    return number[cause], names


def _of_thread(
    activities: Activities, thread: int, moments: Times, span_ns: tuple[int, int]
) -> tuple[Times, Times, Rows]:
    """Return start, end and call (-1: none) of a thread's segments; time outside is cut at moments."""
    own, (begin_ns, until_ns) = activities.of(thread), span_ns
    starts, ends = activities.start_ns[own], activities.end_ns[own]
    held = slice(
        int(np.searchsorted(ends, begin_ns, side="right")),
        int(np.searchsorted(starts, until_ns, side="right")),
    )
    inside_ns, left_ns = np.maximum(starts[held], begin_ns), ends[held]
    before = Spans(np.concatenate(([begin_ns], left_ns))[:-1], inside_ns)
    is_between = before.end_ns > before.start_ns
    start_ns, end_ns = before.start_ns[is_between], before.end_ns[is_between]
    cuts = moments[np.searchsorted(moments, begin_ns, "right") : np.searchsorted(moments, until_ns, "right")]
    row = np.searchsorted(start_ns, cuts, side="left") - 1  # the one that begins before
    cuts = cuts[(row >= 0) & (cuts < np.append(end_ns, 0)[row])]
    starts_ns = np.concatenate((start_ns, cuts, inside_ns))
    order = np.argsort(starts_ns, kind="stable")  # three that are in order
    outside = np.full(start_ns.size + cuts.size, -1)
    return (
        starts_ns[order],
        np.sort(np.concatenate((end_ns, cuts, left_ns))),
        np.concatenate((outside, activities.call[own][held]))[order],
    )
