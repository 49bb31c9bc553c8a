"""How many blocks of a kernel fit a multiprocessor, and what the last wave of a grid leaves idle.

The limits are those of "Technical Specifications per Compute Capability" in NVIDIA's CUDA C++ Programming
Guide; how registers and shared memory are handed out follows `cuda_occupancy.h` of the CUDA toolkit:
registers to warps by 256, the register file in four parts, shared memory by 128 bytes (256 before
compute capability 8.0) with 1 KiB a block reserved since 8.0. Clusters, carve-outs of shared memory and
barriers are left out, so the occupancy is an upper bound.
"""

from dataclasses import dataclass

import polars as pl

_WARP = 32
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


def with_occupancy(shapes: pl.DataFrame, architecture: str | None, sm_count: int | None) -> pl.DataFrame:
    """Launch shapes (`KERNELS`) with the columns `occupancy`, `waves` and `tail`.

    `occupancy` is the share of its warps that a multiprocessor can hold of the kernel; `waves` is how often
    its grid fills the GPU; `tail` is the share of the last wave's and all other waves' places that stay
    empty, 0 for a grid that fits at once. Null where a fact is missing or the kernel cannot run so.
    """
    limits = MULTIPROCESSORS.get(architecture or "")
    if limits is None:
        null = pl.lit(None, pl.Float64)
        return shapes.with_columns(occupancy=null, waves=null, tail=null)
    warps = _parts_of("threads", _WARP)
    warp_registers = _parts_of(pl.col("registers") * _WARP, _REGISTER_UNIT) * _REGISTER_UNIT
    block_bytes = (
        _parts_of(pl.col("shared_bytes") + limits.reserved_bytes, limits.shared_unit_bytes)
        * limits.shared_unit_bytes
    )
    known = pl.all_horizontal(pl.col("threads", "registers", "shared_bytes").is_not_null())
    resident = pl.min_horizontal(
        pl.lit(limits.blocks, pl.Int64),
        limits.warps // warps,
        _REGISTERS // _PARTS // warp_registers.clip(lower_bound=1) * _PARTS // warps,
        limits.shared_bytes // block_bytes.clip(lower_bound=1),
    )
    fits = shapes.with_columns(resident=pl.when(known & (pl.col("threads") > 0)).then(resident))
    fits = fits.with_columns(resident=pl.when(pl.col("resident") > 0).then("resident"))
    waves = pl.col("blocks") / (pl.col("resident") * sm_count) if sm_count else pl.lit(None, pl.Float64)
    return fits.with_columns(
        occupancy=pl.col("resident") * warps / limits.warps, waves=waves.cast(pl.Float64)
    ).select(
        *shapes.columns,
        "occupancy",
        "waves",
        tail=pl.when(pl.col("waves") > 1)
        .then(1 - pl.col("waves") / pl.col("waves").ceil())
        .otherwise(pl.when(pl.col("waves").is_not_null()).then(0.0)),
    )


def _parts_of(quantity: str | pl.Expr, unit: int) -> pl.Expr:
    """How many units a quantity takes up, in whole ones."""
    column = pl.col(quantity) if isinstance(quantity, str) else quantity
    return (column + unit - 1) // unit
