import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope.attribution.totals import (
    apportion_means,
    list_causes,
    make_absence,
    make_walls,
    sum_absence_by_step,
    sum_slices,
    sum_unresolved_by_step,
    sum_walls_by_step,
)
from wallscope.model.analysis import CauseTime, ComputeAbsent
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import Wall
from wallscope.model.schemas import SLICES

STEPS = pl.Series("step", [3, 4], dtype=pl.UInt32)


def slices(*rows):
    """Slices written as step, cause, length and why no compute ran."""
    made, at_ns = [], 0
    for step, cause, length_ns, *absent in rows:
        wall = cause.split("/")[0]
        made.append(
            {
                "step": step,
                "start_ns": at_ns,
                "end_ns": at_ns + length_ns,
                "wall": wall,
                "cause": cause,
                "absent": absent[0] if absent else None,
            }
        )
        at_ns += length_ns
    return sum_slices(pl.DataFrame(made, schema=SLICES))


HELD = slices(
    (3, "compute/gemm", 60),
    (3, "compute/kernel-gap", 5, "dependency_stalled"),
    (3, "communication/ep/unsplit", 20, "blocking"),
    (3, "communication/unresolved", 3, "dependency_stalled"),
    (3, "unattributed/profiler", 2, "launch_starved"),
    (4, "compute/gemm", 50),
    (4, "memory/allocator", 30, "launch_starved"),
    (4, "memory/unresolved", 7, "dependency_stalled"),
    (4, "unattributed/unresolved", 4, "dependency_stalled"),
    (4, "unattributed/opaque-graph", 6),
    (4, "host/framework", 3, "launch_starved"),
    (9, "compute/gemm", 1_000),
)


def test_walls_of_steps():
    assert sum_walls_by_step(HELD, STEPS).tolist() == [[65, 23, 0, 0, 2], [50, 0, 37, 3, 10]]


def test_reasons_of_steps():
    assert sum_absence_by_step(HELD, STEPS).tolist() == [[2, 20, 8], [33, 0, 11]]


def test_time_without_an_owner_counts_its_walls_apart():
    assert sum_unresolved_by_step(HELD, STEPS).tolist() == [[2, 3, 0, 0], [10, 0, 7, 0]]


def test_kernels_that_no_pattern_knows_are_told_apart_of_the_time_without_an_owner():
    held = slices(
        (3, "unattributed/unrecognized-kernel", 5),
        (3, "unattributed/unresolved", 2, "dependency_stalled"),
        (4, "compute/unrecognized", 9),
    )

    assert sum_unresolved_by_step(held, STEPS).tolist() == [[7, 0, 0, 5], [0, 0, 0, 0]]


def test_steps_without_slices_own_nothing():
    nothing = slices()

    assert sum_walls_by_step(nothing, STEPS).tolist() == [[0] * 5] * 2
    assert sum_absence_by_step(nothing, STEPS).tolist() == [[0] * 3] * 2
    assert sum_unresolved_by_step(nothing, STEPS).tolist() == [[0] * 4] * 2


def test_parts_get_their_names():
    assert make_walls(np.arange(5)) == Walls(0, 1, 2, 3, 4)
    assert make_absence(np.arange(3)) == ComputeAbsent(0, 1, 2)


def test_causes_of_the_typical_step_sum_to_its_walls():
    held = slices(
        (3, "host/framework", 11), (4, "host/lock", 10), (4, "host/launch-call", 10), (3, "compute/gemm", 100)
    )

    found = list_causes(held, 2, Walls(50, 0, 0, 16, 0))

    assert [(one.cause, one.typical_ns) for one in found] == [
        ("compute/gemm", 50),
        ("host/framework", 6),
        ("host/launch-call", 5),
        ("host/lock", 5),
    ]
    assert found[1] == CauseTime("host/framework", Wall.HOST, 6, 6 / 66, None, 0)


@pytest.mark.parametrize(
    ("cause", "is_open"),
    [
        ("unattributed/unresolved", True),
        ("communication/unresolved", True),
        ("memory/unresolved", True),
        ("unattributed/opaque-graph", True),
        ("compute/gemm", False),
        ("communication/unknown/unsplit", False),
    ],
)
def test_time_that_nobody_owns_is_said_so(cause, is_open):
    wall = Wall(cause.split("/")[0])
    walls = Walls(*(8 if one == wall else 0 for one in Wall))

    (found,) = list_causes(slices((3, cause, 8)), 1, walls)

    assert (found.typical_ns, found.unresolved_ns) == (8, 8 if is_open else 0)


@pytest.mark.parametrize(
    ("sums", "count", "total", "expected"),
    [
        pytest.param([], 3, 0, [], id="nothing"),
        pytest.param([6, 3], 3, 3, [2, 1], id="no remainders"),
        pytest.param([5, 4], 3, 3, [2, 1], id="the largest remainder is rounded up"),
        pytest.param([4, 5], 3, 3, [1, 2], id="wherever it stands"),
        pytest.param([1, 1, 1], 3, 1, [1, 0, 0], id="the first of equals"),
        pytest.param([1, 1, 1, 1], 2, 2, [1, 1, 0, 0], id="the first of four equals"),
        pytest.param([5, 4], 3, 4, [2, 2], id="a total above the sum of means rounds more up"),
        pytest.param([10**18, 1], 3, (10**18 + 1) // 3, [10**18 // 3, 0], id="exact at any size"),
    ],
)
def test_means_that_add_up(sums, count, total, expected):
    assert apportion_means(sums, count, total) == expected


@given(st.lists(st.integers(0, 10**15), max_size=8), st.integers(1, 40))
def test_apportioned_means_add_up_and_are_off_by_less_than_one(sums, count):
    total = sum(sums) // count

    found = apportion_means(sums, count, total)

    assert sum(found) == total
    assert all(abs(part * count - value) < count for part, value in zip(found, sums, strict=True))
