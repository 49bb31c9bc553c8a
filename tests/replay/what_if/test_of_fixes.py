"""What fixes would win, and why it is not told."""

import tomllib
from functools import partial

import polars as pl
import pytest

from fixtures.simulation.program import HostThread, Program, SyncDevice, Work
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.story import US, alone, gemm, stepped
from fixtures.simulation.writing import write_run
from wallscope.advice.measurements import MeasuredRun
from wallscope.advice.rules import check_rules, estimate_share, fix_rules
from wallscope.model.advice import RunConfiguration
from wallscope.model.capture import Options
from wallscope.model.cause_catalogue import list_cause_meanings
from wallscope.model.enums import Axis, ComputeCategory
from wallscope.model.whatif import Asked, Question
from wallscope.pipeline import analyze_capture, ask_what_if
from wallscope.replay.changes import WITHOUT

STORIES = {story.name: story.program for story in stories()}


def analysis_of(program, path):
    write_run(run(program), path, has_events=True)
    return analyze_capture(path, Options(), lambda _: None).analysis


def slow_host(_):
    return (*(part for _ in range(6) for part in (gemm(5), Work(40 * US))), SyncDevice())


@pytest.mark.parametrize(
    ("story", "won_ns"),
    [
        pytest.param("token-count read", {"fewer-readbacks": 190_500}, id="a read-back"),
        pytest.param("data loading", {"data-workers": 400_000}, id="data"),
        pytest.param("allocator stall", {"expandable-segments": 506_500}, id="allocator"),
        pytest.param("exposed all-to-all", {"ep-overlap": 101_000, "deepep": 100_000}, id="exposed"),
        pytest.param("synchronisation beside another stream", {"ep-overlap": 0}, id="hidden already"),
    ],
)
def test_a_fix_is_told_what_its_questions_win_together(tmp_path, story, won_ns):
    path = tmp_path / "run.sqlite"
    analysis = analysis_of(STORIES[story], path)
    told = {fix.id: fix for fix in (*analysis.fixes, *analysis.dismissed) if fix.replay is not None}

    assert analysis.replay.refused is None
    assert analysis.replay.check.error_median < 0.05
    assert {name: told[name].replay.won_ns for name in won_ns} == won_ns
    measured = MeasuredRun(analysis, RunConfiguration(), pl.Series([], dtype=pl.String))
    rules = {rule.id: rule for rule in fix_rules()}
    for fix in told.values():
        asking = rules[fix.id].questions(fix.causes, partial(estimate_share, measured))
        assert set(fix.replay.questions) <= set(asking)
        asked = ask_what_if(path, Options(), Asked(fix.replay.questions), lambda _: None).answers[-1]
        assert (asked.step_ns, asked.next_wall) == (fix.replay.step_ns, fix.replay.next_wall)


@pytest.mark.parametrize(
    ("program", "refused"),
    [
        pytest.param(
            alone(lambda number: (gemm(50), Work((100 + 200 * (number % 2)) * US), gemm(50), SyncDevice())),
            "above the limit of 5.0 %",
            id="steps that are not alike",
        ),
        pytest.param(
            Program(((HostThread("python", stepped(2, slow_host)),),)),
            "only one step is complete",
            id="one whole step",
        ),
    ],
)
def test_a_replay_that_cannot_be_believed_says_why(tmp_path, program, refused):
    analysis = analysis_of(program, tmp_path / "run.sqlite")

    assert refused in analysis.replay.refused
    assert [fix.replay for fix in analysis.fixes] == [None] * len(analysis.fixes)


def test_all_launches_of_a_step_become_graphs(tmp_path):
    path = tmp_path / "run.sqlite"
    write_run(run(random_program(5)), path, has_events=True)
    questions = tuple(Question("graph", name) for name in ("*", "forward", "for*", "*ward"))
    of_all, of_one, of_pattern, of_both = ask_what_if(
        path, Options(), Asked(questions), lambda _: None
    ).answers[:4]

    assert of_one.step_ns == of_pattern.step_ns
    assert of_all.step_ns <= of_both.step_ns <= of_one.step_ns


def test_rules_ask_for_what_a_replay_knows():
    scaled = {"launch", "think", "communication", "copies", "compute", "CAUSES"}
    scaled |= {f"communication:{axis}" for axis in Axis} | {f"category:{one}" for one in ComputeCategory}
    scaled |= {cause for cause, _ in list_cause_meanings()}
    for rule in fix_rules():
        for question in rule.questions(("CAUSES",)):
            match question.kind:
                case "without":
                    assert question.target in WITHOUT
                case "graph":
                    assert "*" in question.target
                case _:
                    assert question.target in scaled, rule.id


@pytest.mark.parametrize("line", ["communication=0", "--scale communication", "--hide x=0", "--slow x"])
def test_a_rule_that_asks_nothing_is_refused(line):
    text = f"""
[[fix]]
id = "a"
title = "Do it"
wall = "host"
causes = ["host/file"]
phase = "fit"
because = "It is slow."
active = "It is fast."
source = "a book"
replay = ["{line}"]
"""
    with pytest.raises(ValueError, match="has no question"):
        check_rules(tomllib.loads(text), "it.toml")
