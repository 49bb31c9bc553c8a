"""Programs that are captured twice: what the profiler or the machine did is no change of the program."""

import pytest

from fixtures.simulation import changed
from fixtures.simulation.noise import add_noise
from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.writing import write_run
from wallscope.compare.compare import CompareOptions, Side, compare_sides
from wallscope.jobs.inputs import resolve_runs
from wallscope.model.capture import Options
from wallscope.views.comparison_words import find_confounders

STORIES = {story.name: story.program for story in stories()}
LAUNCH_NS, DEARER_NS = 4_500, 6_000


@pytest.fixture
def compare(tmp_path):
    def of(base, head, schema="3.25.0"):
        sides = []
        for name, program, version in (("base", base, "3.25.0"), ("head", head, schema)):
            path = tmp_path / f"{name}.sqlite"
            write_run(run(program), path, schema=version)
            sides.append(Side(name, resolve_runs((path,), Options(), lambda _: None)))
        return compare_sides(*sides, CompareOptions())

    return of


def what(entries):
    return [entry.what for entry in entries]


def test_dearer_calls_of_another_profiler_stand_next_to_the_verdict(compare):
    program = STORIES["slow framework"]
    dearer = changed.launch(program, DEARER_NS / LAUNCH_NS)
    found = compare(add_noise(program, 1), add_noise(dearer, 2), schema="3.24.0")
    (entry,) = find_confounders(found)

    assert entry.what == "time of a launch call (lower quartile)"
    assert entry.direction == "slower"
    assert entry.bias_ns == pytest.approx(5 * (DEARER_NS - LAUNCH_NS), rel=0.25)
    assert "profiler version" in what(found.mismatches)


def test_the_same_program_twice_has_no_bias(compare):
    program = STORIES["slow framework"]
    found = compare(add_noise(program, 1), add_noise(program, 2))

    assert find_confounders(found) == ()
    assert "profiler version" not in what(found.mismatches)


def test_a_slower_program_is_not_blamed_on_the_profiler(compare):
    program = STORIES["slow framework"]
    found = compare(add_noise(program, 1), add_noise(changed.think(program, 1.5), 2))

    assert found.step.head_typical_ns > 1.2 * found.step.base_typical_ns
    assert "time of a launch call (lower quartile)" not in what(find_confounders(found))
