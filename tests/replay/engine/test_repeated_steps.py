"""Steps that repeat: longer work never makes a shorter step, whatever the host was ahead in the capture."""

from itertools import pairwise

import pytest

from fixtures.simulation import changed
from fixtures.simulation.noise import add_noise
from fixtures.simulation.program import HostThread, Program, Work, stepped
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.story import US, gemm
from fixtures.simulation.windows import busiest_stream, typical_step_ns
from tests.conftest import slow
from tests.replay.scaling import measure_scaled
from tests.replay.stretches import read
from wallscope.attribution.prepared import list_rank_windows
from wallscope.model.whatif import Question
from wallscope.replay.engine import Engine, WindowReplay, measure_step_lengths
from wallscope.replay.simulate import simulate
from wallscope.replay.windows import select_replay_window

STEPS = 14
SMALL = 20


def far_ahead(host_us, seed):
    """The host launches all steps before the device has computed the second."""
    work = [Work(host_us * US), gemm(200)] * SMALL
    return add_noise(Program(((HostThread("python", stepped(STEPS, lambda _: work)),),)), seed)


@pytest.mark.parametrize("seed", [0, 2, *slow(3, 5, 8, 12, 17)])
def test_no_step_of_a_noisy_program_gets_shorter_while_its_work_takes_longer(seed, tmp_path):
    window, _ = read(add_noise(random_program(seed), seed), tmp_path / "run.sqlite")
    found = measure_scaled(window)

    assert found
    for target, lengths_ns in found.items():
        for shorter_ns, longer_ns in pairwise(lengths_ns):
            assert longer_ns >= shorter_ns, target


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("host_us", [1, 10, 40])
def test_a_host_far_ahead_does_not_count_for_a_faster_device(host_us, seed, tmp_path):
    """The replay window is in the midst of the capture; a step of the device takes 4 ms."""
    program, share = far_ahead(host_us, seed), 0.01
    _, prepared = read(program, tmp_path / "run.sqlite")
    stream = busiest_stream(run(program).ranks[0])
    after = run(changed.category(program, share, "gemm")).ranks[0]
    trace = prepared.trace
    window = select_replay_window(
        prepared.evidence,
        list_rank_windows(trace),
        prepared.facts.partners,
        trace.range_tree,
        trace.capture.names,
        0,
        3 * SMALL + 10,
    )
    before_ns = typical_step_ns(run(program).ranks[0], stream, program.warm_up_steps)
    answer = WindowReplay(window, round(before_ns), Engine(window, lambda _: None)).answer(
        (Question("scale", "category:gemm", share),)
    )

    assert answer.step_ns == pytest.approx(typical_step_ns(after, stream, program.warm_up_steps), rel=0.05)


@pytest.mark.parametrize("seed", [0, 3, 5, 8, 17])
def test_steps_that_repeat_take_as_long_as_those_of_the_capture(seed, tmp_path):
    """Without noise all steps of a program are alike."""
    window, _ = read(random_program(seed), tmp_path / "run.sqlite")
    replay = WindowReplay(window, 1, Engine(window, lambda _: None))
    length_ns = measure_step_lengths(window, simulate(window.graph), "typical").mean()

    assert replay.engine.repeated_ns[0] == pytest.approx(length_ns, rel=0.005)
