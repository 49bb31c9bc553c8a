import pytest

from tests.attribution.brute_trace import Call, HostRow, Op, Range, Sync, Trace, in_order, slices

DEVICE = (Op(0, 10, 20, "compute", 0), Op(0, 220, 230, "compute", 1))
CALLS = (Call(0, 0, 10, "launch"), Call(0, 200, 210, "launch"))
DRAINED = "host/queue-drained/cudaDeviceSynchronize"


def told(trace, kind="outside-calls"):
    """Causes of one kind of link, from when to when; the last compute ends the window."""
    trace = in_order(trace)
    found = slices(trace, [trace.ops[0].start, max(op.end for op in trace.ops)]).filter(kind=kind)
    rows = []
    for start, end, cause in found.select("start_ns", "end_ns", "cause").iter_rows():
        if rows and rows[-1][1:] == (start, cause):
            rows[-1] = (rows[-1][0], end, cause)
        else:
            rows.append((start, end, cause))
    return rows


def idle(*, host=(), ranges=(), calls=(), ops=(), syncs=()):
    """A thread that launches at 0 and at 200, and nothing to do in between."""
    return Trace((*DEVICE, *ops), (*CALLS, *calls), (), tuple(syncs), {}, tuple(host), tuple(ranges))


FRAMEWORK = "host/framework"


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        pytest.param(idle(), [(20, 200, FRAMEWORK)], id="nothing known"),
        pytest.param(
            idle(ranges=[Range(0, 50, 90, "next_batch")]),
            [(20, 50, FRAMEWORK), (50, 90, "host/data-loading"), (90, 200, FRAMEWORK)],
            id="a range that loads data",
        ),
        pytest.param(
            idle(ranges=[Range(0, 0, 210, "DataLoader"), Range(0, 50, 90, "aten::copy_")]),
            [(20, 200, "host/data-loading")],
            id="a range inside one that loads data",
        ),
        pytest.param(
            idle(ranges=[Range(0, 50, 90, "gc.collect")]),
            [(20, 50, FRAMEWORK), (50, 90, "host/garbage-collection"), (90, 200, FRAMEWORK)],
            id="garbage collection",
        ),
        pytest.param(
            idle(ranges=[Range(0, 50, 90, "save_checkpoint"), Range(0, 60, 70, "torch.save")]),
            [(20, 50, FRAMEWORK), (50, 90, "host/checkpoint"), (90, 200, FRAMEWORK)],
            id="a checkpoint is saved",
        ),
        pytest.param(
            idle(ranges=[Range(0, 50, 90, "CheckpointFunctionBackward"), Range(0, 100, 150, "checkpoint")]),
            [(20, 200, FRAMEWORK)],
            id="activations are computed again",
        ),
        pytest.param(
            idle(ranges=[Range(0, 50, 90, "MPI_Recv"), Range(0, 100, 150, "MPI_Init")]),
            [(20, 50, FRAMEWORK), (50, 90, "host/network"), (90, 200, FRAMEWORK)],
            id="a message of MPI",
        ),
        pytest.param(
            idle(ranges=[Range(0, 50, 90, "Python GC"), Range(0, 100, 150, "gc_wrapper.py(3): run")]),
            [(20, 50, FRAMEWORK), (50, 90, "host/garbage-collection"), (90, 200, FRAMEWORK)],
            id="a collection as PyTorch's profiler names it",
        ),
        pytest.param(
            idle(ranges=[Range(0, 50, 90, "DataLoader"), Range(0, 60, 70, "gc")]),
            [
                (20, 50, FRAMEWORK),
                (50, 60, "host/data-loading"),
                (60, 70, "host/garbage-collection"),
                (70, 90, "host/data-loading"),
                (90, 200, FRAMEWORK),
            ],
            id="garbage collection while data are loaded: the innermost",
        ),
        pytest.param(
            idle(ranges=[Range(0, 50, 90, "forward"), Range(0, 60, 70, "gcc")]),
            [(20, 200, FRAMEWORK)],
            id="others",
        ),
        pytest.param(
            idle(host=[HostRow(0, 50, 90, "lock", "pthread_mutex_lock")]),
            [(20, 50, FRAMEWORK), (50, 90, "host/lock"), (90, 200, FRAMEWORK)],
            id="a lock",
        ),
        pytest.param(
            idle(host=[HostRow(0, 50, 90, "io", "read")]),
            [(20, 50, FRAMEWORK), (50, 90, "host/file"), (90, 200, FRAMEWORK)],
            id="a file",
        ),
        pytest.param(
            idle(host=[HostRow(0, 50, 90, "io", "recvmsg")]),
            [(20, 50, FRAMEWORK), (50, 90, "host/network"), (90, 200, FRAMEWORK)],
            id="the network",
        ),
        pytest.param(
            idle(host=[HostRow(0, 50, 90, "io", "epoll_wait")]),
            [(20, 50, FRAMEWORK), (50, 90, "host/event-wait"), (90, 200, FRAMEWORK)],
            id="an event loop",
        ),
        pytest.param(
            idle(host=[HostRow(0, 50, 90, "io", "sendfile64"), HostRow(0, 60, 70, "lock", "sem_wait")]),
            [
                (20, 50, FRAMEWORK),
                (50, 60, "host/network"),
                (60, 70, "host/lock"),
                (70, 90, "host/network"),
                (90, 200, FRAMEWORK),
            ],
            id="a lock before the network",
        ),
        pytest.param(
            idle(host=[HostRow(0, 50, 90, "lock", "sem_wait")], ranges=[Range(0, 40, 60, "next_batch")]),
            [(20, 40, FRAMEWORK), (40, 60, "host/data-loading"), (60, 90, "host/lock"), (90, 200, FRAMEWORK)],
            id="a range before a lock",
        ),
        pytest.param(
            idle(host=[HostRow(0, 50, 90, "sched"), HostRow(0, 100, 110, "os", "sleep")]),
            [(20, 200, FRAMEWORK)],
            id="waits of no known kind",
        ),
        pytest.param(
            idle(host=[HostRow(1, 50, 90, "lock", "sem_wait")]), [(20, 200, FRAMEWORK)], id="a lock elsewhere"
        ),
        pytest.param(
            idle(host=[HostRow(0, 50, 90, "profiler"), HostRow(0, 60, 120, "lock", "sem_wait")]),
            [
                (20, 50, FRAMEWORK),
                (50, 90, "unattributed/profiler"),
                (90, 120, "host/lock"),
                (120, 200, FRAMEWORK),
            ],
            id="the profiler before all else",
        ),
    ],
)
def test_time_outside_calls(trace, expected):
    assert told(trace) == expected


@pytest.mark.parametrize(
    ("what", "kind", "expected"),
    [
        ("other", "other-call", "unattributed/profiler"),
        ("launch", "launch-call", "unattributed/profiler"),
        ("alloc", "allocation", "memory/allocator"),
    ],
)
def test_a_call_inside_profiler_overhead_is_nobodys_but_an_allocation_stays_one(what, kind, expected):
    trace = idle(host=[HostRow(0, 90, 150, "profiler")], calls=[Call(0, 100, 140, what)])

    assert (100, 140, expected) in told(trace, kind)


def test_profiler_overhead_of_another_thread_does_not_count():
    trace = idle(host=[HostRow(1, 90, 150, "profiler")], calls=[Call(0, 100, 140, "other")])

    assert told(trace, "other-call") == [(100, 140, "host/other-call")]


ISSUED = (Call(1, 2, 9, "launch"), Op(2, 10, 15, "communication", 2))


@pytest.mark.parametrize(
    ("locked", "expected"),
    [
        pytest.param(
            (0, 300), [(20, 50, FRAMEWORK), (50, 90, "host/lock"), (90, 200, FRAMEWORK)], id="all the while"
        ),
        pytest.param(
            (60, 80),
            [(20, 60, FRAMEWORK), (60, 80, "host/lock"), (80, 200, FRAMEWORK)],
            id="part of the time",
        ),
        pytest.param((100, 120), [(20, 200, FRAMEWORK)], id="at another time"),
    ],
)
def test_a_lock_counts_while_the_others_that_issue_are_locked_too(locked, expected):
    host = [HostRow(0, 50, 90, "lock", "sem_wait"), HostRow(1, *locked, "lock", "sem_wait")]

    assert told(idle(host=host, calls=ISSUED[:1], ops=ISSUED[1:])) == expected


SYNC = (Call(0, 12, 40, "context"),)


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        pytest.param(idle(calls=SYNC), [(40, 200, DRAINED)], id="behind a call that waited for all"),
        pytest.param(
            idle(calls=[Call(0, 12, 40, "stream")], syncs=[Sync(2, "stream", 0)]),
            [(40, 200, "host/queue-drained/cudaStreamSynchronize")],
            id="behind one that waited for the only stream",
        ),
        pytest.param(
            idle(calls=[Call(0, 20, 40, "context")]), [(40, 200, FRAMEWORK)], id="it waited for nothing"
        ),
        pytest.param(
            idle(calls=[*SYNC, Call(0, 60, 70, "context")]),
            [(40, 60, DRAINED), (70, 200, DRAINED)],
            id="a second one that waits for nothing",
        ),
        pytest.param(
            idle(calls=[*SYNC, Call(0, 60, 70, "other"), Call(0, 80, 85, "alloc")]),
            [(40, 60, DRAINED), (70, 80, DRAINED), (85, 200, DRAINED)],
            id="other calls fill no queue",
        ),
        pytest.param(
            idle(calls=[*SYNC, Call(0, 60, 70, "launch")], ops=[Op(1, 75, 80, "communication", 3)]),
            [(40, 60, DRAINED), (70, 200, FRAMEWORK)],
            id="until the next launch",
        ),
        pytest.param(
            idle(
                calls=[Call(0, 10, 11, "launch"), Call(0, 12, 40, "stream")],
                syncs=[Sync(3, "stream", 0)],
                ops=[Op(1, 15, 40, "communication", 2)],
            ),
            [(40, 200, "host/queue-drained/cudaStreamSynchronize")],
            id="another stream was through as it returned",
        ),
        pytest.param(
            idle(
                calls=[Call(0, 10, 11, "launch"), Call(0, 12, 40, "stream")],
                syncs=[Sync(3, "stream", 0)],
                ops=[Op(1, 15, 60, "communication", 2)],
            ),
            [(40, 200, FRAMEWORK)],
            id="another stream still had work",
        ),
        pytest.param(
            idle(
                calls=[Call(0, 10, 11, "launch"), Call(0, 12, 40, "stream")],
                syncs=[Sync(3, "stream", 0)],
                ops=[Op(1, 45, 60, "communication", 2)],
            ),
            [(40, 200, FRAMEWORK)],
            id="another stream was about to work",
        ),
        pytest.param(
            idle(calls=[Call(0, 12, 40, "copy")], ops=[Op(0, 20, 35, "copy", 2)]),
            [(40, 200, "host/queue-drained/cudaMemcpyAsync")],
            id="a copy that held its caller",
        ),
        pytest.param(
            idle(calls=[Call(0, 12, 30, "copy")], ops=[Op(0, 20, 35, "copy", 2)]),
            [(30, 200, FRAMEWORK)],
            id="a copy that did not",
        ),
        pytest.param(
            idle(calls=[Call(0, 12, 30, "memcpy")], ops=[Op(0, 20, 35, "copy", 2, moves="device>pageable")]),
            [(30, 200, "host/queue-drained/cudaMemcpy")],
            id="a copy that held its caller and ended after it",
        ),
        pytest.param(
            idle(calls=SYNC, ranges=[Range(0, 100, 150, "next_batch")]),
            [(40, 100, DRAINED), (100, 150, "host/data-loading"), (150, 200, DRAINED)],
            id="a range that tells goes first",
        ),
        pytest.param(
            idle(calls=SYNC, host=[HostRow(0, 100, 150, "lock", "sem_wait")]),
            [(40, 200, DRAINED)],
            id="before waits for conditions",
        ),
        pytest.param(
            idle(calls=SYNC, host=[HostRow(0, 100, 150, "lock", "pthread_mutex_lock")]),
            [(40, 100, DRAINED), (100, 150, "host/lock"), (150, 200, DRAINED)],
            id="a lock that another thread holds goes first",
        ),
        pytest.param(
            idle(calls=SYNC, host=[HostRow(0, 100, 150, "io", "read")]),
            [(40, 100, DRAINED), (100, 150, "host/file"), (150, 200, DRAINED)],
            id="a file that is read goes first",
        ),
    ],
)
def test_the_queue_that_a_blocking_call_left_empty(trace, expected):
    assert told(trace) == expected


def test_a_thread_without_ranges_works_for_the_one_that_waits():
    ops = (Op(0, 10, 20, "compute", 1), Op(0, 220, 230, "compute", 2))
    calls = (Call(0, 0, 3, "other"), Call(1, 5, 10, "launch"), Call(1, 200, 210, "launch"))
    trace = Trace(ops, calls, ranges=(Range(0, 4, 300, "step"), Range(0, 50, 90, "get_batch")))

    assert told(trace) == [(20, 50, FRAMEWORK), (50, 90, "host/data-loading"), (90, 200, FRAMEWORK)]


def test_a_thread_works_for_the_other_only_while_that_is_outside_calls():
    ops = (Op(0, 10, 20, "compute", 1), Op(0, 220, 230, "compute", 2))
    calls = (Call(0, 100, 110, "other"), Call(1, 5, 10, "launch"), Call(1, 200, 210, "launch"))
    trace = Trace(ops, calls, ranges=(Range(0, 4, 300, "get_batch"),))

    assert told(trace) == [
        (20, 100, "host/data-loading"),
        (100, 110, FRAMEWORK),
        (110, 200, "host/data-loading"),
    ]
