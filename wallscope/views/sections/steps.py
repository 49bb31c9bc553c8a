"""Is it every step?"""

from collections.abc import Sequence

import polars as pl

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.kinds import Wall
from wallscope.model.report import StepTimeline
from wallscope.views import figures
from wallscope.views.blocks import Cell, Column, Grid, Section, text
from wallscope.views.terminal import steps_found

_MOST_ROWS = 60


def steps(analysis: Analysis, rank: Rank, drawn: Sequence[StepTimeline]) -> Section:
    """Every step by wall, the worst first; which do not count, and why. Those in `drawn` lead there."""
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
    answer = f"{_worst(diagnosis.verdict, unit, drawn)}{found}.{led}{left}"
    shown = {timeline.step for timeline in drawn} if has_steps else set()
    blocks = [figures.steps(rank.steps, unit, leads=bool(shown))] if len(rank.steps) > 1 else []
    title = "Is it every step?" if has_steps else "What was looked at?"
    return Section("steps", title, answer, (*blocks, _table(rank, unit, shown)))


def _worst(verdict: str, unit: str, drawn: Sequence[StepTimeline]) -> str:
    """What the verdict says of the worst step, and the cause that grew most there; else empty."""
    _, begins, told = verdict.partition(f"The longest steady {unit}, ")
    said = [f"{begins}{told}"] if begins else []
    role = {timeline.role: timeline for timeline in drawn}
    worst, typical = role.get("worst"), role.get("typical")
    if worst is not None and typical is not None:
        more_ns = (worst.end_ns - worst.start_ns) - (typical.end_ns - typical.start_ns)
        if not said:
            longer = f"{units.duration(more_ns)} longer than the typical one, {typical.step}"
            said.append(f"The longest steady {unit} is {worst.step}, {longer}.")
        usual, owned = _owned(typical), _owned(worst)
        grown_ns, cause = max((time_ns - usual.get(cause, 0), cause) for cause, time_ns in owned.items())
        said.append(f"There {cause} takes {units.duration(grown_ns)} more.")
    return "".join(f"{sentence} " for sentence in said)


def _owned(shown: StepTimeline) -> dict[str, int]:
    """What each cause owns of a step."""
    lengths = shown.slices.select("cause", length_ns=pl.col("end_ns") - pl.col("start_ns"))
    return dict(lengths.group_by("cause").agg(pl.col("length_ns").sum()).iter_rows())


def _table(rank: Rank, unit: str, shown: set[int]) -> Grid:
    columns = (
        Column(unit, "number of the window, counted from the first one found"),
        Column("start", "session time in seconds, as Nsight shows it"),
        Column("length"),
        *(Column(str(wall), "time of this window that the wall owns") for wall in Wall),
        text("counts", "whether it counts as steady, or why not"),
    )
    rows = tuple(
        (
            Cell(units.number(step.index), step=step.index if step.index in shown else None),
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
