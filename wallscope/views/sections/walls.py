"""Time breakdown of the step by wall and cause; recommendations: fixes sorted by upper bound."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wallscope import units
from wallscope.advice.evidence import describe_questions
from wallscope.advice.unit_fixes import is_for_unit
from wallscope.model.advice import Fix, Met, Program, Setting, System
from wallscope.model.analysis import Analysis, CauseTime, Job, Rank, UnitKind
from wallscope.model.cause_catalogue import DRAINED, describe_cause
from wallscope.model.enums import Wall
from wallscope.model.section import (
    MEDIA,
    PAGE,
    Cell,
    Column,
    Grid,
    Items,
    Limit,
    Line,
    Medium,
    Section,
    Span,
    Value,
    append_row,
    make_column,
    make_columns,
    on_markdown,
    on_page,
    on_terminal,
    tabulate,
)
from wallscope.model.whatif import Answer, Replay
from wallscope.render import figures
from wallscope.summary.diagnosis import LOSSES
from wallscope.thresholds.verdict import (
    FIXES_OF_A_CAUSE_COUNT,
    MATERIAL_SHARE,
    SHOWN_CAPTURE_ADVICE_COUNT,
    SHOWN_FIXES_COUNT,
    SHOWN_WIN_SHARE,
)
from wallscope.views.light import is_estimate, write_worth
from wallscope.views.sections.words import WALL_WORDS, explain_cause
from wallscope.views.verdict import find_dominant

_MOST_SETTINGS = 3
_MOST_QUESTIONS = 3
_ALSO_SHOWN: tuple[System, ...] = ("environment", "launcher", "nsys")
_STATUSES: Mapping[Met, str] = {"met": "met", "unmet": "not met", "unknown": "to check"}
_MOST_ON_TERMINAL, _MOST_IN_MARKDOWN = 12, 10
_WIDE = (110, 1 << 30)
_SEEN = 0.01
"""Difference of two speedups of two decimals that a reader sees."""
_MEDIAN = "median of its share over the steady steps; the verdict is based on it"
_CEILING = "upper bound on speedup: step time divided by step time without the cause; not additive"
_BEST = "speedup of the recommendation that addresses the cause and gains most, with its number"
_MORE = "A cause can also delay later work, so its bound can be larger than its own time suggests."
_SEVERAL = "A fix can gain more than the bound of one cause, because it addresses other causes too."
_NO_BOUND = "No upper bound is computed for compute or for causes that take little time."
_AFTER_CALLS = (
    "Host time between a blocking call and the next launch counts in the row of that call. The rest of the"
    " time outside calls is in the row host/framework."
)


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


def title_fixes(shown: Sequence[Fix], analysis: Analysis) -> str:
    """Say what stands right of the fixes: upper bounds, in which order, or why there are none."""
    has_steps = analysis.anchor.kind != "whole-trace"
    if not any(map(write_worth, shown)):
        return f"Recommendations ({'speedup not' if has_steps else 'without steps, no speedup is'} estimated)"
    is_removed = all(fix.replay is None and fix.most_speedup is None for fix in shown)
    removed = ", cause fully removed" if is_removed else ""
    order = describe_order(shown, analysis.job)
    told = f"; {order}" if order else ""
    what = "speedup" if any(map(is_estimate, shown)) else "upper bound on speedup"
    return f"Recommendations ({what}{removed}; not additive{told})"


def describe_order(shown: Sequence[Fix], job: Job | None) -> str:
    """Say in a clause by what fixes are ordered; empty where their numbers alone show it.

    What holds a job up comes first, also where fixes of single ranks have larger bounds.
    """
    if len(shown) < 2:
        return ""
    bounds = [fix.speedup_ceiling or 0.0 for fix in shown]
    written = [
        bound if is_estimate(fix) else fix.most_speedup or bound
        for fix, bound in zip(shown, bounds, strict=True)
    ]
    if written == sorted(written, reverse=True):
        return "" if job is None else "largest first"
    if bounds == sorted(bounds, reverse=True):
        return "largest expected speedup first"
    if job is None or not job.stragglers or not is_for_unit(shown[0]):
        return "weaker evidence last"
    late = f"{'slow' if job.leading[0].unit is UnitKind.LINK else 'late'} {job.leading[0].unit}"
    what = f"the {late}{'s' if len(job.leading) > 1 else ''} first"
    return what if bounds[1:] == sorted(bounds[1:], reverse=True) else f"{what}, weaker evidence last"


def build_capture_quality(found: tuple[Fix, ...]) -> Section:
    """Make what would let the capture say more: no recommendation for the program."""
    rows: list[tuple[Line, ...]] = []
    for fix in found[:SHOWN_CAPTURE_ADVICE_COUNT]:
        rows.append(("•", (Span(fix.title, "dim"),), ""))
        rows += [("", _write_settings(fix.settings), "")] if fix.settings else []
    if (left := len(found) - SHOWN_CAPTURE_ADVICE_COUNT) > 0:
        rows.append(("", (Span(f"{left} more in the JSON", "dim"),), ""))
    title = "Capture quality: what to record for a better analysis"
    return Section("capture-quality", title, "", (Items(tuple(rows), ("mark", "fold", "right")),))


def describe_program(program: Program) -> str:
    """Say whose program it is, and what shows it.

    >>> evidence = ("name 'at::add'", "name 'at::add'", "name 'dali::add'")
    >>> describe_program(Program("pytorch", "PyTorch", ("ddp", "dali"), evidence, ("DDP", "DALI")))
    "Program: PyTorch + DDP (name 'at::add'), DALI (name 'dali::add')"
    """
    if program.framework is None:
        return "Program: the framework is unknown, so no framework settings are recommended"
    names: dict[str, list[str]] = {}
    for name, shown in zip((program.name, *program.part_names), program.evidence or ("",), strict=False):
        names.setdefault(shown, []).append(name)
    listed = (f"{' + '.join(own)}{f' ({shown})' if shown else ''}" for shown, own in names.items())
    return f"Program: {', '.join(listed)}"


def describe_worthless_fixes(dismissed: tuple[Fix, ...]) -> str:
    """Say which fixes the replay advises against."""
    names = ", ".join(fix.id for fix in dismissed)
    return f"Not recommended: {names} (simulated gain below {100 * MATERIAL_SHARE:.0f} % of the step)"


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


def describe_unaddressed_compute(analysis: Analysis, rank: Rank) -> str:
    """Say of a compute-bound run that no fix is known for its largest part; empty where one is."""
    own = [one for one in rank.causes if one.wall is Wall.COMPUTE]
    if find_dominant(analysis) != "compute" or not own:
        return ""
    largest = max(own, key=lambda one: one.typical_ns)
    if any(largest.cause in fix.causes for fix in analysis.fixes or ()):
        return ""
    taken = units.milliseconds(largest.typical_ns)
    return f"No known fix speeds up the largest part of compute, {describe_cause(largest.cause)} ({taken})."


def describe_unaddressed_loss(analysis: Analysis, rank: Rank) -> str:
    """Say of a compute-bound run that no fix applies to its largest loss; empty where one does."""
    lost = [one for one in rank.causes if one.wall in LOSSES and one.share >= MATERIAL_SHARE]
    if find_dominant(analysis) != "compute" or not lost:
        return ""
    largest = max(lost, key=lambda one: one.typical_ns)
    if any(largest.cause in fix.causes for fix in analysis.fixes or ()):
        return ""
    return (
        f"The largest cause of lost time is {describe_cause(largest.cause)}"
        f" ({units.milliseconds(largest.typical_ns)}). No known fix for this program addresses it."
        f" Fixes for other programs: wallscope explain {largest.cause}"
    )


def describe_relief(
    found: Sequence[Fix], dismissed: Sequence[Fix], memory_share: float, window: str
) -> tuple[str, str]:
    """Say what memory takes of a window, then the command that explains how to relieve memory pressure.

    >>> describe_relief((), (), 0.001, "step")
    ('Memory takes 0.1 % of the step. No known fix relieves memory pressure.', '')
    """
    own = [fix for fix in (*dismissed, *found) if not fix.causes]  # all other fixes have causes
    taken = f"Memory takes {units.percent(memory_share)} of the {window}."
    if not own:
        return f"{taken} No known fix relieves memory pressure.", ""
    worth = f" (the {window} would not get shorter)" if own[0] in dismissed else ""
    return f"{taken} To lower memory pressure{worth}, see", f"wallscope explain {own[0].id}"


def select_settings(settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """Return the settings of the first system, then those that any system needs; others are alternatives."""
    own = [entry for entry in settings if entry.system == settings[0].system]
    others = [entry for entry in settings if entry not in own and entry.system in _ALSO_SHOWN]
    return (*own, *others)


def count_left_out(count: int) -> str:
    """Count settings that a list leaves out, as every list does; empty for none.

    >>> count_left_out(2), count_left_out(0)
    ('  +2 more', '')
    """
    return f"  +{units.number(count)} more" if count > 0 else ""


def _write_settings(settings: tuple[Setting, ...]) -> str:
    """List the settings of the first system, then the environment's; the rest is counted."""
    lines = [entry.write() for entry in select_settings(settings)]
    return " · ".join(lines[:_MOST_SETTINGS]) + count_left_out(len(lines) - _MOST_SETTINGS)


def describe_answer(fix: Fix, answer: Answer) -> str:
    """Say what the step takes in the replay of a fix, what the replay assumes, and what is the wall then.

    What its causes take on few steps alone comes on top: the typical step, which is replayed, has none of it.
    """
    questions = describe_questions(answer.questions[:_MOST_QUESTIONS])
    if (more := len(answer.questions) - _MOST_QUESTIONS) > 0:
        questions += f" and {units.plural(more, 'more change')}"
    before_ns = answer.step_ns + answer.won_ns
    rare_ns = (fix.recoverable_ns or 0) - answer.won_ns
    rare = ""
    if rare_ns >= SHOWN_WIN_SHARE * before_ns:
        rare = f"; avoiding stalls in a few steps saves another {units.duration(rare_ns)} per step on average"
    if abs(answer.won_ns) < SHOWN_WIN_SHARE * before_ns:
        return f"Replay {questions}: no gain, still {answer.next_wall}-bound{rare}"
    change = units.change(before_ns, answer.step_ns)
    return f"Replay {questions}: {change}, next wall: {answer.next_wall}{rare}"


def describe_replay(replay: Replay) -> str:
    """Say how good the replays of fixes are, or why there are none."""
    if replay.refused is not None or replay.check is None:
        return f"No replay: {replay.refused}."
    ranks = "" if replay.ranks == 1 else f" of {replay.ranks} ranks"
    return (
        f"Each replay of a recommendation simulates {units.number(replay.operations)} recorded"
        f" operations{ranks}, with the change that the recommendation assumes."
        f" The replay error is {units.percent(replay.check.error_median)}."
    )


def count_preconditions(fix: Fix) -> str:
    """Count how many preconditions are met, not met, and still to check; empty without any.

    Those that the fix itself sets are none that the run has met.
    """
    counts = Counter(entry.status for entry in fix.preconditions)
    return ", ".join(f"{counts[status]} {label}" for status, label in _STATUSES.items() if counts[status])


def count_open_conditions(fix: Fix) -> str:
    """Count the conditions that are still to check, else those that are met; empty without any."""
    counts = Counter(entry.status for entry in fix.preconditions)
    if counts["unknown"]:
        return f"{units.plural(counts['unknown'], 'condition')} to check"
    return f"{units.plural(counts['met'], 'condition')} met" if counts["met"] else ""


def tabulate_walls(analysis: Analysis, rank: Rank) -> Grid:
    """Make a table of the walls of the typical step, which sum to it; Markdown adds the sum."""
    step_ns, whole = rank.typical.step_ns, analysis.anchor.typical
    steady = f"steady {analysis.anchor.unit}s"
    rows = [_describe_wall(analysis, rank, wall) for wall in Wall]
    columns: tuple[Column, ...] = (
        on_terminal("wall", "", wrap="fixed"),
        on_terminal("bar", "", "bar"),
        on_terminal("part", "share", "percent"),
        on_terminal("time", "time", "ms"),
        on_terminal("mark", ""),
        on_terminal(
            "median", f"median of steady {analysis.anchor.window}s", "percent", none="", wrap="words"
        ),
        on_markdown("name", "wall"),
        on_markdown("time", "time", "ms"),
        on_markdown("share", "share", "percent"),
        on_markdown("median", f"median share of steady {analysis.anchor.window}s", "percent", none=""),
        on_markdown("range", f"p10-p90 of steady {analysis.anchor.window}s", "plain"),
        on_page("name", "wall"),
        on_page("time", "time", "ms", f"time of the {whole} attributed to the wall"),
        on_page("part", f"share of the {whole}", "percent", f"of the {whole}"),
        on_page("median", f"median share of {steady}", "percent", _MEDIAN, widths=(1, 1), none=""),
        on_page("spread", f"p10 to p90 of {steady}", "plain", "spread of its share over the steady steps"),
    )
    has_spread = any(row["spread"] for row in rows)
    columns = tuple(one for one in columns if has_spread or one.key not in {"median", "range", "spread"})
    title = f"Time breakdown of the {whole} ({units.milliseconds(step_ns)})"
    cells = tuple(tuple(row[column.key] for column in columns) for row in rows)
    return Grid(title, columns, cells, has_header=has_spread)


def _describe_wall(analysis: Analysis, rank: Rank, wall: Wall) -> dict[str, Value | Cell]:
    """Describe a wall of the typical step, with its share of the steady steps where that is known."""
    time_ns, step_ns = getattr(rank.typical.walls, wall), rank.typical.step_ns
    steady = None if analysis.diagnosis.walls is None else getattr(analysis.diagnosis.walls, wall)
    share = time_ns / step_ns if step_ns else None
    is_dominant = wall == analysis.diagnosis.dominant_wall
    low = high = ""
    if steady is not None and steady.p10 is not None and steady.p90 is not None:
        low, high = units.percent(steady.p10), units.percent(steady.p90)
    return {
        "wall": str(wall),
        "name": Cell(str(wall), wall, WALL_WORDS[wall], tone="strong" if is_dominant else None),
        "time": time_ns,
        "share": share,
        "part": share,
        "bar": Cell(share or 0.0, wall),
        "mark": "◀" if is_dominant else "",
        "median": steady.share if steady is not None and low else None,
        "range": f"{low} to {high}" if low else "",
        "spread": units.join_ends(low, high, " to ") if low else "",
    }


def tabulate_causes(analysis: Analysis, title: str, causes: Sequence[CauseTime], **settings: Any) -> Grid:
    """Make a table of causes: time, meaning, upper bound on speedup without each, and that of the best fix.

    The notes say what a bound assumes that no fix reaches.
    """
    best = find_best_fixes(analysis.fixes or ())
    ceilings = {entry.cause: entry.speedup_ceiling for entry in analysis.opportunities}
    has_ceiling, whole = any(entry.cause in ceilings for entry in causes), analysis.anchor.typical
    media: tuple[Medium, ...] = MEDIA if has_ceiling else ("page", "markdown")

    def name(entry: CauseTime) -> Cell:
        return Cell(entry.cause, entry.wall)

    def explain(entry: CauseTime) -> Cell:
        return Cell(entry.cause, entry.wall, explain_cause(entry.cause))

    def describe(entry: CauseTime) -> str:
        return describe_cause(entry.cause)

    def ceiling(entry: CauseTime) -> float | None:
        return ceilings.get(entry.cause)

    def fix(entry: CauseTime) -> str:
        number, speedup = best.get(entry.cause, (0, 0.0))
        return (
            f"{units.write_speedup(speedup)} ({number})"
            if number
            else "none"
            if entry.cause in ceilings
            else ""
        )

    def recoverable(entry: CauseTime) -> str:
        return "" if entry.recoverable_ns is None else f"-{units.milliseconds(entry.recoverable_ns)}"

    columns = (
        on_terminal(
            "cause", "cause", value=lambda entry: Cell(entry.cause, entry.wall), most=60, wrap="fold"
        ),
        make_column(CauseTime, "cause", media=PAGE, value=explain),
        on_markdown("cause", "cause", "code", most=120),
        on_page("meaning", "what it is", value=describe),
        *make_columns(CauseTime, "typical_ns", "share", words={"whole": whole}),
        make_column(CauseTime, "recoverable_ns", media=PAGE, words={"whole": whole}, value=recoverable),
        Column("ceiling", "upper bound", "speedup", _CEILING, ceiling, "bound", media, none=""),
        Column("fix", "best fix", "plain", _BEST, fix, media=media),
        on_terminal("meaning", "what it is", value=describe, widths=_WIDE, wrap="words"),
        on_markdown("meaning", "what it is", value=describe, most=300),
        make_column(CauseTime, "unresolved_ns", media=PAGE, value=lambda entry: entry.unresolved_ns or ""),
    )
    notes = (*_explain_bounds(analysis, causes, best), *settings.pop("notes", ()))
    return tabulate(title, columns, causes, is_wordy=True, notes=notes, **settings)


def find_best_fixes(fixes: tuple[Fix, ...]) -> dict[str, tuple[int, float]]:
    """Return, by cause, the number and the upper bound of the fix that gains most."""
    found: dict[str, tuple[int, float]] = {}
    for number, fix in enumerate(number_fixes(fixes), start=1):
        for cause in fix.causes:
            if fix.speedup_ceiling is not None and fix.speedup_ceiling > found.get(cause, (0, 0.0))[1]:
                found[cause] = number, fix.speedup_ceiling
    return found


def _explain_bounds(
    analysis: Analysis, causes: Sequence[CauseTime], best: Mapping[str, tuple[int, float]]
) -> Iterator[str]:
    """Say what the bounds of listed causes assume, and why they differ from times and from fixes."""
    listed = {entry.cause: entry.typical_ns for entry in causes}
    bounds = [entry for entry in analysis.opportunities if entry.cause in listed]
    for entry in bounds:
        if entry.assumes is not None:
            yield f"{entry.cause}: {units.write_speedup(entry.speedup_ceiling)} assumes that {entry.assumes}."
    least_ns = SHOWN_WIN_SHARE * analysis.ranks[analysis.diagnosis.rank_index].typical.step_ns
    if any(entry.recoverable_ns - listed[entry.cause] >= least_ns for entry in bounds):
        yield _MORE
    if any(best[one.cause][1] >= one.speedup_ceiling + _SEEN for one in bounds if one.cause in best):
        yield _SEVERAL


def build_causes(analysis: Analysis, rank: Rank) -> Section:
    """Make the waterfall from compute to the measured step, its walls, and the step without each cause."""
    whole, compute_ns = analysis.anchor.typical, rank.typical.walls.compute
    lost = units.milliseconds(rank.typical.step_ns - compute_ns)
    answer = f"Compute takes {units.milliseconds(compute_ns)} of the {whole}; the other causes add {lost}."
    title = f"Causes of the {whole} (they sum to it)"
    limits: dict[Medium, Limit] = {"terminal": Limit(_MOST_ON_TERMINAL, "smaller cause")}
    notes = [_NO_BOUND] if analysis.opportunities else []
    brief = f"{title}; bound: upper bound on speedup without the cause" if notes else ""
    if any(one.cause.startswith(DRAINED) for one in rank.causes):
        notes.append(_AFTER_CALLS)
    table = tabulate_causes(analysis, title, rank.causes, notes=tuple(notes), limits=limits, brief=brief)
    blocks = (figures.draw_waterfall(rank, whole), tabulate_walls(analysis, rank), table)
    return Section("causes", "Causes", answer, blocks)


def tabulate_losses(analysis: Analysis, rank: Rank) -> Grid | None:
    """Make what Markdown shows of the losses, sorted by time, the rest as a sum."""
    lost = [entry for entry in rank.causes if entry.wall != Wall.COMPUTE and entry.typical_ns > 0]
    lost.sort(key=lambda entry: (-entry.typical_ns, entry.cause))
    table = tabulate_causes(
        analysis, f"Causes of lost time in the {analysis.anchor.typical}", lost[:_MOST_IN_MARKDOWN]
    )
    if rest := lost[_MOST_IN_MARKDOWN:]:
        time_ns, share = sum(entry.typical_ns for entry in rest), sum(entry.share for entry in rest)
        smaller = Cell(f"{len(rest)} smaller", tone="dim")
        table = append_row(table, {"cause": smaller, "time": time_ns, "share": share})
    return table if lost else None
