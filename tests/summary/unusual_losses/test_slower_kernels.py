import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope.model.diagnosis import SlowerKernels
from wallscope.model.schemas import CLASSIFIED, KERNELS, NAMES, SAMPLES, STEPS
from wallscope.summary.unusual_losses import (
    _sum_distances,
    compare_kernel_lengths,
    explain_slower_kernels,
    find_slower_kernels,
)

LENGTH_NS, STEP_NS = 1_000, 10_000


class Sampled:
    """What is asked of a capture: launch shapes, and one sample of the clock a step."""

    def __init__(self, kernels: pl.DataFrame, clocks: list[int]) -> None:
        self.kernels = kernels
        self.samples = pl.DataFrame(
            {
                "gpu": [0] * len(clocks),
                "metric": [0] * len(clocks),
                "at_ns": [step * STEP_NS + 5 for step in range(len(clocks))],
                "value": clocks,
            },
            schema=SAMPLES,
        )
        self.metric_names = pl.DataFrame({"name": [0], "text": ["gpc clock frequency"]}, schema=NAMES)


def rank(lengths_ns, *, blocks=None, beside=(), clocks=()):
    """A rank with one kernel a step, of one launch shape unless said; some overlap communication."""
    rows = [(step * STEP_NS, length, "compute") for step, length in enumerate(lengths_ns)]
    rows += [(step * STEP_NS, STEP_NS // 2, "communication") for step in beside]
    rows.sort()
    operations = pl.DataFrame(
        [
            {
                "op": op,
                "rank_id": 0,
                "start_ns": start,
                "end_ns": start + length,
                "kind": "kernel",
                "name": int(of_class == "communication"),
                "class": of_class,
            }
            for op, (start, length, of_class) in enumerate(rows)
        ],
        schema=CLASSIFIED,
    )
    kernels = pl.DataFrame(
        {"op": range(len(rows)), "blocks": blocks or [1] * len(rows)}, schema_overrides={"op": pl.UInt32}
    ).select(*(pl.col(name) if name in {"op", "blocks"} else pl.lit(1).alias(name) for name in KERNELS))
    steady = pl.DataFrame(
        [
            {"rank_id": 0, "step": step, "start_ns": step * STEP_NS, "end_ns": (step + 1) * STEP_NS}
            for step in range(len(lengths_ns))
        ],
        schema=STEPS,
    )
    lengths = compare_kernel_lengths(operations, steady, kernels)
    return find_slower_kernels(lengths, steady, Sampled(kernels, list(clocks)), 0)


def test_the_factor_the_step_and_the_sides_are_told():
    assert rank([LENGTH_NS] * 5 + [1_200] * 4) == SlowerKernels(1.2, 5, 5, 4, 1.0, None)


def test_sampled_clocks_are_compared():
    found = rank([LENGTH_NS] * 3 + [1_250] * 3, clocks=[1_500] * 3 + [1_200] * 3)

    assert found.clock_ratio == pytest.approx(0.8)


@pytest.mark.parametrize(
    "lengths_ns",
    [
        pytest.param([LENGTH_NS] * 8, id="the same throughout"),
        pytest.param([1_200] * 5 + [LENGTH_NS] * 4, id="faster"),
        pytest.param([LENGTH_NS] * 5 + [1_029] * 4, id="too little"),
        pytest.param([LENGTH_NS] * 5 + [1_200] * 2, id="two steps alone"),
        pytest.param([LENGTH_NS + 20 * step for step in range(12)], id="a drift"),
    ],
)
def test_what_is_no_change_at_one_moment(lengths_ns):
    assert rank(lengths_ns) is None


def test_other_launch_shapes_are_other_work():
    assert rank([LENGTH_NS] * 4 + [1_200] * 4, blocks=[1] * 4 + [2] * 4) is None


def test_kernels_next_to_communication_are_not_compared():
    assert rank([LENGTH_NS] * 4 + [1_200] * 4, beside=range(4, 8)) is None


@pytest.mark.parametrize(
    ("ratio", "clock", "expected"),
    [
        (1.25, None, "lower GPU clocks, or contention for the GPU"),
        (1.25, 0.8, "the GPU clock falls to 80.0 % of before"),
        (1.25, 0.89, "the GPU clock falls to 89.0 % of before"),
        (1.25, 1.0, "contention for the GPU, as its clock stays at 100.0 % of before"),
    ],
)
def test_the_reason_is_the_clock_where_that_was_sampled(ratio, clock, expected):
    assert explain_slower_kernels(SlowerKernels(ratio, 5, 5, 5, 1.0, clock)) == expected


@given(st.lists(st.floats(0.5, 2.0), max_size=30))
def test_sums_of_distances_are_those_of_each_beginning(values):
    every = np.array(values)
    expected = [0.0] + [
        np.abs(every[:count] - np.median(every[:count])).sum() for count in range(1, len(values) + 1)
    ]
    assert _sum_distances(every) == pytest.approx(expected, abs=1e-9)
