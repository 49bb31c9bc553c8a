"""A GPU that changes between two clock levels: two kinds of steps, with the factor of their kernels."""

from random import Random

import pytest

from fixtures.simulation import names
from fixtures.simulation.noise import add_noise
from fixtures.simulation.program import HostThread, Launch, Program, SyncStream, Work, stepped
from fixtures.simulation.run import run
from fixtures.simulation.story import US
from fixtures.simulation.writing import write_run
from tests.conftest import slow
from wallscope.model.capture import Options
from wallscope.pipeline import analyze
from wallscope.views.first_screen import _describe_steps

RATIO = 1.25


def list_facts(found):
    """What the first screen says about steps."""
    return list(_describe_steps(found, found.ranks[0]))


def analyze_steps(folder, lengths, seed, *, more_kernels=False, waits_us=0):
    """The answer about steps whose kernels take so many times as long, or of which there are so many.

    Up to `waits_us` the host lets the GPU wait in a step.
    """
    host = Random(seed)

    def one(number):
        count, ratio = (round(30 * lengths[number]), 1.0) if more_kernels else (30, lengths[number])
        layer = [Launch(name, round(us * US * ratio)) for name, us in ((names.GEMM, 60), (names.GEMM_2, 40))]
        wait = [SyncStream(), Work(round(host.uniform(0, waits_us) * US))] if waits_us else []
        return [*layer * count, Work(100 * US), SyncStream(), *wait]

    program = Program(((HostThread("python", stepped(len(lengths), one)),),))
    write_run(run(add_noise(program, seed)), folder / "run.sqlite")
    return analyze(folder / "run.sqlite", Options(), lambda _: None)


@pytest.mark.parametrize("seed", [1, *slow(2, 3)])
@pytest.mark.parametrize(
    "levels",
    [
        pytest.param([1.0, 1.0, 1.0, RATIO, RATIO, RATIO] * 3, id="by turns"),
        pytest.param([1.0] * 9 + [RATIO] * 9, id="from the middle on"),
        pytest.param([1.0, 1.0, RATIO] * 6, id="every third step"),
    ],
)
def test_two_clock_levels_are_two_kinds_of_steps(tmp_path, levels, seed):
    rank = analyze_steps(tmp_path, levels, seed).ranks[0]
    low, high = rank.modes

    assert high.kernel_ratio == pytest.approx(RATIO, rel=0.03)
    assert low.kernel_ratio == 1.0
    assert high.median_ns == pytest.approx(RATIO * low.median_ns, rel=0.03)


def test_the_levels_are_told_with_their_factor(tmp_path):
    found = analyze_steps(tmp_path, [1.0, 1.0, 1.0, RATIO, RATIO, RATIO] * 3, 1)
    ratio = f"{found.ranks[0].modes[1].kernel_ratio:.2f}"

    assert f"the same compute kernels take {ratio} times as long" in found.diagnosis.verdict
    assert any(f"(same kernels {ratio}x as long)" in line for line in list_facts(found))


@pytest.mark.parametrize("seed", [1, *slow(2, 3)])
def test_levels_are_kinds_of_steps_where_the_host_varies_by_more(tmp_path, seed):
    levels = [1.0, 1.0, 1.0, RATIO, RATIO, RATIO] * 3
    low, high = analyze_steps(tmp_path, levels, seed, waits_us=1_500).ranks[0].modes

    assert high.kernel_ratio == pytest.approx(RATIO, rel=0.05)
    assert {number % 6 >= 3 for number in high.steps} == {True}
    assert {number % 6 >= 3 for number in low.steps} == {False}


@pytest.mark.parametrize("seed", [1, *slow(2, 3)])
def test_a_host_that_varies_makes_no_levels(tmp_path, seed):
    assert analyze_steps(tmp_path, [1.0] * 18, seed, waits_us=1_500).ranks[0].modes == ()


def test_steps_with_more_kernels_are_no_clock_level(tmp_path):
    found = analyze_steps(tmp_path, [1.0, 1.0, RATIO] * 6, 1, more_kernels=True)

    assert len(found.ranks[0].modes) == 2
    assert found.ranks[0].modes[1].kernel_ratio == pytest.approx(1.0, abs=0.02)
    assert "the same compute kernels" not in found.diagnosis.verdict
