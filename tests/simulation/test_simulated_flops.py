"""Shapes in simulated traces: the FLOPs of the steps are those of the operators that the simulator ran."""

from collections import Counter

import pytest

from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.shapes import find_operator
from fixtures.simulation.torch_writing import write_torch_run
from tests.conftest import slow
from wallscope.model.capture import Options
from wallscope.pipeline import analyze

SEEDS = (0, *slow(*range(1, 8)))


def count_true_flops(played):
    """FLOPs of each step of the first rank, of each category in all steps, and whether all have shapes."""
    by_step, lacks = Counter(), False
    for operation in played.ranks[0].operations:
        issued_by = find_operator(operation)
        if issued_by is not None:
            by_step[operation.step] += issued_by.flops
        elif operation.computes and operation.action.kernel.category in {"gemm", "grouped-gemm", "attention"}:
            lacks = True
    return by_step, lacks


@pytest.mark.parametrize("seed", SEEDS)
def test_steps_have_the_flops_of_the_operators_that_ran_and_the_same_walls_as_without(seed, tmp_path):
    played = run(random_program(seed))
    found, plain = (
        analyze(write_torch_run(played, tmp_path / name, has_shapes=has), Options(), lambda _: None)
        for name, has in (("shapes.json", True), ("plain.json", False))
    )
    rank, before = found.ranks[0], plain.ranks[0]
    by_step, lacks = count_true_flops(played)
    steady = [by_step[step.index] for step in rank.steps if step.steady]

    assert len(by_step) >= len(rank.steps) > 2
    assert rank.compute_details.known_flops == pytest.approx(sum(steady) / len(steady), rel=1e-9, abs=1)
    assert (rank.compute_details.flops is None) is lacks
    assert {one.cause: one.typical_ns for one in rank.causes} == {
        one.cause: one.typical_ns for one in before.causes
    }
    assert before.compute_details.known_flops is None
    if not lacks:
        told = found.diagnosis.throughput
        assert told.flops_per_s == pytest.approx(rank.compute_details.flops * 1e9 / rank.typical.step_ns)
        assert told.mfu == pytest.approx(told.flops_per_s / told.peak.flops_per_s)
