"""The next action for each large wall: a fix, or the change of the capture that leads to one."""

from collections.abc import Iterator, Sequence

from wallscope.advice.measurements import MeasuredRun
from wallscope.advice.rules import fix_rules
from wallscope.model.advice import Fix
from wallscope.model.diagnosis import Dominant
from wallscope.model.enums import Wall
from wallscope.thresholds.verdict import FIRST_FIXES_COUNT, NEXT_ACTION_SHARE


def name_next_actions(
    run: MeasuredRun, of_program: Sequence[Fix], of_capture: Sequence[Fix]
) -> tuple[tuple[Fix, ...], tuple[Fix, ...]]:
    """Return the recommendations, and the other changes of the capture.

    A large wall that no fix of the program addresses has the first change of the capture for one of its
    causes among the recommendations. Rules that are a last resort are left out where that is not needed.
    One of the first recommendations addresses the dominant wall, if any does.

    Args:
        run: the run.
        of_program: its fixes, in order.
        of_capture: changes of its capture, in order.
    """
    resorts = {rule.id for rule in fix_rules() if rule.is_last_resort}
    chosen = list(of_program)
    in_order = sorted(of_capture, key=lambda fix: fix.id in resorts)
    for wall in _list_large_walls(run):
        if not any(_addresses(fix, wall) for fix in chosen):
            chosen += [fix for fix in in_order if _addresses(fix, wall)][:1]
    others = (fix for fix in of_capture if fix not in chosen and fix.id not in resorts)
    return _bring_forward(chosen, run.analysis.diagnosis.dominant_wall), tuple(others)


def _bring_forward(fixes: list[Fix], wall: Dominant) -> tuple[Fix, ...]:
    """Return fixes with the best one for a wall among the first."""
    first, later = fixes[:FIRST_FIXES_COUNT], fixes[FIRST_FIXES_COUNT:]
    if any(_addresses(fix, wall) for fix in first):
        return tuple(fixes)
    raised = [fix for fix in later if _addresses(fix, wall)][:1]
    place = FIRST_FIXES_COUNT - len(raised)
    return (*first[:place], *raised, *first[place:], *(fix for fix in later if fix not in raised))


def _addresses(fix: Fix, wall: str) -> bool:
    return any(cause.split("/", 1)[0] == wall for cause in fix.causes)


def _list_large_walls(run: MeasuredRun) -> Iterator[Wall]:
    """Yield the losses of at least a tenth of the typical step; compute, which is useful, if it dominates."""
    walls = run.rank.typical.walls
    for wall in Wall:
        is_large = getattr(walls, wall) >= NEXT_ACTION_SHARE * run.step_ns
        if is_large and (
            wall is not Wall.COMPUTE or run.analysis.diagnosis.dominant_wall in {wall, "unknown"}
        ):
            yield wall
