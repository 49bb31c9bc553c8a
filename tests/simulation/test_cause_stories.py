"""Causes that an expert sees at once are named in noisy programs, and not in programs that resemble them.

`python -m benchmarks.causes` counts more seeds.
"""

import pytest

from fixtures.simulation.stories_causes import cause_stories
from tests.conftest import run_part
from wallscope.model.capture import Options
from wallscope.pipeline import analyze

SEEDS = (101, pytest.param(102, marks=pytest.mark.slow))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("story", run_part(tuple(cause_stories()), name=lambda story: story.name, of=2))
def test_a_cause_is_named_and_its_near_miss_is_not(tmp_path, story, seed):
    named = []
    for is_near in (False, True):
        path = tmp_path / f"{is_near}.sqlite"
        story.write(path, seed, is_near=is_near)
        named.append(story.is_named(analyze(path, Options(), lambda _: None)))

    assert named == [True, False]
