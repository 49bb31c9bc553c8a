"""How certain the changes of a comparison are: sure, likely or possible, by the runs behind each.

An assumed noise between runs holds for most machines, not for all. So a change that rests on it is sure only
if it is twice as large as its interval asks for. Changes of walls and of
causes sum to that of the step. So one that makes up most of the change of a step that surely changed is
likely, even if its own noise leaves it open. `docs/diff.md` shows how often claims of each grade are right.
"""

from wallscope.model.enums import Grade
from wallscope.records import dataclass
from wallscope.thresholds.verdict import MAKES_UP_SHARE, SURE_OF_ASSUMED_RATIO

CERTAIN = frozenset({Grade.SURE, Grade.LIKELY})


@dataclass(frozen=True, slots=True)
class Measured:
    """A change with half its interval.

    `is_found` is whether it is significant at 5 %, or past the margin, and `is_surely_found` the same at
    `SURE_CHANCE_SHARE`. `is_assumed` is whether the interval rests on an assumed noise between runs.
    """

    change: float
    half: float
    is_found: bool
    is_surely_found: bool
    is_assumed: bool

    @property
    def excludes_nothing(self) -> bool:
        """Whether the interval excludes that nothing changed."""
        return abs(self.change) > self.half

    def grade_alone(self) -> Grade | None:
        """Return the grade of a change that was found; `None` of one that was not.

        >>> [str(Measured(change, 1.0, True, True, True).grade_alone()) for change in (3.0, 1.5)]
        ['sure', 'likely']
        """
        if not self.is_found or not self.excludes_nothing:
            return None
        is_large = abs(self.change) > SURE_OF_ASSUMED_RATIO * self.half
        is_sure = self.is_surely_found and (is_large or not self.is_assumed)
        return Grade.SURE if is_sure else Grade.LIKELY


def grade_step(step: Measured, margin: float) -> Grade | None:
    """Return how certain it is that the step changed; a change up to `margin` counts as none."""
    if (found := step.grade_alone()) is not None:
        return found
    if abs(step.change) <= margin:
        return None
    return Grade.POSSIBLE


@dataclass(frozen=True, slots=True)
class StepClaim:
    """The change of the step in ns, how certain it is, and how many runs the side with more of them has."""

    change_ns: float
    grade: Grade | None
    most_runs: int = 1


def grade_part(part: Measured, step: StepClaim) -> Grade | None:
    """Return how certain it is that a wall, cause or operation changed, in ns."""
    found = part.grade_alone()
    if found == Grade.SURE:
        return found
    makes_up = part.change * step.change_ns > 0 and abs(part.change) >= MAKES_UP_SHARE * abs(step.change_ns)
    if (makes_up and step.grade in CERTAIN) or (found is not None and part.is_assumed):
        return Grade.LIKELY
    return Grade.POSSIBLE if part.excludes_nothing and part.change else None
