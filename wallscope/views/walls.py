"""The first screen's middle: who pays for the step, and what removing each loss could win."""

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from wallscope import units
from wallscope.model.analysis import Analysis, CauseTime, Rank
from wallscope.model.catalogue import meaning
from wallscope.model.diagnosis import Opportunity
from wallscope.model.kinds import Wall
from wallscope.render.colours import WALL_COLOURS
from wallscope.render.foreign import visible
from wallscope.render.grids import bar, grid, titled
from wallscope.thresholds import SHOWN_LOSS_SHARE

_MOST_CAUSES = 5
_WIDE = 110
_MARK = "◀"


def walls(rank: Rank, analysis: Analysis, unit: str) -> RenderableType:
    """The five walls of the typical step, each nanosecond once; the dominant one is marked."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for justify in ("left", "left", "right", "right", "left"):
        table.add_column(justify="right" if justify == "right" else "left", no_wrap=True)
    step_ns = rank.typical.step_ns
    for wall, time_ns in zip(Wall, rank.typical.walls.parts(), strict=True):
        share = time_ns / step_ns if step_ns else 0.0
        mark = _MARK if wall == analysis.diagnosis.dominant_wall else ""
        row = (bar(share, WALL_COLOURS[wall]), units.percent(share), units.milliseconds(time_ns), mark)
        table.add_row(str(wall), *row)
    return titled(f"Who pays for the {unit} of {units.milliseconds(step_ns)}, each nanosecond once", table)


def causes(rank: Rank, opportunities: tuple[Opportunity, ...], unit: str) -> RenderableType | None:
    """The losses of the typical step by what each owns, and its ceiling."""
    lost = [entry for entry in rank.causes if entry.wall != Wall.COMPUTE and entry.share >= SHOWN_LOSS_SHARE]
    if not lost:
        return None
    ceilings = {entry.cause: entry for entry in opportunities}
    shown = sorted(lost, key=lambda entry: (-_rank_by(entry), entry.cause))[:_MOST_CAUSES]
    says = "; ceiling: at best, without it" if any(entry.cause in ceilings for entry in shown) else ""
    return titled(f"Losses of the {unit}{says}", _Losses(tuple(shown), ceilings))


@dataclass(frozen=True, slots=True)
class _Losses:
    """A row a cause: what it owns, its ceiling where there is one, and what it means where there is room."""

    causes: tuple[CauseTime, ...]
    ceilings: dict[str, Opportunity]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        has_ceiling = any(entry.cause in self.ceilings for entry in self.causes)
        is_wide = options.max_width >= _WIDE
        table = grid("cause", "owns", "share", *(["ceiling"] if has_ceiling else []))
        if is_wide:
            table.add_column("what it is", overflow="ellipsis", no_wrap=True)
        for entry in self.causes:
            won = self.ceilings.get(entry.cause)
            row: list[RenderableType] = [
                Text(visible(entry.cause, most=60), style=WALL_COLOURS[entry.wall]),
                units.milliseconds(entry.typical_ns),
                units.percent(entry.share),
            ]
            if has_ceiling:
                row.append("" if won is None else f"{won.speedup_ceiling:.2f}x")
            table.add_row(*row, *([meaning(entry.cause)] if is_wide else []))
        yield table


def _rank_by(entry: CauseTime) -> int:
    return max(entry.typical_ns, entry.recoverable_ns or 0)
