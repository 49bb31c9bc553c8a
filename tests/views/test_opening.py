"""What a page begins with: the sentence on the first recommendation says which step it is about."""

from dataclasses import replace

import pytest

from tests.jobs.simulated import LATE, write_job
from wallscope import units
from wallscope.jobs.merge import run_job
from wallscope.model.capture import Options
from wallscope.ranks.job_sentences import measure_leading_ns
from wallscope.views.statement import state_analysis


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A job with a late rank: its mean step is another than the typical one of a rank."""
    folder = write_job(tmp_path_factory.mktemp("job") / "a")
    return run_job(sorted(folder.iterdir()), Options(), lambda _: None).analysis


def told(analysis, typical_ns=None, speedup=None):
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    ranks = list(analysis.ranks)
    if typical_ns is not None:
        typical = replace(rank.typical, step_ns=typical_ns)
        ranks[analysis.diagnosis.rank_index] = replace(rank, typical=typical)
    first, *others = analysis.fixes
    if speedup is not None:
        first = replace(first, speedup_ceiling=speedup, recoverable_ns=round(typical_ns * (1 - 1 / speedup)))
    return state_analysis(replace(analysis, ranks=tuple(ranks), fixes=(first, *others)))


def test_what_holds_the_job_up_and_its_recommendation_are_about_one_step(job):
    saved_ns, step_ns = measure_leading_ns(job.job)
    statement = told(job)

    assert f"lose {units.duration(saved_ns)} of the {units.duration(step_ns)} step" in statement.opening
    assert f"on rank 2: the step could drop to {units.duration(step_ns - saved_ns)} (" in statement.lead[0]


def test_a_recommendation_about_another_step_says_what_that_takes(job):
    _, step_ns = measure_leading_ns(job.job)
    typical_ns = round(0.8 * step_ns)
    lead = told(job, typical_ns, speedup=1.6).lead[0]
    before, after = units.duration(typical_ns), units.duration(round(typical_ns / 1.6))

    dropped = f"the typical step of rank {LATE} could drop from {units.join_ends(before, after, ' to ')} ("
    assert dropped in lead
