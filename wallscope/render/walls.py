"""The first screen's middle: who pays for the step, and what removing each loss could win."""

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wallscope import units
from wallscope.model.analysis import Analysis, CauseTime, Opportunity, Rank
from wallscope.model.kinds import Wall
from wallscope.render.colours import WALL_COLOURS
from wallscope.render.foreign import visible
from wallscope.render.grids import bar, grid, titled

_MOST_CAUSES = 6
_LEAST_SHARE = 0.001


def walls(rank: Rank, analysis: Analysis, unit: str) -> RenderableType:
    """The five walls of the typical step, each nanosecond once; the dominant one is marked."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for justify in ("left", "left", "right", "right", "left"):
        table.add_column(justify="right" if justify == "right" else "left", no_wrap=True)
    step_ns = rank.typical.step_ns
    for wall, time_ns in zip(Wall, rank.typical.walls.parts(), strict=True):
        share = time_ns / step_ns if step_ns else 0.0
        mark = "◀" if wall == analysis.diagnosis.dominant_wall else ""
        row = (bar(share, WALL_COLOURS[wall]), units.percent(share), units.milliseconds(time_ns), mark)
        table.add_row(str(wall), *row)
    table.add_row(unit, "", "100.0 %", units.milliseconds(step_ns), "", style="dim")
    return titled(f"Who pays for the {unit}, each nanosecond once", table)


def causes(rank: Rank, opportunities: tuple[Opportunity, ...], unit: str) -> RenderableType | None:
    """The losses of the typical step by what each owns, and its ceiling."""
    lost = [entry for entry in rank.causes if entry.wall != Wall.COMPUTE and entry.share >= _LEAST_SHARE]
    if not lost:
        return None
    ceilings = {entry.cause: entry for entry in opportunities}
    table = grid("cause", "owns", "share", "ceiling")
    shown = sorted(lost, key=lambda entry: -_rank_by(entry))[:_MOST_CAUSES]
    for entry in shown:
        won = ceilings.get(entry.cause)
        table.add_row(
            Text(visible(entry.cause, most=60), style=WALL_COLOURS[entry.wall]),
            units.milliseconds(entry.typical_ns),
            units.percent(entry.share),
            "" if won is None else f"{won.speedup_ceiling:.2f}x",
        )
    return titled(f"Losses of the {unit} (ceiling: played again without it)", table)


def _rank_by(entry: CauseTime) -> int:
    return max(entry.typical_ns, entry.recoverable_ns or 0)
