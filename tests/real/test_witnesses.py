"""Causes and recommendations have their rows: what captures show, and what they do not show, decides."""

import re

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


def test_the_optimizer_on_the_host_is_offload_and_loads_no_data():
    """33.9 % of the step by the simulator: Adam between the copies of each bucket, in FP32 and BF16."""
    found = analyze_once(TRACES / "minimal" / "waits" / "zero3_cpu_adam.sqlite")
    shares = {cause.cause: cause.share for cause in found.ranks[0].causes}

    assert found.diagnosis.dominant_wall == "memory"
    assert shares["memory/offload"] == pytest.approx(0.339, abs=0.01)
    assert "host/data-loading" not in shares
    assert "data-workers" not in {fix.id for fix in found.fixes or ()}


def test_kernels_that_move_no_tokens_wait_for_peers():
    """28.0 of 32.8 ms are notify_dispatch and cached_notify_combine of DeepEP."""
    found = analyze_once(TRACES / "minimal" / "marks" / "t5_deepep_notify.json.gz")
    times = {cause.cause: cause.typical_ns for cause in found.ranks[0].causes}
    ids = {fix.id for fix in found.fixes or ()}

    assert times["communication/ep/peer-wait"] == pytest.approx(28_000_000, rel=0.01)
    assert "waiting for peers" in found.diagnosis.verdict
    (limit,) = (one.message for one in found.capture.findings if one.code == "one-rank")
    assert "including 28.0 ms of waiting for peers" in limit
    assert "4.8 ms of communication cannot be separated" in limit
    assert found.program.framework == "pytorch"
    assert "deepep-beside-compute" in ids
    assert not ids & {"hybridep", "hybridep-in-the-rack", "deepep"}


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("waits/chunked_a2a.sqlite", "expert-exchange-beside-compute"),
        ("marks/t7_sporadic_comm.json.gz", "techniques-by-axis"),
        ("captures/ingp_r13_cut.sqlite", "kernel-analysis"),
        ("captures/memfusion.sqlite", "kernel-analysis"),
    ],
)
def test_a_large_wall_has_a_next_action(name, action):
    assert action in {fix.id for fix in (analyze_once(TRACES / "minimal" / name).fixes or ())[:3]}


def test_no_result_is_said_to_be_copied_back_where_no_copy_goes_to_the_host():
    assert "fewer-readbacks" not in {
        fix.id for fix in analyze_once(TRACES / "minimal" / "captures" / "dlprof_relu.sqlite").fixes or ()
    }


@pytest.mark.parametrize("name", ["waits/server", "captures/llama3_demo", "captures/memfusion"])
def test_programs_that_infer_get_no_advice_on_training(name):
    found = analyze_once(TRACES / "minimal" / f"{name}.sqlite")
    lines = [one.write() for fix in found.fixes or () for one in fix.settings]

    assert not [
        line
        for line in lines
        if re.search(r"rerun_state|mixed_precision|dataset\.|optim|GradScaler|float8_training|^train\.", line)
    ]


def test_advice_on_a_gpu_of_amd_names_nothing_of_nvidia_alone():
    found = analyze_once(TRACES / "minimal" / "marks" / "hip_ten_steps.json.gz")
    fixes = (*(found.fixes or ()), *found.capture_advice)
    lines = [one.write() for fix in fixes for one in fix.settings]

    assert found.inputs[0].gpus[0].name.startswith("AMD")
    assert "no-device-wide-waits" in {fix.id for fix in fixes}
    assert not {fix.id for fix in fixes} & {"newer-attention", "attention-backend", "fp8-blockwise"}
    assert not [
        line for line in lines if re.search(r"nvidia|nsys|^ncu|^NCCL_|NVTE_|PYTORCH_CUDA_ALLOC", line)
    ]
