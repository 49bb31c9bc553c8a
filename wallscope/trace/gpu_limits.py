"""How many blocks of a kernel fit on a multiprocessor of a GPU.

The limits are those of "Technical Specifications per Compute Capability" in NVIDIA's CUDA C++ Programming
Guide. The allocation of registers and shared memory follows `cuda_occupancy.h` of the CUDA toolkit. Registers
are allocated to warps in units of 256, from a register file in four parts. Shared memory is allocated in
units of 128 bytes (256 before compute capability 8.0), with 1 KiB per block reserved since 8.0. Clusters,
carve-outs of shared memory and barriers are left out, so the occupancy is an upper bound.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Rows, as_integers
from wallscope.records import dataclass

Shares = npt.NDArray[np.float64]

_UNKNOWN = np.iinfo(np.int64).min
_WARP = 32
_MOST_WARPS = 64  # of a multiprocessor of any architecture
_ROUNDED = 0.005  # of an occupancy in whole percent
_REGISTERS = 65_536
_REGISTER_UNIT = 256
_PARTS = 4


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """What one multiprocessor holds at most; `reserved_bytes` of shared memory go to the system, a block."""

    warps: int
    blocks: int
    shared_bytes: int
    shared_unit_bytes: int
    reserved_bytes: int


def _since_ampere(warps: int, blocks: int, shared_kib: int) -> Multiprocessor:
    return Multiprocessor(warps, blocks, shared_kib << 10, shared_unit_bytes=128, reserved_bytes=1024)


MULTIPROCESSORS = {
    "sm_70": Multiprocessor(64, 32, 96 << 10, shared_unit_bytes=256, reserved_bytes=0),
    "sm_75": Multiprocessor(32, 16, 64 << 10, shared_unit_bytes=256, reserved_bytes=0),
    "sm_80": _since_ampere(64, 32, 164),
    "sm_86": _since_ampere(48, 16, 100),
    "sm_87": _since_ampere(48, 16, 164),
    "sm_89": _since_ampere(48, 24, 100),
    "sm_90": _since_ampere(64, 32, 228),
    "sm_100": _since_ampere(64, 32, 228),
    "sm_103": _since_ampere(64, 32, 228),
}
"""By the name of the architecture; others are unknown."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How launch shapes fit, an entry each; not a number where a fact is missing or a kernel cannot run so.

    Attributes:
        occupancy: share of its warps that a multiprocessor can hold of the kernel.
        waves: how often the grid fills the GPU.
        tail: share of the places of all waves that stay empty in the last, 0 for a grid that fits at once.
    """

    occupancy: Shares
    waves: Shares
    tail: Shares


def estimate_occupancy(shapes: pl.DataFrame, architecture: str | None, sm_count: int | None) -> Occupancy:
    """How launch shapes (`KERNELS`) fit a GPU of some multiprocessors."""
    limits = MULTIPROCESSORS.get(architecture or "")
    if limits is None:
        return Occupancy(*(np.full(len(shapes), np.nan) for _ in range(3)))
    threads, registers, shared_bytes, blocks = (
        as_integers(shapes[name], _UNKNOWN).astype(np.int64)
        for name in ("threads", "registers", "shared_bytes", "blocks")
    )
    can_run = (threads > 0) & (registers != _UNKNOWN) & (shared_bytes != _UNKNOWN)
    threads, registers, shared_bytes = (
        np.where(can_run, values, 1) for values in (threads, registers, shared_bytes)
    )
    warps = _parts_of(threads, _WARP)
    warp_registers = _parts_of(registers * _WARP, _REGISTER_UNIT) * _REGISTER_UNIT
    unit_bytes = limits.shared_unit_bytes
    block_bytes = _parts_of(shared_bytes + limits.reserved_bytes, unit_bytes) * unit_bytes
    resident = np.minimum.reduce(
        [
            np.full(len(shapes), limits.blocks),
            limits.warps // warps,
            _REGISTERS // _PARTS // warp_registers.clip(1) * _PARTS // warps,
            limits.shared_bytes // block_bytes.clip(1),
        ]
    )
    fits = np.where(can_run & (resident > 0), resident, np.nan)
    waves = np.where(blocks == _UNKNOWN, np.nan, blocks) / (fits * (sm_count or np.nan))
    tail = np.where(
        waves > 1, 1 - waves / np.ceil(np.maximum(waves, 1)), np.where(np.isnan(waves), np.nan, 0.0)
    )
    return Occupancy(fits * warps / limits.warps, waves, tail)


def find_theoretical(shapes: pl.DataFrame, blocks_per_sm: Shares, achieved: Shares) -> Shares:
    """Return the occupancy that a profiler estimated, where the grid did not limit it; else not a number.

    With fewer blocks than fit, the estimate counts the blocks that there are. `shapes` follow `KERNELS`.
    """
    threads = as_integers(shapes["threads"], 0)
    most_resident = (achieved + _ROUNDED) * (_MOST_WARPS * _WARP) / np.maximum(threads, 1)
    found: Shares = np.where((threads > 0) & (blocks_per_sm > most_resident), achieved, np.nan)
    return found


def _parts_of(quantity: Rows, unit: int) -> Rows:
    """How many units a quantity takes up, in whole ones."""
    return (quantity + unit - 1) // unit
