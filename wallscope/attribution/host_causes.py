"""Causes of host time: drained queues, data loading, garbage collection, waits of the operating system.

Ranges for loading data, saving checkpoints or collecting garbage come first. Then come waits for a batch, the
drained queue after a blocking call until the next launch, and waits of the operating system. The rest is the
framework. Time in which the profiler blocked the thread is unattributed.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import (
    Codes,
    Flags,
    Rows,
    are_among,
    as_integers,
    encode_member,
    find_places,
    is_within,
    iterate_groups,
    iterate_runs,
    list_numbers,
)
from wallscope.model.cause_catalogue import (
    HOST_CHECKPOINT,
    HOST_DATA_LOADING,
    HOST_EVENT_WAIT,
    HOST_FILE,
    HOST_FRAMEWORK,
    HOST_GARBAGE_COLLECTION,
    HOST_LOCK,
    HOST_NETWORK,
    MEMORY_OFFLOAD,
    UNATTRIBUTED_PROFILER,
)
from wallscope.model.enums import LinkKind
from wallscope.model.rank_summaries import RepeatedUnit
from wallscope.model.schemas import HostKind
from wallscope.records import dataclass
from wallscope.trace.bystander_locks import mark_exclusions
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.forward_backward import is_optimizer_path
from wallscope.trace.intervals import (
    BEFORE_ALL,
    Spans,
    Times,
    covered_ns,
    is_inside,
    number_spans,
    order_spans,
    union,
)
from wallscope.trace.ranges import (
    MOST_WAITING_THREADS_COUNT,
    HostThread,
    find_host_threads,
    find_waiting_range,
)
from wallscope.trace.repeat_unit import find_outermost_units
from wallscope.trace.streams import UNRESOLVED


class QueueDrains:
    """Blocking calls of one rank that waited until the device was idle.

    Args:
        operations: `OPERATIONS` of the rank.
        waits: the dependencies.
        names: name of each call, by number.
    """

    def __init__(self, operations: pl.DataFrame, waits: Dependencies, names: pl.Series) -> None:
        call = operations["call"].to_numpy()
        issuing = list_numbers(call)
        blocking = waits.blocking
        self._waits, self._names = waits, names
        self._known: dict[int, tuple[Rows, Times, Times]] = {}
        self.rank_id = int(operations["rank_id"][0])
        own = np.flatnonzero(np.bincount(waits.calls.thread[issuing]))
        self.threads: list[int] = own.tolist()
        self._blocking = blocking[np.isin(waits.calls.thread[blocking], own)]
        self._draining = self._blocking[self._drains(operations)]
        draining = self._draining[np.argsort(waits.calls.end_ns[self._draining], kind="stable")]
        self._drained = draining, waits.calls.thread[draining], waits.calls.end_ns[draining]
        launching = issuing[~are_among(issuing, blocking)]
        self._launched = waits.calls.thread[launching], waits.calls.start_ns[launching]

    def by_call(self, thread: int, at_ns: Times) -> Rows:
        """Return the call that had drained the device at each moment of a thread, -1 without one.

        Between such a call and the next launch there is no other cause.
        """
        in_order, ends, launches = self._of_thread(thread)
        if in_order.size == 0:
            return np.full(at_ns.size, -1)
        place = np.searchsorted(ends, at_ns, side="right") - 1
        launched = np.searchsorted(launches, at_ns, side="left") - 1
        last_ns = np.where(launched >= 0, np.append(launches, 0)[launched], np.iinfo(np.int64).min)
        return np.where((place >= 0) & (last_ns < ends[place]), in_order[place], -1)

    def _of_thread(self, thread: int) -> tuple[Rows, Times, Times]:
        """Return the draining calls of a thread in order of their ends, the ends, and its launch times."""
        if thread not in self._known:
            (calls, of_call, end_ns), (of_launch, launched_ns) = self._drained, self._launched
            own = of_call == thread
            launches = np.sort(launched_ns[of_launch == thread]) if own.any() else launched_ns[:0]
            self._known[thread] = calls[own], end_ns[own], launches
        return self._known[thread]

    def names(self, calls: Rows) -> list[str]:
        """Return the names of some calls."""
        return self._names[calls].to_list() if calls.size else []

    def draining(self) -> Rows:
        """Return numbers of the blocking calls on the rank's threads that left the device without work."""
        return self._draining

    def blocking(self, name: str) -> list[int]:
        """Return the blocking calls of a name on the rank's threads, including those that drain nothing."""
        names = self.names(self._blocking)
        return [call for call, own in zip(self._blocking.tolist(), names, strict=True) if own == name]

    def _drains(self, operations: pl.DataFrame) -> Flags:
        """Return whether each blocking call's awaited operation ended in it, with no other work.

        Copies may end after the calls that waited for them.
        """
        waits = self._waits
        issued_ns = waits.issued_ns[operations["op"].to_numpy()]
        order = np.argsort(issued_ns, kind="stable")
        busy_until_ns = np.maximum.accumulate(operations["end_ns"].to_numpy()[order])
        row, op = waits.awaited.of_rows(waits.blocked[self._blocking])
        done_ns = np.full(self._blocking.size, BEFORE_ALL)
        np.maximum.at(done_ns, row, np.where(op == UNRESOLVED, BEFORE_ALL, waits.end_ns[op]))
        end_ns = waits.calls.end_ns[self._blocking]
        count = np.searchsorted(issued_ns[order], end_ns, side="left")
        busy_until_ns = np.append(busy_until_ns, 0)[count - 1]
        through_ns = np.maximum(end_ns, self._copied_ns(operations))
        found: Flags = (done_ns > waits.entered_ns[waits.blocked[self._blocking]]) & (count > 0)
        return found & (busy_until_ns <= through_ns)

    def _copied_ns(self, operations: pl.DataFrame) -> Times:
        """Return when the last operation issued by each blocking call ended; before all if there is none."""
        call, end_ns = operations["call"].to_numpy(), operations["end_ns"].to_numpy()
        found_ns = np.full(self._blocking.size, BEFORE_ALL)
        place = find_places(call, self._blocking)
        np.maximum.at(found_ns, place[place >= 0], end_ns[place >= 0])
        return found_ns


_Value = TypeVar("_Value", np.int64, np.bool_)
FRAMEWORK, LOADING = HOST_FRAMEWORK, HOST_DATA_LOADING
COLLECTION, NETWORK = HOST_GARBAGE_COLLECTION, HOST_NETWORK
OFFLOAD = MEMORY_OFFLOAD
PROFILER = UNATTRIBUTED_PROFILER
DRAINED = "host/queue-drained"
_BY_RANGE = (
    (
        LOADING,
        r"(?i)data[ _]?load(er|ing)|data_iterator|batch[_-]generator|(get|next|load|fetch)_batch|DataIter",
    ),
    (
        HOST_CHECKPOINT,  # not of activations, which the backward pass recomputes
        (
            r"(?i)(^|[^a-z])(save|saving|writ(e|ing)|async|upload|finali[sz]e)[ _.:-]*(\w+[ _.:-])?checkpoint"
            r"|checkpoint(ing|s)?[ _.:-]*(sav|writ|upload|finali[sz])|(^|[^a-z])torch\.save([^a-z]|$)"
            r"|(^|[^a-z])save_(model|state|weights|optimizer)"
        ),
    ),
    (NETWORK, r"^MPI_(Send|Recv|Isend|Irecv|Wait|Test|Probe|Barrier|Bcast|I?All|Reduce|Gather|Scatter)"),
    (  # the last two as PyTorch's profiler names them
        COLLECTION,
        r"(?i)garbage[ _-]?collect|\bgc[._ ]?collect|^gc$|^python gc$|^<built-in (function|method) collect\b",
    ),
)
_LOCK, _FILE = HOST_LOCK, HOST_FILE
CAUSES = (*(cause for cause, _ in _BY_RANGE), FRAMEWORK, OFFLOAD, PROFILER, _LOCK, _FILE, HOST_EVENT_WAIT)
"""The cause of time outside calls, except for drained queues."""
_NO_SPANS = Spans(np.empty(0, np.int64), np.empty(0, np.int64))
_ALWAYS = (-(2**62), 2**62)
_CUTTING = (HostKind.LOCK, HostKind.IO, HostKind.GC, HostKind.PROFILER)
"""Waits whose beginnings and ends cut the time of their thread."""
_OUTSIDE_CALLS, _ALLOCATION = map(encode_member, (LinkKind.OUTSIDE_CALLS, LinkKind.ALLOCATION))
_EVENT_LOOP_CALL = r"^(__)?epoll_"
_NETWORK_CALL = r"^(__)?(send|recv|connect|accept)"


@dataclass(frozen=True)
class HostActivity:
    """Activities of threads outside calls, of the whole capture.

    Attributes:
        tree, paths, path_names: `NESTED` with `PATHS` and their names.
        events, event_names: `HOST_EVENTS` and their names.
        calls: `CALLS`.
        process: that of each thread, by number of the thread.
        away: when offloaded bytes of each rank were only on the host, by id of the rank.
        loading: when threads of each rank waited for a batch, by id of the rank and number of the thread.
        updating: the same for their work on offloaded bytes before these go back.
        bystander_holds: when threads depended on one without CUDA calls that held a lock, by thread.
    """

    tree: pl.DataFrame
    paths: pl.DataFrame
    path_names: pl.DataFrame
    events: pl.DataFrame
    event_names: pl.DataFrame
    calls: pl.DataFrame
    process: pl.Series
    away: Mapping[int, Spans]
    loading: Mapping[int, Mapping[int, Spans]]
    updating: Mapping[int, Mapping[int, Spans]]
    bystander_holds: Mapping[int, Spans]

    @cached_property
    def holders(self) -> Mapping[int, HostThread]:
        """The threads with ranges, by number."""
        return find_host_threads(self.tree, self.calls, self.tree["parent"].to_numpy())

    @cached_property
    def causes_of_ranges(self) -> Rows:
        """The cause of each range or of an enclosing one, by number, as an index in `CAUSES`, else -1.

        The last is for -1.
        """
        of_name = np.full(len(self.path_names), -1)
        for cause, (_, pattern) in reversed([*enumerate(_BY_RANGE)]):
            of_name[self.path_names["text"].str.contains(pattern).to_numpy()] = cause
        of_path = of_name[self.paths["name"].to_numpy()].tolist()
        for path, parent in enumerate(self.paths["parent"].to_list()):
            of_path[path] = of_path[parent] if of_path[path] < 0 <= parent else of_path[path]
        return self._by_range(np.array([*of_path, -1], np.int64))

    @cached_property
    def is_optimizer(self) -> Flags:
        """Whether each range belongs to the optimizer, by number; the last is for -1."""
        return self._by_range(np.append(is_optimizer_path(self.paths, self.path_names), np.False_))

    @cached_property
    def outermost_units(self) -> Mapping[RepeatedUnit, tuple[Codes, Rows]]:
        """The range of the repeated unit around each range, -1 without one, and those that are one."""
        return {
            unit: (outer, np.flatnonzero(outer == np.arange(outer.size)))
            for unit, outer in find_outermost_units(self.tree).items()
        }

    def others(self, thread: int) -> list[HostThread]:
        """The other threads of its process with ranges; none if there are too many."""
        of_process = self._holders_of.get(self._processes[thread], ())
        if len(of_process) > MOST_WAITING_THREADS_COUNT + 1:
            return []
        return [self.holders[other] for other in of_process if other != thread]

    @cached_property
    def _processes(self) -> list[int]:
        """The process of each thread, by number."""
        return self.process.to_list()

    @cached_property
    def _holders_of(self) -> Mapping[int, list[int]]:
        """The threads with ranges, by process."""
        found: dict[int, list[int]] = {}
        for thread in self.holders:
            found.setdefault(self._processes[thread], []).append(thread)
        return found

    def open_range(self, thread: int, at_ns: Times) -> Rows:
        """Return the innermost range at moments of a thread, else that of its waiter; -1 without one."""
        held = self.holders.get(thread)
        found = np.full(at_ns.size, -1) if held is None else held.open_range(at_ns)
        alone = np.flatnonzero(found < 0)
        if alone.size:
            found[alone] = find_waiting_range(self.others(thread), at_ns[alone])
        return found

    def moments(
        self, threads: list[int], issuing: list[int], between_ns: tuple[int, int] = _ALWAYS
    ) -> dict[int, Times]:
        """Return when ranges and waits of each thread begin and end, in order, between two times.

        Ranges with a cause also cut the other threads of their process, which may wait meanwhile. So do the
        locks of launching threads, because a thread is locked only while they are. Outside its own ranges a
        thread works for one that is in no call. Calls of the others cut it there.
        """
        locks = np.concatenate(
            [np.empty(0, np.int64), *(self._rows(other, HostKind.LOCK) for other in issuing)]
        )
        return {thread: self._moments_of(thread, locks, between_ns) for thread in threads}

    def spans_of(self, thread: int, kind: HostKind) -> Spans:
        """Return when a thread was in waits of a kind."""
        spans = self._spans(self._rows(thread, kind))
        return union(spans, self._held_by_bystander(thread)) if kind is HostKind.LOCK else spans

    def _held_by_bystander(self, thread: int) -> Spans:
        return self.bystander_holds.get(thread, _NO_SPANS)

    def spans_of_exclusion(self, thread: int) -> Spans:
        """Return when a thread waited for a lock that another one held."""
        rows = self._rows(thread, HostKind.LOCK)
        return union(self._spans(rows[self._is_exclusion[rows]]), self._held_by_bystander(thread))

    def count_lock_waits(self, drained: QueueDrains, at_ns: Times) -> Rows:
        """Return how many of a rank's launching threads wait for a lock at each moment."""
        if drained.rank_id not in self._locks:
            spans = [self.spans_of(thread, HostKind.LOCK) for thread in drained.threads]
            start_ns, end_ns = (
                np.sort(np.concatenate([getattr(one, side) for one in spans]))
                for side in ("start_ns", "end_ns")
            )
            self._locks[drained.rank_id] = start_ns, end_ns
        begun, ended = (np.searchsorted(side, at_ns, side="right") for side in self._locks[drained.rank_id])
        return begun - ended

    @cached_property
    def _locks(self) -> dict[int, tuple[Times, Times]]:
        """Return when waits for locks begin and end on the launching threads of each rank, in order."""
        return {}

    def in_io(self, thread: int) -> tuple[Spans, Spans, Spans]:
        """Return when a thread waited for files, for the network, and for events of any kind."""
        rows = self._rows(thread, HostKind.IO)
        name = self.events["name"].to_numpy()[rows]
        is_network, is_loop = self._is_network[name], self._is_event_loop[name]
        return (
            self._spans(rows[~is_network & ~is_loop]),
            self._spans(rows[is_network]),
            self._spans(rows[is_loop]),
        )

    @cached_property
    def _is_network(self) -> Flags:
        """Return whether each name of an event is a network call."""
        return self.event_names["text"].str.contains(_NETWORK_CALL).to_numpy()

    @cached_property
    def _is_exclusion(self) -> Flags:
        """Return whether each event is a wait for a lock that another thread holds."""
        return mark_exclusions(self.events, self.event_names)

    @cached_property
    def _is_event_loop(self) -> Flags:
        """Return whether each name of an event is a wait for events."""
        return self.event_names["text"].str.contains(_EVENT_LOOP_CALL).to_numpy()

    def _spans(self, rows: Rows) -> Spans:
        start_ns, end_ns = (self.events[side].to_numpy()[rows] for side in ("start_ns", "end_ns"))
        return union(order_spans(start_ns, end_ns))

    def _rows(self, thread: int, *kinds: HostKind) -> Rows:
        """Return the events of some kinds on a thread."""
        events = (self._events_of.get((thread, kind)) for kind in kinds)
        return np.concatenate([np.empty(0, np.int64), *(rows for rows in events if rows is not None)])

    @cached_property
    def _events_of(self) -> Mapping[tuple[int, HostKind], Rows]:
        """The rows of the events of each thread and kind."""
        kinds = list(HostKind)
        thread, kind = self.events["thread"].to_numpy().astype(np.int64), as_integers(self.events["kind"])
        groups = iterate_groups(thread * len(kinds) + kind)
        return {(number // len(kinds), kinds[number % len(kinds)]): rows for number, rows in groups}

    @cached_property
    def _ranges_of(self) -> Mapping[int, slice]:
        """The ranges of each thread, also those that end on another one."""
        return dict(iterate_runs(as_integers(self.tree["thread"])))

    @cached_property
    def _telling(self) -> Mapping[int, Rows]:
        """The ranges with a cause, by process."""
        thread = as_integers(self.tree["thread"])
        telling = np.flatnonzero((self.causes_of_ranges[self.tree["range"].to_numpy()] >= 0) & (thread >= 0))
        return {
            process: telling[own] for process, own in iterate_groups(self.process.to_numpy()[thread[telling]])
        }

    def _moments_of(self, thread: int, locks: Rows, between_ns: tuple[int, int]) -> Times:
        def held_there(moments: Times) -> Times:
            return moments[(moments > between_ns[0]) & (moments <= between_ns[1])]

        own = self._ranges_of.get(thread, slice(0))
        telling = self._telling.get(self._processes[thread], np.empty(0, np.int64))
        events = [locks, self._rows(thread, *_CUTTING)]
        cutting = ((self.tree, own), (self.tree, telling), (self.events, np.concatenate(events)))
        sides = [
            held_there(frame[side].to_numpy()[rows])
            for frame, rows in cutting
            for side in ("start_ns", "end_ns")
        ]
        by_bystander = self._held_by_bystander(thread)
        sides += [held_there(by_bystander.start_ns), held_there(by_bystander.end_ns)]
        for of_rank in (*self.loading.values(), *self.updating.values()):
            if thread in of_rank:
                sides += [held_there(of_rank[thread].start_ns), held_there(of_rank[thread].end_ns)]
        held = self.holders.get(thread)
        in_ranges = None if held is None else union(order_spans(held.start_ns, held.end_ns))
        for other in self.others(thread):
            for in_order in other.call_sides():
                first, behind = np.searchsorted(in_order, between_ns, side="right")
                at_ns = in_order[first:behind]
                if in_ranges is not None:
                    at_ns = at_ns[~is_within(at_ns, in_ranges.start_ns, in_ranges.end_ns)]
                sides.append(at_ns)
        return number_spans(np.concatenate(sides))

    def _by_range(self, of_path: npt.NDArray[_Value]) -> npt.NDArray[_Value]:
        """Convert values of paths to values of ranges; the last of either is for none."""
        rows = self.tree["range"].to_numpy()
        of_range = np.full(int(rows.max(initial=0)) + 2, of_path[-1], of_path.dtype)
        of_range[rows] = of_path[self.tree["path"].to_numpy()]
        return of_range


def assign_host_causes(
    of_thread: Codes, start_ns: Times, kind: Codes, activity: HostActivity, drained: QueueDrains
) -> tuple[Rows, Rows, list[str]]:
    """Return the innermost range of each slice on a thread (-1: none), and the cause of those outside calls.

    Causes are indices in the texts; -1 if the kind of the link, an index in `LinkKind`, determines the cause.
    Slices do not extend over moments at which ranges or waits of their thread begin or end.
    """
    found, cause = np.full(of_thread.size, -1, np.int64), np.full(of_thread.size, -1, np.int64)
    texts = [*CAUSES]
    on_thread = np.flatnonzero(of_thread >= 0)
    for thread, own in iterate_groups(of_thread[on_thread]):
        rows = on_thread[own]
        at_ns = start_ns[rows]
        open_range = activity.open_range(thread, at_ns)
        found[rows] = open_range
        outside = np.flatnonzero(kind[rows] == _OUTSIDE_CALLS)
        code = _outside_calls(thread, at_ns[outside], open_range[outside], activity, drained)
        queue, names = _find_drain_causes(drained, thread, at_ns[outside])
        is_queue = (queue >= 0) & are_among(code, _BEHIND_A_DRAIN)
        is_queue &= activity.causes_of_ranges[open_range[outside]] < 0
        is_queue &= (code != CAUSES.index(_LOCK)) | ~is_inside(
            activity.spans_of_exclusion(thread), at_ns[outside]
        )
        code[is_queue] = queue[is_queue] + len(texts)
        texts += names
        cause[rows[outside]] = code
        is_profiled = is_inside(activity.spans_of(thread, HostKind.PROFILER), at_ns)
        is_profiled &= kind[rows] != _ALLOCATION
        cause[rows[is_profiled]] = CAUSES.index(PROFILER)
    return found, cause, texts


_OFFLOADED, _LOADED = CAUSES.index(OFFLOAD), CAUSES.index(LOADING)
_COLLECTED = CAUSES.index(COLLECTION)
_FRAMEWORK = CAUSES.index(FRAMEWORK)
_BEHIND_A_DRAIN = np.array([_FRAMEWORK, CAUSES.index(_LOCK)])
"""Causes that a drained queue replaces, but for locks that another thread holds; files and network stay."""


def _find_drain_causes(drained: QueueDrains, thread: int, at_ns: Times) -> tuple[Rows, list[str]]:
    """Return the cause at each moment with a drained queue, as an index in the list, else -1."""
    by_call = drained.by_call(thread, at_ns)
    calls, place_of_call = np.unique(by_call[by_call >= 0], return_inverse=True)
    found = np.full(at_ns.size, -1)
    found[by_call >= 0] = place_of_call
    return found, [f"{DRAINED}/{name}" for name in drained.names(calls)]


def _outside_calls(
    thread: int, at_ns: Times, open_range: Rows, activity: HostActivity, drained: QueueDrains
) -> Rows:
    """Return the cause at each moment of a thread outside calls, as an index in `CAUSES`."""
    code = np.full(at_ns.size, _FRAMEWORK)
    *io, events = activity.in_io(thread)
    for cause, waited in zip((_FILE, NETWORK), io, strict=True):
        code[is_inside(waited, at_ns)] = CAUSES.index(cause)
    locked = is_inside(activity.spans_of(thread, HostKind.LOCK), at_ns)
    others_count = len(drained.threads) - (thread in drained.threads)
    if others_count and locked.any():  # while another one works, that work is the cause
        locked &= activity.count_lock_waits(drained, at_ns) - (thread in drained.threads) == others_count
    code[locked] = CAUSES.index(_LOCK)
    spans = activity.loading[drained.rank_id].get(thread)
    if spans is not None:
        is_idle = 2 * covered_ns(events, spans) >= spans.end_ns - spans.start_ns  # without requests
        code[is_inside(Spans(spans.start_ns[~is_idle], spans.end_ns[~is_idle]), at_ns)] = _LOADED
    code[is_inside(events, at_ns)] = CAUSES.index(HOST_EVENT_WAIT)
    code[is_inside(activity.spans_of(thread, HostKind.GC), at_ns)] = _COLLECTED
    by_range = activity.causes_of_ranges[open_range]
    code = np.where(by_range >= 0, by_range, code)
    updates = is_inside(activity.away[drained.rank_id], at_ns)
    if updates.any():
        code[updates & activity.is_optimizer[open_range]] = _OFFLOADED
    own = activity.updating[drained.rank_id].get(thread)
    if own is not None:
        code[is_inside(own, at_ns) & (code == _FRAMEWORK)] = _OFFLOADED
    return code
