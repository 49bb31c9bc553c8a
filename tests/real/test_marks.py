"""Small inputs whose right answer is known: which time is analyzed, and which records count."""

from pathlib import Path

import pytest

from tests.answered_once import analyze_once
from wallscope.model.capture import Options
from wallscope.model.diagnosis import StepFacts
from wallscope.pipeline import analyze

MARKS = Path(__file__).resolve().parents[3] / "shared" / "traces" / "minimal" / "marks"

pytestmark = pytest.mark.skipif(
    not MARKS.is_dir(), reason="no small inputs here: ../shared/traces/minimal is absent"
)

HOST_BOUND = ("host", 0.61)
RIGHT = {
    "one_step.sqlite": HOST_BOUND,
    "one_step_layers.json.gz": HOST_BOUND,
    "ten_steps.sqlite": HOST_BOUND,
    "ten_steps_layers.json.gz": HOST_BOUND,
    "old_categories.json.gz": HOST_BOUND,
    "old_categories_list.json.gz": HOST_BOUND,
    "hip_ten_steps.json.gz": HOST_BOUND,
    "t4_zero_ts.json.gz": ("host", 0.15),
    "t4b_one_zero_ts.json.gz": ("host", 0.15),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_wall_and_its_share_are_right(name):
    found = analyze_once(MARKS / name)
    wall, share = RIGHT[name]

    assert found.diagnosis.dominant_wall == wall
    assert found.diagnosis.share(wall) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("name", ["one_step.sqlite", "one_step_layers.json.gz"])
def test_the_only_marked_step_is_as_long_as_its_mark(name):
    (step,) = analyze_once(MARKS / name).ranks[0].steps

    assert step.end_ns - step.start_ns == 100_000_000


def test_repetitions_that_cover_little_of_a_capture_say_so():
    found = analyze_once(MARKS / "graph_of_layers.json.gz")

    assert found.scope.covered_share == pytest.approx(9.5 / 469, abs=0.001)
    assert found.diagnosis.confidence.level != "high"


def test_a_collective_that_a_step_issues_first_is_of_that_step():
    (rank,) = analyze_once(MARKS / "t7_sporadic_comm.json.gz").ranks
    slow = {step.index: step.end_ns - step.start_ns for step in rank.steps if step.steady}
    usual_ns = sorted(slow.values())[len(slow) // 2]

    assert {index for index, ns in slow.items() if ns > 2 * usual_ns} == {7, 15}
    assert [slow[7] / 1e6, slow[15] / 1e6] == pytest.approx([133.5, 133.5], abs=0.1)


def test_records_without_a_time_are_counted():
    found = analyze_once(MARKS / "t4_zero_ts.json.gz")
    (said,) = (one.message for one in found.capture.findings if one.code == "untimed-operations")

    assert "12 events" in said


def test_start_up_is_named_where_it_is_most_of_what_is_lost():
    found = analyze_once(MARKS.parent / "captures" / "dlprof_relu.sqlite")
    lost = [one for one in found.ranks[0].causes if one.wall != "compute"]

    assert lost[0].cause == "host/start-up"
    assert lost[0].share == pytest.approx(0.413, abs=0.01)


def test_the_length_of_an_unprofiled_step_limits_host_time():
    options = Options(step_facts=StepFacts(unprofiled_step_ns=42_000_000))
    found = analyze(MARKS / "ten_steps_layers.json.gz", options, lambda _: None)
    (said,) = (one.message for one in found.capture.findings if one.code == "unprofiled-step")

    assert found.diagnosis.dominant_wall == "compute"
    assert found.diagnosis.confidence.level != "high"
    assert found.diagnosis.walls.host.typical_ns <= 0.075 * 42_000_000
    assert "38.9 ms of the 42.0 ms step is compute, and at most 3.1 ms (7.5 %) is host time" in said


def test_a_server_without_requests_is_idle_and_loads_no_data():
    found = analyze_once(MARKS.parent / "waits" / "server.sqlite")
    rank = found.ranks[0]

    assert (found.anchor.name, found.anchor.steps) == ("request", 14)
    assert rank.causes[0].cause == "host/event-wait" or rank.causes[1].cause == "host/event-wait"
    assert found.fixes[0].id == "enough-requests"
    assert "host/data-loading" not in {one.cause for one in rank.causes}
