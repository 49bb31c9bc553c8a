"""A comparison in every medium: whether to revert comes first, then where the time went."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from wallscope import units
from wallscope.model.comparison import Comparison, StepChange
from wallscope.model.report import ComparisonReport
from wallscope.model.section import (
    Cell,
    Column,
    Grid,
    Line,
    Lines,
    Section,
    Span,
    Tone,
    on_markdown,
    tabulate,
)
from wallscope.render.data import write_junit
from wallscope.render.html import render_page, write_card
from wallscope.render.markdown import code, escape, render_table
from wallscope.render.terminal import render_sections
from wallscope.render.texts import visible
from wallscope.thresholds import ASSUMED_OFF_SHARE, SHOWN_CHANGE_SHARE
from wallscope.views.sections import comparison as sections
from wallscope.views.sections.findings import build_comparison_methods

_MOST_EXPLANATIONS, _MOST_RANKS = 4, 8
_MOST_DIFFERENCES, _MOST_CAUSES_FIRST = 6, 5
_VERDICTS: dict[str, tuple[str, Tone]] = {
    "regression": ("SLOWER", "bad"),
    "improvement": ("FASTER", "best"),
    "no-change": ("NO CHANGE", "strong"),
    "inconclusive": ("INCONCLUSIVE", "doubt"),
    "incomparable": ("NOT COMPARABLE", "doubt"),
}


def render_comparison(comparison: Comparison) -> RenderableType:
    """Render the whole comparison for a terminal."""
    return render_sections(_build_summary(comparison))


def _build_summary(comparison: Comparison) -> Iterator[Section | Grid]:
    """Make what a terminal shows: the verdict, then where the time went."""
    yield Section("head", "", "", (Lines(tuple(_describe_head(comparison))),))
    if comparison.explanations:
        lines = tuple(
            f"• {'' if entry.delta_ns is None else f'{units.signed_duration(entry.delta_ns)}  '}"
            f"{visible(entry.message, most=300)}"
            for entry in comparison.explanations[:_MOST_EXPLANATIONS]
        )
        yield Section("explanations", "", "", (Lines(lines),))
    yield sections.sum_walls(comparison)
    if comparison.deltas.causes:
        yield sections.list_cause_changes(comparison)
        yield sections.tabulate_operations(comparison)
    if any(row.delta_ns for row in comparison.communication):
        yield sections.tabulate_communication(comparison)
    if comparison.ranks:
        yield sections.tabulate_rank_changes(comparison, _MOST_RANKS)
    if comparison.mismatches:
        title = "Not only the time" if comparison.comparable else "Not comparable"
        yield Section("mismatches", title, "", (Lines(tuple(_describe_mismatches(comparison))),))
    if comparison.gates:
        gates = []
        for gate in comparison.gates:
            text = f"{gate.gate}: {gate.evidence}"
            gates.append((Span(f"held    {text}") if gate.held else Span(f"FAILED  {text}", "bad"),))
        yield Section("gates", "Gates", "", (Lines(tuple(gates)),))


def _describe_head(comparison: Comparison) -> Iterator[Line]:
    yield f"{visible(comparison.base.name, most=60)} → {visible(comparison.head.name, most=60)}"
    if testbeds := _describe_testbeds(comparison):
        yield (Span(testbeds, "dim"),)
    yield Span(*_VERDICTS[comparison.verdict]), f"  {describe_change(comparison)}"
    yield (Span(describe_sureness(comparison), "dim"),)


def _describe_mismatches(comparison: Comparison) -> Iterator[Line]:
    for entry in comparison.mismatches:
        values = f"{visible(entry.base)} → {visible(entry.head)}"
        if entry.base == entry.head:
            values = f"{visible(entry.base)} on both sides"
        yield (Span(f"{entry.what}: {values}", "strong" if entry.severity == "incomparable" else None),)


def write_comparison_markdown(comparison: Comparison) -> str:
    """Write it for pull requests and job summaries; foreign names can't make links or mentions."""
    testbeds = _describe_testbeds(comparison)
    lines = [
        f"### wallscope: {_name_verdict(comparison).lower()}",
        "",
        f"{code(comparison.base.name)} → {code(comparison.head.name)}  ",
        *([f"{escape(testbeds)}  "] if testbeds else []),
        f"**{escape(describe_change(comparison))}**",
        "",
        escape(describe_sureness(comparison)),
        "",
    ]
    for entry in comparison.explanations:
        size = "" if entry.delta_ns is None else f"**{units.signed_duration(entry.delta_ns)}** "
        lines.append(f"- {size}{escape(entry.message)}")
    lines += [""] if comparison.explanations else []
    lines += render_table(_tabulate_gates(comparison)) if comparison.gates else []
    lines += render_table(sections.sum_walls(comparison))
    if comparison.deltas.causes:
        lines += ["<details><summary>Causes and operations</summary>", ""]
        lines += render_table(sections.sum_causes(comparison))
        lines += [*render_table(sections.sum_operations(comparison)), "</details>", ""]
    lines += render_table(sections.tabulate_mismatches(comparison)) if comparison.mismatches else []
    return "\n".join(lines).rstrip() + "\n"


def _tabulate_gates(comparison: Comparison) -> Grid:
    def held(gate: Any) -> Cell:
        return Cell("held") if gate.held else Cell("failed", tone="strong")

    columns = (
        on_markdown("gate", "gate", "code", most=120),
        on_markdown("held", "", value=held),
        on_markdown("evidence", "evidence", most=500),
    )
    return tabulate("Gates", columns, comparison.gates)


def write_comparison_card(comparison: Comparison) -> str:
    """Write what a notebook shows: the verdict, and walls of both sides with their difference."""
    step, sides = comparison.step, (Column("base", "base", "ms"), Column("head", "head", "ms"))
    columns = (Column("wall", "wall"), *sides, Column("change", "change", "signed_ms"))
    walls = [(str(row.wall), row.base_ns, row.head_ns) for row in comparison.deltas.walls]
    walls.append(("all", step.base_typical_ns, step.head_typical_ns))
    rows = tuple((name, base_ns, head_ns, head_ns - base_ns) for name, base_ns, head_ns in walls)
    names = f"{comparison.base.name} → {comparison.head.name}"
    verdict = f"{_name_verdict(comparison)}. {describe_change(comparison)}"
    return write_card(names, verdict, Grid("", columns, rows), {}, ())


def write_comparison_junit(comparison: Comparison) -> str:
    """Write a test case a gate; without gates one, which fails by a regression."""
    change = describe_change(comparison)
    is_held = comparison.verdict not in {"regression", "incomparable"}
    cases = [(gate.gate, gate.held, gate.evidence) for gate in comparison.gates]
    return write_junit("diff", cases or [("verdict", is_held, f"{comparison.verdict}: {change}")], change)


def write_comparison_page(report: ComparisonReport) -> str:
    """Write the comparison as one HTML file."""
    comparison = report.comparison
    names = f"{comparison.base.name} → {comparison.head.name}"
    shown = (
        sections.build_step_changes(report),
        sections.build_rank_changes(comparison),
        sections.build_cause_changes(comparison),
        sections.build_operations(comparison),
        sections.build_communication(comparison),
        sections.build_comparability(report),
        build_comparison_methods(report),
    )
    title = f"{names}: {_name_verdict(comparison).lower()}"
    first = _build_first_screen(report, names)
    return render_page("comparison.html.j2", title, shown, comparison=comparison, first=first)


def _build_first_screen(report: ComparisonReport, names: str) -> dict[str, Any]:
    """Make whether it got slower, how sure that is, by what, and whether gates held."""
    comparison, step, head = report.comparison, report.comparison.step, report.comparison.head
    changed = comparison.deltas.causes
    least_ns = step.base_typical_ns * SHOWN_CHANGE_SHARE
    shown = max(sum(abs(row.delta_ns) >= least_ns for row in changed[:_MOST_CAUSES_FIRST]), 1)
    taken = [
        f"{name} captured {units.utc(side.inputs[0].session_start_utc_ns)}"
        for name, side in (("base", report.base), ("head", report.head))
    ]
    rank = f"rank {head.rank}" if head.rank is not None else "one rank"
    lengths_ns = {"base": step.base_typical_ns, "head": step.head_typical_ns}
    longest_ns = max(*lengths_ns.values(), 1)
    sides = []
    for side, whole_ns in lengths_ns.items():
        times_ns = {row.wall: getattr(row, f"{side}_ns") for row in comparison.deltas.walls}
        parts = [(wall, ns / longest_ns, units.milliseconds(ns)) for wall, ns in times_ns.items()]
        sides.append((side, units.milliseconds(whole_ns), parts, (longest_ns - whole_ns) / longest_ns))
    return {
        "names": names,
        "origin": " · ".join((head.gpu or "GPU unknown", rank, *taken)),
        "word": _name_verdict(comparison),
        "headline": describe_change(comparison),
        "sureness": describe_sureness(comparison),
        "sides": sides,
        "walls": sections.sum_walls(comparison),
        "gates": sorted(comparison.gates, key=lambda gate: gate.held),
        "failed": sum(not gate.held for gate in comparison.gates),
        "causes": changed[:shown],
        "rest": changed[shown:],
        "rest_ns": sum(row.delta_ns for row in changed[shown:]),
        "differences": comparison.mismatches[:_MOST_DIFFERENCES],
        "more_differences": max(len(comparison.mismatches) - _MOST_DIFFERENCES, 0),
    }


def _name_verdict(comparison: Comparison) -> str:
    return _VERDICTS[comparison.verdict][0]


def _describe_testbeds(comparison: Comparison) -> str:
    """Say what both sides ran on, of records; empty for runs that come from no store."""
    ours, theirs = comparison.base.testbed, comparison.head.testbed
    if ours is None or theirs is None:
        return ""
    if ours == theirs:
        return f"Both on {visible(ours, most=200)}"
    return f"Configured differently: {visible(ours, most=200)} → {visible(theirs, most=200)}"


def describe_change(comparison: Comparison) -> str:
    """Say what became of the typical step, how sure that is, and which wall has most of it."""
    step = comparison.step
    if comparison.verdict == "incomparable":
        reasons = [
            f"{entry.what}: {visible(entry.base)} and {visible(entry.head)}"
            for entry in comparison.mismatches
            if entry.severity == "incomparable"
        ]
        return f"{'; '.join(reasons)}. No verdict; --override compares all the same."
    change_ns = step.head_typical_ns - step.base_typical_ns
    what = "repeated window" if comparison.window == "window" else comparison.window
    times = f"{what} {units.duration(step.base_typical_ns)} → {units.duration(step.head_typical_ns)}"
    went, median, interval = units.signed_duration(change_ns), "", ""
    if comparison.verdict == "inconclusive":  # no direction in one word, and the median says more
        if change_ns:
            went = f"{'grew' if change_ns > 0 else 'shrank'} by {units.duration(abs(change_ns))}"
        if step.base_median_ns:
            median = f", median {units.signed_percent(step.head_median_ns / step.base_median_ns - 1)}"
    if step.ratio_low is None or step.ratio_high is None:
        interval = ", no interval"
    elif step.replication != "same":
        interval = f", 95 % interval {_write_interval(step.ratio_low, step.ratio_high)}"
    size = f"{units.signed_percent(step.ratio - 1)}{median}{interval}"
    return f"{times}: {went} ({size}).{_describe_all_steps(step)}{_name_largest_wall(comparison, change_ns)}"


def _describe_all_steps(step: StepChange) -> str:
    """Say what became of the mean of all steps, where that surely changed and the typical step did not so."""
    low, high = step.mean_ratio_low, step.mean_ratio_high
    if low is None or high is None or low <= 1 <= high or not step.base_mean_ns:
        return ""
    ratio = step.head_mean_ns / step.base_mean_ns
    typical = step.ratio if (step.ratio_low or 0) > 1 or (step.ratio_high or 2) < 1 else 1.0
    if max(ratio, 1 / ratio) <= 1 + step.margin_ratio or abs(ratio - typical) <= step.margin_ratio:
        return ""
    return (
        f" The mean of all steps: {units.duration(step.base_mean_ns)} →"
        f" {units.duration(step.head_mean_ns)} ({units.signed_percent(ratio - 1)}, 95 % interval"
        f" {_write_interval(low, high)}); slow steps: {step.base_slow_steps} of {step.base_steps} →"
        f" {step.head_slow_steps} of {step.head_steps}."
    )


def _write_interval(low: float, high: float) -> str:
    return f"{units.signed_percent(low - 1)} … {units.signed_percent(high - 1)}"


def _name_largest_wall(comparison: Comparison, change_ns: int) -> str:
    """Name the wall that changed most; within the margin, walls that cancel each other."""
    step = comparison.step
    is_hidden = any(entry.code == "opaque-graphs" for entry in comparison.explanations)
    if is_hidden:
        return ""
    if max(step.ratio, 1 / step.ratio) <= 1 + step.margin_ratio:
        return _name_canceling_walls(comparison)
    largest = max(comparison.deltas.walls, key=lambda row: row.delta_ns if change_ns > 0 else -row.delta_ns)
    low_ns, high_ns = largest.low_ns, largest.high_ns
    if low_ns is None or high_ns is None or low_ns <= 0 <= high_ns:
        return ""
    return f" Mostly {largest.wall}: {units.signed_duration(largest.delta_ns)}."


def _name_canceling_walls(comparison: Comparison) -> str:
    """Name walls that surely changed in opposite directions, each by more than the margin."""
    step = comparison.step
    least_ns = step.margin_ratio * step.base_typical_ns
    sure = [
        row
        for row in comparison.deltas.walls
        if row.low_ns is not None
        and row.high_ns is not None
        and not row.low_ns <= 0 <= row.high_ns
        and abs(row.delta_ns) > least_ns
    ]
    if not sure or all(row.delta_ns > 0 for row in sure) or all(row.delta_ns < 0 for row in sure):
        return ""
    changes = [f"{row.wall} {units.signed_duration(row.delta_ns)}" for row in sure]
    return f" Walls changed in opposite directions: {', '.join(changes)}."


def describe_sureness(comparison: Comparison) -> str:
    """Say what the interval rests on, and what it could tell at all."""
    step, unit = comparison.step, comparison.window
    if step.replication == "same":
        return "Both sides are the same capture."
    if step.base_runs == step.head_runs == 1:
        counted = f"{step.base_steps} and {units.plural(step.head_steps, unit)}, one run a side"
    else:
        sides = ((step.base_steps, step.base_runs), (step.head_steps, step.head_runs))
        counted = " and ".join(
            f"{units.plural(count, unit)} of {units.plural(runs, 'run')}" for count, runs in sides
        )
    if step.replication == "none" or step.minimum_detectable_ratio is None:
        return f"{counted}: too few to tell chance from change."
    least = units.percent(step.minimum_detectable_ratio - 1)
    known = "" if step.replication == "runs" else f"; {_describe_noise(step)}"
    return f"{_describe_doubt(comparison)}{counted}{known}; a change of {least} could be told."


def _describe_doubt(comparison: Comparison) -> str:
    """Say why a verdict is none; else empty."""
    step = comparison.step
    low, high, margin = step.ratio_low, step.ratio_high, units.percent(step.margin_ratio)
    if comparison.verdict != "inconclusive" or low is None or high is None:
        return ""
    if low > 1 or high < 1:
        return f"That is a change, and may be less than the margin of {margin}. "
    pair = step.pair_ratio_low, step.pair_ratio_high
    if None not in pair and ((pair[0] or 0) > 1 or (pair[1] or 2) < 1):
        return "These two differ, by no more than runs of the same may. "
    return f"That may be chance, and no change within {margin} is shown either. "


def _describe_noise(step: StepChange) -> str:
    """Say what one run a side tells of other runs."""
    if step.run_noise_source != "assumed":
        return f"runs are known to differ by {units.percent(step.run_noise)}"
    off = f"{100 * ASSUMED_OFF_SHARE:.0f} %"
    noise = f"nothing is recorded of other runs, so each is taken to be off by up to {off}"
    low, high = step.pair_ratio_low, step.pair_ratio_high
    if low is None or high is None:
        return noise
    return f"{noise} (the steps of this pair alone: {_write_interval(low, high)})"
