"""What fixes would win: the questions that they stand for, asked of the steps that are played."""

from collections.abc import Mapping

from wallscope.model.whatif import Answer, Question, SelfCheck
from wallscope.whatif.changes import Changes
from wallscope.whatif.player import Player, too_far_off

_LARGEST_ERROR = 0.05


def refusal(check: SelfCheck) -> str | None:
    """Why no fix is told what it would win; `None` where the replay can be believed."""
    if check.error_median is None:
        return "there is one whole step, and none to check its replay by"
    return too_far_off(check.error_median, _LARGEST_ERROR) if check.error_median > _LARGEST_ERROR else None


def answers_of_fixes(player: Player, asked: Mapping[str, tuple[Question, ...]]) -> dict[str, Answer]:
    """The answer to the questions of each fix together, by its id.

    What is not in the steps is left out of them; a fix of which nothing is there has no answer.
    """
    changes = Changes(player.stretch)
    known: dict[tuple[Question, ...], Answer] = {}
    found = {}
    for fix, questions in asked.items():
        there = tuple(one for one in dict.fromkeys(questions) if changes.has(one))
        if there:
            found[fix] = known[there] = known.get(there) or player.answer(changes, there)
    return found
