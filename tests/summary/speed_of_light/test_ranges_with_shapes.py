"""Ranges of NVTX with shapes of operators: FLOPs as those of a trace with the same operators."""

from collections import Counter

import pytest

from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.shapes import find_operator
from fixtures.simulation.torch_writing import write_torch_run
from fixtures.simulation.writing import write_run
from tests.conftest import slow
from tests.summary.speed_of_light.test_laws import check_laws
from wallscope.model.capture import Options
from wallscope.model.enums import ComputeCategory
from wallscope.pipeline import analyze

GEMM, GROUPED, ATTENTION = ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM, ComputeCategory.ATTENTION


def sum_flops(found):
    """Executed FLOPs by category."""
    sums = Counter()
    for one in found.matrices:
        sums[one.category] += one.executed_flops + one.repeated_flops
    return sums


@pytest.mark.parametrize("seed", [3, *slow(0, 1, 2, 4, 5, 6)])
def test_ranges_and_traces_with_the_same_operators_have_the_same_flops(seed, tmp_path):
    played = run(random_program(seed))
    write_run(played, tmp_path / "run.sqlite", has_shapes=True)
    answer = analyze(tmp_path / "run.sqlite", Options(), lambda _: None)
    traced = analyze(write_torch_run(played, tmp_path / "t.json", has_shapes=True), Options(), lambda _: None)
    rank, other = answer.ranks[0], traced.ranks[0]
    found, of_trace = sum_flops(rank.speed_of_light), sum_flops(other.speed_of_light)
    steady = [step.index for step in rank.steps if step.steady]
    known = Counter()
    for operation in played.ranks[0].operations:
        operator = find_operator(operation)
        if operator is not None and operation.step in steady:
            known[operation.action.kernel.category] += operator.flops

    check_laws(answer)
    assert rank.speed_of_light.source == "shapes"
    for category in (GEMM, GROUPED):
        assert found[category] == pytest.approx(of_trace[category], abs=2)
        assert found[category] == pytest.approx(known[category] / len(steady), abs=2)
    assert found[GEMM] > 0


def test_attention_has_no_flops_without_the_values_of_its_mask(tmp_path):
    write_run(run(random_program(3)), tmp_path / "run.sqlite", has_shapes=True)
    found = analyze(tmp_path / "run.sqlite", Options(), lambda _: None).ranks[0].speed_of_light

    assert ATTENTION not in {one.category for one in found.matrices}
    assert {one.category for one in found.uncounted} == {ATTENTION}
    assert found.covered < 1
