"""Order inside and between CUDA streams: what has to end before a stream has finished its earlier work.

A stream does what it is given in order. Its tail at a moment of the host is the last operation issued
before, and the tails of the events that the stream was made to wait for since. A recorded event stands
for the tail of its stream, so records and waits are settled together, in order of time.

Times are int64 ns. Index spaces:

    op      row of the operation table.
    stream  dense number of a stream, also of those that ran no operation.
    wait    a wait of a stream for an event, by stream, then by time.
    record  row of the table of records of events.

A set of operations holds each once; of more than a few the latest-ending are kept, as whoever waits for
them has waited for the others. -1 in a set: something unknown.
"""

from typing import Any

try:
    import cython
except ImportError:  # runs as plain Python without Cython
    from wallscope.kernels import plain as cython

if cython.compiled:
    from cython.cimports.libc.stdint import int32_t as i32
    from cython.cimports.libc.stdint import int64_t as i64
else:
    i32, i64 = cython.int, cython.longlong

UNKNOWN = cython.declare(i64, -1)
"""As the record of a wait: not found."""
NOTHING = cython.declare(i64, -2)
"""As the record of a wait: none is needed, the event was complete."""


def order_operations(
    stream: cython.const[i32][::1],
    issue_ns: cython.const[i64][::1],
    latest: i32[::1],
    before: i32[::1],
    issued_ns: i64[::1],
) -> None:
    """Write the operation before each in its stream, -1 without one, and when each was issued.

    What a stream does later was issued later: clocks that say otherwise are overruled.

    Args:
        stream: int32[op]; operations of a stream in order.
        issue_ns: int64[op], start of the call that issued it.
        latest: int32[stream], filled with -1; working space.
        before: int32[op], op, filled.
        issued_ns: int64[op], filled.
    """
    op: cython.Py_ssize_t
    earlier: i32
    with cython.nogil:
        for op in range(stream.shape[0]):
            earlier = latest[stream[op]]
            before[op] = earlier
            issued_ns[op] = issue_ns[op]
            if earlier >= 0 and issued_ns[earlier] > issued_ns[op]:
                issued_ns[op] = issued_ns[earlier]
            latest[stream[op]] = cython.cast(i32, op)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def count_before(time_ns: cython.const[i64][::1], low: i64, high: i64, at_ns: i64) -> i64:
    """Return the row behind the last one before a moment, of rows in ascending order."""
    middle: i64
    while low < high:
        middle = (low + high) // 2
        if time_ns[middle] < at_ns:
            low = middle + 1
        else:
            high = middle
    return low


@cython.cclass
class Streams:
    """What streams were given, and what their waits and records stand for.

    Args:
        operations: issue int64[op], as `order_operations` writes it; end int64[op].
        given: offsets int64[stream + 1]; the operations of each stream in order, int32.
        joined: operations int32[n], ascending; offsets int64[n + 1]; the operations of other streams that
            have to end too before a stream is through with one of them, int32.
        waits: offsets int64[stream + 1]; time int64[wait]; stream int32[wait]; record int32[wait], `UNKNOWN`
            or `NOTHING`.
        records: time int64[record]; offsets int64[stream + 1] and streams, int32: whose tails a record on
            each stream stands for; stream int32[record], -1 if unknown.
        sets: first and last row, int64[wait], of the tail after each wait. The same, int64[record], for the
            tail that each record stands for. Then the rows, int32, with room for `most` and one of each.
        next_op: int32[wait], the first operation of its stream that comes behind a wait, -1 without one.
        most: how many operations a set holds.
    """

    issued_ns: cython.const[i64][::1]
    end_ns: cython.const[i64][::1]
    given_ptr: cython.const[i64][::1]
    given: cython.const[i32][::1]
    joined_op: cython.const[i32][::1]
    joined_ptr: cython.const[i64][::1]
    joined: cython.const[i32][::1]
    wait_ptr: cython.const[i64][::1]
    wait_ns: cython.const[i64][::1]
    wait_stream: cython.const[i32][::1]
    wait_record: cython.const[i32][::1]
    record_ns: cython.const[i64][::1]
    scope_ptr: cython.const[i64][::1]
    scope: cython.const[i32][::1]
    record_stream: cython.const[i32][::1]
    wait_first: i64[::1]
    wait_last: i64[::1]
    record_first: i64[::1]
    record_last: i64[::1]
    sets: i32[::1]
    next_op: i32[::1]
    most: i64

    written: i32[::1]
    first: i64
    count: i64

    def __init__(
        self,
        operations: tuple[Any, ...],
        given: tuple[Any, ...],
        joined: tuple[Any, ...],
        waits: tuple[Any, ...],
        records: tuple[Any, ...],
        sets: tuple[Any, ...],
        next_op: i32[::1],
        most: i64,
    ) -> None:
        self.issued_ns, self.end_ns = operations
        self.given_ptr, self.given = given
        self.joined_op, self.joined_ptr, self.joined = joined
        self.wait_ptr, self.wait_ns, self.wait_stream, self.wait_record = waits
        self.record_ns, self.scope_ptr, self.scope, self.record_stream = records
        self.wait_first, self.wait_last, self.record_first, self.record_last, self.sets = sets
        self.next_op = next_op
        self.most = most
        self.written = self.sets
        self.first = self.count = 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def add(self, op: i32) -> cython.void:
        """Add an operation, or something unknown, to the set that is being written."""
        row: i64
        held: i32
        worst: i64 = -1
        operations: i64 = 0
        for row in range(self.first, self.count):
            held = self.written[row]
            if held == op:
                return
            if held >= 0:
                operations += 1
                if worst < 0 or self.ends_before(held, self.written[worst]):
                    worst = row
        if op >= 0 and operations == self.most:
            if self.ends_before(self.written[worst], op):
                self.written[worst] = op
            return
        self.written[self.count] = op
        self.count += 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def ends_before(self, one: i32, other: i32) -> cython.bint:
        """Return whether an operation ends before another; of those that end together the later one."""
        if self.end_ns[one] == self.end_ns[other]:
            return one > other
        return self.end_ns[one] < self.end_ns[other]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def add_all(self, first: i64, last: i64) -> cython.void:
        """Add what another set holds."""
        row: i64
        for row in range(first, last):
            self.add(self.sets[row])

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def find_given_before(self, stream: i64, at_ns: i64) -> i64:
        """Return the row behind the last operation that a stream was given before a moment."""
        low: i64 = self.given_ptr[stream]
        high: i64 = self.given_ptr[stream + 1]
        middle: i64
        while low < high:
            middle = (low + high) // 2
            if self.issued_ns[self.given[middle]] < at_ns:
                low = middle + 1
            else:
                high = middle
        return low

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def waits_before(self, stream: i64, at_ns: i64) -> i64:
        """Return the wait behind the last one that a stream was given before a moment."""
        return count_before(self.wait_ns, self.wait_ptr[stream], self.wait_ptr[stream + 1], at_ns)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def add_tail(self, stream: i64, behind_op: i64, behind_wait: i64) -> cython.void:
        """Add the tail of a stream behind some of its operations and waits, by the rows behind those."""
        op: i32 = -1
        low: i64 = 0
        high: i64 = self.joined_op.shape[0]
        row: i64
        if behind_op > self.given_ptr[stream]:
            op = self.given[behind_op - 1]
        if behind_wait > self.wait_ptr[stream] and (
            op < 0 or self.wait_ns[behind_wait - 1] >= self.issued_ns[op]
        ):
            self.add_all(self.wait_first[behind_wait - 1], self.wait_last[behind_wait - 1])
        elif op >= 0:
            self.add(op)
            while low < high:
                row = (low + high) // 2
                if self.joined_op[row] < op:
                    low = row + 1
                else:
                    high = row
            if low < self.joined_op.shape[0] and self.joined_op[low] == op:
                for row in range(self.joined_ptr[low], self.joined_ptr[low + 1]):
                    self.add(self.joined[row])

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def add_tail_at(self, stream: i64, at_ns: i64) -> cython.void:
        """Add the tail of a stream at a moment."""
        self.add_tail(stream, self.find_given_before(stream, at_ns), self.waits_before(stream, at_ns))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def settle_record(self, record: i64) -> cython.void:
        """Write what a record stands for; the waits before it are settled."""
        stream: i64 = self.record_stream[record]
        row: i64
        self.first = self.count
        if stream < 0:
            self.add(-1)
        else:
            for row in range(self.scope_ptr[stream], self.scope_ptr[stream + 1]):
                self.add_tail_at(self.scope[row], self.record_ns[record])
        self.record_first[record] = self.first
        self.record_last[record] = self.count

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def settle_wait(self, wait: i64) -> cython.bint:
        """Write the tail of a stream behind a wait; return whether all that it waits for is known.

        The waits of the stream before it and its record are settled.
        """
        stream: i64 = self.wait_stream[wait]
        record: i64 = self.wait_record[wait]
        following: i64 = self.find_given_before(stream, self.wait_ns[wait])
        row: i64
        is_known: cython.bint = record != UNKNOWN
        self.next_op[wait] = self.given[following] if following < self.given_ptr[stream + 1] else -1
        self.first = self.count
        self.add_tail(stream, self.find_given_before(stream, self.wait_ns[wait] + 1), wait)
        if record == UNKNOWN:
            self.add(-1)
        elif record != NOTHING:
            self.add_all(self.record_first[record], self.record_last[record])
            for row in range(self.record_first[record], self.record_last[record]):
                if self.sets[row] < 0:
                    is_known = False
        self.wait_first[wait] = self.first
        self.wait_last[wait] = self.count
        return is_known


def settle_events(streams: Streams, records: cython.const[i64][::1], waits: cython.const[i64][::1]) -> int:
    """Write the sets of all waits and records; return how many waits are for what is known.

    A wait looks at records made before it or at its moment, a record at waits before it.

    Args:
        streams: with the sets to write.
        records: int64[record], the records in order of time.
        waits: int64[wait], the waits in order of time, those of a stream in their order.
    """
    record: cython.Py_ssize_t = 0
    wait: cython.Py_ssize_t = 0
    known: cython.Py_ssize_t = 0
    with cython.nogil:
        while record < records.shape[0] or wait < waits.shape[0]:
            if wait == waits.shape[0] or (
                record < records.shape[0]
                and streams.record_ns[records[record]] <= streams.wait_ns[waits[wait]]
            ):
                streams.settle_record(records[record])
                record += 1
            else:
                known += streams.settle_wait(waits[wait])
                wait += 1
    return known


def find_tails(
    streams: Streams,
    scope_ptr: cython.const[i64][::1],
    scope: cython.const[i32][::1],
    asked: cython.const[i32][::1],
    at_ns: cython.const[i64][::1],
    ptr: i64[::1],
    found: i32[::1],
) -> None:
    """Write what has to end before groups of streams have finished all work given to them before moments.

    Args:
        streams: settled.
        scope_ptr: int64[group + 1], offsets.
        scope: int32, the streams of each group.
        asked: int32[n], the group of each question; -1: no stream.
        at_ns: int64[n], its moment.
        ptr: int64[n + 1], offsets of the answers, filled.
        found: int32[n times the most of a set and one], the operations of each answer, filled.
    """
    place: cython.Py_ssize_t
    row: i64
    with cython.nogil:
        streams.written = found
        streams.count = 0
        ptr[0] = 0
        for place in range(asked.shape[0]):
            streams.first = streams.count
            if asked[place] >= 0:
                for row in range(scope_ptr[asked[place]], scope_ptr[asked[place] + 1]):
                    streams.add_tail_at(scope[row], at_ns[place])
            ptr[place + 1] = streams.count


def pair_waits(streams: Streams, op: i32[::1], producer: i32[::1]) -> int:
    """Write who waits for whom because of waits: pairs of operations; return how many there are.

    A wait holds back the first operation behind it alone: what follows has waited for that. An operation
    that waits for no other is paired with itself.

    Args:
        streams: settled.
        op: int32[wait times the most of a set and one], op, filled from the front.
        producer: the same for whom it waits, -1 if unknown.
    """
    wait: cython.Py_ssize_t
    row: i64
    record: i64
    count: i64 = 0
    held: i32
    with cython.nogil:
        for wait in range(streams.wait_ns.shape[0]):
            held = streams.next_op[wait]
            if held < 0:
                continue
            record = streams.wait_record[wait]
            if record >= 0:
                for row in range(streams.record_first[record], streams.record_last[record]):
                    op[count] = held
                    producer[count] = streams.sets[row]
                    count += 1
            if record < 0 or streams.record_first[record] == streams.record_last[record]:
                op[count] = held
                producer[count] = -1 if record == UNKNOWN else held
                count += 1
    return count


def pair_streams(
    streams: Streams,
    earlier: cython.const[i32][::1],
    later: cython.const[i32][::1],
    tail: i32[::1],
    op: i32[::1],
    producer: i32[::1],
) -> int:
    """Write who waits for whom because streams keep order with each other; return how many pairs there are.

    An operation waits for the tail of the other stream if something was issued to that since the operation
    before. One that waits for no other is paired with itself.

    Args:
        streams: settled.
        earlier: int32[n], the stream that is waited for.
        later: int32[n], the stream whose operations wait.
        tail: int32[the most of a set and one], working space.
        op: int32[room], op, filled from the front, as far as there is room.
        producer: the same for whom it waits, -1 if unknown.
    """
    place: cython.Py_ssize_t
    row: i64
    held: i64
    behind_op: i64
    behind_wait: i64
    given: i64
    count: i64 = 0
    with cython.nogil:
        streams.written = tail
        for place in range(earlier.shape[0]):
            given = streams.given_ptr[earlier[place]] + streams.wait_ptr[earlier[place]]
            for row in range(streams.given_ptr[later[place]], streams.given_ptr[later[place] + 1]):
                behind_op = streams.find_given_before(earlier[place], streams.issued_ns[streams.given[row]])
                behind_wait = streams.waits_before(earlier[place], streams.issued_ns[streams.given[row]])
                if behind_op + behind_wait == given:
                    continue
                given = behind_op + behind_wait
                streams.first = streams.count = 0
                streams.add_tail(earlier[place], behind_op, behind_wait)
                if streams.count == 0:
                    tail[0] = streams.given[row]
                    streams.count = 1
                for held in range(streams.count):
                    if count < op.shape[0]:
                        op[count] = streams.given[row]
                        producer[count] = tail[held]
                    count += 1
    return count


def find_latest(
    ptr: cython.const[i64][::1],
    time_ns: cython.const[i64][::1],
    group: cython.const[i32][::1],
    at_ns: cython.const[i64][::1],
    found: i64[::1],
) -> None:
    """Write the last row of a group before each moment, -1 without one.

    Args:
        ptr: int64[group + 1], offsets of the rows of each group.
        time_ns: int64[row], ascending in each group.
        group: int32[n], the group of each question; a negative or unknown one has no rows.
        at_ns: int64[n], its moment.
        found: int64[n], row, filled.
    """
    place: cython.Py_ssize_t
    row: i64
    with cython.nogil:
        for place in range(group.shape[0]):
            found[place] = -1
            if group[place] < 0 or group[place] >= ptr.shape[0] - 1:
                continue
            row = count_before(time_ns, ptr[group[place]], ptr[group[place] + 1], at_ns[place])
            if row > ptr[group[place]]:
                found[place] = row - 1
