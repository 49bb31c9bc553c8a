import polars as pl
import pytest

from wallscope.attribution.prepared import RankWindows
from wallscope.model.schemas import CLASSIFIED, PARTNERS, STEPS
from wallscope.replay.windows import find_connected_ranks


def rank(rank_id):
    """A rank with ten operations."""
    ops = pl.DataFrame({"op": range(10 * rank_id, 10 * rank_id + 10)}, schema={"op": CLASSIFIED["op"]})
    return RankWindows(rank_id, ops, STEPS.to_frame(), STEPS.to_frame())


@pytest.mark.parametrize(
    ("collectives", "expected"),
    [
        pytest.param([], [[0], [1], [2], [3]], id="nobody communicates"),
        pytest.param([(0, 20)], [[0, 2], [1], [3]], id="two do"),
        pytest.param([(30, 11), (1, 31), (9, 39)], [[0, 1, 3], [2]], id="through another"),
        pytest.param([(0, 10), (20, 30)], [[0, 1], [2, 3]], id="in pairs"),
    ],
)
def test_ranks_that_communicate_are_together(collectives, expected):
    rows = [(op, min(ops)) for ops in collectives for op in ops]
    partners = pl.DataFrame(rows, schema=PARTNERS, orient="row")

    found = find_connected_ranks([rank(number) for number in range(4)], partners)

    assert [[one.rank_id for one in group] for group in found] == expected
