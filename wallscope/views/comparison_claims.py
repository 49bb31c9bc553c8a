"""What a comparison claims of walls and causes: the first cause, its grade, and what would settle it."""

from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.comparison import CauseDelta, Comparison, WallDelta
from wallscope.model.enums import Grade, Wall

_CERTAIN = frozenset({Grade.SURE, Grade.LIKELY})
_ENOUGH_RUNS_COUNT = 3
"""Runs of each side that measure how runs differ, so that nothing rests on an assumption."""


def find_leading_wall(comparison: Comparison) -> WallDelta | None:
    """Return the wall that changed most in the direction of the step, if that is sure or likely."""
    largest = find_largest_wall(comparison)
    change_ns = comparison.step.change_ns
    return largest if change_ns * largest.delta_ns > 0 and is_certain(largest) else None


def grade_leading_cause(comparison: Comparison) -> Grade:
    """Return how certain the first cause is: no more than its wall is, and than it is itself."""
    leading, cause = find_largest_wall(comparison), find_leading_cause(comparison)
    grades = {leading.grade, leading.grade if cause is None else cause.grade}
    if not grades <= _CERTAIN:
        return Grade.POSSIBLE
    return Grade.LIKELY if Grade.LIKELY in grades else Grade.SURE


def describe_settling(comparison: Comparison) -> str:
    """Say what would make a cause certain, in the middle of a sentence."""
    fewest = min(comparison.step.base_runs, comparison.step.head_runs)
    if fewest < _ENOUGH_RUNS_COUNT:
        return f"capturing {_ENOUGH_RUNS_COUNT} runs of each side would make this certain"
    return "capturing more runs of each side would make this certain"


def describe_missing_operations(comparison: Comparison) -> str:
    """Say that the operations do not contain the change of the first cause; empty where they do."""
    cause, leading = find_leading_cause(comparison), find_leading_wall(comparison)
    if cause is None or leading is None or comparison.verdict == "incomparable":
        return ""
    found_ns = sum(row.delta_ns for row in comparison.operations if row.wall == cause.wall)
    if 2 * found_ns * (1 if cause.delta_ns > 0 else -1) >= abs(cause.delta_ns):
        return ""
    what = "it is host time" if cause.wall == Wall.HOST else "it is not the time of an operation"
    return f"No GPU operation accounts for {describe_cause(cause.cause)}: {what}."


def find_largest_wall(comparison: Comparison) -> WallDelta:
    """Return the wall that changed most in the direction of the step."""
    sign = 1 if comparison.step.head_ns > comparison.step.base_ns else -1
    return max(comparison.deltas.walls, key=lambda row: sign * row.delta_ns)


def find_leading_cause(comparison: Comparison) -> CauseDelta | None:
    """Return the largest cause of the wall that changed most, in the direction of the step."""
    leading = find_largest_wall(comparison)
    own = [
        row
        for row in comparison.deltas.causes
        if row.wall == leading.wall and row.delta_ns * leading.delta_ns > 0
    ]
    return max(own, key=lambda row: abs(row.delta_ns), default=None)


def is_certain(row: WallDelta | CauseDelta) -> bool:
    """Return whether a change is sure or likely."""
    return row.grade in _CERTAIN
