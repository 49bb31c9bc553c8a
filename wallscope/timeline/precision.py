"""The precision of matrix multiplications, as names of kernels tell it: of what they take in.

The first pattern that matches a name in lower case decides. Scale formats stand in names beside the
numbers that they scale (`vec16UE4M3` is NVFP4, `vec32UE8M0` is MXFP8), `bf16` holds `f16`, and what a kernel
adds up in (`f32`, the `s` of `s16816gemm`) is often named with what it multiplies, so narrow formats come
first. cuBLAS's `nvjet` kernels spell types as letters: `o` 4-bit, `q` and `r` 8-bit, `t` bfloat16, `h` half.
"""

import numpy as np
import polars as pl

from wallscope.model.kinds import Precision

_PATTERNS = (
    (Precision.NVFP4, r"nvfp4|fp4|vec16ue4m3|e2m1|nvjet_(sm[0-9]+_)?oo"),
    (Precision.MXFP8, r"mxfp8|mx_?f8|vec32ue8m0"),
    (Precision.FP8, r"fp8|float_?8|e4m3|e5m2|nvjet_(sm[0-9]+_)?[qr]{2}"),
    (Precision.INT8, r"int8|i8816|i16832|i8i8|_s8_|(^|_)igemm|(^|_)imma"),
    (Precision.BF16, r"bf16|bfloat16|nvjet_(sm[0-9]+_)?t"),
    (
        Precision.FP16,
        r"fp16|float16|half|(^|[^b])f16|(^|_)h([0-9]+)?gemm|(^|_)h(884|1688|16816)|nvjet_(sm[0-9]+_)?h",
    ),
    (Precision.TF32, r"tf32|tfloat32|cutlass_80_tensorop_s1688gemm"),
    (Precision.FP64, r"(^|[^a-z])[dz]gemm|d884|f64|\bdouble"),
    (Precision.FP32, r"[sc]gemm|f32f32|fp32|ffma|\bfloat[0-9]?\b"),
)
_TOLD = (*(kind for kind, _ in _PATTERNS), Precision.UNKNOWN)


def precisions(names: pl.DataFrame) -> pl.DataFrame:
    """Columns `name` and `precision` of kernel names (`NAMES`); `unknown` where no pattern matches.

    >>> names = pl.DataFrame({"name": [0, 1], "text": ["nvjet_tst_128x8_NTN", "my_gemm"]})
    >>> precisions(names)["precision"].to_list()
    ['bf16', 'unknown']
    """
    lower = names["text"].str.to_lowercase()
    is_so = lower.to_frame().select(
        pl.col("text").str.contains(pattern).alias(kind) for kind, pattern in _PATTERNS
    )
    matched = np.column_stack([*(column.to_numpy() for column in is_so), np.ones(len(names), np.bool_)])
    told = pl.Series("precision", _TOLD, dtype=pl.Enum(Precision))[matched.argmax(axis=1)]
    return pl.DataFrame([names["name"], told])
