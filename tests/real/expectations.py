"""What an expert says of captures that others made: walls, steps, causes, and what the next change won.

Figures were worked out from the rows, outside wallscope; each capture is one example of a class.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expected:
    """What is true of a capture.

    Attributes:
        walls: the dominant walls that are right.
        evidence: what in the rows says so, in one line.
        steps: how many steps there are, at least and at most; `None` where the capture is one window.
        anchor: what marks them, as the answer writes it.
        shares: of causes, by their beginning: least and largest share of the typical step together.
        step_ms: the mean of the steady steps, at least and at most.
        says: words of the verdict.
    """

    walls: tuple[str, ...]
    evidence: str
    steps: tuple[int, int] | None = None
    anchor: str | None = None
    shares: tuple[tuple[str, float, float], ...] = ()
    step_ms: tuple[float, float] | None = None
    says: tuple[str, ...] = ()


def _near(value: float, share: float = 0.1) -> tuple[float, float]:
    return value * (1 - share), value * (1 + share)


EXPECTED: dict[str, Expected] = {
    "newboyleo_a100": Expected(
        ("memory",),
        "three 11 ms copies to the device; exposed copies are 44.6 of 236.6 ms",
        shares=(("memory/", 0.15, 0.19),),
    ),
    "cudatut_fp16": Expected(
        ("memory",),
        "synchronous cudaMemcpy from pageable memory nearly throughout",
        shares=(("memory/", 0.95, 1.0),),
    ),
    "mpi_v100_4rank_managed": Expected(
        ("memory",), "cuMemHostRegister pins memory for 52 ms", shares=(("memory/allocator", 0.88, 0.95),)
    ),
    "cs336_tianshi_small": Expected(
        ("host",),
        "steps are compute, but host time before them (compilation, start-up) is 63 % of the capture",
        (10, 10),
        says=("of the whole capture",),
    ),
    "cs336_zx_2.7B_clean": Expected(
        ("compute",),
        "matrix multiplications 91 %; launches wait for room in a full queue",
        steps=(10, 10),
        shares=(("compute/gemm", 0.90, 0.92), ("host/", 0.0, 0.01)),
    ),
    "cs336_zx_2.7B_nvtx": Expected(
        ("compute",),
        "matrix multiplications 91 %; launches wait for room in a full queue",
        steps=(4, 4),
        shares=(("compute/gemm", 0.90, 0.92), ("host/", 0.0, 0.01)),
    ),
    "nvfuser_v100_fusion": Expected(
        ("host",), "1,000 ranges `test`; each contains one kernel of about 1 µs", (1000, 1000), "test"
    ),
    "llama3_real": Expected(
        ("host",),
        "64 ranges, one per token; loading weights takes 566 of 776 ms",
        (64, 64),
        "token_#_processing",
    ),
    "mobilenet_infer_overlap": Expected(
        ("unknown", "mixed"),
        "kernels wait about 10 ms in the queue while the GPU runs nothing of this process: it is shared",
        (3, 5),
        "MobileNetV3",
        says=("shared with another process",),
    ),
    "clue_r3": Expected(
        ("host",), "five kernels repeated 20 times; the GPU works for 57 of 266 ms", (20, 20)
    ),
    "ingp_r12": Expected(
        ("compute",),
        "kernels run for 94 % of the time; in one gap of 284 ms the thread makes no CUDA call",
        shares=(("unattributed/", 0.0, 0.005), ("host/", 0.03, 0.06)),
    ),
    "weatherbench_4060": Expected(
        ("unknown",), "no kernel, one memset", says=("no verdict", "Capture again")
    ),
    "jax_alpa_mem": Expected(
        ("unknown",),
        "too little GPU work: 14 kernels, together 0.3 ms of 949 ms",
        says=("no verdict", "Capture again"),
    ),
    "llmc_t4_nokernel": Expected(("unknown",), "no kernel", says=("no verdict", "Capture again")),
    "nersc_sc21_baseline": Expected(
        ("host",),
        "23 gaps over 5 ms, each ended by the copy of a batch; 2 loader workers",
        (28, 29),
        "step #",
        step_ms=_near(719.6, 0.02),
    ),
    "nersc_sc21_8workers": Expected(
        ("memory", "host", "mixed"),
        "copies of the batch do not overlap compute; each eighth step waits for the loader",
        (28, 29),
        "step #",
        shares=(("memory/staging", 0.12, 0.16),),
        step_ms=_near(209.9),
        says=("every 8 steps",),
    ),
    "nersc_sc21_dali": Expected(
        ("compute",),
        "convolutions 124 of 161 ms",
        (28, 29),
        "step #",
        shares=(("compute/convolution", 0.70, 0.80),),
        step_ms=_near(166.8),
    ),
    "nersc_sc21_dali_amp": Expected(
        ("memory", "host", "mixed"),
        "exposed copies of the input 14 %, idle 15 %",
        (28, 29),
        "step #",
        shares=(("unattributed/", 0.0, 0.05),),
        step_ms=_near(150.6),
    ),
    "nersc_sc22_4gpu_base": Expected(
        ("compute",),
        "compute 92 %; gradients are copied into buckets for 1.09 ms per step",
        (58, 59),
        "step #",
        shares=(("compute/", 0.90, 0.95), ("memory/device-copy", 0.03, 0.04)),
        step_ms=_near(30.57, 0.03),
    ),
    "nersc_sc22_4gpu_nobcast": Expected(
        ("compute",),
        "compute 94 %; gradients are not copied into buckets",
        (58, 59),
        "step #",
        shares=(("compute/", 0.92, 0.97), ("memory/device-copy", 0.0, 0.012)),
        step_ms=_near(29.98, 0.03),
    ),
    "nersc_sc23_dali": Expected(
        ("compute",),
        "attention in FP32 for 1,018 of 1,195 ms",
        (30, 31),
        "step #",
        shares=(("compute/attention", 0.83, 0.87), ("host/", 0.0, 0.01)),
        step_ms=_near(1195.4, 0.02),
    ),
    "nersc_sc23_dali_bf16": Expected(
        ("compute",),
        "attention takes 65 %; the loss value is read by a copy that waits for the device",
        (30, 31),
        "step #",
        shares=(("compute/attention", 0.60, 0.68), ("host/", 0.0, 0.02)),
        step_ms=_near(367.9, 0.02),
    ),
    "nersc_sc23_dali_bf16_fused_jit": Expected(
        ("compute",),
        "fused elementwise kernels are known by name",
        (30, 31),
        "step #",
        shares=(("compute/other", 0.0, 0.02), ("compute/unrecognized", 0.0, 0.01)),
        step_ms=_near(364.5, 0.02),
    ),
}

CHANGES: tuple[tuple[str, str, str, str, float, float], ...] = (
    ("nersc_sc21_baseline", "nersc_sc21_8workers", "cause", "host/data-loading", -541.0, 0.3),
    ("nersc_sc21_8workers", "nersc_sc21_dali", "cause", "memory/staging", -26.4, 0.3),
    ("nersc_sc21_dali", "nersc_sc21_dali_amp", "cause", "compute/convolution", -53.0, 0.3),
    ("nersc_sc22_4gpu_base", "nersc_sc22_4gpu_nobcast", "cause", "memory/device-copy", -0.86, 0.3),
    ("nersc_sc23_dali", "nersc_sc23_dali_bf16", "cause", "compute/attention", -781.0, 0.1),
    ("nersc_sc23_dali_bf16", "nersc_sc23_dali_bf16_fused_jit", "wall", "compute", -3.7, 0.3),
)
"""Two versions of a program: what changed most, wall or cause, by how many ms a step, and how exactly."""

CEILINGS: tuple[tuple[str, str, float], ...] = (
    ("nersc_sc21_baseline", "host/data-loading", 176.7),
    ("nersc_sc21_8workers", "memory/staging", 166.8),
    ("nersc_sc22_4gpu_base", "memory/device-copy", 29.98),
)
"""Causes that the next version removed, and its measured step in ms."""
