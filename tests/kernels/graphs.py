"""Random replay graphs: segments and operations that refer to each other in every way."""

from random import Random

import numpy as np

from wallscope.replay.graph import ReplayGraph, Role, make_pointers
from wallscope.replay.lock_holds import NO_HOLDS


def array(values, dtype=np.int64):
    return np.array(list(values), dtype)


def listed(rows):
    """Rows of varying length as where each begins, and all of them in a row."""
    return make_pointers(array(map(len, rows))), array(one for row in rows for one in row)


def random_graph(random: Random, *, in_order: bool) -> ReplayGraph:
    """Segments of some threads, operations on three streams, and two operations outside the window.

    Args:
        random: where chances come from.
        in_order: everything refers to what came earlier in the capture alone; else also to what came later,
            as where clocks contradict it. In order, all calls that wait did wait.
    """
    threads = [random.randint(1, 9) for _ in range(random.randint(1, 3))]
    segments, size = sum(threads), random.randint(1, 30)
    first = np.cumsum([0, *threads])[:-1]
    segment_ns = array(random.randint(1, 6_000) for _ in range(segments))
    thread_start_ns = array(random.randint(0, 9_000) for _ in threads)
    settled_ns = np.concatenate(
        [
            start_ns + np.cumsum(segment_ns[begin : begin + count])
            for start_ns, begin, count in zip(thread_start_ns, first, threads, strict=True)
        ]
    )
    begun_ns = np.sort(array(random.randint(0, 30_000) for _ in range(size)))
    event = np.lexsort((np.arange(segments + size), np.concatenate((settled_ns, begun_ns))))
    turn = np.empty(event.size, np.int64)
    turn[event] = np.arange(event.size)
    operation_ns = array(random.choice((0, random.randint(1, 4_000))) for _ in range(size))
    groups = _groups(random, size)
    if in_order:
        operation_ns[[one for group in groups for one in group]] += 1

    ended = turn[segments:].copy()  # a collective ends when the last participant has come
    for group in groups:
        ended[group] = ended[group].max()

    def known(at):
        """Operations that may be waited for at a turn; those outside the window always."""
        return [*(one for one in range(size) if not in_order or ended[one] < at), size, size + 1]

    producers, awaited = [], []
    for one in range(size):
        there = known(turn[segments + one])
        producers.append([random.choice(there) for _ in range(random.choice((0, 1, 1, 1, 2, 3)))])
    role, is_idle = np.zeros(segments, np.int8), np.zeros(segments, np.bool_)
    behind = np.arange(segments) - 1
    behind[first] = segments + np.arange(len(threads))
    own_behind = behind.copy()
    for row in range(segments):
        role[row] = random.choice(
            (*[Role.PLAIN] * 6, Role.RELEASED, Role.BLOCKING, Role.RELEASING, Role.HELD)
        )
        is_idle[row] = role[row] >= Role.BLOCKING and not in_order and random.random() < 0.3
        there = known(turn[row])
        count = random.randint(0, 2) if role[row] >= Role.BLOCKING else 0
        awaited.append([random.choice(there) for _ in range(count)])
        if role[row] == Role.RELEASED:
            others = [one for one in range(segments) if not in_order or turn[one] < turn[row]]
            behind[row] = random.choice([*others, segments])
    meeting = np.full(size, -1)
    for number, group in enumerate(groups):
        meeting[group] = number
    producer_ptr, producer = listed(producers)
    awaited_ptr, awaited = listed(awaited)
    member_ptr, member = listed(groups)
    starts = range(segments, segments + len(threads))
    ref = [
        random.choice(
            [one for one in range(segments) if not in_order or turn[one] < turn[segments + at]] + [*starts]
        )
        for at in range(size)
    ]
    return ReplayGraph(
        event=event,
        behind=behind,
        own_behind=own_behind,
        role=role,
        call=array(row % 4 for row in range(segments)),
        segment_ns=segment_ns,
        gap_ns=np.where(role > Role.PLAIN, array(random.randint(0, 900) for _ in range(segments)), 0),
        is_idle=is_idle,
        awaited_ptr=awaited_ptr,
        awaited=awaited,
        thread_start_ns=thread_start_ns,
        op=np.arange(size) * 3,
        ref=array(ref),
        issuer=array(random.randrange(segments) for _ in range(size)),
        is_early=array((random.random() < 0.3 for _ in range(size)), np.bool_),
        offset_ns=array(random.randint(-500, 900) for _ in range(size)),
        latency_ns=array(random.randint(0, 900) for _ in range(size)),
        operation_ns=operation_ns,
        producer_ptr=producer_ptr,
        producer=producer,
        lag_ns=array(random.randint(-300, 900) for _ in producer),
        meeting=meeting,
        member_ptr=member_ptr,
        member=member,
        holds=NO_HOLDS,
        end_ns=np.concatenate((begun_ns + operation_ns, [700, 21_000])),
        dependency_latency_ns=random.choice((0, 800)),
    )


def _groups(random, size):
    places = random.sample(range(size), size // 3)
    return [sorted(places[begin : begin + 2]) for begin in range(0, len(places) - 1, 2)]
