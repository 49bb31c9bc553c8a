"""The host in depth."""

from wallscope import units
from wallscope.model.analysis import Rank
from wallscope.render.blocks import Block, Column, Grid, Lines, cells, text
from wallscope.render.host import host_lines, how_often

_MOST_ROWS = 30


def host(rank: Rank, whole: str) -> tuple[Block, ...]:
    """Launches, calls that emptied the queue, kernels that waited without a reason."""
    told = rank.host_details
    if told is None:
        return (Lines(("No call of the host is known: what it did can not be told.",)),)
    columns = (
        text("call"),
        text("in", "the commonest path of ranges around it"),
        Column("times", f"calls that end in the {whole}"),
        Column("waited", "how long the host stood in them: no cost by itself, the device worked"),
        Column("cost", "what the host needed to refill the queue, while the device had nothing to do"),
    )
    rows = tuple(
        cells(
            call.name,
            call.path or "",
            how_often(call),
            units.milliseconds(call.waited_ns),
            units.milliseconds(call.drained_ns),
        )
        for call in told.blocking_calls[:_MOST_ROWS]
    )
    lines = tuple(host_lines(told, rank.typical.step_ns))
    found: list[Block] = [Lines(lines)] if lines else []
    if rows:
        caption = "Calls that waited until the device had nothing left to do"
        found.append(Grid(caption, columns, rows, is_wordy=True))
    return tuple(found)
