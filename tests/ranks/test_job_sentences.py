"""What is said of a job whose replay shows nothing: the rank that comes latest, where one does."""

from dataclasses import replace

import pytest

from fixtures.planted_jobs import Fault, Layout, PlantedJob
from wallscope.ranks.job import match_ranks
from wallscope.ranks.job_sentences import describe_unknown
from wallscope.summary.diagnosis import find_dominant_wall

LATE = Fault("slow-gpu", "rank", (2,), 1.2)


def match(*faults):
    planted = PlantedJob(Layout(data=4, steps=4), faults, seed=0)
    return match_ranks(planted.profiles(), find_dominant_wall).job


@pytest.mark.parametrize(("faults", "is_said"), [((LATE,), True), ((), False)])
def test_the_rank_that_waits_least_is_named_where_others_wait_far_longer(faults, is_said):
    assert ("Rank 2 comes last: it waits" in describe_unknown(match(*faults), "step")) == is_said


def test_no_rank_is_named_latest_where_the_waiting_of_one_is_unknown():
    job = match(LATE)
    first, *others = job.members
    hidden = replace(job, members=(replace(first, peer_wait_ns=None), *others))

    assert "latest" not in describe_unknown(hidden, "step")
