"""The tables of a capture as read, before any analysis: columns, types, meanings.

Times are integer nanoseconds of session time, spans are half-open, null is unknown or does not apply.
"""

import polars as pl

from wallscope.model.tables import Table, find_table_columns

_I32, _I64, _REAL, _TEXT = pl.Int32(), pl.Int64(), pl.Float64(), pl.String()
_SPAN = find_table_columns(_I64, start_ns="begin", end_ns="end")
_THREAD = find_table_columns(_I64, thread="number of the thread, as in `threads`")
_CALL = find_table_columns(_I64, call="number of the CUDA call, as in `calls`; -1 without one")
_EVENT = (
    *find_table_columns(_I64, context="CUDA's number of the context", stream="CUDA's number of the stream"),
    *find_table_columns(_I64, event="number of the CUDA event", event_sync="which record of the event"),
)

CAPTURE_TABLES = (
    Table(
        "ranks",
        "a process on a device",
        (
            *find_table_columns(_I64, rank_id="number of the row"),
            *find_table_columns(_I32, rank="number of the rank in the job"),
            *find_table_columns(_TEXT, rank_source="source of the rank number"),
            *find_table_columns(_I32, pid="its process", device="CUDA ordinal inside the process"),
        ),
    ),
    Table(
        "operations",
        "a kernel, copy, memset or graph",
        (
            *find_table_columns(_I64, op="number of the operation", rank_id="as in `ranks`"),
            *find_table_columns(_I64, context="CUDA's number of the context", stream="of the stream"),
            *_SPAN,
            *find_table_columns(
                _TEXT, kind="kernel, copy, fill or graph", name="the kernel name, as spelled"
            ),
            *_CALL,
            *find_table_columns(_I64, graph_node="node of a CUDA graph", bytes="of copies and memsets"),
            *find_table_columns(_TEXT, direction="of a copy", source="memory", destination="memory"),
            *find_table_columns(_I64, blocks="of the grid", threads="of a block", registers="of a thread"),
            *find_table_columns(_I64, shared_bytes="shared memory of a block"),
            *find_table_columns(_REAL, blocks_per_sm="as recorded", occupancy="achieved, as recorded"),
            *find_table_columns(_I64, operator="number of its operator", flops="of all its kernels"),
        ),
    ),
    Table(
        "threads",
        "a host thread",
        (
            *find_table_columns(_I64, thread="number of the thread", process="number of the process"),
            *find_table_columns(_I32, pid="its process", tid="of the operating system"),
            *find_table_columns(_TEXT, role="name given by a known library"),
        ),
    ),
    Table(
        "calls",
        "a CUDA call",
        (
            *find_table_columns(_I64, call="number of the call"),
            *_THREAD,
            *_SPAN,
            *find_table_columns(_TEXT, name="the function, in one spelling", role="purpose of the call"),
            *find_table_columns(_I64, correlation="unique inside a process"),
        ),
    ),
    Table(
        "ranges",
        "an NVTX range, annotation or operator",
        (
            *find_table_columns(_I64, range="number of the range"),
            *_THREAD,
            *_SPAN,
            *find_table_columns(_TEXT, name="as spelled"),
            *find_table_columns(_I64, domain="NVTX domain; of PyTorch 0 annotations, 1 operators"),
            *find_table_columns(_I64, forward="range that it is the backward of"),
        ),
    ),
    Table(
        "syncs",
        "a wait of a thread or stream",
        (*_THREAD, *_CALL, *find_table_columns(_TEXT, kind="what the wait is for"), *_SPAN, *_EVENT),
    ),
    Table("events", "a record of a CUDA event into a stream", (*_THREAD, *_CALL, *_EVENT)),
    Table(
        "collective_calls",
        "an NCCL call, or a kernel with its collective",
        (
            *_THREAD,
            *_SPAN,
            *find_table_columns(_TEXT, operation="function of NCCL"),
            *find_table_columns(pl.UInt64(), communicator="hash that its ranks share"),
            *find_table_columns(_I64, bytes="as NCCL counts them", participants="ranks", peer="other rank"),
            *find_table_columns(_I64, rank="number inside the communicator"),
        ),
    ),
)
"""The tables of `wallscope convert`."""
