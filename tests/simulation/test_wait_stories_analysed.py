"""Waits that no row names are found in noisy programs, and not in programs that resemble them.

`python -m benchmarks.waits` counts more seeds.
"""

import shutil

import pytest

from fixtures.simulation.less_rows import list_removals, rename_kernels
from fixtures.simulation.stories_inferred import wait_stories
from fixtures.simulation.wait_story import change_rows, judge_waits
from tests.conftest import run_part, slow

STORIES = tuple(wait_stories())
SEEDS = (101, *slow(*range(102, 110)))
WITH_OS_CALLS = 102
"""An even seed: without calls of the system, nothing tells that a thread waits for one without calls."""


def judge(story, seed, folder, *, is_near):
    path = folder / f"{is_near}.sqlite"
    played = story.write(path, seed, is_near=is_near)
    return path, played, story.is_named if is_near else story.stands_for


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("story", run_part(STORIES, name=lambda story: story.name, of=2))
def test_a_wait_is_found_and_its_near_miss_is_not_named(tmp_path, story, seed):
    answers = [judge_waits(*judge(story, seed, tmp_path, is_near=near)) for near in (False, True)]

    assert answers[0].is_found, answers[0]
    assert not answers[1].is_named, answers[1]
    assert not any(answer.is_wrong for answer in answers)


@pytest.mark.parametrize("is_near", [False, True])
@pytest.mark.parametrize("story", run_part(STORIES, name=lambda story: story.name, of=9))
def test_no_other_wall_is_claimed_with_confidence_where_rows_or_names_are_missing(tmp_path, story, is_near):
    path, played, is_cause = judge(story, WITH_OS_CALLS, tmp_path, is_near=is_near)
    less, wrong = tmp_path / "less.sqlite", []
    for missing, statements in [*list_removals(path), rename_kernels()]:
        shutil.copy(path, less)
        change_rows(less, statements)
        answer = judge_waits(less, played, is_cause)
        wrong += [(missing, answer)] if answer.is_surely_wrong else []

    assert wrong == []
