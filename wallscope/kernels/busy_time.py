"""Sums over operations sorted by start: how long any of a group ran, and when several streams ran at once.

Spans are half-open, times are int64 ns, -1 is none.
"""

try:
    import cython
except ImportError:  # runs as plain Python without Cython
    from wallscope.kernels import plain as cython

if cython.compiled:
    from cython.cimports.libc.stdint import int64_t as i64
else:
    i64 = cython.longlong


def sum_busy_times(
    start_ns: cython.const[i64][::1],
    end_ns: cython.const[i64][::1],
    group: cython.const[i64][::1],
    parent: cython.const[i64][::1],
    reached_ns: i64[::1],
    busy_ns: i64[::1],
) -> None:
    """Add how long any span of each group, or of the groups inside it, runs.

    Args:
        start_ns: int64[n], ascending.
        end_ns: int64[n].
        group: int64[n], the innermost group of each span, -1 without one.
        parent: int64[groups], the group around each, -1 without one; without circles.
        reached_ns: int64[groups], before all spans; used for the latest end in each group.
        busy_ns: int64[groups], added to.
    """
    row: cython.Py_ssize_t
    at: i64
    with cython.nogil:
        for row in range(start_ns.shape[0]):
            at = group[row]
            while at >= 0 and end_ns[row] > reached_ns[at]:  # else all groups around it ran as long
                busy_ns[at] += end_ns[row] - max(start_ns[row], reached_ns[at])
                reached_ns[at] = end_ns[row]
                at = parent[at]


def find_concurrency(
    start_ns: cython.const[i64][::1],
    end_ns: cython.const[i64][::1],
    stream: cython.const[i64][::1],
    both_start_ns: i64[::1],
    both_end_ns: i64[::1],
) -> int:
    """Write when spans of several streams run at once, as disjoint spans; return how many there are.

    Args:
        start_ns: int64[n], ascending.
        end_ns: int64[n].
        stream: int64[n], none below 0.
        both_start_ns: int64[n], filled from the front, ascending.
        both_end_ns: the same for the ends.
    """
    row: cython.Py_ssize_t
    count: cython.Py_ssize_t = 0
    last: i64 = -1
    last_ns: i64 = 0
    others_ns: i64 = 0
    until_ns: i64
    with cython.nogil:
        for row in range(start_ns.shape[0]):
            if end_ns[row] <= start_ns[row]:
                continue
            until_ns = others_ns if stream[row] == last else last_ns  # the latest end of another stream
            if last < 0:
                until_ns = start_ns[row]
                others_ns = last_ns = start_ns[row]
            until_ns = min(until_ns, end_ns[row])
            if until_ns > start_ns[row]:
                if count and start_ns[row] <= both_end_ns[count - 1]:
                    both_end_ns[count - 1] = max(both_end_ns[count - 1], until_ns)
                else:
                    both_start_ns[count] = start_ns[row]
                    both_end_ns[count] = until_ns
                    count += 1
            if stream[row] == last:
                last_ns = max(last_ns, end_ns[row])
            elif end_ns[row] >= last_ns:
                others_ns = last_ns
                last = stream[row]
                last_ns = end_ns[row]
            else:
                others_ns = max(others_ns, end_ns[row])
    return count
