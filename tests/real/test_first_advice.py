"""What the rows of captures of others ask for first, as someone reads it from them in SQL, comes first."""

import pytest

from tests.answered_once import analyze_once
from tests.real.answers import NEEDS_TRACES, TRACES

FIRST = {
    # 8 waits for the device a token, 0.1 ms in all; 1.2 ms behind each without a call, the thread off the CPU
    "llama3_real.sqlite": "work-beside",
    # 7.3 of 11.3 s in kernels of the first FlashAttention, 43 ms idle
    "nersc_sc23_dali_bf16.sqlite": "newer-attention",
    # 921 of 969 ms copies of 64 to 192 MiB under FSDP::pre_forward, 22 ms of kernels
    "nsysai_h100_2gpu_1s.sqlite": "parameters-on-device",
    # 12 of 84 ms busy: vLLM, 768 kernels launched one by one
    "kineto/tracelens_b200_eager.json.gz": "cuda-graphs-program",
    # 572 ms idle in 9 gaps, [DALI][CPU op] at work in each until the copy of the batch
    "nersc_sc21_dali_amp.sqlite": "deeper-data-pipeline",
    # 3.1 of 3.4 s of kernels are sgemm, on A100
    "cs336_zx_2.7B_nvtx.sqlite": "bf16",
    # 8.0 of 16.9 ms a window in flash_fwd_kernel, next to kernels nvjet_*_coop*: FlashAttention-2 on Hopper
    "nsysai_mfu_before.sqlite": "newer-attention",
    # 2.24 of 2.69 s in 36 kernels julia_broadcast, two after each convolution
    "flux_2020_1080ti.sqlite": "fuse-elementwise",
    # 10 blocking copies of 250 MiB, 285 of 1,097 ms, all from and to pageable memory
    "pipit_saxpy_mpi.sqlite": "pin-batches",
    # 43 of 45 ms copies from and to pageable memory
    "cudatut_fp16.sqlite": "pin-batches",
}

pytestmark = NEEDS_TRACES


@pytest.mark.parametrize("name", FIRST)
def test_what_the_rows_ask_for_comes_first(name):
    fixes = analyze_once(TRACES / name).fixes

    assert fixes[0].id == FIRST[name]


def test_the_verdict_names_the_range_of_the_host_time():
    """The author's own summary: fetching the weights of a layer takes 566 of 776 ms."""
    analysis = analyze_once(TRACES / "llama3_real.sqlite")

    assert "is spent in the range ensure_layer_#_weights." in analysis.diagnosis.verdict


def test_persistent_kernels_that_leave_room_for_communication_fill_the_gpu():
    """DeepSeek's grouped GEMMs have 112 blocks on 132 multiprocessors; DeepEP runs on the other 20."""
    analysis = analyze_once(TRACES / "kineto" / "ds_train.json.gz")
    shapes = analysis.ranks[0].compute_details.launch_shapes

    assert shapes.small_grid_share > 0.5
    assert shapes.unfilled_share < 0.12
    assert "fill-the-gpu" not in [fix.id for fix in analysis.fixes]


def test_what_happens_once_is_no_reason_to_change_the_loop():
    """One gap of 1.278 s, before a kernel is compiled and launched for the first time, of 1.33 s in all."""
    analysis = analyze_once(TRACES / "brainstorm_report2.sqlite")
    ids = {fix.id for fix in analysis.fixes}

    assert "one-gap" in [finding.code for finding in analysis.capture.findings]
    assert not ids & {"fewer-readbacks", "pin-batches"}


@pytest.mark.parametrize("name", ["hta_sampled_rank0", "hta_sampled_rank1"])
def test_a_filtered_trace_tells_of_no_other_process(name):
    """Its only calls issue work, so that waits of streams are missing: an idle GPU has many reasons."""
    analysis = analyze_once(TRACES / "kineto" / f"{name}.json.gz")
    ids = {fix.id for fix in analysis.fixes}

    assert "shared" not in analysis.diagnosis.verdict
    assert not ids & {"exclusive-gpu", "fused-update", "fused-optimizer", "work-beside"}


def test_initialization_is_no_reason_to_change_the_allocator():
    """10.0 of 12.9 s are one gap: cudaFree and other calls that initialize the context."""
    analysis = analyze_once(TRACES / "kineto" / "hta_alexnet.json.gz")

    assert not {fix.id for fix in analysis.fixes} & {"expandable-segments", "fewer-temporaries"}
    assert "one-gap" in [finding.code for finding in analysis.capture.findings]
