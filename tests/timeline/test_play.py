"""Runs and legs that are settled at once against everything in order, one after the other."""

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from wallscope.timeline.legs import legs
from wallscope.timeline.order import Awaited, Order, Slack
from wallscope.timeline.play import LEAST_WAIT_NS, Change, Others, lengths, play, starts
from wallscope.timeline.runs import runs
from wallscope.timeline.spans import BEFORE_ALL, numbers


def random_order(random):
    """Pieces and operations that refer to each other in every way, also where clocks contradict it."""
    threads = [random.randint(1, 9) for _ in range(random.randint(1, 3))]
    first = np.cumsum([0, *threads])[:-1]
    count = sum(threads)
    piece_ns = np.array([random.randint(1, 6_000) for _ in range(count)])
    thread_start_ns = [random.randint(0, 9_000) for _ in threads]
    settled_ns = np.concatenate(
        [
            start_ns + np.cumsum(piece_ns[begin : begin + size])
            for start_ns, begin, size in zip(thread_start_ns, first, threads, strict=True)
        ]
    )
    before = np.arange(count) - 1
    before[first] = count + np.arange(len(threads))
    size = random.randint(0, 30)
    begun_ns = np.sort([random.randint(0, 30_000) for _ in range(size)]).astype(np.int64)
    operation_ns = np.array([random.choice((0, random.randint(1, 4_000))) for _ in range(size)], np.int64)
    streams = [random.randrange(3) for _ in range(size)]
    producers = [
        _before(place, streams) if random.random() < 0.9 else _any(random, size) for place in range(size)
    ]
    more = {
        place: [_any(random, size) for _ in range(random.randint(1, 2))]
        for place in range(size)
        if random.random() < 0.15
    }
    lag_count = size + sum(map(len, more.values()))
    lag_places = iter(range(size, lag_count))
    further = {place: tuple((one, next(lag_places)) for one in ones) for place, ones in more.items()}
    awaited = {
        row: Awaited(
            row % 4,
            tuple(_any(random, size) for _ in range(random.randint(0, 2))),
            random.random() < 0.3,
            random.random() < 0.3,
            0,
        )
        for row in range(count)
        if random.random() < 0.2
    }
    released = {row: random.randrange(count) for row in range(count) if random.random() < 0.1}
    groups, meets = _groups(random, size), np.full(size, -1)
    for number, group in enumerate(groups):
        meets[group] = number
    waiting = {row: int(before[row]) for row in awaited} | released
    return Order(
        legs=legs(first, waiting, lambda row: (int(settled_ns[row]), row), count),
        settled_ns=numbers(settled_ns),
        begun_ns=numbers(begun_ns),
        before=numbers(before),
        thread_start_ns=thread_start_ns,
        piece_ns=numbers(piece_ns),
        released=released,
        awaited=awaited,
        ref=numbers(np.array([random.randrange(count + len(threads)) for _ in range(size)], np.int64)),
        row=numbers(np.zeros(size, np.int64)),
        is_early=numbers(np.zeros(size, np.int64)),
        offset_ns=numbers(np.array([random.randint(-500, 900) for _ in range(size)], np.int64)),
        operation_ns=numbers(operation_ns),
        first=numbers(np.array(producers, np.int64)),
        more=further,
        meets=numbers(meets),
        members=groups,
        captured_end_ns=numbers(np.concatenate((begun_ns + operation_ns, [BEFORE_ALL, 700, 21_000]))),
        slack=Slack(
            numbers(np.array([random.randint(0, 900) for _ in range(size)], np.int64)),
            numbers(np.array([random.randint(-300, 900) for _ in range(lag_count)], np.int64)),
            {row: random.randint(0, 900) for row in awaited},
            {row: random.randint(0, 900) for row in released},
        ),
    )


def _before(place, streams):
    """The operation before one in its stream; the place of nothing where it is the first."""
    earlier = [one for one in range(place) if streams[one] == streams[place]]
    return earlier[-1] if earlier else len(streams)


def _any(random, size):
    """Any operation, also a later one, or one that is not played."""
    return random.choice([*range(size), size + 1, size + 2])


def _groups(random, size):
    places = random.sample(range(size), size // 3)
    return [sorted(places[begin : begin + 2]) for begin in range(0, len(places) - 1, 2)]


def random_change(random, order):
    pieces, places = range(len(order.piece_ns)), range(len(order.ref))
    share = lambda: random.choice((1.0, 1.0, 0.0, 0.5))  # noqa: E731
    return Change(
        pieces=Others.of({row: random.choice((0, 700, 3_000)) for row in pieces if random.random() < 0.3}),
        unblocked=frozenset(call for call in range(4) if random.random() < 0.1),
        launch_latency=share(),
        hand_over=share(),
        return_latency=share(),
        operations=Others.of(
            {place: random.choice((0, 700, 3_000)) for place in places if random.random() < 0.3}
        ),
    )


def one_by_one(order, told, unblocked):
    """Starts and ends of operations and ends of pieces, each event in the order of the capture."""
    rows, places = len(order.piece_ns), len(order.ref)
    events = sorted(
        [(order.settled_ns[row], 0, row) for row in range(rows)]
        + [(order.begun_ns[place], 1, place) for place in range(places)]
    )
    start_ns, end_ns = [0] * places, list(order.captured_end_ns)
    left_ns = [0] * rows + order.thread_start_ns
    missing = [len(members) for members in order.members]
    for _, is_operation, one in events:
        if not is_operation:
            left_ns[one] = _left_ns(one, order, told, unblocked, left_ns, end_ns)
            continue
        since = [left_ns[order.ref[one]] + told.since_ns[one], end_ns[order.first[one]] + told.lag_ns[one]]
        since += [end_ns[producer] + told.lag_ns[lag] for producer, lag in order.more.get(one, ())]
        start_ns[one] = max(since)
        end_ns[one] = start_ns[one] + told.operation_ns[one]
        if order.meets[one] >= 0:
            members = order.members[order.meets[one]]
            missing[order.meets[one]] -= 1
            if not missing[order.meets[one]]:
                came_ns = max(start_ns[member] for member in members)
                for member in members:
                    if told.operation_ns[member]:
                        end_ns[member] = came_ns + told.operation_ns[member]
    return start_ns, end_ns, left_ns


def _left_ns(row, order, told, unblocked, left_ns, end_ns):  # noqa: PLR0911, PLR0913, PLR0917  # plain
    length_ns, entered_ns = told.piece_ns[row], left_ns[order.before[row]]
    if row in order.released:
        return left_ns[order.released[row]] + min(told.after_ns[row], length_ns)
    if row not in order.awaited:
        return entered_ns + length_ns
    call, waits_for, is_releasing, is_idle, _ = order.awaited[row]
    if call in unblocked:
        return entered_ns + (length_ns if is_releasing else 0)
    if not waits_for:
        return entered_ns + length_ns
    done_ns = max(end_ns[place] for place in waits_for)
    if is_releasing:
        return max(entered_ns, done_ns) + told.return_ns[row]
    if is_idle:
        back_ns = told.return_ns[row] if done_ns > entered_ns else 0
        return max(entered_ns + length_ns, done_ns + back_ns)
    back_ns = told.return_ns[row] if length_ns else 0
    return max(entered_ns + min(length_ns, LEAST_WAIT_NS), done_ns + back_ns)


@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_what_is_settled_at_once_is_what_goes_one_by_one(seed):
    random = Random(seed)
    order = random_order(random)
    change = random_change(random, order)
    told = lengths(order, change, change.operations.which, order.slack)

    played = play(order, runs(order), told, change.unblocked)

    expected = one_by_one(order, told, change.unblocked)
    assert tuple(map(list, (played.start_ns, played.end_ns, played.left_ns))) == expected
    some = np.arange(len(order.ref))[::3]
    found = starts(order, runs(order), told, change.unblocked, some)
    assert found == [played.start_ns[place] for place in some]


def test_operations_that_nobody_looks_between_are_one_run():
    """Two streams: the second one waits once for the first, in its middle."""
    random = Random(1)
    order = random_order(random)
    while len(order.ref) < 12:
        order = random_order(random)
    size = len(order.ref)
    plain = order._replace(
        ref=numbers(np.full(size, len(order.piece_ns))),
        first=numbers(np.array([size, *range(5), size, *range(6, size - 1)], np.int64)),
        more={8: ((2, size),)},
        meets=numbers(np.full(size, -1)),
        members=[],
        awaited={},
    )

    found = runs(plain._replace(legs=legs(np.array([0]), {}, lambda row: (row,), len(order.piece_ns))))

    begins = found.layout[found.head].tolist()
    assert begins == [0, 3, 6, 8]
    assert found.further == [begins.index(0)]
    assert found.run.tolist() == [0] * 3 + [1] * 3 + [2] * 2 + [3] * (size - 8)
