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
from fixtures.simulation.program import Copy, Fill, Launch, SyncDevice, SyncStream, Why, Work
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
