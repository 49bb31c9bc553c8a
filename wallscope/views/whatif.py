"""The step time with changes, and the error of the replay, on a terminal and as a page."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal

from rich.console import RenderableType

from wallscope import units
from wallscope.advice.evidence import describe_question
from wallscope.model.enums import Wall
from wallscope.model.section import (
    Block,
    Cell,
    Column,
    Grid,
    Lines,
    Section,
    Span,
    on_page,
    on_terminal,
    tabulate,
)
from wallscope.model.whatif import Answer, WhatIf
from wallscope.render import figures
from wallscope.render.html import render_page
from wallscope.render.terminal import render_sections
from wallscope.render.texts import visible
from wallscope.views.page_skeleton import KeyAnswer, split_cause, title_sections
from wallscope.views.sections.path import build_path_blocks, describe_path, list_parts, list_slack
from wallscope.views.sections.words import WALL_WORDS

_MOST_ANSWERS = 6
_NOTHING = "None of the usual changes shortens the step by 0.1 % or more."
_WIDE = 120


def render_whatif(found: WhatIf) -> RenderableType:
    """Render all of it for a terminal."""
    return render_sections(_build_summary(found))


def _build_summary(found: WhatIf) -> Iterator[Section | Grid]:
    name = visible(found.inputs[0].name, most=60)
    rank = "" if found.rank is None else f" · rank {found.rank}"
    played = f"{units.plural(found.played_steps, f'typical {found.unit}')} replayed"
    step = Span(f"Typical {found.unit}: {units.duration(found.step_ns)}", "strong")
    head = (
        f"{name}{rank} · {played}, {units.number(found.played_operations)} operations",
        (step, ", ", Span(f"{found.wall}-bound", found.wall)),
        (Span(_describe_check(found), "dim"),),
    )
    yield Section("head", "", "", (Lines(head),))
    if found.answers:
        notes = tuple(f"  {asked}: {note}" for asked, note in _list_notes(found.answers))
        title = "With each change"
        table = _tabulate_answers(found, found.answers, title)
        yield Section("answers", title, "", (table, Lines(notes, "dim", is_set_in=False)))
    elif not found.sweep:
        yield Section("answers", "", "", (Lines((_NOTHING,)),))
    if found.sweep:
        yield _tabulate_answers(found, found.sweep, "Sweep")
    yield list_parts(found.path)
    slack = list_slack(found.path)
    if slack is not None:
        yield slack


def write_whatif_page(found: WhatIf) -> str:
    """Write all of it as one HTML file."""
    name, whole = visible(found.inputs[0].name), f"typical {found.unit}"
    blocks = build_path_blocks(found.path, whole, found.unit, is_drawn=False)
    path = Section("path", "What bounds it?", describe_path(found.path, whole), tuple(blocks))
    shown = (_build_changes(found), _build_sweep(found), path, _build_sureness(found))
    first = _build_first_screen(found, name)
    return render_page("whatif.html.j2", f"{name}: what if", title_sections(shown), found=found, first=first)


def _build_first_screen(found: WhatIf, name: str) -> dict[str, Any]:
    """Make what the step takes now and with what wins most."""
    rank = [] if found.rank is None else [f"rank {found.rank}"]
    captured = f"captured {units.utc(found.inputs[0].session_start_utc_ns)}"
    best = sorted(found.answers, key=lambda answer: -answer.won_ns)
    return {
        "origin": " · ".join((name, *rank, captured)),
        "key_answers": _list_key_answers(found, best),
        "checked": _describe_check(found),
        "answers": [(_describe_changes(answer), answer) for answer in best[:_MOST_ANSWERS]],
        "more": max(len(best) - _MOST_ANSWERS, 0),
        "walls": _tabulate_walls(found),
        "bar": [
            (wall, part_ns / max(found.step_ns, 1), units.percent(part_ns / max(found.step_ns, 1)))
            for wall, part_ns in zip(Wall, found.walls.parts(), strict=True)
        ],
        "nothing": _NOTHING,
    }


def _list_key_answers(found: WhatIf, best: Sequence[Answer]) -> tuple[KeyAnswer, ...]:
    """List the five answers that each page begins with; the first action is the change that wins most."""
    wall_ns, whole = getattr(found.walls, found.wall), f"the typical {found.unit}"
    share = units.percent(wall_ns / max(found.step_ns, 1))
    causes = [one for one in found.path.causes if one.wall == found.wall and one.name not in {"", "rest"}]
    wall = KeyAnswer("Wall", f"{found.wall.capitalize()} {share}", (f"of {whole}.",), "breakdown", found.wall)
    cause = KeyAnswer("Cause", "Not known", (), "path")
    if causes:
        largest = max(causes, key=lambda one: one.time_ns)
        time = units.duration(round(largest.time_ns))
        name, more = split_cause(largest.name)
        cause = KeyAnswer("Cause", name, (f"{time} of the critical path.", *more), "path", largest.wall)
    action = KeyAnswer("Do first", "Look at the critical path", (_NOTHING,), "path")
    bound = KeyAnswer("Upper bound", "Not estimated", ("No change was asked that shortens it.",))
    if best and best[0].won_ns > 0:
        name, after_ns = _describe_changes(best[0]), best[0].step_ns
        action = KeyAnswer(
            "Largest win", name, ("The replay only shows the gain, and not how to reach it.",), "changes"
        )
        bar = (units.duration(found.step_ns), units.duration(after_ns), after_ns / max(found.step_ns, 1))
        after = f"The {found.unit} is then {best[0].next_wall}-bound."
        bound = KeyAnswer("Upper bound", f"up to {best[0].speedup:.2f}x", (after,), "changes", predicted=bar)
    error = found.check.error_median
    tone: Literal["ok", "warn"] = "warn" if error is None else "ok"
    head = "Replay not checked" if error is None else f"Replay error {units.percent(error)}"
    slack = units.percent(found.check.slack_share)
    doubt = f"Uncertain: latency and host time, {slack} of the path, are replayed unchanged."
    return wall, cause, action, bound, KeyAnswer("How sure", head, (doubt,), "sure", tone=tone)


def _describe_changes(answer: Answer) -> str:
    """Say in words what a replay changes."""
    return units.capitalize(" and ".join(map(describe_question, answer.questions)))


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
    return Grid("Time breakdown as captured", columns, rows)


def _build_changes(found: WhatIf) -> Section | None:
    """Make each change alone, and all together; `None` where only a sweep was asked for."""
    title = "What would it take?"
    if not found.answers and found.sweep:
        return None
    if not found.answers:
        return Section("changes", title, _NOTHING, ())
    best = max(found.answers, key=lambda answer: answer.won_ns)
    change = " and ".join(map(describe_question, best.questions))
    taken = f"{units.duration(best.step_ns)} {change}"
    answer = f"{taken}, {units.signed_duration(-best.won_ns)}; then {best.next_wall}-bound."
    notes = tuple(f"{asked}: {note}" for asked, note in _list_notes(found.answers))
    blocks: tuple[Block, ...] = (
        figures.draw_changes(found, found.answers, "changes"),
        _tabulate_answers(found, found.answers, f"The typical {found.unit} with each change"),
        *((Lines(notes),) if notes else ()),
    )
    return Section("changes", title, answer, blocks)


def _build_sweep(found: WhatIf) -> Section | None:
    """Make one change at several strengths; `None` where none was asked for."""
    if not found.sweep:
        return None
    least, most = (pick(found.sweep, key=lambda one: one.step_ns) for pick in (min, max))
    start = f"From {units.duration(least.step_ns)} with {figures.name_changes(least)}"
    answer = f"{start} to {units.duration(most.step_ns)}."
    table = _tabulate_answers(found, found.sweep, f"The typical {found.unit} at each strength")
    figure = figures.draw_changes(found, found.sweep, "sweep")
    return Section("sweep", "Sweep", answer, (figure, table))


def _build_sureness(found: WhatIf) -> Section:
    """Make what was replayed, and its error."""
    check, ranks = found.check, units.plural(found.played_ranks, "rank")
    tax = "unknown" if found.overlap_tax is None else f"{found.overlap_tax:.2f}"
    rows = {
        "replayed": f"{units.plural(found.played_steps, found.unit)} of {ranks}",
        "operations": units.number(found.played_operations),
        "leave-one-out error": units.percent(check.error_median),
        "leave-one-out error, p90": units.percent(check.error_p90),
        "error with the latencies of the same steps": units.percent(check.own_error),
        "latency and host time outside CUDA calls, % of path": units.percent(check.slack_share),
        "latencies without a match in another step": units.percent(check.unmatched_share),
        "unresolved waits, replayed unchanged": units.percent(check.unresolved_wait_share),
        "slowdown of compute that overlaps communication": tax,
    }
    columns = (Column("what", "what"), Column("value", "value", "plain"))
    table = Grid("What was replayed, and its error", columns, tuple(rows.items()))
    return Section("sureness", "How sure is this?", _describe_check(found), (table,))


def _describe_check(found: WhatIf) -> str:
    """Return the error of the replay, and what it leaves unchanged."""
    check = found.check
    slack = (
        f"{units.percent(check.slack_share)} of the critical path is latency and host time, kept as measured"
    )
    if check.error_median is None or check.error_p90 is None:
        return f"Replay not checked: this needs two typical {found.unit}s; {slack}."
    return (
        f"Replay error {units.percent(check.error_median)} (p90 {units.percent(check.error_p90)},"
        f" {units.plural(check.steps, found.unit)}); {slack}."
    )


def _list_notes(answers: Sequence[Answer]) -> Iterator[tuple[str, str]]:
    """List each change and assumption once, with its question."""
    first = {note: answer.questions[0].text for answer in reversed(answers) for note in answer.notes}
    for note in dict.fromkeys(note for answer in answers for note in answer.notes):
        yield visible(first[note], most=40), visible(note)


def _tabulate_answers(found: WhatIf, answers: Sequence[Answer], title: str, brief: str = "") -> Grid:
    """Make what each change wins, and what comes next; the walls after it where there is room."""

    def part_ns(one: Answer, wall: Wall) -> int:
        time_ns: int = getattr(one.walls, wall)
        return time_ns

    wide = (_WIDE, 1 << 30)
    columns = (
        on_terminal("change", "", value=figures.name_changes, most=36, widths=(0, _WIDE)),
        on_terminal("change", "", value=figures.name_changes, most=60, widths=wide),
        on_page("change", "change", value=_describe_changes, most=120),
        on_terminal("step_ns", "step", "duration"),
        on_page("step_ns", found.unit, "ms"),
        on_terminal("won_ns", "change", "signed_duration", "", lambda one: -one.won_ns),
        on_page("won_ns", "change of it", "signed_ms", "", lambda one: -one.won_ns),
        Column("speedup", "speedup", "exact_speedup", "step as captured / step with the change"),
        Column("next_wall", "next wall", value=lambda one: Cell(str(one.next_wall), one.next_wall)),
        on_page("next_cause", "next cause", "text", "largest cause of the next wall"),
        *(on_terminal(wall, wall, "duration", "", partial(part_ns, wall=wall), widths=wide) for wall in Wall),
        *(
            on_page(wall, wall, "ms", f"of the {found.unit} with the change", partial(part_ns, wall=wall))
            for wall in Wall
        ),
    )
    return tabulate(title, columns, answers, brief=brief, is_wordy=True)
