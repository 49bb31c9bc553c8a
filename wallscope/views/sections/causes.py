"""What exactly?"""

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.catalogue import meaning
from wallscope.views import figures
from wallscope.views.blocks import Cell, Column, Grid, Section, text
from wallscope.views.words import in_words


def causes(analysis: Analysis, rank: Rank) -> Section:
    """Every cause with what it owns, and the way from compute alone to the measured step."""
    whole = analysis.anchor.typical
    lost_ns = rank.typical.step_ns - rank.typical.walls.compute
    answer = (
        f"Compute alone owns {units.milliseconds(rank.typical.walls.compute)} of the {whole};"
        f" the other causes add {units.milliseconds(lost_ns)}."
    )
    return Section(
        "causes", "What exactly?", answer, (figures.waterfall(rank, whole), _table(analysis, rank))
    )


def _table(analysis: Analysis, rank: Rank) -> Grid:
    won = {entry.cause: entry for entry in analysis.opportunities}
    columns = (
        text("cause", "wall/cause[/detail]"),
        text("what it is"),
        Column("owns", f"time of the {analysis.anchor.typical} that bound it for this reason"),
        Column("share", f"of the {analysis.anchor.typical}"),
        Column("without it", "what the step would get shorter at most, next constraints heeded"),
        Column("ceiling", "T / (T - R), the speed-up at best; ceilings do not add up"),
        Column("unresolved", "part of it whose owner is not known"),
    )
    rows = tuple(
        (
            Cell(entry.cause, entry.wall, in_words(entry.cause)),
            Cell(meaning(entry.cause)),
            Cell(units.milliseconds(entry.typical_ns)),
            Cell(units.percent(entry.share)),
            Cell("" if entry.recoverable_ns is None else f"-{units.milliseconds(entry.recoverable_ns)}"),
            Cell(f"{won[entry.cause].speedup_ceiling:.2f}x" if entry.cause in won else ""),
            Cell(units.milliseconds(entry.unresolved_ns) if entry.unresolved_ns else ""),
        )
        for entry in rank.causes
    )
    note = (
        "A ceiling can win more than its cause owns: the step is played again without it, and the device may"
        " wait less elsewhere too (docs/whatif.md). An empty ceiling was not worked out: removing compute is"
        " no remedy, or it would win next to nothing."
    )
    return Grid(
        f"Causes of the {analysis.anchor.typical}; they add up to it", columns, rows, note, is_wordy=True
    )
