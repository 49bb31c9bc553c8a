"""Schemas of the frames that cross a boundary.

Times are int64 nanoseconds of session time, spans are half-open, null is unknown, ids are dense
and count from 0.
"""

import polars as pl

from wallscope.model.kinds import (
    Backend,
    Collective,
    ComputeCategory,
    CopyDirection,
    MemoryKind,
    OperationClass,
    OperationKind,
)

KIND = pl.Enum(OperationKind)
CLASS = pl.Enum(OperationClass)
CATEGORY = pl.Enum(
    list(
        dict.fromkeys([*map(str, ComputeCategory), *map(str, Collective), *map(str, CopyDirection), "graph"])
    )
)
BACKEND = pl.Enum(Backend)
DIRECTION = pl.Enum(CopyDirection)
MEMORY = pl.Enum(MemoryKind)

NAMES = pl.Schema({"name": pl.UInt32(), "text": pl.String()})
"""Names of kernels, as the export spells them."""

RANKS = pl.Schema(
    {
        "rank_id": pl.UInt16(),
        "rank": pl.Int32(),  # number of the rank in the job; null where nothing tells
        "rank_source": pl.String(),  # what told it
        "pid": pl.Int32(),  # null where the export names no processes
        "device": pl.Int32(),  # CUDA ordinal inside the process
        "gpu": pl.Int32(),  # Nsight's id of the GPU; null where the export does not tell
    }
)
"""One row for each (process, device) pair that ran device operations."""

OPERATIONS = pl.Schema(
    {
        "op": pl.UInt32(),
        "rank_id": pl.UInt16(),
        "stream": pl.UInt32(),  # dense over (rank, context, stream id)
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "kind": KIND,
        "name": pl.UInt32(),  # kernels alone
        "graph_node": pl.Int64(),  # null outside CUDA graphs traced by node
        "bytes": pl.Int64(),  # copies and fills alone
    }
)
"""Device operations, sorted by rank, start and row."""

COPIES = pl.Schema({"op": pl.UInt32(), "direction": DIRECTION, "source": MEMORY, "destination": MEMORY})
"""The operations that are copies or fills."""

KERNEL_KINDS = pl.Schema(
    {"name": pl.UInt32(), "class": CLASS, "category": CATEGORY, "backend": BACKEND, "matched": pl.Boolean()}
)
"""Class and category of each kernel name; `matched` is false where no pattern knew it."""

CLASSIFIED = pl.Schema(
    {**OPERATIONS, "class": CLASS, "category": CATEGORY, "backend": BACKEND, "matched": pl.Boolean()}
)
"""Operations with their class."""

WINDOWS = pl.Schema(
    {"rank_id": pl.UInt16(), "step": pl.UInt32(), "start_ns": pl.Int64(), "end_ns": pl.Int64()}
)
"""The windows of each rank, in order of time; windows of one rank are disjoint."""

BUDGETS = pl.Schema(
    {
        **WINDOWS,
        "compute_ns": pl.Int64(),
        "opaque_graph_ns": pl.Int64(),
        "exposed_communication_ns": pl.Int64(),
        "exposed_copy_ns": pl.Int64(),
        "idle_ns": pl.Int64(),
    }
)
"""Device budget of each window; the five parts sum to `end_ns - start_ns`."""

BUDGET_PARTS = ("compute_ns", "opaque_graph_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
