"""What GPUs can do at most with dense matrices, by the names that exports give them.

The numbers are those of NVIDIA's data sheets without structured sparsity (where a sheet states sparse ones
alone: half of them), for boards at their full power limit. Names are compared whole: a MIG slice or a
variant that is not listed has no known peak.
"""

from wallscope.model.kinds import Precision
from wallscope.model.throughput import Peak

_TERA = 1e12
_SOURCES = {
    "A100": "NVIDIA A100 Tensor Core GPU data sheet",
    "H100": "NVIDIA H100 Tensor Core GPU data sheet",
    "H200": "NVIDIA H200 Tensor Core GPU data sheet",
    "B200": "NVIDIA HGX B200 data sheet",
    "GB200": "NVIDIA GB200 NVL72 data sheet",
}
_TENSOR: dict[str, dict[str, float]] = {
    "A100": {"tf32": 156, "bf16": 312, "int8": 624},
    "H100": {"tf32": 494.7, "bf16": 989.4, "fp8": 1_978.9, "int8": 1_978.9},
    "H100 PCIe": {"tf32": 378, "bf16": 756, "fp8": 1_513, "int8": 1_513},
    "H200": {"tf32": 494.7, "bf16": 989.4, "fp8": 1_978.9, "int8": 1_978.9},
    "B200": {"tf32": 1_125, "bf16": 2_250, "fp8": 4_500, "nvfp4": 9_000},
    "GB200": {"tf32": 1_250, "bf16": 2_500, "fp8": 5_000, "nvfp4": 10_000},
}
_BOARDS = {
    "NVIDIA A100-SXM4-40GB": "A100",
    "NVIDIA A100-SXM4-80GB": "A100",
    "NVIDIA A100-PCIE-40GB": "A100",
    "NVIDIA A100 80GB PCIe": "A100",
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H200": "H200",
    "NVIDIA B200": "B200",
    "NVIDIA GB200": "GB200",
}
_AS_FAST_AS = {Precision.FP16: Precision.BF16, Precision.MXFP8: Precision.FP8}


def peak(gpu: str | None, precision: Precision) -> Peak | None:
    """The peak of a GPU by its name, `None` where it or the precision is not listed.

    >>> peak("NVIDIA H100 80GB HBM3", Precision.BF16).flops_per_s
    989400000000000.0
    >>> peak("NVIDIA H100 80GB HBM3 MIG 1g.10gb", Precision.BF16)
    """
    board = _BOARDS.get(gpu or "")
    if board is None:
        return None
    found = _TENSOR[board].get(_AS_FAST_AS.get(precision, precision))
    return None if found is None else Peak(found * _TERA, precision, _SOURCES[board.split()[0]])
