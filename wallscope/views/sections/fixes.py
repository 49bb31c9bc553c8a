"""Recommendations: fixes sorted by upper bound, and what their replays cover."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from wallscope import units
from wallscope.advice.evidence import describe_question
from wallscope.model.advice import Fix, Met, Program, Setting, System
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.enums import Wall
from wallscope.model.section import Items, Line, Section, Span
from wallscope.model.whatif import Answer, Replay
from wallscope.render.texts import visible
from wallscope.summary.diagnosis import LOSSES
from wallscope.thresholds.verdict import (
    FIXES_OF_A_CAUSE_COUNT,
    MATERIAL_SHARE,
    SHOWN_CAPTURE_ADVICE_COUNT,
    SHOWN_FIXES_COUNT,
    SHOWN_WIN_SHARE,
)
from wallscope.views.sections.words import find_dominant

_MOST_SETTINGS = 3
_MOST_QUESTIONS = 2
_LONGEST_ASSUMPTION = 300
_PRESSURE = "memory pressure is"
"""What memory pressure alone asks for is explained by these words first."""
_ALSO_SHOWN: tuple[System, ...] = ("environment", "launcher", "nsys")
_STATUSES: Mapping[Met, str] = {"met": "met", "unmet": "not met", "unknown": "to check"}


def select_first_fixes(found: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """Return the fixes that are shown first, in their order: not more than two of a cause before others."""
    taken: Counter[str] = Counter()
    first: list[int] = []
    for place, fix in enumerate(found):
        cause = fix.causes[0] if fix.causes else fix.wall
        taken[cause] += 1
        if taken[cause] <= FIXES_OF_A_CAUSE_COUNT:
            first.append(place)
    others = [place for place in range(len(found)) if place not in first]
    return tuple(found[place] for place in sorted([*first, *others][:SHOWN_FIXES_COUNT]))


def number_fixes(found: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """Return all fixes in the order of their numbers: those that are shown first, then the others."""
    return tuple({fix.id: fix for fix in (*select_first_fixes(found), *found)}.values())


def describe_order(shown: Sequence[Fix]) -> str:
    """Say why fixes are not sorted by their upper bounds; empty if they are."""
    bounds = [fix.speedup_ceiling or 0.0 for fix in shown]
    return "" if bounds == sorted(bounds, reverse=True) else "; weaker evidence last"


def build_fixes(
    found: tuple[Fix, ...],
    replay: Replay | None = None,
    program: Program | None = None,
    dismissed: tuple[Fix, ...] = (),
) -> Section:
    """Make what a terminal shows: a few fixes with settings and preconditions, the others by title.

    `replay` says what the replays of fixes cover; `None` where nothing was replayed. `dismissed` are
    those that win nothing there.
    """
    title = (
        f"Recommendations (upper bound on speedup; not additive{describe_order(select_first_fixes(found))})"
    )
    rows = tuple(_list_rows(found, replay, program, dismissed))
    return Section("fixes", title, "", (Items(rows, ("mark", "fold", "right")),))


def build_capture_quality(found: tuple[Fix, ...]) -> Section:
    """Make what would let the capture say more: no recommendation for the program."""
    rows: list[tuple[Line, ...]] = []
    for fix in found[:SHOWN_CAPTURE_ADVICE_COUNT]:
        rows.append(("•", (Span(fix.title, "dim"),), ""))
        rows += [("", _list_settings(fix.settings), "")] if fix.settings else []
    if (left := len(found) - SHOWN_CAPTURE_ADVICE_COUNT) > 0:
        rows.append(("", (Span(f"{left} more in the JSON", "dim"),), ""))
    title = "Capture quality: what to record for a better analysis"
    return Section("capture-quality", title, "", (Items(tuple(rows), ("mark", "fold", "right")),))


def describe_program(program: Program) -> str:
    """Say whose program it is, and what shows it.

    >>> describe_program(Program("pytorch", "PyTorch", (), ("name 'at::native::add'",)))
    "Program: PyTorch (evidence: name 'at::native::add')"
    """
    if program.framework is None:
        return "Program: unknown framework, so no framework settings are recommended"
    first, *others = program.evidence or ("",)
    same = [one.removesuffix(f": {first}") for one in others if one.endswith(f": {first}")]
    listed = [first, *(one for one in others if not one.endswith(f": {first}"))]
    return f"Program: {' + '.join((program.name, *same))} (evidence: {'; '.join(filter(None, listed))})"


def describe_worthless_fixes(dismissed: tuple[Fix, ...]) -> str:
    """Say which fixes the replay advises against."""
    names = ", ".join(fix.id for fix in dismissed)
    return f"Not recommended: {names} (replayed gain under {100 * MATERIAL_SHARE:.0f} % of the step)"


def _list_rows(
    found: tuple[Fix, ...], replay: Replay | None, program: Program | None, dismissed: tuple[Fix, ...]
) -> Iterator[tuple[Line, ...]]:
    shown = select_first_fixes(found)
    if program is not None:
        yield "", (Span(visible(describe_program(program), most=200), "dim"),), ""
    for number, fix in enumerate(shown, start=1):
        worth = "" if fix.speedup_ceiling is None else f"{fix.speedup_ceiling:.2f}x"
        yield f"{number}", (Span(fix.title, fix.wall),), worth
        yield from (("", line, "") for line in _describe(fix))
    for fix in find_blocked_fixes(shown, found):
        yield "-", (Span(f"Held back: {fix.title}", fix.wall),), ""
        yield from (("", line, "") for line in describe_obstacles(fix))
    if replay is not None:
        yield "", (Span(describe_replay(replay), "dim"),), ""
    if dismissed:
        yield "", (Span(describe_worthless_fixes(dismissed), "dim"),), ""
    others = [fix for fix in found if fix not in shown]
    if others:
        yield "", (Span("More fixes: same causes, weaker evidence or no estimate", "dim"),), ""
    for number, fix in enumerate(others, start=len(shown) + 1):
        worth = "" if fix.speedup_ceiling is None else f"{fix.speedup_ceiling:.2f}x"
        yield f"{number}", f"{fix.title} ({fix.id})", worth
    if others:
        yield "", (Span(f"Why and how: wallscope explain {shown[0].id}", "dim"),), ""


def find_blocked_fixes(shown: tuple[Fix, ...], found: tuple[Fix, ...]) -> list[Fix]:
    """Find the first blocked fix that would win as much as any that is shown."""
    most_ns = max((fix.recoverable_ns or 0 for fix in shown), default=0)
    hidden = [fix for fix in found if fix.blocked and fix not in shown]
    return [fix for fix in hidden if most_ns and (fix.recoverable_ns or 0) >= most_ns][:1]


def describe_obstacles(fix: Fix) -> Iterator[Line]:
    """Say what blocks a fix, and what unblocks it."""
    for entry in fix.preconditions:
        if entry.status == "unmet":
            cure = f" → {entry.unblock}" if entry.unblock else ""
            yield (Span(f"blocked: {entry.text}{cure}", "warning"),)


def _describe(fix: Fix) -> Iterator[Line]:
    """Say what to set, what it would win, what blocks it."""
    if fix.settings:
        yield _list_settings(fix.settings)
    if fix.replay is not None:
        yield describe_answer(fix, fix.replay)
    if fix.assumes:
        yield (Span(visible(fix.assumes, most=_LONGEST_ASSUMPTION), "dim"),)
    if fix.evidence:
        yield (Span(f"evidence: {visible(fix.evidence[0], most=200)}", "dim"),)
    yield from describe_obstacles(fix)
    parts = [f"preconditions: {count_preconditions(fix)}"] if fix.preconditions else []
    parts += [f"then {fix.next_wall}-bound"] if fix.next_wall and fix.replay is None else []
    if parts:
        yield (Span("; ".join(parts), "dim"),)


def describe_unaddressed_compute(analysis: Analysis, rank: Rank) -> str:
    """Say of a compute-bound run that no fix is known for its largest part; empty where one is."""
    own = [one for one in rank.causes if one.wall is Wall.COMPUTE]
    if find_dominant(analysis) != "compute" or not own:
        return ""
    largest = max(own, key=lambda one: one.typical_ns)
    if any(largest.cause in fix.causes for fix in analysis.fixes or ()):
        return ""
    taken = units.milliseconds(largest.typical_ns)
    return f"The largest part of compute, {describe_cause(largest.cause)} ({taken}), has no known fix."


def describe_unaddressed_loss(analysis: Analysis, rank: Rank) -> str:
    """Say of a compute-bound run that no fix applies to its largest loss; empty where one does."""
    lost = [one for one in rank.causes if one.wall in LOSSES and one.share >= MATERIAL_SHARE]
    if find_dominant(analysis) != "compute" or not lost:
        return ""
    largest = max(lost, key=lambda one: one.typical_ns)
    if any(largest.cause in fix.causes for fix in analysis.fixes or ()):
        return ""
    return (
        f"No known fix for this program: {describe_cause(largest.cause)}, the largest cause of lost time"
        f" ({units.milliseconds(largest.typical_ns)}). All fixes: wallscope explain {largest.cause}"
    )


def describe_relief(
    found: Sequence[Fix], dismissed: Sequence[Fix], memory_share: float, window: str
) -> tuple[str, str]:
    """Say what memory takes of a window, then the command that explains how to relieve memory pressure.

    >>> describe_relief((), (), 0.001, "step")
    ('Memory takes 0.1 % of the step. No known fix relieves the pressure.', '')
    """
    own = [fix for fix in (*dismissed, *found) if fix.why.lower().startswith(_PRESSURE)]
    taken = f"Memory takes {units.percent(memory_share)} of the {window}."
    if not own:
        return f"{taken} No known fix relieves the pressure.", ""
    return f"{taken} To relieve the pressure:", f"wallscope explain {own[0].id}"


def select_settings(settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """Return the settings of the first system, then those that any system needs; others are alternatives."""
    own = [entry for entry in settings if entry.system == settings[0].system]
    others = [entry for entry in settings if entry not in own and entry.system in _ALSO_SHOWN]
    return (*own, *others)


def count_left_out(count: int) -> str:
    """Count settings that a list leaves out, as every list does; empty for none.

    >>> count_left_out(2), count_left_out(0)
    ('  +2', '')
    """
    return f"  +{units.number(count)}" if count > 0 else ""


def _list_settings(settings: tuple[Setting, ...]) -> str:
    """List the settings of the first system, then the environment's; the rest is counted."""
    lines = [entry.write() for entry in select_settings(settings)]
    return " · ".join(lines[:_MOST_SETTINGS]) + count_left_out(len(lines) - _MOST_SETTINGS)


def describe_answer(fix: Fix, answer: Answer) -> str:
    """Say what the step takes in the replay of a fix, what the replay assumes, and what is the wall then.

    What its causes take on few steps alone comes on top: the typical step, which is replayed, has none of it.
    """
    asked = " and ".join(map(describe_question, answer.questions[:_MOST_QUESTIONS]))
    if len(answer.questions) > _MOST_QUESTIONS:
        asked += f" and {len(answer.questions) - _MOST_QUESTIONS} more changes"
    before_ns = answer.step_ns + answer.won_ns
    rare_ns = (fix.recoverable_ns or 0) - answer.won_ns
    rare = ""
    if rare_ns >= SHOWN_WIN_SHARE * before_ns:
        rare = f"; stalls on few steps add {units.duration(rare_ns)} per step on average"
    if abs(answer.won_ns) < SHOWN_WIN_SHARE * before_ns:
        return f"Replay {asked}: no gain, still {answer.next_wall}-bound{rare}"
    change = units.change(before_ns, answer.step_ns)
    return f"Replay {asked}: {change}, then {answer.next_wall}-bound{rare}"


def describe_replay(replay: Replay) -> str:
    """Say how good the replays of fixes are, or why there are none."""
    if replay.refused is not None or replay.check is None:
        return f"No replay: {replay.refused}."
    ranks = "" if replay.ranks == 1 else f" of {replay.ranks} ranks"
    return (
        f"The replay covers {units.number(replay.operations)} operations{ranks} and assumes that each fix is"
        f" fully effective. Replay error: {units.percent(replay.check.error_median)}."
    )


def count_preconditions(fix: Fix) -> str:
    """Count how many preconditions are met, not met, and still to check; empty without any.

    Those that the fix itself sets are none that the run has met.
    """
    counts = Counter(entry.status for entry in fix.preconditions)
    return ", ".join(f"{counts[status]} {said}" for status, said in _STATUSES.items() if counts[status])


def count_open_conditions(fix: Fix) -> str:
    """Count the conditions that are still to check, else those that are met; empty without any."""
    counts = Counter(entry.status for entry in fix.preconditions)
    if counts["unknown"]:
        return f"check {units.plural(counts['unknown'], 'condition')}"
    return f"{units.plural(counts['met'], 'condition')} met" if counts["met"] else ""
