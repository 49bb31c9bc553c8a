"""Waits that no row names, as the simulator plays them: programs have them, and near misses do not."""

import pytest

from fixtures.simulation.run import run
from fixtures.simulation.stories_inferred import wait_stories
from fixtures.simulation.truth import truths
from tests.conftest import run_part

STORIES = tuple(wait_stories())


def share(program, is_cause):
    """The share of the steady steps that some causes have in truth."""
    causes = truths(run(program))[0].causes
    return sum(ns for cause, ns in causes.items() if is_cause(cause)) / sum(causes.values())


@pytest.mark.parametrize("story", run_part(STORIES, name=lambda story: story.name))
def test_a_program_waits_and_its_near_miss_does_not(story):
    waited = share(story.make(1, is_near=False), story.stands_for)

    assert waited >= 0.1
    assert share(story.make(1, is_near=True), story.is_named) <= waited / 2


def test_stories_of_waits_have_names_of_their_own():
    assert len({story.name for story in STORIES}) == len(STORIES)
