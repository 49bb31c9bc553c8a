"""The answers at the top of the page of a comparison, and what to do next."""

import shlex
from collections.abc import Iterator
from math import sqrt
from typing import Literal

import numpy as np

from wallscope import units
from wallscope.model.comparison import Comparison, OperationChange
from wallscope.model.enums import Grade, Wall
from wallscope.model.section import KeyAnswer
from wallscope.records import dataclass
from wallscope.render.texts import visible
from wallscope.summary.diagnosis import decide_wall
from wallscope.views import comparison_words as words
from wallscope.views.comparison_claims import (
    describe_settling,
    find_leading_cause,
    find_leading_wall,
    grade_leading_cause,
)
from wallscope.views.comparison_words import (
    describe_calls,
    describe_place,
    find_unexplained_causes,
    select_operations,
)
from wallscope.views.sections.words import split_cause
from wallscope.views.verdict import name_wall_time

_DECIDED = frozenset({"regression", "improvement"})
_SURENESS = {
    "no-change": "Within the margin",
    "inconclusive": "Not conclusive",
    "incomparable": "Not comparable",
}
_MOST_SHARES = 2
WallOfSide = tuple[str, float | None]


def build_comparison_answers(comparison: Comparison) -> tuple[KeyAnswer, ...]:
    """List the answers in the order in which a reader asks for them."""
    return (
        _answer_cause_of_change(comparison),
        _answer_next_step(comparison),
        _answer_sureness_of_change(comparison),
    )


def _answer_cause_of_change(comparison: Comparison) -> KeyAnswer:
    """Name what explains most of the change, if that is certain."""
    label, step, named = "Cause of the change", comparison.step, words.name_leading_change(comparison)
    amount, window = units.signed_duration(named.delta_ns), comparison.window
    if comparison.verdict == "incomparable":
        return KeyAnswer(label, "Unknown", ("The sides cannot be compared.",), "changed")
    if find_leading_wall(comparison) is None:
        line = "No change is large enough to be a cause."
        if named.cause:
            line = f"The largest change may be chance: {named.text}, {amount}."
        return KeyAnswer(label, "Unknown", (line,), "changed")
    grade = grade_leading_cause(comparison)
    label = "One part that changed" if comparison.verdict == "inconclusive" else label
    label = label if grade == Grade.SURE else f"{label}, {grade}"
    is_described = named.is_explained or not named.cause
    head, more = (units.capitalize(named.text), ()) if is_described else split_cause(named.cause)
    whole = units.signed_duration(step.change_ns)
    return KeyAnswer(label, head, (f"{amount}; the {window}: {whole}.", *more), "changed", named.wall)


def _answer_next_step(comparison: Comparison) -> KeyAnswer:
    """Say what to do next."""
    label, command = "Do next", write_next_command(comparison)
    if comparison.verdict == "improvement":
        rest = _describe_rest(comparison)
        return KeyAnswer(label, "Keep the change, and analyze head", rest, command=command)
    if comparison.verdict == "regression":
        first = describe_head(comparison)
        is_named = find_leading_wall(comparison) is not None
        head = "Undo the change, or remove its cause" if is_named else "Undo the change, or find its cause"
        ceiling = units.write_ceiling(comparison.step.compared_ratio)
        lines = [*([first] if first else []), f"Undoing it would gain {ceiling}."]
        return KeyAnswer(label, head, tuple(lines), command=command)
    step = next(_list_captures_to_add(comparison), None)
    if step is None:
        return KeyAnswer(label, "Nothing", ("The step time did not change by more than the margin.",))
    return KeyAnswer(label, step.do, tuple(filter(None, (step.then,))), command=command)


def _describe_rest(comparison: Comparison) -> tuple[str, ...]:
    """Say what limits a faster head, and what it could still win at most."""
    step = comparison.step
    compute_ns = sum(row.head_ns for row in comparison.deltas.walls if row.wall == Wall.COMPUTE)
    if has_opaque_graphs(comparison) or not compute_ns:
        return ("The page of head has its own recommendations.",)
    bound = units.write_ceiling(step.head_ns / compute_ns)
    ends = units.join_ends(units.duration(step.head_ns), units.duration(compute_ns), " \N{RIGHTWARDS ARROW} ")
    return (describe_head(comparison), f"If only its compute remained: {ends}, {bound}.")


def _answer_sureness_of_change(comparison: Comparison) -> KeyAnswer:
    """Say how sure the verdict is, and what is uncertain."""
    step, verdict = comparison.step, comparison.verdict
    lines = []
    low, high = step.compared_low, step.compared_high
    if step.replication != "same" and low is not None and high is not None:
        change = words.write_ratio_of_change(step)
        lines.append(f"The change is {change}, 95 % CI {words.write_interval(low, high)}.")
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
    is_sure = verdict in {*_DECIDED, "no-change"} and not confounders
    doubted = units.capitalize("; ".join(doubts)) if is_sure else f"Uncertain: {'; '.join(doubts)}"
    lines.append(f"{doubted}." if doubts else "No other difference explains the change.")
    if (
        verdict in _DECIDED
        and find_leading_wall(comparison)
        and grade_leading_cause(comparison) != Grade.SURE
    ):
        lines.append(f"Its cause is {grade_leading_cause(comparison)}; {describe_settling(comparison)}.")
    tone: Literal["ok", "warn"] = "ok" if is_sure else "warn"
    head = _SURENESS.get(verdict, units.capitalize(step.grade or Grade.SURE))
    head = "Other causes possible" if confounders and verdict in _DECIDED else head
    return KeyAnswer("How sure", head, tuple(lines), "sure", tone=tone)


def explain_wide_intervals(comparison: Comparison) -> str:
    """Say why the interval of a wall is wider than that of the whole step; empty where none is."""
    step = comparison.step
    low, high = step.compared_low, step.compared_high
    if low is None or high is None or step.run_noise is None:
        return ""
    whole_ns = (high - low) * step.base_ns
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


def describe_head(comparison: Comparison) -> str:
    """Describe what limits a faster head now, or what to look at first in a slower one; else empty."""
    if comparison.verdict == "improvement":
        return _describe_wall_of_head(comparison)
    if comparison.verdict != "regression" or (row := _find_first_operation(comparison)) is None:
        return ""
    return f"Look first at {describe_place(row)}: {describe_calls(row)}."


def _describe_wall_of_head(comparison: Comparison) -> str:
    """Describe the dominant wall of head's step and its share, by the rules of `analyze`."""
    window = f"{comparison.step.compared} {comparison.window}"
    found = decide_wall_of_side(comparison, "head")
    if found is None:
        return ""
    dominant, share = found
    times_ns = {row.wall: row.head_ns for row in comparison.deltas.walls}
    whole_ns = sum(times_ns.values())
    if share is not None:
        taken = f"{units.percent(share)} of its {window}"
        if dominant == Wall.COMPUTE:
            return f"Head is compute-bound: compute takes {taken}."
        useful = units.percent(times_ns[Wall.COMPUTE] / whole_ns)
        return f"Head is {dominant}-bound: {name_wall_time(Wall(dominant))} takes {taken}, compute {useful}."
    if dominant == "unknown":
        return f"The dominant wall of head's {window} is unknown."
    largest = sorted(times_ns, key=lambda wall: -times_ns[wall])[:_MOST_SHARES]
    shares = " and ".join(f"{wall} takes {units.percent(times_ns[wall] / whole_ns)}" for wall in largest)
    return f"No single wall dominates head now: {shares} of its {window}."


def decide_wall_of_side(comparison: Comparison, side: Literal["base", "head"]) -> WallOfSide | None:
    """Return the dominant wall of a side's compared step and its share, `None` for mixed and unknown.

    There is no answer without time, or where the work inside CUDA graphs was not traced.
    """
    times_ns: dict[Wall, int] = {row.wall: getattr(row, f"{side}_ns") for row in comparison.deltas.walls}
    whole_ns = sum(times_ns.values())
    if not whole_ns or has_opaque_graphs(comparison):
        return None
    unresolved = np.array([[times_ns[Wall.UNATTRIBUTED], 0, 0]], np.int64)
    found = decide_wall(np.array([[times_ns[wall] for wall in Wall]], np.int64), unresolved)
    dominant = str(found.dominant)
    return dominant, times_ns[Wall(dominant)] / whole_ns if dominant in times_ns else None


def has_opaque_graphs(comparison: Comparison) -> bool:
    """Return whether the time of CUDA graphs hides what changed."""
    return any(entry.code == "opaque-graphs" for entry in comparison.explanations)


def _find_first_operation(comparison: Comparison) -> OperationChange | None:
    """Return the operation that surely adds most to the wall that made the step slower, if any."""
    leading = find_leading_wall(comparison)
    if leading is None or has_opaque_graphs(comparison):
        return None
    rows = select_operations(comparison, len(comparison.operations))
    own = (row for row in rows if row.wall == leading.wall and row.significant and row.delta_ns > 0)
    return next(own, None)


def write_next_command(comparison: Comparison, named: str = "") -> str:
    """Write the command to run next: analyze a faster head, explain a slower one; else empty.

    `named` is how the user named head, where that is known, so that the command runs as it stands.
    """
    head = comparison.head
    if comparison.verdict == "improvement" and head.commit is None:
        name = named or (head.inputs[0] if len(head.inputs) == 1 else head.name)
        return f"wallscope analyze {shlex.quote(visible(name))}"
    if comparison.verdict == "regression" and (cause := find_leading_cause(comparison)):
        return f"wallscope explain {cause.cause}"
    return ""


@dataclass(frozen=True, slots=True)
class NextStep:
    """What to do next in a few words without a period, and the sentences that may follow."""

    do: str
    then: str = ""

    def write(self) -> str:
        """Write all of it."""
        return f"{self.do}. {self.then}".rstrip()


def list_next_steps(comparison: Comparison, named: str = "") -> Iterator[str]:
    """List what to do next: what would decide an open comparison, else what to look at.

    `named` is how the user named head.
    """
    yield from (one.write() for one in _list_captures_to_add(comparison))
    if command := write_next_command(comparison, named):
        yield command


def _list_captures_to_add(comparison: Comparison) -> Iterator[NextStep]:
    """List what to capture or to give, in order of need."""
    step = comparison.step
    if comparison.verdict == "incomparable":
        yield NextStep("Compare captures of the same work", "To compare these runs anyway, add --override.")
        return
    if step.replication == "same":
        yield NextStep("Give captures of two different runs")
        return
    if step.replication == "none":
        yield NextStep("Capture at least 10 steps of each side")
    elif comparison.verdict == "inconclusive":
        runs = "3 or more runs" if max(step.base_runs, step.head_runs) < 3 else "more runs"
        decides = ""
        if step.runs_to_decide is not None:
            runs = units.plural(step.runs_to_decide - min(step.base_runs, step.head_runs), "more run")
            decides = "That would probably decide. "
        yield NextStep(
            f"Capture {runs} of each side", f"{decides}Compare folders: wallscope diff base/ head/"
        )
    if find_unexplained_causes(comparison):
        yield NextStep("Analyze each run with --config FILE", "Then settings are compared too.")
