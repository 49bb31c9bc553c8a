"""The five answers that a screen on a capture begins with: wall, cause, first action, its bound, doubts."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Literal

from wallscope import units
from wallscope.advice.evidence import describe_assumed_shares, describe_questions
from wallscope.model.analysis import Analysis, CauseTime, Rank
from wallscope.model.capture import Severity
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.diagnosis import Opportunity
from wallscope.model.enums import Wall
from wallscope.model.finding_codes import FindingCode
from wallscope.model.section import KeyAnswer
from wallscope.model.speed_of_light import SpeedOfLight
from wallscope.ranks.job_sentences import describe_late_unit, name_leading
from wallscope.render.texts import visible
from wallscope.summary.diagnosis import LOSSES
from wallscope.views.cards import Card, Fact, shorten_settings
from wallscope.views.light import (
    describe_expectation,
    find_largest_loss,
    has_lines,
    is_estimate,
    write_peak_share,
    write_worth,
)
from wallscope.views.sections.findings import find_cure, find_doubts, is_held_back
from wallscope.views.sections.words import split_cause
from wallscope.views.verdict import (
    TimeBasis,
    explain_cure,
    explain_no_verdict,
    find_deciding_stall,
    find_dominant,
)

_WALLS = frozenset(map(str, Wall))
_SHARED = "Capture again while no other process uses the GPU."
_MOST_DOUBTS, _LONGEST_DOUBT, _LONGEST_RANGE = 2, 160, 60
_LONGEST_SETTINGS = 60


def build_key_answers(
    analysis: Analysis, rank: Rank, basis: TimeBasis, cards: Sequence[Card], facts: Sequence[Fact]
) -> tuple[KeyAnswer, ...]:
    """List the answers in the order in which a reader asks for them."""
    return (
        _answer_wall(analysis, basis),
        _answer_cause(analysis, rank, basis),
        _answer_action(analysis, rank, basis, cards),
        _answer_bound(analysis, basis, cards),
        _answer_sureness(analysis, rank, facts),
    )


def _answer_wall(analysis: Analysis, basis: TimeBasis) -> KeyAnswer:
    """Name the wall and its share; what takes most of the time where no wall is known."""
    dominant, label = find_dominant(analysis), "Wall"
    shares = sorted(((basis.share(wall), wall) for wall in Wall), reverse=True)
    if dominant not in _WALLS:
        listed = ", ".join(f"{wall} {units.percent(share)}" for share, wall in shares[:3] if share)
        head = "Unknown" if dominant == "unknown" else "No single wall"
        return KeyAnswer(label, head, (f"{units.capitalize(listed)} of {basis.whole}.",), "causes")
    wall, diagnosis = Wall(dominant), analysis.diagnosis
    lines = [f"of {basis.whole}."]
    if wall is Wall.COMPUTE:
        share, loss = next((share, other) for share, other in shares if other in LOSSES)
        peak = write_peak_share(_find_ledger(analysis))
        lines += [f"Kernels run {peak}."] if peak else []
        lines.append(
            f"The largest other loss is {loss}: {units.percent(share)}."
            if share
            else "No other wall loses time."
        )
    elif basis.kind == "median" and diagnosis.led_steps is not None and diagnosis.steady_steps:
        counted = units.plural(diagnosis.steady_steps, f"steady {analysis.anchor.unit}")
        lines.append(f"This is the largest loss in {diagnosis.led_steps} of {counted}.")
    head = f"{wall.capitalize()} {units.percent(basis.share(wall))}"
    return KeyAnswer(label, head, tuple(lines), "causes", wall)


def _answer_cause(analysis: Analysis, rank: Rank, basis: TimeBasis) -> KeyAnswer:
    """Name what the wall is mostly made of, or why there is no verdict."""
    dominant, unit, label = find_dominant(analysis), analysis.anchor.window, "Cause"
    if dominant == "unknown":
        head, lines = explain_no_verdict(analysis, rank)
        return KeyAnswer("Why unknown", head, lines, "limits")
    if (stall := find_deciding_stall(rank, basis, dominant)) is not None:
        steady = sum(step.steady for step in rank.steps)
        share, most = units.percent(stall.share), units.duration(stall.most_ns)
        line = f"{share} of all time: {len(stall.steps)} of {steady} {unit}s take up to {most} more."
        return KeyAnswer(label, units.capitalize(describe_cause(stall.cause)), (line,), "steps", stall.wall)
    if analysis.job is not None and analysis.job.stragglers:
        told, late = describe_late_unit(analysis.job, unit), analysis.job.stragglers[0]
        return KeyAnswer(label, units.capitalize(name_leading(analysis.job)), (told,), "job", late.cause_wall)
    if basis.kind == "whole":
        return KeyAnswer(
            label, f"Work before the first {unit}", ("Most of the lost time is there.",), "causes"
        )
    found = rank.speed_of_light if dominant == Wall.COMPUTE and basis.kind != "job" else None
    if found is not None and has_lines(found) and (row := find_largest_loss(found)) is not None:
        notes = (f"{units.capitalize(row.note)}.",) if row.note else ()
        lines = (f"{units.duration(row.ns)} of the {analysis.anchor.typical}.", *notes)
        return KeyAnswer(label, units.capitalize(row.name), lines, "light", Wall.COMPUTE)
    return _name_largest_cause(analysis, rank, basis, dominant)


def _name_largest_cause(analysis: Analysis, rank: Rank, basis: TimeBasis, dominant: str) -> KeyAnswer:
    """Name the largest cause of a wall, its time, and where the host spends it."""
    label, own = "Cause", _list_own_causes(rank, dominant)
    if not own:
        return KeyAnswer(label, "Not known", (), "causes")
    largest = max(own, key=lambda one: one.typical_ns)
    where = "" if analysis.job is None else f" on {analysis.job.members[analysis.diagnosis.rank_index].name}"
    whole = f"the {analysis.anchor.typical}"
    if basis.total_ns != rank.typical.step_ns:
        whole += f" ({units.duration(rank.typical.step_ns)})"
    name, more = split_cause(largest.cause)
    time = f"{units.duration(largest.typical_ns)} of {whole}{where}."
    lines = (time, *more, *_locate_host_time(rank, dominant))
    return KeyAnswer(label, name, lines, str(largest.wall), largest.wall)


def _find_ledger(analysis: Analysis) -> SpeedOfLight | None:
    """Return the ledger of the rank that the diagnosis is about; `None` of several ranks together."""
    if analysis.job is not None and analysis.job.collectives.matched:
        return None
    return analysis.ranks[analysis.diagnosis.rank_index].speed_of_light


def _list_own_causes(rank: Rank, dominant: str) -> list[CauseTime]:
    """List the causes of the wall; of every loss where none is dominant."""
    own = [one for one in rank.causes if str(one.wall) == dominant or dominant not in _WALLS]
    return [one for one in own if one.wall in LOSSES or str(one.wall) == dominant]


def _locate_host_time(rank: Rank, dominant: str) -> Iterator[str]:
    place = None if rank.host_details is None else rank.host_details.range
    if dominant == Wall.HOST and place is not None:
        yield f"Most of it is spent in the range {visible(place.name, most=_LONGEST_RANGE)}."


def _answer_action(analysis: Analysis, rank: Rank, basis: TimeBasis, cards: Sequence[Card]) -> KeyAnswer:
    """Name the first recommendation; without a verdict, what to capture to have one."""
    label = "Do first"
    if find_dominant(analysis) == "unknown":
        unknown, name = analysis.diagnosis.unknown, analysis.inputs[0].name
        known = find_cure(analysis) or (explain_cure(unknown) if unknown is not None else "")
        cure = known or (_SHARED if is_held_back(rank) else "Capture again.")
        is_alone = len(analysis.inputs) == 1
        command = f"wallscope capture-help {shlex.quote(visible(name))}" if is_alone else ""
        return KeyAnswer(label, cure, command=command)
    if not cards:
        text = "No known fix applies to the largest losses."
        return KeyAnswer(label, "Look at the time breakdown", (text,), "causes")
    named = find_named_cause(analysis, rank, basis)
    cures = [one.cure for one in analysis.capture.findings if one.code == FindingCode.NO_STEPS and one.cure]
    if cures and not any(named in one.fix.causes for one in cards):
        why = "No fix is known for the cause above, only for smaller losses."
        return KeyAnswer(label, "Mark the steps, then capture again", (why, *cures))
    card, lines = cards[0], []
    if card.unmet:
        lines.append(f"Blocked: {card.unmet[0].text}.")
    elif card.unknown_count:
        lines.append(f"{units.plural(card.unknown_count, 'condition')} to check first.")
    if basis.kind == "whole":
        lines.append(f"This fix shortens the {analysis.anchor.unit}s, not the work before them.")
    elif named:
        lines.extend(point_to_fix(named, cards))
    settings, left = shorten_settings(card.fix.settings, _LONGEST_SETTINGS)
    if left:
        lines.append(f"Settings ({left} more below):")
    return KeyAnswer(label, card.fix.title, tuple(lines), "fix-1", card.fix.wall, command=settings)


def find_named_cause(analysis: Analysis, rank: Rank, basis: TimeBasis) -> str:
    """Return the cause that is named next to the wall; empty where none is."""
    dominant = find_dominant(analysis)
    if analysis.job is not None and analysis.job.stragglers:
        return analysis.job.stragglers[0].cause or ""
    if (stall := find_deciding_stall(rank, basis, dominant)) is not None:
        return stall.cause
    own = _list_own_causes(rank, dominant)
    return max(own, key=lambda one: one.typical_ns).cause if own else ""


def point_to_fix(cause: str, cards: Sequence[Card]) -> Iterator[str]:
    """Say which recommendation addresses the named cause, where the first does not."""
    if cause in cards[0].fix.causes:
        return
    found = next((number for number, card in enumerate(cards, start=1) if cause in card.fix.causes), None)
    if found is None:
        yield "This fix addresses another cause; no fix is known for the cause above."
    else:
        yield f"This fix addresses another cause; recommendation {found} addresses the cause above."


def _answer_bound(analysis: Analysis, basis: TimeBasis, cards: Sequence[Card]) -> KeyAnswer:
    """Give the upper bound on the speedup of the first action, or say why there is none."""
    label = "Speedup" if cards and is_estimate(cards[0].fix) else "Upper bound"
    if find_dominant(analysis) == "unknown":
        has_bars = any(card.after_share is not None for card in cards)
        partly = "The bounds of the recommendations below cover only the time whose cause is known."
        return KeyAnswer(label, "Not known", (partly if has_bars else "A bound needs a known wall.",))
    if cards and cards[0].after_share is not None:
        card = cards[0]
        after = f"The next wall is {card.next_wall}."
        bar = (card.before, card.after, card.after_share or 1.0)
        lines = (*_state_assumption(card), *((after,) if card.next_wall else ()))
        if basis.kind == "whole":
            lines = (f"This applies to the {analysis.anchor.typical}, not to the whole capture.", *lines)
        return KeyAnswer(label, card.badge, lines, "upper-bound", predicted=bar)
    if cards and (worth := write_worth(cards[0].fix)):
        lines = (f"{cards[0].assumes}.",) if cards[0].assumes else ()
        return KeyAnswer(label, units.capitalize(worth), lines, "upper-bound")
    if not cards and analysis.opportunities:
        return _bound_of_loss(analysis.opportunities[0])
    return KeyAnswer(label, "Not estimated", (_explain_no_bound(analysis, cards),), "sure")


def _state_assumption(card: Card) -> Iterator[str]:
    """Say what the upper bound of a card rests on, in a few words."""
    if expected := describe_expectation(card.fix):
        yield f"{units.capitalize(expected)}."
    questions = () if card.fix.replay is None else card.fix.replay.questions
    assumed = [one for one in questions if one.kind == "scale" and one.share]
    if assumed:
        yield f"{units.capitalize(describe_assumed_shares(assumed))}."
    elif questions:
        yield f"{units.capitalize(describe_questions(questions))}."
    elif card.fix.assumption:
        yield f"The bound {card.fix.assumption}."
    elif card.assumes:
        yield f"{card.assumes}."


def _bound_of_loss(loss: Opportunity) -> KeyAnswer:
    """Give the bound of the largest loss, where no recommendation addresses it."""
    before, after = loss.step_ceiling_ns + loss.recoverable_ns, loss.step_ceiling_ns
    return KeyAnswer(
        "Upper bound",
        units.write_ceiling(loss.speedup_ceiling),
        (f"Without {describe_cause(loss.cause)}.",),
        "upper-bound",
        predicted=(units.duration(before), units.duration(after), 1 / loss.speedup_ceiling),
    )


def _explain_no_bound(analysis: Analysis, cards: Sequence[Card]) -> str:
    """Say why the first action has no upper bound."""
    replay = analysis.replay
    if analysis.anchor.kind == "whole-trace":
        return "A bound needs a replay of two steps, but fewer were found. Mark the steps to get a bound."
    if replay is not None and replay.refused is not None:
        return f"No replay: {replay.refused}."
    return "The replay cannot simulate this change." if cards else "No recommendation can be replayed."


def _answer_sureness(analysis: Analysis, rank: Rank, facts: Sequence[Fact]) -> KeyAnswer:
    """Give the confidence in the wall, and what is uncertain."""
    sure, label = analysis.diagnosis.confidence, "How sure"
    if find_dominant(analysis) == "unknown":
        unit = analysis.anchor.window
        text = f"The measured times are valid, but it is uncertain which wall limits the {unit}."
        return KeyAnswer(label, "No verdict", (text,), "sure", tone="warn")
    doubts, found = [one.doubt for one in facts if one.doubt], find_doubts(analysis, rank)
    gravest = [one for one in found[:1] if one.severity is Severity.ERROR or not doubts]
    limits = [visible(one.short, most=_LONGEST_DOUBT) for one in gravest]
    shown = [visible(text, most=_LONGEST_DOUBT) for text in doubts[: _MOST_DOUBTS - len(limits)]]
    limits += [f"Uncertain: {'; '.join(shown)}."] if shown else []
    check = analysis.replay.check if analysis.replay and analysis.replay.refused is None else None
    error = check.error_median if check else None
    checked = () if error is None else (f"The replay error is {units.percent(error)}.",)
    level = "unknown" if sure is None else sure.level
    limits = limits or ["No finding limits the verdict."]
    lines = ("This applies to the verdict and the time breakdown.", *checked, *limits)
    tone: Literal["ok", "warn"] = "ok" if level == "high" else "warn"
    return KeyAnswer(label, f"{level.capitalize()} confidence", lines, "sure", tone=tone)
