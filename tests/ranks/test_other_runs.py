"""Captures of another run show by their communicators, unless missing ranks may be members of these."""

from dataclasses import replace

import polars as pl
import pytest

from fixtures.planted_jobs import Layout, PlantedJob
from fixtures.simulated_ranks import draw_sessions_ns, make_profile
from wallscope.ranks.other_runs import find_other_runs

LAYOUT = Layout(pipeline=2, data=4, micro_batches=2, layers=1, steps=3, is_grouped=True)
PLANTED = PlantedJob(LAYOUT, (), 0)


def captured(numbers, others=(), **told):
    """Captures of a rank each, some of them of another run."""
    sessions_ns = draw_sessions_ns(LAYOUT.size, 0)
    return [
        (
            make_profile(
                number,
                PLANTED.ranks[number],
                PLANTED.hosts[number],
                sessions_ns[number],
                run=int(number in others),
                **told,
            ),
        )
        for number in numbers
    ]


@pytest.mark.parametrize(
    ("numbers", "others", "found"),
    [
        (range(8), (), []),
        (range(8), (3,), [3]),
        (range(8), (3, 6), [3, 6]),
        ([0, 1, 2, 3, 4, 5], (5,), [5]),
        ([0, 1, 2, 3, 5], (5,), []),
        ([0, 1], (1,), []),
        (range(8), (4, 5, 6, 7), []),
    ],
    ids=[
        "one run",
        "a rank",
        "two ranks",
        "where two are missing",
        "where three are",
        "no run has most",
        "halves",
    ],
)
def test_those_are_found_that_have_no_communicator_of_most(numbers, others, found):
    assert find_other_runs(captured(numbers, others), LAYOUT.size) == found


def changed(captures, *changes):
    """The same captures with other collectives."""
    return [
        tuple(
            replace(profile, collectives=profile.collectives.filter(own).with_columns(code))
            for profile in profiles
        )
        for profiles, (own, code) in zip(captures, changes, strict=True)
    ]


def test_ranks_without_a_common_group_may_be_of_one_run_where_their_members_are_missing():
    of_axis = (pl.col("axis") == "dp-gradient", pl.col("communicator"))
    own = changed(captured([0, 1, 7]), of_axis, of_axis, of_axis)

    assert find_other_runs(own, LAYOUT.size) == []


def test_without_communicators_or_the_size_of_the_job_nothing_is_said():
    assert find_other_runs(captured(range(8), (3,), has_communicators=False), LAYOUT.size) == []
    assert find_other_runs(captured(range(8), (3,)), None) == []


def test_communicators_that_each_rank_numbers_by_itself_are_no_runs():
    by_rank = [(pl.lit(value=True), pl.col("communicator") + number) for number in range(8)]

    assert find_other_runs(changed(captured(range(8)), *by_rank), LAYOUT.size) == []
