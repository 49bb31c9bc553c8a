"""A simulated run from its end: how late everything may be, and which chain of constraints was critical."""

try:
    import cython
except ImportError:  # runs as plain Python without Cython
    from wallscope.kernels import plain as cython

if cython.compiled:
    from cython.cimports.libc.stdint import int64_t as i64
    from cython.cimports.libc.stdint import uint8_t as u8
else:
    i64, u8 = cython.longlong, cython.uchar


def find_latest_ends(
    target: i64,
    target_start_ns: i64,
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
    never_ns: i64,
    latest_come_ns: i64[::1],
    latest_left_ns: i64[::1],
    latest_end_ns: i64[::1],
) -> None:
    """Compute how late each operation may end if one operation is to start at a given time.

    Args:
        target: the operation that must not start later.
        target_start_ns: when it starts, in ns.
        event: as those that follow, as `simulation.simulate` takes them.
        behind: int64[segments].
        own_behind: int64[segments].
        spent_ns: int64[segments], ns.
        return_ns: int64[segments], ns.
        awaited_ptr: int64[segments + 1].
        awaited: int64.
        ref: int64[operations].
        since_ns: int64[operations], ns.
        operation_ns: int64[operations], ns.
        producer_ptr: int64[operations + 1].
        producer: int64.
        lag_ns: int64, ns.
        meeting: int64[operations].
        member_ptr: int64[collectives + 1].
        member: int64.
        never_ns: the time that the following three are filled with; what does not hold the target up keeps
            about that.
        latest_come_ns: int64[collectives], ns; when the last participant of each may come.
        latest_left_ns: int64[segments + threads], ns; when each segment may be left.
        latest_end_ns: int64[operations + outside], ns; when each operation may end.
    """
    segments: i64 = spent_ns.shape[0]
    at: cython.Py_ssize_t
    place: i64
    one: i64
    other: i64
    collective: i64
    time_ns: i64
    with cython.nogil:
        for at in range(event.shape[0] - 1, -1, -1):
            one = event[at]
            if one < segments:
                time_ns = latest_left_ns[one]
                for place in range(awaited_ptr[one], awaited_ptr[one + 1]):
                    other = awaited[place]
                    latest_end_ns[other] = min(latest_end_ns[other], time_ns - return_ns[one])
                other = behind[one]
                latest_left_ns[other] = min(latest_left_ns[other], time_ns - spent_ns[one])
                other = own_behind[one]
                latest_left_ns[other] = min(latest_left_ns[other], time_ns - spent_ns[one])
                continue
            one -= segments
            time_ns = latest_end_ns[one] - operation_ns[one]
            collective = meeting[one]
            if collective >= 0:
                if latest_come_ns[collective] == never_ns:
                    for place in range(member_ptr[collective], member_ptr[collective + 1]):
                        other = member[place]
                        time_ns = min(time_ns, latest_end_ns[other] - operation_ns[other])
                    latest_come_ns[collective] = time_ns
                time_ns = latest_come_ns[collective]
            if one == target:
                time_ns = min(time_ns, target_start_ns)
            other = ref[one]
            latest_left_ns[other] = min(latest_left_ns[other], time_ns - since_ns[one])
            for place in range(producer_ptr[one], producer_ptr[one + 1]):
                other = producer[place]
                latest_end_ns[other] = min(latest_end_ns[other], time_ns - lag_ns[place])


def walk_critical_path(
    target: i64,
    from_ns: i64,
    behind: cython.const[i64][::1],
    own_behind: cython.const[i64][::1],
    is_plain: cython.const[u8][::1],
    awaited_ptr: cython.const[i64][::1],
    awaited: cython.const[i64][::1],
    ref: cython.const[i64][::1],
    offset_ns: cython.const[i64][::1],
    is_early: cython.const[u8][::1],
    issuer: cython.const[i64][::1],
    producer_ptr: cython.const[i64][::1],
    producer: cython.const[i64][::1],
    lag_ns: cython.const[i64][::1],
    left_ns: cython.const[i64][::1],
    start_ns: cython.const[i64][::1],
    end_ns: cython.const[i64][::1],
    kinds: cython.const[i64][::1],
    links: i64[:, ::1],
) -> int:
    """Write the links that tile the time from a moment to the start of an operation, latest first.

    Of several critical producers the first is followed.

    Args:
        target: the operation at whose start the path ends.
        from_ns: where it begins, in ns.
        behind: int64[segments]; this and what has no line of its own is as `simulation.simulate` takes it.
        own_behind: int64[segments].
        is_plain: uint8[segments]; whether a segment neither waits nor follows another thread.
        awaited_ptr: int64[segments + 1].
        awaited: int64.
        ref: int64[operations].
        offset_ns: int64[operations], ns; from the end of `ref` to the issue of the operation.
        is_early: uint8[operations]; whether it starts before its call returns.
        issuer: int64[operations]; the segment that issues it.
        producer_ptr: int64[operations + 1].
        producer: int64.
        lag_ns: int64, ns.
        left_ns: int64[segments + threads], ns; of the run, as the following two.
        start_ns: int64[operations], ns.
        end_ns: int64[operations + outside], ns.
        kinds: int64[6]; the numbers that stand for six kinds of link. (0) An operation. (1) From the end of
            an operation to the start of another. (2) From the issue of an operation to its start.
            (3) A segment. (4) From the end of an operation to the return of the call that waited for it.
            (5) Unknown.
        links: int64[3 * (segments + operations) + 2, 4]; filled with one row more than there are links, the
            first with the end of the path. Columns: start of the link in ns (its end is the start of the
            row before); kind; operation or segment, or -1; the operation that waited (kind 1), or -1.

    Returns:
        How many links there are. None of them is empty.
    """
    segments: i64 = is_plain.shape[0]
    operations: i64 = ref.shape[0]
    turns: i64 = segments + operations  # a path visits each at most once, unless dependencies were circular
    row: cython.Py_ssize_t = 0
    one: i64 = target
    held_by: i64
    segment: i64
    before: i64
    last: i64
    place: i64
    issued_ns: i64
    with cython.nogil:
        links[0, 0] = start_ns[target]
        links[0, 1] = links[0, 2] = links[0, 3] = -1
        while one >= 0 and links[row, 0] > from_ns and turns > 0:
            while True:
                turns -= 1
                held_by = -1
                for place in range(producer_ptr[one], producer_ptr[one + 1]):
                    if end_ns[producer[place]] + lag_ns[place] == start_ns[one]:
                        held_by = producer[place]
                        break
                if held_by < 0 or held_by >= operations or links[row, 0] <= from_ns or turns <= 0:
                    break
                row = _add(links, row, max(end_ns[held_by], from_ns), kinds[1], held_by, one)
                row = _add(links, row, max(start_ns[held_by], from_ns), kinds[0], held_by, -1)
                one = held_by
            if held_by >= operations or links[row, 0] <= from_ns:
                break
            segment = ref[one]
            issued_ns = left_ns[segment] + offset_ns[one]
            if is_early[one]:
                row = _add(links, row, max(issued_ns, from_ns), kinds[3], issuer[one], -1)
            else:
                row = _add(links, row, max(issued_ns, from_ns), kinds[2], one, -1)
            one = -1
            while links[row, 0] > from_ns and segment < segments and turns > 0:
                turns -= 1
                if is_plain[segment]:
                    if left_ns[segment] > from_ns:
                        row = _add(links, row, max(left_ns[behind[segment]], from_ns), kinds[3], segment, -1)
                    segment = behind[segment]
                    continue
                last = -1
                for place in range(awaited_ptr[segment], awaited_ptr[segment + 1]):
                    if last < 0 or end_ns[awaited[place]] > end_ns[last]:
                        last = awaited[place]
                    elif end_ns[awaited[place]] == end_ns[last]:
                        last = max(last, awaited[place])
                before = behind[segment]
                if left_ns[own_behind[segment]] > left_ns[before]:
                    before = own_behind[segment]
                if 0 <= last < operations and end_ns[last] > left_ns[before]:
                    row = _add(links, row, max(end_ns[last], from_ns), kinds[4], segment, -1)
                    row = _add(links, row, max(start_ns[last], from_ns), kinds[0], last, -1)
                    one = last
                    break
                row = _add(links, row, max(left_ns[before], from_ns), kinds[3], segment, -1)
                segment = before
        row = _add(links, row, from_ns, kinds[5], -1, -1)
    return row  # noqa: RET504  # returning needs the lock


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _add(
    links: i64[:, ::1], row: cython.Py_ssize_t, start_ns: i64, kind: i64, place: i64, next_operation: i64
) -> cython.Py_ssize_t:
    """Add the link from a moment to the start of the last one, unless it is empty; return the last row."""
    if start_ns >= links[row, 0]:
        return row
    links[row + 1, 0] = start_ns
    links[row + 1, 1] = kind
    links[row + 1, 2] = place
    links[row + 1, 3] = next_operation
    return row + 1
