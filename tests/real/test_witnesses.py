"""Causes and recommendations have their rows: what captures show, and what they do not show, decides."""

import pytest

from tests.answered_once import analyze_once
from tests.real.answers import NEEDS_TRACES, TRACES

pytestmark = NEEDS_TRACES


@pytest.mark.parametrize(
    ("name", "told"),
    [
        pytest.param(
            "marks/t2_no_nccl_rows.json.gz",
            ("32 collectives", "record_param_comms", "world size 8"),
            id="collectives are called, and no communication kernel is recorded",
        ),
        pytest.param(
            "waits/host_callback.sqlite",
            ("cudaLaunchHostFunc", "80 calls"),
            id="a stream runs host functions",
        ),
    ],
)
def test_a_wait_that_the_program_explains_is_not_another_process(name, told):
    found = analyze_once(TRACES / "minimal" / name)
    (finding,) = (one for one in found.capture.findings if one.code == "silent-waits")

    assert found.diagnosis.dominant_wall == "unknown"
    assert all(word in finding.message for word in told)
    assert "shared" not in found.diagnosis.verdict
    assert "exclusive-gpu" not in {fix.id for fix in found.fixes or ()}


def test_random_waits_of_kernels_that_are_usually_short_show_another_process():
    """Kernels of one shape wait 50 to 700 us, some of them, and last up to eight times as long as usual."""
    found = analyze_once(TRACES / "mobilenet_infer_overlap.sqlite")

    assert "probably shared with another process" in found.diagnosis.verdict
    assert "exclusive-gpu" in {fix.id for fix in found.fixes or ()}
