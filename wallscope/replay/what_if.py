"""All answers about one stretch: how good they are, what bounds the step, and what each change wins."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from wallscope.errors import NothingToAnalyzeError
from wallscope.model.analysis import Walls
from wallscope.model.kinds import Wall
from wallscope.model.whatif import Answer, Asked, CriticalPath, Question, SelfCheck
from wallscope.replay.changes import Changes
from wallscope.replay.critical_path import composition
from wallscope.replay.engine import ASKED, FIXES, NO_STEP, Player, too_far_off
from wallscope.replay.window import Stretch

_LEAST_WON = 0.001


@dataclass(frozen=True, slots=True)
class Answered:
    """What a stretch tells: its check, its path, its walls, and the answers."""

    check: SelfCheck
    path: CriticalPath
    walls: Walls
    wall: Wall
    answers: tuple[Answer, ...]
    sweep: tuple[Answer, ...]


def answered(
    stretch: Stretch, asked: Asked, step_ns: int, overlap_tax: float | None, texts: pl.Series
) -> Answered:
    """The answers to what is asked; to the usual questions where nothing is.

    Args:
        stretch: the steps that are played.
        asked: the questions.
        step_ns: the typical step, which all answers are about.
        overlap_tax: how much longer compute takes beside communication; `None` where nothing tells.
        texts: the written paths of ranges, by number.

    Raises:
        NothingToAnalyzeError: no step of the stretch has both its ends in it, or the replay is too far off.
        OptionError: a question is about nothing that is there.
    """
    if not stretch.steps["typical"].any():
        raise NothingToAnalyzeError(
            f"{NO_STEP} — a replay needs steps — name them with --step-range, or capture three or more"
        )
    player = Player(stretch, step_ns, overlap_tax if asked.interference else None, ASKED)
    check = player.check
    if check.error_median is not None and check.error_median > asked.largest_error:
        raise NothingToAnalyzeError(
            f"{too_far_off(check.error_median, asked.largest_error)} — no answer could be trusted — choose"
            " steps that are alike with --steps, or take it as it is with --accept-error"
        )
    changes = player.changes
    questions = tuple(changes.known(one) for one in asked.questions)
    sweep = tuple(changes.known(one) for one in asked.sweep)
    is_open = not questions and not sweep
    alone = [player.answer((one,)) for one in (_usual(changes) if is_open else questions)]
    if is_open:
        alone = sorted(
            (one for one in alone if one.won_ns >= _LEAST_WON * step_ns), key=lambda one: -one.won_ns
        )
    together = [player.answer(questions)] if len(questions) > 1 else []
    return Answered(
        check=check,
        path=composition(stretch, player.names, player.unchanged, player.path, texts),
        walls=player.walls,
        wall=player.wall,
        answers=(*alone, *together),
        sweep=tuple(player.answer((one,)) for one in sweep),
    )


def _usual(changes: Changes) -> list[Question]:
    """What is asked where the user asks nothing: each loss gone, compute of each kind at half its time."""
    scaled = [name for name in changes.targets if name in {"communication", "launch", "think"}]
    scaled += [name for name in changes.targets if name.startswith("communication:")]
    usual = [Question("scale", name, 0.0) for name in scaled]
    usual += [Question("without", name) for name in ("allocator", "synchronisation", "recompute", "offload")]
    usual += [Question("without", "jitter")]
    usual += [Question("scale", name, 0.0) for name in changes.targets if name.startswith("memory/")]
    usual += [Question("scale", name, 0.5) for name in changes.targets if name.startswith("category:")]
    return usual


def refusal(check: SelfCheck) -> str | None:
    """Return why the gains of fixes are not given; `None` where the replay can be believed."""
    if check.error_median is None:
        return "there is one whole step, and none to check its replay by"
    most = FIXES.largest_error
    return None if most is None or check.error_median <= most else too_far_off(check.error_median, most)


def answers_of_fixes(player: Player, asked: Mapping[str, tuple[Question, ...]]) -> dict[str, Answer]:
    """Return the answer to the questions of each fix together, by its id.

    What is not in the steps is left out of them; a fix of which nothing is there has no answer.
    """
    known: dict[tuple[Question, ...], Answer] = {}
    found = {}
    for fix, questions in asked.items():
        there = tuple(one for one in dict.fromkeys(questions) if player.changes.has(one))
        if there:
            found[fix] = known[there] = known.get(there) or player.answer(there)
    return found
