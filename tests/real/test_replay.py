"""Real exports: what they tell of the replay, and errors that only they showed."""

import pytest

from tests.conftest import TRACES
from wallscope.model.capture import Options
from wallscope.model.whatif import Asked, Question
from wallscope.pipeline import ask_what_if

ATTENTION = Question("scale", "category:attention", 0.5)


def asked(name, question):
    path = TRACES / f"{name}.sqlite"
    if not path.exists():
        pytest.skip("the real exports are not here")
    return ask_what_if(path, Options(), Asked((question,)), lambda _: None)


@pytest.mark.parametrize(
    "name",
    [
        "cs336_zx_2.7B_compile_graph",
        "nsysai_mfu_before",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("abacus_report1", "cs336_tianshi_result", "cs336_zx_result", "nsysai_mfu_after")
        ),
    ],
)
def test_steps_are_told_by_the_lags_of_the_others(name):
    found = asked(name, Question("scale", "compute", 0.5))

    assert found.check.own_error == 0
    assert found.check.error_median < 0.05


def test_a_call_waits_for_what_the_device_s_clock_puts_behind_it():
    """The copy that it waits for ends, by the device's clock, four microseconds after it returned."""
    found = asked("nsysai_mfu_before", ATTENTION)

    assert found.answers[0].won_ns == pytest.approx(3_930_000, rel=0.05)
