"""Is it every step, and where in the program? Steps by wall, and ranges of the typical one."""

from collections.abc import Sequence
from functools import partial

import polars as pl

from wallscope import units
from wallscope.model.analysis import Analysis, RangeWork, Rank, Step
from wallscope.model.enums import Wall
from wallscope.model.report import StepTimeline
from wallscope.model.section import Cell, Column, Grid, Limit, Section, tabulate
from wallscope.render import figures
from wallscope.views.phrases import describe_steps

_MOST_ROWS = 60


def build_steps(analysis: Analysis, rank: Rank, drawn: Sequence[StepTimeline]) -> Section:
    """Make every step by wall, the worst first; which do not count, and why. Those in `drawn` lead there."""
    unit, diagnosis = analysis.anchor.window, analysis.diagnosis
    dropped = sum(not step.steady for step in rank.steps)
    led = left = ""
    has_steps = analysis.anchor.kind != "whole-trace"
    if diagnosis.led_steps is not None and has_steps and diagnosis.dominant_wall not in {"mixed", "unknown"}:
        led = f" The dominant wall leads on {diagnosis.led_steps} of {diagnosis.steady_steps} steady ones."
    if dropped and has_steps:
        left = f" One {unit} does not" if dropped == 1 else f" {units.plural(dropped, unit)} do not"
        left += " count."
    found = ", ".join(describe_steps(analysis.anchor, rank))
    answer = f"{_describe_worst(diagnosis.verdict, unit, drawn)}{found}.{led}{left}"
    shown = {timeline.step for timeline in drawn} if has_steps else set()
    blocks = [figures.draw_steps(rank.steps, unit, leads=bool(shown))] if len(rank.steps) > 1 else []
    title = "Is it every step?" if has_steps else "What was looked at?"
    return Section("steps", title, answer, (*blocks, _tabulate_steps(rank, unit, shown)))


def _describe_worst(verdict: str, unit: str, drawn: Sequence[StepTimeline]) -> str:
    """Repeat the verdict on the worst step, and name the cause that grew most there; else empty."""
    _, begins, rest = verdict.partition(f"The longest steady {unit}, ")
    sentences = [f"{begins}{rest}"] if begins else []
    role = {timeline.role: timeline for timeline in drawn}
    worst, typical = role.get("worst"), role.get("typical")
    if worst is not None and typical is not None:
        more_ns = (worst.end_ns - worst.start_ns) - (typical.end_ns - typical.start_ns)
        if not sentences:
            longer = f"{units.duration(more_ns)} longer than the typical one, {typical.step}"
            sentences.append(f"The longest steady {unit} is {worst.step}, {longer}.")
        usual, owned = _sum_causes(typical), _sum_causes(worst)
        grown_ns, cause = max((time_ns - usual.get(cause, 0), cause) for cause, time_ns in owned.items())
        sentences.append(f"There {cause} takes {units.duration(grown_ns)} more.")
    return "".join(f"{sentence} " for sentence in sentences)


def _sum_causes(shown: StepTimeline) -> dict[str, int]:
    """Sum what each cause owns of a step."""
    lengths = shown.slices.select("cause", length_ns=pl.col("end_ns") - pl.col("start_ns"))
    return dict(lengths.group_by("cause").agg(pl.col("length_ns").sum()).iter_rows())


def _part_ns(entry: Step | RangeWork, wall: Wall) -> int | None:
    return None if entry.walls is None else getattr(entry.walls, wall)


def _wall_columns(meaning: str) -> tuple[Column, ...]:
    return tuple(Column(wall, str(wall), "ms", meaning, partial(_part_ns, wall=wall)) for wall in Wall)


def _tabulate_steps(rank: Rank, unit: str, shown: set[int]) -> Grid:
    def number(step: Step) -> Cell:
        return Cell(step.index, step=step.index if step.index in shown else None)

    def counts(step: Step) -> str:
        return "yes" if step.steady else f"no: {step.reason or 'unknown'}"

    columns = (
        Column("index", unit, "count", "number of the window, counted from the first one found", number),
        Column("start_ns", "start", "seconds", "session time in seconds, as Nsight shows it"),
        Column("length_ns", "length", "ms", value=lambda step: step.end_ns - step.start_ns),
        *_wall_columns("time of this window that the wall owns"),
        Column("steady", "counts", "text", "whether it counts as steady, or why not", counts),
    )
    limits = {"page": Limit(_MOST_ROWS, "more row", " in wallscope steps.")}
    return tabulate("Who pays for each window", columns, rank.steps, limits=limits)


def build_phases(analysis: Analysis, rank: Rank) -> Section | None:
    """Make ranges with host time, device time, work and walls; `None` without ranges."""
    if not rank.ranges:
        return None
    whole = analysis.anchor.typical
    columns = (
        Column("path", "range", "text", "path of folded names, outermost first; like ranges are one row"),
        Column("count", "count", "count", "ranges that begin in the host's time for the step", none=""),
        Column("host_ns", "on the host", "ms", "their time on the host, added up", none=""),
        Column(
            "gpu_ns",
            "on the device",
            "ms",
            "time in which operations issued inside ran, ranges inside included",
        ),
        Column("own_gpu_ns", "alone", "ms", "the same without the ranges inside"),
        *_wall_columns("time that this wall owns of what was issued inside"),
    )
    answer = f"{units.plural(len(rank.ranges), 'range path')} issued the work of the {whole}."
    has_work = any(entry.work_ns for entry in rank.ranges[:_MOST_ROWS])
    blocks = [figures.draw_phases(rank.ranges)] if has_work else []
    limits = {"page": Limit(_MOST_ROWS, "more row", " in wallscope ranges.")}
    caption = f"Ranges of the {whole}, most device time first"
    table = tabulate(caption, columns, rank.ranges, limits=limits, is_wordy=True)
    return Section("phases", "Where in the program?", answer, (*blocks, table), is_open=False)
