"""For each cause of each wall: the fix that comes first, its settings, and those that must not be there."""

import tomllib
from pathlib import Path

import polars as pl
import pytest

from tests.advice.runs import RANGES, run
from wallscope.advice.recommend import match_rules, recommend
from wallscope.advice.rules import fix_rules
from wallscope.model.advice import KnownSetting, RunConfiguration, TraceFacts
from wallscope.model.cause_catalogue import CALL, list_cause_meanings

RULES = {rule.id: rule for rule in fix_rules()}
STORIES = tomllib.loads((Path(__file__).parents[1] / "stories.toml").read_text(encoding="utf-8"))["story"]


def fixes_of(story):
    """The fixes of a story that answer its cause, and all of them."""
    told = {key: KnownSetting(value, "test") for key, value in story.get("configuration", {}).items()}
    facts = dict(story.get("run", {}))
    names = pl.Series([RANGES[facts.pop("framework", "megatron")], *facts.pop("names", ())])
    answer = recommend(
        match_rules(run(story["causes"], **facts), RunConfiguration(told), TraceFacts(), names)
    )
    found = (*answer.fixes, *answer.capture_advice)
    if RULES[story["first"]].about == "capture":
        found = sorted(found, key=lambda fix: RULES[fix.id].about != "capture")
    cause = story.get("cause", next(iter(story["causes"])))
    return [fix for fix in found if cause in fix.causes or not cause], found


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story["name"])
def test_the_first_fix_is_the_right_one_and_the_wrong_ones_are_absent(story):
    own, found = fixes_of(story)
    written = {f"{entry.key}={entry.value}" if entry.value else entry.key for entry in own[0].settings}

    assert own[0].id == story["first"]
    assert {story.get("setting")} - {None} <= written
    assert story.get("unset") not in written
    assert not {fix.id for fix in found} & set(story.get("absent", ()))
    assert {story.get("finds")} - {None} <= {fix.id for fix in found}


def test_every_fix_is_found_in_a_story():
    found = {fix.id for story in STORIES for fix in fixes_of(story)[1]}

    assert found == {rule.id for rule in fix_rules() if not rule.late}  # tests/advice/test_unit_fixes.py


def test_every_cause_has_a_story():
    told = {cause for story in STORIES for cause in story["causes"]}
    wanted = {cause for cause, _ in list_cause_meanings() if CALL not in cause}

    assert wanted - told == set()
    assert any(cause.startswith("host/queue-drained/") for cause in told)
