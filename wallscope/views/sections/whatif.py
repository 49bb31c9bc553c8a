"""What would a step take with changes? And how well does the replay tell it?"""

from collections.abc import Iterator, Sequence
from functools import partial

from wallscope import units
from wallscope.model.enums import Wall
from wallscope.model.section import (
    Block,
    Cell,
    Column,
    Grid,
    Lines,
    Section,
    on_page,
    on_terminal,
    tabulate,
)
from wallscope.model.whatif import Answer, WhatIf
from wallscope.render import figures
from wallscope.render.figures import name_changes
from wallscope.render.foreign import visible
from wallscope.views.sections.path import build_path_blocks, describe_path

NOTHING = "No usual change wins a thousandth of it."
_WIDE = 120


def build_changes(found: WhatIf) -> Section:
    """Make each change alone, and all together."""
    title = "What would it take?"
    if not found.answers:
        return Section("changes", title, NOTHING, ())
    best = max(found.answers, key=lambda answer: answer.won_ns)
    answer = (
        f"{units.duration(best.step_ns)} with {name_changes(best)}, {units.signed_duration(-best.won_ns)};"
        f" then {best.next_wall} is the wall."
    )
    notes = tuple(f"{asked}: {note}" for asked, note in list_notes(found.answers))
    blocks: tuple[Block, ...] = (
        figures.draw_changes(found, found.answers, "changes"),
        tabulate_answers(found, found.answers, f"The typical {found.unit} with each change"),
        *((Lines(notes),) if notes else ()),
    )
    return Section("changes", title, answer, blocks)


def build_sweep(found: WhatIf) -> Section | None:
    """Make one change in degrees; `None` where none was asked for."""
    if not found.sweep:
        return None
    least, most = (pick(found.sweep, key=lambda one: one.step_ns) for pick in (min, max))
    answer = (
        f"From {units.duration(least.step_ns)} with {name_changes(least)} to {units.duration(most.step_ns)}."
    )
    table = tabulate_answers(found, found.sweep, f"The typical {found.unit} with each degree")
    figure = figures.draw_changes(found, found.sweep, "sweep")
    return Section("sweep", "And in degrees?", answer, (figure, table))


def build_bounds(found: WhatIf) -> Section:
    """Make the critical path of the step as it was captured."""
    whole = f"typical {found.unit}"
    blocks = build_path_blocks(found.path, whole, found.unit, is_drawn=False)
    return Section("path", "What bounds it?", describe_path(found.path, whole), tuple(blocks))


def build_sureness(found: WhatIf) -> Section:
    """Make what was played, and how far it is off."""
    check = found.check
    ranks = units.plural(found.played_ranks, "rank")
    rows = {
        "played": f"{units.plural(found.played_steps, found.unit)} of {ranks}",
        "operations": units.number(found.played_operations),
        "error, told of the other steps alone": units.percent(check.error_median),
        "the same at p90": units.percent(check.error_p90),
        "error, told of the very steps": units.percent(check.own_error),
        "lags and time outside calls, of the path": units.percent(check.slack_share),
        "lags without their like in another step": units.percent(check.unmatched_share),
        "waits that stay as they were, unresolved": units.percent(check.unresolved_wait_share),
        "compute beside communication, times as long": "unknown"
        if found.overlap_tax is None
        else f"{found.overlap_tax:.2f}",
    }
    columns = (Column("what", "what"), Column("value", "value", "plain"))
    table = Grid("What was played, and how far off it is", columns, tuple(rows.items()))
    return Section("sureness", "How sure is that?", describe_check(found), (table,))


def describe_check(found: WhatIf) -> str:
    """Say how well the replay does."""
    check = found.check
    slack = f"{units.percent(check.slack_share)} of the path is lags and time outside calls"
    if check.error_median is None or check.error_p90 is None:
        return f"Not checked: one {found.unit} alone tells nothing of others; {slack}."
    return (
        f"Told of the other {found.unit}s alone, the replay is {units.percent(check.error_median)} off"
        f" (p90 {units.percent(check.error_p90)}, {units.plural(check.steps, found.unit)}); {slack}."
    )


def list_notes(answers: Sequence[Answer]) -> Iterator[tuple[str, str]]:
    """List what was changed and assumed, each once, with the question that it is of."""
    seen: set[str] = set()
    for answer in answers:
        for note in answer.notes:
            if note not in seen:
                seen.add(note)
                yield visible(answer.questions[0].text, most=40), visible(note)


def tabulate_answers(found: WhatIf, answers: Sequence[Answer], title: str, brief: str = "") -> Grid:
    """Make what each change wins, and what comes next; the walls after it where there is room."""

    def part_ns(one: Answer, wall: Wall) -> int:
        time_ns: int = getattr(one.walls, wall)
        return time_ns

    wide = (_WIDE, 1 << 30)
    columns = (
        on_terminal("change", "", value=name_changes, most=36, widths=(0, _WIDE)),
        on_terminal("change", "", value=name_changes, most=60, widths=wide),
        on_page("change", "change", value=name_changes, most=120),
        on_terminal("step_ns", "step", "duration"),
        on_page("step_ns", found.unit, "ms"),
        on_terminal("won_ns", "change", "signed_duration", "", lambda one: -one.won_ns),
        on_page("won_ns", "change of it", "signed_ms", "", lambda one: -one.won_ns),
        Column("speedup", "speedup", "exact_speedup", "as captured over changed"),
        Column("next_wall", "then the wall is", value=lambda one: Cell(str(one.next_wall), one.next_wall)),
        on_page("next_cause", "by", "text", "its largest cause"),
        *(on_terminal(wall, wall, "duration", "", partial(part_ns, wall=wall), widths=wide) for wall in Wall),
        *(
            on_page(wall, wall, "ms", f"of the {found.unit} then", partial(part_ns, wall=wall))
            for wall in Wall
        ),
    )
    return tabulate(title, columns, answers, brief=brief, is_wordy=True)
