"""Random traces: programs of a few threads played by a little scheduler, and rows without any sense."""

from collections import defaultdict
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st

from tests.attribution.brute_trace import (
    BLOCKING,
    NONBLOCKING,
    NULL,
    Call,
    HostRow,
    Op,
    Range,
    Record,
    Sync,
    Trace,
    in_order,
)

SHORT = st.integers(0, 12)
TIMES = st.one_of(SHORT, SHORT, SHORT, st.sampled_from([1_990, 2_010, 19_990, 25_000]))
STREAMS = st.integers(0, 2)
WAITED = st.sampled_from(["device>pageable", "pageable>device"])
FREE = st.sampled_from(["device>pinned", "pinned>device", "device>device"])
MOVES = st.one_of(st.just(""), WAITED, FREE)
TOLD_ROWS = st.sampled_from(["number", "handle", "none"])
ANY_ROWS = st.sampled_from(["number", "handle", "order", "none"])
FIRST_NUMBER = 40
FACTORS = st.sampled_from([1_000, 1_999, 2_500, 5_000, 7_000])
"""From programs of tens of nanoseconds to some of tens of microseconds."""


@dataclass(frozen=True)
class Action:
    """What a thread does next: `before` outside of calls, then a call of some length."""

    what: str
    thread: int
    before: int
    length: int
    stream: int = 0
    kind: str = "compute"
    duration: int = 0
    latency: int = 0
    lag: int = 0
    event: int = 0
    early: bool = False  # a programmatic launch, or one that starts inside its call
    blocks: bool = False
    nested: str = ""  # a call inside the call
    unseen: bool = False  # its call was made before the capture
    moves: str = ""  # the memory at both ends of a copy


def actions(threads: int) -> st.SearchStrategy[list[Action]]:
    """What a few threads do."""
    where = {"thread": st.integers(0, threads - 1), "before": TIMES, "length": st.integers(1, 9)}
    kinds = st.sampled_from(["compute", "compute", "communication", "copy"])
    run = {"stream": STREAMS, "duration": TIMES, "latency": SHORT, "lag": SHORT}
    launch = st.builds(
        Action,
        what=st.just("launch"),
        kind=st.one_of(kinds, st.sampled_from([*(["compute"] * 3), "opaque_graph"])),
        early=st.booleans(),
        nested=st.sampled_from(["", "", "alloc", "other"]),
        unseen=st.sampled_from([False] * 9 + [True]),
        **where,
        **run,
    )
    copied = {"kind": st.just("copy"), **where, **run}
    copy = st.one_of(
        st.builds(Action, what=st.just("copy"), blocks=st.booleans(), **copied),
        st.builds(
            Action, what=st.sampled_from(["copy", "memcpy"]), blocks=st.just(True), moves=WAITED, **copied
        ),
        st.builds(Action, what=st.just("copy"), moves=FREE, **copied),
    )
    event = st.builds(
        Action, what=st.sampled_from(["record", "wait"]), event=st.integers(0, 1), stream=STREAMS, **where
    )
    blocking = st.builds(
        Action,
        what=st.sampled_from(["stream", "event", "context"]),
        event=st.integers(0, 1),
        stream=STREAMS,
        latency=SHORT,
        **where,
    )
    other = st.builds(Action, what=st.sampled_from(["alloc", "other", "query"]), stream=STREAMS, **where)
    some = st.lists(
        st.one_of(launch, launch, launch, copy, event, event, blocking, other), min_size=3, max_size=22
    )
    return st.tuples(some, st.lists(launch, min_size=3, max_size=4)).map(lambda parts: parts[0] + parts[1])


@dataclass
class Played:
    """What a program has left so far."""

    ops: list[Op] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    syncs: list[Sync] = field(default_factory=list)
    ends: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))  # of a stream's tail
    events: dict[int, tuple[int, list[int]]] = field(default_factory=dict)  # number and tail
    before: list[int | None] = field(default_factory=list)  # when all was done that each operation waits for
    waited: dict[int, int] = field(default_factory=dict)  # when all was done that a call waits for


def played(program: list[Action], flags: dict[int, str]) -> Played:
    """Let the threads go, the one whose next call begins first."""
    left = Played()
    queues = defaultdict(list)
    for action in program:
        queues[action.thread].append(action)
    clock, last = defaultdict(int), 0
    while any(queues.values()):
        begins, thread = min((clock[one] + queues[one][0].before, one) for one in queues if queues[one])
        action, last = queues[thread].pop(0), max(begins, last + 1)
        clock[thread] = _made(left, action, last, flags)
    return left


def _made(left: Played, action: Action, at: int, flags: dict[int, str]) -> int:
    """Make one call; returns when it ends."""
    number, end = len(left.calls), at + action.length
    if action.what in {"launch", "copy", "memcpy"}:
        end = _issue(left, action, at, number, flags)
        if action.unseen:
            return end
    elif action.what == "record":
        count = FIRST_NUMBER + len(left.records)
        left.events[action.event] = (count, _tail(left, action.stream, flags))
        left.records.append(Record(number, action.stream, action.event, count))
    elif action.what == "query":
        return _asked(left, action, at, flags)
    elif action.what not in {"other", "alloc"}:
        event, ends = left.events.get(action.event, (FIRST_NUMBER - 1, []))
        if action.what == "wait":
            left.ends[action.stream] += ends
        else:
            all_ends = [end for held in left.ends.values() for end in held]
            of_kind = {"stream": _tail(left, action.stream, flags), "event": ends, "context": all_ends}
            ends = of_kind[action.what]
            if ends:
                left.waited[number] = max(ends)
            end = max([end, *(one + action.latency for one in ends)])
        is_event = action.what not in {"stream", "context"}
        left.syncs.append(
            Sync(
                number,
                action.what,
                action.stream if action.what in {"stream", "wait"} else None,
                action.event if is_event else None,
                event if is_event else None,
            )
        )
    left.calls.append(Call(action.thread, at, end, action.what))
    if action.nested and end - at > 2:
        left.calls.append(Call(action.thread, at + 1, end - 1, action.nested))
    return end


def _asked(left: Played, action: Action, at: int, flags: dict[int, str]) -> int:
    """Ask for a stream again and again; returns when the last query ends."""
    start, ends = at, _tail(left, action.stream, flags)
    for _ in range(action.length % 4):
        left.calls.append(Call(action.thread, start, start + action.length, "query"))
        start += action.length + action.length % 3
    end = max([start + action.length, *(one + 1 for one in ends if one <= start + 20)])
    left.calls.append(Call(action.thread, start, end, "query"))
    return end


def _issue(left: Played, action: Action, at: int, number: int, flags: dict[int, str]) -> int:
    """Run an operation; returns when the call ends that issues it."""
    end = at + action.length
    waited = _tail(left, action.stream, flags)
    submitted = at + min(action.latency, action.length) if action.early else end + action.latency
    first = max([submitted, *waited])
    left.before.append(max(waited, default=None))
    start = first + action.lag
    finish = start + action.duration
    is_blocking = action.what != "launch" and action.blocks
    call = -1 if action.unseen else number
    left.ops.append(Op(action.stream, start, finish, action.kind, call, moves=action.moves))
    left.ends[action.stream] = [finish]
    return max(end, finish + 1) if is_blocking else end


def _tail(left: Played, stream: int, flags: dict[int, str]) -> list[int]:
    """When all ends that a stream holds, and what it waits for as null streams and blocking ones do."""
    others = [end for other in _ordered_with(stream, flags) for end in left.ends[other]]
    return [*left.ends[stream], *others]


def _ordered_with(stream: int, flags: dict[int, str]) -> list[int]:
    opposite = {NULL: BLOCKING, BLOCKING: NULL}.get(flags.get(stream, ""))
    return [other for other, flag in flags.items() if flag == opposite]


FLAGS = st.fixed_dictionaries(
    {}, optional={stream: st.sampled_from([BLOCKING, NONBLOCKING]) for stream in (1, 2)} | {0: st.just(NULL)}
)


@st.composite
def possible(draw: st.DrawFn, rows: st.SearchStrategy[str] = TOLD_ROWS) -> Trace:
    """Traces of programs that can run; `rows` tells what exports hold of events."""
    flags = draw(FLAGS)
    left = played(draw(actions(draw(st.integers(1, 3)))), flags)
    return in_order(seen(left, flags, draw(rows)))


def seen(left: Played, flags: dict[int, str], rows: str) -> Trace:
    """What an export holds of it."""
    records, syncs = tuple(left.records), tuple(left.syncs)
    if rows == "handle":
        records = tuple(row._replace(number=None) for row in records)
        syncs = tuple(row._replace(number=None) for row in syncs)
    elif rows == "order":
        records = ()
    elif rows == "none":
        records = syncs = ()
    return Trace(tuple(left.ops), tuple(left.calls), records, syncs, flags)


SAME_EACH_TIME = settings(derandomize=settings.default.max_examples < 100)
"""The few examples of an ordinary run are the same each time: where operations have no length, the walks
rarely differ. Runs with more examples draw new ones."""


@st.composite
def stretched(
    draw: st.DrawFn, traces: st.SearchStrategy[Trace], factors: st.SearchStrategy[int] = FACTORS
) -> Trace:
    """Traces with times so long that the limits of hand-overs and of calls that are held are reached."""
    trace, by = draw(traces), draw(factors)

    def longer(held):
        return tuple(row._replace(start=row.start * by, end=row.end * by) for row in held)

    held = {name: longer(getattr(trace, name)) for name in ("ops", "calls", "host", "ranges")}
    return in_order(replace(trace, **held))


@st.composite
def unrecorded(draw: st.DrawFn) -> Trace:
    """Traces in microseconds of threads far ahead of the device or held, in exports without rows of waits."""
    thread, brief = st.integers(0, 1), st.integers(0, 2)
    lasting = st.sampled_from([1, 2, 3, 49, 50, 55, 60, 70])
    is_ahead = draw(st.booleans())
    before = st.just(0) if is_ahead else st.sampled_from([0, 0, 1, 2, 55])
    where = {"thread": st.just(0) if is_ahead else thread, "before": before, "stream": STREAMS}
    launch = st.builds(
        Action,
        what=st.just("launch"),
        kind=st.sampled_from(["compute", "compute", "communication", "copy"]),
        length=st.just(1) if is_ahead else st.sampled_from([1, 1, 1, 2, 50, 60]),
        duration=st.sampled_from([1, 5, 15, 25, 40, 60]),
        latency=brief,
        lag=st.sampled_from([0, 1, 2, 9, 11]),
        unseen=st.just(False) if is_ahead else st.sampled_from([False] * 9 + [True]),
        **where,
    )
    event = st.builds(
        Action,
        what=st.sampled_from(["record", "wait"]),
        event=st.just(0),
        length=st.just(1),
        **where,
    )
    held = st.builds(
        Action,
        what=st.sampled_from(["alloc", "other", "context"]),
        length=lasting,
        latency=brief,
        **where,
    )
    asked = st.builds(Action, what=st.just("query"), length=st.sampled_from([18, 22, 50]), **where)
    others = launch if is_ahead else st.one_of(held, held, asked)
    some = st.lists(st.one_of(launch, launch, event, others), min_size=4, max_size=24)
    program = draw(some) * draw(st.integers(1, 3)) + draw(st.lists(launch, min_size=3, max_size=3))
    rows = draw(st.sampled_from(["none", "number"]))
    trace = draw(
        stretched(
            st.just(in_order(seen(played(program, {}), {}, rows))), st.sampled_from([999, 1_000, 1_001])
        )
    )
    names = st.just("a") if draw(st.booleans()) else st.sampled_from(["", "a", "b"])
    named = draw(st.lists(names, min_size=len(trace.ops), max_size=len(trace.ops)))
    ops = (
        op._replace(name=name if op.kind == "compute" else "")
        for op, name in zip(trace.ops, named, strict=True)
    )
    return replace(trace, ops=tuple(ops))


@st.composite
def jittered(draw: st.DrawFn) -> Trace:
    """Traces whose device clock runs off by a bit, or by much."""
    trace = draw(possible())
    off = st.sampled_from([0, 0, 0, -3, 3, -1_500, 2_500])
    ops = []
    for op in trace.ops:
        start = op.start + draw(off)
        ops.append(op._replace(start=start, end=max(start, op.end + draw(off))))
    return in_order(replace(trace, ops=tuple(ops)))


@st.composite
def programmatic(draw: st.DrawFn) -> Trace:
    """Traces in which some operations start before the one before them on their stream has ended."""
    trace = draw(possible())
    ops, reached = [], {}
    for op in trace.ops:
        earliest = reached.get(op.stream, op.start)
        start = draw(st.integers(min(earliest, op.start), op.start)) if draw(st.booleans()) else op.start
        ops.append(op._replace(start=start))
        reached[op.stream] = start
    return in_order(replace(trace, ops=tuple(ops)))


MOMENTS = st.integers(0, 60)


@st.composite
def senseless(draw: st.DrawFn) -> Trace:
    """Rows that no machine could leave."""
    threads = st.integers(0, 2)
    spans = st.tuples(MOMENTS, st.one_of(SHORT, SHORT, st.just(3_000)))
    whats = [
        "launch",
        "launch",
        "copy",
        "memcpy",
        "alloc",
        "record",
        "wait",
        "stream",
        "event",
        "context",
        "other",
    ]
    drawn = draw(st.lists(st.tuples(threads, spans, st.sampled_from(whats)), max_size=14))
    calls = [Call(thread, start, start + length, what) for thread, (start, length), what in drawn]
    issuing = [row for row, call in enumerate(calls) if call.what in {"launch", "copy", "memcpy"}]
    kinds = st.sampled_from(["compute", "compute", "communication", "copy", "opaque_graph"])
    ops = draw(
        st.lists(
            st.tuples(STREAMS, spans, kinds, st.sampled_from([-1, *issuing]), st.booleans(), MOVES),
            min_size=1,
            max_size=12,
        )
    )
    events, numbers = st.integers(0, 1), st.one_of(st.none(), st.integers(0, 5))
    records, syncs = [], []
    for row, call in enumerate(calls):
        if call.what == "record" and draw(st.booleans()):
            records.append(Record(row, draw(STREAMS), draw(events), draw(numbers)))
        if call.what in {"wait", "stream", "event", "context"} and draw(st.booleans()):
            stream = draw(st.one_of(st.none(), STREAMS))
            syncs.append(Sync(row, call.what, stream, draw(events), draw(numbers)))
    host = draw(st.lists(st.tuples(threads, spans, st.sampled_from(["lock", "io", "profiler"])), max_size=4))
    ranges = draw(
        st.lists(st.tuples(threads, spans, st.sampled_from(["layer", "gc", "next_batch"])), max_size=4)
    )
    return in_order(
        Trace(
            tuple(
                Op(
                    stream,
                    start,
                    start + length,
                    kind,
                    call,
                    again and kind == "compute",
                    moves=moves if kind == "copy" else "",
                )
                for stream, (start, length), kind, call, again, moves in ops
            ),
            tuple(calls),
            tuple(records),
            tuple(syncs),
            draw(FLAGS),
            tuple(
                HostRow(thread, start, start + length, kind, "read") for thread, (start, length), kind in host
            ),
            tuple(Range(thread, start, start + length, name) for thread, (start, length), name in ranges),
        )
    )


@st.composite
def busy_hosts(draw: st.DrawFn, traces: st.SearchStrategy[Trace]) -> Trace:
    """Traces with recomputed and unknown work, and threads that wait for the system or are profiled."""
    trace = draw(traces)
    latest = max(row.end for row in (*trace.ops, *trace.calls))
    moments = st.integers(0, min(latest, 80))
    rows = st.tuples(
        st.integers(0, 2),
        moments,
        moments,
        st.sampled_from(["lock"] * 4 + ["io", "profiler"]),
        st.sampled_from(["read", "recvmsg"]),
    )
    host = tuple(
        HostRow(thread, min(sides), max(sides), kind, text)
        for thread, *sides, kind, text in draw(st.lists(rows, max_size=8))
    )
    told = st.tuples(st.booleans(), st.booleans())
    flags = draw(st.lists(told, min_size=len(trace.ops), max_size=len(trace.ops)))
    ops = tuple(
        op._replace(again=again and op.kind == "compute", unknown=unknown and op.kind == "compute")
        for op, (again, unknown) in zip(trace.ops, flags, strict=True)
    )
    return in_order(replace(trace, ops=ops, host=host, peers=draw(st.booleans())))


@st.composite
def without_ties(draw: st.DrawFn, traces: st.SearchStrategy[Trace]) -> Trace:
    """Traces in which no two rows begin or end at one moment."""
    trace = draw(traces)
    rows = sum(len(held) for held in (trace.ops, trace.calls, trace.host, trace.ranges))
    numbers = iter(range(rows))

    def apart(held):
        return tuple(
            row._replace(start=row.start * rows + number, end=row.end * rows + number)
            for row, number in zip(held, numbers, strict=False)
        )

    held = {name: apart(getattr(trace, name)) for name in ("ops", "calls", "host", "ranges")}
    return in_order(replace(trace, **held))
