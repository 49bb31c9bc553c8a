"""Number the distinct rows of integer columns, and put calls in order of their threads."""

try:
    import cython
except ImportError:  # runs as plain Python without Cython
    from wallscope.kernels import plain as cython

if cython.compiled:
    from cython.cimports.libc.stdint import int32_t as i32
    from cython.cimports.libc.stdint import int64_t as i64
    from cython.cimports.libc.stdint import uint32_t as u32
else:
    i64, i32, u32 = cython.longlong, cython.int, cython.uint

HALF = cython.declare(i64, 2147483647)
"""The lowest 31 bits: products of two numbers of 31 bits do not overflow."""


def number_rows(
    columns: cython.const[i64][:, ::1],
    begin: i64,
    distinct: i64[:, ::1],
    count: i64[::1],
    table: i32[::1],
    number: u32[::1],
) -> int:
    """Write the number of the distinct row that each row equals; new ones are numbered as they appear.

    Args:
        columns: int64[column, row].
        begin: the first row to number.
        distinct: int64[room, column], the distinct rows known so far, filled from the front.
        count: int64[1], how many those are; is raised.
        table: int32[power of two, more than room], -1 where nothing is; where each distinct row stands.
        number: uint32[row], filled from `begin` on.

    Returns:
        The row behind the last numbered one: the next one needs more room, unless it is behind all rows.
    """
    row: cython.Py_ssize_t
    column: cython.Py_ssize_t
    slot: i64
    found: i32
    last: i32 = 0
    known: i64 = count[0]
    width: cython.Py_ssize_t = columns.shape[0]
    mask: i64 = table.shape[0] - 1
    done: i64 = columns.shape[1]
    with cython.nogil:
        for row in range(begin, columns.shape[1]):
            if known > 0 and is_equal(columns, row, distinct, last, width):
                number[row] = cython.cast(u32, last)
                continue
            slot = 0
            for column in range(width):
                slot = ((slot ^ (columns[column, row] & HALF)) & HALF) * 506952113
                slot += ((columns[column, row] >> 31) & HALF) * 99341943
                slot ^= slot >> 31
            slot &= mask
            found = table[slot]
            while found >= 0 and not is_equal(columns, row, distinct, found, width):
                slot = (slot + 1) & mask
                found = table[slot]
            if found < 0:
                if known >= distinct.shape[0]:
                    done = row
                    break
                found = cython.cast(i32, known)
                table[slot] = found
                for column in range(width):
                    distinct[known, column] = columns[column, row]
                known += 1
            number[row] = cython.cast(u32, found)
            last = found
    count[0] = known
    return done


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def is_equal(
    columns: cython.const[i64][:, ::1],
    row: cython.Py_ssize_t,
    distinct: i64[:, ::1],
    other: cython.Py_ssize_t,
    width: cython.Py_ssize_t,
) -> cython.bint:
    """Whether a row equals a distinct one."""
    column: cython.Py_ssize_t = 0
    while column < width and columns[column, row] == distinct[other, column]:
        column += 1
    return column == width


def order_calls(
    caller: cython.const[u32][::1],
    start_ns: cython.const[i64][::1],
    end_ns: cython.const[i64][::1],
    named: cython.const[u32][::1],
    correlation: cython.const[i64][::1],
    thread_of: cython.const[i64][::1],
    begin: cython.const[i64][::1],
    shift_ns: i64,
    free: i64[::1],
    thread: u32[::1],
    times_ns: i64[:, ::1],
    named_sorted: u32[::1],
    correlation_sorted: i64[::1],
) -> int:
    """Put calls in order of their threads, those of a thread as they were.

    Args:
        caller: uint32[row], the number of the caller.
        start_ns: int64[row].
        end_ns: int64[row].
        named: uint32[row], the number of the name.
        correlation: int64[row].
        thread_of: int64[caller], the thread of each caller.
        begin: int64[thread], the first call of each thread.
        shift_ns: is taken from the times.
        free: int64[thread], a copy of `begin`; working space.
        thread: uint32[call], filled.
        times_ns: int64[2, call], filled with start and end.
        named_sorted: uint32[call], filled.
        correlation_sorted: int64[call], filled.

    Returns:
        1 if the calls of each thread are in order of their starts, else 0.
    """
    row: cython.Py_ssize_t
    own: i64
    call: i64
    in_order: i64 = 1
    with cython.nogil:
        for row in range(caller.shape[0]):
            own = thread_of[caller[row]]
            call = free[own]
            free[own] = call + 1
            thread[call] = cython.cast(u32, own)
            times_ns[0, call] = start_ns[row] - shift_ns
            times_ns[1, call] = end_ns[row] - shift_ns
            named_sorted[call] = named[row]
            correlation_sorted[call] = correlation[row]
            if call > begin[own] and times_ns[0, call] < times_ns[0, call - 1]:
                in_order = 0
    return in_order


def find_first_calls(
    process: cython.const[i64][::1],
    correlation: cython.const[i64][::1],
    null: i64,
    least: i64,
    width: i64,
    first: i32[::1],
) -> None:
    """Write the first call under each (process, correlation id).

    Args:
        process: int64[call].
        correlation: int64[call].
        null: stands for no id.
        least: the smallest id.
        width: largest id less the smallest, plus one.
        first: int32[processes * width], by process and id; filled with -1.
    """
    call: cython.Py_ssize_t
    place: i64
    with cython.nogil:
        for call in range(process.shape[0]):
            if correlation[call] != null:
                place = process[call] * width + correlation[call] - least
                if first[place] < 0:
                    first[place] = cython.cast(i32, call)
