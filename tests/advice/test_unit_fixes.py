"""The recommendation about what holds a job up comes first, with the gain of the replay of the job."""

from dataclasses import replace
from itertools import product

import polars as pl
import pytest

from fixtures.simulated_ranks import US, Meet, Work, played, profiles
from tests.advice.runs import run
from wallscope.advice.recommend import match_rules, recommend
from wallscope.advice.rules import fix_rules
from wallscope.model.advice import RunConfiguration, TraceFacts
from wallscope.model.analysis import Reason, UnitKind
from wallscope.ranks.job import match_ranks
from wallscope.summary.diagnosis import find_dominant_wall

LATE = 2
MEANT = {
    (UnitKind.RANK, Reason.SLOWER_KERNELS): "even-gpu-clocks",
    (UnitKind.NODE, Reason.HOST): "even-hosts",
    (UnitKind.RANK, Reason.MORE_TOKENS): "even-tokens",
    (UnitKind.RANK, Reason.OTHER_WORK): "even-work",
    (UnitKind.LINK, Reason.COMMUNICATION): "even-links",
    (UnitKind.STAGE, Reason.OTHER_WORK): "even-stages",
    (UnitKind.JOB, Reason.HOST): "stall-together",
}


def held_up(unit, reason):
    """A run of a job of which one rank is late, said to be such a unit for such a reason."""
    everyone = tuple(range(4))
    step = [[Work(400 * US * (1.2 if rank == LATE else 1.0)), Meet(everyone, 50 * US)] for rank in everyone]
    job = match_ranks(profiles(played([[own] * 6 for own in step])), find_dominant_wall).job
    (late,) = job.stragglers
    changed = replace(job, stragglers=(replace(late, unit=unit, reason=reason),))
    return replace(
        run({"communication/dp-parameter/unsplit": 20}, operations=[["dp-parameter"]]), job=changed
    )


def recommended(analysis):
    return recommend(match_rules(analysis, RunConfiguration(), TraceFacts(), pl.Series(["gemm"]))).fixes


@pytest.mark.parametrize(("unit", "reason"), list(product(UnitKind, Reason)), ids=str)
def test_every_unit_has_a_recommendation_that_comes_first(unit, reason):
    analysis = held_up(unit, reason)
    (late,) = analysis.job.stragglers
    fix = recommended(analysis)[0]

    assert ("rank 2" in fix.title) == (unit is not UnitKind.JOB)
    assert "(" not in fix.title
    assert fix.recoverable_ns == late.saved_ns
    assert fix.speedup_ceiling == pytest.approx(1 + late.saved_ns / late.replayed_step_ns)
    assert MEANT.get((unit, reason), fix.id) == fix.id


def test_a_title_names_the_unit_once():
    """Titles were a sentence about some rank, with the rank in parentheses after it."""
    (rule,) = (one for one in fix_rules() if one.id == "even-gpu-clocks")
    fix = recommended(held_up(UnitKind.RANK, Reason.SLOWER_KERNELS))[0]

    assert fix.title == "Find out why kernels run more slowly on rank 2"
    assert rule.title == "Find out why kernels run more slowly on some ranks"
    for one in fix_rules():
        assert one.title_of_unit.count("{unit}") == bool(one.title_of_unit), one.id


def test_every_rule_for_units_is_meant_for_one():
    assert {rule.id for rule in fix_rules() if rule.late} == set(MEANT.values())


def test_without_such_a_unit_none_of_these_rules_is_found():
    analysis = held_up(UnitKind.RANK, Reason.HOST)
    alone = replace(analysis, job=replace(analysis.job, stragglers=()))
    of_units = {rule.id for rule in fix_rules() if rule.late}

    assert not of_units & {fix.id for fix in recommended(alone)}
    assert len(of_units & {fix.id for fix in recommended(analysis)}) == 1
