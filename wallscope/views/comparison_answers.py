"""The five answers at the top of the page of a comparison: wall, cause, next action, bound, doubts."""

import re
from math import sqrt
from typing import Literal

from wallscope import units
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.comparison import Comparison
from wallscope.model.enums import Wall
from wallscope.views import comparison_next as following
from wallscope.views import comparison_words as words
from wallscope.views.page_skeleton import KeyAnswer, split_cause

_DECIDED = frozenset({"regression", "improvement"})
_PARTS = re.compile(r", (?:and )?|(?<=side) and ")
_SURENESS = {
    "regression": "Significant",
    "improvement": "Significant",
    "no-change": "Within the margin",
    "inconclusive": "Not conclusive",
    "incomparable": "Not comparable",
}


def build_comparison_answers(comparison: Comparison) -> tuple[KeyAnswer, ...]:
    """List the answers in the order in which a reader asks for them."""
    return (
        _answer_wall(comparison),
        _answer_cause(comparison),
        _answer_action(comparison),
        _answer_bound(comparison),
        _answer_sureness(comparison),
    )


def _answer_wall(comparison: Comparison) -> KeyAnswer:
    """Name the wall of head, and that of base."""
    label = "Wall of head"
    base, head = (following.decide_wall_of_side(comparison, side) for side in ("base", "head"))
    if head is None or base is None:
        is_opaque = following.has_opaque_graphs(comparison)
        line = "The work inside CUDA graphs was not traced." if is_opaque else "A side has no measured time."
        return KeyAnswer(label, "Unknown", (line,), "breakdown")
    names = [_name_wall(*one) for one in (base, head)]
    walls = [Wall(one[0]) if one[0] in set(Wall) else None for one in (base, head)]
    return KeyAnswer(
        label,
        units.capitalize(names[1]),
        (f"of the typical {comparison.window}; base: {names[0]}.",),
        "breakdown",
        walls[1],
    )


def _name_wall(dominant: str, share: float | None) -> str:
    if share is None:
        return "unknown" if dominant == "unknown" else "no single wall"
    return f"{dominant} {units.percent(share)}"


def _answer_cause(comparison: Comparison) -> KeyAnswer:
    """Name what explains most of the change, if that is certain."""
    label, step = "Cause of the change", comparison.step
    change_ns = step.head_typical_ns - step.base_typical_ns
    leading, cause = words.find_leading_wall(comparison), words.find_leading_cause(comparison)
    if leading is None or cause is None or comparison.verdict == "incomparable":
        is_compared = comparison.verdict != "incomparable"
        line = "No wall changed for certain." if is_compared else "The sides cannot be compared."
        if cause is not None and comparison.verdict == "inconclusive":
            line = f"Largest change: {describe_cause(cause.cause)}, {units.signed_duration(cause.delta_ns)}."
        return KeyAnswer(label, "None is certain", (line,), "changed")
    found = words.list_explanations(comparison, is_brief=True)
    same = [(delta_ns, text) for delta_ns, text in found if (delta_ns or 0) * change_ns > 0]
    whole = f"the {comparison.window}: {units.signed_duration(change_ns)}."
    if same:
        delta_ns, text = same[0]
        head, _, parts = text.partition(": ")
        changes = (f"{units.capitalize(parts)}.",) if parts else ()
        line = f"{'Together ' if parts else ''}{units.signed_duration(delta_ns or 0)}; {whole}"
        return KeyAnswer(label, head, (*changes, line), "changed", leading.wall)
    line = f"{units.signed_duration(cause.delta_ns)}; {whole}"
    name, more = split_cause(cause.cause)
    return KeyAnswer(label, name, (line, *more), "changed", cause.wall)


def _answer_action(comparison: Comparison) -> KeyAnswer:
    """Say what to do next."""
    label, command = "Do next", following.write_next_command(comparison)
    if comparison.verdict == "improvement":
        head, line = "Keep the change, and analyze head", "The page of head has its own recommendations."
        return KeyAnswer(label, head, (line,), command=command)
    if comparison.verdict == "regression":
        first = following.describe_head(comparison)
        head = "Undo the change, or remove its cause"
        return KeyAnswer(label, head, (first,) if first else (), command=command)
    steps = [one for one in following.list_next_steps(comparison) if one != command]
    if not steps:
        return KeyAnswer(label, "Nothing", ("The step time did not change by more than the margin.",))
    head, *rest = _PARTS.split(steps[0], maxsplit=1)
    return KeyAnswer(label, head, tuple(map(units.capitalize, rest)), command=command)


def _answer_bound(comparison: Comparison) -> KeyAnswer:
    """Give what undoing a slower head wins, and what a faster head could still win at most."""
    step, window = comparison.step, comparison.window
    times_ns = [(step.head_typical_ns, step.base_typical_ns), (step.head_mean_ns, step.base_mean_ns)]
    slower = [(head_ns, base_ns) for head_ns, base_ns in times_ns if head_ns > base_ns > 0]
    if comparison.verdict == "regression" and slower:
        return _write_bound(*slower[0], "By undoing the change.")
    compute_ns = sum(row.head_ns for row in comparison.deltas.walls if row.wall == Wall.COMPUTE)
    if comparison.verdict != "improvement" or following.has_opaque_graphs(comparison) or not compute_ns:
        return KeyAnswer(
            "Upper bound", "Not estimated", (f"A bound needs a certain change of the {window}.",)
        )
    line = "If all of head but compute took no time, with today's kernels."
    return _write_bound(step.head_typical_ns, compute_ns, line)


def _write_bound(before_ns: int, after_ns: int, line: str) -> KeyAnswer:
    before, after, share = units.duration(before_ns), units.duration(after_ns), after_ns / before_ns
    return KeyAnswer(
        "Upper bound", f"up to {1 / share:.2f}x", (line,), predicted=(before, after, min(share, 1.0))
    )


def _answer_sureness(comparison: Comparison) -> KeyAnswer:
    """Say how sure the verdict is, and what is uncertain."""
    step, verdict = comparison.step, comparison.verdict
    lines = []
    if step.replication != "same" and step.ratio_low is not None and step.ratio_high is not None:
        lines.append(f"95 % CI {words.write_interval(step.ratio_low, step.ratio_high)}.")
    doubts = []
    if step.replication == "same":
        doubts.append("both sides are the same capture")
    elif step.replication == "none":
        doubts.append("too few steps")
    elif step.run_noise_source == "assumed":
        doubts.append("the noise between runs is assumed, not measured")
    confounders = len(words.find_confounders(comparison))
    if confounders:
        doubts.append(f"{units.plural(confounders, 'other difference')} could explain the change")
    lines.append(f"Uncertain: {'; '.join(doubts)}." if doubts else "No other difference explains the change.")
    is_sure = verdict in {*_DECIDED, "no-change"} and not confounders
    tone: Literal["ok", "warn"] = "ok" if is_sure else "warn"
    head = "Other causes possible" if confounders and verdict in _DECIDED else _SURENESS[verdict]
    return KeyAnswer("How sure", head, tuple(lines), "sure", tone=tone)


def explain_wide_intervals(comparison: Comparison) -> str:
    """Say why the interval of a wall is wider than that of the whole step; empty where none is."""
    step = comparison.step
    if step.ratio_low is None or step.ratio_high is None or step.run_noise is None:
        return ""
    whole_ns = (step.ratio_high - step.ratio_low) * step.base_typical_ns
    wide = [
        row
        for row in comparison.deltas.walls
        if row.low_ns is not None and row.high_ns is not None and row.high_ns - row.low_ns > whole_ns
    ]
    noises = [row.run_noise for row in wide if row.run_noise and row.run_noise_source == "assumed"]
    if max(noises, default=0.0) <= step.run_noise:
        return ""
    most = 100 * sqrt(3) * step.run_noise  # evenly up to as much has that deviation
    window = comparison.window
    return (
        f"A wall can have a wider interval than the {window}: walls are assumed to vary more between runs"
        f" ({100 * max(noises):.2g} %, standard deviation) than the {window} (up to {most:.2g} %)."
    )
