"""Trees of host ranges: the range around each range and each moment, and what holds along the way up.

Ranges of a thread are sorted by start, the longest first, so a parent stands before its children.
"""

try:
    import cython
except ImportError:  # runs as plain Python without Cython
    from wallscope.kernels import plain as cython

if cython.compiled:
    from cython.cimports.libc.stdint import int32_t as i32
    from cython.cimports.libc.stdint import int64_t as i64
    from cython.cimports.libc.stdint import uint8_t as u8
else:
    i32, i64, u8 = cython.int, cython.longlong, cython.uchar


def nest(
    thread: cython.const[i32][::1],
    end_ns: cython.const[i64][::1],
    is_apart: cython.const[u8][::1],
    parent: i32[::1],
) -> None:
    """Write the row of the latest earlier range of the thread that ends no sooner, -1 without one.

    Args:
        thread: int32[range], the ranges of a thread follow each other, sorted by start, the longest first.
        end_ns: int64[range], ns.
        is_apart: uint8[range], 1 for a range that has no parent and is none.
        parent: int32[range], filled.
    """
    row: cython.Py_ssize_t
    above: i32
    latest: i32 = -1
    with cython.nogil:
        for row in range(thread.shape[0]):
            if row and thread[row] != thread[row - 1]:
                latest = -1
            parent[row] = -1
            if is_apart[row]:
                continue
            above = latest
            while above >= 0 and end_ns[above] < end_ns[row]:
                above = parent[above]
            parent[row] = above
            latest = cython.cast(i32, row)


def hold_ends(
    thread: cython.const[i32][::1],
    start_ns: cython.const[i64][::1],
    most_ns: cython.longlong,
    end_ns: i64[::1],
    around_ns: i64[::1],
) -> None:
    """Cut ends that lie up to some time beyond that of the enclosing range to its end.

    Args:
        thread: int32[range], the ranges of a thread follow each other, sorted by start, the longest first.
        start_ns: int64[range], ns.
        most_ns: how far beyond, in ns.
        end_ns: int64[range], ns, changed.
        around_ns: int64[range], room for the ends of open ranges.
    """
    row: cython.Py_ssize_t
    depth: cython.Py_ssize_t = 0
    with cython.nogil:
        for row in range(thread.shape[0]):
            if row and thread[row] != thread[row - 1]:
                depth = 0
            while depth and around_ns[depth - 1] <= start_ns[row]:
                depth -= 1
            if depth and around_ns[depth - 1] < end_ns[row] <= around_ns[depth - 1] + most_ns:
                end_ns[row] = around_ns[depth - 1]
            around_ns[depth] = end_ns[row]
            depth += 1


def innermost(
    start_ns: cython.const[i64][::1],
    end_ns: cython.const[i64][::1],
    parent: cython.const[i32][::1],
    at_ns: cython.const[i64][::1],
    found: i32[::1],
) -> None:
    """Write the row of the range with the latest start that is open at each moment, -1 without one.

    A range is open from its start until before its end.

    Args:
        start_ns: int64[range], ns; ranges of one thread, sorted by start, the longest first.
        end_ns: int64[range], ns.
        parent: int32[range], row, as `nest` gives it.
        at_ns: int64[moment], ns, ascending.
        found: int32[moment], row, filled.
    """
    place: cython.Py_ssize_t
    started: cython.Py_ssize_t = 0
    row: i32 = -1
    with cython.nogil:
        for place in range(at_ns.shape[0]):
            while started < start_ns.shape[0] and start_ns[started] <= at_ns[place]:
                row = cython.cast(i32, started)
                started += 1
            while row >= 0 and end_ns[row] <= at_ns[place]:
                row = parent[row]
            found[place] = row


def nearest(parent: cython.const[i32][::1], is_wanted: cython.const[u8][::1], found: i32[::1]) -> None:
    """Write for each row the nearest wanted row, itself or above it; -1 without one.

    Args:
        parent: int32[row], row, less than the child's; -1 at the top.
        is_wanted: uint8[row], 1 for wanted rows.
        found: int32[row], row, filled.
    """
    row: cython.Py_ssize_t
    with cython.nogil:
        for row in range(parent.shape[0]):
            if is_wanted[row]:
                found[row] = cython.cast(i32, row)
            else:
                found[row] = found[parent[row]] if parent[row] >= 0 else -1


def farthest(parent: cython.const[i32][::1], is_wanted: cython.const[u8][::1], found: i32[::1]) -> None:
    """Write for each row the outermost wanted row, itself or above it; -1 without one.

    Args:
        parent: int32[row], row, less than the child's; -1 at the top.
        is_wanted: uint8[row], 1 for wanted rows.
        found: int32[row], row, filled.
    """
    row: cython.Py_ssize_t
    with cython.nogil:
        for row in range(parent.shape[0]):
            found[row] = found[parent[row]] if parent[row] >= 0 else -1
            if found[row] < 0 and is_wanted[row]:
                found[row] = cython.cast(i32, row)


def chain_top(parent: cython.const[i32][::1], is_wanted: cython.const[u8][::1], found: i32[::1]) -> None:
    """Write for each row the last one that is reached from it over wanted parents alone, or itself.

    Args:
        parent: int32[row], row, less than the child's; -1 at the top.
        is_wanted: uint8[row], 1 for wanted rows.
        found: int32[row], row, filled.
    """
    row: cython.Py_ssize_t
    with cython.nogil:
        for row in range(parent.shape[0]):
            if parent[row] >= 0 and is_wanted[parent[row]]:
                found[row] = found[parent[row]]
            else:
                found[row] = cython.cast(i32, row)


def number_paths(
    order: cython.const[i64][::1],
    around: cython.const[i32][::1],
    label: cython.const[i32][::1],
    table: i32[::1],
    path: i32[::1],
    path_parent: i32[::1],
    path_label: i32[::1],
    path_depth: i32[::1],
) -> int:
    """Number the chains of labels from the top down to each row; return how many there are.

    Paths are numbered in order of their first rows. What is around a row counts where it is earlier.

    Args:
        order: int64[row], rows in order of time.
        around: int32[row], row, -1 at the top.
        label: int32[row], not negative.
        table: int32[power of two, more than rows], filled with -1; working space.
        path: int32[row], path, filled; -1 when given.
        path_parent: int32[row], path, -1 at the top; filled from the front, by path.
        path_label: int32[row], the same for the last label.
        path_depth: int32[row], the same for the number of paths above.
    """
    place: cython.Py_ssize_t
    row: cython.Py_ssize_t
    outer: i32
    count: i32 = 0
    slot: i64
    mask: i64 = table.shape[0] - 1
    with cython.nogil:
        for place in range(order.shape[0]):
            row = order[place]
            outer = path[around[row]] if around[row] >= 0 else -1
            # products of numbers below 2^31 with constants below 2^31 do not overflow
            slot = ((cython.cast(i64, outer) + 1) * 506952113) ^ (cython.cast(i64, label[row]) * 99341943)
            slot = (slot ^ (slot >> 31)) & mask
            while table[slot] >= 0 and (
                path_parent[table[slot]] != outer or path_label[table[slot]] != label[row]
            ):
                slot = (slot + 1) & mask
            if table[slot] < 0:
                table[slot] = count
                path_parent[count] = outer
                path_label[count] = label[row]
                path_depth[count] = path_depth[outer] + 1 if outer >= 0 else 0
                count += 1
            path[row] = table[slot]
    return count
