"""Limits that decide which recommendations are given, and where."""

from typing import Final

SHOWN_FIXES_COUNT: Final = 5
"""Fixes of the first screen. Chosen."""
FIXES_OF_A_CAUSE_COUNT: Final = 2
"""Of one cause before those of others. Chosen."""
NEXT_WALL_OF_FIX_SHARE: Final = 0.10
"""Of what is left behind a fix that a loss must take, to be the next wall. Chosen, as `DOMINANT_SHARE`."""
REPLAYED_FIXES_COUNT: Final = 16
"""Fixes that are replayed, the most worth first. Chosen, to bound the time."""
SHOWN_WIN_SHARE: Final = 0.001
"""Share of the step that a replay must gain, to be reported as more than nothing. Chosen."""
PAGEABLE_SHARE: Final = 0.1
"""Of the bytes of a direction that must be of pageable memory, for pinning to be advised. Chosen."""
SHOWN_CAPTURE_ADVICE_COUNT: Final = 3
"""Pieces of advice on the capture on the first screen. Chosen."""
LEADING_KERNELS_COUNT: Final = 3
"""Kernels of a category that are named as evidence. Chosen."""
KERNEL_RATES_COUNT: Final = 20
"""Kernels that are listed with their rate. Chosen."""
EVIDENCE_LINES_COUNT: Final = 3
"""Lines of evidence of a fix. Chosen."""

BF16_ATTENTION_OF_FP32_RATIO: Final = 0.25
"""Time left of FP32 attention in BF16. Measured: 1,018 to 237 ms (0.23) in the NERSC SC23 tutorial, A100."""
BF16_GEMM_OF_TF32_RATIO: Final = 0.5
"""Time left of TF32 multiplications in BF16 or FP16. Measured: 79 to 36 ms (0.46), the same; peaks: 0.5."""
BF16_GEMM_OF_FP32_RATIO: Final = 0.2
"""Time left of FP32 multiplications outside tensor cores in BF16. Chosen: peak rates of A100 say 0.06, those
of V100 to FP16 0.13, and memory bounds some."""
TF32_GEMM_OF_FP32_RATIO: Final = 0.3
"""Time left of FP32 multiplications in TF32. Chosen: peak rates of A100 say 0.13, and memory bounds some."""
BF16_CONVOLUTION_OF_TF32_RATIO: Final = 0.5
"""Time left of TF32 convolutions in BF16 or FP16. Peak rates. Measured with the next: 124 to 71 ms (0.57) in
the NERSC SC21 tutorial, A100, of which 71 % ran in TF32."""
BF16_CONVOLUTION_OF_FP32_RATIO: Final = 0.75
"""Time left of FP32 convolutions then: some have no other kernel. Measured with the one before."""
