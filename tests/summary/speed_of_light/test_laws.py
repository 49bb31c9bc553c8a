"""Laws of the ledger: its lines add up to the typical step, whatever the capture shows."""

from collections import Counter
from pathlib import Path

import pytest

from fixtures.simulation.computing import is_recomputed
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.shapes import find_operator
from fixtures.simulation.stories_waits import waits
from fixtures.simulation.torch_writing import write_torch_run
from fixtures.simulation.writing import write_run
from tests.answered_once import analyze_once
from tests.conftest import run_part, slow
from tests.shipped_example import EXAMPLE
from wallscope.errors import NothingToAnalyzeError
from wallscope.model.capture import Options
from wallscope.model.diagnosis import StepFacts
from wallscope.model.speed_of_light import LedgerLine
from wallscope.pipeline import analyze

TRACES = Path(__file__).resolve().parents[4] / "shared" / "traces"
CAPTURES = sorted([*TRACES.glob("*.sqlite"), *TRACES.glob("kineto/*.json.gz")])
STORIES = dict(waits())
MOST_FASTER = 1 / 4
"""The rate of 16 bits by that of four bits, the fastest that any fix leads to."""
WALL_LINES = list(LedgerLine)[list(LedgerLine).index(LedgerLine.HAND_OVER) :]


def check_laws(answer):
    """Every rank: lines that add up, none below 0, parts with reasons, shares only of known peaks."""
    assert answer.ranks
    for rank in answer.ranks:
        found = rank.speed_of_light
        assert sum(one.ns for one in found.lines) == found.window_ns == rank.typical.step_ns
        assert all(one.ns >= 0 for one in found.lines)
        for one in found.lines:
            assert one.proven is (one.line is not LedgerLine.COMPUTE_UNKNOWN) is not bool(one.reasons)
            assert one.line is LedgerLine.BELOW_PEAK or not one.explained_by
            assert sum(each.ns or 0 for each in one.explained_by) <= one.ns
            assert one.proven or sum(each.ns for each in one.reasons) == one.ns
            has_category = one.line not in WALL_LINES and found.source != "user"
            assert (one.category is not None) is has_category or found.source == "user"
            assert one.category is None or one.line not in WALL_LINES
        assert len({(one.line, one.category) for one in found.lines}) == len(found.lines)
        assert sum(one.line in WALL_LINES for one in found.lines) == len(WALL_LINES)
        if found.peak is None:
            assert found.mfu is found.hfu is found.mfu_16bit is None
            assert all(one.line in WALL_LINES or not one.proven for one in found.lines)
            assert all(one.peak_share is None for one in found.matrices)
            assert all(one.peak_flops_per_s is None for one in found.uncounted)
        if found.mfu is not None and found.hfu is not None and found.source == "shapes":
            assert 0 <= found.mfu <= found.hfu
        if not found.is_step:
            assert found.mfu is found.hfu is found.mfu_16bit is None
        at_peak_ns = sum(one.ns * one.peak_share for one in found.matrices if one.peak_share is not None)
        assert at_peak_ns <= 1.08 * sum(one.ns for one in found.matrices) or any(
            each.reason == "impossible-flops" for one in found.lines for each in one.reasons
        )
        unknown = {each.category for each in found.lines if each.line is LedgerLine.COMPUTE_UNKNOWN}
        assert all(one.work_ns > 0 for one in found.uncounted)
        assert {one.category for one in found.uncounted} <= unknown
        covered_ns = sum(one.ns for one in found.lines if one.line not in WALL_LINES)
        again_ns = sum(one.ns for one in found.lines if one.line is LedgerLine.RECOMPUTATION)
        assert covered_ns <= rank.typical.budget.compute + len(found.lines)
        assert covered_ns + again_ns >= rank.typical.budget.compute - len(found.lines)

    for fix in answer.fixes or ():  # leaves the FLOPs of the model at the peak of the GPU
        if fix.most_speedup is not None and fix.keeps_floor:
            ledgers = [rank.speed_of_light for rank in answer.ranks]
            assert any(
                one.window_ns / fix.most_speedup >= MOST_FASTER * one.total(LedgerLine.IDEAL_MATH) - 1
                for one in ledgers
            )


def test_the_example_has_a_ledger_without_flops():
    check_laws(analyze_once(EXAMPLE))

    for rank in analyze_once(EXAMPLE).ranks:
        found = rank.speed_of_light
        assert (found.model_flops, found.source, found.covered, found.mfu) == (None, None, None, None)
        assert {one.line for one in found.lines} == {LedgerLine.COMPUTE_UNKNOWN, *WALL_LINES}


def test_flops_of_the_user_give_the_share_that_the_diagnosis_has():
    options = Options(step_facts=StepFacts(flops=1.3e13))
    answer = analyze(EXAMPLE, options, lambda _: None)
    found = answer.ranks[answer.diagnosis.rank_index].speed_of_light

    check_laws(answer)
    assert (found.source, found.model_flops) == ("user", 13_000_000_000_000)
    assert found.mfu == pytest.approx(answer.diagnosis.throughput.mfu)
    assert found.model_flops_per_s == pytest.approx(answer.diagnosis.throughput.flops_per_s)


@pytest.mark.parametrize("seed", [0, *slow(*range(1, 8))])
def test_simulated_traces_with_shapes_keep_the_laws(seed, tmp_path):
    answer = analyze(
        write_torch_run(run(random_program(seed)), tmp_path / "t.json", has_shapes=True),
        Options(),
        lambda _: None,
    )

    check_laws(answer)
    assert answer.ranks[0].speed_of_light.executed_flops == answer.ranks[0].compute_details.known_flops > 0


@pytest.mark.parametrize("seed", [3, *slow(5)])
def test_recomputed_operators_and_scores_are_no_flops_of_the_model(seed, tmp_path):
    played = run(random_program(seed))
    answer = analyze(write_torch_run(played, tmp_path / "t.json", has_shapes=True), Options(), lambda _: None)
    rank = answer.ranks[0]
    needed, ran = Counter(), Counter()
    for operation in played.ranks[0].operations:
        operator = find_operator(operation)
        if operator is not None:
            ran[operation.step] += operator.flops
            backward_flops = (
                operator.flops // 5 * 4 if operator.name.endswith("_backward") else operator.flops
            )
            needed[operation.step] += 0 if is_recomputed(operation) else backward_flops
    steady = [step.index for step in rank.steps if step.steady]
    found = rank.speed_of_light

    assert found.executed_flops == pytest.approx(sum(ran[step] for step in steady) / len(steady), abs=1)
    assert found.model_flops == pytest.approx(sum(needed[step] for step in steady) / len(steady), abs=1)
    assert any(one.line is LedgerLine.RECOMPUTATION and one.ns > 0 for one in found.lines)


@pytest.mark.parametrize("name", run_part(STORIES, name=str, of=9))
def test_simulated_exports_keep_the_laws(name, tmp_path):
    write_run(run(STORIES[name]), tmp_path / "run.sqlite")

    check_laws(analyze(tmp_path / "run.sqlite", Options(), lambda _: None))


@pytest.mark.skipif(not CAPTURES, reason="no captures of others here: ../shared/traces is absent")
@pytest.mark.parametrize("path", run_part(CAPTURES, of=9))
def test_captures_of_others_keep_the_laws(path):
    try:
        answer = analyze_once(path)
    except NothingToAnalyzeError:
        pytest.skip("a capture without anything to analyze has no ledger")
    check_laws(answer)
