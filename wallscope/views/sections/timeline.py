"""Show me: the step timeline and the longest gaps; gaps and moments to be checked in Nsight."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import polars as pl

from wallscope import units
from wallscope.model.enums import Wall
from wallscope.model.report import GAPS, Gap, Link, Moment, Report
from wallscope.model.section import (
    Block,
    Canvas,
    Cell,
    Column,
    Grid,
    Line,
    Lines,
    Section,
    Span,
    append_row,
    on_terminal,
    tabulate,
)
from wallscope.render.foreign import visible
from wallscope.views.words import explain_cause

_LONGEST_NAME, _LONGEST_PATH, _MOST_LINKS = 120, 100, 12


def build_timeline(report: Report, notes: Sequence[str]) -> Section:
    """Make the typical and the worst step on a canvas, and the longest gaps as a table."""
    unit = report.analysis.anchor.window
    is_whole = report.analysis.anchor.kind == "whole-trace"
    steps = tuple(
        (unit if is_whole else f"{shown.role} {unit} ({shown.step})")
        + f": {units.duration(shown.end_ns - shown.start_ns)}"
        for shown in report.timelines
    )
    answer = "No gap: compute or opaque graphs run throughout."
    if report.gaps:
        longest = report.gaps[0].row
        ended = longest["ended_by"] or f"the end of the {unit}"
        where = "" if is_whole else f" in {unit} {longest['step']}"
        answer = (
            f"The longest gap without compute takes {units.duration(longest['duration_ns'])}"
            f"{where}; {longest['cause']} owns most of it;"
            f" it is ended by {visible(ended, most=_LONGEST_NAME)}."
        )
    shown = {each.step for each in report.timelines}
    note = " ".join((*notes, *_list_pathless(report, unit)))
    canvas = Canvas(steps, note, _lead_to_longest(report.gaps, unit, shown))
    return Section("timeline", "Show me", answer, (canvas, _tabulate_gaps(report.gaps, unit, shown)))


def _list_pathless(report: Report, unit: str) -> list[str]:
    """Name steps that bear no critical path, where others do."""
    missing = [f"{unit} {each.step}" for each in report.timelines if not len(each.path)]
    if not missing or len(missing) == len(report.timelines):
        return []
    return [f"The critical path of {' and '.join(missing)} was not worked out."]


def _lead_to_longest(gaps: Sequence[Gap], unit: str, shown: set[int]) -> Cell | None:
    """Lead to the longest gap of all; `None` where its step is not drawn, or no other is."""
    if not gaps or gaps[0].row["step"] not in shown or len(shown) == 1:
        return None
    step = gaps[0].row["step"]
    return Cell(f"Longest gap: {unit} {step}", step=step, at_ns=_find_middle_ns(gaps[0]))


def _find_middle_ns(gap: Gap) -> int:
    middle_ns: int = gap.row["start_ns"] + gap.row["duration_ns"] // 2
    return middle_ns


def _tabulate_gaps(gaps: Sequence[Gap], unit: str, shown: set[int]) -> Grid:
    def start(gap: Gap) -> Cell:
        start_ns, step = gap.row["start_ns"], gap.row["step"]
        return Cell(start_ns, step=step, at_ns=_find_middle_ns(gap)) if step in shown else Cell(start_ns)

    columns = (
        Column("start_ns", "start", "seconds", "session time in seconds, as Nsight shows it", start),
        Column("duration_ns", "length", "duration", "", lambda gap: gap.row["duration_ns"]),
        Column("step", unit, "count", "", lambda gap: gap.row["step"]),
        Column("cause", "most of it", "text", "the cause that owns most of the gap", _write_cause),
        Column("slack_ns", "slack", "duration", _SLACK, lambda gap: gap.row["slack_ns"], none="none"),
        Column("ended_by", "ended by", "text", _ENDED, _write_end),
        Column("call", "issued by", "text", _ISSUED, _write_call),
        Column("path", "in", "text", "NVTX ranges around that call", lambda gap: gap.row["path"], none=""),
    )
    notes: tuple[str, ...] = ()
    if any(gap.row["step"] not in shown for gap in gaps):
        note = f"A start that can be clicked leads into the timeline; the other {unit}s are not drawn there."
        notes = (note,)
    return tabulate("The longest gaps without compute", columns, gaps, notes=notes, is_wordy=True)


_SLACK = "how much earlier the next constraint would have bound; none: nothing else held it"
_ENDED = "the operation that starts when the gap ends, and its stream"
_ISSUED = "the call that issued that operation, and its thread"


def _write_cause(gap: Gap) -> Cell:
    cause = gap.row["cause"]
    text = f"{cause} {units.duration(gap.row['cause_ns'])}"
    return Cell(text, _wall_of(cause), explain_cause(cause))


def _wall_of(cause: str) -> Wall:
    return Wall(cause.split("/", maxsplit=1)[0])


def _write_end(gap: Gap) -> Cell:
    ended = gap.row["ended_by"]
    where = "" if ended is None else f" on stream {_or_unknown(gap.row['stream'])}"
    name = visible(ended or "the end of the window", most=_LONGEST_NAME)
    return Cell(name + where, hint=(ended or "")[:2_000])


def _write_call(gap: Gap) -> str:
    row = gap.row
    call = row["call"] or ("" if row["ended_by"] is None else "before the capture")
    return call if row["tid"] is None else f"{call}, thread {row['tid']}"


def _or_unknown(value: object) -> str:
    return "unknown" if value is None else str(value)


def build_gaps(found: Sequence[Gap]) -> Iterator[Section]:
    """Make what a terminal shows of gaps: of each rank the longest first, each with its end and chain."""
    if not found:
        yield Section(
            "gaps", "", "", (Lines(("no gap: compute or opaque graphs run throughout the steps",)),)
        )
    for who, gaps in groupby(found, key=lambda gap: _name_rank(gap.row)):
        yield Section("rank", "", "", (Lines(((Span(who, "strong"),),)), *map(_describe_gap, gaps)))


def _describe_gap(gap: Gap) -> Section:
    row = gap.row
    owner = Span(f"{units.duration(row['cause_ns'])} {row['cause']}", _wall_of(row["cause"]))
    head: Line = (f"{units.seconds(row['start_ns'])} s  {units.duration(row['duration_ns'])}  ", owner)
    lines = [f"step {row['step']}, {_describe_end(row)}"]
    lines += [f"in {visible(row['path'], most=_LONGEST_PATH)}"] if row["path"] else []
    return Section("gap", head, "", (Lines(tuple(lines), "dim"), _tabulate_chain(gap.links)))


def _describe_end(row: dict[str, Any]) -> str:
    if row["ended_by"] is None:
        return "ended by the end of the step"
    ended = f"ended by {visible(row['ended_by'], most=60)} on stream {_or_unknown(row['stream'])}"
    if row["call"] is None:
        return f"{ended}, issued before the capture"
    at = f"{units.seconds(row['call_start_ns'])} s, thread {_or_unknown(row['tid'])}"
    return f"{ended}, issued by {row['call']} at {at}"


def _tabulate_chain(links: Sequence[Link], at_ns: int | None = None) -> Grid:
    """Make a line a link; the one that holds a moment is marked."""

    def describe(link: Link) -> str:
        slack = "" if link.slack_ns is None else f", slack {units.duration(link.slack_ns)}"
        is_here = at_ns is not None and link.start_ns <= at_ns < link.end_ns
        return f"{visible(link.what, most=60)}{slack}{' ◀' if is_here else ''}"

    columns = (
        on_terminal("start", "", "plain", "", lambda link: units.seconds(link.start_ns)),
        on_terminal("length", "", "duration", "", lambda link: link.end_ns - link.start_ns),
        on_terminal("cause", "cause", value=lambda link: Cell(link.cause, _wall_of(link.cause))),
        on_terminal("what", "", value=describe, wrap="words"),
    )
    here = next((row for row, link in enumerate(links) if at_ns is not None and at_ns < link.end_ns), 0)
    first = max(min(here - _MOST_LINKS // 2, len(links) - _MOST_LINKS), 0)
    behind = len(links) - first - _MOST_LINKS
    table = tabulate("", columns, links[first : first + _MOST_LINKS], has_header=False)
    if first:
        before = append_row(replace(table, rows=()), {"cause": Cell(f"{first} before", tone="dim")})
        table = replace(table, rows=(*before.rows, *table.rows))
    return append_row(table, {"cause": Cell(f"{behind} behind", tone="dim")}) if behind > 0 else table


def build_moments(found: Sequence[Moment], at_ns: int) -> Section:
    """Make what every rank did at one moment, and the chain that the moment is part of."""
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
        lines.append((Span(f"  in {visible(row['path'], most=_LONGEST_PATH)}", "dim"),))
    chain = Section("chain", lines.pop(), "", (_tabulate_chain(moment.links, at_ns),))
    return Lines(tuple(lines)), chain


def frame_gaps(found: Sequence[Gap]) -> pl.DataFrame:
    """Put the rows of the gaps into a table (`GAPS`), for CSV and JSON."""
    return pl.DataFrame([gap.row for gap in found], schema=GAPS, orient="row")


def _name_rank(row: dict[str, Any]) -> str:
    place = f"process {_or_unknown(row['pid'])}, device {_or_unknown(row['device'])}"
    return place if row["rank"] is None else f"rank {row['rank']} ({place})"
