"""Answers to what-if questions on a terminal and as a page: how good they are, what each wins, the path."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from wallscope import units
from wallscope.model.enums import Wall
from wallscope.model.section import Cell, Column, Grid, Lines, Section, Span
from wallscope.model.whatif import WhatIf
from wallscope.render.figures import name_changes
from wallscope.render.foreign import visible
from wallscope.render.grids import render_sections
from wallscope.render.offline import offline
from wallscope.views.sections import whatif as sections
from wallscope.views.sections.path import list_parts, list_slack
from wallscope.views.words import WALL_WORDS

_MOST_ANSWERS = 6


def whatif_summary(found: WhatIf) -> RenderableType:
    """Render all of it for a terminal."""
    return render_sections(_build_summary(found))


def _build_summary(found: WhatIf) -> Iterator[Section | Grid]:
    name = visible(found.inputs[0].name, most=60)
    rank = "" if found.rank is None else f" · rank {found.rank}"
    played = f"{units.plural(found.played_steps, f'typical {found.unit}')} played again"
    step = Span(f"{found.unit.capitalize()} {units.duration(found.step_ns)}", "strong")
    head = (
        f"{name}{rank} · {played}, {units.number(found.played_operations)} operations",
        (step, ", bound by ", Span(str(found.wall), found.wall)),
        (Span(sections.describe_check(found), "dim"),),
    )
    yield Section("head", "", "", (Lines(head),))
    if found.answers:
        notes = tuple(f"  {asked}: {note}" for asked, note in sections.list_notes(found.answers))
        table = sections.tabulate_answers(found, found.answers, "If …")
        yield Section("answers", "If …", "", (table, Lines(notes, "dim", is_set_in=False)))
    else:
        yield Section("answers", "", "", (Lines((sections.NOTHING,)),))
    if found.sweep:
        yield sections.tabulate_answers(found, found.sweep, "In degrees")
    yield list_parts(found.path)
    slack = list_slack(found.path)
    if slack is not None:
        yield slack


def whatif_page(found: WhatIf) -> str:
    """Render the whole page."""
    name = visible(found.inputs[0].name)
    shown = (
        sections.build_changes(found),
        sections.build_sweep(found),
        sections.build_bounds(found),
        sections.build_sureness(found),
    )
    first = _build_first_screen(found, name)
    return offline("whatif.html.j2", f"{name}: what if", shown, found=found, first=first)


def _build_first_screen(found: WhatIf, name: str) -> dict[str, Any]:
    """Make what the step takes now and with what wins most."""
    rank = [] if found.rank is None else [f"rank {found.rank}"]
    captured = f"captured {units.utc(found.inputs[0].session_start_utc_ns)}"
    best = sorted(found.answers, key=lambda answer: -answer.won_ns)
    return {
        "origin": " · ".join((name, *rank, captured)),
        "headline": f"The typical {found.unit} takes {units.duration(found.step_ns)}, bound by {found.wall}",
        "checked": sections.describe_check(found),
        "answers": [(name_changes(answer), answer) for answer in best[:_MOST_ANSWERS]],
        "more": max(len(best) - _MOST_ANSWERS, 0),
        "walls": _tabulate_walls(found),
    }


def _tabulate_walls(found: WhatIf) -> Grid:
    columns = (Column("wall", "wall"), Column("time", "time", "ms"), Column("share", "share", "percent"))
    rows = tuple(
        (
            Cell(str(wall), wall, WALL_WORDS[wall], tone="strong" if wall == found.wall else None),
            part_ns,
            part_ns / max(found.step_ns, 1),
        )
        for wall, part_ns in zip(Wall, found.walls.parts(), strict=True)
    )
    return Grid("Who pays for it now", columns, rows)
