"""Memory of a rank: what was copied and filled, from where to where, and what of it stood alone."""

import polars as pl

from wallscope.model.analysis import CopyWork, Memory
from wallscope.model.kinds import CopyDirection, MemoryKind, OperationClass
from wallscope.timeline.spans import union
from wallscope.walls.budget import spans_of
from wallscope.walls.typical import TypicalWork

_HOST_END = {CopyDirection.HOST_TO_DEVICE: "source", CopyDirection.DEVICE_TO_HOST: "destination"}
_IS_PINNED = {MemoryKind.PINNED: True, MemoryKind.PAGEABLE: False}


def memory(work: TypicalWork, copies: pl.DataFrame, capacity_bytes: int | None) -> Memory:
    """Copies and fills (`COPIES`) in the typical step of one rank, by direction and host memory."""
    is_copy = pl.col("class") == OperationClass.COPY
    moved = work.operations.filter(is_copy).join(copies, on="op", how="left")
    working = union(spans_of(work.operations.filter(~is_copy)))
    worked_ns = work.all_covered_ns(working)
    pinned = moved.with_columns(pinned=_pinned())
    listed = [
        CopyWork(
            direction=CopyDirection(direction),
            count=work.mean(int(group["begins"].sum())),
            bytes=work.mean(int(group.filter("begins")["bytes"].sum())),
            work_ns=work.mean(int(group["inside_ns"].sum())),
            exposed_ns=work.mean(work.all_covered_ns(union(working, spans_of(group))) - worked_ns),
            pinned=is_pinned,
        )
        for (direction, is_pinned), group in pinned.group_by("direction", "pinned")
    ]
    return Memory(
        peak_bytes=None,
        capacity_bytes=capacity_bytes,
        allocator_calls=None,
        copies=tuple(
            sorted(
                listed,
                key=lambda entry: (-entry.exposed_ns, -entry.work_ns, entry.direction, str(entry.pinned)),
            )
        ),
    )


def _pinned() -> pl.Expr:
    """Whether the host's end of a copy is pinned; null where there is none or it is not told."""
    host_end = pl.coalesce(
        pl.when(pl.col("direction") == direction).then(pl.col(column))
        for direction, column in _HOST_END.items()
    )
    return host_end.cast(pl.String).replace_strict(
        {str(kind): pinned for kind, pinned in _IS_PINNED.items()}, default=None, return_dtype=pl.Boolean
    )
