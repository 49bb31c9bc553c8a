"""Time breakdown of the step: walls, causes, GPU activity, and walls of each rank."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from wallscope import units
from wallscope.model.advice import Fix
from wallscope.model.analysis import Analysis, CauseTime, Rank
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.enums import DeviceState, Wall
from wallscope.model.section import (
    MEDIA,
    Cell,
    Column,
    Grid,
    Limit,
    Medium,
    Section,
    Value,
    append_row,
    on_markdown,
    on_page,
    on_terminal,
    tabulate,
)
from wallscope.render import figures
from wallscope.thresholds.verdict import SHOWN_LOSS_SHARE, SHOWN_WIN_SHARE
from wallscope.views.sections.fixes import number_fixes
from wallscope.views.sections.job import MOST_RANKS, say_left_out, select_places
from wallscope.views.sections.words import (
    STATE_WORDS,
    WALL_WORDS,
    explain_cause,
    explain_choice,
    name_process,
    name_rank,
)

_MOST_LOSSES, _MOST_IN_MARKDOWN, _MOST_RANKS = 5, 10, 16
_WIDE = (110, 1 << 30)
_SEEN = 0.01
"""Difference of two speedups of two decimals that a reader sees."""
_SHORT = {Wall.COMMUNICATION: "comm", Wall.UNATTRIBUTED: "unknown"}
STATE_NAMES = {
    DeviceState.COMPUTE: "compute",
    DeviceState.OPAQUE_GRAPH: "opaque graphs",
    DeviceState.EXPOSED_COMMUNICATION: "exposed communication",
    DeviceState.EXPOSED_COPY: "exposed copies",
    DeviceState.IDLE: "idle",
}
_STATE_WALLS = {
    DeviceState.COMPUTE: Wall.COMPUTE,
    DeviceState.OPAQUE_GRAPH: Wall.UNATTRIBUTED,
    DeviceState.EXPOSED_COMMUNICATION: Wall.COMMUNICATION,
    DeviceState.EXPOSED_COPY: Wall.MEMORY,
    DeviceState.IDLE: None,
}
"""The wall whose color shows a state of the device."""
_MEDIAN = "median of its share over the steady steps; the verdict is based on it"
_WITHOUT = "upper bound of the time saved without the cause, including what limits the step next"
_CEILING = "upper bound on speedup: step time divided by step time without the cause; not additive"
_UNRESOLVED = "part of this time whose dependencies are unknown"
_ACTIVITY = (
    "What ran on the GPU."
    " The time breakdown counts what the step waited for, so its shares differ from these."
)
_BEST = "upper bound on the recommendation that addresses the cause and gains most, with its number"
_MORE = "A bound can exceed the time of its cause, because later work then starts earlier too."
_SEVERAL = "A fix that gains more than the bound of a cause addresses other causes too."
_NO_BOUND = "Compute, and causes of little time, have no upper bound here."


def tabulate_walls(analysis: Analysis, rank: Rank) -> Grid:
    """Make a table of the walls of the typical step, which sum to it; Markdown adds the sum."""
    step_ns, whole = rank.typical.step_ns, analysis.anchor.typical
    rows = [_describe_wall(analysis, rank, wall) for wall in Wall]
    columns: tuple[Column, ...] = (
        on_terminal("wall", "", wrap="fixed"),
        on_terminal("bar", "", "bar"),
        on_terminal("part", "share", "percent"),
        on_terminal("time", "time", "ms"),
        on_terminal("mark", ""),
        on_terminal("median", f"median of all {analysis.anchor.window}s", "percent", none="", wrap="words"),
        on_markdown("name", "wall"),
        on_markdown("time", "time", "ms"),
        on_markdown("share", "share", "percent"),
        on_markdown("median", f"median share of {analysis.anchor.window}s", "percent", none=""),
        on_markdown("range", f"p10-p90 of {analysis.anchor.window}s", "plain"),
        on_page("name", "wall"),
        on_page("time", "time", "ms", f"time of the {whole} attributed to the wall"),
        on_page("part", "share", "percent", f"of the {whole}"),
        on_page("median", "median", "percent", _MEDIAN, widths=(1, 1), none=""),
        on_page("spread", "p10 to p90", "plain", "spread of its share over the steady steps"),
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
        "part": share or 0.0,
        "bar": Cell(share or 0.0, wall),
        "mark": "◀" if is_dominant else "",
        "median": steady.share if steady is not None and low else None,
        "range": f"{low} to {high}" if low else "",
        "spread": f"{low.removesuffix(' %')} to {high}" if low else "",
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
        return f"{speedup:.2f}x ({number})" if number else "none" if entry.cause in ceilings else ""

    def recoverable(entry: CauseTime) -> str:
        return "" if entry.recoverable_ns is None else f"-{units.milliseconds(entry.recoverable_ns)}"

    columns = (
        on_terminal(
            "cause", "cause", value=lambda entry: Cell(entry.cause, entry.wall), most=60, wrap="fold"
        ),
        on_page("cause", "cause", "text", "wall/cause[/detail]", explain),
        on_markdown("cause", "cause", "code", most=120),
        on_page("meaning", "what it is", value=describe),
        on_terminal("typical_ns", "time", "ms"),
        on_page("typical_ns", "time", "ms", f"time of the {whole} attributed to the cause"),
        on_markdown("typical_ns", "time", "ms"),
        Column("share", "share", "percent", f"of the {whole}"),
        on_page("recoverable_ns", "without it", "plain", _WITHOUT, recoverable),
        Column("ceiling", "upper bound", "speedup", _CEILING, ceiling, "bound", media, none=""),
        Column("fix", "best fix", "plain", _BEST, fix, media=media),
        on_terminal("meaning", "what it is", value=describe, widths=_WIDE),
        on_markdown("meaning", "what it is", value=describe, most=300),
        on_page("unresolved_ns", "unresolved", "ms", _UNRESOLVED, lambda entry: entry.unresolved_ns or ""),
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
            yield f"{entry.cause}: {entry.speedup_ceiling:.2f}x assumes that {entry.assumes}."
    least_ns = SHOWN_WIN_SHARE * analysis.ranks[analysis.diagnosis.rank_index].typical.step_ns
    if any(entry.recoverable_ns - listed[entry.cause] >= least_ns for entry in bounds):
        yield _MORE
    if any(best[one.cause][1] >= one.speedup_ceiling + _SEEN for one in bounds if one.cause in best):
        yield _SEVERAL


def build_causes(analysis: Analysis, rank: Rank) -> Section:
    """Make every cause with its time, and the waterfall from compute to the measured step."""
    whole, compute_ns = analysis.anchor.typical, rank.typical.walls.compute
    lost = units.milliseconds(rank.typical.step_ns - compute_ns)
    answer = f"Compute takes {units.milliseconds(compute_ns)} of the {whole}; the other causes add {lost}."
    title = f"Causes of the {whole} (they sum to it)"
    table = tabulate_causes(
        analysis, title, rank.causes, notes=(_NO_BOUND,) if analysis.opportunities else ()
    )
    return Section("causes", "Causes", answer, (figures.draw_waterfall(rank, whole), table))


def build_losses(analysis: Analysis, rank: Rank) -> Grid | None:
    """Make what a terminal shows of the losses, sorted by time or upper bound."""
    lost = [entry for entry in rank.causes if entry.wall != Wall.COMPUTE and entry.share >= SHOWN_LOSS_SHARE]
    lost.sort(key=lambda entry: (-max(entry.typical_ns, entry.recoverable_ns or 0), entry.cause))
    won = {entry.cause for entry in analysis.opportunities}
    says = (
        "; bound: upper bound on speedup if the cause takes no time"
        if any(one.cause in won for one in lost[:_MOST_LOSSES])
        else ""
    )
    title = f"Causes of lost time in the {analysis.anchor.typical}{says}"
    return tabulate_causes(analysis, title, lost[:_MOST_LOSSES]) if lost else None


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


def tabulate_budget(analysis: Analysis, rank: Rank) -> Grid:
    """Make a table of what the device did in the typical step."""
    unseen = any(finding.code == "graph-replays-missing" for finding in analysis.capture.findings)
    step_ns = rank.typical.step_ns
    columns = (
        on_terminal("state", ""),
        on_page("state", "part"),
        on_terminal("bar", "", "bar"),
        on_terminal("share", "share", "percent"),
        Column("time_ns", "time", "ms"),
        on_page("share", "share", "percent"),
    )
    rows = []
    for state in DeviceState:
        time_ns = getattr(rank.typical.budget, state)
        share = time_ns / step_ns if step_ns else 0.0
        name = Cell(STATE_NAMES[state], hint=STATE_WORDS[state])
        brief = "idle or unseen graphs" if state is DeviceState.IDLE and unseen else STATE_NAMES[state]
        rows.append((brief, name, Cell(share, _STATE_WALLS[state]), share, time_ns, share))
    title = f"GPU activity in the {analysis.anchor.typical}"
    return Grid(title, columns, tuple(rows), has_header=False, notes=(_ACTIVITY,))


def tabulate_ranks(analysis: Analysis, ranks: Sequence[Rank], rest: str = "") -> Grid:
    """Make a table of the walls of ranks, in shares of the typical step of each."""

    def name(rank: Rank) -> str:
        return name_process(rank, "pid {} dev {}") if rank.rank is None else f"{rank.rank}"

    def share(rank: Rank, wall: Wall) -> float:
        step_ns, part_ns = rank.typical.step_ns, getattr(rank.typical.walls, wall)
        return part_ns / step_ns if step_ns else 0.0

    whole = analysis.anchor.typical
    columns = (
        on_terminal("name", "rank", value=name),
        on_page("name", "rank", value=name_rank),
        Column("step_ns", "typical", "duration", f"length of its {whole}", lambda rank: rank.typical.step_ns),
        *(
            Column(wall, str(wall), "percent", "", partial(share, wall=wall), brief=_SHORT.get(wall))
            for wall in Wall
        ),
    )
    title = f"Time breakdown of the {whole} of each rank"
    return tabulate(title, columns, ranks, limits={"terminal": Limit(_MOST_RANKS)}, rest=rest)


def build_ranks(analysis: Analysis) -> Section | None:
    """Make ranks side by side; `None` for a single one."""
    count = len(analysis.ranks)
    if count < 2:
        return None
    places = range(min(count, MOST_RANKS)) if analysis.job is None else select_places(analysis.job)
    shown = name_rank(analysis.ranks[analysis.diagnosis.rank_index])
    answer = f"{count} ranks; the page shows {shown}, {explain_choice(analysis)}."
    rest = say_left_out(count, len(places), "the JSON answer")
    table = tabulate_ranks(analysis, [analysis.ranks[place] for place in places], rest)
    return Section("ranks", "Ranks", answer, (table,))
