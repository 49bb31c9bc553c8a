"""What each host thread is in at every moment: nested calls laid flat as disjoint segments.

Runtime calls contain driver calls. The outermost call keeps the time, but a call that wins (an allocation
or a synchronization) has its own time also inside another call.
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


@cython.cclass
class Segments:
    """Segments of one thread, written one behind the other.

    Calls of a thread may overlap by a hair: a segment begins where the latest one before it ends.
    """

    start_ns: i64[::1]
    end_ns: i64[::1]
    call: i32[::1]
    count: i64
    reached_ns: i64

    def __init__(self, start_ns: i64[::1], end_ns: i64[::1], call: i32[::1]) -> None:
        self.start_ns, self.end_ns, self.call = start_ns, end_ns, call
        self.count = 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def append(self, start_ns: i64, end_ns: i64, call: i32) -> cython.void:
        """Write what is left of a segment behind those before it."""
        if start_ns < self.reached_ns:
            start_ns = self.reached_ns
        if end_ns > start_ns:
            self.start_ns[self.count] = start_ns
            self.end_ns[self.count] = end_ns
            self.call[self.count] = call
            self.count += 1
        if end_ns > self.reached_ns:
            self.reached_ns = end_ns


def flatten_calls(
    thread: cython.const[i32][::1],
    start_ns: cython.const[i64][::1],
    end_ns: cython.const[i64][::1],
    wins: cython.const[u8][::1],
    call: cython.const[i32][::1],
    ptr: i64[::1],
    segment_start_ns: i64[::1],
    segment_end_ns: i64[::1],
    segment_call: i32[::1],
) -> int:
    """Write the segments of all threads, disjoint and in order of time; return how many there are.

    Args:
        thread: int32[row], ascending; the calls of a thread by start, the longest first.
        start_ns: int64[row], ns.
        end_ns: int64[row], ns.
        wins: uint8[row], 1 for a call that has its own time inside others; not inside another such call.
        call: int32[row], the number of the call.
        ptr: int64[thread + 1], where the segments of each thread begin, filled.
        segment_start_ns: int64[rows, and one more for each that wins], ns, filled from the front.
        segment_end_ns: the same for the ends.
        segment_call: int32, the same for the calls.
    """
    row: cython.Py_ssize_t = 0
    own: cython.Py_ssize_t
    top: cython.Py_ssize_t
    at_ns: i64
    won_ns: i64
    is_won: cython.bint
    segments: Segments = Segments(segment_start_ns, segment_end_ns, segment_call)
    with cython.nogil:
        for own in range(ptr.shape[0] - 1):
            ptr[own] = segments.count
            if row == thread.shape[0] or thread[row] != own:
                continue
            segments.reached_ns = start_ns[row]
            while row < thread.shape[0] and thread[row] == own:
                top = row
                at_ns = start_ns[top]
                # whether a call around the next row wins, and until when the outermost of these lasts
                is_won = wins[top] != 0
                won_ns = end_ns[top]
                row += 1
                while row < thread.shape[0] and thread[row] == own and end_ns[row] <= end_ns[top]:
                    if not is_won or end_ns[row] > won_ns:
                        is_won = wins[row] != 0
                        won_ns = end_ns[row]
                        if is_won:
                            segments.append(at_ns, start_ns[row], call[top])
                            segments.append(start_ns[row], end_ns[row], call[row])
                            if end_ns[row] > at_ns:
                                at_ns = end_ns[row]
                    row += 1
                segments.append(at_ns, end_ns[top], call[top])
        ptr[ptr.shape[0] - 1] = segments.count
    return segments.count
