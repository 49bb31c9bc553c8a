"""The first screen: every capture gets the same shape, within 80 columns, and nothing grave is hidden."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from fixtures.scenario import scenarios
from tests.answered_once import analyze_once, analyze_scenario_once
from tests.conftest import TRACES, run_part
from tests.shipped_example import EXAMPLE
from wallscope.errors import NothingToAnalyzeError
from wallscope.model.capture import Finding, Severity
from wallscope.model.diagnosis import Diagnosis, WallShare
from wallscope.model.enums import Wall
from wallscope.views.analysis import render_analysis
from wallscope.views.sections.findings import describe_confidence, list_caveats
from wallscope.views.sections.walls import describe_unaddressed_compute
from wallscope.views.verdict import choose_basis, describe_hidden_communication, list_verdict_sentences

MOST_LINES = 40
VERDICTS = (
    "COMPUTE-BOUND",
    "COMMUNICATION-BOUND",
    "MEMORY-BOUND",
    "HOST-BOUND",
    "NO SINGLE WALL",
    "WALL UNKNOWN",
)


def printed(analysis, columns=80, **options):
    page = io.StringIO()
    console = Console(file=page, width=columns, markup=False, highlight=False, emoji=False)
    console.print(render_analysis(analysis, "run.sqlite", **options))
    return [line.rstrip() for line in page.getvalue().rstrip("\n").split("\n")]


def check_shape(lines, columns):
    text = "\n".join(lines)
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= columns
    assert sum(line.startswith(VERDICTS) for line in lines) == 1
    assert [text.count(f"\n{heading}") for heading in ("Recommendations", "How sure  ", "Next  ")] == [
        1,
        1,
        1,
    ]
    assert text.index("Recommendations") < text.index("\nHow sure") < text.index("\nNext")
    assert "None" not in re.sub(r"\bNone of the ", "", text)


@pytest.fixture(scope="module")
def example():
    return analyze_once(EXAMPLE)


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("scenario", run_part(scenarios(), name=lambda scenario: scenario.name))
def test_every_capture_gets_the_same_shape(scenario, columns):
    try:
        analysis = analyze_scenario_once(scenario.name)
    except NothingToAnalyzeError:
        pytest.skip("nothing to analyze in this scenario")

    check_shape(printed(analysis, columns), columns)


@pytest.mark.parametrize("path", run_part(sorted(TRACES.glob("*.sqlite")), of=9))
def test_every_real_capture_gets_the_same_shape(path):
    try:
        analysis = analyze_once(path)
    except NothingToAnalyzeError:
        pytest.skip("holds no CUDA activity")

    check_shape(printed(analysis), 80)


def test_the_headline_and_the_bars_show_one_number(example):
    lines = printed(example)
    share = f"{100 * example.diagnosis.walls.communication.share:.1f} %"

    assert "\n".join(lines).partition("COMMUNICATION-BOUND")[2].partition("\n\n")[0].count(share) == 1
    assert share in example.diagnosis.verdict
    assert next(line for line in lines if line.endswith("◀")).count(share) == 1


def test_bounds_are_those_of_the_replays(example):
    shown = [fix for fix in example.fixes if fix.replay is not None][:3]
    text = "\n".join(printed(example))

    assert shown
    for fix in shown:
        before_ns = fix.replay.step_ns + fix.replay.won_ns
        assert f"up to {before_ns / fix.replay.step_ns:.2f}x" in text


def test_an_error_is_shown_before_any_other_caveat(example):
    lost = Finding("records-lost", Severity.INFO, "Records are lost.", "Capture less.")
    broken = Finding("trace-cut-off", Severity.ERROR, "The file ends early.", "Write it again.")
    capture = replace(example.capture, findings=(*example.capture.findings, lost, broken))
    lines = printed(replace(example, capture=capture))

    first = next(place for place, line in enumerate(lines) if "•" in line)
    assert "The file ends early. → Write it again." in lines[first]
    assert "Records are lost. → Capture less." in lines[first + 1]


@pytest.mark.parametrize(
    ("code", "is_shown"),
    [("one-rank", True), ("few-steps", True), ("gpu-unknown", False), ("throughput-unknown", False)],
)
def test_only_findings_that_bear_on_the_headline_are_shown(example, code, is_shown):
    finding = Finding(code, Severity.WARNING, "It is so.", None)
    found = replace(example, capture=replace(example.capture, findings=(finding,)))

    assert (
        any("It is so." in "".join(map(str, line)) for line in list_caveats(found, found.ranks[0]))
        is is_shown
    )


def test_marking_that_slows_the_host_is_no_caveat_of_a_step_that_waits_for_nothing(example):
    (rank,) = example.ranks
    walls = replace(rank.typical.walls, compute=rank.typical.step_ns, communication=0, memory=0, host=0)
    idle = replace(rank, typical=replace(rank.typical, walls=walls))
    nothing = WallShare(0, 0.0, 0.0, 0.0, 0.0)
    shares = replace(example.diagnosis.walls, **dict.fromkeys(("communication", "memory", "host"), nothing))
    finding = Finding("emit-nvtx", Severity.INFO, "It is so.", None)
    found = replace(
        example,
        ranks=(idle,),
        diagnosis=replace(example.diagnosis, dominant_wall="compute", walls=shares),
        capture=replace(example.capture, findings=(finding,)),
    )

    assert list_caveats(found, idle) == []


def test_medians_are_the_basis_of_one_rank(example):
    basis, shares = choose_basis(example, example.ranks[0]), example.diagnosis.walls

    assert (basis.kind, basis.walls) == ("median", example.ranks[0].typical.walls)
    assert [basis.share(wall) for wall in Wall] == [getattr(shares, wall).share for wall in Wall]


def test_of_one_step_that_step_is_the_basis(example):
    (rank,) = example.ranks
    alone = replace(rank, steps=rank.steps[3:4])

    assert choose_basis(replace(example, ranks=(alone,)), alone).kind == "typical"


@pytest.mark.parametrize(("wall", "kind"), [("communication", "median"), ("host", "whole")])
def test_the_whole_capture_is_the_basis_only_of_a_verdict_about_it(example, wall, kind):
    """Steps of the same wall as the whole capture are what the verdict is about."""
    (rank,) = example.ranks
    zero = replace(rank.typical.walls, **dict.fromkeys(map(str, Wall), 0))
    found = replace(rank, whole_walls=replace(zero, **{wall: 10**12}))
    analysis = replace(example, ranks=(found,), diagnosis=replace(example.diagnosis, dominant_wall=wall))

    assert choose_basis(analysis, found).kind == kind


def test_full_output_lists_every_recommendation_and_limit(example):
    text = " ".join(" ".join(printed(example, 140, is_full=True)).split())

    assert all(fix.title in text for fix in example.fixes)
    assert all(finding.message in text for finding in example.capture.findings)


def test_without_a_terminal_there_is_no_escape_and_with_one_there_is_color(example):
    page = io.StringIO()
    Console(file=page, width=80, force_terminal=True, color_system="truecolor").print(
        render_analysis(example)
    )

    assert "\x1b[" in page.getvalue()
    assert "\x1b[" not in "\n".join(printed(example))


def test_a_given_configuration_is_not_asked_for(example):
    asked = "wallscope analyze run.sqlite --config FILE"

    assert any(asked in line for line in printed(example))
    assert not any(asked in line for line in printed(example, has_configuration=True))


def test_compute_without_a_fix_for_its_largest_part_is_said(example):
    diagnosis = replace(example.diagnosis, dominant_wall="compute")
    bound = replace(example, diagnosis=diagnosis, fixes=())
    rank = bound.ranks[diagnosis.rank_index]
    largest = max((one for one in rank.causes if one.wall is Wall.COMPUTE), key=lambda one: one.typical_ns)
    fixed = replace(example.fixes[0], causes=(largest.cause,))

    assert describe_unaddressed_compute(bound, rank).startswith(
        "No known fix speeds up the largest part of compute, "
    )
    assert describe_unaddressed_compute(replace(bound, fixes=(fixed,)), rank) == ""
    assert describe_unaddressed_compute(example, rank) == ""


@pytest.mark.parametrize(
    ("union_ns", "exposed_ns", "lost_ns", "said"),
    [
        pytest.param(
            12_000_000,
            10_000_000,
            0,
            "(2.0 ms of it hidden by compute) but does not delay the step.",
            id="none of it delays the step",
        ),
        pytest.param(
            12_000_000,
            0,
            3_000_000,
            "(12.0 ms of it hidden by compute) and delays the step by 3.0 ms.",
            id="a part of it does",
        ),
        pytest.param(12_000_000, 9_000_000, 7_000_000, "", id="most of it does"),
        pytest.param(500_000, 0, 0, "", id="too little of it runs"),
    ],
)
def test_communication_that_delays_nothing_is_said(example, union_ns, exposed_ns, lost_ns, said):
    (rank,) = example.ranks
    walls = replace(rank.typical.walls, communication=lost_ns)
    found = replace(
        rank,
        typical=replace(rank.typical, walls=walls),
        communication=replace(rank.communication, union_ns=union_ns, exposed_ns=exposed_ns, hidden_share=0.1),
    )
    lines = [*describe_hidden_communication(replace(example, ranks=(found,)), found)]

    assert len(lines) == bool(said)
    assert said in "".join(lines)


def test_unresolved_waits_that_cost_nothing_are_counted_without_a_caveat(example):
    sure = replace(example.diagnosis.confidence, inferred_share=0.0, unresolved_share=0.0)
    open_waits = Finding("unresolved-waits", Severity.INFO, "It is so.", None, 0)
    capture = replace(example.capture, resolved_dependency_share=0.75, findings=(open_waits,))
    found = replace(example, diagnosis=replace(example.diagnosis, confidence=sure), capture=capture)

    assert (
        "he reason for 25.0 % of the waits is unknown, but these do not delay the step"
        in describe_confidence(found)
    )
    assert list_caveats(found, found.ranks[0]) == []


@pytest.mark.parametrize("wall", ["mixed", "unknown", "compute", "host"])
def test_an_answer_of_an_older_version_keeps_its_paragraph(example, wall):
    said = "A sentence. Another one."
    older = Diagnosis(wall, said)

    assert list_verdict_sentences(replace(example, diagnosis=older)) == (said,)
    assert printed(replace(example, diagnosis=older))
