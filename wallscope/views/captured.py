"""The tables of a capture as it was read, with names and CUDA's numbers in place of ours."""

import polars as pl

from wallscope.model.capture import Capture
from wallscope.model.capture_columns import CAPTURE_TABLES
from wallscope.model.schemas import AUTOGRAD_RANGES, KERNEL_FLOPS, KERNEL_OCCUPANCY

_DECLARED = {table.name: table for table in CAPTURE_TABLES}


def frame_capture(capture: Capture, name: str) -> pl.DataFrame:
    """Return one of `CAPTURE_TABLES`, with the columns and types of its declaration."""
    match name:
        case "ranks":
            frame = capture.ranks
        case "operations":
            frame = _frame_operations(capture)
        case "threads":
            frame = capture.threads
        case "calls":
            frame = _spell_names(capture.calls, capture.call_names)
        case "ranges":
            frame = _join(
                _spell_names(capture.ranges, capture.range_names), capture.autograd_ranges, AUTOGRAD_RANGES
            )
        case "syncs":
            frame = capture.syncs
        case "events":
            frame = capture.events
        case _:
            frame = capture.collective_calls
    schema = _DECLARED[name].schema
    return frame.select(schema.names()).cast(schema)


def _frame_operations(capture: Capture) -> pl.DataFrame:
    streams = capture.streams.select("stream", "context", "number")
    frame = (
        _spell_names(capture.operations, capture.names)
        .join(streams, on="stream", how="left", maintain_order="left")
        .with_columns(stream="number")
        .join(capture.copies, on="op", how="left", maintain_order="left")
        .join(capture.kernels, on="op", how="left", maintain_order="left")
    )
    frame = _join(frame, capture.kernel_occupancy, KERNEL_OCCUPANCY).rename({"achieved": "occupancy"})
    return _join(frame, capture.kernel_flops, KERNEL_FLOPS)


def _join(rows: pl.DataFrame, told: pl.DataFrame | None, schema: pl.Schema) -> pl.DataFrame:
    """Add what the profiler may have recorded, by the first column of the schema; null if it did not."""
    return rows.join(
        schema.to_frame() if told is None else told, on=schema.names()[0], how="left", maintain_order="left"
    )


def _spell_names(rows: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """The rows with texts in place of the numbers of names."""
    spelled = rows.join(names, on="name", how="left", maintain_order="left")
    return spelled.with_columns(name="text").drop("text")
