"""Groups of ranks at regular distances, as frameworks make them from the numbers of ranks.

A group of an axis has `size` ranks, `stride` numbers apart, and all groups of the axis are like it. Which
order it is shows by all groups together, where a few collectives of one group end together by chance.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from wallscope.records import dataclass
from wallscope.thresholds.causes import (
    EVEN_GROUP_NS,
    EVEN_GROUP_RATIO,
    REGULAR_GROUPS_SHARE,
    REGULAR_ORDER_RATIO,
    REGULAR_SAMPLE_COUNT,
)

MeasureSpread = Callable[[int, int], float]
"""How the distance of the ends of two ranks varies, in ns, by their numbers; infinite if they never met."""
_NODE_SIZE = 8


@dataclass(frozen=True, slots=True)
class RankOrder:
    """Groups of so many ranks, their numbers so far apart: of 4, 2 apart, are 0, 2, 4, 6 and 1, 3, 5, 7."""

    size: int
    stride: int

    def has_both(self, one: int, other: int) -> bool:
        """Return whether two ranks are in one group.

        >>> RankOrder(4, 2).has_both(1, 7), RankOrder(4, 2).has_both(1, 9)
        (True, False)
        """
        block = self.size * self.stride
        return one // block == other // block and one % self.stride == other % self.stride

    def list_groups(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return the groups of some ranks, those of several.

        >>> RankOrder(2, 2).list_groups([0, 1, 2, 4, 6])
        [[0, 2], [4, 6]]
        """
        groups: dict[tuple[int, int], list[int]] = {}
        for number in sorted(numbers):
            key = number // (self.size * self.stride), number % self.stride
            groups.setdefault(key, []).append(number)
        return [group for group in groups.values() if len(group) > 1]

    def contains(self, other: "RankOrder", count: int) -> bool:
        """Return whether each group of another order is within one of this, for so many ranks."""
        groups = other.list_groups(range(count))
        return all(self.has_both(group[0], one) for group in groups for one in group[1:])

    def overlaps(self, other: "RankOrder", count: int) -> bool:
        """Return whether two of so many ranks are in one group of either order."""
        return any(
            other.has_both(group[0], one) for group in self.list_groups(range(count)) for one in group[1:]
        )


def find_rank_order(
    kinds: Sequence[MeasureSpread],
    numbers: Sequence[int],
    apart: Sequence[RankOrder] = (),
    size: int | None = None,
    most_ratio: float = REGULAR_ORDER_RATIO,
) -> RankOrder | None:
    """Return the order in which the ranks of some kinds of collectives have groups; `None` without one.

    Of the orders with groups that vary about as little as any, it is the one with the largest groups.

    Args:
        kinds: for each kind of collective of an axis, how ends vary.
        numbers: of the ranks that have all of these kinds.
        apart: orders of other axes; ranks of one of their groups are in different ones here.
        size: of the groups, if known.
        most_ratio: by how much more ends may vary than in the best order.
    """
    count = max(numbers) + 1
    firsts, found = list(_list_orders(count, size)), dict[RankOrder, list[float]]()
    waiting = [order for order in firsts if order.size in _PRIMES or order.size == size]
    while waiting:
        order = waiting.pop()
        if order in found or any(order.overlaps(other, count) for other in apart):
            continue
        spreads = [_measure_order(kind, order, numbers) for kind in kinds]
        if all(np.isfinite(spreads)):
            found[order] = spreads
            waiting += [
                one
                for one in firsts
                if one.size > order.size and one.size % order.size == 0 and one.stride == order.stride
            ]
    if not found:
        return None
    least_ns = np.maximum(np.min(list(found.values()), axis=0), 1.0)
    ratio = {order: float(np.mean(spreads / least_ns)) for order, spreads in found.items()}
    about = [order for order, own in ratio.items() if own <= most_ratio]
    most = max((order.size for order in about), default=0)
    best = min(
        (order for order in about if order.size == most), key=lambda order: (ratio[order], order.stride)
    )
    limits_ns = EVEN_GROUP_RATIO * np.array(found[best]) + EVEN_GROUP_NS
    return best if _holds(kinds, best, numbers, limits_ns.tolist()) else None


_PRIMES = (2, 3, 5, 7, 11, 13)


def _list_orders(count: int, size: int | None) -> Iterator[RankOrder]:
    """Yield the orders that divide so many ranks, or those of whole nodes."""
    for world in sorted({count, -(-count // _NODE_SIZE) * _NODE_SIZE}):
        for own in (one for one in range(2, world + 1) if world % one == 0 and size in {None, one}):
            for stride in (one for one in range(1, world // own + 1) if world // own % one == 0):
                yield RankOrder(own, stride)


def _measure_order(kind: MeasureSpread, order: RankOrder, numbers: Sequence[int]) -> float:
    """Return how much the ends of the ranks of a group vary: that of three of four places in a group."""
    groups = order.list_groups(numbers)
    if not groups:
        return np.inf
    chosen = [groups[nth] for nth in sample_evenly(len(groups))]
    by_place = []
    for nth in reversed(sample_evenly(max(map(len, chosen)) - 1)):
        own = [kind(group[0], group[nth + 1]) for group in chosen if nth + 1 < len(group)]
        by_place.append(float(np.median(own)))
        if not np.isfinite(by_place[-1]):
            return np.inf
    return float(np.percentile(by_place, 75))


def sample_evenly(count: int) -> list[int]:
    """Return some numbers below another, all of few."""
    return sorted({int(one) for one in np.linspace(0, count - 1, min(count, REGULAR_SAMPLE_COUNT))})


def _holds(
    kinds: Sequence[MeasureSpread], order: RankOrder, numbers: Sequence[int], limits_ns: Sequence[float]
) -> bool:
    """Return whether nearly all ranks end with the first of their group, over all kinds."""
    pairs = [(group[0], one) for group in order.list_groups(numbers) for one in group[1:]]
    held = [
        kind(*pair) <= limit_ns for kind, limit_ns in zip(kinds, limits_ns, strict=True) for pair in pairs
    ]
    return float(np.mean(held)) >= REGULAR_GROUPS_SHARE
