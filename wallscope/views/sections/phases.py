"""Where in the program: phases by NVTX range, and ranks side by side."""

from collections.abc import Sequence

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.kinds import Wall
from wallscope.views import figures
from wallscope.views.blocks import Cell, Column, Grid, Section, text
from wallscope.views.details import rank_name
from wallscope.views.sections.job import MOST_RANKS, left_out, shown_places
from wallscope.views.terminal import chosen

_MOST_ROWS = 60


def phases(analysis: Analysis, rank: Rank) -> Section | None:
    """Ranges with host time, device time, work and walls; `None` without ranges."""
    if not rank.ranges:
        return None
    columns = (
        text("range", "path of folded names, outermost first; like ranges are one row"),
        Column("count", "ranges that begin in the host's time for the step"),
        Column("on the host", "their time on the host, added up"),
        Column("on the device", "time in which operations issued inside ran, ranges inside included"),
        Column("alone", "the same without the ranges inside"),
        *(Column(str(wall), "time that this wall owns of what was issued inside") for wall in Wall),
    )
    shown = rank.ranges[:_MOST_ROWS]
    rows = tuple(
        (
            Cell(entry.path),
            Cell("" if entry.count is None else units.number(entry.count)),
            Cell("" if entry.host_ns is None else units.milliseconds(entry.host_ns)),
            Cell(units.milliseconds(entry.gpu_ns)),
            Cell(units.milliseconds(entry.own_gpu_ns)),
            *(
                Cell(units.milliseconds(part))
                for part in (entry.walls.parts() if entry.walls else [None] * 5)
            ),
        )
        for entry in shown
    )
    left_out = len(rank.ranges) - len(rows)
    note = f"{units.plural(left_out, 'more row')} in wallscope ranges." if left_out > 0 else ""
    answer = (
        f"{units.plural(len(rank.ranges), 'range path')} issued the work of the {analysis.anchor.typical}."
    )
    has_work = any(entry.work_ns for entry in shown)
    blocks = [figures.phases(rank.ranges)] if has_work else []
    table = Grid(
        f"Ranges of the {analysis.anchor.typical}, most device time first", columns, rows, note, is_wordy=True
    )
    return Section("phases", "Where in the program?", answer, (*blocks, table), is_open=False)


def ranks(analysis: Analysis) -> Section | None:
    """Ranks side by side; `None` for a single one."""
    if len(analysis.ranks) < 2:
        return None
    columns = (
        text("rank"),
        Column("typical", f"length of its {analysis.anchor.typical}"),
        *(Column(str(wall)) for wall in Wall),
    )
    rows = tuple(
        (
            Cell(rank_name(rank)),
            Cell(units.duration(rank.typical.step_ns)),
            *(
                Cell(units.percent(part / rank.typical.step_ns if rank.typical.step_ns else 0.0))
                for part in rank.typical.walls.parts()
            ),
        )
        for rank in (analysis.ranks[place] for place in _shown(analysis))
    )
    shown = rank_name(analysis.ranks[analysis.diagnosis.rank_index])
    answer = f"{len(analysis.ranks)} ranks; the page speaks of {shown}, {chosen(analysis)}."
    note = left_out(len(analysis.ranks), len(rows), "the JSON answer")
    grid = Grid(f"Who pays for the {analysis.anchor.typical} of each rank", columns, rows, note)
    return Section("ranks", "Is it every rank?", answer, (grid,))


def _shown(analysis: Analysis) -> Sequence[int]:
    """The places of the ranks that are listed: all, unless there are very many."""
    if analysis.job is None:
        return range(min(len(analysis.ranks), MOST_RANKS))
    return shown_places(analysis.job)
