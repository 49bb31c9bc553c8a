"""What stands below the first screen: what the time of one rank is made of."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.communication import Communication
from wallscope.model.compute import ComputeDetails
from wallscope.model.kinds import Axis, CopyDirection, DeviceState, Wall
from wallscope.model.memory import CopyWork
from wallscope.render.colours import STATE_COLOURS
from wallscope.render.foreign import visible
from wallscope.render.grids import bar, grid, titled
from wallscope.render.host import gpu_metrics, host
from wallscope.thresholds import SHOWN_COMPUTE_SHARE, SHOWN_COPY_BYTES, SHOWN_OVERLAP_TAX_SHARE

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
    sections = (
        _communication(rank),
        _compute(rank, analysis),
        gpu_metrics(rank),
        _copies(rank),
        host(rank),
        _unmatched(rank),
    )
    yield from (section for section in sections if section is not None)


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


def _communication(rank: Rank) -> Group | None:
    communication = rank.communication
    if not communication.operations:
        return None
    shown = communication.operations[:_MOST_ROWS]
    has_rate = any(entry.bus_bandwidth_bytes_per_s is not None for entry in shown)
    table = grid("operation", "count", "exposed", "work", "bytes", *(["bus rate"] if has_rate else []))
    for entry in shown:
        row = (
            f"{_axis(entry.axis)}{entry.operation} ({entry.backend})",
            units.number(entry.count),
            units.milliseconds(entry.exposed_ns),
            units.milliseconds(entry.work_ns),
            units.size(entry.bytes),
        )
        table.add_row(*row, *([units.rate(entry.bus_bandwidth_bytes_per_s)] if has_rate else []))
    title = (
        f"Communication ran {units.milliseconds(communication.union_ns)},"
        f" {units.percent(communication.hidden_share)} of it hidden behind compute"
    )
    rows = _with_rest(table, len(communication.operations))
    return titled(title, Group(rows, *map(Text, communication_lines(communication))))


def communication_lines(communication: Communication) -> Iterator[str]:
    """Both bounds of its cost, what it costs the compute beside it, and the parts of a token dispatcher."""
    if communication.blocking_ns is not None:
        yield (
            f"Exposed {units.milliseconds(communication.exposed_ns)};"
            f" {units.milliseconds(communication.blocking_ns)} of all is on the chain that binds the step."
        )
    tax = communication.overlap_tax
    if tax is not None and abs(tax.ratio - 1) < SHOWN_OVERLAP_TAX_SHARE:
        yield f"Kernels take as long beside communication as alone ({tax.kernels:,} compared)."
    elif tax is not None:
        yield (
            f"Kernels take {tax.ratio:.2f}x as long beside communication as alone:"
            f" {units.duration(tax.slowed_ns)} of work a step ({tax.kernels:,} compared)."
        )
    work = communication.dispatcher
    if work is not None:
        parts = {
            "pack": work.pack_ns,
            "synchronise": work.synchronise_ns,
            "transport": work.transport_ns,
            "unpack": work.unpack_ns,
            "route": work.routing_ns,
        }
        listed = ", ".join(f"{name} {units.duration(time_ns)}" for name, time_ns in parts.items() if time_ns)
        yield f"Token dispatcher, work: {listed or 'none'}."


def _axis(axis: Axis) -> str:
    return "" if axis is Axis.UNKNOWN else f"{axis} "


def _compute(rank: Rank, analysis: Analysis) -> Group | None:
    if not rank.compute:
        return None
    table = grid("category", "kernels", "work", "share of work")
    for entry in rank.compute[:_MOST_ROWS]:
        table.add_row(
            str(entry.category),
            units.number(entry.kernels),
            units.milliseconds(entry.work_ns),
            units.percent(entry.share),
        )
    is_asked = analysis.diagnosis.dominant_wall == "compute" and rank.compute_details is not None
    told = compute_lines(rank.compute_details) if is_asked and rank.compute_details else ()
    rows = _with_rest(table, len(rank.compute))
    return titled("Compute kernels (work: durations added up)", Group(rows, *map(Text, told)))


def compute_lines(details: ComputeDetails) -> Iterator[str]:
    """Precisions, and what is larger than a twentieth of the work and could be done in less."""
    if details.precisions:
        listed = ", ".join(
            f"{entry.precision} {units.percent(entry.share)}"
            for entry in details.precisions[:_MOST_PRECISIONS]
        )
        yield f"Matrix multiplications by precision, as names tell: {listed}."
    shapes, small = details.launch_shapes, details.small_multiplications
    shares = {
        "single elementwise operations": details.unfused_elementwise_share,
        "casts between formats": details.cast_share,
        "quantisation": details.quantize_share,
        "runs of small multiplications": small.share,
        "grids smaller than the GPU": shapes.small_grid_share,
        "low occupancy": shapes.low_occupancy_share,
        "idle places in last waves": shapes.tail_share,
    }
    large = {
        name: share for name, share in shares.items() if share is not None and share >= SHOWN_COMPUTE_SHARE
    }
    if large:
        listed = ", ".join(f"{name} {units.percent(share)}" for name, share in large.items())
        yield f"Of the work: {listed}."


def _copies(rank: Rank) -> Group | None:
    if not rank.memory.copies:
        return None
    table = grid("copies and fills", "count", "bytes", "work", "alone", "rate")
    for entry in rank.memory.copies[:_MOST_ROWS]:
        host = {True: ", pinned", False: ", pageable", None: ""}[entry.pinned]
        table.add_row(
            f"{entry.direction}{host}",
            units.number(entry.count),
            units.size(entry.bytes),
            units.milliseconds(entry.work_ns),
            units.milliseconds(entry.exposed_ns),
            _rate(entry),
        )
    return titled("Memory traffic (alone: nothing else ran)", _with_rest(table, len(rank.memory.copies)))


def _rate(entry: CopyWork) -> str:
    """Achieved bandwidth; tiny copies are all latency, and fills of a cache go past the memory's peak."""
    is_telling = entry.direction != CopyDirection.FILL and entry.bytes >= SHOWN_COPY_BYTES * entry.count
    return units.rate(entry.bytes / entry.work_ns * 1e9) if is_telling and entry.work_ns else ""


def _unmatched(rank: Rank) -> Group | None:
    if not rank.unmatched_kernels:
        return None
    table = grid("kernel", "count", "work", "of step")
    for kernel in rank.unmatched_kernels[:_MOST_ROWS]:
        table.add_row(
            Text(visible(kernel.name, most=60), overflow="ellipsis", no_wrap=True),
            units.number(kernel.count),
            units.milliseconds(kernel.work_ns),
            units.percent(kernel.share),
        )
    return titled(
        "Kernels known to no pattern (--kernels FILE names them)",
        _with_rest(table, len(rank.unmatched_kernels)),
    )


def _with_rest(table: Table, row_count: int) -> RenderableType:
    if row_count <= _MOST_ROWS:
        return table
    return Group(
        table, Text(f"{units.plural(row_count - _MOST_ROWS, 'smaller row')} in the JSON", style="dim")
    )
