"""Every nanosecond of a rank in one slice: the compute that ran, or the link of a blame chain.

Spans are half-open, times are int64 ns, -1 is none. Index spaces: `row` is a row of the operations passed,
`link` a row of the links passed, `thread` a row of the thread table.
"""

try:
    import cython
except ImportError:  # runs as plain Python without Cython
    from wallscope.kernels import plain as cython

if cython.compiled:
    from cython.cimports.libc.stdint import int8_t as i8
    from cython.cimports.libc.stdint import int32_t as i32
    from cython.cimports.libc.stdint import int64_t as i64
    from cython.cimports.libc.stdint import uint8_t as u8
else:
    i8, i32, i64, u8 = cython.schar, cython.int, cython.longlong, cython.uchar

NEVER = cython.declare(i64, 2**62)


def find_gaps(
    from_ns: i64,
    until_ns: i64,
    op: cython.const[i32][::1],
    start_ns: cython.const[i64][::1],
    end_ns: cython.const[i64][::1],
    is_compute: cython.const[u8][::1],
    gap_start_ns: i64[::1],
    gap_end_ns: i64[::1],
    gap_op: i32[::1],
    gap_runs: i32[::1],
) -> int:
    """Write the time of a rank in which no compute ran, in order of time; return how many rows that takes.

    Behind the last compute each operation gets the time that those before it leave, and what remains is
    idle. Idle time also lies before the first and behind the last operation, where windows reach there.

    Args:
        from_ns: start of the first window.
        until_ns: end of the last window.
        op: int32[n], the operations of the rank, by start.
        start_ns: int64[n].
        end_ns: int64[n].
        is_compute: uint8[n], whether each ends a gap.
        gap_start_ns: int64[2 n + 1], filled from the front.
        gap_end_ns: the same for the ends.
        gap_op: int32[2 n + 1], the operation that ends each gap, -1 behind the last compute.
        gap_runs: int32[2 n + 1], the operation that ran behind the last compute, -1 where none did.
    """
    row: cython.Py_ssize_t
    count: cython.Py_ssize_t = 0
    reached_ns: i64
    if not op.shape[0]:
        return 0
    reached_ns = min(start_ns[0], from_ns)
    with cython.nogil:
        for row in range(op.shape[0]):
            if is_compute[row]:
                if start_ns[row] > reached_ns:
                    gap_start_ns[count] = reached_ns
                    gap_end_ns[count] = start_ns[row]
                    gap_op[count] = op[row]
                    gap_runs[count] = -1
                    count += 1
                reached_ns = max(reached_ns, end_ns[row])
        for row in range(op.shape[0]):
            if end_ns[row] > reached_ns:
                if start_ns[row] > reached_ns:
                    gap_start_ns[count] = reached_ns
                    gap_end_ns[count] = start_ns[row]
                    gap_op[count] = gap_runs[count] = -1
                    count += 1
                    reached_ns = start_ns[row]
                gap_start_ns[count] = reached_ns
                gap_end_ns[count] = end_ns[row]
                gap_op[count] = -1
                gap_runs[count] = op[row]
                count += 1
                reached_ns = end_ns[row]
        if until_ns > reached_ns:
            gap_start_ns[count] = reached_ns
            gap_end_ns[count] = until_ns
            gap_op[count] = gap_runs[count] = -1
            count += 1
    return count


def find_owners(
    start_ns: cython.const[i64][::1],
    end_ns: cython.const[i64][::1],
    tier: cython.const[i8][::1],
    front: i64[::1],
    owned_start_ns: i64[::1],
    owned_end_ns: i64[::1],
    owner: i32[::1],
) -> int:
    """Write which operation each moment is attributed to; return how many spans that takes.

    It is the operation that started first in the lowest tier with a running operation.

    Args:
        start_ns: int64[row], ascending.
        end_ns: int64[row].
        tier: int8[row], from 0; -1: no time is attributed to it.
        front: int64[tiers], zeros; used for the first row of each tier that is not over.
        owned_start_ns: int64[2 rows], filled from the front, in order of time.
        owned_end_ns: the same for the ends.
        owner: int32[2 rows], the same for the rows of the operations.
    """
    rows: i64 = start_ns.shape[0]
    count: cython.Py_ssize_t = 0
    level: cython.Py_ssize_t
    row: i64
    found: i64
    at_ns: i64 = -NEVER
    until_ns: i64
    with cython.nogil:
        while True:
            found = -1
            until_ns = NEVER
            for level in range(front.shape[0]):
                row = front[level]
                while row < rows and (tier[row] != level or end_ns[row] <= max(at_ns, start_ns[row])):
                    row += 1
                front[level] = row
                if row == rows:
                    continue
                if start_ns[row] <= at_ns:
                    found = row
                    until_ns = min(until_ns, end_ns[row])
                    break
                until_ns = min(until_ns, start_ns[row])
            if until_ns == NEVER:
                break
            if found >= 0:
                owned_start_ns[count] = at_ns
                owned_end_ns[count] = until_ns
                owner[count] = found
                count += 1
            at_ns = until_ns
    return count


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def skip_ends(end_ns: cython.const[i64][::1], place: i64, at_ns: i64) -> i64:
    """Return the first place from one on whose span ends behind a moment."""
    while place < end_ns.shape[0] and end_ns[place] <= at_ns:
        place += 1
    return place


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def next_bound(
    start_ns: cython.const[i64][::1], end_ns: cython.const[i64][::1], place: i64, at_ns: i64
) -> i64:
    """Return the first bound behind a moment of the spans from a place on, which is not over then."""
    if place == start_ns.shape[0]:
        return NEVER
    return end_ns[place] if start_ns[place] <= at_ns else start_ns[place]


def cut_slices(
    owned_start_ns: cython.const[i64][::1],
    owned_end_ns: cython.const[i64][::1],
    owned_state: cython.const[i8][::1],
    link_start_ns: cython.const[i64][::1],
    link_end_ns: cython.const[i64][::1],
    link_thread: cython.const[i32][::1],
    window_start_ns: cython.const[i64][::1],
    window_end_ns: cython.const[i64][::1],
    cover_start_ns: cython.const[i64][::1],
    cover_end_ns: cython.const[i64][::1],
    other_cover_start_ns: cython.const[i64][::1],
    other_cover_end_ns: cython.const[i64][::1],
    moment_ns: cython.const[i64][::1],
    moment_end: cython.const[i64][::1],
    moment_at: i64[::1],
    covered: i8,
    other_covered: i8,
    idle: i8,
    window: i32[::1],
    start_ns: i64[::1],
    end_ns: i64[::1],
    state: i8[::1],
    owned: i32[::1],
    link: i32[::1],
) -> int:
    """Write what each moment of the windows is attributed to; return how many slices that takes.

    A slice is cut where a window or a span of one of the two covers begins or ends. A slice on a thread is
    cut at the moments of that thread too. Returns -1 if the spans of operations and the links do not tile
    the time from the first to the last, without gap or overlap.

    Args:
        owned_start_ns: int64[spans], ascending; disjoint, as `find_owners` writes them.
        owned_end_ns: the same for the ends.
        owned_state: int8[spans], the state of their slices.
        link_start_ns: int64[links], ascending.
        link_end_ns: the same for the ends.
        link_thread: int32[links], -1 on none.
        window_start_ns: int64[windows], ascending; disjoint.
        window_end_ns: the same for the ends.
        cover_start_ns: int64[], ascending; disjoint. Links that it covers have the state `covered`.
        cover_end_ns: the same for the ends.
        other_cover_start_ns: int64[], the same of `other_covered`, for links that the first leaves.
        other_cover_end_ns: the same for the ends.
        moment_ns: int64[moments], those of each thread in order.
        moment_end: int64[threads], behind the last moment of each thread.
        moment_at: int64[threads], the first moment of each thread; used to walk on.
        covered: state of links.
        other_covered: the same.
        idle: the same of the other links.
        window: int32[slices], row of the window.
        start_ns: int64[slices].
        end_ns: int64[slices].
        state: int8[slices].
        owned: int32[slices], row of the span of an operation, -1 in a link.
        link: int32[slices], row of the link, -1 in the span of an operation.
    """
    spans: i64 = owned_start_ns.shape[0]
    links: i64 = link_start_ns.shape[0]
    span: i64 = 0
    row: i64 = 0
    own: i64
    own_link: i64
    thread: i64
    place: i64
    in_window: i64 = 0
    in_cover: i64 = 0
    in_other: i64 = 0
    at_ns: i64 = NEVER
    until_ns: i64
    next_ns: i64
    own_state: i8
    count: cython.Py_ssize_t = 0
    if spans:
        at_ns = owned_start_ns[0]
    if links:
        at_ns = min(at_ns, link_start_ns[0])
    with cython.nogil:
        while span < spans or row < links:
            own = own_link = thread = -1
            if span < spans and owned_start_ns[span] == at_ns:
                own = span
                until_ns = owned_end_ns[span]
                span += 1
            elif row < links and link_start_ns[row] == at_ns:
                own_link = row
                until_ns = link_end_ns[row]
                thread = link_thread[row]
                row += 1
            else:
                count = -1
                break
            while at_ns < until_ns:
                in_window = skip_ends(window_end_ns, in_window, at_ns)
                next_ns = min(until_ns, next_bound(window_start_ns, window_end_ns, in_window, at_ns))
                if in_window == window_start_ns.shape[0] or window_start_ns[in_window] > at_ns:
                    at_ns = next_ns
                    continue
                in_cover = skip_ends(cover_end_ns, in_cover, at_ns)
                in_other = skip_ends(other_cover_end_ns, in_other, at_ns)
                next_ns = min(next_ns, next_bound(cover_start_ns, cover_end_ns, in_cover, at_ns))
                next_ns = min(next_ns, next_bound(other_cover_start_ns, other_cover_end_ns, in_other, at_ns))
                if thread >= 0:
                    place = moment_at[thread]
                    while place < moment_end[thread] and moment_ns[place] <= at_ns:
                        place += 1
                    moment_at[thread] = place
                    if place < moment_end[thread]:
                        next_ns = min(next_ns, moment_ns[place])
                if own >= 0:
                    own_state = owned_state[own]
                elif in_cover < cover_start_ns.shape[0] and cover_start_ns[in_cover] <= at_ns:
                    own_state = covered
                elif in_other < other_cover_start_ns.shape[0] and other_cover_start_ns[in_other] <= at_ns:
                    own_state = other_covered
                else:
                    own_state = idle
                window[count] = in_window
                start_ns[count] = at_ns
                end_ns[count] = next_ns
                state[count] = own_state
                owned[count] = own
                link[count] = own_link
                count += 1
                at_ns = next_ns
    return count
