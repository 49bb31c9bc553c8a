"""What to do after a comparison: what limits head now, what made it slower, and the next command."""

import shlex
from collections.abc import Iterator
from typing import Literal

import numpy as np

from wallscope import units
from wallscope.model.comparison import Comparison, OperationChange
from wallscope.model.enums import Wall
from wallscope.render.texts import visible
from wallscope.summary.diagnosis import decide_wall
from wallscope.views.comparison_words import (
    describe_calls,
    describe_place,
    find_leading_cause,
    find_leading_wall,
    find_unexplained_causes,
    select_operations,
)

_MOST_SHARES = 2
WallOfSide = tuple[str, float | None]


def describe_head(comparison: Comparison) -> str:
    """Describe what limits a faster head now, or what to look at first in a slower one; else empty."""
    if comparison.verdict == "improvement":
        return _describe_wall_of_head(comparison)
    if comparison.verdict != "regression" or (row := _find_first_operation(comparison)) is None:
        return ""
    return f"Look first at {describe_place(row)}: {describe_calls(row)}."


def _describe_wall_of_head(comparison: Comparison) -> str:
    """Describe the dominant wall of head's typical step and its share, by the rules of `analyze`."""
    found, window = decide_wall_of_side(comparison, "head"), f"typical {comparison.window}"
    if found is None:
        return ""
    dominant, share = found
    if share is not None:
        return f"Head is now {dominant}-bound: {dominant} takes {units.percent(share)} of its {window}."
    if dominant == "unknown":
        return f"The dominant wall of head's {window} is unknown."
    times_ns = {row.wall: row.head_ns for row in comparison.deltas.walls}
    whole_ns = sum(times_ns.values())
    largest = sorted(times_ns, key=lambda wall: -times_ns[wall])[:_MOST_SHARES]
    shares = " and ".join(f"{wall} takes {units.percent(times_ns[wall] / whole_ns)}" for wall in largest)
    return f"No single wall dominates head now: {shares} of its {window}."


def decide_wall_of_side(comparison: Comparison, side: Literal["base", "head"]) -> WallOfSide | None:
    """Return the dominant wall of a side's typical step and its share, `None` for mixed and unknown.

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


def list_next_steps(comparison: Comparison, named: str = "") -> Iterator[str]:
    """List what to do next: what would decide an open comparison, else what to look at.

    `named` is how the user named head.
    """
    step = comparison.step
    if comparison.verdict == "incomparable":
        yield "Compare captures of the same work, or add --override to compare these runs nevertheless."
        return
    if step.replication == "same":
        yield "Give captures of two different runs."
        return
    if step.replication == "none":
        yield "Capture at least 10 steps of each side."
    elif comparison.verdict == "inconclusive":
        runs = "3 or more runs of each side" if max(step.base_runs, step.head_runs) < 3 else "more runs"
        if step.runs_to_decide is not None:
            more = step.runs_to_decide - min(step.base_runs, step.head_runs)
            runs = f"{units.plural(more, 'more run')} of each side, which would probably decide,"
        yield f"Capture {runs} and compare folders: wallscope diff base/ head/"
    if find_unexplained_causes(comparison):
        yield "Analyze each run with --config FILE, so that settings are compared too."
    if command := write_next_command(comparison, named):
        yield command
