"""Copies that hold the thread which asks for them until they are through.

Whether a copy call blocks depends on its name and on the memory at both ends, as CUDA documents it:

- To pageable host memory, and from pinned memory without `Async`: the copy has ended when its call returns.
- From pageable memory: the call returns when the last bytes are staged. A large copy blocks its caller for
  nearly all of its time, a small one not at all.
- With `Async`, between pinned memory and the device, or on the device: the call does not block.
- Others, such as on the device without `Async`, or with unknown memory: the call blocked if the copy ended
  before it returned.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.columns import Codes, Flags, Rows, as_integers, encode_member
from wallscope.model.capture import Capture
from wallscope.model.enums import CallRole, CopyDirection, MemoryKind, OperationKind
from wallscope.thresholds.dependencies import BLOCKING_COPY_INSIDE_SHARE, BLOCKING_COPY_LATE_NS
from wallscope.trace.streams import StreamOrder, Tail
from wallscope.trace.thread_timeline import mark_calls

_ASYNCHRONOUS = r"Async"
_TO_HOST = (CopyDirection.DEVICE_TO_HOST, CopyDirection.HOST_TO_HOST)
_LASTING = (MemoryKind.PINNED, MemoryKind.DEVICE, MemoryKind.ARRAY, MemoryKind.DEVICE_STATIC)


@dataclass(frozen=True, slots=True)
class _Promises:
    """Whether each copy has ended when its call returns, is staged then, or is known only by its end."""

    is_through: Flags
    is_staged: Flags
    is_told_by_end: Flags


def find_blocking_copies(capture: Capture, order: StreamOrder) -> dict[int, Tail]:
    """Return what calls waited for that were held by a copy of theirs, of several by the one that ended last.

    That is the copy. One that begins after its call returned, as clocks differ, can't be followed back to
    the call: what it waited for itself stands for it.
    """
    op, call = _list_copies(capture)
    start_ns, end_ns = (capture.operations[name].to_numpy()[op] for name in ("start_ns", "end_ns"))
    returned_ns = capture.calls["end_ns"].to_numpy()[call]
    promises = _tell_promises(capture, op, call)
    is_inside = returned_ns - start_ns >= BLOCKING_COPY_INSIDE_SHARE * (end_ns - start_ns)
    is_held = promises.is_through & (end_ns <= returned_ns + BLOCKING_COPY_LATE_NS)
    is_held |= promises.is_staged & (start_ns < returned_ns) & is_inside
    is_held |= promises.is_told_by_end & (end_ns <= returned_ns)
    held = np.flatnonzero(is_held)
    held = held[np.lexsort((end_ns[held], call[held]))]
    last = held[np.diff(call[held], append=-1) != 0]
    is_early = (start_ns < returned_ns) | (end_ns <= returned_ns)
    columns = (column[last].tolist() for column in (call, op, is_early))
    return {
        one: (copy,) if early else _list_before(copy, order)
        for one, copy, early in zip(*columns, strict=True)
    }


def _list_copies(capture: Capture) -> tuple[Rows, Rows]:
    """The copies that calls for copies issued, and those calls, by number."""
    operations, call = capture.operations, capture.operations["call"].to_numpy()
    is_copy = as_integers(operations["kind"]) == encode_member(OperationKind.COPY)
    rows = np.flatnonzero(is_copy & (call >= 0))
    is_copying = as_integers(capture.calls["role"]) == encode_member(CallRole.COPY)
    rows = rows[is_copying[call[rows]]]
    return rows, call[rows].astype(np.int64)


def _tell_promises(capture: Capture, op: Rows, call: Rows) -> _Promises:
    """Return the blocking behavior of copy calls, by their names and the memory of the copies."""
    waits = ~mark_calls(capture, _ASYNCHRONOUS)[call]
    told = pl.DataFrame({"op": op}, schema={"op": capture.copies.schema["op"]}).join(
        capture.copies, on="op", how="left", maintain_order="left"
    )
    direction, source, destination = (as_integers(told[name]) for name in told.columns[1:])
    to_host, to_device = _is_among(direction, _TO_HOST), _is_among(direction, (CopyDirection.HOST_TO_DEVICE,))
    is_pageable = [_is_among(end, (MemoryKind.PAGEABLE,)) for end in (source, destination)]
    is_free = ~waits & _is_among(source, _LASTING) & _is_among(destination, _LASTING)
    is_through = to_host & (waits | is_pageable[1])
    is_through |= to_device & waits & _is_among(source, (MemoryKind.PINNED,))
    is_staged = to_device & ~is_through & (waits | is_pageable[0])
    return _Promises(is_through, is_staged, ~is_free)


def _is_among(codes: Codes, members: tuple[CopyDirection, ...] | tuple[MemoryKind, ...]) -> Flags:
    return np.isin(codes, [encode_member(member) for member in members])


def _list_before(op: int, order: StreamOrder) -> Tail:
    """What an operation waited for, the one before it in its stream first."""
    before = int(order.before[op])
    return (*((before,) if before >= 0 else ()), *(order.producers(op) - {before}))
