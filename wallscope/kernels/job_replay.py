"""Replay the ranks of a job: each works for its own time, and leaves a meeting after the last one came.

Times are int64 ns, -1 is none. Index spaces:

    event    what a rank does, rank after rank, each in the order of its program.
    stay     an operation of a rank in which it meets others, or is alone.
    meeting  the stays that are one operation.
"""

try:
    import cython
except ImportError:  # runs as plain Python without Cython
    from wallscope.kernels import plain as cython

if cython.compiled:
    from cython.cimports.libc.stdint import int64_t as i64
else:
    i64 = cython.longlong

PASS = cython.declare(i64, 0)
"""A moment of the program alone."""
BEGIN = cython.declare(i64, 1)
"""A stay begins."""
AWAIT = cython.declare(i64, 2)
"""The program waits until a stay has ended."""
UNKNOWN_NS = cython.declare(i64, -(1 << 62))
"""When what has not happened yet happens."""


def replay_ranks(
    event_ptr: cython.const[i64][::1],
    kind: cython.const[i64][::1],
    event_stay: cython.const[i64][::1],
    own_ns: cython.const[i64][::1],
    lag_ns: cython.const[i64][::1],
    stay_rank: cython.const[i64][::1],
    stay_before: cython.const[i64][::1],
    gap_ns: cython.const[i64][::1],
    stay_meeting: cython.const[i64][::1],
    exit_ns: cython.const[i64][::1],
    alone_ns: cython.const[i64][::1],
    member_ptr: cython.const[i64][::1],
    member: cython.const[i64][::1],
    transfer_ns: cython.const[i64][::1],
    at_ns: i64[::1],
    came_ns: i64[::1],
    launched_ns: i64[::1],
    end_ns: i64[::1],
    stay_after: i64[::1],
    ready: i64[::1],
    place: i64[::1],
    awaited: i64[::1],
    missing: i64[::1],
    stack: i64[::1],
) -> int:
    """Compute when each event happens and each stay ends.

    A rank goes on after it launched a stay, also where that waits on its stream for the one before.

    Args:
        event_ptr: int64[ranks + 1].
        kind: int64[events]; `PASS`, `BEGIN` or `AWAIT`.
        event_stay: int64[events]; the stay of the latter two.
        own_ns: int64[events], ns; what the rank does before, without waiting.
        lag_ns: int64[events], ns; how long the rank already waits for a stay when another begins.
        stay_rank: int64[stays].
        stay_before: int64[stays]; the stay before on its stream, -1 without one.
        gap_ns: int64[stays], ns; from the end of that to the begin at least.
        stay_meeting: int64[stays].
        exit_ns: int64[stays], ns; how much later than its meeting a stay ends.
        alone_ns: int64[stays], ns; the duration of a stay that waits for no other, -1 for others.
        member_ptr: int64[meetings + 1].
        member: int64[stays]; the stays of each meeting.
        transfer_ns: int64[meetings], ns; from the last begin to the end.
        at_ns: int64[events], ns; the first event of each rank is when it begins. Filled.
        came_ns: int64[meetings], ns; when the last stay of each began. `UNKNOWN_NS`, -2^62, before. Filled.
        launched_ns: int64[stays], ns; the same.
        end_ns: int64[stays], ns; the same.
        stay_after: int64[stays]; scratch, as are all that follow.
        ready: int64[stays].
        place: int64[ranks].
        awaited: int64[ranks].
        missing: int64[meetings].
        stack: int64[ranks].

    Returns:
        How many events happened; fewer than there are where ranks wait for each other in a circle.
    """
    ranks: i64 = event_ptr.shape[0] - 1
    meetings: i64 = member_ptr.shape[0] - 1
    stays: i64 = stay_rank.shape[0]
    waiting: i64 = ranks
    done: i64 = 0
    open_stays: i64
    rank: i64
    one: i64
    stay: i64
    other: i64
    meeting: i64
    row: i64
    now_ns: i64
    begin_ns: i64
    with cython.nogil:
        for meeting in range(meetings):
            missing[meeting] = member_ptr[meeting + 1] - member_ptr[meeting]
        for stay in range(stays):
            stay_after[stay] = -1
        for stay in range(stays):
            if stay_before[stay] >= 0:
                stay_after[stay_before[stay]] = stay
        for rank in range(ranks):
            place[rank] = event_ptr[rank]
            awaited[rank] = -1
            stack[rank] = rank
        while waiting > 0:
            waiting -= 1
            rank = stack[waiting]
            awaited[rank] = -1
            while place[rank] < event_ptr[rank + 1]:
                one = place[rank]
                now_ns = at_ns[one]
                if one > event_ptr[rank]:
                    now_ns = at_ns[one - 1] + own_ns[one]
                if kind[one] == AWAIT:
                    stay = event_stay[one]
                    if end_ns[stay] == UNKNOWN_NS:
                        awaited[rank] = stay
                        break
                    now_ns = max(now_ns, end_ns[stay])
                at_ns[one] = now_ns
                place[rank] += 1
                done += 1
                if kind[one] != BEGIN:
                    continue
                stay = event_stay[one]
                launched_ns[stay] = now_ns + lag_ns[one]
                other = stay_before[stay]
                if other >= 0 and end_ns[other] == UNKNOWN_NS:
                    continue
                ready[0] = stay
                open_stays = 1
                while open_stays > 0:
                    open_stays -= 1
                    stay = ready[open_stays]
                    if end_ns[stay] != UNKNOWN_NS:  # it ended: what waits for it goes on
                        other = stay_after[stay]
                        if other >= 0 and launched_ns[other] != UNKNOWN_NS:
                            ready[open_stays] = other
                            open_stays += 1
                        other = stay_rank[stay]
                        if awaited[other] == stay:
                            awaited[other] = -1
                            stack[waiting] = other
                            waiting += 1
                        continue
                    begin_ns = launched_ns[stay]
                    other = stay_before[stay]
                    if other >= 0:
                        begin_ns = max(begin_ns, end_ns[other] + gap_ns[stay])
                    meeting = stay_meeting[stay]
                    came_ns[meeting] = max(came_ns[meeting], begin_ns)
                    missing[meeting] -= 1
                    if alone_ns[stay] >= 0:
                        end_ns[stay] = begin_ns + alone_ns[stay]
                        ready[open_stays] = stay
                        open_stays += 1
                    if missing[meeting] > 0:
                        continue
                    for row in range(member_ptr[meeting], member_ptr[meeting + 1]):
                        other = member[row]
                        if alone_ns[other] < 0:
                            end_ns[other] = came_ns[meeting] + transfer_ns[meeting] + exit_ns[other]
                            ready[open_stays] = other
                            open_stays += 1
    return done
