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


def replay_ranks(
    event_ptr: cython.const[i64][::1],
    kind: cython.const[i64][::1],
    event_stay: cython.const[i64][::1],
    own_ns: cython.const[i64][::1],
    lag_ns: cython.const[i64][::1],
    stay_rank: cython.const[i64][::1],
    stay_before: cython.const[i64][::1],
    stay_meeting: cython.const[i64][::1],
    exit_ns: cython.const[i64][::1],
    alone_ns: cython.const[i64][::1],
    member_ptr: cython.const[i64][::1],
    member: cython.const[i64][::1],
    transfer_ns: cython.const[i64][::1],
    at_ns: i64[::1],
    came_ns: i64[::1],
    end_ns: i64[::1],
    place: i64[::1],
    awaited: i64[::1],
    missing: i64[::1],
    stack: i64[::1],
) -> int:
    """Compute when each event happens and each stay ends.

    Args:
        event_ptr: int64[ranks + 1].
        kind: int64[events]; `PASS`, `BEGIN` or `AWAIT`.
        event_stay: int64[events]; the stay of the latter two.
        own_ns: int64[events], ns; what the rank does before, without waiting.
        lag_ns: int64[events], ns; how long the rank already waits for a stay when another begins.
        stay_rank: int64[stays].
        stay_before: int64[stays]; the stay before on its stream, -1 without one.
        stay_meeting: int64[stays].
        exit_ns: int64[stays], ns; how much later than its meeting a stay ends.
        alone_ns: int64[stays], ns; the duration of a stay that waits for no other, -1 for others.
        member_ptr: int64[meetings + 1].
        member: int64[stays]; the stays of each meeting.
        transfer_ns: int64[meetings], ns; from the last begin to the end.
        at_ns: int64[events], ns; the first event of each rank is when it begins. Filled.
        came_ns: int64[meetings], ns; when the last stay of each began. Filled with less than all times.
        end_ns: int64[stays], ns; filled.
        place: int64[ranks]; scratch.
        awaited: int64[ranks]; scratch.
        missing: int64[meetings]; scratch.
        stack: int64[ranks]; scratch.

    Returns:
        How many events happened; fewer than there are where ranks wait for each other in a circle.
    """
    ranks: i64 = event_ptr.shape[0] - 1
    meetings: i64 = member_ptr.shape[0] - 1
    waiting: i64 = ranks
    done: i64 = 0
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
                if kind[one] == PASS:
                    at_ns[one] = now_ns
                    place[rank] += 1
                    done += 1
                    continue
                stay = event_stay[one]
                other = stay if kind[one] == AWAIT else stay_before[stay]
                if other >= 0 and missing[stay_meeting[other]] > 0 and alone_ns[other] < 0:
                    awaited[rank] = stay_meeting[other]
                    break
                if kind[one] == AWAIT:
                    at_ns[one] = max(now_ns, end_ns[stay])
                    place[rank] += 1
                    done += 1
                    continue
                at_ns[one] = now_ns
                begin_ns = now_ns + lag_ns[one]
                if other >= 0:
                    begin_ns = max(begin_ns, end_ns[other])
                place[rank] += 1
                done += 1
                meeting = stay_meeting[stay]
                came_ns[meeting] = max(came_ns[meeting], begin_ns)
                missing[meeting] -= 1
                if alone_ns[stay] >= 0:
                    end_ns[stay] = begin_ns + alone_ns[stay]
                if missing[meeting] == 0:
                    for row in range(member_ptr[meeting], member_ptr[meeting + 1]):
                        other = member[row]
                        if alone_ns[other] < 0:
                            end_ns[other] = came_ns[meeting] + transfer_ns[meeting] + exit_ns[other]
                        other = stay_rank[other]
                        if awaited[other] == meeting:
                            awaited[other] = -1
                            stack[waiting] = other
                            waiting += 1
    return done
