"""Waits for another thread in the driver: a finding where the GPU has work meanwhile, else a cause."""

from dataclasses import replace

import pytest

from tests.advice.runs import ANCHORS, MS, run
from tests.real.answers import NEEDS_TRACES, answer
from wallscope.model.diagnosis import RareStall
from wallscope.model.enums import Wall
from wallscope.model.rank_summaries import LockedCall
from wallscope.summary.unusual_losses import find_hidden_locks

LAUNCH = LockedCall("cudaLaunchKernel", "cudaMemcpyAsync", 1.7, 18 * MS)
STALL = RareStall("memory/driver-lock", Wall.MEMORY, (3,), 8, 40 * MS, 0.12, 15 * MS, 25 * MS)


def found(calls, lost_ms=0.0, stalls=()):
    causes = {"memory/driver-lock": lost_ms} if lost_ms else {}
    rank = run(causes).ranks[0]
    host = replace(rank.host_details, locked_calls=tuple(calls))
    return tuple(find_hidden_locks(replace(rank, host_details=host, rare_stalls=stalls), ANCHORS["step"]))


def test_a_wait_off_the_critical_path_is_told_with_calls_holder_and_share():
    (finding,) = found([LAUNCH])

    assert finding.severity == "info"
    assert (
        "1.7 cudaLaunchKernel wait 18.0 ms (18.0 % of its length) for cudaMemcpyAsync of another thread"
        in finding.message
    )
    assert finding.message.endswith("None of this time delays the GPU, so these waits do not limit the step.")


def test_what_little_of_it_delays_the_gpu_is_told():
    (finding,) = found([LAUNCH], lost_ms=0.5)

    assert "Only 500.0 µs of this time delays the GPU" in finding.message


@pytest.mark.parametrize(
    ("calls", "lost_ms", "stalls"),
    [
        pytest.param([], 0, (), id="no wait"),
        pytest.param([replace(LAUNCH, waited_ns=MS - 1)], 0, (), id="a short wait"),
        pytest.param([LAUNCH], 1.0, (), id="a cause of the step"),
        pytest.param([LAUNCH], 0, (STALL,), id="a cause on few steps"),
    ],
)
def test_near_misses_have_no_finding(calls, lost_ms, stalls):
    assert found(calls, lost_ms, stalls) == ()


@NEEDS_TRACES
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nersc_sc21_dali_amp", "1.7 cudaLaunchKernel wait "),
        ("nersc_sc22_4gpu_nobcast", "0.5 cudaLaunchKernel wait "),
        ("nersc_sc21_baseline", None),
    ],
)
def test_launches_behind_the_copies_of_a_loader(name, said):
    findings = answer(name)["capture"]["findings"]
    messages = [one["message"] for one in findings if one["code"] == "lock-hidden"]

    assert len(messages) == (said is not None)
    assert said is None or said in messages[0]
