"""What is said of a capture, on every screen: made once from its answer, and laid out by each medium.

The headline and the sentence are its short form, the paragraphs and answers its long one. Every medium takes
its words from it: terminal, page, Markdown, notebooks and brief answers.
"""

from wallscope.model.analysis import Analysis
from wallscope.model.capture import Finding
from wallscope.model.enums import Wall
from wallscope.model.section import KeyAnswer
from wallscope.records import dataclass
from wallscope.views import cards as parts
from wallscope.views.answers import build_key_answers
from wallscope.views.cards import Card, Fact, LegendRow, LossRow
from wallscope.views.headline import describe_scope, name_verdict, write_headline
from wallscope.views.opening import Doubt, list_doubts, list_lead, write_opening, write_reason
from wallscope.views.sections.walls import (
    describe_program,
    describe_relief,
    describe_replay,
    describe_worthless_fixes,
    number_fixes,
)
from wallscope.views.sections.words import (
    describe_throughput,
    explain_choice,
    list_capture_facts,
    name_rank,
)
from wallscope.views.verdict import (
    TimeBasis,
    choose_basis,
    describe_hidden_communication,
    find_dominant,
    list_absent,
    list_explanation,
    list_job_verdict,
    name_basis,
)


@dataclass(frozen=True, slots=True)
class Statement:
    """What is said of a capture: finding, certainty, action, scope and limits, in words of two lengths.

    Finding: `headline` has two words and the `scope`. `opening` is the headline with the `reason` in one
    sentence, `sentences` say share and cause, `paragraphs` all of it, also of the job. `wall` is the dominant
    one, if it is one, and `words` the rest of the two words. `basis` has the times that it is about, `whole`
    is their name and `spread` how they vary; `legend` and `losses` have the parts. Certainty: the last of the
    `answers`, the `facts` that it rests on, and `doubts` in a few lines. `limits` are the findings that
    undermine it, `absent` are missing ranks and exports left out. Action: the third and fourth of the
    `answers`, the `lead` and a card of each recommendation in order; `notes` say what these rest on.
    """

    subject: tuple[str, ...]
    dominant: str
    wall: Wall | None
    words: str
    scope: str
    headline: str
    reason: str
    lead: tuple[str, ...]
    sentences: tuple[str, ...]
    paragraphs: tuple[str, ...]
    lines: tuple[str, ...]
    basis: TimeBasis
    whole: str
    spread: str
    basis_note: str
    has_uneven_shares: bool
    shown_rank: str
    answers: tuple[KeyAnswer, ...]
    cards: tuple[Card, ...]
    notes: tuple[str, ...]
    facts: tuple[Fact, ...]
    doubts: tuple[Doubt, ...]
    limits: tuple[Finding, ...]
    legend: tuple[LegendRow, ...]
    losses: tuple[LossRow, ...]
    overlap: tuple[str, ...]
    throughput: tuple[str, ...]
    absent: tuple[str, ...]
    relief: tuple[str, str]

    @property
    def opening(self) -> str:
        """The verdict in one sentence: the wall, what it covers, and its main cause."""
        return write_opening(self.headline, self.reason)

    @property
    def sentence(self) -> str:
        """What explains the headline."""
        return " ".join(self.sentences)


def state_analysis(analysis: Analysis) -> Statement:
    """Make what is said of a capture."""
    rank, job, diagnosis = analysis.ranks[analysis.diagnosis.rank_index], analysis.job, analysis.diagnosis
    basis, fixes = choose_basis(analysis, rank), number_fixes(analysis.fixes or ())
    wall, words = name_verdict(analysis)
    cards = tuple(parts.build_cards(fixes, rank.typical.step_ns, basis))
    facts, hidden = parts.list_facts(analysis, rank), parts.describe_hidden(analysis, rank, basis)
    notes = [describe_replay(analysis.replay)] if analysis.replay is not None and cards else []
    notes += [describe_program(analysis.program)] if analysis.program is not None else []
    notes += [describe_worthless_fixes(analysis.dismissed)] if analysis.dismissed else []
    of_rank, in_full = f"{name_rank(rank)}: {diagnosis.verdict}", (diagnosis.verdict,)
    shown = f"1 of {len(analysis.ranks)} ranks: {name_rank(rank)}, {explain_choice(analysis)}"
    memory_share, absent = basis.share(Wall.MEMORY), list_absent(analysis)
    is_held_up = job is not None and bool(job.stragglers)
    waits = "" if is_held_up else next(iter(list_job_verdict(analysis)), "")
    answers, limits = (
        build_key_answers(analysis, rank, basis, cards, facts),
        parts.list_callouts(analysis, rank),
    )
    return Statement(
        subject=list_capture_facts(analysis, 0),
        dominant=find_dominant(analysis),
        wall=wall,
        words=words,
        scope=describe_scope(analysis),
        headline=write_headline(analysis),
        reason=write_reason(analysis, rank, basis),
        lead=list_lead(analysis, rank, basis, cards, answers),
        sentences=list_explanation(analysis, rank, basis),
        paragraphs=in_full if job is None else (of_rank, job.verdict),
        lines=tuple(filter(None, (hidden, waits, *absent))),
        basis=basis,
        whole=name_basis(analysis, basis),
        spread=parts.describe_spread(rank) if basis.kind == "median" else "",
        basis_note=parts.describe_shares(analysis, rank, basis),
        has_uneven_shares=parts.has_uneven_shares(basis),
        shown_rank=shown if len(analysis.ranks) > 1 else "",
        answers=answers,
        cards=cards,
        notes=tuple(notes),
        facts=facts,
        doubts=list_doubts(analysis, basis, facts, limits),
        limits=limits,
        legend=parts.list_legend(analysis, basis),
        losses=() if basis.kind == "whole" else parts.list_losses(rank, fixes, basis),
        overlap=tuple(describe_hidden_communication(analysis, rank)),
        throughput=tuple(describe_throughput(diagnosis.throughput)),
        absent=absent,
        relief=describe_relief(
            analysis.fixes or (), analysis.dismissed, memory_share, analysis.anchor.window
        ),
    )
