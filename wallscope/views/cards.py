"""Parts of a statement: cards of recommendations, facts that it rests on, losses, the legend of the bar."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import quantiles
from typing import Literal

from wallscope import units
from wallscope.advice.evidence import describe_questions
from wallscope.advice.rules import is_sketch
from wallscope.model.advice import Fix, Met, Precondition, Setting, System
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.capture import Finding, Profiler
from wallscope.model.cause_catalogue import DRAINED, HOST_FRAMEWORK, describe_cause
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import Wall
from wallscope.model.section import Items, Line, Section, Span
from wallscope.model.section import Tone as SpanTone
from wallscope.records import dataclass
from wallscope.render.texts import visible
from wallscope.summary.diagnosis import LOSSES
from wallscope.thresholds.causes import FIX_REPLAY_ERROR_SHARE
from wallscope.thresholds.steps import ENOUGH_STEPS_COUNT
from wallscope.thresholds.verdict import SHOWN_LOSS_SHARE
from wallscope.views.applied_fixes import describe_experience
from wallscope.views.light import (
    describe_assumptions,
    describe_briefly,
    describe_expectation,
    is_estimate,
    write_worth,
)
from wallscope.views.sections.findings import (
    find_doubts,
    sort_findings,
    sort_reasons,
    write_reasons,
)
from wallscope.views.sections.walls import (
    count_left_out,
    describe_answer,
    describe_obstacles,
    find_blocked_fixes,
    select_first_fixes,
    select_settings,
)
from wallscope.views.sections.words import WALL_WORDS, describe_finder, shorten_anchor
from wallscope.views.verdict import (
    TimeBasis,
    choose_basis,
    count_deciding,
    find_deciding_stall,
    find_dominant,
    tell_hidden_communication,
)

_FEWEST_FOR_SPREAD = 3
_MOST_LINES_OF_SETTING, _MOST_SETTINGS, _LONGEST_NOTE = 3, 4, 300
_MOST_CALLOUTS = 2
_MOST_LOSSES, _MOST_NAMED = 4, 3
_DRAINED, _OUTSIDE_CALLS = DRAINED, HOST_FRAMEWORK
"""Host time after a blocking call is outside CUDA calls too, and has a cause of its own."""
_LABELS: dict[System, str] = {
    "megatron-bridge": "Megatron Bridge",
    "megatron-lm": "Megatron-LM",
    "pytorch": "PyTorch",
    "jax": "JAX",
    "tensorflow": "TensorFlow",
    "inference": "Inference server",
    "directives": "OpenMP / OpenACC",
    "julia": "Julia",
    "program": "Program",
    "environment": "Environment",
    "launcher": "Launcher",
    "nsys": "Nsight Systems",
}
_ANYWHERE: tuple[System, ...] = ("environment", "launcher", "nsys")
"""Systems whose settings are needed in addition to those of any framework."""
_SAME_SHARE = 0.005
"""A step that a fix is judged by and the typical one that differ by less read the same."""
_OTHER_SHARE, _SEEN_SHARE = 0.02, 0.005
"""A median share that is so far from the share of the typical step reads as another number. So does one from
the second figure on that is twice as large."""
Tone = Literal["ok", "info", "warn"]


@dataclass(frozen=True, slots=True)
class LegendRow:
    """A wall with its share and time of the typical step, as text."""

    wall: Wall
    share: str
    time: str
    spread: str
    meaning: str
    is_dominant: bool


@dataclass(frozen=True, slots=True)
class LossRow:
    """A loss: its time and share of the typical step, and the recommendations that address it, as text."""

    cause: str
    name: str
    wall: Wall
    time: str
    share: str
    addressed: str


@dataclass(frozen=True, slots=True)
class SettingTab:
    """Settings of one framework as lines; those in `copied` run as written, the others are sketches."""

    label: str
    lines: tuple[str, ...]
    copied: tuple[str, ...]

    @property
    def sketch(self) -> str:
        """What to say of the lines that do not run as written; empty without any."""
        if len(self.copied) == len(self.lines):
            return ""
        return (
            "Example: adapt it to your program"
            if not self.copied
            else "Copy leaves out the gray lines: adapt them to your program"
        )


@dataclass(frozen=True, slots=True)
class Card:
    """A recommendation: its upper bound, the step before and after, settings, and what to check first.

    `after_share` is the step after it as a share of the step before, which is the inverse of the speedup.
    `parts` are the walls of that step, as shares of the step before; without a replay there are none.
    `reason` says what the bound assumes, and why it differs from the time of its causes, in the words of
    every screen. `overlap` says which earlier recommendation has the same settings.
    """

    fix: Fix
    badge: str
    before: str
    after: str
    after_share: float | None
    assumes: str
    next_wall: str
    tabs: tuple[SettingTab, ...]
    anywhere: tuple[SettingTab, ...]
    checks: tuple[tuple[str, str], ...]
    unknown_count: int
    first_check: Precondition | None
    unmet: tuple[Precondition, ...]
    overlap: str
    before_ns: int
    parts: tuple[tuple[Wall, float], ...]
    saved: str
    reason: str
    whole: str = ""

    @property
    def first_setting(self) -> Setting | None:
        """The first setting of the framework that is listed first."""
        return next(iter(select_settings(self.fix.settings)), None)

    @property
    def first_line(self) -> str:
        """The first setting as code, as a terminal shows it; empty without settings."""
        return "" if self.first_setting is None else self.first_setting.write_code()

    @property
    def is_sketched(self) -> bool:
        """Whether the first setting must be adapted to the program."""
        first = self.first_setting
        return first is not None and is_sketch(first.system, first.write())

    @property
    def expected(self) -> str:
        """The speedup that the step after it has, where the badge is the most that the fix can reach."""
        return "" if self.after_share is None or is_estimate(self.fix) else describe_expectation(self.fix)

    @property
    def settings_count(self) -> int:
        """How many settings the first framework needs, those for any framework included."""
        return len(select_settings(self.fix.settings))


@dataclass(frozen=True, slots=True)
class Fact:
    """One reason to trust or doubt the verdict.

    `target` is where its word is defined. `doubt` is what it makes uncertain, in a few words.
    """

    head: str
    text: str
    target: str
    tone: Tone
    doubt: str = ""


def describe_hidden(analysis: Analysis, rank: Rank, basis: TimeBasis) -> str:
    """Say how much communication compute hides, where compute is the wall; else empty."""
    if find_dominant(analysis) != Wall.COMPUTE or basis.kind not in {"typical", "median"}:
        return ""
    return " ".join(tell_hidden_communication(rank, analysis.anchor.typical))


def describe_shares(analysis: Analysis, rank: Rank, basis: TimeBasis) -> str:
    """Say which steps the shares and the times next to the bar refer to, where these differ."""
    if basis.kind == "median":
        counted = count_deciding(analysis, rank)
        text = f"Shares are medians of {counted}, times are those of the {analysis.anchor.typical}"
        if has_uneven_shares(basis):
            text += f". A share can differ from time by total, because the {analysis.anchor.unit}s vary"
        return text
    return basis.title if basis.kind in {"whole", "job"} else ""


def has_uneven_shares(basis: TimeBasis) -> bool:
    """Return whether a share next to the bar reads as another number than its time by the length."""
    pairs = [(basis.share(wall), getattr(basis.walls, wall) / max(basis.total_ns, 1)) for wall in Wall]
    return basis.kind == "median" and any(
        abs(share - part) >= _OTHER_SHARE or max(share, part) >= max(_SEEN_SHARE, 2 * min(share, part))
        for share, part in pairs
    )


def list_legend(analysis: Analysis, basis: TimeBasis) -> tuple[LegendRow, ...]:
    """List the walls with share, time and, where medians decide, the spread over the steady steps."""
    dominant = find_dominant(analysis)
    rows = []
    for wall, part_ns in zip(Wall, basis.walls.parts(), strict=True):
        if not part_ns and not basis.share(wall) and wall is not Wall.COMPUTE:
            continue
        walls = analysis.diagnosis.walls if basis.kind == "median" else None
        found = None if walls is None else getattr(walls, wall)
        spread = ""
        if found is not None and found.p10 is not None and found.p90:
            low, high = units.percent(found.p10), units.percent(found.p90)
            spread = "" if low == high else units.join_ends(low, high, " to ")
        time, share = units.duration(part_ns), units.percent(basis.share(wall))
        rows.append(LegendRow(wall, share, time, spread, WALL_WORDS[wall], str(wall) == dominant))
    return tuple(rows)


def list_losses(rank: Rank, fixes: Sequence[Fix], basis: TimeBasis) -> tuple[LossRow, ...]:
    """List the losses that take most of the typical step, or of the mean one, slow steps included.

    `fixes` are in the order of their cards.
    """
    lost_ns = {one.cause: one.typical_ns for one in rank.causes if one.wall in LOSSES}
    walls = {one.cause: one.wall for one in rank.causes}
    walls |= {one.cause: one.wall for one in rank.rare_stalls}
    whole_ns = rank.typical.step_ns
    if basis.kind == "mean":
        whole_ns, steady = basis.total_ns, sum(step.steady for step in rank.steps)
        for stall in rank.rare_stalls:
            if stall.wall in LOSSES:
                lost_ns[stall.cause] = lost_ns.get(stall.cause, 0) + round(stall.total_ns / steady)
    shown = [cause for cause, time_ns in lost_ns.items() if time_ns >= SHOWN_LOSS_SHARE * max(whole_ns, 1)]
    shown.sort(key=lambda cause: (-lost_ns[cause], cause))

    def name_fixes(cause: str) -> str:
        numbers = [str(number) for number, fix in enumerate(fixes, start=1) if cause in fix.causes]
        more = count_left_out(len(numbers) - _MOST_NAMED)
        return ", ".join(numbers[:_MOST_NAMED]) + more if numbers else "none"

    places = {cause: place for place, cause in enumerate(shown[:_MOST_LOSSES])}
    last = places.get(_OUTSIDE_CALLS, 0)
    is_rest = any(cause.startswith(_DRAINED) and place < last for cause, place in places.items())

    return tuple(
        LossRow(
            cause,
            f"{'other ' if is_rest and cause == _OUTSIDE_CALLS else ''}{describe_cause(cause)}",
            walls[cause],
            units.milliseconds(lost_ns[cause]),
            units.percent(lost_ns[cause] / whole_ns),
            name_fixes(cause),
        )
        for cause in shown[:_MOST_LOSSES]
    )


def describe_spread(rank: Rank) -> str:
    """Say between which lengths most steady steps lie; empty with too few."""
    steady = [step.end_ns - step.start_ns for step in rank.steps if step.steady]
    if len(steady) < _FEWEST_FOR_SPREAD:
        return ""
    deciles = quantiles(steady, n=10, method="inclusive")
    low, high = (units.duration(round(time_ns)) for time_ns in (deciles[0], deciles[-1]))
    return f"p10–p90 {units.join_ends(low, high, '–')}"  # noqa: RUF001  # a range of values


def build_cards(fixes: Sequence[Fix], step_ns: int, basis: TimeBasis) -> list[Card]:
    """Make the cards of fixes in their order; a card says whose settings it contains, or is part of."""
    cards: list[Card] = []
    for fix in fixes:
        cards.append(build_card(fix, step_ns, cards, is_mean=basis.kind == "mean"))
    return cards


def _describe_overlap(own: Mapping[str, frozenset[str]], earlier: Sequence[Card]) -> str:
    """Say which earlier recommendation has the same settings, for every framework that both name.

    Args:
        own: what each framework needs, with what any framework needs in addition.
        earlier: the cards before.
    """
    for number, other in enumerate(earlier, start=1):
        theirs = _collect_lines(other.tabs, other.anywhere)
        pairs = [(lines, theirs[label]) for label, lines in own.items() if label in theirs]
        if not pairs:
            continue
        if all(mine == their for mine, their in pairs):
            return f"Recommendation {number} has the same settings."
        if all(mine >= their for mine, their in pairs):
            return f"Includes all settings of recommendation {number}."
        if all(mine <= their for mine, their in pairs):
            return f"Recommendation {number} includes these settings."
    return ""


def _collect_lines(tabs: Sequence[SettingTab], anywhere: Sequence[SettingTab]) -> dict[str, frozenset[str]]:
    """Collect what each framework needs, with what any framework needs in addition, by its name."""
    shared = {line for tab in anywhere for line in tab.lines}
    return {tab.label: frozenset((*tab.lines, *shared)) for tab in tabs}


def build_card(fix: Fix, step_ns: int, earlier: Sequence[Card] = (), *, is_mean: bool = False) -> Card:
    """Make a card of a fix; its bar is the step at the upper bound on its speedup.

    `earlier` are the cards before it, and `is_mean` is whether the verdict is about the mean step.
    """
    bound, before_ns, after_ns = fix.speedup_ceiling, step_ns, step_ns
    if bound is not None and bound > 1 and fix.recoverable_ns:
        before_ns = round(fix.recoverable_ns / (1 - 1 / bound))
        after_ns = before_ns - fix.recoverable_ns
    questions = () if fix.replay is None else fix.replay.questions
    assumes = units.capitalize(describe_assumptions(fix))
    if questions and not any(one.kind == "scale" and one.share for one in questions):
        assumes = f"Replay {describe_questions(questions)}"
        assumes += f"; {fix.assumes}" if fix.assumes else ""
    elif fix.replay is None and bound is not None and not assumes:
        assumes = "Assumes that the cause is removed completely"
    whole = ""
    if abs(before_ns - step_ns) > _SAME_SHARE * step_ns:
        whole = "mean step"
        assumes += f"{'; measured' if assumes else 'Measured'} on the mean step, slow ones included"
    if is_mean and bound is not None and units.duration(before_ns) == units.duration(step_ns):
        whole = "typical step"
        assumes += f"{'; measured' if assumes else 'Measured'} on the typical step, without the slow ones"
    if experience := describe_experience(fix):
        assumes += f"{'; ' if assumes else ''}{experience if assumes else units.capitalize(experience)}"
    next_wall = fix.next_wall if fix.replay is None else str(fix.replay.next_wall)
    counts = Counter(entry.status for entry in fix.preconditions)
    tabs = _tabulate_settings([one for one in fix.settings if one.system not in _ANYWHERE])
    anywhere = _tabulate_settings([one for one in fix.settings if one.system in _ANYWHERE])
    words: dict[Met, str] = {"met": "met", "unmet": "unmet", "unknown": "to check", "set": "set by this fix"}
    return Card(
        fix=fix,
        badge=write_worth(fix),
        before=units.duration(before_ns),
        after="" if bound is None else units.duration(after_ns),
        after_share=None if bound is None else 1 / bound,
        assumes=assumes,
        next_wall=next_wall or "",
        tabs=tabs,
        anywhere=anywhere,
        checks=tuple(
            (status, f"{counts[status]} {word}") for status, word in words.items() if counts[status]
        ),
        unknown_count=counts["unknown"],
        first_check=next((entry for entry in fix.preconditions if entry.status == "unknown"), None),
        unmet=tuple(entry for entry in fix.preconditions if entry.status == "unmet"),
        overlap=_describe_overlap(_collect_lines(tabs, anywhere), earlier),
        before_ns=before_ns,
        parts=() if bound is None or fix.replay is None else _share_out(fix.replay.walls, 1 / bound),
        saved=units.signed_duration(after_ns - before_ns) if after_ns < before_ns else "",
        reason=describe_briefly(fix, is_first=not earlier),
        whole=whole,
    )


def _share_out(walls: Walls, share: float) -> tuple[tuple[Wall, float], ...]:
    """Share out a part of a step among walls, in proportion to their times."""
    total_ns = max(sum(walls.parts()), 1)
    parts = zip(Wall, walls.parts(), strict=True)
    return tuple((wall, share * part_ns / total_ns) for wall, part_ns in parts if part_ns)


def _tabulate_settings(settings: Sequence[Setting]) -> tuple[SettingTab, ...]:
    systems = dict.fromkeys(one.system for one in settings)
    tabs = []
    for system in systems:
        lines = tuple(map(Setting.write, [one for one in settings if one.system == system]))
        copied = [line for line in lines if not is_sketch(system, line)]
        tabs.append(SettingTab(_LABELS[system], lines, tuple(copied)))
    return tuple(tabs)


def list_callouts(analysis: Analysis, rank: Rank) -> tuple[Finding, ...]:
    """List the findings that a reader of the verdict must know, as the first screen of a terminal does."""
    return tuple(find_doubts(analysis, rank)[:_MOST_CALLOUTS])


def list_facts(analysis: Analysis, rank: Rank) -> tuple[Fact, ...]:
    """List what the verdict rests on: steps, resolved waits, the replay, how much was captured."""
    return (
        _judge_steps(analysis, rank),
        _judge_waits(analysis),
        _judge_replay(analysis),
        _judge_coverage(analysis),
    )


def _judge_steps(analysis: Analysis, rank: Rank) -> Fact:
    unit, steady = analysis.anchor.unit, sum(step.steady for step in rank.steps)
    if analysis.anchor.kind == "whole-trace":
        text = (
            f"Times cover the whole {analysis.anchor.window}, idle time before and after GPU work included."
        )
        return Fact("Fewer than two steps", text, "word-steady", "warn", "fewer than two steps were found")
    head = f"{units.plural(steady, f'steady {unit}')} of {len(rank.steps)}"
    name, by = analysis.anchor.name, describe_finder(analysis.anchor)
    ranges = "NVTX ranges" if analysis.inputs[0].profiler is Profiler.NSYS else "ranges"
    by = f"found by {ranges} {shorten_anchor(name)}" if name else by
    agrees = analysis.anchor.cross_check
    checked = " The repeating kernel sequence agrees." if agrees is not None and agrees.agrees else ""
    stall = find_deciding_stall(rank, choose_basis(analysis, rank), analysis.diagnosis.dominant_wall)
    if stall is not None:
        rests = f"The wall depends on {len(stall.steps)} slow {unit}s."
        doubt = f"the wall depends on {len(stall.steps)} slow {unit}s"
        return Fact(head, f"{rests} {units.capitalize(by)}.{checked}", "word-steady", "warn", doubt)
    if steady < ENOUGH_STEPS_COUNT:
        doubt = f"how much {unit}s vary, with {units.plural(steady, f'steady {unit}')}"
        return Fact(head, f"{units.capitalize(by)}.{checked}", "word-steady", "warn", doubt)
    return Fact(head, f"{units.capitalize(by)}.{checked}", "word-steady", "ok")


def _judge_waits(analysis: Analysis) -> Fact:
    sure = analysis.diagnosis.confidence
    if sure is None:
        resolved = analysis.capture.resolved_dependency_share
        return Fact(f"{units.percent(resolved)} of waits resolved", "", "word-unattributed", "ok")
    is_sure = sure.level == "high"
    doubts, _ = sort_reasons(analysis, skips_doubts=analysis.anchor.kind == "whole-trace")
    doubt = "" if is_sure else "; ".join(doubts)
    tone: Tone = "ok" if is_sure else "warn"
    head = f"{sure.level.capitalize()} confidence"
    return Fact(head, write_reasons(analysis), "word-confidence", tone, doubt)


def _judge_replay(analysis: Analysis) -> Fact:
    replay, target = analysis.replay, "word-replay-error"
    if replay is None or replay.refused is not None or replay.check is None:
        reason = "no recommendation can be replayed" if replay is None else str(replay.refused)
        doubt = ""
        if replay is not None and replay.check is not None:
            brief = replay.refused_briefly or reason
            doubt = f"speedups, which are not simulated, because {brief}"
        return Fact("No replay", f"{units.capitalize(reason)}.", target, "warn", doubt)
    error = replay.check.error_median
    if error is None:
        text = f"A single {analysis.anchor.unit} is not enough to test the replay."
        return Fact("Replay error unknown", text, target, "warn", "the replay error is unknown")
    operations, unit = units.number(replay.operations), analysis.anchor.unit
    text = (
        f"To test the replay, each {unit} is simulated with its own operations and CUDA calls. Latencies, and"
        f" host time between CUDA calls, are the medians of the other {unit}s. The error is the median"
        f" difference from the measured length. The replay covers {operations} operations."
    )
    tone: Tone = "ok" if error <= FIX_REPLAY_ERROR_SHARE else "warn"
    doubt = "" if tone == "ok" else "the upper bounds, because the replay error is large"
    return Fact(f"Replay error {units.percent(error)}", text, target, tone, doubt)


def _judge_coverage(analysis: Analysis) -> Fact:
    capture, supplied = analysis.capture, len(analysis.ranks)
    found = units.plural(len(capture.findings), "finding")
    size = capture.world_size or supplied
    has_communication = any(rank.communication.operations for rank in analysis.ranks)
    if size > supplied and has_communication:
        text = "Without the other ranks, transfer time cannot be separated from waiting for peers."
        doubt = f"transfer time and waiting for peers, with {supplied} of {size} ranks captured"
        return Fact(f"{supplied} of {size} ranks", text, "word-unsplit", "warn", doubt)
    if capture.findings:
        (gravest, *_) = sort_findings(capture.findings)
        tone: Tone = "info" if gravest.severity == "info" else "warn"
        return Fact(f"{found} on the capture", gravest.short, "limits", tone)
    ranks = "1 rank" if supplied == 1 else f"All {supplied} ranks"
    return Fact(f"{ranks} analyzed", "No finding limits the result.", "limits", "ok")


def shorten_settings(settings: Sequence[Setting], most: int) -> tuple[str, int]:
    """List the settings that one system needs, without comments, on one line; and count those left out.

    The first one is always listed.

    >>> shorten_settings((Setting("program", "a()  # why", ""), Setting("program", "b" * 60, "")), 54)
    ('a()', 1)
    """
    if not settings:
        return "", 0
    own = [entry.write_code() for entry in select_settings(settings)]
    shown = next((count for count in range(len(own), 1, -1) if len("  ".join(own[:count])) <= most), 1)
    return visible("  ".join(own[:shown]), most=_MOST_LINES_OF_SETTING * most), len(own) - shown


LineKind = Literal["setting", "bound", "blocked", "check", "evidence", "note"]
_TONES: Mapping[LineKind, SpanTone | None] = {
    "setting": "setting",
    "bound": None,
    "blocked": "warning",
    "check": "dim",
    "evidence": "dim",
    "note": "dim",
}


def list_card_lines(card: Card) -> Iterator[tuple[LineKind, str]]:
    """List what stands below the title of a card: settings, bound, obstacles, conditions, evidence."""
    settings = [line for tab in (*card.tabs[:1], *card.anywhere) for line in tab.lines]
    yield from (("setting", line) for line in settings[:_MOST_SETTINGS])
    if (left := len(settings) - _MOST_SETTINGS) > 0:
        yield "note", units.plural(left, "more setting")
    if bound := _describe_bound(card):
        yield "bound", bound
    if assumed := describe_assumptions(card.fix):
        yield "note", assumed
    if experience := describe_experience(card.fix):
        yield "note", experience
    for needed in card.unmet:
        yield "blocked", f"Blocked: {needed.text}{f' → {needed.unblock}' if needed.unblock else ''}"
    if card.overlap:
        yield "note", card.overlap
    if card.checks:
        first = f". Check first: {card.first_check.text}" if card.first_check else ""
        yield "check", f"Conditions: {', '.join(text for _, text in card.checks)}{first}"
    if card.fix.evidence:
        yield "evidence", f"Evidence: {card.fix.evidence[0]}"


def _describe_bound(card: Card) -> str:
    """Say how long the step would be at the bound and what limits it then; empty without a bound."""
    if card.fix.replay is not None:
        return describe_answer(card.fix, card.fix.replay)
    change = units.join_ends(card.before, card.after, " → ") if card.before != card.after else ""
    then = f"next wall: {card.next_wall}" if card.next_wall else ""
    return "" if card.after_share is None else ", ".join(filter(None, (change, then)))


def build_recommendations(cards: Sequence[Card], notes: Sequence[str], title: str) -> Section:
    """Make what a terminal shows of all recommendations: the first as cards, the others by title."""
    fixes = tuple(card.fix for card in cards)
    shown = select_first_fixes(fixes)
    rows: list[tuple[Line, ...]] = []
    for number, card in enumerate(cards[: len(shown)], start=1):
        rows.append((f"{number}", (Span(card.fix.title, card.fix.wall),), card.badge))
        rows += [("", (Span(visible(text), _TONES[kind]),), "") for kind, text in list_card_lines(card)]
    for fix in find_blocked_fixes(shown, fixes):
        rows.append(("-", (Span(f"Held back: {fix.title}", fix.wall),), ""))
        rows += [("", line, "") for line in describe_obstacles(fix)]
    rows += [("", (Span(visible(note, most=_LONGEST_NOTE), "dim"),), "") for note in notes]
    if len(cards) > len(shown):
        more = "More fixes: with weaker evidence, without an estimate, or for compute"
        rows.append(("", (Span(more, "dim"),), ""))
    for number, card in enumerate(cards[len(shown) :], start=len(shown) + 1):
        rows.append((f"{number}", f"{card.fix.title} ({card.fix.id})", card.badge))
    if len(cards) > len(shown):
        rows.append(("", (Span(f"Why and how: wallscope explain {shown[0].id}", "dim"),), ""))
    return Section("fixes", title, "", (Items(tuple(rows), ("mark", "fold", "right")),))
