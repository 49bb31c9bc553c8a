"""What kernels win that own the step, where the host is so far ahead that launches wait for room."""

from itertools import pairwise

import pytest

from fixtures.export import ExportWriter
from tests.conftest import TRACES
from wallscope.model.capture import Options
from wallscope.model.whatif import Asked, Question
from wallscope.pipeline import ask_what_if

US = 1_000
SHARES = (0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0, 4.0)
LAUNCHES, PENDING, STEPS = 1_500, 1_000, 6
LAUNCH_NS, KERNEL_NS, BETWEEN_NS, RETURN_NS = 5 * US, 200 * US, 1 * US, 2 * US


def write_full_queue(path):
    """Steps of many kernels; once so many are pending a launch returns when the next one has begun."""
    started, ended_ns, at_ns = [], 0, 1_000 * US
    with ExportWriter(path) as writer:
        for _ in range(STEPS):
            begun_ns = at_ns
            for _ in range(LAUNCHES):
                launched_ns, at_ns = at_ns, at_ns + LAUNCH_NS
                if len(started) >= PENDING:
                    at_ns = max(at_ns, started[len(started) - PENDING] + RETURN_NS)
                start_ns = max(at_ns + 3 * US, ended_ns + BETWEEN_NS)
                ended_ns = start_ns + KERNEL_NS
                started.append(start_ns)
                number = writer.call("cudaLaunchKernel", launched_ns, at_ns)
                writer.kernel("ampere_sgemm_128x64_nn", start_ns, ended_ns, correlation=number)
                at_ns += 1 * US
            writer.range("step", begun_ns, at_ns)


def steps_ns(path, target, shares=SHARES):
    """How long a step takes where all that is meant takes a share of its time, by share."""
    asked = Asked(tuple(Question("scale", target, share) for share in shares))
    found = ask_what_if(path, Options(), asked, lambda _: None)
    alone = [answer for answer in found.answers if len(answer.questions) == 1]
    return {answer.questions[0].share: answer.step_ns for answer in alone}


def assert_grows(of_share):
    for less, more in pairwise(sorted(of_share)):
        assert of_share[less] <= of_share[more] + 0.001 * of_share[1.0], (less, more)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    path = tmp_path_factory.mktemp("exports") / "full.sqlite"
    write_full_queue(path)
    return steps_ns(path, "category:gemm")


def test_the_step_grows_with_the_kernels_that_own_it(full):
    assert_grows(full)


def test_steps_played_unchanged_are_those_of_the_capture(full):
    assert full[1.0] == pytest.approx(LAUNCHES * (KERNEL_NS + BETWEEN_NS), rel=0.02)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75, 1.5, 2.0, 4.0])
def test_the_step_takes_nearly_the_share_that_its_kernels_take(full, share):
    assert full[share] == pytest.approx(share * full[1.0], rel=0.05)


def real(name):
    path = TRACES / f"{name}.sqlite"
    if not path.exists():
        pytest.skip("no real exports here: ../shared/traces is absent")
    return path


def test_a_real_step_behind_a_full_queue_grows_with_its_multiplications():
    of_share = steps_ns(real("cs336_zx_2.7B_clean"), "category:gemm")

    assert_grows(of_share)
    assert of_share[0.5] == pytest.approx(460_000_000, rel=0.03)
    assert of_share[0.1] == pytest.approx(152_000_000, rel=0.05)
