import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope.attribution.totals import make_typical_work
from wallscope.model.rank_summaries import OverlapTax
from wallscope.model.schemas import CLASSIFIED, KERNELS
from wallscope.summary.communication import measure_overlap_tax

PERIOD_NS = 10_000


def windows(starts_ns, length_ns):
    start_ns, end_ns = pl.Series(starts_ns), pl.Series(starts_ns) + length_ns
    host = {"issue_start_ns": start_ns, "issue_end_ns": end_ns, "host_until_ns": end_ns}
    return pl.DataFrame({"start_ns": start_ns, "end_ns": end_ns, **host})


def tax(*kernels, steps=2, blocks=(), kinds=("kernel", "compute")):
    """Kernels written as name, duration, and how much of it communication covers from its start on."""
    rows = []
    for number, (name, duration_ns, covered_ns) in enumerate(kernels):
        start_ns = PERIOD_NS * number
        mine = (start_ns, start_ns + duration_ns, kinds[0], kinds[1], name)
        theirs = (start_ns, start_ns + covered_ns, "kernel", "communication", 99)
        rows.extend([mine, theirs] if covered_ns else [mine])
    keys = ("start_ns", "end_ns", "kind", "class", "name")
    filled = [{"op": op, "rank_id": 0, **dict(zip(keys, row, strict=True))} for op, row in enumerate(rows)]
    shapes = [{"op": op, "blocks": dict(blocks).get(op, 132), "threads": 256} for op in range(len(rows))]
    length_ns = PERIOD_NS * len(kernels) // steps
    starts_ns = [step * length_ns for step in range(steps)]
    work = make_typical_work(pl.DataFrame(filled, schema=CLASSIFIED), windows(starts_ns, length_ns))
    return measure_overlap_tax(work, pl.DataFrame(shapes, schema=KERNELS))


ALONE, BESIDE = (1, 100, 0), (1, 130, 130)


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        pytest.param([ALONE] * 5 + [BESIDE] * 5, OverlapTax(1.3, 75, 5), id="30 % slower, in two steps"),
        pytest.param([ALONE] * 5 + [BESIDE] * 4, None, id="too few beside"),
        pytest.param([ALONE] * 4 + [BESIDE] * 5, None, id="too few alone"),
        pytest.param([ALONE] * 9, None, id="no communication"),
        pytest.param([(1, 100, 0)] * 5 + [(2, 130, 130)] * 5, None, id="other kernels"),
        pytest.param([ALONE] * 5 + [(1, 130, 64)] * 5, None, id="beside less than half of it"),
        pytest.param([ALONE] * 5 + [(1, 130, 65)] * 5, OverlapTax(1.3, 75, 5), id="beside half of it"),
        pytest.param([ALONE] * 5 + [(1, 90, 90)] * 5, OverlapTax(0.9, -25, 5), id="faster, as measured"),
        pytest.param(
            [ALONE] * 5 + [BESIDE] * 5 + [(2, 1_000, 0)] * 5 + [(2, 1_100, 1_100)] * 5,
            OverlapTax(6_150 / 5_500, 325, 10),
            id="long kernels weigh more",
        ),
        pytest.param(
            [(1, 100, 0), (1, 400, 0)] * 5 + [BESIDE] * 5, None, id="one name for problems of two sizes"
        ),
        pytest.param(
            [ALONE] * 5 + [(1, 130, 130)] * 4 + [(1, 900, 900)], OverlapTax(1.3, 75, 5), id="one late"
        ),
    ],
)
def test_the_same_kernel_beside_communication_and_alone(kernels, expected):
    found = tax(*kernels)

    if expected is None:
        assert found is None
    else:
        assert (found.ratio, found.slowed_ns, found.kernels) == (
            pytest.approx(expected.ratio),
            expected.slowed_ns,
            expected.kernels,
        )


def test_the_compared_kernels_are_a_share_of_those_that_overlap():
    found = tax(*[ALONE] * 5, *[BESIDE] * 5, *[(2, 350, 350)] * 3)  # the second kernel never runs alone

    assert found.compared_share == pytest.approx(5 * 130 / (5 * 130 + 3 * 350))
    assert tax(*[ALONE] * 5, *[BESIDE] * 5).compared_share == 1


def test_another_launch_shape_is_another_kernel():
    blocks = [(op, 64) for op in range(5)]

    assert tax(*[ALONE] * 5, *[BESIDE] * 5, blocks=blocks) is None


@pytest.mark.parametrize("kinds", [("graph", "opaque_graph"), ("fill", "copy")], ids=["graphs", "fills"])
def test_only_kernels_that_compute_count(kinds):
    assert tax(*[ALONE] * 5, *[BESIDE] * 5, kinds=kinds) is None


@pytest.mark.parametrize(("alone_ns", "beside_ns"), [(100, 151), (151, 100)])
def test_half_as_long_again_is_another_problem(alone_ns, beside_ns):
    assert tax(*[(1, alone_ns, 0)] * 5, *[(1, beside_ns, beside_ns)] * 5) is None


@given(st.integers(200, 300), st.integers(200, 300), st.integers(1, 9))
def test_all_times_scaled_keep_the_ratio(alone_ns, beside_ns, factor):
    pair = [(1, alone_ns, 0)] * 5 + [(1, beside_ns, beside_ns)] * 5
    scaled = [(name, factor * duration, factor * covered) for name, duration, covered in pair]

    once, often = tax(*pair, steps=1), tax(*scaled, steps=1)

    assert once.ratio == pytest.approx(beside_ns / alone_ns) == pytest.approx(often.ratio)
    assert often.slowed_ns == factor * once.slowed_ns == factor * 5 * (beside_ns - alone_ns)


def test_a_step_without_operations_has_no_tax():
    work = make_typical_work(pl.DataFrame(schema=CLASSIFIED), windows([0], 9))

    assert measure_overlap_tax(work, KERNELS.to_frame()) is None
