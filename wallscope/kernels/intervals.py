"""Sweeps over half-open spans of integer nanoseconds, each sorted by start."""

try:
    import cython
except ImportError:  # runs as plain Python without Cython
    from wallscope.kernels import plain as cython

if cython.compiled:
    from cython.cimports.libc.stdint import int64_t as i64
else:
    i64 = cython.longlong


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
