"""Gaps and moments as people check them in Nsight's timeline: times in seconds of the session."""

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from wallscope import units
from wallscope.model.kinds import Wall
from wallscope.model.proof import GAPS, Gap, Link, Moment
from wallscope.render.colours import WALL_COLOURS
from wallscope.render.foreign import visible

_LONGEST = 100
_MOST_LINKS = 12


def gaps(found: Sequence[Gap]) -> RenderableType:
    """The gaps of each rank, the longest first, each with what ended it and its chain."""
    blocks: list[RenderableType] = []
    rank: object = None
    for gap in found:
        who = _who(gap.row)
        if who != rank:
            blocks += [Text(), Text(who, style="bold")] if blocks else [Text(who, style="bold")]
            rank = who
        blocks.append(_gap(gap))
    return Group(*blocks) if blocks else Text("no gap: compute or opaque graphs run throughout the steps")


def _gap(gap: Gap) -> RenderableType:
    row = gap.row
    owner = f"{units.duration(row['cause_ns'])} {row['cause']}"
    head = Text(f"{units.seconds(row['start_ns'])} s  {units.duration(row['duration_ns'])}  ")
    head.append(owner, style=WALL_COLOURS[Wall(row["cause"].split("/")[0])])
    lines = [Text(f"step {row['step']}, {_ended_by(row)}", style="dim")]
    if row["path"]:
        lines.append(Text(f"in {visible(row['path'], most=_LONGEST)}", style="dim"))
    return Group(head, Padding(Group(*lines, _chain(gap.links)), (0, 0, 0, 2)))


def _ended_by(row: dict[str, Any]) -> str:
    if row["ended_by"] is None:
        return "ended by the end of the step"
    ended = f"ended by {visible(row['ended_by'], most=60)} on stream {_known(row['stream'])}"
    if row["call"] is None:
        return f"{ended}, issued before the capture"
    at = f"{units.seconds(row['call_start_ns'])} s, thread {_known(row['tid'])}"
    return f"{ended}, issued by {row['call']} at {at}"


def _chain(links: Sequence[Link], at_ns: int | None = None) -> Table:
    """A line a link; the one that holds a moment is marked."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    here = next((row for row, link in enumerate(links) if at_ns is not None and at_ns < link.end_ns), 0)
    first = max(min(here - _MOST_LINKS // 2, len(links) - _MOST_LINKS), 0)
    if first:
        table.add_row("", "", Text(f"{first} before", style="dim"), "")
    for link in links[first : first + _MOST_LINKS]:
        slack = "" if link.slack_ns is None else f", slack {units.duration(link.slack_ns)}"
        is_here = at_ns is not None and link.start_ns <= at_ns < link.end_ns
        table.add_row(
            units.seconds(link.start_ns),
            units.duration(link.end_ns - link.start_ns),
            Text(link.cause, style=WALL_COLOURS[Wall(link.cause.split("/")[0])]),
            Text(f"{visible(link.what, most=60)}{slack}{' ◀' if is_here else ''}"),
        )
    if len(links) > first + _MOST_LINKS:
        table.add_row("", "", Text(f"{len(links) - first - _MOST_LINKS} behind", style="dim"), "")
    return table


def moments(found: Sequence[Moment], at_ns: int) -> RenderableType:
    """What every rank did at one moment, and the chain that the moment is part of."""
    return Group(*(line for moment in found for line in _moment(moment, at_ns)))


def _moment(moment: Moment, at_ns: int) -> Iterator[RenderableType]:
    yield Text(_who(moment.rank), style="bold")
    row = moment.row
    if row is None:
        yield Text(f"  {units.seconds(at_ns)} s lies in none of its steps")
        return
    state = str(row["state"]).replace("_", " ")
    yield Text(f"  step {row['step']}, {state}: {row['cause']}", style=WALL_COLOURS[Wall(row["wall"])])
    if row["path"]:
        yield Text(f"  in {visible(row['path'], most=_LONGEST)}", style="dim")
    yield Padding(_chain(moment.links, at_ns), (0, 0, 0, 2))


def frame(found: Sequence[Gap]) -> pl.DataFrame:
    """The rows of the gaps (`GAPS`), for CSV and JSON."""
    return pl.DataFrame([gap.row for gap in found], schema=GAPS, orient="row")


def _who(row: dict[str, Any]) -> str:
    place = f"process {_known(row['pid'])}, device {_known(row['device'])}"
    return place if row["rank"] is None else f"rank {row['rank']} ({place})"


def _known(value: object) -> str:
    return "unknown" if value is None else str(value)
