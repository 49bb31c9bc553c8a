"""Ranks replayed: what each waits for, in both forms of the kernel."""

import numpy as np
import pytest

PASS, BEGIN, AWAIT = 0, 1, 2
UNKNOWN_NS = -(1 << 62)


@pytest.fixture
def replay(kernel_of):
    """Replay ranks, lists of (kind, stay, own ns); a stay is (rank, one before, meeting, ns alone or -1)."""

    def run(ranks, stays, transfer_ns, gap_ns=0):
        events = [event for rank in ranks for event in rank]
        kind, stay, own_ns = (np.array(column, np.int64) for column in zip(*events, strict=True))
        rank_of, before, meeting, alone_ns = (
            np.array(column, np.int64) for column in zip(*stays, strict=True)
        )
        count, meetings = len(stays), len(transfer_ns)
        at_ns, came_ns, launched_ns, end_ns = (
            np.full(size, UNKNOWN_NS, np.int64) for size in (len(events), meetings, count, count)
        )
        event_ptr = np.cumsum([0, *map(len, ranks)], dtype=np.int64)
        at_ns[event_ptr[:-1]] = 0
        zeros = [np.zeros(size, np.int64) for size in (len(events), count)]
        done = kernel_of("job_replay").replay_ranks(
            event_ptr, kind, stay, own_ns, zeros[0], rank_of, before, np.full(count, gap_ns, np.int64),
            meeting, zeros[1], alone_ns,
            np.cumsum([0, *np.bincount(meeting, minlength=meetings)], dtype=np.int64),
            np.argsort(meeting, kind="stable"), np.array(transfer_ns, np.int64), at_ns, came_ns, launched_ns,
            end_ns,
            *(np.zeros(n, np.int64) for n in (count, count, len(ranks), len(ranks), meetings, len(ranks))),
        )  # fmt: skip
        return done, at_ns.tolist(), end_ns.tolist()

    return run


def test_who_comes_first_waits_for_the_last_and_the_transfer(replay):
    ranks = [
        [(PASS, -1, 0), (BEGIN, 0, 10), (AWAIT, 0, 0), (PASS, -1, 5)],
        [(PASS, -1, 0), (BEGIN, 1, 40), (AWAIT, 1, 0), (PASS, -1, 6)],
    ]

    assert replay(ranks, [(0, -1, 0, -1), (1, -1, 0, -1)], [7]) == (
        8,
        [0, 10, 47, 52, 0, 40, 47, 53],
        [47, 47],
    )


def test_a_rank_goes_on_while_its_messages_queue_on_a_stream(replay):
    sends = [(PASS, -1, 0), (BEGIN, 0, 10), (BEGIN, 1, 10), (PASS, -1, 30)]
    receives = [(PASS, -1, 0), (BEGIN, 2, 100), (AWAIT, 2, 0), (BEGIN, 3, 1), (AWAIT, 3, 0)]
    stays = [(0, -1, 0, -1), (0, 0, 1, -1), (1, -1, 0, -1), (1, 2, 1, -1)]
    done, at_ns, end_ns = replay([sends, receives], stays, [7, 7], gap_ns=3)

    assert done == 9
    assert at_ns[:4] == [0, 10, 20, 50]
    assert end_ns == [107, 117, 107, 117]


def test_messages_that_queue_on_both_sides_are_no_circle(replay):
    """The second send of each rank comes before it receives, and queues behind its first."""

    def rank(sends, receives):
        first, second = sends
        return [
            (PASS, -1, 0), (BEGIN, first, 1), (BEGIN, second, 1),
            *((kind, one, 1) for one in receives for kind in (BEGIN, AWAIT)),
        ]  # fmt: skip

    stays = [(0, -1, 0, -1), (0, 0, 1, -1), (0, -1, 2, -1), (0, 2, 3, -1)]
    stays += [(1, -1, 2, -1), (1, 4, 3, -1), (1, -1, 0, -1), (1, 6, 1, -1)]
    done, _, end_ns = replay([rank((0, 1), (2, 3)), rank((4, 5), (6, 7))], stays, [5] * 4)

    assert done == 14
    assert min(end_ns) > 0


def test_ranks_that_wait_for_each_other_do_not_end(replay):
    ranks = [
        [(PASS, -1, 0), (BEGIN, 0, 1), (AWAIT, 0, 0), (BEGIN, 1, 1)],
        [(PASS, -1, 0), (BEGIN, 2, 1), (AWAIT, 2, 0), (BEGIN, 3, 1)],
    ]
    stays = [(0, -1, 0, -1), (0, -1, 1, -1), (1, -1, 1, -1), (1, -1, 0, -1)]

    assert replay(ranks, stays, [5, 5])[0] == 4


def test_a_stay_that_ends_alone_holds_up_what_comes_after_it_on_its_stream_and_no_other_rank(replay):
    ranks = [
        [(PASS, -1, 0), (BEGIN, 0, 10), (BEGIN, 1, 1), (AWAIT, 1, 0)],
        [(PASS, -1, 0), (BEGIN, 2, 200), (AWAIT, 2, 0)],
    ]
    stays = [(0, -1, 0, 20), (0, 0, 1, -1), (1, -1, 0, -1)]
    done, at_ns, end_ns = replay(ranks, stays, [7, 4])

    assert done == 7
    assert end_ns == [30, 34, 207]
    assert at_ns[3] == 34
