"""What is said of a comparison, on every screen: made once from it, and laid out by each medium."""

from dataclasses import replace

from wallscope.model.comparison import Comparison, Mismatch
from wallscope.model.section import KeyAnswer, Tone
from wallscope.records import dataclass
from wallscope.views.applied_fixes import describe_applied_fix, name_applied_fix
from wallscope.views.comparison_answers import build_comparison_answers, describe_head, list_next_steps
from wallscope.views.comparison_claims import describe_missing_operations
from wallscope.views.comparison_words import (
    describe_change,
    describe_doubt,
    describe_sureness,
    describe_testbeds,
    find_confounders,
    list_explanations,
    list_sides,
    write_reason_of_change,
)

_VERDICTS: dict[str, tuple[str, Tone]] = {
    "regression": ("SLOWER", "bad"),
    "improvement": ("FASTER", "best"),
    "no-change": ("NO CHANGE", "strong"),
    "inconclusive": ("INCONCLUSIVE", "doubt"),
    "incomparable": ("NOT COMPARABLE", "doubt"),
}


@dataclass(frozen=True, slots=True)
class ChangeStatement:
    """What is said of a comparison: finding, certainty, action and limits.

    Finding: `word` is the verdict, with its `tone`; the `reason` completes it to the `opening`, the sentence
    that every screen begins with. `sentence` says how much changed, and how much of it the cause makes up,
    `of_head` what limits a faster head or what to look at in a slower one. `explained` are amounts and what
    explains them; `missing` says which cause no operation contains, `applied` what came of recommendations,
    and `applied_names` which these are.
    Certainty: `doubt` says why there is no verdict, `sureness` what the interval rests on, and `confounders`
    could explain the change by themselves. Action: `next_steps`. The `answers` are those that a page begins
    with.
    """

    sides: tuple[str, ...]
    testbeds: str
    word: str
    tone: Tone
    reason: str
    sentence: str
    of_head: str
    explained: tuple[tuple[int | None, str], ...]
    missing: str
    applied: tuple[str, ...]
    applied_names: tuple[str, ...]
    doubt: str
    sureness: str
    confounders: tuple[Mismatch, ...]
    next_steps: tuple[str, ...]
    answers: tuple[KeyAnswer, ...]

    @property
    def opening(self) -> str:
        """The verdict in one sentence: what changed by how much, and its cause."""
        return f"{self.word}: {self.reason}."

    @property
    def certainty(self) -> str:
        """How sure the verdict is, and why there is none."""
        return " ".join(filter(None, (self.doubt, self.sureness)))


def state_comparison(comparison: Comparison, named: str = "") -> ChangeStatement:
    """Make what is said of a comparison; `named` is how the user named head."""
    word, tone = _VERDICTS[comparison.verdict]
    return ChangeStatement(
        sides=list_sides(comparison),
        testbeds=describe_testbeds(comparison),
        word=word,
        tone=tone,
        reason=write_reason_of_change(comparison),
        sentence=describe_change(comparison),
        of_head=describe_head(comparison),
        explained=list_explanations(comparison),
        missing=describe_missing_operations(comparison),
        applied=tuple(map(describe_applied_fix, comparison.applied)),
        applied_names=tuple(map(name_applied_fix, comparison.applied)),
        doubt=describe_doubt(comparison),
        sureness=describe_sureness(comparison),
        confounders=find_confounders(comparison),
        next_steps=tuple(list_next_steps(comparison, named)),
        answers=build_comparison_answers(comparison),
    )


def add_opening(comparison: Comparison) -> Comparison:
    """Return a comparison with the sentence that its screens begin with."""
    word, _ = _VERDICTS[comparison.verdict]
    return replace(comparison, opening=f"{word}: {write_reason_of_change(comparison)}.")
