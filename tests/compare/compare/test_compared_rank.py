"""Which rank a comparison is about: the one that analyses of both sides report on."""

from dataclasses import replace

import pytest

from tests.compare.test_compare import steps
from tests.profile.random_profiles import profile_of
from tests.real.answers import NEEDS_TRACES, TRACES, answer, rank_of
from wallscope.compare.compare import CompareOptions, Side, compare_sides
from wallscope.jobs.inputs import resolve_runs
from wallscope.model.capture import Options
from wallscope.views.comparison_words import list_sides


def rank(number, name, factor, *, shown):
    profile = profile_of(name, steps(9, factor, seed=number))
    return replace(profile, header=replace(profile.header, rank=number, is_representative=shown))


def compare(base_shows, head_shows, wanted=None):
    sides = [
        Side(
            name, (tuple(rank(number, name, 1 + number / 50, shown=number in shown) for number in range(3)),)
        )
        for name, shown in (("base", base_shows), ("head", head_shows))
    ]
    return compare_sides(*sides, CompareOptions(rank=wanted))


@pytest.mark.parametrize("number", range(3))
def test_the_rank_that_both_analyses_report_on_is_compared(number):
    found = compare({number}, {number})

    assert (found.base.rank, found.head.rank) == (number, number)
    assert list_sides(found) == ("NVIDIA H100", f"rank {number} of 3 in both")


def test_a_rank_of_one_side_alone_is_named_as_such():
    found = compare({1}, {2})

    assert found.base.rank == found.head.rank in {1, 2}
    assert [found.base.is_representative, found.head.is_representative].count(True) == 1
    assert "(analyze reports another rank for head)" in list_sides(found)[1]
    assert compare({1}, {2}, wanted=0).base.rank == 0


@NEEDS_TRACES
def test_a_real_capture_of_two_gpus_is_compared_on_the_one_that_its_analysis_is_about():
    name = "nsysai_mfu_before"
    side = Side(name, resolve_runs((TRACES / f"{name}.sqlite",), Options(), lambda _: None))
    found = compare_sides(side, side, CompareOptions())

    assert found.base.device == rank_of(answer(name))["device"] == 1
    assert list_sides(found)[1].startswith("device 1, 2 ranks in both")  # not "device 1 of 2"
