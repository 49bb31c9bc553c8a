"""Host time that happens once is told apart from host time that recurs."""

import pytest

from fixtures.export import ExportWriter
from wallscope.model.capture import Options
from wallscope.pipeline import analyze

NAMES = ("gemm", "softmax", "relu", "norm", "scale", "mask", "sum")


def analyzed(path, gaps_us):
    """The answer on kernels of 50 us, each launched so long after the one before it has ended."""
    with ExportWriter(path) as writer:
        writer.gpu()
        at_ns = 0
        for place, gap_us in enumerate(gaps_us):
            at_ns += gap_us * 1_000
            number = writer.call("cudaLaunchKernel", at_ns, at_ns + 5_000)
            writer.kernel(f"{NAMES[place % 7]}_{place}x", at_ns + 8_000, at_ns + 58_000, correlation=number)
            at_ns += 58_000
    return analyze(path, Options(), lambda _: None)


@pytest.mark.parametrize(
    ("gaps_us", "is_one"),
    [
        pytest.param([0, 900, *[20] * 10], True, id="one long gap"),
        pytest.param([0, *[100] * 11], False, id="many gaps"),
        pytest.param([0, 500, 500, *[20] * 9], False, id="two long gaps"),
    ],
)
def test_one_gap_with_most_host_time_is_reported(tmp_path, gaps_us, is_one):
    found = analyzed(tmp_path / "run.sqlite", gaps_us)

    assert ("one-gap" in [finding.code for finding in found.capture.findings]) == is_one
    longest_ns = found.ranks[0].host_details.longest_gap_ns
    assert longest_ns == pytest.approx(max(gaps_us) * 1_000 + 8_000, abs=1)
