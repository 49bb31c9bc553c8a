"""What a thread waited for outside of calls, which no row names: a lock, the device, or another thread.

A thread that waits goes on when something ends, again and again, however long that took. One that works by
itself goes on at any time. So a kind of wait is inferred from all long pauses of a thread in which such an
end occurs: enough of them must end right behind it. Where the thread first does some work of its own, the
length of the pauses must vary with what ended, and not with that work. The same holds of kernels: work of the
host takes as long as a kernel in each step by chance.

- Locks: another thread returned from a long call, in which it may have held a lock.
- Spinning: a kernel of the thread ended, which writes what the thread reads from host memory.
- Another thread of the process issues to the device meanwhile. PyTorch's main thread waits so for the
  backward pass. A thread that issues more, and seldom goes on behind such calls, works by itself.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property

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
    iterate_groups,
    list_numbers,
    mark_numbers,
    number_groups,
)
from wallscope.model.capture import Capture
from wallscope.model.enums import CallRole
from wallscope.model.schemas import HostKind
from wallscope.records import dataclass
from wallscope.thresholds.steps import (
    FEWEST_LOCKS_COUNT,
    FEWEST_SPINS_COUNT,
    FOLLOWED_BY_RATIO,
    INFERRED_CLOSE_NS,
    LOCK_RETURN_NS,
    LOCKS_SHARE,
    LONGEST_UNEXPLAINED_LATENCY_NS,
    PARKED_PARTS_COUNT,
    SHORTEST_HELD_CALL_NS,
    SHORTEST_HOLDING_ALLOCATION_NS,
    SPINS_SHARE,
    USUAL_LATENCIES_SHARE,
)
from wallscope.trace.intervals import BEFORE_ALL, Times
from wallscope.trace.streams import Tail
from wallscope.trace.thread_timeline import Activities, CallTimes

_MAY_HOLD = (CallRole.ALLOC, CallRole.COPY, CallRole.LAUNCH, CallRole.GRAPH, CallRole.SYNC)
"""Roles of calls during which a thread may hold a lock of the program."""


@dataclass(frozen=True)
class OutsideWaits:
    """What threads waited for outside of calls right before each call of theirs.

    Attributes:
        let_go: int32[call], the call of another thread that held a lock until then, -1 without one.
        spun: int32[call], the operation that the thread spun for, -1 without one.
        is_alone: bool[call], whether it worked by itself although another thread issued meanwhile.
        holding: int64[row], the long calls during which a thread may hold a lock of the program.
    """

    let_go: npt.NDArray[np.int32]
    spun: npt.NDArray[np.int32]
    is_alone: Flags
    holding: Rows

    @cached_property
    def spins(self) -> tuple[Codes, Codes]:
        """The calls before which a thread spun, and the operation that it spun for."""
        calls = np.flatnonzero(self.spun >= 0)
        return calls, self.spun[calls]


@dataclass(frozen=True, slots=True)
class _Pauses:
    """Long times of threads outside of calls, each before a call; int64[pause], by thread, then by time.

    `ready_ns` is when a thread could go on: the end of its last long wait for a lock that the system records,
    else of the pause. `is_locked` marks the former.
    """

    thread: Rows
    left_ns: Times
    begun_ns: Times
    call: Codes
    ready_ns: Times
    is_locked: Flags


def find_waits_outside_calls(
    capture: Capture, end_ns: Times, calls: CallTimes, segments: Activities, blocking: Mapping[int, Tail]
) -> OutsideWaits:
    """Return what threads waited for outside of calls.

    Args:
        capture: the capture.
        end_ns: int64[op], ns.
        calls: times and threads of all calls.
        segments: what each thread was in at every moment.
        blocking: what calls waited for that block by themselves, or were held by a full queue.
    """
    pauses = _list_pauses(segments, capture.host_events)
    count = calls.start_ns.of_call.size
    let_go, spun = (np.full(count, -1, np.int32) for _ in range(2))
    is_alone = np.zeros(count, np.bool_)
    process_of_thread = capture.threads["process"].to_numpy().astype(np.int64)
    holding = _find_holding_calls(calls, capture.calls["role"])
    blocked = np.fromiter(blocking, np.int64, len(blocking))
    blocked = blocked[calls.end_ns[blocked] - calls.start_ns[blocked] >= SHORTEST_HELD_CALL_NS]
    held = list_numbers(np.concatenate((holding, blocked)))
    returned = _list_returned(calls, capture.calls["role"], process_of_thread, pauses, held)
    rows = _find_recurring(pauses, returned, LOCK_RETURN_NS, FEWEST_LOCKS_COUNT, LOCKS_SHARE)
    let_go[pauses.call[returned.pause[rows]]] = returned.what[rows]
    done = _list_done(capture.operations, end_ns, calls, pauses)
    rows = _find_recurring(pauses, done, INFERRED_CLOSE_NS, FEWEST_SPINS_COUNT, SPINS_SHARE)
    spun[pauses.call[done.pause[rows]]] = done.what[rows]
    alone = _find_alone(capture.operations, calls, process_of_thread, segments, pauses)
    is_alone[pauses.call[alone]] = True
    is_alone[_find_usual(capture, calls, process_of_thread, segments)] = True
    return OutsideWaits(let_go, spun, is_alone, holding)


def _list_pauses(segments: Activities, events: pl.DataFrame) -> _Pauses:
    """Return the long times outside of calls; `events` are `HOST_EVENTS`."""
    is_pause = np.append(False, segments.start_ns[1:] - segments.end_ns[:-1] >= SHORTEST_HELD_CALL_NS)
    is_pause[segments.ptr[(segments.ptr > 0) & (segments.ptr < is_pause.size)]] = False  # another thread's
    behind = np.flatnonzero(is_pause[: segments.end_ns.size])
    thread = np.searchsorted(segments.ptr, behind, side="right") - 1
    left_ns, begun_ns = segments.end_ns[behind - 1], segments.start_ns[behind]
    ready_ns, is_locked = begun_ns.copy(), np.zeros(behind.size, np.bool_)
    waits_of = _list_lock_waits(events)
    for one, rows in iterate_groups(thread):
        ends_ns = waits_of.get(one)
        if ends_ns is not None:
            last_ns = np.append(BEFORE_ALL, ends_ns)[np.searchsorted(ends_ns, begun_ns[rows], side="right")]
            is_locked[rows] = last_ns > left_ns[rows]
            ready_ns[rows] = np.where(is_locked[rows], last_ns, begun_ns[rows])
    return _Pauses(thread, left_ns, begun_ns, segments.call[behind], ready_ns, is_locked)


def _list_lock_waits(events: pl.DataFrame) -> Mapping[int, Times]:
    """Return when the long waits of each thread for locks ended that the system records, in order, in ns."""
    start_ns, end_ns = events["start_ns"].to_numpy(), events["end_ns"].to_numpy()
    is_long = end_ns - start_ns >= SHORTEST_HELD_CALL_NS
    rows = np.flatnonzero(is_long & (as_integers(events["kind"]) == encode_member(HostKind.LOCK)))
    thread = events["thread"].to_numpy()[rows].astype(np.int64)
    return {one: np.sort(end_ns[rows[own]]) for one, own in iterate_groups(thread)}


@dataclass(frozen=True, slots=True)
class _Ends:
    """What ended last in some pauses; arrays int64.

    Attributes:
        pause: the row of each of those pauses.
        what: the call or operation that ended in it.
        late_ns: from that end to when the thread could go on.
        kind: what pauses with like ends share, as a number from 0 on.
        times: of each kind, how often a pause could have waited for it.
        may_coincide: whether pauses of a constant length may end right behind it by chance, again and again.
    """

    pause: Rows
    what: Codes
    late_ns: Times
    kind: Rows
    times: Rows
    may_coincide: bool


def _find_recurring(pauses: _Pauses, ends: _Ends, prompt_ns: int, fewest: int, share: float) -> Rows:
    """Return which ends a pause waited for: most pauses of their kind end right behind them.

    Args:
        pauses: the pauses.
        ends: what ended in them.
        prompt_ns: how late a pause ends that ends right behind.
        fewest: the smallest number of pauses of a kind that must end so.
        share: the smallest share of all times of that kind.
    """
    length_ns = pauses.begun_ns[ends.pause] - pauses.left_ns[ends.pause]
    found = np.zeros(ends.pause.size, np.bool_)
    for limit_ns in (prompt_ns, LONGEST_UNEXPLAINED_LATENCY_NS):
        is_close = ends.late_ns <= limit_ns
        kind = ends.kind[is_close]
        count = np.bincount(kind, minlength=ends.times.size)
        recurs = (count >= fewest) & (count >= share * ends.times)
        if limit_ns > prompt_ns or ends.may_coincide:  # do the pauses follow what ended?
            length, late = (_spread(kind, one[is_close], count.size) for one in (length_ns, ends.late_ns))
            recurs &= (length >= FOLLOWED_BY_RATIO * late) & (length > 0)
        found |= is_close & recurs[ends.kind]
    return np.flatnonzero(found)


def _spread(kind: Rows, values: Times, kinds: int) -> Times:
    """Return the largest difference of the values of each kind, 0 without any."""
    least, most = np.full(kinds, np.iinfo(np.int64).max), np.full(kinds, np.iinfo(np.int64).min)
    np.minimum.at(least, kind, values)
    np.maximum.at(most, kind, values)
    found: Times = np.where(most >= least, most - np.minimum(least, most), 0)
    return found


def _list_returned(
    calls: CallTimes,
    roles: pl.Series,
    process_of_thread: Rows,
    pauses: _Pauses,
    holding: Rows,
) -> _Ends:
    """Return the call of another thread, among some (`holding`), that returned last in each pause.

    The kind is the pair of threads and the role of the call.
    """
    end_ns, thread, role = calls.end_ns.of_call, calls.thread.of_call, as_integers(roles)
    process = process_of_thread[pauses.thread]
    parts = [(np.empty(0, np.int64),) * 2]
    for one, own in iterate_groups(process_of_thread[thread[holding]]):
        by_end = holding[own][np.argsort(end_ns[holding[own]], kind="stable")]
        rows = np.flatnonzero(process == one)
        place = np.searchsorted(end_ns[by_end], pauses.ready_ns[rows], side="right") - 1
        holder = by_end[np.maximum(place, 0)]
        meets = (place >= 0) & (end_ns[holder] > pauses.left_ns[rows])
        meets &= thread[holder] != pauses.thread[rows]
        parts.append((rows[meets], holder[meets]))
    rows, holder = map(np.concatenate, zip(*parts, strict=True))
    kind = number_groups(pauses.thread[rows], thread[holder], role[holder].astype(np.int64))
    return _Ends(
        rows, holder, pauses.ready_ns[rows] - end_ns[holder], kind, np.bincount(kind), may_coincide=False
    )


def _find_holding_calls(calls: CallTimes, roles: pl.Series) -> Rows:
    """Return the long calls whose roles (`roles`) let a thread hold a lock of the program."""
    length_ns, role = calls.end_ns.of_call - calls.start_ns.of_call, as_integers(roles)
    lasting = np.flatnonzero(length_ns >= min(SHORTEST_HOLDING_ALLOCATION_NS, SHORTEST_HELD_CALL_NS))
    holds = np.isin(role[lasting], [encode_member(one) for one in _MAY_HOLD])
    is_allocation = role[lasting] == encode_member(CallRole.ALLOC)
    least_ns = np.where(is_allocation, SHORTEST_HOLDING_ALLOCATION_NS, SHORTEST_HELD_CALL_NS)
    return lasting[holds & (length_ns[lasting] >= least_ns)]


def _list_done(operations: pl.DataFrame, end_ns: Times, calls: CallTimes, pauses: _Pauses) -> _Ends:
    """Return the kernel of its own thread that ended last in each pause, launched before it.

    The kind is the thread and the name of the kernel.
    """
    call, name = operations["call"].to_numpy(), as_integers(operations["name"]).astype(np.int64)
    kernels = np.flatnonzero((call >= 0) & operations["name"].is_not_null().to_numpy())
    of_kernel: Rows = calls.thread[call[kernels]]
    parts = [(np.empty(0, np.int64),) * 2]
    pauses_of = dict(iterate_groups(pauses.thread))
    for one, own in iterate_groups(of_kernel):
        rows = pauses_of.get(one, np.empty(0, np.int64))
        ops = kernels[own]
        ops = ops[np.argsort(end_ns[ops], kind="stable")]
        place = np.searchsorted(end_ns[ops], pauses.begun_ns[rows], side="right") - 1
        op = ops[np.maximum(place, 0)]
        meets = (place >= 0) & (end_ns[op] > pauses.left_ns[rows])
        meets &= calls.end_ns[call[op]] <= pauses.left_ns[rows]
        parts.append((rows[meets], op[meets]))
    rows, op = map(np.concatenate, zip(*parts, strict=True))
    kind_of = of_kernel * (int(name.max(initial=0)) + 1) + name[kernels]
    kinds, kind = np.unique(kind_of[np.searchsorted(kernels, op)], return_inverse=True)
    place = find_places(kind_of[are_among(name[kernels], name[op])], kinds)
    times: Rows = np.bincount(place[place >= 0], minlength=kinds.size)
    return _Ends(rows, op, pauses.begun_ns[rows] - end_ns[op], kind, times, may_coincide=True)


def _find_usual(capture: Capture, calls: CallTimes, process_of_thread: Rows, segments: Activities) -> Codes:
    """Return calls after pauses in which others issued, but that are no longer than others of their kind.

    A kind are the pauses of a thread between calls of the same names. In most pauses of such a kind no other
    thread issued, and the thread went on by itself.
    """
    issuing = list_numbers(capture.operations["call"].to_numpy())
    issuer, left_ns = calls.thread[issuing], calls.end_ns[issuing]
    name, count = as_integers(capture.calls["name"]), len(capture.call_names)
    found = [np.empty(0, np.int64)]
    for one, others in _list_others(issuer, process_of_thread):
        own = segments.of(one)
        own_call, start_ns, end_ns = segments.call[own], segments.start_ns[own], segments.end_ns[own]
        ends_ns = np.sort(left_ns[others], kind="stable")  # most are in order
        behind = list_numbers(np.searchsorted(start_ns, ends_ns, side="left"))
        behind = behind[(behind > 0) & (behind < start_ns.size)]
        last = np.searchsorted(ends_ns, start_ns[behind], side="right") - 1
        behind = behind[ends_ns[last] > end_ns[behind - 1]]
        if not behind.size:
            continue
        names = name[own_call]
        is_left, is_begun = mark_numbers(names[behind - 1], count), mark_numbers(names[behind], count)
        rows = np.flatnonzero(is_left[names[:-1]] & is_begun[names[1:]])
        kind, is_met = names[rows].astype(np.int64) * count + names[rows + 1], are_among(rows + 1, behind)
        is_asked = are_among(kind, kind[is_met])
        kind, rows, is_met = kind[is_asked], rows[is_asked], is_met[is_asked]
        pause_ns = start_ns[rows + 1] - end_ns[rows]
        usual = np.concatenate([found[0], *_list_usual(kind, pause_ns, is_met)])
        found.append(own_call[rows[usual] + 1].astype(np.int64))
    return np.concatenate(found)


def _list_others(issuer: Codes, process_of_thread: Rows) -> Iterator[tuple[int, Rows]]:
    """Yield each thread of a process in which several issue, and the rows of the others."""
    for _, rows in iterate_groups(process_of_thread[issuer]):
        threads = list_numbers(issuer[rows]).tolist()
        for one in threads if len(threads) > 1 else ():
            yield one, rows[issuer[rows] != one]


def _list_usual(kind: Rows, pause_ns: Times, is_met: Flags) -> Iterator[Rows]:
    """Yield the pauses of each kind in which others issued, but that are no longer than in most others."""
    for _, rows in iterate_groups(kind):
        met, alone = rows[is_met[rows]], rows[~is_met[rows]]
        if alone.size >= max(met.size, FEWEST_LOCKS_COUNT):
            own_ns = np.quantile(pause_ns[alone], USUAL_LATENCIES_SHARE)
            doubled_ns = min(FOLLOWED_BY_RATIO * own_ns, LONGEST_UNEXPLAINED_LATENCY_NS)
            usual_ns = max(own_ns + LOCK_RETURN_NS, doubled_ns)
            yield met[pause_ns[met] <= usual_ns]


def _find_alone(
    operations: pl.DataFrame,
    calls: CallTimes,
    process_of_thread: Rows,
    segments: Activities,
    pauses: _Pauses,
) -> Rows:
    """Return pauses in which another thread issued, behind whose calls such pauses seldom end.

    The kind is the pair of threads. A thread that issues less than the other one keeps its pace. One whose
    pauses are the longer, the later the other one issues, waits for it.
    """
    call = operations["call"].to_numpy()
    issuing = list_numbers(call)
    thread = calls.thread[issuing]
    parts = [(np.empty(0, np.int64),) * 3]
    process, process_of_call = process_of_thread[pauses.thread], process_of_thread[thread]
    for one, rows in iterate_groups(process):
        own = issuing[process_of_call == one]
        if not own.size:
            continue
        own = own[np.argsort(calls.end_ns[own], kind="stable")]
        place = np.searchsorted(calls.end_ns[own], pauses.begun_ns[rows], side="left") - 1
        issuer = own[np.maximum(place, 0)]
        meets = (place >= 0) & (calls.end_ns[issuer] > pauses.left_ns[rows])
        meets &= calls.thread[issuer] != pauses.thread[rows]
        parts.append((rows[meets], calls.thread[issuer][meets], calls.end_ns[issuer][meets]))
    rows, other, left_ns = map(np.concatenate, zip(*parts, strict=True))
    for one, own in iterate_groups(other):
        place = np.searchsorted(segments.end_ns[segments.of(one)], pauses.begun_ns[rows[own]], "right") - 1
        left_ns[own] = np.maximum(left_ns[own], segments.end_ns[segments.of(one)][np.maximum(place, 0)])
    length_ns = pauses.begun_ns[rows] - pauses.left_ns[rows]
    late_ns = pauses.begun_ns[rows] - left_ns
    is_behind = late_ns <= np.maximum(LONGEST_UNEXPLAINED_LATENCY_NS, length_ns // PARKED_PARTS_COUNT)
    kind = number_groups(pauses.thread[rows], other)
    met, ended = np.bincount(kind), np.bincount(kind[is_behind], minlength=int(kind.max(initial=-1)) + 1)
    is_seldom = (met >= FEWEST_LOCKS_COUNT) & (ended < LOCKS_SHARE * met)
    is_seldom &= _spread(kind, length_ns, met.size) < FOLLOWED_BY_RATIO * _spread(kind, late_ns, met.size)
    issued = np.bincount(calls.thread[call[call >= 0]], minlength=process_of_thread.size)
    is_alone = is_seldom[kind] & (issued[pauses.thread[rows]] > issued[other])
    return np.asarray(rows[is_alone & ~pauses.is_locked[rows]], np.int64)
