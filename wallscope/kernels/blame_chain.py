"""The blame chain: why no compute ran, followed back from the end of each gap to its start.

A gap ends where an operation starts. The walk asks what that start waited for last. If it was another
operation, the links are dependency latency and then the run of that operation. If it was the launch, the
links are launch latency and then time on the launching thread, call by call. A blocking call leads to the
operation that it waited for. Each nanosecond gets one link; the rest of a gap without evidence is unresolved.

Spans are half-open, times are int64 ns, -1 is none. Index spaces:

    op       row of the operation table.
    call     row of the call table.
    thread   row of the thread table.
    segment  row of the host segments: disjoint spans of a thread inside calls, by thread, then by time.
"""

from typing import Any

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

NOWHERE = cython.declare(i64, -1)
"""No operation to continue at: the gap is explained, or the evidence ends."""
HELD_WHILE_IDLE = cython.declare(i64, -2)
"""As the inferred producer: the device did nothing between the last known producer and the start."""
MOST_HOLDERS = cython.declare(i64, 8)
"""Threads that may hold each other up at one moment; nested calls can name each other in a circle."""
SAME_THREAD = cython.declare(i64, -2)
"""Continue on the thread."""


@cython.cclass
class Walk:
    """What a walk reads, the links it writes, and where it stands.

    The walk goes back in time, so links are written from the last row of their arrays to the first. Walk
    the gaps from the last to the first: then all links are in order of time.

    Args:
        operations: start int64[op], end int64[op], issuing call int32[op], operation before it in its
            stream int32[op], the one of its producers that is inferred int32[op], -1 without one, -2:
            `HELD_WHILE_IDLE`.
        producers: offsets int64[op + 1], and for each op the other operations it waits for, int32; -1:
            something unknown; the op itself: no other. An operation may occur twice.
        calls: start int64[call], end int64[call], thread int32[call], link kind int8[call].
            Then int32[call] each, -1 is none: row of what a blocking call waited for; the call of another
            thread whose lock it waited for. The last three are about its thread before it: the operation that
            it spun for; the call of another thread that held a lock; if it worked by itself, uint8[call].
        awaited: offsets int64[blocking + 1], and the operations each blocking call waited for, int32; -1:
            something unknown; whether that is inferred uint8[blocking]; when each began to wait
            int64[blocking], perhaps in earlier calls.
        segments: offsets int64[thread + 1], start int64[segment], end int64[segment], call int32[segment].
        issuers: end int64[n], ascending, and thread int32[n] of the calls that issued to this device.
        kinds: what is written as the kind of a link, in the order of the attributes below.
        limits: the three limits below, and a moment before all others, which is the slack of links
            that had no other constraint.
        links: gap int32, start int64, end int64, kind int8, op int32, next op int32, call int32,
            thread int32, slack int64, whether it rests on an inferred wait uint8, each [rows].
        most_steps: how many operations one gap is followed through.
    """

    op_start_ns: cython.const[i64][::1]
    op_end_ns: cython.const[i64][::1]
    op_call: cython.const[i32][::1]
    op_before: cython.const[i32][::1]
    op_inferred: cython.const[i32][::1]
    producer_ptr: cython.const[i64][::1]
    producer: cython.const[i32][::1]
    call_start_ns: cython.const[i64][::1]
    call_end_ns: cython.const[i64][::1]
    call_thread: cython.const[i32][::1]
    call_kind: cython.const[i8][::1]
    call_awaited: cython.const[i32][::1]
    call_holder: cython.const[i32][::1]
    call_spun: cython.const[i32][::1]
    call_let_go: cython.const[i32][::1]
    call_alone: cython.const[u8][::1]
    awaited_ptr: cython.const[i64][::1]
    awaited: cython.const[i32][::1]
    awaited_inferred: cython.const[u8][::1]
    entered_ns: cython.const[i64][::1]
    segment_ptr: cython.const[i64][::1]
    segment_start_ns: cython.const[i64][::1]
    segment_end_ns: cython.const[i64][::1]
    segment_call: cython.const[i32][::1]
    issuer_end_ns: cython.const[i64][::1]
    issuer_thread: cython.const[i32][::1]

    operation: i8
    dependency_latency: i8
    launch_latency: i8
    launch_call: i8
    synchronization: i8
    outside_calls: i8
    unresolved: i8

    tolerance_ns: i64
    longest_latency_ns: i64
    longest_unexplained_ns: i64
    before_all_ns: i64
    most_steps: i64

    link_gap: i32[::1]
    link_start_ns: i64[::1]
    link_end_ns: i64[::1]
    link_kind: i8[::1]
    link_op: i32[::1]
    link_next_op: i32[::1]
    link_call: i32[::1]
    link_thread: i32[::1]
    link_slack_ns: i64[::1]
    link_inferred: u8[::1]

    row: i64
    gap: i64
    gap_start_ns: i64
    at_ns: i64
    is_inferred: u8
    last: i64
    last_ns: i64
    second_ns: i64

    def __init__(
        self,
        operations: tuple[Any, ...],
        producers: tuple[Any, ...],
        calls: tuple[Any, ...],
        awaited: tuple[Any, ...],
        segments: tuple[Any, ...],
        issuers: tuple[Any, ...],
        kinds: tuple[Any, ...],
        limits: tuple[Any, ...],
        links: tuple[Any, ...],
        most_steps: i64,
    ) -> None:
        self.op_start_ns, self.op_end_ns, self.op_call, self.op_before, self.op_inferred = operations
        self.producer_ptr, self.producer = producers
        self.call_start_ns, self.call_end_ns, self.call_thread, self.call_kind = calls[:4]
        self.call_awaited, self.call_holder, self.call_spun, self.call_let_go, self.call_alone = calls[4:]
        self.awaited_ptr, self.awaited, self.awaited_inferred, self.entered_ns = awaited
        self.segment_ptr, self.segment_start_ns, self.segment_end_ns, self.segment_call = segments
        self.issuer_end_ns, self.issuer_thread = issuers
        self.operation, self.dependency_latency, self.launch_latency, self.launch_call = kinds[:4]
        self.synchronization, self.outside_calls, self.unresolved = kinds[4:]
        self.tolerance_ns, self.longest_latency_ns, self.longest_unexplained_ns = limits[:3]
        self.before_all_ns = limits[3]
        self.link_gap, self.link_start_ns, self.link_end_ns, self.link_kind = links[:4]
        self.link_op, self.link_next_op, self.link_call, self.link_thread, self.link_slack_ns = links[4:9]
        self.link_inferred = links[9]
        self.most_steps = most_steps
        self.row = len(links[0])

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def emit(
        self, kind: i8, start_ns: i64, op: i64, next_op: i64, call: i64, thread: i64, slack_ns: i64
    ) -> cython.void:
        """Give the time from a moment to where the walk stands to a link, and go to that moment.

        A link without room is counted, not written.
        """
        row: i64
        if start_ns < self.gap_start_ns:
            start_ns = self.gap_start_ns
        if start_ns >= self.at_ns:
            return
        self.row -= 1
        row = self.row
        if row >= 0:
            self.link_gap[row] = self.gap
            self.link_start_ns[row] = start_ns
            self.link_end_ns[row] = self.at_ns
            self.link_kind[row] = kind
            self.link_op[row] = op
            self.link_next_op[row] = next_op
            self.link_call[row] = call
            self.link_thread[row] = thread
            self.link_slack_ns[row] = slack_ns
            self.link_inferred[row] = self.is_inferred
        self.at_ns = start_ns

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def follow(self, op: i64) -> cython.void:
        """Explain the rest of a gap, from operation to operation."""
        steps: i64 = 0
        mark: i64 = NOWHERE
        mark_ns: i64 = 0
        while op >= 0 and self.at_ns > self.gap_start_ns and steps <= self.most_steps:
            op = self.before_operation(op)
            # Operations of no length can wait for each other in a circle. A mark that is set anew at each
            # power of two finds any circle without a memory of where the walk has been.
            if op == mark and self.at_ns == mark_ns:
                break
            steps += 1
            if steps & (steps - 1) == 0:
                mark = op
                mark_ns = self.at_ns
        self.emit(self.unresolved, self.gap_start_ns, -1, -1, -1, -1, self.before_all_ns)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def before_operation(self, op: i64) -> i64:
        """Explain the time before the start of an operation; return the operation to continue at."""
        start_ns: i64 = min(self.op_start_ns[op], self.at_ns)
        is_open: cython.bint = self.find_last_producer(op, start_ns)
        last: i64 = self.last
        call: i64 = self.op_call[op]
        thread: i64
        issued_ns: i64
        slack_ns: i64 = self.before_all_ns
        is_inside: cython.bint = False
        if call >= 0:
            # an operation may start before the call that issued it returns
            is_inside = self.call_end_ns[call] > start_ns
            issued_ns = self.call_start_ns[call] if is_inside else self.call_end_ns[call]
            if last < 0 or issued_ns > self.last_ns:
                if is_open and start_ns - issued_ns > self.longest_latency_ns:
                    return NOWHERE
                if last >= 0:
                    slack_ns = issued_ns - self.last_ns
                thread = self.call_thread[call]
                if self.op_inferred[op] == HELD_WHILE_IDLE and not is_inside:
                    self.emit(self.unresolved, issued_ns, -1, op, -1, -1, slack_ns)
                self.emit(
                    self.launch_call if is_inside else self.launch_latency,
                    issued_ns,
                    op,
                    -1,
                    call,
                    thread,
                    slack_ns,
                )
                return self.along_thread(thread)
            self.second_ns = max(self.second_ns, issued_ns)
        if last < 0 or (is_open and start_ns - self.last_ns > self.longest_latency_ns):
            return NOWHERE
        if self.second_ns != self.before_all_ns:
            slack_ns = self.last_ns - self.second_ns
        if last == self.op_inferred[op]:
            self.is_inferred = 1
        if start_ns - self.last_ns <= self.longest_unexplained_ns and self.op_inferred[op] != HELD_WHILE_IDLE:
            self.emit(self.dependency_latency, self.last_ns, last, op, -1, -1, slack_ns)
        elif is_inside:  # the call that issued it was still at work
            self.emit(self.call_kind[call], self.last_ns, op, -1, call, self.call_thread[call], slack_ns)
        elif self.op_inferred[op] == HELD_WHILE_IDLE:
            self.emit(self.unresolved, self.last_ns, -1, op, -1, -1, slack_ns)
        else:
            return NOWHERE
        self.emit(self.operation, self.op_start_ns[last], last, op, -1, -1, slack_ns)
        return last

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def find_last_producer(self, op: i64, start_ns: i64) -> cython.bint:
        """Find which of those that an operation waits for ended last; return whether one is unknown.

        An end after the start can count as the start. For the operation before it in the stream it always
        does, as a kernel may start before that ends (programmatic dependent launch). For others it does if
        the difference is within that of clocks. Those that ended or started later did not hold it back.
        """
        before: i64 = self.op_before[op]
        is_open: cython.bint = False
        place: i64
        other: i64
        end_ns: i64
        self.last = NOWHERE
        self.second_ns = self.before_all_ns
        if before >= 0:
            self.last = before
            self.last_ns = min(self.op_end_ns[before], start_ns)
        for place in range(self.producer_ptr[op], self.producer_ptr[op + 1]):
            other = self.producer[place]
            if other < 0:
                is_open = True
            elif other not in (op, before, self.last):
                end_ns = self.op_end_ns[other]
                if end_ns > start_ns + self.tolerance_ns or self.op_start_ns[other] > self.op_start_ns[op]:
                    continue
                end_ns = min(end_ns, start_ns)
                if self.last < 0:
                    self.last = other
                    self.last_ns = end_ns
                elif end_ns > self.last_ns or (end_ns == self.last_ns and other < self.last):
                    self.second_ns = self.last_ns
                    self.last = other
                    self.last_ns = end_ns
                else:
                    self.second_ns = max(self.second_ns, end_ns)
        return is_open

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def along_thread(self, thread: i64) -> i64:
        """Explain time along a thread; return the operation that a blocking call waited for."""
        first: i64
        segment: i64
        call: i64
        op: i64
        turns: i64 = 0
        since_ns: i64
        while self.at_ns > self.gap_start_ns:
            first = self.segment_ptr[thread]
            segment = (
                first_not_below(self.segment_start_ns, first, self.segment_ptr[thread + 1], self.at_ns) - 1
            )
            if segment < first:
                thread = self.before_segment(first, thread, self.before_all_ns)
            elif self.segment_end_ns[segment] < self.at_ns:
                op = self.spun_before(segment + 1, thread)
                if op != NOWHERE:
                    return op
                thread = self.before_segment(segment + 1, thread, self.segment_end_ns[segment])
            else:
                call = self.segment_call[segment]
                if self.call_awaited[call] < 0 and self.call_holder[call] >= 0 and turns < MOST_HOLDERS:
                    turns += 1
                    thread = self.to_holder(call, thread, self.segment_start_ns[segment])
                    continue
                turns = 0
                if self.call_awaited[call] < 0:
                    since_ns = self.segment_start_ns[segment]
                    self.emit(self.call_kind[call], since_ns, -1, -1, call, thread, self.before_all_ns)
                    continue
                op = self.inside_blocking_call(call, thread, self.segment_start_ns[segment])
                if op != SAME_THREAD:
                    return op
        return NOWHERE

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def spun_before(self, segment: i64, thread: i64) -> i64:
        """Explain the time before a segment in which a thread spun for the device; return that operation."""
        op: i64
        if segment >= self.segment_ptr[thread + 1] or self.segment_start_ns[segment] != self.at_ns:
            return NOWHERE
        op = self.call_spun[self.segment_call[segment]]
        if op < 0:
            return NOWHERE
        self.is_inferred = 1
        self.emit(self.outside_calls, self.op_end_ns[op], -1, -1, -1, thread, self.before_all_ns)
        self.emit(self.operation, self.op_start_ns[op], op, -1, -1, -1, self.before_all_ns)
        return op

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def before_segment(self, segment: i64, thread: i64, left_ns: i64) -> i64:
        """Explain the time before a segment, since the thread left its last call; return where to continue.

        If it waited for a lock, that is the thread whose call held it, unless that has issued since.
        """
        holder: i64
        issuer: i64 = first_not_below(self.issuer_end_ns, 0, self.issuer_end_ns.shape[0], self.at_ns) - 1
        if segment < self.segment_ptr[thread + 1] and self.segment_start_ns[segment] == self.at_ns:
            holder = self.call_let_go[self.segment_call[segment]]
            if (
                holder >= 0
                and left_ns < self.call_end_ns[holder] <= self.at_ns
                and (
                    issuer < 0
                    or self.issuer_thread[issuer] != self.call_thread[holder]
                    or self.issuer_end_ns[issuer] <= self.call_end_ns[holder]
                )
            ):
                self.is_inferred = 1
                self.emit(
                    self.outside_calls, self.call_end_ns[holder], -1, -1, -1, thread, self.before_all_ns
                )
                return self.call_thread[holder]
        if segment < self.segment_ptr[thread + 1] and self.call_alone[self.segment_call[segment]]:
            self.emit(self.outside_calls, left_ns, -1, -1, -1, thread, self.before_all_ns)
            return thread
        return self.outside(thread, left_ns)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def to_holder(self, call: i64, thread: i64, start_ns: i64) -> i64:
        """Explain a call that waited for a lock; return the thread to continue on: the one that held it.

        Where the walk stands before the holder's call, or that had returned long ago, it goes on as ever.
        """
        holder: i64 = self.call_holder[call]
        if self.call_start_ns[holder] >= self.at_ns or self.call_end_ns[holder] <= start_ns:
            self.emit(self.call_kind[call], start_ns, -1, -1, call, thread, self.before_all_ns)
            return thread
        self.is_inferred = 1
        self.emit(self.call_kind[call], self.call_end_ns[holder], -1, -1, call, thread, self.before_all_ns)
        return self.call_thread[holder]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def outside(self, thread: i64, left_ns: i64) -> i64:
        """Explain the time since a thread left its last call; return the thread to continue on.

        Where another thread issued to the device meanwhile, this one waited for it: the autograd thread of
        PyTorch issues while the main thread waits outside of CUDA.
        """
        issuer: i64 = first_not_below(self.issuer_end_ns, 0, self.issuer_end_ns.shape[0], self.at_ns) - 1
        other: i64
        first: i64
        behind: i64
        if issuer < 0 or self.issuer_end_ns[issuer] <= left_ns or self.issuer_thread[issuer] == thread:
            self.emit(self.outside_calls, left_ns, -1, -1, -1, thread, self.before_all_ns)
            return thread
        other = self.issuer_thread[issuer]
        left_ns = self.issuer_end_ns[issuer]
        # the other thread may have made calls since that issued nothing
        first = self.segment_ptr[other]
        behind = first_not_below(self.segment_end_ns, first, self.segment_ptr[other + 1], self.at_ns + 1)
        if behind > first:
            left_ns = max(left_ns, self.segment_end_ns[behind - 1])
        self.emit(self.outside_calls, left_ns, -1, -1, -1, thread, self.before_all_ns)
        return other

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def kind_of_return(self, call: i64) -> i8:
        """Return what the time of a blocking call is behind what it waited for; a launch stays one."""
        return self.launch_call if self.call_kind[call] == self.launch_call else self.synchronization

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def inside_blocking_call(self, call: i64, thread: i64, start_ns: i64) -> i64:
        """Explain a blocking call; return the operation that it waited for.

        Where that had ended before the call began, the call takes the time, and the thread goes on.
        """
        last: i64 = NOWHERE
        last_ns: i64 = self.before_all_ns
        blocking: i64 = self.call_awaited[call]
        entered_ns: i64 = self.entered_ns[blocking]
        is_run: cython.bint = entered_ns < self.call_start_ns[call]
        is_open: cython.bint = False
        place: i64
        other: i64
        for place in range(self.awaited_ptr[blocking], self.awaited_ptr[blocking + 1]):
            other = self.awaited[place]
            if other < 0:
                is_open = True
            elif (
                last < 0
                or self.op_end_ns[other] > last_ns
                or (self.op_end_ns[other] == last_ns and other < last)
            ):
                last = other
                last_ns = self.op_end_ns[other]
        if is_open and not 0 <= self.at_ns - last_ns <= self.longest_latency_ns:
            return NOWHERE
        if last >= 0 and self.awaited_inferred[blocking]:
            self.is_inferred = 1
        if last < 0 or last_ns <= (entered_ns if is_run else max(entered_ns, start_ns)):
            self.emit(self.kind_of_return(call), start_ns, -1, -1, call, thread, self.before_all_ns)
            return SAME_THREAD
        self.emit(self.kind_of_return(call), last_ns, last, -1, call, thread, last_ns - entered_ns)
        self.emit(self.operation, self.op_start_ns[last], last, -1, call, -1, last_ns - entered_ns)
        return last


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def first_not_below(values: cython.const[i64][::1], low: i64, high: i64, limit: i64) -> i64:
    """Return the first place from `low` to `high` whose value is not below a limit; values ascend."""
    middle: i64
    while low < high:
        middle = (low + high) // 2
        if values[middle] < limit:
            low = middle + 1
        else:
            high = middle
    return low


def walk_gaps(
    walk: Walk,
    count: i64,
    gap_start_ns: cython.const[i64][::1],
    gap_end_ns: cython.const[i64][::1],
    gap_op: cython.const[i32][::1],
    gap_runs: cython.const[i32][::1],
) -> int:
    """Write the links of all gaps; return how many there are, those without room too.

    If there is room for all, the last rows of the arrays of links tile the gaps in order of time.

    Args:
        walk: a new walk.
        count: how many gaps there are.
        gap_start_ns: int64[count or more], as `slicing.find_gaps` writes it.
        gap_end_ns: the same for the ends.
        gap_op: int32, the same for the operations that end gaps.
        gap_runs: int32, the same for the operations that ran behind the last compute.
    """
    row: cython.Py_ssize_t
    w: Walk = walk
    issuers: i64 = w.issuer_thread.shape[0]
    with cython.nogil:
        for row in range(count - 1, -1, -1):
            w.gap = gap_op[row]
            w.is_inferred = 0
            w.gap_start_ns = gap_start_ns[row]
            w.at_ns = gap_end_ns[row]
            if gap_runs[row] >= 0:
                w.emit(w.operation, w.gap_start_ns, gap_runs[row], -1, -1, -1, w.before_all_ns)
            elif gap_op[row] >= 0:
                w.follow(gap_op[row])
            else:  # no operation ends this idle time: it is that of the thread that issued last
                w.follow(w.along_thread(w.issuer_thread[issuers - 1]) if issuers else NOWHERE)
    return w.link_gap.shape[0] - w.row
