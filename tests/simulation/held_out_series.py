"""Series that were written down before any was run, on other programs than those the rules were made with.

Each has another step than `test_ledger_series.py`: other kernels, lengths, streams and neighboring causes.
Some commits change what no recommendation is about.
"""

from dataclasses import replace

from fixtures.simulation.names import (
    ATTENTION,
    ATTENTION_BACKWARD,
    GEMM_2,
    GEMM_3,
    NORM,
    NORM_BACKWARD,
    OPTIMIZER,
    REDUCTION,
    Kernel,
)
from fixtures.simulation.program import (
    Allocate,
    Copy,
    Fill,
    Free,
    Launch,
    Pop,
    Push,
    SyncDevice,
    SyncStream,
    Why,
    Work,
)
from tests.simulation.series import MS, Series

MIB = 1 << 20
COPIES, SIDE = 40, 41
"""Streams of copies and of compute next to the main one."""
LAYER = (Launch(GEMM_2, 600_000), Launch(ATTENTION, 800_000), Launch(NORM, 120_000), Launch(GEMM_3, 900_000))
BACKWARD = (Launch(ATTENTION_BACKWARD, 1_500_000), Launch(NORM_BACKWARD, 150_000), Launch(GEMM_3, 1_800_000))
SMALL_MODEL = (*LAYER, *LAYER, *BACKWARD)
LARGE_MODEL = (*LAYER * 8, *BACKWARD * 8)
ATEN = [
    Kernel(
        f"void at::native::vectorized_elementwise_kernel<(int)4, at::native::{name}>(int, T2)", "elementwise"
    )
    for name in ("AddFunctor<float>", "MulFunctor<float>", "sqrt_kernel_cuda<float>")
]
FUSED = Kernel("triton_poi_fused_add_mul_sqrt_3", "elementwise")
FP32 = Kernel("ampere_sgemm_32x128_tn", "gemm")
FP16 = Kernel("sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_cublas", "gemm")
END = (Launch(REDUCTION, 200_000), Launch(OPTIMIZER, 700_000))
READ = (Copy("device-to-host", 8, 1_500), SyncStream())


def _series(name, model, before, after, *fixes):
    return Series(name, (*model, *before, *END), (*model, *after, *END), frozenset(fixes))


def _stall(ms, why):
    return (SyncDevice(), Work(round(ms * MS), why))


def _small_copies(count):
    return tuple(Copy("host-to-device", 4_096, 3_000) for _ in range(count))


_BATCH = Copy("host-to-device", 200 * MIB, 9 * MS, host_memory="pageable")
HELD_OUT = (
    _series(
        "loader of a large model",
        LARGE_MODEL,
        _stall(30, Why.DATA_LOADING),
        _stall(2, Why.DATA_LOADING),
        "data-workers",
        "prepare-inputs",
    ),
    _series(
        "loader in the middle",
        SMALL_MODEL,
        (*_stall(3, Why.DATA_LOADING), *LAYER),
        LAYER,
        "data-workers",
        "prepare-inputs",
    ),
    _series(
        "collector next to a loader",
        SMALL_MODEL,
        (*_stall(5, Why.GARBAGE_COLLECTION), *LAYER, *_stall(2, Why.DATA_LOADING)),
        (*LAYER, *_stall(2, Why.DATA_LOADING)),
        "manual-gc",
        "rarer-gc",
    ),
    _series(
        "file in the step",
        SMALL_MODEL,
        _stall(4, Why.FILE),
        (),
        "no-file-access",
        "background-checkpoint",
    ),
    _series("network in the step", SMALL_MODEL, _stall(6, Why.NETWORK), (), "no-network-calls"),
    _series(
        "lock of a large model",
        LARGE_MODEL,
        _stall(12, Why.LOCK),
        _stall(1, Why.LOCK),
        "keep-threads-apart",
    ),
    _series(
        "loss read in each layer",
        SMALL_MODEL,
        (*READ, Work(MS), *LAYER, *READ, Work(MS), *LAYER, *READ, Work(2 * MS)),
        (Work(MS), *LAYER, Work(MS), *LAYER, Work(2 * MS)),
        "fewer-readbacks",
        "fewer-waits",
    ),
    _series(
        "waits between layers",
        SMALL_MODEL,
        (SyncDevice(), Work(2 * MS), *LAYER, SyncDevice(), Work(2 * MS), *LAYER),
        (Work(2 * MS), *LAYER, Work(2 * MS), *LAYER),
        "no-device-wide-waits",
        "fewer-waits",
    ),
    _series(
        "large pageable batch",
        SMALL_MODEL,
        (_BATCH, *LAYER),
        (replace(_BATCH, host_memory="pinned", stream=COPIES), *LAYER),
        "pin-batches",
        "prefetch-batches",
    ),
    _series(
        "batch is copied ahead",
        LARGE_MODEL,
        (replace(_BATCH, host_memory="pinned"), *LAYER),
        (replace(_BATCH, host_memory="pinned", stream=COPIES), *LAYER),
        "prefetch-batches",
    ),
    _series(
        "copies of gradients",
        LARGE_MODEL,
        tuple(Copy("device-to-device", 32 * MIB, 400_000) for _ in range(30)),
        tuple(Copy("device-to-device", 32 * MIB, 400_000) for _ in range(4)),
        "fewer-device-copies",
        "gradient-bucket-views",
    ),
    _series(
        "zeroed gradients",
        SMALL_MODEL,
        tuple(Fill(16 * MIB, 150_000) for _ in range(25)),
        (),
        "fewer-fills",
    ),
    _series(
        "offloaded activations",
        LARGE_MODEL,
        (
            *[Copy("device-to-host", 96 * MIB, 5 * MS, is_offload=True)] * 3,
            *[Copy("host-to-device", 96 * MIB, 5 * MS, is_offload=True)] * 3,
        ),
        (
            Copy("device-to-host", 96 * MIB, 5 * MS, is_offload=True),
            Copy("host-to-device", 96 * MIB, 5 * MS, is_offload=True),
        ),
        "no-offload",
        "smaller-offload",
        "overlap-offload",
    ),
    _series(
        "outputs are copied late",
        SMALL_MODEL,
        (Copy("device-to-host", 128 * MIB, 8 * MS), SyncStream(), *LAYER),
        (Copy("device-to-host", 128 * MIB, 8 * MS, COPIES), *LAYER),
        "asynchronous-readback",
    ),
    _series(
        "single elementwise operations",
        (*LAYER, *BACKWARD),
        tuple(Launch(ATEN[number % 3], 180_000) for number in range(45)),
        tuple(Launch(FUSED, 200_000) for _ in range(15)),
        "fuse-elementwise",
        "fused-norm",
        "fused-loss",
    ),
    _series(
        "single precision",
        (),
        tuple(Launch(FP32, 2_500_000) for _ in range(10)),
        tuple(Launch(FP16, 450_000) for _ in range(10)),
        "fp16",
        "bf16",
        "tf32",
    ),
    _series(
        "many small updates",
        LAYER,
        tuple(Launch(OPTIMIZER, 60_000) for _ in range(80)),
        tuple(Launch(OPTIMIZER, 300_000) for _ in range(4)),
        "fused-optimizer",
        "fused-update",
    ),
    _series(
        "another batch alone",
        SMALL_MODEL,
        LAYER,
        (*LAYER, *LAYER, *LAYER),
    ),
    _series(
        "faster kernels alone",
        (),
        (Launch(GEMM_2, 9 * MS), Launch(ATTENTION, 6 * MS)),
        (Launch(GEMM_2, 6 * MS), Launch(ATTENTION, 6 * MS)),
    ),
    _series(
        "a shorter model",
        SMALL_MODEL,
        (*LAYER * 4, *BACKWARD * 4),
        (*LAYER * 2, *BACKWARD * 2),
    ),
)

MIDDLE = (*LAYER * 3, *BACKWARD * 3)
NORM_FP32 = Kernel(
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)", "norm"
)
FUSED_2 = Kernel("triton_red_fused_add_native_layer_norm_7", "norm")
SOFTMAX = Kernel(
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, (int)10>(float*)", "reduction"
)
FLASH = Kernel(
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64>>(Flash_fwd_params)",
    "attention",
)
BATCHED = Kernel("sm90_xmma_gemm_bf16bf16_bf16f32_f32_nn_n_tilesize64x64x64_cublas", "gemm")
_GRADIENT = Copy("device-to-device", 8 * MIB, 90_000)


def _later(name, before, after, *fixes, model=MIDDLE):
    return _series(name, model, before, after, *fixes)


LATER = (
    _later(
        "a wait in every layer, in a model that compiles",
        (*(SyncDevice(), Work(900_000), *LAYER) * 4, *[Launch(FUSED, 90_000)] * 6),
        (*(Work(900_000), *LAYER) * 4, *[Launch(FUSED, 90_000)] * 6),
        "no-device-wide-waits",
        "fewer-waits",
    ),
    _later(
        "more is compiled",
        (*[Launch(FUSED, 100_000)] * 6, *[Launch(ATEN[0], 220_000), Launch(NORM_FP32, 300_000)] * 16),
        (*[Launch(FUSED, 100_000)] * 6, *[Launch(FUSED_2, 180_000)] * 16),
        "fuse-elementwise",
        "fused-norm",
        "fused-loss",
    ),
    _later(
        "attention of three kernels",
        (
            Launch(BATCHED, 700_000),
            Launch(ATEN[1], 900_000),
            Launch(SOFTMAX, 1_200_000),
            Launch(BATCHED, 700_000),
        )
        * 5,
        (Launch(FLASH, 800_000),) * 5,
        "fuse-attention",
        "attention-backend",
    ),
    _later(
        "updates of each tensor, among waits",
        (SyncDevice(), Work(300_000), *[Launch(ATEN[0], 50_000), Launch(OPTIMIZER, 50_000)] * 60),
        (SyncDevice(), Work(300_000), *[Launch(OPTIMIZER, 450_000)] * 3),
        "fused-optimizer",
        "fused-update",
    ),
    _later(
        "loader that now prepares ahead",
        (*_stall(14, Why.DATA_LOADING), *LAYER),
        (*_stall(3, Why.DATA_LOADING), *LAYER),
        "data-workers",
        "prepare-inputs",
    ),
    _later(
        "half of the files",
        (*_stall(9, Why.FILE), *LAYER),
        (*_stall(3, Why.FILE), *LAYER),
        "no-file-access",
        "background-checkpoint",
    ),
    _later(
        "rarer collection",
        (*_stall(8, Why.GARBAGE_COLLECTION), *READ),
        (*_stall(1, Why.GARBAGE_COLLECTION), *READ),
        "manual-gc",
        "rarer-gc",
    ),
    _later(
        "copies of each gradient",
        (_GRADIENT,) * 90,
        (_GRADIENT,) * 10,
        "fewer-device-copies",
        "gradient-bucket-views",
    ),
    _later(
        "one value less",
        (*READ, Work(4 * MS), *LAYER, *READ, Work(3 * MS)),
        (Work(4 * MS), *LAYER, *READ, Work(3 * MS)),
        "fewer-readbacks",
        "fewer-waits",
    ),
    _later(
        "weights of half the size",
        tuple(Launch(FP32, 1_800_000) for _ in range(24)),
        tuple(Launch(BATCHED, 300_000) for _ in range(24)),
        "fp16",
        "bf16",
        "tf32",
        model=(),
    ),
    _later(
        "logs that are copied",
        (Copy("device-to-host", 300 * MIB, 14 * MS), SyncStream()),
        (Copy("device-to-host", 300 * MIB, 14 * MS, SIDE),),
        "asynchronous-readback",
    ),
    _later(
        "remote metrics, also a loader",
        (*_stall(7, Why.NETWORK), *LAYER, *_stall(1.5, Why.DATA_LOADING)),
        (*LAYER, *_stall(1.5, Why.DATA_LOADING)),
        "no-network-calls",
    ),
    _later(
        "buffers that are zeroed twice",
        (Fill(64 * MIB, 700_000),) * 12,
        (Fill(64 * MIB, 700_000),) * 2,
        "fewer-fills",
    ),
    _later(
        "a batch from pageable memory",
        (replace(_BATCH, duration_ns=16 * MS),),
        (replace(_BATCH, duration_ns=9 * MS, host_memory="pinned"),),
        "pin-batches",
    ),
    _later(
        "optimizer on the host",
        (
            Copy("device-to-host", 80 * MIB, 4 * MS, is_offload=True),
            Copy("host-to-device", 80 * MIB, 4 * MS, is_offload=True),
        )
        * 2,
        (),
        "no-offload",
        "smaller-offload",
        "overlap-offload",
        "parameters-on-device",
    ),
    _later(
        "threads that no longer meet",
        (*_stall(6, Why.LOCK), *LAYER, *_stall(3, Why.LOCK)),
        LAYER,
        "keep-threads-apart",
    ),
    _later("another loss", (), (Launch(REDUCTION, 5 * MS),)),
    _later("a slower loader", _stall(2, Why.DATA_LOADING), _stall(9, Why.DATA_LOADING)),
    _later("a slower copy", (_BATCH,), (replace(_BATCH, duration_ns=14 * MS),)),
    _later(
        "a longer sequence",
        (*LAYER * 4,),
        tuple(replace(one, duration_ns=one.duration_ns * 2) for one in LAYER * 4),
    ),
)
"""Written after the first, before any of these was run."""

WIDE = (*LAYER * 2, *BACKWARD * 2, *LAYER)
FP32_CONVOLUTION = Kernel(
    "implicit_convolve_sgemm<float, float, (int)1024, (int)5, (int)5, (int)3>", "convolution"
)
FP16_CONVOLUTION = Kernel(
    "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_cudnn", "convolution"
)
EFFICIENT = Kernel(
    "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)", "attention"
)
_INPUT = Copy("host-to-device", 96 * MIB, 6 * MS, host_memory="pageable")
_BUCKET = Copy("device-to-device", 24 * MIB, 250_000)
_OFFLOADED = (
    Copy("device-to-host", 128 * MIB, 7 * MS, is_offload=True),
    Copy("host-to-device", 128 * MIB, 7 * MS, is_offload=True),
)


def _aten_range(name, *actions):
    return (Push(f"aten::{name}"), *actions, Pop())


def _attend(batched, softmax):
    """Attention of single operators, with their ranges."""
    return (
        *_aten_range("bmm", Launch(BATCHED, batched)),
        *_aten_range("mul", Launch(ATEN[1], softmax // 2)),
        *_aten_range("softmax", Launch(SOFTMAX, softmax)),
        *_aten_range("bmm", Launch(BATCHED, batched)),
    )


def _fresh(name, before, after, *fixes, model=WIDE):
    return _series(name, model, before, after, *fixes)


FRESH = (
    _fresh(
        "scores that are fused",
        (*_attend(500_000, 1_400_000), Launch(GEMM_2, 900_000), Launch(GEMM_3, 900_000)) * 5,
        (Launch(FLASH, 900_000), Launch(GEMM_2, 900_000), Launch(GEMM_3, 900_000)) * 5,
        "fuse-attention",
        model=(),
    ),
    _fresh(
        "scores of a long context",
        (*_attend(300_000, 3_000_000), Launch(GEMM_2, 500_000), Launch(NORM, 100_000)) * 9,
        (Launch(FLASH, 1_500_000), Launch(GEMM_2, 500_000), Launch(NORM, 100_000)) * 9,
        "fuse-attention",
    ),
    _fresh(
        "attention of another library",
        (Launch(EFFICIENT, 3 * MS),) * 8,
        (Launch(FLASH, 2 * MS),) * 8,
        "attention-backend",
        "newer-attention",
        "other-attention",
        model=(Launch(GEMM_2, MS), Launch(NORM, 200_000)) * 4,
    ),
    _fresh(
        "three reads of five",
        (*READ, Work(2 * MS), *LAYER) * 5,
        (*(*READ, Work(2 * MS), *LAYER) * 2, *(Work(2 * MS), *LAYER) * 3),
        "fewer-readbacks",
        "fewer-waits",
    ),
    _fresh(
        "a third of the reads",
        (*READ, Work(1_500_000), *LAYER) * 6,
        (*(*READ, Work(1_500_000), *LAYER) * 4, *(Work(1_500_000), *LAYER) * 2),
        "fewer-readbacks",
        "fewer-waits",
    ),
    _fresh(
        "reads of a small model",
        (*(*READ, Work(700_000), Launch(GEMM_2, 400_000)) * 8,),
        (*(*READ, Work(700_000), Launch(GEMM_2, 400_000)) * 3, *(Work(700_000), Launch(GEMM_2, 400_000)) * 5),
        "fewer-readbacks",
        "fewer-waits",
    ),
    _fresh(
        "pinned batches that are still waited for",
        (_INPUT, *LAYER),
        (replace(_INPUT, duration_ns=4 * MS, host_memory="pinned"), *LAYER),
        "pin-batches",
    ),
    _fresh(
        "two inputs become pinned",
        (_INPUT, replace(_INPUT, duration_ns=3 * MS, copied_bytes=48 * MIB)),
        (
            replace(_INPUT, duration_ns=4 * MS, host_memory="pinned"),
            replace(_INPUT, duration_ns=2 * MS, copied_bytes=48 * MIB, host_memory="pinned"),
        ),
        "pin-batches",
        model=LARGE_MODEL,
    ),
    _fresh(
        "batches that are pinned and copied ahead",
        (_INPUT, *LAYER),
        (replace(_INPUT, duration_ns=4 * MS, host_memory="pinned", stream=SIDE), *LAYER),
        "pin-batches",
        "prefetch-batches",
    ),
    _fresh(
        "update by parameter of a large model",
        tuple(one for _ in range(90) for one in (Launch(ATEN[2], 30_000), Launch(OPTIMIZER, 40_000))),
        tuple(Launch(OPTIMIZER, 500_000) for _ in range(3)),
        "fused-optimizer",
        "fused-update",
        model=LARGE_MODEL,
    ),
    _fresh(
        "update in a range",
        (
            Push("Optimizer.step#AdamW.step"),
            *[Launch(ATEN[number % 3], 40_000) for number in range(120)],
            Pop(),
        ),
        (Push("Optimizer.step#AdamW.step"), *[Launch(OPTIMIZER, 600_000)] * 2, Pop()),
        "fused-optimizer",
        "fused-update",
    ),
    _fresh(
        "convolutions in half precision",
        tuple(Launch(FP32_CONVOLUTION, 2_200_000) for _ in range(12)),
        tuple(Launch(FP16_CONVOLUTION, 700_000) for _ in range(12)),
        "fp16",
        "bf16",
        "tf32",
        model=(Launch(NORM, 300_000),) * 4,
    ),
    _fresh(
        "loader on both ends of the step",
        (*_stall(5, Why.DATA_LOADING), *LAYER, *_stall(4, Why.DATA_LOADING)),
        (*_stall(1, Why.DATA_LOADING), *LAYER, *_stall(1, Why.DATA_LOADING)),
        "data-workers",
        "prepare-inputs",
    ),
    _fresh(
        "loader of a small share",
        _stall(4, Why.DATA_LOADING),
        _stall(0.5, Why.DATA_LOADING),
        "data-workers",
        "prepare-inputs",
        model=LARGE_MODEL,
    ),
    _fresh(
        "collector of a large model",
        _stall(11, Why.GARBAGE_COLLECTION),
        (),
        "manual-gc",
        "rarer-gc",
        model=LARGE_MODEL,
    ),
    _fresh(
        "logs that are written elsewhere",
        (*_stall(3, Why.FILE), *LAYER, *_stall(3, Why.FILE)),
        LAYER,
        "no-file-access",
        "background-checkpoint",
    ),
    _fresh(
        "metrics that are sent later",
        (*_stall(9, Why.NETWORK), *READ, *LAYER),
        (*READ, *LAYER),
        "no-network-calls",
    ),
    _fresh(
        "lock of a tokenizer",
        _stall(7, Why.LOCK),
        _stall(2, Why.LOCK),
        "keep-threads-apart",
    ),
    _fresh(
        "waits of the device after each part",
        (SyncDevice(), Work(1_200_000), *LAYER) * 4,
        (Work(1_200_000), *LAYER) * 4,
        "no-device-wide-waits",
        "fewer-waits",
    ),
    _fresh(
        "buckets that are views",
        (_BUCKET,) * 60,
        (_BUCKET,) * 6,
        "fewer-device-copies",
        "gradient-bucket-views",
    ),
    _fresh(
        "gradients that are set to none",
        (Fill(24 * MIB, 200_000),) * 40,
        (),
        "fewer-fills",
        model=LARGE_MODEL,
    ),
    _fresh(
        "states that stay on the device",
        (*_OFFLOADED, *_OFFLOADED),
        (),
        "no-offload",
        "smaller-offload",
        "overlap-offload",
        "parameters-on-device",
        model=LARGE_MODEL,
    ),
    _fresh(
        "images that are saved beside",
        (Copy("device-to-host", 160 * MIB, 9 * MS), SyncStream(), *LAYER),
        (Copy("device-to-host", 160 * MIB, 9 * MS, COPIES), *LAYER),
        "asynchronous-readback",
    ),
    _fresh(
        "norms and activations that are compiled",
        tuple(one for _ in range(20) for one in (Launch(NORM_FP32, 250_000), Launch(ATEN[1], 200_000))),
        (*[Launch(FUSED_2, 150_000)] * 20, *[Launch(FUSED, 50_000)] * 4),
        "fuse-elementwise",
        "fused-norm",
        "fused-loss",
    ),
    _fresh(
        "pools that do not grow",
        (Free(2 * MS), Allocate(3 * MS), *LAYER, Free(MS), Allocate(2 * MS)),
        LAYER,
        "expandable-segments",
        "allocate-once",
        "fewer-temporaries",
    ),
    _fresh("attention that takes less time", (Launch(FLASH, 2 * MS),) * 6, (Launch(FLASH, MS),) * 6),
    _fresh("a longer context", (Launch(FLASH, MS),) * 6, (Launch(FLASH, 3 * MS),) * 6),
    _fresh("more reads", (*READ, Work(2 * MS)), (*READ, Work(2 * MS)) * 3),
    _fresh(
        "reads of shorter work",
        (*READ, Work(3 * MS), *LAYER) * 3,
        (*READ, Work(2_400_000), *LAYER) * 3,
    ),
    _fresh(
        "a smaller batch of pageable memory",
        (_INPUT,),
        (replace(_INPUT, copied_bytes=80 * MIB, duration_ns=5 * MS),),
    ),
    _fresh(
        "a batch that is pageable no more, and slower",
        (_INPUT,),
        (replace(_INPUT, duration_ns=11 * MS, host_memory="pinned"),),
    ),
    _fresh(
        "another optimizer",
        tuple(Launch(OPTIMIZER, 300_000) for _ in range(4)),
        tuple(Launch(OPTIMIZER, 500_000) for _ in range(5)),
    ),
    _fresh("a loader that waits alike", _stall(5, Why.DATA_LOADING), (*_stall(5, Why.DATA_LOADING), *LAYER)),
    _fresh("more layers", LAYER, (*LAYER, *LAYER)),
    _fresh(
        "softmax of the loss alone",
        (Launch(SOFTMAX, MS), *LAYER),
        (Launch(REDUCTION, 800_000), *LAYER),
    ),
)
"""Written after both, before any of these was run."""
