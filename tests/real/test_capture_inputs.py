"""Small public captures whose right answer is known: steps, bounds, and what may be advised."""

from pathlib import Path

import pytest

from tests.answered_once import analyze_once
from wallscope.api import diff
from wallscope.errors import NothingToAnalyzeError
from wallscope.model.capture import Options
from wallscope.pipeline import analyze

MINIMAL = Path(__file__).resolve().parents[3] / "shared" / "traces" / "minimal"
CAPTURES = MINIMAL / "captures"

pytestmark = pytest.mark.skipif(
    not CAPTURES.is_dir(), reason="no small inputs here: ../shared/traces/minimal is absent"
)


def of_fixes(found):
    return {fix.id for fix in found.fixes}


def test_ranges_with_little_kernel_time_are_no_steps():
    found = analyze_once(CAPTURES / "memfusion.sqlite")
    (step,) = found.ranks[0].steps

    assert found.anchor.kind == "whole-trace"
    assert step.end_ns - step.start_ns == pytest.approx(6.46e6, rel=0.01)
    assert found.ranks[0].causes[0].cause == "compute/convolution"


def test_no_bound_is_that_of_a_step_of_no_length():
    found = analyze_once(CAPTURES / "llama3_demo.sqlite")
    bounds = [one.speedup_ceiling for one in (*found.fixes, *found.opportunities) if one.speedup_ceiling]

    assert max(bounds) < 25
    assert "host/data-loading" not in {one.cause for one in found.ranks[0].causes}
    assert "gpu-data-pipeline" not in of_fixes(found)


def test_kernels_that_fill_the_gpu_do_not_overlap_in_a_replay():
    found = analyze_once(CAPTURES / "ingp_r13_cut.sqlite")
    bounds = [one.speedup_ceiling for one in (*found.fixes, *found.opportunities) if one.speedup_ceiling]

    assert max(bounds, default=1.0) < 1.01


def test_repetitions_of_two_kernels_are_found():
    found = analyze_once(CAPTURES / "sigma_r2.sqlite")

    assert (found.anchor.kind, found.anchor.steps) == ("kernel-sequence", 11)
    assert found.ranks[0].typical.step_ns == pytest.approx(14.7e6, rel=0.01)


def test_without_copies_to_the_host_none_are_to_be_avoided():
    assert "fewer-readbacks" not in of_fixes(analyze_once(CAPTURES / "dlprof_relu.sqlite"))


def test_what_is_packed_unpacks():
    compared = diff(*(2 * [CAPTURES / "jac_diff_damaged.sqlite"])).comparison

    assert compared.verdict in {"no-change", "inconclusive"}


def test_a_table_without_rows_is_empty():
    with pytest.raises(NothingToAnalyzeError, match=r"dynamicvit\.sqlite"):
        analyze_once(CAPTURES / "dynamicvit.sqlite")


@pytest.mark.parametrize("name", ["calls_only_wsl.sqlite", "t3b_all_kernels_lost.json.gz"])
def test_launches_without_kernels_are_lost_records(name):
    with pytest.raises(NothingToAnalyzeError, match="records of the GPU were lost") as raised:
        analyze_once(MINIMAL / "marks" / name)

    assert ("WSL2" in str(raised.value)) == ("wsl" in name)


def test_a_range_that_the_user_names_is_as_long_as_it_is():
    found = analyze(
        MINIMAL / "marks" / "one_step_layers.json.gz", Options(step_range="ProfilerStep"), lambda _: None
    )

    assert found.ranks[0].typical.step_ns == 100_000_000
