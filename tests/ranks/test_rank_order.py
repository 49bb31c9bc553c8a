"""The order in which ranks have groups shows by all groups together, against a search of all pairs."""

import math

import numpy as np
import pytest

from wallscope.ranks.rank_order import RankOrder, find_rank_order


def measure(order, seed=0, noise=0.3, other_ns=9_000.0):
    """Return how ends vary: little in a group, much more between groups."""

    def spread(one, other):
        rng = np.random.default_rng((seed, *sorted((one, other))))
        usual = 500.0 if order.has_both(one, other) else other_ns
        return float(usual * rng.lognormal(0, noise))

    return spread


@pytest.mark.parametrize(
    ("size", "stride", "count"), [(2, 1, 8), (2, 4, 8), (4, 2, 16), (8, 1, 16), (16, 1, 16), (4, 2, 1024)]
)
def test_the_order_of_groups_is_found(size, stride, count):
    order = RankOrder(size, stride)

    assert find_rank_order([measure(order)], range(count)) == order


def test_two_kinds_of_collectives_show_what_one_leaves_open():
    order = RankOrder(4, 2)
    kinds = [measure(order, seed, noise=0.45, other_ns=1_500.0) for seed in range(2)]

    assert find_rank_order(kinds, range(16)) == order


def test_groups_of_missing_ranks_have_the_others():
    numbers = [number for number in range(16) if number not in {3, 15}]
    order = find_rank_order([measure(RankOrder(4, 2))], numbers)

    assert order.list_groups(numbers)[1] == [1, 5, 7]
    assert sorted(one for group in order.list_groups(numbers) for one in group) == numbers


def test_ranks_of_a_group_of_another_axis_are_in_different_ones():
    everywhere = measure(RankOrder(8, 1))

    assert find_rank_order([everywhere], range(8), apart=[RankOrder(2, 1)]) == RankOrder(4, 2)


def test_the_size_of_groups_may_be_known():
    assert find_rank_order([measure(RankOrder(8, 1))], range(8), size=4) in {RankOrder(4, 1), RankOrder(4, 2)}


def test_ranks_without_an_order_have_none():
    groups = [{0, 5, 6, 3}, {1, 2, 4, 7}]

    def spread(one, other):
        return 500.0 if any({one, other} <= group for group in groups) else math.inf

    assert find_rank_order([spread], range(8)) is None
