"""What stands below the first screen: what the time of one rank is made of."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.kinds import DeviceState, Wall
from wallscope.render.colours import STATE_COLOURS
from wallscope.render.grids import bar, grid, render_section, titled
from wallscope.views.sections.depth import build_details

_MOST_ROWS = 6
_MOST_RANKS = 16
_MOST_PRECISIONS = 3
STATE_NAMES = {
    DeviceState.COMPUTE: "compute",
    DeviceState.OPAQUE_GRAPH: "opaque graphs",
    DeviceState.EXPOSED_COMMUNICATION: "exposed communication",
    DeviceState.EXPOSED_COPY: "exposed copies",
    DeviceState.IDLE: "idle",
}


def details(analysis: Analysis, rank: Rank, whole: str) -> Iterator[RenderableType]:
    """The sections on one rank; `whole` is what its typical step is called."""
    if len(analysis.ranks) > 1:
        yield _ranks(analysis.ranks, whole)
    yield _budget(rank, analysis, whole)
    yield from map(render_section, build_details(analysis, rank))


def rank_name(rank: Rank) -> str:
    """How a rank is told from the others: its number in the job if known, its process and device."""
    place = f"process {_or_unknown(rank.pid)}, device {_or_unknown(rank.device)}"
    return place if rank.rank is None else f"rank {rank.rank} ({place})"


def _or_unknown(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _ranks(ranks: tuple[Rank, ...], whole: str) -> Group:
    table = grid("rank", "typical", *(_SHORT.get(wall, str(wall)) for wall in Wall))
    for rank in ranks[:_MOST_RANKS]:
        step_ns = rank.typical.step_ns
        name = f"pid {_or_unknown(rank.pid)} dev {_or_unknown(rank.device)}"
        table.add_row(
            name if rank.rank is None else f"{rank.rank}",
            units.duration(step_ns),
            *(units.percent(part / step_ns if step_ns else 0.0) for part in rank.typical.walls.parts()),
        )
    body: RenderableType = table
    if len(ranks) > _MOST_RANKS:
        body = Group(table, Text(f"{len(ranks) - _MOST_RANKS} more in the JSON", style="dim"))
    return titled(f"Who pays for the {whole} of each rank", body)


_SHORT = {Wall.COMMUNICATION: "comm", Wall.UNATTRIBUTED: "unknown"}


def _budget(rank: Rank, analysis: Analysis, whole: str) -> Group:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for justify in ("left", "left", "right", "right"):
        table.add_column(justify="right" if justify == "right" else "left", no_wrap=True)
    unseen = any(finding.code == "graph-replays-missing" for finding in analysis.capture.findings)
    window_ns = rank.typical.step_ns
    for state in DeviceState:
        time_ns = getattr(rank.typical.budget, state)
        name = STATE_NAMES[state]
        if state is DeviceState.IDLE and unseen:
            name = "idle or unseen graphs"
        share = time_ns / window_ns if window_ns else 0.0
        table.add_row(
            name, bar(share, STATE_COLOURS[state]), units.percent(share), units.milliseconds(time_ns)
        )
    return titled(f"What the device did in the {whole}, each nanosecond once", table)
