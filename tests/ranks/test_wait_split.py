"""What communication owns is split by what it did, and nothing of it is lost or invented."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.simulated_ranks import MS, US, Meet, Work, played, profiles
from wallscope.model.cause_catalogue import drop_detail
from wallscope.model.enums import Axis, Collective
from wallscope.profile.time_moves import join_split_causes
from wallscope.ranks.job import match_ranks
from wallscope.ranks.wait_split import PARTS, split_profile
from wallscope.summary.diagnosis import decide_wall

PEER, MOVING, WHOLE = (f"communication/dp-gradient/{part}" for part in ("peer-wait", "transfer", "unsplit"))


def judged(walls, unknown):
    return decide_wall(walls, unknown).dominant


def sums(frame, *by, value):
    return frame.group_by(*by).agg(pl.col(value).sum()).sort(*by).rows()


def folded(frame):
    return frame.with_columns(pl.col("cause").map_elements(drop_detail, return_dtype=pl.String))


def assert_same_time(before, after):
    """Each sum that a split may not change."""
    for name, by, value in (
        ("owned", ("input", "step", "key", "cause"), "owned_ns"),
        ("owned", ("input", "step", "key", "cause"), "blocking_ns"),
        ("causes", ("input", "step", "cause", "state", "absent"), "ns"),
    ):
        ours, theirs = (sums(folded(getattr(side, name)), *by, value=value) for side in (before, after))
        assert ours == theirs
    by_step = [sums(folded(after.owned), "input", "step", "cause", value="owned_ns"),
               sums(folded(after.causes), "input", "step", "cause", value="ns")]  # fmt: skip
    assert by_step[0] == by_step[1]
    assert after.owned["owned_ns"].min() > 0
    assert after.causes["ns"].min() > 0


works = st.lists(st.integers(1, 900), min_size=1, max_size=3)
jobs = st.integers(2, 4).flatmap(
    lambda size: st.lists(
        st.lists(works, min_size=size, max_size=size), min_size=2, max_size=4
    )
)  # fmt: skip


FEW = settings(max_examples=max(settings.default.max_examples // 8, 5))


@FEW
@given(jobs, st.booleans())
def test_a_split_keeps_all_sums_and_can_be_undone(steps, has_communicators):
    size = len(steps[0])
    everyone = tuple(range(size))
    least = [min(len(own) for own in step) for step in steps]
    told = profiles(
        played(
            [
                [
                    [item for us in own[rank][:count] for item in (Work(us * US), Meet(everyone, 70 * US))]
                    for own, count in zip(steps, least, strict=True)
                ]
                for rank in range(size)
            ]
        ),
        has_communicators=has_communicators,
    )
    found = match_ranks(told, judged)

    for before, after in zip(told, found.profiles, strict=True):
        assert_same_time(before, after)
        assert join_split_causes(after).owned.sort(pl.all()).equals(before.owned.sort(pl.all()))
    again = match_ranks(found.profiles, judged)
    assert [one.owned.rows() for one in again.profiles] == [one.owned.rows() for one in found.profiles]
    assert again.job == found.job


rows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(0, 50), st.booleans(), st.booleans()),
    min_size=1,
    max_size=12,
)


@FEW
@given(rows, st.lists(st.integers(0, 120), min_size=4, max_size=4))
def test_a_step_owns_no_more_of_a_part_than_collectives_that_began(supply, owned):
    """Whatever a step owns, of it waits and moves only what collectives up to then did."""
    (profile, *_) = profiles(
        played([[[Work(5_000), Meet((0, 1), 1_000)] for _ in range(4)] for _ in range(2)])
    )
    key = profile.collectives["key"][0]
    times = profile.owned.filter(pl.col("key") != key)
    own = pl.DataFrame(
        [(0, step, key, WHOLE, ns, ns) for step, ns in enumerate(owned) if ns],
        schema=times.schema,
        orient="row",
    )
    profile = _with(profile, pl.concat([times, own]))
    table = pl.DataFrame(
        [
            {"input": 0, "key": key, "place": place, "step": step, "axis": Axis.DP_GRADIENT,
             "operation": Collective.ALL_REDUCE, "is_whole": is_whole, "is_pipeline": is_pipeline,
             "blocking_ns": wait + move, "blocking_wait_ns": wait}
            for place, (step, wait, move, is_whole, is_pipeline) in enumerate(
                sorted(supply, key=lambda row: row[0])
            )
        ]
    )  # fmt: skip
    found = split_profile(profile, table)
    assert_same_time(profile, found)
    if not any(row[3] for row in supply):
        assert found.owned.equals(profile.owned)
    for part in PARTS:
        name = f"communication/dp-gradient/{part}"
        upto = [
            found.owned.filter((pl.col("cause") == name) & (pl.col("step") <= step))["owned_ns"].sum()
            for step in range(4)
        ]
        given_ns = [_given(supply, step, part) for step in range(4)]
        assert all(own <= most for own, most in zip(upto, given_ns, strict=True))
        if sum(owned) <= sum(row[1] + row[2] for row in supply if row[0] == 0):
            assert np.all(np.diff(upto) >= 0)


def _given(supply, until, part):
    began = [row for row in supply if row[0] <= until and row[3]]
    if part == "transfer":
        return sum(row[2] for row in began)
    return sum(row[1] for row in began if row[4] == (part == "pipeline-wait"))


def _with(profile, owned):
    sums_of = owned.group_by("input", "step", "cause").agg(ns=pl.col("owned_ns").sum())
    causes = profile.causes.select("cause", "state", "absent").unique("cause")
    whole = sums_of.join(causes, on="cause").select(profile.causes.columns)
    return replace(profile, owned=owned, causes=whole)


def test_waiting_for_the_late_rank_is_told_from_moving():
    """Rank 1 computes 300 µs longer: the other waits so long in each step, and both move 70 µs."""
    step = [[Work((500 + 300 * rank) * US), Meet((0, 1), 70 * US)] for rank in (0, 1)]
    told = profiles(played([[own] * 6 for own in step], exit_ns=0))
    waits, late = match_ranks(told, judged).profiles

    def mean_us(profile, cause):
        own = profile.owned.filter((pl.col("cause") == cause) & (pl.col("step") > 0))
        return float(Fraction(own["owned_ns"].sum() or 0, 5 * US))

    assert [mean_us(waits, cause) for cause in (PEER, MOVING, WHOLE)] == pytest.approx([300, 70, 0], abs=0.01)
    assert [mean_us(late, cause) for cause in (PEER, MOVING, WHOLE)] == pytest.approx([0, 70, 0], abs=0.01)


def test_without_partners_it_stays_one():
    told = profiles(played([[[Work(MS), Meet((0,), 70 * US)] for _ in range(4)]]))
    (alone,) = match_ranks(told, judged).profiles

    assert WHOLE in set(alone.owned["cause"])
    assert alone.owned.equals(join_split_causes(alone).owned)
