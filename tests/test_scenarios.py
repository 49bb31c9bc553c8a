import json

import pytest

from fixtures.scenario import Scenario, scenarios
from tests.answered_once import analyze_scenario_once
from wallscope.jobs.answers import decode_analysis
from wallscope.render.data import write_json

ALWAYS = {"no-steps", "few-steps", "gpu-unknown", "loss-unknown", "one-rank"}
LEFT_OUT = {"call": "no-api-calls", "range": "no-nvtx"}


def excused(scenario: Scenario) -> set[str]:
    """Findings that say no more than that the scenario is short: it writes no call, or no range, at all."""
    return ALWAYS | {code for entry, code in LEFT_OUT.items() if entry not in scenario.content}


def answer(scenario: Scenario) -> dict:
    found = analyze_scenario_once(scenario.name)
    text = write_json(found)
    assert decode_analysis(text) == found
    return json.loads(text)


def at(found: object, dotted: str) -> object:
    for key in dotted.split("."):
        found = found[int(key)] if isinstance(found, list) else found[key]
    return found


def held(found: object, expected: object) -> object:
    """What was found, cut to the keys that the scenario speaks of."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected:
        return {key: held(found.get(key), expected[key]) for key in expected}
    return found


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_scenario(scenario):
    found = answer(scenario)
    expect = dict(scenario.expect)
    codes = [finding["code"] for finding in found["capture"]["findings"]]
    expected_codes = expect.pop("findings", [])

    assert {key: held(at(found, key), expect[key]) for key in expect} == expect
    assert set(expected_codes) <= set(codes)
    assert set(codes) - excused(scenario) <= set(expected_codes)
    for rank in found["ranks"]:
        for step in rank["steps"]:
            assert sum(step["budget"].values()) == step["end_ns"] - step["start_ns"]


def test_every_scenario_says_what_it_shows():
    assert all(scenario.title and scenario.expect for scenario in scenarios())
