"""The headline says what it covers, the same on every medium."""

import io
import json
import re
from dataclasses import replace
from html import unescape

import pytest
from rich.console import Console

from tests.answered_once import analyze_once
from tests.shipped_example import EXAMPLE
from wallscope.model.capture import Finding, Severity
from wallscope.model.diagnosis import Scope
from wallscope.model.enums import Axis
from wallscope.model.finding_codes import FindingCode
from wallscope.model.report import Report
from wallscope.render.data import write_brief, write_json
from wallscope.summary.diagnosis import find_scope
from wallscope.units import capitalize
from wallscope.views.analysis import render_analysis, write_analysis_card, write_analysis_markdown
from wallscope.views.brief import brief_analysis
from wallscope.views.headline import describe_scope, write_headline
from wallscope.views.page_analysis import write_analysis_page
from wallscope.views.statement import state_analysis


@pytest.fixture(scope="module")
def example():
    return analyze_once(EXAMPLE)


def without_steps(analysis):
    return replace(analysis, anchor=replace(analysis.anchor, kind="whole-trace", unit="window"))


def with_start_up(analysis):
    """Most of the capture is host time before the first step."""
    (rank,) = analysis.ranks
    walls = replace(rank.typical.walls, host=20 * sum(step.end_ns - step.start_ns for step in rank.steps))
    diagnosis = replace(analysis.diagnosis, dominant_wall="host")
    return replace(analysis, ranks=(replace(rank, whole_walls=walls),), diagnosis=diagnosis)


def one_of_three_files(analysis):
    left_out = Finding(FindingCode.EXPORT_LEFT_OUT, Severity.WARNING, "b is left out.")
    capture = replace(analysis.capture, findings=(left_out, left_out), world_size=None)
    return replace(analysis, capture=capture)


COVERED = [
    pytest.param(lambda found: found, "communication-bound on rank 3 of 16", id="one rank"),
    pytest.param(without_steps, "communication-bound over the whole capture, on rank 3 of 16", id="no steps"),
    pytest.param(with_start_up, "host-bound before the first step, on rank 3 of 16", id="start-up"),
    pytest.param(one_of_three_files, "communication-bound in 1 of 3 files", id="one of three files"),
]


@pytest.mark.parametrize(("change", "headline"), COVERED)
def test_every_medium_begins_with_the_same_sentence(example, change, headline):
    analysis = change(example)
    opening = state_analysis(analysis).opening
    page = unescape(
        re.sub(r"<[^>]+>", "", write_analysis_page(Report(analysis, (), ())).partition("<h1>")[2])
    )
    first, full = io.StringIO(), io.StringIO()
    for out, is_full in ((first, False), (full, True)):
        Console(file=out, width=400).print(render_analysis(analysis, is_full=is_full))

    assert write_headline(analysis) == headline
    assert opening.startswith(f"{capitalize(headline)}: ")
    assert " ".join(page.split()).startswith(opening)
    assert write_analysis_markdown(analysis).startswith(f"### wallscope: {opening}\n")
    assert f"verdict: {opening} " in write_brief(brief_analysis(analysis, ("run.sqlite",), 3))
    assert f"<b>{opening}</b>" in write_analysis_card(analysis)
    for out in (first, full):
        shown = " ".join(out.getvalue().split())
        verdict, _, rest = opening.partition("-bound")
        assert f" {verdict.upper()}-BOUND{rest} " in shown
        assert "Main cause" not in shown


def test_the_json_answer_has_what_the_headline_covers(example):
    assert example.scope == find_scope(example)
    assert json.loads(write_json(example))["scope"] == {
        "time": "steps",
        "rank": 3,
        "ranks": 1,
        "of_ranks": 16,
        "files": 1,
        "of_files": 1,
        "is_one_stage": False,
        "covered_share": None,
    }


def test_one_stage_of_a_pipeline_is_said(example):
    (rank,) = example.ranks
    operation = replace(rank.communication.operations[0], axis=Axis.PP)
    communication = replace(rank.communication, operations=(operation,))
    of_stage = replace(example, ranks=(replace(rank, communication=communication),))
    alone = replace(of_stage, capture=replace(of_stage.capture, world_size=None))

    assert describe_scope(of_stage) == "on rank 3 of 16 (one pipeline stage)"
    assert describe_scope(alone) == "on one pipeline stage"


def test_the_time_before_the_steps_is_the_scope_only_of_another_verdict(example):
    """Where the steps have the wall of the whole capture, the verdict is about the steps."""
    (rank,) = example.ranks
    walls = replace(rank.typical.walls, communication=10**12)
    same = replace(example, ranks=(replace(rank, whole_walls=walls),))

    assert find_scope(same).time == "steps"
    assert isinstance(find_scope(same), Scope)
