"""What a step takes with changes, and how well the replay tells it."""

from collections.abc import Sequence

from wallscope import units
from wallscope.model.kinds import Wall
from wallscope.model.whatif import Answer, WhatIf
from wallscope.render.foreign import visible
from wallscope.views import path_figures
from wallscope.views.blocks import Block, Cell, Column, Grid, Lines, Section, cells, text
from wallscope.views.path_figures import changed
from wallscope.views.sections.path import bound_by, path_blocks
from wallscope.views.whatif import checked, noted

_LONGEST_NAME = 120


def changes(found: WhatIf) -> Section:
    """Each change alone, and all together."""
    if not found.answers:
        return Section("changes", "What would it take?", "No usual change wins a thousandth of it.", ())
    best = max(found.answers, key=lambda answer: answer.won_ns)
    answer = (
        f"{units.duration(best.step_ns)} with {changed(best)}, {units.signed_duration(-best.won_ns)};"
        f" then {best.next_wall} is the wall."
    )
    blocks: list[Block] = [
        path_figures.with_changes(found, found.answers, "changes"),
        _table(found, found.answers, f"The typical {found.unit} with each change"),
    ]
    notes = tuple(f"{asked}: {note}" for asked, note in noted(found.answers))
    return Section(
        "changes", "What would it take?", answer, (*blocks, Lines(notes)) if notes else tuple(blocks)
    )


def sweep(found: WhatIf) -> Section | None:
    """One change in degrees; `None` where none was asked for."""
    if not found.sweep:
        return None
    least, most = (pick(found.sweep, key=lambda one: one.step_ns) for pick in (min, max))
    answer = f"From {units.duration(least.step_ns)} with {changed(least)} to {units.duration(most.step_ns)}."
    table = _table(found, found.sweep, f"The typical {found.unit} with each degree")
    return Section(
        "sweep", "And in degrees?", answer, (path_figures.with_changes(found, found.sweep, "sweep"), table)
    )


def bounds(found: WhatIf) -> Section:
    """The critical path of the step as it was captured."""
    whole = f"typical {found.unit}"
    return Section(
        "path",
        "What bounds it?",
        bound_by(found.path, whole),
        tuple(path_blocks(found.path, whole, found.unit, is_drawn=False)),
    )


def sureness(found: WhatIf) -> Section:
    """What was played, and how far it is off."""
    check = found.check
    rows = [
        (
            "played",
            f"{units.plural(found.played_steps, found.unit)} of {units.plural(found.played_ranks, 'rank')}",
        ),
        ("operations", units.number(found.played_operations)),
        ("error, told of the other steps alone", _share(check.error_median)),
        ("the same at p90", _share(check.error_p90)),
        ("error, told of the very steps", units.percent(check.own_error)),
        ("lags and time outside calls, of the path", units.percent(check.slack_share)),
        ("lags without their like in another step", units.percent(check.unmatched_share)),
        ("waits that stay as they were, unresolved", _share(check.unresolved_wait_share)),
        ("compute beside communication, times as long", _times(found.overlap_tax)),
    ]
    table = Grid(
        "What was played, and how far off it is",
        (text("what"), Column("value")),
        tuple(cells(*row) for row in rows),
    )
    return Section("sureness", "How sure is that?", checked(found), (table,))


def _table(found: WhatIf, answers: Sequence[Answer], caption: str) -> Grid:
    columns = (
        text("change"),
        Column(found.unit),
        Column("change of it"),
        Column("speedup", "as captured over changed"),
        text("then the wall is"),
        text("by", "its largest cause"),
        *(Column(str(wall), f"of the {found.unit} then") for wall in Wall),
    )
    rows = tuple(
        (
            Cell(visible(changed(one), most=_LONGEST_NAME)),
            Cell(units.milliseconds(one.step_ns)),
            Cell(units.signed_milliseconds(-one.won_ns)),
            Cell(f"{one.speedup:.3f}x"),
            Cell(str(one.next_wall), one.next_wall),
            Cell(one.next_cause),
            *(Cell(units.milliseconds(part)) for part in one.walls.parts()),
        )
        for one in answers
    )
    return Grid(caption, columns, rows, is_wordy=True)


def _share(share: float | None) -> str:
    return "unknown" if share is None else units.percent(share)


def _times(factor: float | None) -> str:
    return "unknown" if factor is None else f"{factor:.2f}"
