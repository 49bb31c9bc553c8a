"""Forward simulation of a replay window: host segments and device operations, each as early as it may be."""

try:
    import cython
except ImportError:  # runs as plain Python without Cython
    from wallscope.kernels import plain as cython

if cython.compiled:
    from cython.cimports.libc.stdint import int8_t as i8
    from cython.cimports.libc.stdint import int64_t as i64
    from cython.cimports.libc.stdint import uint8_t as u8
else:
    i8, i64, u8 = cython.schar, cython.longlong, cython.uchar


def simulate(
    event: cython.const[i64][::1],
    behind: cython.const[i64][::1],
    own_behind: cython.const[i64][::1],
    spent_ns: cython.const[i64][::1],
    return_ns: cython.const[i64][::1],
    awaited_ptr: cython.const[i64][::1],
    awaited: cython.const[i64][::1],
    ref: cython.const[i64][::1],
    since_ns: cython.const[i64][::1],
    operation_ns: cython.const[i64][::1],
    producer_ptr: cython.const[i64][::1],
    producer: cython.const[i64][::1],
    lag_ns: cython.const[i64][::1],
    meeting: cython.const[i64][::1],
    member_ptr: cython.const[i64][::1],
    member: cython.const[i64][::1],
    missing: i64[::1],
    hold: cython.const[i64][::1],
    later_ns: cython.const[i64][::1],
    thread: cython.const[i64][::1],
    hold_begin: cython.const[i64][::1],
    hold_last: cython.const[i64][::1],
    holder: cython.const[i64][::1],
    followed: i64[::1],
    begins: cython.const[i64][::1],
    begin_ns: cython.const[i64][::1],
    runs: i64,
    left_ns: i64[::1],
    start_ns: i64[::1],
    end_ns: i64[::1],
) -> None:
    """Compute when host segments are left and operations start and end, one event after the other.

    What refers to an event that comes later sees what `left_ns` and `end_ns` held before. Nothing happens
    earlier if a time or a duration grows. Several runs that differ only in where they begin are computed
    together, and the times of one event stand side by side. Locks are followed in one run only.

    Args:
        event: int64[segments + operations]; segments, and operations counted on behind them, in the order
            of the capture.
        behind: int64[segments]; the segment that each follows, or behind all segments the start of a thread.
        own_behind: int64[segments]; the same of its own thread, which differs where another one let it go on.
        spent_ns: int64[segments], ns; the least time from the ends of these.
        return_ns: int64[segments], ns; from the end of the awaited operations to the return of the call.
        awaited_ptr: int64[segments + 1]; the operations that each segment waits for, in `awaited`.
        awaited: int64; operations, or behind them those outside the window.
        ref: int64[operations]; the segment, or start of a thread, at whose end each is issued.
        since_ns: int64[operations], ns; from there to its earliest start.
        operation_ns: int64[operations], ns; the duration.
        producer_ptr: int64[operations + 1]; the operations that each waits for, in `producer`.
        producer: int64; operations, or behind them those outside the window.
        lag_ns: int64, ns; from the end of each producer to the earliest start of what waits for it.
        meeting: int64[operations]; the collective of each operation, -1 without.
        member_ptr: int64[collectives + 1]; the operations of each collective, in `member`.
        member: int64; operations.
        missing: int64[collectives]; how many participants there are, 0 afterwards.
        hold: int64[segments]; the hold of a lock that each waits for, or for one before it; -1 without, and
            empty where none is waited for.
        later_ns: int64[segments], ns; from the end of `own_behind` to when each asks for the lock or goes on.
        thread: int64[segments]; the thread of each.
        hold_begin: int64[holds]; the segment, or start of a thread, behind which each hold is asked for.
        hold_last: int64[holds]; the segment at whose end it is over, -1 where other locks begin.
        holder: int64[holds]; its thread.
        followed: int64[segments]; set to what each follows that waits for a lock.
        begins: int64[segments + operations]; the row in `begin_ns` of an event at which some run begins, -1
            for others; empty where none does.
        begin_ns: int64[rows * runs], ns; what replaces the end of `behind` or `ref` in each run, -1 for
            nothing.
        runs: the number of runs.
        left_ns: int64[(segments + threads) * runs], ns; filled up to the starts of threads, which the caller
            sets.
        start_ns: int64[operations * runs], ns; filled.
        end_ns: int64[(operations + outside) * runs], ns; those of the capture, of `operations` replaced.
    """
    segments: i64 = spent_ns.shape[0]
    at: cython.Py_ssize_t
    run: cython.Py_ssize_t
    place: i64
    one: i64
    row: i64
    own: i64
    other: i64
    collective: i64
    time_ns: i64
    asked_ns: i64
    has_holds: cython.bint = hold.shape[0] > 0
    has_begins: cython.bint = begins.shape[0] > 0
    with cython.nogil:
        for at in range(event.shape[0]):
            one = event[at]
            row = begins[one] if has_begins else -1
            if one < segments:
                if has_holds:
                    time_ns = left_ns[own_behind[one]]
                    asked_ns = time_ns + later_ns[one]
                    if hold[one] >= 0:
                        followed[one] = own_behind[one]
                        place = hold[one]
                        while hold_last[place] >= 0:
                            if holder[place] != thread[one]:
                                if left_ns[hold_last[place]] <= asked_ns:
                                    break
                                if (
                                    left_ns[hold_begin[place]] <= asked_ns
                                    and left_ns[hold_last[place]] > time_ns
                                ):
                                    time_ns = left_ns[hold_last[place]]
                                    followed[one] = hold_last[place]
                            place -= 1
                    else:
                        time_ns = max(asked_ns, left_ns[behind[one]])
                    left_ns[one] = time_ns + spent_ns[one]
                else:
                    own, other = own_behind[one] * runs, behind[one] * runs
                    for run in range(runs):
                        time_ns = max(left_ns[own + run], left_ns[other + run])
                        left_ns[one * runs + run] = time_ns + spent_ns[one]
                    if row >= 0:
                        for run in range(runs):
                            if begin_ns[row * runs + run] >= 0:
                                time_ns = max(left_ns[own + run], begin_ns[row * runs + run])
                                left_ns[one * runs + run] = time_ns + spent_ns[one]
                for place in range(awaited_ptr[one], awaited_ptr[one + 1]):
                    other = awaited[place] * runs
                    for run in range(runs):
                        time_ns = end_ns[other + run] + return_ns[one]
                        left_ns[one * runs + run] = max(left_ns[one * runs + run], time_ns)
                continue
            one -= segments
            own, other = one * runs, ref[one] * runs
            for run in range(runs):
                start_ns[own + run] = left_ns[other + run] + since_ns[one]
            if row >= 0:
                for run in range(runs):
                    if begin_ns[row * runs + run] >= 0:
                        start_ns[own + run] = begin_ns[row * runs + run] + since_ns[one]
            for place in range(producer_ptr[one], producer_ptr[one + 1]):
                other = producer[place] * runs
                for run in range(runs):
                    start_ns[own + run] = max(start_ns[own + run], end_ns[other + run] + lag_ns[place])
            for run in range(runs):
                end_ns[own + run] = start_ns[own + run] + operation_ns[one]
            collective = meeting[one]
            if collective < 0:
                continue
            missing[collective] -= 1
            if missing[collective]:
                continue
            for run in range(runs):
                time_ns = start_ns[own + run]
                for place in range(member_ptr[collective], member_ptr[collective + 1]):
                    time_ns = max(time_ns, start_ns[member[place] * runs + run])
                for place in range(member_ptr[collective], member_ptr[collective + 1]):
                    one = member[place]
                    if operation_ns[one]:
                        end_ns[one * runs + run] = time_ns + operation_ns[one]


def write_host_times(
    role: cython.const[i8][::1],
    segment_ns: cython.const[i64][::1],
    gap_ns: cython.const[i64][::1],
    is_idle: cython.const[u8][::1],
    awaited_ptr: cython.const[i64][::1],
    roles: tuple[int, int, int, int],
    least_wait_ns: i64,
    spent_ns: i64[::1],
    return_ns: i64[::1],
) -> None:
    """Write how each segment follows what it depends on.

    Args:
        role: int8[segments]; what each waits for.
        segment_ns: int64[segments], ns; its duration.
        gap_ns: int64[segments], ns; from the end of what it waits for to its end.
        is_idle: uint8[segments]; whether that had ended before its call was entered.
        awaited_ptr: int64[segments + 1]; the operations that each waits for.
        roles: the numbers of the roles released, blocking, releasing, held.
        least_wait_ns: the longest time of a blocking call without anything to wait for.
        spent_ns: int64[segments], ns; filled: the least time from the end of the segment before.
        return_ns: int64[segments], ns; filled: from the end of the awaited operations to the end.
    """
    row: cython.Py_ssize_t
    released: i64 = roles[0]
    blocking: i64 = roles[1]
    releasing: i64 = roles[2]
    held: i64 = roles[3]
    with cython.nogil:
        for row in range(role.shape[0]):
            spent_ns[row] = segment_ns[row]
            return_ns[row] = 0
            if role[row] == released:
                spent_ns[row] = min(gap_ns[row], segment_ns[row])
            if awaited_ptr[row] == awaited_ptr[row + 1]:
                continue
            if role[row] == releasing:
                spent_ns[row] = return_ns[row] = gap_ns[row]
            elif role[row] == held:
                return_ns[row] = gap_ns[row]
            elif role[row] == blocking:
                return_ns[row] = gap_ns[row]
                if not is_idle[row]:
                    spent_ns[row] = min(segment_ns[row], least_wait_ns)
                    if segment_ns[row] <= 0 and gap_ns[row] > 0:
                        return_ns[row] = 0
