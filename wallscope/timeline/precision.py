"""The precision of matrix multiplications, as names of kernels tell it: of what they take in.

The first pattern that matches a name in lower case decides. Scale formats stand in names beside the
numbers that they scale (`vec16UE4M3` is NVFP4, `vec32UE8M0` is MXFP8), `bf16` holds `f16`, and what a kernel
adds up in (`f32`, the `s` of `s16816gemm`) is often named with what it multiplies, so narrow formats come
first. cuBLAS's `nvjet` kernels spell types as letters: `o` 4-bit, `q` and `r` 8-bit, `t` bfloat16, `h` half.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.model.kinds import Precision
from wallscope.text_memo import TextMemo

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


def precisions(names: pl.DataFrame) -> pl.DataFrame:
    """Columns `name` and `precision` of kernel names (`NAMES`); `unknown` where no pattern matches.

    >>> names = pl.DataFrame({"name": [0, 1], "text": ["nvjet_tst_128x8_NTN", "my_gemm"]})
    >>> precisions(names)["precision"].to_list()
    ['bf16', 'unknown']
    """
    return pl.DataFrame({"name": names["name"], "precision": _EACH[_TOLD.of(names["text"].to_list())]})


def _asked(texts: pl.Series) -> npt.NDArray[np.int64]:
    """The place of each text's precision in `Precision`."""
    lower = texts.str.to_lowercase()
    told = np.full(len(texts), _PLACES[Precision.UNKNOWN], np.int64)
    for precision, pattern in reversed(_PATTERNS):
        told[lower.str.contains(pattern).to_numpy()] = _PLACES[precision]
    return told


_EACH = pl.Series("precision", list(Precision), dtype=pl.Enum(Precision))
_PLACES = {precision: place for place, precision in enumerate(Precision)}
_TOLD = TextMemo(_asked)
