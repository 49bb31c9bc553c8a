"""The precision of matrix multiplications, as names of kernels tell it: of what they take in.

The first pattern that matches decides. Scale formats stand in names beside the numbers that they scale
(`vec16UE4M3` is NVFP4, `vec32UE8M0` is MXFP8), `bf16` holds `f16`, and what a kernel adds up in (`f32`,
the `s` of `s16816gemm`) is often named with what it multiplies, so narrow formats come first. cuBLAS's
`nvjet` kernels spell types as letters: `o` 4-bit, `q` and `r` 8-bit, `t` bfloat16, `h` half.
"""

import polars as pl

from wallscope.model.kinds import Precision

_PATTERNS = (
    (Precision.NVFP4, r"(?i)nvfp4|fp4|vec16UE4M3|e2m1|nvjet_(sm\d+_)?oo"),
    (Precision.MXFP8, r"(?i)mxfp8|mx_?f8|vec32UE8M0"),
    (Precision.FP8, r"(?i)fp8|float_?8|e4m3|e5m2|nvjet_(sm\d+_)?[qr]{2}"),
    (Precision.INT8, r"(?i)int8|i8816|i16832|i8i8|_s8_|(^|_)igemm|(^|_)imma"),
    (Precision.BF16, r"(?i)bf16|bfloat16|nvjet_(sm\d+_)?t"),
    (
        Precision.FP16,
        r"(?i)fp16|float16|half|(^|[^b])f16|(^|_)h(\d+)?gemm|(^|_)h(884|1688|16816)|nvjet_(sm\d+_)?h",
    ),
    (Precision.TF32, r"(?i)tf32|tfloat32|cutlass_80_tensorop_s1688gemm"),
    (Precision.FP64, r"(?i)(^|[^a-z])[dz]gemm|d884|f64|\bdouble"),
    (Precision.FP32, r"(?i)[sc]gemm|f32f32|fp32|ffma|\bfloat\d?\b"),
)


def precisions(names: pl.DataFrame) -> pl.DataFrame:
    """Columns `name` and `precision` of kernel names (`NAMES`); `unknown` where no pattern matches.

    >>> names = pl.DataFrame({"name": [0, 1], "text": ["nvjet_tst_128x8_NTN", "my_gemm"]})
    >>> precisions(names)["precision"].to_list()
    ['bf16', 'unknown']
    """
    told = pl.lit(Precision.UNKNOWN, pl.Enum(Precision))
    for precision, pattern in reversed(_PATTERNS):
        is_so = pl.col("text").str.contains(pattern)
        told = pl.when(is_so).then(pl.lit(precision, pl.Enum(Precision))).otherwise(told)
    return names.select("name", precision=told)
