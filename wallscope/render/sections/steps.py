"""Is it every step?"""

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.kinds import Wall
from wallscope.render import figures
from wallscope.render.blocks import Cell, Column, Grid, Section, text
from wallscope.render.terminal import steps_found

_MOST_ROWS = 60


def steps(analysis: Analysis, rank: Rank) -> Section:
    """Every step by wall; which of them do not count, and why."""
    unit = analysis.anchor.window
    dropped = sum(not step.steady for step in rank.steps)
    diagnosis = analysis.diagnosis
    led = ""
    has_steps = analysis.anchor.kind != "whole-trace"
    if diagnosis.led_steps is not None and has_steps and diagnosis.dominant_wall not in {"mixed", "unknown"}:
        led = f" The dominant wall leads on {diagnosis.led_steps} of {diagnosis.steady_steps} steady ones."
    left = f" {units.plural(dropped, unit)} do not count." if dropped > 1 and has_steps else ""
    left = f" One {unit} does not count." if dropped == 1 and has_steps else left
    found = steps_found(analysis.anchor, rank).plain.replace("\n", ", ")
    answer = f"{found}.{led}{left}"
    blocks = [figures.steps(rank.steps, unit)] if len(rank.steps) > 1 else []
    title = "Is it every step?" if has_steps else "What was looked at?"
    return Section("steps", title, answer, (*blocks, _table(rank, unit)))


def _table(rank: Rank, unit: str) -> Grid:
    columns = (
        Column(unit, "number of the window, counted from the first one found"),
        Column("start", "session time in seconds, as Nsight shows it"),
        Column("length"),
        *(Column(str(wall), "time of this window that the wall owns") for wall in Wall),
        text("counts", "whether it counts as steady, or why not"),
    )
    rows = tuple(
        (
            Cell(units.number(step.index)),
            Cell(f"{units.seconds(step.start_ns)} s"),
            Cell(units.milliseconds(step.end_ns - step.start_ns)),
            *(Cell(units.milliseconds(part)) for part in step.walls.parts()),
            Cell("yes" if step.steady else f"no: {step.reason or 'unknown'}"),
        )
        for step in rank.steps[:_MOST_ROWS]
    )
    left_out = len(rank.steps) - len(rows)
    note = f"{units.plural(left_out, 'more row')} in wallscope steps." if left_out > 0 else ""
    return Grid("Who pays for each window", columns, rows, note)
