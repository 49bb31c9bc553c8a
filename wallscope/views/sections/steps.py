"""Steps by wall, NVTX ranges, the timeline and its longest gaps; gaps and moments on a terminal."""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import groupby
from typing import Any

import polars as pl

from wallscope import units
from wallscope.errors import SelectionError
from wallscope.model.analysis import Analysis, RangeWork, Rank, Step
from wallscope.model.capture import Profiler
from wallscope.model.cause_catalogue import DRAINED, describe_cause, find_wall
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import Wall
from wallscope.model.frame_rows import SpanRow
from wallscope.model.report import GAPS, Gap, GapGroup, Link, Moment, Report, StepTimeline
from wallscope.model.section import (
    PAGE,
    Block,
    Canvas,
    Cell,
    Column,
    Grid,
    Limit,
    Line,
    Lines,
    Medium,
    Section,
    Span,
    append_row,
    make_column,
    make_columns,
    on_terminal,
    tabulate,
)
from wallscope.model.shown import list_fields
from wallscope.render import figures
from wallscope.render.texts import shorten_name, shorten_range_path, visible
from wallscope.views.sections.words import describe_steps, explain_cause
from wallscope.views.verdict import describe_worst_step, name_wall_time

_INSIDE = "time attributed to the wall, of work issued inside"
_MOST_ROWS, _MOST_ON_TERMINAL = 60, 12
_ROOM = (110, 1 << 30)
_BRIEF = {wall: list_fields(Walls)[wall].brief for wall in Wall}
_LONGEST_NAME, _MOST_LINKS = 120, 12
_ROLES = {"typical": "nearest to the typical length", "worst": "the slowest"}
_ENDED = "the operation that starts when the gap ends; its stream is in the tooltip"
_ISSUED = "the call that issued that operation; its thread is in the tooltip"
_MOST_STEPS, _WIDE = 8, 110
_MOST_CHAINS = 6
_KEY_OF_GAPS = (
    "Gaps in steady steps come first, longest at the top. The lines below a gap list its parts in time order:"
    f" start, length, cause and place. A terminal of {_WIDE} columns or more also shows the slack: how much"
    " earlier the gap would end without that part."
)
_HEAD_OF_GAPS = f"{'start':<16}{'length':>9}  largest cause and its time"


def build_steps(
    analysis: Analysis, rank: Rank, drawn: Sequence[StepTimeline], linked: AbstractSet[int] = frozenset()
) -> Section:
    """Make every step by wall, the worst first; which do not count, and why. Those in `linked` lead there."""
    unit, diagnosis = analysis.anchor.window, analysis.diagnosis
    dropped = sum(not step.steady for step in rank.steps)
    led = left = ""
    is_rare = any(stall.wall == diagnosis.dominant_wall for stall in rank.rare_stalls)
    has_steps = analysis.anchor.kind != "whole-trace"
    if (
        diagnosis.led_steps is not None
        and has_steps
        and diagnosis.dominant_wall not in {"mixed", "unknown"}
        and not is_rare
    ):
        is_compute = diagnosis.dominant_wall == "compute"
        first = (is_compute and diagnosis.runner_up) or diagnosis.dominant_wall
        led = (
            f" {units.capitalize(name_wall_time(Wall(first)))} is the largest loss in"
            f" {diagnosis.led_steps} of {diagnosis.steady_steps} steady {unit}s."
        )
    if dropped and has_steps:
        which = f"{unit} that is" if dropped == 1 else f"{dropped} {unit}s that are"
        left = f" All other numbers leave out the {which} not steady; the table says why."
    found = f"{_name_shown_rank(analysis)}{', '.join(describe_steps(analysis.anchor, rank))}"
    answer = f"{_describe_worst(rank, unit, drawn)}{found}.{led}{left}"
    shown = linked if has_steps else frozenset()
    blocks = [figures.draw_steps(rank.steps, unit, leads=bool(shown))] if len(rank.steps) > 1 else []
    title = "Steps" if has_steps else "Window"
    return Section("steps", title, answer, (*blocks, _tabulate_steps(rank, unit, shown)))


def _name_shown_rank(analysis: Analysis) -> str:
    """Name the rank whose steps are shown, where there are several; else empty."""
    if len(analysis.ranks) == 1:
        return ""
    place, job = analysis.diagnosis.rank_index, analysis.job
    rank = analysis.ranks[place].rank
    alone = f"rank {place}" if rank is None else f"rank {rank}"
    name = job.members[place].name if job is not None else alone
    return f"{units.capitalize(visible(name))}: "


def _describe_worst(rank: Rank, unit: str, drawn: Sequence[StepTimeline]) -> str:
    """Repeat the verdict on the worst step, and name the cause that grew most there; else empty."""
    sentences = [*describe_worst_step(rank, unit)]
    role = {timeline.role: timeline for timeline in drawn}
    worst, typical = role.get("worst"), role.get("typical")
    if worst is not None and typical is not None:
        more_ns = (worst.end_ns - worst.start_ns) - (typical.end_ns - typical.start_ns)
        if not sentences:
            longer = (
                f"{units.duration(more_ns)} longer than {unit} {typical.step}, the one nearest to typical"
            )
            sentences.append(f"The slowest steady {unit} is {unit} {worst.step}, {longer}.")
        usual, owned = _sum_step_causes(typical), _sum_step_causes(worst)
        grown_ns, cause = max((time_ns - usual.get(cause, 0), cause) for cause, time_ns in owned.items())
        sentences.append(f"In {unit} {worst.step}, {cause} takes {units.duration(grown_ns)} more.")
    return "".join(f"{sentence} " for sentence in sentences)


def _sum_step_causes(shown: StepTimeline) -> dict[str, int]:
    """Return the time of each cause in a step."""
    lengths = shown.slices.select("cause", length_ns=pl.col("end_ns") - pl.col("start_ns"))
    return dict(lengths.group_by("cause").agg(pl.col("length_ns").sum()).iter_rows())


def _find_part(entry: Step | RangeWork, wall: Wall) -> int | None:
    return None if entry.walls is None else getattr(entry.walls, wall)


def _tabulate_steps(rank: Rank, unit: str, shown: AbstractSet[int]) -> Grid:
    def number(step: Step) -> Cell:
        return Cell(step.index, step=step.index if step.index in shown else None)

    def counts(step: Step) -> str:
        return "yes" if step.steady else f"no ({step.reason or 'unknown'})"

    words = {"step": unit, "of": unit}
    columns = (
        make_column(Step, "index", title=unit, words=words, value=number),
        make_column(Step, "start_ns", words=words, widths=_ROOM),
        make_column(SpanRow, "duration_ns", words=words, value=lambda step: step.end_ns - step.start_ns),
        *(
            make_column(Walls, wall, words=words, value=partial(_find_part, wall=wall), brief=_BRIEF[wall])
            for wall in Wall
        ),
        make_column(Step, "steady", words=words, value=counts, wrap="cut"),
    )
    limits: dict[Medium, Limit] = {
        "page": Limit(_MOST_ROWS, "more row", " in wallscope steps."),
        "terminal": Limit(_MOST_ON_TERMINAL, f"more {unit}", ": wallscope steps"),
    }
    return tabulate("Time breakdown of each window", columns, rank.steps, limits=limits)


def build_phases(analysis: Analysis, rank: Rank) -> Section | None:
    """Make ranges with host time, device time, work and walls; `None` without ranges."""
    if not rank.ranges:
        return None
    whole = analysis.anchor.typical
    backward = ["backward_gpu_ns"] if any(entry.backward_gpu_ns for entry in rank.ranges) else []
    columns = (
        make_column(RangeWork, "path", media=PAGE),
        on_terminal("path", "range", value=_shorten_range, wrap="cut"),
        *make_columns(RangeWork, "count", "host_ns", words={"whole": whole}, none=""),
        *make_columns(RangeWork, "gpu_ns", "own_gpu_ns"),
        *make_columns(RangeWork, *backward, none="", widths=_ROOM),
        *(
            make_column(
                Walls,
                wall,
                meaning=_INSIDE,
                value=partial(_find_part, wall=wall),
                widths=_ROOM,
                brief=_BRIEF[wall],
            )
            for wall in Wall
        ),
    )
    answer = f"Work of the {whole} was launched in {units.plural(len(rank.ranges), 'nested range')}."
    has_work = any(entry.work_ns for entry in rank.ranges[:_MOST_ROWS])
    blocks = [figures.draw_phases(rank.ranges)] if has_work else []
    limits: dict[Medium, Limit] = {
        "page": Limit(_MOST_ROWS, "more row", " in wallscope ranges."),
        "terminal": Limit(_MOST_ON_TERMINAL, "more range", ": wallscope ranges"),
    }
    caption = f"Ranges of the {whole}, most device time first"
    table = tabulate(caption, columns, rank.ranges, limits=limits, is_wordy=True)
    title = "Ranges" if analysis.inputs[0].profiler is Profiler.TORCH else "NVTX ranges"
    return Section("phases", title, answer, (*blocks, table), is_open=False)


def _shorten_range(entry: RangeWork) -> str:
    """Name the innermost range of a path, and that around it as far as there is room."""
    return shorten_range_path(entry.path)


def build_timeline(report: Report, notes: Sequence[str], name_end: Callable[[str], str] = str) -> Section:
    """Make the typical and the worst step on a canvas, and the longest gaps as a table.

    `name_end` names what ends the longest gap.
    """
    unit = report.analysis.anchor.window
    is_whole = report.analysis.anchor.kind == "whole-trace"
    typical_ns = report.analysis.ranks[report.analysis.diagnosis.rank_index].typical.step_ns
    steps = tuple(
        _name_shown(shown, unit, is_whole=is_whole, typical=units.duration(typical_ns))
        for shown in report.timelines
    )
    answer = "No gap: compute or opaque graphs run throughout."
    gap = find_longest_gap(report)
    if gap is not None:
        longest = gap.row
        ended = name_end(longest["ended_by"]) if longest["ended_by"] else f"the end of the {unit}"
        doubt = _doubt_step(report.analysis, longest["step"], unit)
        where = "" if is_whole else f" in {unit} {longest['step']}{doubt}"
        answer = (
            f"Longest gap: {units.duration(longest['duration_ns'])}{where}, mostly"
            f" {describe_cause(longest['cause'])} ({longest['cause']}), until"
            f" {visible(ended, most=_LONGEST_NAME)}."
        )
    shown = report.drawn_steps
    note = " ".join((*notes, *_list_pathless(report, unit)))
    canvas = Canvas(steps, note, _lead_to_longest(gap, unit, shown), unit, not is_whole)
    return Section("timeline", "Timeline", answer, (canvas, _tabulate_gaps(report.gaps, unit, shown)))


def _doubt_step(analysis: Analysis, number: int, unit: str) -> str:
    """Say that a step does not count as steady; empty if it does."""
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    is_steady = any(step.index == number and step.steady for step in rank.steps)
    return "" if is_steady else f", which is not a steady {unit}"


def _name_shown(shown: StepTimeline, unit: str, *, is_whole: bool, typical: str) -> str:
    """Name a step that can be shown; the typical one may differ from the step that is nearest to it."""
    length = units.duration(shown.end_ns - shown.start_ns)
    if is_whole:
        return f"{unit}: {length}"
    value = f" {typical}" if shown.role == "typical" and typical != length else ""
    return f"{unit} {shown.step}, {_ROLES[shown.role]}{value}: {length}"


def build_job_timeline(report: Report, notes: Sequence[str]) -> Section:
    """Make the steps of the ranks of a job of several exports on one canvas, on one clock."""
    found, analysis = report.overviews, report.analysis
    steps = pl.DataFrame() if found is None else found.steps
    unit, count = analysis.anchor.window, steps["place"].n_unique()
    loose = steps.filter(pl.col("shift_ns").is_null())["place"].n_unique()
    shown = (
        f"{units.plural(count, 'rank')}"
        if count == len(analysis.ranks)
        else f"{count} of {len(analysis.ranks)} ranks"
    )
    aligned = "with clocks aligned by matched collectives"
    if analysis.job is not None and analysis.job.clock.method != "collective-ends":
        aligned = "with clocks aligned by the start of each capture on its host"
    if loose:
        aligned = f"{units.plural(loose, 'rank')} not aligned, because nothing ties the clock to the others"
    answer = f"{shown} of the job, all {unit}s at low detail, {aligned}. Choose two to compare them."
    note = "Causes are those of each export alone; late ranks and waits are under Ranks and waits."
    canvas = Canvas((), " ".join((note, *notes)), None, unit, analysis.anchor.kind != "whole-trace")
    return Section("timeline", "Timeline", answer, (canvas,))


def _list_pathless(report: Report, unit: str) -> list[str]:
    """Name steps that bear no critical path, where others do."""
    missing = [f"{unit} {each.step}" for each in report.timelines if not len(each.path)]
    if not missing or len(missing) == len(report.timelines):
        return []
    return [f"The critical path of {' and '.join(missing)} was not computed."]


def find_longest_gap(report: Report) -> Gap | None:
    """Return the longest gap of all; `None` without any."""
    return max((group.longest for group in report.gaps), key=lambda gap: gap.row["duration_ns"], default=None)


def _lead_to_longest(gap: Gap | None, unit: str, shown: AbstractSet[int]) -> Cell | None:
    """Lead to the longest gap of all; `None` where its step is not drawn, or no other is."""
    if gap is None or gap.row["step"] not in shown or len(shown) == 1:
        return None
    step = gap.row["step"]
    return Cell(f"Longest gap: {unit} {step}", step=step, at_ns=_find_middle_ns(gap))


def _find_middle_ns(gap: Gap) -> int:
    middle_ns: int = gap.row["start_ns"] + gap.row["duration_ns"] // 2
    return middle_ns


def _tabulate_gaps(groups: Sequence[GapGroup], unit: str, shown: AbstractSet[int]) -> Grid:
    """Make like gaps, those that take most first; the longest of each leads into the timeline."""

    def longest(group: GapGroup) -> Cell:
        row = group.longest.row
        if row["step"] not in shown:
            return Cell(row["duration_ns"])
        return Cell(row["duration_ns"], step=row["step"], at_ns=_find_middle_ns(group.longest))

    columns: tuple[Column, ...] = (
        Column("cause", "most of it", "text", "the cause of most of each", _write_cause),
        Column("total_ns", "total", "duration", "lengths of like gaps added up, over all of the rank"),
        Column("count", "gaps", "count", "same cause, same next operation, same range"),
        Column("steps", f"in {unit}s", "count", f"number of {unit}s with such a gap"),
        Column("longest_ns", "longest", "duration", "the longest of them, shown in the timeline", longest),
        Column("step", unit, "count", f"{unit} of the longest", lambda group: group.longest.row["step"]),
        Column("start_ns", "start", "seconds", "session time of the longest", _find_start),
        Column("ended_by", "ended by", "text", _ENDED, _write_end),
        Column("call", "issued by", "text", _ISSUED, _write_call),
        Column("path", "in", "text", "NVTX ranges around that call", _find_path, none=""),
    )
    if len({group.longest.row["step"] for group in groups}) == 1 and all(one.steps == 1 for one in groups):
        columns = tuple(column for column in columns if column.key not in {"steps", "step"})
    note = f"A length that can be clicked leads into the timeline; the other {unit}s are not drawn there."
    notes = (note,) if any(group.longest.row["step"] not in shown for group in groups) else ()
    return tabulate(
        "Gaps without compute kernels, grouped by cause, next operation and range",
        columns,
        groups,
        notes=notes,
        is_wordy=True,
    )


def _find_start(group: GapGroup) -> int:
    start_ns: int = group.longest.row["start_ns"]
    return start_ns


def _find_path(group: GapGroup) -> str | None:
    path: str | None = group.longest.row["path"]
    return path


def _write_cause(group: GapGroup) -> Cell:
    cause: str = group.longest.row["cause"]
    return Cell(cause, find_wall(cause), explain_cause(cause))


def _write_end(group: GapGroup) -> Cell:
    ended = group.longest.row["ended_by"]
    where = "" if ended is None else f" on stream {or_unknown(group.longest.row['stream'])}"
    name = visible(ended or "the end of the window", most=_LONGEST_NAME)
    return Cell(name, hint=f"{ended or ''}{where}"[:2_000])


def _write_call(group: GapGroup) -> Cell:
    row = group.longest.row
    call = row["call"] or ("" if row["ended_by"] is None else "before the capture")
    return Cell(call, hint="" if row["tid"] is None else f"{call}, thread {row['tid']}")


def or_unknown(value: object) -> str:
    """Return a value as text, `unknown` without one."""
    return "unknown" if value is None else str(value)


def build_gaps(found: Sequence[Gap]) -> Iterator[Section]:
    """Make what a terminal shows of gaps: of each rank the longest first, like ones of other steps once."""
    if not found:
        nothing = Lines(("No gap: compute kernels or opaque graphs run throughout the steps.",))
        yield Section("gaps", "", "", (nothing,))
        return
    yield Section("key", "", "", (Lines((_KEY_OF_GAPS,), "dim"),))
    for who, gaps in groupby(found, key=lambda gap: _name_rank(gap.row)):
        groups: dict[tuple[object, ...], list[Gap]] = {}
        for gap in gaps:
            groups.setdefault(_find_kind(gap), []).append(gap)
        alike = tuple(groups.values())
        blocks = tuple(map(_describe_gaps, alike[:_MOST_CHAINS]))
        brief = tuple(line for each in alike[_MOST_CHAINS:] for line in _summarize_gaps(each))
        if brief:
            blocks += (Section("others", (Span("Other gaps", "strong"),), "", (Lines(brief),)),)
        head = Lines(((Span(who, "strong"),), (Span(_HEAD_OF_GAPS, "dim"),)))
        yield Section("rank", "", "", (head, *blocks))


def _find_kind(gap: Gap) -> tuple[object, ...]:
    """Return what like gaps have in common: cause, what ends them, and where it was issued."""
    row = gap.row
    ended = None if row["ended_by"] is None else shorten_name(row["ended_by"])
    return row["cause"], ended, row["call"], row["path"]


def _describe_gaps(gaps: Sequence[Gap]) -> Section:
    """Describe the longest of like gaps, and say in which steps the others are."""
    longest, *others = gaps
    row = longest.row
    steady = "" if row["steady"] else " (not steady)"
    lines = [f"step {row['step']}{steady}, {_describe_end(row)}"]
    lines += [f"in {shorten_range_path(row['path'])}"] if row["path"] else []
    if others:
        lines.append(_list_others(others))
    blocks = (Lines(tuple(lines), "dim"), _tabulate_chain(longest.links))
    return Section("gap", _head_gap(row), "", blocks)


def _head_gap(row: dict[str, Any]) -> Line:
    """Return start, length and largest cause of a gap, as `_HEAD_OF_GAPS` heads them."""
    owner = Span(f"{row['cause']} {units.duration(row['cause_ns'])}", find_wall(row["cause"]))
    return f"{units.seconds(row['start_ns']) + ' s':<16}{units.duration(row['duration_ns']):>9}  ", owner


def _summarize_gaps(gaps: Sequence[Gap]) -> Iterator[Line]:
    """Yield the longest of like gaps and the number of the others, without its parts."""
    longest, *others = gaps
    yield _head_gap(longest.row)
    if others:
        yield (Span(f"  {_list_others(others)}", "dim"),)


def _list_others(others: Sequence[Gap]) -> str:
    """Say in how many other steps a like gap is, and how long these are."""
    lengths = [gap.row["duration_ns"] for gap in others]
    steps = list(
        dict.fromkeys(str(gap.row["step"]) for gap in sorted(others, key=lambda one: one.row["step"]))
    )
    more = f" and {len(steps) - _MOST_STEPS} more" if len(steps) > _MOST_STEPS else ""
    low, high = units.duration(min(lengths)), units.duration(max(lengths))
    span = low if low == high else f"{low} to {high}"
    where = f"step{'s' if len(steps) > 1 else ''} {', '.join(steps[:_MOST_STEPS])}{more}"
    return f"{units.plural(len(others), 'similar gap')} ({span}) in {where}"


def _describe_end(row: dict[str, Any]) -> str:
    if row["ended_by"] is None:
        return "ended by the end of the step"
    ended = f"ended by {shorten_name(row['ended_by'])} on stream {or_unknown(row['stream'])}"
    if row["call"] is None:
        return f"{ended}, issued before the capture"
    at = f"{units.seconds(row['call_start_ns'])} s, thread {or_unknown(row['tid'])}"
    return f"{ended}, issued by {row['call']} at {at}"


def _tabulate_chain(links: Sequence[Link], at_ns: int | None = None) -> Grid:
    """Make a row for each link; the one that holds a moment is marked."""

    def describe(link: Link) -> str:
        is_here = at_ns is not None and link.start_ns <= at_ns < link.end_ns
        return f"{'◀ ' if is_here else ''}{_name_link(link)}"

    def shorten(link: Link) -> Cell:
        cause = DRAINED.rstrip("/") if link.cause.startswith(DRAINED) else link.cause
        return Cell(cause, find_wall(link.cause))

    columns = (
        on_terminal("start", "", "plain", "", lambda link: units.seconds(link.start_ns)),
        on_terminal("length", "", "duration", "", lambda link: link.end_ns - link.start_ns),
        on_terminal("cause", "cause", value=shorten),
        on_terminal("what", "", value=describe, wrap="cut"),
        on_terminal("slack_ns", "slack", "duration", none="", widths=(_WIDE, 1 << 30)),
    )
    here = next((row for row, link in enumerate(links) if at_ns is not None and at_ns < link.end_ns), 0)
    first = max(min(here - _MOST_LINKS // 2, len(links) - _MOST_LINKS), 0)
    behind = len(links) - first - _MOST_LINKS
    table = tabulate("", columns, links[first : first + _MOST_LINKS], has_header=False)
    if first:
        before = append_row(Grid("", columns, ()), {"cause": Cell(f"{first} earlier parts", tone="dim")})
        table = Grid("", columns, (*before.rows, *table.rows), has_header=False)
    return append_row(table, {"cause": Cell(f"{behind} later parts", tone="dim")}) if behind > 0 else table


def _name_link(link: Link) -> str:
    """Name the operation, call or thread of a link; of a drained queue also the call that drained it."""
    after, where = (
        "after " if link.is_after else "",
        f" in {shorten_range_path(link.path)}" if link.path else "",
    )
    name = f"{after}{shorten_name(link.name)}{where}"
    drained = link.cause.removeprefix(DRAINED)
    return name if drained == link.cause else f"after {drained}, {name}"


def build_moments(found: Sequence[Moment], at_ns: int) -> Section:
    """Make what every rank did at one moment, and the chain that the moment is part of.

    Raises:
        SelectionError: no rank has a step at that moment.
    """
    if all(moment.row is None for moment in found):
        at = f"{units.seconds(at_ns)} s"
        raise SelectionError(f"{at} — lies in no step — `wallscope steps FILE` shows when steps begin")
    blocks = tuple(block for moment in found for block in _describe_moment(moment, at_ns))
    return Section("moment", "", "", blocks)


def _describe_moment(moment: Moment, at_ns: int) -> tuple[Block, ...]:
    row = moment.row
    who: Line = (Span(_name_rank(moment.rank), "strong"),)
    if row is None:
        return (Lines((who, f"  {units.seconds(at_ns)} s lies in none of its steps")),)
    state = str(row["state"]).replace("_", " ")
    lines: list[Line] = [who, (Span(f"  step {row['step']}, {state}: {row['cause']}", Wall(row["wall"])),)]
    if row["path"]:
        lines.append((Span(f"  in {shorten_range_path(row['path'])}", "dim"),))
    chain = Section("chain", lines.pop(), "", (_tabulate_chain(moment.links, at_ns),))
    return Lines(tuple(lines)), chain


def frame_gaps(found: Sequence[Gap]) -> pl.DataFrame:
    """Return the rows of the gaps as a table (`GAPS`), for CSV and JSON."""
    return pl.DataFrame([gap.row for gap in found], schema=GAPS, orient="row")


def _name_rank(row: dict[str, Any]) -> str:
    place = f"process {or_unknown(row['pid'])}, device {or_unknown(row['device'])}"
    return place if row["rank"] is None else f"rank {row['rank']} ({place})"
