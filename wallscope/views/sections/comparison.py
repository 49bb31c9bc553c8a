"""The sections of the comparison's page, but those on what can be compared and how."""

from wallscope import units
from wallscope.model.catalogue import meaning
from wallscope.model.comparison import Comparison, OperationDelta
from wallscope.model.kinds import Wall
from wallscope.model.report import ComparisonReport
from wallscope.views.blocks import Cell, Column, Grid, Section, cells, text
from wallscope.views.comparison_figures import both_steps, way
from wallscope.views.comparison_text import operation_name

_MOST_ROWS = 60
_LONGEST_NAME = 120
_ARROW = " → "


def both_sides(report: ComparisonReport) -> Section:
    """Is it every step?"""
    comparison = report.comparison
    step, unit = comparison.step, comparison.window
    slow = (
        f" Slow ones, over 1.25 times the median: {step.base_slow_steps} of {step.base_steps} in base,"
        f" {step.head_slow_steps} of {step.head_steps} in head."
    )
    change_ns = step.head_median_ns - step.base_median_ns
    answer = (
        f"Median {units.duration(step.base_median_ns)}{_ARROW}{units.duration(step.head_median_ns)},"
        f" {units.signed_duration(change_ns)}.{slow}"
    )
    columns = (text("of the steps"), Column("base"), Column("head"), Column("change"))
    rows = tuple(
        (
            Cell(said, hint=hint),
            Cell(units.milliseconds(base_ns)),
            Cell(units.milliseconds(head_ns)),
            Cell(units.signed_milliseconds(head_ns - base_ns)),
        )
        for said, hint, base_ns, head_ns in (
            ("typical", "mean of those of ordinary length", step.base_typical_ns, step.head_typical_ns),
            ("median", "of all that count", step.base_median_ns, step.head_median_ns),
            ("p90", "of all that count", step.base_p90_ns, step.head_p90_ns),
            ("mean", "of all that count, slow ones included", step.base_mean_ns, step.head_mean_ns),
        )
    )
    counted = (
        (
            "steps that count",
            units.number(step.base_steps),
            units.number(step.head_steps),
            _signed(step.head_steps - step.base_steps),
        ),
        (
            "slow ones",
            units.number(step.base_slow_steps),
            units.number(step.head_slow_steps),
            _signed(step.head_slow_steps - step.base_slow_steps),
        ),
        (
            "runs",
            units.number(step.base_runs),
            units.number(step.head_runs),
            _signed(step.head_runs - step.base_runs),
        ),
    )
    table = Grid(f"Lengths of the {unit}s that count", columns, (*rows, *(cells(*row) for row in counted)))
    return Section("steps", "Is it every step?", answer, (both_steps(report), table))


def _signed(value: int) -> str:
    return f"{value:+,}" if value else "0"


def causes(comparison: Comparison) -> Section:
    """What exactly?"""
    step, rows = comparison.step, comparison.deltas.causes
    if not rows:
        return Section("causes", "What exactly?", "No cause changed.", ())
    grew = sum(row.delta_ns for row in rows if row.delta_ns > 0)
    shrank = sum(row.delta_ns for row in rows if row.delta_ns < 0)
    answer = (
        f"Causes that grew add {units.signed_duration(grew)},"
        f" those that shrank {units.signed_duration(shrank)}:"
        f" {units.signed_duration(step.head_typical_ns - step.base_typical_ns)} together."
    )
    columns = (
        text("cause", "wall/cause[/detail]"),
        text("what it is"),
        Column("base", f"what it owns of base's typical {comparison.window}"),
        Column("head", f"what it owns of head's typical {comparison.window}"),
        Column("change"),
        Column("95 % interval", "of the change; empty where too few steps tell it"),
    )
    listed = tuple(
        (
            Cell(row.cause, row.wall),
            Cell(meaning(row.cause)),
            Cell(units.milliseconds(row.base_ns)),
            Cell(units.milliseconds(row.head_ns)),
            Cell(units.signed_milliseconds(row.delta_ns)),
            Cell(interval(row.low_ns, row.high_ns)),
        )
        for row in rows
    )
    table = Grid("Causes that changed; they add up to the change", columns, listed, is_wordy=True)
    return Section("causes", "What exactly?", answer, (way(comparison), table))


def interval(low_ns: int | None, high_ns: int | None) -> str:
    """Both ends of an interval; empty where it is not known, or nothing can vary."""
    if low_ns is None or high_ns is None or low_ns == high_ns:
        return ""
    return f"{units.signed_milliseconds(low_ns)} … {units.signed_milliseconds(high_ns)}"


def operations(comparison: Comparison) -> Section | None:
    """Which operations, and whether by their number or by what each owns; `None` where none changed."""
    found = comparison.deltas.operations
    if not found:
        return None
    shown, rest = found[:_MOST_ROWS], found[_MOST_ROWS:]
    by_count = sum(row.count_delta_ns for row in found)
    answer = (
        f"{units.signed_duration(by_count)} by how often they run,"
        f" {units.signed_duration(sum(row.rate_delta_ns for row in found))} by what each owns."
    )
    columns = (
        text("operation", "kernel, copy or call; both where one was replaced by the other"),
        text("in", "NVTX ranges around it, their names folded"),
        text("owns time as", "the cause that its time goes to"),
        Column("change"),
        Column("by count", "what the change of how often it runs makes"),
        Column("by each", "the rest: what each of them owns"),
        Column("times a step", "how often it runs in the typical step of base and of head"),
        text("matched by", "what says that both sides do the same"),
    )
    rows = tuple(_operation(row) for row in shown)
    note = ""
    if rest:
        left_ns = sum(row.delta_ns for row in rest)
        note = f"{units.plural(len(rest), 'more row')}, {units.signed_duration(left_ns)} together, in --json."
    caption = "Operations by what their change makes of the step; they add up to the change"
    return Section(
        "operations", "Which operations?", answer, (Grid(caption, columns, rows, note, is_wordy=True),)
    )


def _operation(row: OperationDelta) -> tuple[Cell, ...]:
    is_counted = row.base_count is not None and row.head_count is not None
    hint = row.name if row.name == row.base_name else f"{row.base_name}{_ARROW}{row.name}"
    return (
        Cell(operation_name(row, most=_LONGEST_NAME), hint=hint[:2_000]),
        Cell(row.path),
        Cell(row.cause, Wall(row.cause.partition("/")[0])),
        Cell(units.signed_milliseconds(row.delta_ns)),
        Cell(units.signed_milliseconds(row.count_delta_ns) if is_counted else ""),
        Cell(units.signed_milliseconds(row.rate_delta_ns) if is_counted else ""),
        Cell(_counts(row)),
        Cell(row.matched_by),
    )


def _counts(row: OperationDelta) -> str:
    if row.base_count is None or row.head_count is None:
        return ""
    ours, theirs = (_count(value) for value in (row.base_count, row.head_count))
    return ours if ours == theirs else f"{ours}{_ARROW}{theirs}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def communication(comparison: Comparison) -> Section | None:
    """Volume, exposure, what is hidden, waiting for peers; `None` where neither side communicates."""
    if not comparison.communication:
        return None
    owned = sum(row.delta_ns for row in comparison.communication)
    waited = sum(row.peer_wait_delta_ns for row in comparison.communication)
    answer = (
        f"What communication owns changed by {units.signed_duration(owned)},"
        f" waiting for peers by {units.signed_duration(waited)} of it."
    )
    columns = (
        text("axis", "the dimension of the job that it is for"),
        Column("owns", "change of the time that it owns"),
        Column("peer wait", "of it, waiting for peers; part of unsplit time may be that too"),
        Column("exposed", "time in which it ran beside no compute, base and head"),
        Column("hidden", "share of its work beside compute, base and head"),
        Column("work", "durations added up, base and head"),
        Column("bytes", "as NCCL counts them, base and head"),
        Column("times a step", "operations, base and head"),
    )
    rows = tuple(
        cells(
            str(row.axis),
            units.signed_milliseconds(row.delta_ns),
            units.signed_milliseconds(row.peer_wait_delta_ns),
            _pair(units.milliseconds(row.base_exposed_ns), units.milliseconds(row.head_exposed_ns)),
            _pair(units.percent(row.base_hidden_share), units.percent(row.head_hidden_share)),
            _pair(units.milliseconds(row.base_work_ns), units.milliseconds(row.head_work_ns)),
            _pair(units.size(row.base_bytes), units.size(row.head_bytes)),
            _pair(_count(row.base_count), _count(row.head_count)),
        )
        for row in comparison.communication
    )
    return Section(
        "communication",
        "What of communication?",
        answer,
        (Grid("Communication by axis", columns, rows, is_wordy=True),),
        wall=Wall.COMMUNICATION,
    )


def _pair(base: str, head: str) -> str:
    return base if base == head else f"{base}{_ARROW}{head}"


def other_ranks(comparison: Comparison) -> Section | None:
    """Is it every rank? `None` where both sides have one alone."""
    if not comparison.ranks:
        return None
    columns = (text("rank"), Column("base"), Column("head"), Column("change"))
    rows = tuple(
        cells(
            f"rank {row.rank}" if row.rank is not None else f"device {row.device}",
            units.milliseconds(row.base_typical_ns),
            units.milliseconds(row.head_typical_ns),
            units.signed_percent(row.ratio - 1),
        )
        for row in comparison.ranks
    )
    slower = sum(row.ratio > 1 + comparison.step.margin_ratio for row in comparison.ranks)
    faster = sum(row.ratio < 1 / (1 + comparison.step.margin_ratio) for row in comparison.ranks)
    answer = (
        f"Of {units.plural(len(comparison.ranks), 'other rank')} {slower} took longer and {faster} shorter,"
        f" by more than {units.percent(comparison.step.margin_ratio)}."
    )
    return Section(
        "ranks",
        "Is it every rank?",
        answer,
        (Grid(f"Typical {comparison.window} of the other ranks", columns, rows),),
    )
