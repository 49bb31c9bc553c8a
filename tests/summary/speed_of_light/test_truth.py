"""Captures whose FLOPs shapes of operators tell: the values of an independent calculation."""

import json
from pathlib import Path

import pytest

from tests.answered_once import analyze_once
from wallscope.model.speed_of_light import LedgerLine, LossUnknown

SHARED = Path(__file__).resolve().parents[4] / "shared"
TRUTH = SHARED / "speed_of_light" / "truth.json"

pytestmark = pytest.mark.skipif(
    not TRUTH.is_file(), reason="no independent values here: ../shared/speed_of_light is absent"
)


def read_truth(name):
    """The values of a capture, by what they are, and the ledger that wallscope has of it."""
    told = json.loads(TRUTH.read_text(encoding="utf-8"))["captures"][name]
    values = {one["what"]: (one["value"], one["rel_tolerance"]) for one in told["values"]}
    return values, analyze_once(SHARED / "traces" / told["file"]).ranks[0].speed_of_light


def total(found, *lines):
    return sum(one.ns for one in found.lines if one.line in lines) / 1e6


def is_near(found, told):
    value, tolerance = told
    return found == pytest.approx(value, rel=tolerance)


AT_PEAK = (LedgerLine.IDEAL_MATH, LedgerLine.PRECISION, LedgerLine.COMPUTED_TWICE)


@pytest.mark.parametrize(
    ("name", "precisions"), [("hta_control", ("tf32", "fp32")), ("hta_test", ("fp32",))], ids=["A100", "V100"]
)
def test_lines_are_those_of_an_independent_calculation(name, precisions):
    values, found = read_truth(name)

    assert is_near(found.window_ns / 1e6, values["window_ms"])
    assert is_near(found.executed_flops / 1e12, values["known_executed_tflop"])
    assert is_near(total(found, *AT_PEAK), values["gemm.flop_floor_ms"])
    assert is_near(total(found, *AT_PEAK) * 1e6 / found.window_ns, values["hfu_lower_bound"])
    below = [values[f"gemm|{one}.below_peak_ms"] for one in precisions]
    assert is_near(total(found, LedgerLine.BELOW_PEAK), (sum(one for one, _ in below), below[0][1]))
    taken = [values[f"gemm|{one}.time_ms"] for one in precisions]
    multiplying = total(found, *AT_PEAK, LedgerLine.BELOW_PEAK)
    assert is_near(multiplying, (sum(one for one, _ in taken), taken[0][1]))


def test_a_trace_with_few_known_flops_has_no_share():
    assert read_truth("hta_test")[1].mfu is None
    assert read_truth("hta_test")[1].hfu is None


def test_a_trace_without_the_name_of_its_gpu_has_no_share():
    values, found = read_truth("hta_sampled_rank0")

    assert values["peak"][0] is values["mfu"][0] is found.peak is found.mfu is found.mfu_16bit is None
    assert total(found, *AT_PEAK, LedgerLine.BELOW_PEAK) == 0
    unknown = {each.reason for one in found.lines for each in one.reasons if one.category == "gemm"}
    assert unknown == {LossUnknown.PEAK_UNKNOWN, LossUnknown.FLOPS_UNKNOWN}
