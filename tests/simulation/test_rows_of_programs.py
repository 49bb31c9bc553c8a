"""Recommendations about simulated programs and the example name rows that their exports have."""

import pytest

from fixtures.scenario import scenarios
from fixtures.simulation.run import run
from fixtures.simulation.stories_waits import waits
from fixtures.simulation.writing import write_run
from tests.answered_once import analyze_once
from tests.conftest import run_part
from tests.real.row_families import FAMILY, list_walls_without_action, read_rows
from tests.shipped_example import EXAMPLE
from wallscope.model.capture import Options
from wallscope.pipeline import analyze

STORIES = dict(waits())


def _check(path, found):
    rows = read_rows(path)

    assert {fix.id for fix in found.fixes or () if not rows.count(FAMILY[fix.id])} == set()
    assert list_walls_without_action(found) == []


def test_recommendations_about_the_example_have_rows():
    _check(EXAMPLE, analyze_once(EXAMPLE))


@pytest.mark.parametrize("name", run_part(STORIES, name=str, of=9))
def test_recommendations_about_simulated_programs_have_rows(name, tmp_path):
    path = tmp_path / "run.sqlite"
    write_run(run(STORIES[name]), path)

    _check(path, analyze(path, Options(), lambda _: None))


@pytest.mark.parametrize("scenario", run_part(scenarios(), name=lambda one: one.name))
def test_recommendations_about_scenarios_have_rows(scenario, tmp_path):
    path = tmp_path / "run.sqlite"
    scenario.write(path)

    _check(path, analyze(path, Options(), lambda _: None))
