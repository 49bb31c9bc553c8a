"""Steps of captures that others made, simulated with work that takes another share of its time."""

from itertools import pairwise
from pathlib import Path

import pytest

from wallscope.errors import NothingToAnalyzeError, OptionError
from wallscope.model.options import Options
from wallscope.model.whatif import Asked, Question
from wallscope.pipeline import ask_what_if

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
EXPORTS = sorted(TRACES.glob("*.sqlite"))
SHARES = (0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0, 4.0)
TARGETS = ("compute", "category:gemm", "communication", "launch")
STEP_ROUNDING = 0.005
"""Steps are differences of two starts, which both move; measured: 0.25 % of a step at most."""

pytestmark = pytest.mark.skipif(not EXPORTS, reason="no captures of others here: ../shared/traces is absent")


def scaled(path, target):
    """The typical step, and what it takes with each share of some work; nothing where there is none of it."""
    questions = tuple(Question("scale", target, share) for share in SHARES)
    asked = Asked(questions=(), sweep=questions, largest_error=10.0)
    try:
        return ask_what_if(path, Options(), asked, lambda _: None)
    except OptionError:
        return None


@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.stem)
def test_steps_grow_with_the_time_of_their_work(path):
    try:
        told = [one for one in (scaled(path, target) for target in TARGETS) if one is not None]
    except NothingToAnalyzeError as error:
        pytest.skip(f"nothing to play: {error}"[:150])

    assert told
    for one in told:
        lengths_ns = [answer.step_ns for answer in one.sweep]
        assert lengths_ns[SHARES.index(1.0)] == pytest.approx(one.step_ns, rel=0.02)
        for shorter_ns, longer_ns in pairwise(lengths_ns):
            assert longer_ns >= shorter_ns - STEP_ROUNDING * one.step_ns
