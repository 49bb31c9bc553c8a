"""What screens of a capture begin with: the main cause of the wall, what to do first, what is uncertain."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.capture import Finding, Severity
from wallscope.model.cause_catalogue import split_meaning
from wallscope.model.diagnosis import Confidence
from wallscope.model.enums import Wall
from wallscope.model.section import KeyAnswer
from wallscope.ranks.job_sentences import measure_leading_ns
from wallscope.records import dataclass
from wallscope.summary.diagnosis import find_scope
from wallscope.views.answers import find_named_cause, point_to_fix
from wallscope.views.cards import Card, Fact
from wallscope.views.headline import write_headline
from wallscope.views.light import describe_expectation, find_largest_loss, has_lines
from wallscope.views.sections.findings import UNREPLAYED_BOUND, explain_missing_replay, has_unreplayed_bounds
from wallscope.views.sections.words import describe_pressure
from wallscope.views.verdict import (
    TimeBasis,
    choose_basis,
    describe_missing_kernels,
    explain_unknown,
    find_deciding_stall,
    find_dominant,
    name_wall,
    state_losses_by_share,
    state_verdict,
)

Grade = Literal["sure", "likely", "unknown", "bad"]
MARKS: dict[Grade, str] = {"sure": "✓", "likely": "~", "unknown": "?", "bad": "!"}
_OF_TONE: dict[str, Grade] = {"ok": "sure", "info": "likely", "warn": "unknown"}
_OF_SEVERITY: dict[Severity, Grade] = {
    Severity.INFO: "unknown",
    Severity.WARNING: "likely",
    Severity.ERROR: "bad",
}


@dataclass(frozen=True, slots=True)
class Doubt:
    """One line on how sure the verdict is: its grade, what it is about, and what it rests on or needs."""

    grade: Grade
    head: str
    text: str
    target: str
    cure: str = ""

    @property
    def mark(self) -> str:
        """The grade as a letter, so that color alone does not say it."""
        return MARKS[self.grade]


def state_answer(analysis: Analysis) -> Analysis:
    """Return the analysis with its verdict, and with the sentence that every screen begins with."""
    stated = state_verdict(analysis)
    rank = stated.ranks[stated.diagnosis.rank_index]
    reason = write_reason(stated, rank, choose_basis(stated, rank))
    opening = write_opening(write_headline(stated), reason)
    return replace(stated, diagnosis=replace(stated.diagnosis, opening=opening))


def write_opening(headline: str, reason: str) -> str:
    """Write the verdict in one sentence: the wall, what it covers, and its main cause."""
    return f"{units.capitalize(headline)}: {reason}."


def write_reason(analysis: Analysis, rank: Rank, basis: TimeBasis) -> str:
    """Write in a clause what the wall is mostly made of, or why none is known."""
    dominant, unit, job = find_dominant(analysis), analysis.anchor.window, analysis.job
    if dominant == "unknown":
        return _explain_unknown(analysis, rank)
    if dominant == "mixed":
        return f"{state_losses_by_share({wall: basis.share(wall) for wall in Wall})} of the {unit}"
    if (stall := find_deciding_stall(rank, basis, dominant)) is not None:
        steady = sum(step.steady for step in rank.steps)
        cause = split_meaning(stall.cause)[0]
        lose = "loses" if len(stall.steps) == 1 else "each lose up to"
        return f"{len(stall.steps)} of {steady} {unit}s {lose} {units.duration(stall.most_ns)} to {cause}"
    if job is not None and job.stragglers:
        saved_ns, step_ns = measure_leading_ns(job)
        return f"all ranks lose {units.duration(saved_ns)} of the {units.duration(step_ns)} {unit}"
    if basis.kind == "whole":
        share = units.percent(basis.share(Wall(dominant)))
        return f"{name_wall(Wall(dominant)).lower()} takes {share} of {basis.whole}"
    return _name_main_part(analysis, rank, basis, Wall(dominant))


def _explain_unknown(analysis: Analysis, rank: Rank) -> str:
    """Write in a clause why no wall is known."""
    unknown, unit = analysis.diagnosis.unknown, analysis.anchor.window
    if unknown is None:  # of an older version
        return f"too much of the {unit} is unexplained"
    is_empty = unknown.kind == "no-kernels"
    return describe_missing_kernels(unknown) if is_empty else explain_unknown(rank, unknown, unit).text


def _name_main_part(analysis: Analysis, rank: Rank, basis: TimeBasis, wall: Wall) -> str:
    """Write what loses most of a wall of the typical step."""
    length, anchor = units.duration(rank.typical.step_ns), analysis.anchor
    whole = (
        f"the {length} {anchor.window}"
        if anchor.kind == "whole-trace"
        else f"the typical {length} {anchor.unit}"
    )
    light = rank.speed_of_light if wall is Wall.COMPUTE and basis.kind != "job" else None
    if light is not None and has_lines(light) and (row := find_largest_loss(light)) is not None:
        return f"{row.subject or row.name} loses {units.duration(row.ns)} of {whole}"
    own = [entry for entry in rank.causes if entry.wall == wall]
    if not own:
        return f"{units.percent(basis.share(wall))} of {basis.whole}"
    largest = max(own, key=lambda entry: entry.typical_ns)
    scope, job = find_scope(analysis), analysis.job
    is_named = job is None or (scope.rank is not None and scope.ranks < scope.of_ranks)
    place = "" if job is None or is_named else f" on {job.members[analysis.diagnosis.rank_index].name}"
    return f"{units.duration(largest.typical_ns)} of {whole}{place} goes to {split_meaning(largest.cause)[0]}"


def list_lead(
    analysis: Analysis, rank: Rank, basis: TimeBasis, cards: Sequence[Card], answers: Sequence[KeyAnswer]
) -> tuple[str, ...]:
    """List sentences on what to do first and what that could gain; without a fix, what to capture or read."""
    _, cause, action, bound, _ = answers
    is_known = find_dominant(analysis) != "unknown"
    if not is_known or action.target != "fix-1":
        reasons = () if is_known else cause.lines
        return (*reasons, f"{action.head.rstrip('.')}.", *action.lines)
    card = cards[0]
    if card.after_share is None:
        lines = [f"{card.fix.title}.", *bound.lines]
    else:
        then = f"; the next wall is {card.next_wall}" if card.next_wall else ""
        expected = describe_expectation(card.fix)
        gain = f"{card.badge}{f'; {expected}' if expected else ''}"
        drop = f"{_describe_drop(analysis, rank.typical.step_ns, card)} ({gain}){then}."
        lines = [f"{card.fix.title}: {drop}"]
    if basis.kind == "whole":
        lines.append(f"This fix shortens the {analysis.anchor.unit}s, not the work before them.")
    elif named := find_named_cause(analysis, rank, basis):
        lines.extend(point_to_fix(named, cards))
    return tuple(lines)


def _describe_drop(analysis: Analysis, typical_ns: int, card: Card) -> str:
    """Write what a step could drop to; also from what, and which one, where the reason is about another."""
    job, unit = analysis.job, analysis.anchor.window
    stated_ns = measure_leading_ns(job)[1] if job is not None and job.stragglers else typical_ns
    if not card.whole and card.before == units.duration(stated_ns):
        return f"the {unit} could drop to {card.after}"
    which = card.whole or f"typical {unit}"
    whose = "" if job is None else f" of {job.members[analysis.diagnosis.rank_index].name}"
    return f"the {which}{whose} could drop from {units.join_ends(card.before, card.after, ' to ')}"


def list_doubts(
    analysis: Analysis, basis: TimeBasis, facts: Sequence[Fact], limits: Sequence[Finding]
) -> tuple[Doubt, ...]:
    """List how sure the split and less sure bounds are, whether steps agree, and what is unknown."""
    steps, waits, replay, coverage = facts
    found = [Doubt(_OF_SEVERITY[one.severity], "", one.short, "limits", one.cure or "") for one in limits]
    doubts = [
        _judge_split(analysis, waits, replay),
        *_judge_bounds(analysis),
        _judge_agreement(analysis, basis, steps),
        *sorted(found, key=lambda one: one.grade != "bad"),
    ]
    pressure = analysis.diagnosis.memory_pressure
    if pressure.level in {"high", "near"}:
        doubts.append(
            Doubt(
                "likely",
                f"Memory pressure: {describe_pressure(pressure)}",
                f"{units.capitalize('; '.join(pressure.evidence))}.",
                "word-memory-pressure",
            )
        )
    if not limits:
        doubts.append(Doubt(_OF_TONE[coverage.tone], coverage.head, coverage.text, coverage.target))
    return tuple(doubts)


def _judge_split(analysis: Analysis, waits: Fact, replay: Fact) -> Doubt:
    sure = analysis.diagnosis.confidence
    level = "low" if sure is None else sure.level
    grade: Grade = "sure" if level == "high" else "likely" if level == "medium" else "unknown"
    has_line = has_unreplayed_bounds(analysis)
    head = f"{waits.head} in the time breakdown" if has_line else waits.head
    text = "" if has_line else _describe_replay(analysis, replay)
    return Doubt(grade, head, f"{_pick_reasons(waits, sure)} {text}".rstrip(), waits.target)


def _judge_bounds(analysis: Analysis) -> Iterator[Doubt]:
    """Say that bounds are less sure than the time breakdown, where fixes are not simulated."""
    if has_unreplayed_bounds(analysis):
        sentences = (
            explain_missing_replay(analysis),
            UNREPLAYED_BOUND,
            "the time breakdown is measured, not simulated",
        )
        text = " ".join(f"{units.capitalize(one)}." for one in sentences)
        yield Doubt("likely", "Upper bounds are less certain", text, "word-replay-error")


def _pick_reasons(waits: Fact, sure: Confidence | None) -> str:
    """Write what the confidence rests on; of a lower one, only what lowers it."""
    is_sure = sure is None or sure.level == "high"
    return waits.text if is_sure or not waits.doubt else f"{units.capitalize(waits.doubt)}."


def _describe_replay(analysis: Analysis, replay: Fact) -> str:
    """Write how far the replay is off, or why nothing is replayed."""
    found = analysis.replay
    if found is None or found.check is None:
        return f"{replay.head}." if replay.tone == "ok" else replay.text
    if found.refused is not None:
        return f"{units.capitalize(explain_missing_replay(analysis))}."
    return f"{replay.head}."


def _judge_agreement(analysis: Analysis, basis: TimeBasis, steps: Fact) -> Doubt:
    """Say in how many steps the wall is the largest loss; else how many steps there are."""
    diagnosis, dominant = analysis.diagnosis, find_dominant(analysis)
    led, count, unit = diagnosis.led_steps, diagnosis.decided_steps, analysis.anchor.unit
    if basis.kind != "median" or led is None or dominant in {"unknown", "mixed", Wall.COMPUTE}:
        return Doubt("sure" if steps.tone == "ok" else "likely", steps.head, steps.text, steps.target)
    head = f"{units.capitalize(dominant)}-bound in {led} of {count} steady {unit}s"
    grade: Grade = "sure" if led == count and steps.tone == "ok" else "likely"
    return Doubt(grade, head, "" if steps.tone == "ok" else f"Uncertain: {steps.doubt}.", "steps")
