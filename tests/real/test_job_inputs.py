"""Small jobs whose right answer is known: who represents the job, and how long ranks wait."""

from pathlib import Path

import pytest

from tests.answered_once import analyze_once
from wallscope.jobs.merge import run_job
from wallscope.model.capture import Options

JOBS = Path(__file__).resolve().parents[3] / "shared" / "traces" / "minimal" / "jobs"

pytestmark = pytest.mark.skipif(
    not JOBS.is_dir(), reason="no small inputs here: ../shared/traces/minimal is absent"
)


def test_of_ranks_without_blocking_waits_the_one_that_never_waits_represents_the_job():
    job = run_job(sorted((JOBS / "tie3").iterdir()), Options(), lambda _: None).analysis.job
    member = job.members[job.critical_place]

    assert (job.critical_rank, member.peer_wait_ns) == (2, 0)
    assert job.stragglers == ()


def test_no_rank_waits_longer_than_its_step():
    job = analyze_once(JOBS / "interleaved.sqlite").job

    assert job.stragglers == ()
    assert "even-out-ranks" not in {fix.id for fix in analyze_once(JOBS / "interleaved.sqlite").fixes}
    for one in job.members:
        assert 0 < one.peer_wait_ns + one.pipeline_wait_ns <= one.residence_ns <= one.step_median_ns
