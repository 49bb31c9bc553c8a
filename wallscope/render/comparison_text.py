"""Sentences about a comparison, shared by terminal, Markdown and JUnit."""

import re

from wallscope import units
from wallscope.model.comparison import Comparison, OperationDelta
from wallscope.render.foreign import visible

_LEAST_ROOM = 12
_WORDS = {
    "regression": "SLOWER",
    "improvement": "FASTER",
    "no-change": "NO CHANGE",
    "inconclusive": "INCONCLUSIVE",
    "incomparable": "NOT COMPARABLE",
}


def verdict_word(comparison: Comparison) -> str:
    """The verdict in a word or two."""
    return _WORDS[comparison.verdict]


def headline(comparison: Comparison) -> str:
    """What became of the typical step, how sure that is, and which wall has most of it."""
    step = comparison.step
    if comparison.verdict == "incomparable":
        reasons = [entry for entry in comparison.mismatches if entry.severity == "incomparable"]
        said = "; ".join(
            f"{entry.what}: {visible(entry.base)} and {visible(entry.head)}" for entry in reasons
        )
        return f"{said}. No verdict; --override compares all the same."
    change_ns = step.head_typical_ns - step.base_typical_ns
    times = f"{units.duration(step.base_typical_ns)} → {units.duration(step.head_typical_ns)}"
    size = (
        f"{units.signed_duration(change_ns)} ({units.signed_percent(step.ratio - 1)}{_interval(comparison)})"
    )
    said = f"{comparison.window} {times}: {size}."
    mostly = _mostly(comparison, change_ns)
    return f"{said} {mostly}" if mostly else said


def _interval(comparison: Comparison) -> str:
    low, high = comparison.step.ratio_low, comparison.step.ratio_high
    if low is None or high is None:
        return ", no interval"
    if comparison.step.replication == "same":
        return ""
    return f", 95 % interval {units.signed_percent(low - 1)} … {units.signed_percent(high - 1)}"


def _mostly(comparison: Comparison, change_ns: int) -> str:
    step = comparison.step
    if max(step.ratio, 1 / step.ratio) <= 1 + step.margin_ratio:
        return ""
    largest = max(comparison.deltas.walls, key=lambda row: row.delta_ns if change_ns > 0 else -row.delta_ns)
    return f"Mostly {largest.wall}: {units.signed_duration(largest.delta_ns)}."


def sureness(comparison: Comparison) -> str:
    """What the interval rests on, and what it could tell at all."""
    step = comparison.step
    if step.replication == "same":
        return "Both sides are the same capture."
    ours, theirs = (units.plural(count, comparison.window) for count in (step.base_steps, step.head_steps))
    runs = f"{units.plural(step.base_runs, 'run')} and {units.plural(step.head_runs, 'run')}"
    counted = f"{ours} and {theirs} of {runs}"
    if step.replication == "none" or step.minimum_detectable_ratio is None:
        return f"{counted}: too few to tell chance from change."
    told = f"a change of {units.percent(step.minimum_detectable_ratio - 1)} could be told"
    if step.replication == "runs":
        return f"{counted}; {told}."
    if step.run_noise is not None:
        return f"{counted}; runs are known to differ by {units.percent(step.run_noise)}; {told}."
    return f"{counted}: this pair alone, other runs may differ; {told}."


def operation_name(row: OperationDelta, most: int = 80) -> str:
    """An operation in a line: its name, or both if it was replaced, and the innermost range around it.

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
