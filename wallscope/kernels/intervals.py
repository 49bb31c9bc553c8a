"""Sweeps over half-open spans of integer nanoseconds, each sorted by start."""

try:
    import cython
except ImportError:  # runs as plain Python without Cython
    from wallscope.kernels import plain as cython

if cython.compiled:
    from cython.cimports.libc.stdint import int64_t as i64
else:
    i64 = cython.longlong

NEAR = cython.declare(cython.int, 16)


def merge(
    start_ns: cython.const[i64][::1],
    end_ns: cython.const[i64][::1],
    merged_start_ns: i64[::1],
    merged_end_ns: i64[::1],
) -> int:
    """Write the union of spans as disjoint spans that do not touch; return how many there are.

    Args:
        start_ns: int64[n], ns, ascending.
        end_ns: int64[n], ns, each greater than its start; spans may overlap.
        merged_start_ns: int64[n], filled from the front.
        merged_end_ns: the same for the ends.
    """
    row: cython.Py_ssize_t
    count: cython.Py_ssize_t = 0
    with cython.nogil:
        for row in range(start_ns.shape[0]):
            if count and start_ns[row] <= merged_end_ns[count - 1]:
                if end_ns[row] > merged_end_ns[count - 1]:
                    merged_end_ns[count - 1] = end_ns[row]
            else:
                merged_start_ns[count] = start_ns[row]
                merged_end_ns[count] = end_ns[row]
                count += 1
    return count


def intersect(
    one_start_ns: cython.const[i64][::1],
    one_end_ns: cython.const[i64][::1],
    other_start_ns: cython.const[i64][::1],
    other_end_ns: cython.const[i64][::1],
    common_start_ns: i64[::1],
    common_end_ns: i64[::1],
) -> int:
    """Write the spans that two sides have in common; return how many there are.

    Args:
        one_start_ns: int64[n], ns, ascending.
        one_end_ns: int64[n], ns; the spans of a side are disjoint.
        other_start_ns: int64[m], the other side.
        other_end_ns: the same for the ends.
        common_start_ns: int64[n + m], filled from the front.
        common_end_ns: the same for the ends.
    """
    one: cython.Py_ssize_t = 0
    other: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = 0
    start_ns: i64
    end_ns: i64
    with cython.nogil:
        while one < one_start_ns.shape[0] and other < other_start_ns.shape[0]:
            start_ns = max(one_start_ns[one], other_start_ns[other])
            end_ns = min(one_end_ns[one], other_end_ns[other])
            if start_ns < end_ns:
                common_start_ns[count] = start_ns
                common_end_ns[count] = end_ns
                count += 1
            if one_end_ns[one] < other_end_ns[other]:
                one += 1
            else:
                other += 1
    return count


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def find_last(start_ns: cython.const[i64][::1], near: i64, at_ns: i64) -> i64:
    """Return the last span that begins up to a moment, -1 without one; looked for near a place."""
    low: i64 = -1
    high: i64 = start_ns.shape[0]
    middle: i64
    _step: cython.int
    for _step in range(NEAR):
        if near >= 0 and start_ns[near] > at_ns:
            high = near
            near -= 1
        elif near + 1 < high and start_ns[near + 1] <= at_ns:
            near += 1
            low = near
        else:
            return near
    while high - low > 1:
        middle = (low + high) >> 1
        if start_ns[middle] <= at_ns:
            low = middle
        else:
            high = middle
    return low


def sum_before(
    start_ns: cython.const[i64][::1],
    end_ns: cython.const[i64][::1],
    before_ns: cython.const[i64][::1],
    at_ns: cython.const[i64][::1],
    passed_ns: i64[::1],
) -> None:
    """Write how much of disjoint spans lies before each moment; fast if the moments are almost in order.

    Args:
        start_ns: int64[n], ns, ascending.
        end_ns: int64[n], ns; the spans are disjoint.
        before_ns: int64[n], ns; the length of all spans before each.
        at_ns: int64[m], ns.
        passed_ns: int64[m], filled.
    """
    row: cython.Py_ssize_t
    last: i64 = -1
    with cython.nogil:
        for row in range(at_ns.shape[0]):
            last = find_last(start_ns, last, at_ns[row])
            passed_ns[row] = 0
            if last >= 0:
                passed_ns[row] = before_ns[last] + min(at_ns[row], end_ns[last]) - start_ns[last]
