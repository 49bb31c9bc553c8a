"""Sentences about a comparison, shared by terminal, Markdown and JUnit."""

import re

from wallscope import units
from wallscope.model.comparison import Comparison, OperationDelta, StepChange
from wallscope.render.foreign import visible
from wallscope.thresholds import ASSUMED_OFF_SHARE

_LEAST_ROOM = 12
_ASSUMED = f"{100 * ASSUMED_OFF_SHARE:.0f} %"
_WORDS = {
    "regression": "SLOWER",
    "improvement": "FASTER",
    "no-change": "NO CHANGE",
    "inconclusive": "INCONCLUSIVE",
    "incomparable": "NOT COMPARABLE",
}


def name_verdict(comparison: Comparison) -> str:
    """Name the verdict in a word or two."""
    return _WORDS[comparison.verdict]


def describe_testbeds(comparison: Comparison) -> str:
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
        reasons = [entry for entry in comparison.mismatches if entry.severity == "incomparable"]
        said = "; ".join(
            f"{entry.what}: {visible(entry.base)} and {visible(entry.head)}" for entry in reasons
        )
        return f"{said}. No verdict; --override compares all the same."
    change_ns = step.head_typical_ns - step.base_typical_ns
    what = "repeated window" if comparison.window == "window" else comparison.window
    times = f"{what} {units.duration(step.base_typical_ns)} → {units.duration(step.head_typical_ns)}"
    size = f"{units.signed_percent(step.ratio - 1)}{_median(comparison)}{_interval(comparison)}"
    said = f"{times}: {_went(comparison, change_ns)} ({size})."
    mostly = _mostly(comparison, change_ns)
    return f"{said} {mostly}" if mostly else said


def _went(comparison: Comparison, change_ns: int) -> str:
    """The change; in words where the verdict does not tell its direction."""
    if comparison.verdict != "inconclusive" or not change_ns:
        return units.signed_duration(change_ns)
    return f"{'grew' if change_ns > 0 else 'shrank'} by {units.duration(abs(change_ns))}"


def _median(comparison: Comparison) -> str:
    """The change of the median, where nothing surer can be said."""
    step = comparison.step
    if comparison.verdict != "inconclusive" or not step.base_median_ns:
        return ""
    return f", median {units.signed_percent(step.head_median_ns / step.base_median_ns - 1)}"


def _interval(comparison: Comparison) -> str:
    low, high = comparison.step.ratio_low, comparison.step.ratio_high
    if low is None or high is None:
        return ", no interval"
    if comparison.step.replication == "same":
        return ""
    return f", 95 % interval {units.signed_percent(low - 1)} … {units.signed_percent(high - 1)}"


def _mostly(comparison: Comparison, change_ns: int) -> str:
    step = comparison.step
    is_hidden = any(entry.code == "opaque-graphs" for entry in comparison.explanations)
    if is_hidden or max(step.ratio, 1 / step.ratio) <= 1 + step.margin_ratio:
        return ""
    largest = max(comparison.deltas.walls, key=lambda row: row.delta_ns if change_ns > 0 else -row.delta_ns)
    return f"Mostly {largest.wall}: {units.signed_duration(largest.delta_ns)}."


def describe_sureness(comparison: Comparison) -> str:
    """Say what the interval rests on, and what it could tell at all."""
    step = comparison.step
    if step.replication == "same":
        return "Both sides are the same capture."
    counted = _counted(comparison)
    if step.replication == "none" or step.minimum_detectable_ratio is None:
        return f"{counted}: too few to tell chance from change."
    told = f"a change of {units.percent(step.minimum_detectable_ratio - 1)} could be told"
    known = "" if step.replication == "runs" else f"; {_noise(step)}"
    return f"{_doubt(comparison)}{counted}{known}; {told}."


def _counted(comparison: Comparison) -> str:
    step = comparison.step
    if step.base_runs == step.head_runs == 1:
        return f"{step.base_steps} and {units.plural(step.head_steps, comparison.window)}, one run a side"
    ours, theirs = (
        f"{units.plural(count, comparison.window)} of {units.plural(runs, 'run')}"
        for count, runs in ((step.base_steps, step.base_runs), (step.head_steps, step.head_runs))
    )
    return f"{ours} and {theirs}"


def _doubt(comparison: Comparison) -> str:
    """Why a verdict is none."""
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


def _noise(step: StepChange) -> str:
    """What one run a side says of other runs."""
    if step.run_noise_source != "assumed":
        return f"runs are known to differ by {units.percent(step.run_noise)}"
    said = f"nothing is recorded of other runs, so each is taken to be off by up to {_ASSUMED}"
    low, high = step.pair_ratio_low, step.pair_ratio_high
    if low is None or high is None:
        return said
    pair = f"{units.signed_percent(low - 1)} … {units.signed_percent(high - 1)}"
    return f"{said} (the steps of this pair alone: {pair})"


def name_operation(row: OperationDelta, most: int = 80) -> str:
    """Name an operation in a line: its name, or both if it was replaced, and the innermost range around it.

    Names go without their arguments; of time on the host outside calls the range alone is known.
    """
    mark = {"only in base": "gone: ", "only in head": "new: "}.get(row.matched_by, "")
    name, before = _short(row.name), _short(row.base_name)
    around = row.path.rpartition(" / ")[2]
    if name and before and name != before:
        half = (most - 3) // 2
        return f"{visible(before, most=half)} → {visible(name, most=half)}"
    if not (name or before):
        return visible(mark + (around or row.category), most=most)
    said = visible(mark + (name or before), most=most)
    room = most - len(said) - 4
    return f"{said} in {visible(around, most=room)}" if around and room >= _LEAST_ROOM else said


def _short(name: str) -> str:
    """A name without template arguments and parameters, unless nothing else is in it.

    >>> _short("void at::native::reduce_kernel<(int)512>(T3)"), _short("(anonymous)")
    ('at::native::reduce_kernel', '(anonymous)')
    """
    return re.split(r"[<(]", name, maxsplit=1)[0].removeprefix("void ").strip() or name
