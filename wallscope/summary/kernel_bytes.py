"""The bytes that pointwise kernels of PyTorch move at least, by their names and grids.

A kernel `vectorized_elementwise_kernel` names its functor and how many arrays it has. If the functor names
one type, all arrays have it; casts have two, and are unknown. A block has 512 elements, or 1,024 of the
versions of PyTorch that load eight numbers of two bytes at once.

Where all arrays fit into the L2 cache, the bandwidth of the memory does not limit a kernel: such bytes
are unknown.
"""

import re
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Rows, as_integers, find_places
from wallscope.model.capture import Capture, Gpu
from wallscope.trace.gpu_peaks import find_bandwidth
from wallscope.trace.names import TextMemo

_VECTORIZED = "vectorized_elementwise_kernel<"
_ARRAYS = re.compile(r"(?:at::detail::A|std::a)rray<char ?\*, (?:\((?:int|unsigned long)\))?(\d+)")
_WIDTH = re.compile(r"vectorized_elementwise_kernel<(?:\(int\))?(\d+)")
_STRIDED = re.compile(r"(?<![a-z_])elementwise_kernel<(?:\(int\))?(\d+), (?:\(int\))?(\d+)")
_TYPE = re.compile(
    r"\b(float|double|c10::BFloat16|c10::Half|long|short|bool|int|unsigned char|signed char|c10::Float8\w+"
    r"|c10::complex)\b"
)
_CASTS = re.compile(r"\((?:int|unsigned long|bool)\)")
_BYTES = {"float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "long": 8}
_COPYING = "copy_kernel"
_USUAL, _WIDE = 512, 1_024
_OF_CACHES = 2
"""Bytes by those of the L2 cache, from which memory limits a kernel."""
_MIB = 1 << 20
_L2_BYTES: Final = {
    "sm_60": 4 * _MIB,
    "sm_70": 6 * _MIB,
    "sm_75": 6 * _MIB,
    "sm_80": 40 * _MIB,
    "sm_86": 6 * _MIB,
    "sm_89": 96 * _MIB,
    "sm_90": 60 * _MIB,
}
"""The largest L2 cache of the GPUs of an architecture."""
_LARGEST_L2_BYTES: Final = 128 * _MIB


def count_block_bytes(name: str) -> int:
    """Return the bytes that each block of a kernel moves, 0 if its name does not show them.

    >>> count_block_bytes(
    ...     "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>,"
    ...     " at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<float>)"
    ... )
    6144
    """
    width, arrays = _WIDTH.search(name), _ARRAYS.search(name)
    if width is None or arrays is None or _COPYING in name:
        return 0
    functor = _CASTS.sub("", name[width.end() : arrays.start()])
    types = set(_TYPE.findall(functor))
    size = _BYTES.get(next(iter(types)), 0) if len(types) == 1 else 0
    elements = _USUAL
    if size == 2:  # bytes of a number
        if width[1] == "8":
            elements = _WIDE
        elif "std::array" in name:  # of a version whose blocks may be of either size
            return 0
    return elements * size * int(arrays[1])


def list_block_elements(name: str) -> tuple[int, ...]:
    """Return how many elements each block of a pointwise kernel of PyTorch may have; none of other kernels.

    >>> list_block_elements("void at::native::elementwise_kernel<128, 2, f>(int, f)")
    (256,)
    >>> list_block_elements("void at::native::unrolled_elementwise_kernel<f>(int)"), list_block_elements("x")
    ((512,), ())
    """
    if (found := _STRIDED.search(name)) is not None:
        return (int(found[1]) * int(found[2]),)
    if (width := _WIDTH.search(name)) is not None:
        is_known = "std::array" not in name  # of a version whose blocks may be of either size
        return ((_WIDE,) if width[1] == "8" else (_USUAL,)) if is_known else (_USUAL, _WIDE)
    return (_USUAL,) if "unrolled_elementwise_kernel<" in name else ()


def _count_all(texts: pl.Series) -> npt.NDArray[np.int64]:
    return np.array([count_block_bytes(text) if _VECTORIZED in text else 0 for text in texts], np.int64)


_BLOCK_BYTES = TextMemo(_count_all)


def measure_byte_floors(capture: Capture, gpu: Gpu | None, op: Rows, name: Rows) -> npt.NDArray[np.int64]:
    """Return the time that kernels need for their bytes at the bandwidth of the GPU, -1 if it is unknown.

    Args:
        capture: with names and grids.
        gpu: of the rank.
        op: of each kernel.
        name: of each kernel, its number.
    """
    unknown = np.full(op.size, -1, np.int64)
    bandwidth = None if gpu is None else find_bandwidth(gpu)
    if gpu is None or not bandwidth:
        return unknown
    block_bytes = np.append(_BLOCK_BYTES.of(capture.names["text"]), 0)[name]
    if not block_bytes.any():
        return unknown
    place = find_places(op, capture.kernels["op"].to_numpy())
    blocks = np.append(as_integers(capture.kernels["blocks"], 0), 0)[place].astype(np.int64)
    moved = blocks * block_bytes
    cached = _OF_CACHES * _L2_BYTES.get(gpu.architecture or "", _LARGEST_L2_BYTES)
    return np.where(moved > cached, np.rint(moved * 1e9 / bandwidth).astype(np.int64), unknown)
