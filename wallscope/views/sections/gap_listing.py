"""Gaps and moments on a terminal: like gaps once, each with its end, its place in Nsight and its chain."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import polars as pl

from wallscope import units
from wallscope.errors import SelectionError
from wallscope.model.cause_catalogue import find_wall
from wallscope.model.enums import Wall
from wallscope.model.report import GAPS, Gap, Link, Moment
from wallscope.model.section import (
    Block,
    Cell,
    Grid,
    Line,
    Lines,
    Section,
    Span,
    append_row,
    on_terminal,
    tabulate,
)
from wallscope.render.texts import shorten_name, shorten_range_path
from wallscope.views.sections.steps import or_unknown

_MOST_LINKS, _MOST_STEPS, _WIDE = 12, 8, 110
_DRAINED = "host/queue-drained/"


def build_gaps(found: Sequence[Gap]) -> Iterator[Section]:
    """Make what a terminal shows of gaps: of each rank the longest first, like ones of other steps once."""
    if not found:
        nothing = Lines(("No gap: compute kernels or opaque graphs run throughout the steps.",))
        yield Section("gaps", "", "", (nothing,))
    for who, gaps in groupby(found, key=lambda gap: _name_rank(gap.row)):
        groups: dict[tuple[object, ...], list[Gap]] = {}
        for gap in gaps:
            groups.setdefault(_find_kind(gap), []).append(gap)
        blocks = tuple(map(_describe_gaps, groups.values()))
        yield Section("rank", "", "", (Lines(((Span(who, "strong"),),)), *blocks))


def _find_kind(gap: Gap) -> tuple[object, ...]:
    """Return what like gaps have in common: cause, what ends them, and where it was issued."""
    row = gap.row
    ended = None if row["ended_by"] is None else shorten_name(row["ended_by"])
    return row["cause"], ended, row["call"], row["path"]


def _describe_gaps(gaps: Sequence[Gap]) -> Section:
    """Describe the longest of like gaps, and say in which steps the others are."""
    longest, *others = sorted(gaps, key=lambda gap: -gap.row["duration_ns"])
    row = longest.row
    owner = Span(f"{row['cause']} {units.duration(row['cause_ns'])}", find_wall(row["cause"]))
    head: Line = (f"{units.seconds(row['start_ns'])} s  {units.duration(row['duration_ns'])}  ", owner)
    lines = [f"step {row['step']}, {_describe_end(row)}"]
    lines += [f"in {shorten_range_path(row['path'])}"] if row["path"] else []
    if others:
        lines.append(_list_others(others))
    return Section("gap", head, "", (Lines(tuple(lines), "dim"), _tabulate_chain(longest.links)))


def _list_others(others: Sequence[Gap]) -> str:
    """Say in how many other steps a like gap is, and how long these are."""
    lengths = [gap.row["duration_ns"] for gap in others]
    steps = list(
        dict.fromkeys(str(gap.row["step"]) for gap in sorted(others, key=lambda one: one.row["step"]))
    )
    more = f" and {len(steps) - _MOST_STEPS} more" if len(steps) > _MOST_STEPS else ""
    low, high = units.duration(min(lengths)), units.duration(max(lengths))
    span = low if low == high else f"{low} to {high}"
    where = f"step{'s' if len(steps) > 1 else ''} {', '.join(steps[:_MOST_STEPS])}{more}"
    return f"{units.plural(len(others), 'similar gap')} ({span}) in {where}"


def _describe_end(row: dict[str, Any]) -> str:
    if row["ended_by"] is None:
        return "ended by the end of the step"
    ended = f"ended by {shorten_name(row['ended_by'])} on stream {or_unknown(row['stream'])}"
    if row["call"] is None:
        return f"{ended}, issued before the capture"
    at = f"{units.seconds(row['call_start_ns'])} s, thread {or_unknown(row['tid'])}"
    return f"{ended}, issued by {row['call']} at {at}"


def _tabulate_chain(links: Sequence[Link], at_ns: int | None = None) -> Grid:
    """Make a row for each link; the one that holds a moment is marked."""

    def describe(link: Link) -> str:
        is_here = at_ns is not None and link.start_ns <= at_ns < link.end_ns
        return f"{'◀ ' if is_here else ''}{_name_link(link)}"

    def shorten(link: Link) -> Cell:
        cause = _DRAINED.rstrip("/") if link.cause.startswith(_DRAINED) else link.cause
        return Cell(cause, find_wall(link.cause))

    columns = (
        on_terminal("start", "", "plain", "", lambda link: units.seconds(link.start_ns)),
        on_terminal("length", "", "duration", "", lambda link: link.end_ns - link.start_ns),
        on_terminal("cause", "cause", value=shorten),
        on_terminal("what", "", value=describe, wrap="cut"),
        on_terminal("slack_ns", "slack", "duration", none="", widths=(_WIDE, 1 << 30)),
    )
    here = next((row for row, link in enumerate(links) if at_ns is not None and at_ns < link.end_ns), 0)
    first = max(min(here - _MOST_LINKS // 2, len(links) - _MOST_LINKS), 0)
    behind = len(links) - first - _MOST_LINKS
    table = tabulate("", columns, links[first : first + _MOST_LINKS], has_header=False)
    if first:
        before = append_row(Grid("", columns, ()), {"cause": Cell(f"{first} earlier", tone="dim")})
        table = Grid("", columns, (*before.rows, *table.rows), has_header=False)
    return append_row(table, {"cause": Cell(f"{behind} later", tone="dim")}) if behind > 0 else table


def _name_link(link: Link) -> str:
    """Name the operation, call or thread of a link; of a drained queue also the call that drained it."""
    what, where, path = link.what.partition(" in ")
    name = f"{what} in {shorten_range_path(path)}" if where else _shorten_operation(link.what)
    drained = link.cause.removeprefix(_DRAINED)
    return name if drained == link.cause else f"after {drained}, {name}"


def _shorten_operation(what: str) -> str:
    before, behind, name = what.rpartition("after ")
    return f"{before}{behind}{shorten_name(name)}"


def build_moments(found: Sequence[Moment], at_ns: int) -> Section:
    """Make what every rank did at one moment, and the chain that the moment is part of.

    Raises:
        SelectionError: no rank has a step at that moment.
    """
    if all(moment.row is None for moment in found):
        at = f"{units.seconds(at_ns)} s"
        raise SelectionError(f"{at} — lies in no step — `wallscope steps FILE` shows when steps begin")
    blocks = tuple(block for moment in found for block in _describe_moment(moment, at_ns))
    return Section("moment", "", "", blocks)


def _describe_moment(moment: Moment, at_ns: int) -> tuple[Block, ...]:
    row = moment.row
    who: Line = (Span(_name_rank(moment.rank), "strong"),)
    if row is None:
        return (Lines((who, f"  {units.seconds(at_ns)} s lies in none of its steps")),)
    state = str(row["state"]).replace("_", " ")
    lines: list[Line] = [who, (Span(f"  step {row['step']}, {state}: {row['cause']}", Wall(row["wall"])),)]
    if row["path"]:
        lines.append((Span(f"  in {shorten_range_path(row['path'])}", "dim"),))
    chain = Section("chain", lines.pop(), "", (_tabulate_chain(moment.links, at_ns),))
    return Lines(tuple(lines)), chain


def frame_gaps(found: Sequence[Gap]) -> pl.DataFrame:
    """Return the rows of the gaps as a table (`GAPS`), for CSV and JSON."""
    return pl.DataFrame([gap.row for gap in found], schema=GAPS, orient="row")


def _name_rank(row: dict[str, Any]) -> str:
    place = f"process {or_unknown(row['pid'])}, device {or_unknown(row['device'])}"
    return place if row["rank"] is None else f"rank {row['rank']} ({place})"
