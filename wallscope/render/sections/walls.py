"""Each wall in depth: communication and memory here, host and compute beside it."""

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.kinds import Axis, Wall
from wallscope.render.blocks import Block, Cell, Column, Grid, Lines, Section, cells, text
from wallscope.render.details import communication_lines
from wallscope.render.sections.compute import compute
from wallscope.render.sections.host import host

_MOST_ROWS = 40
_TELLING_TIMES = 2


def walls(analysis: Analysis, rank: Rank) -> tuple[Section, ...]:
    """A section a wall, the largest loss first; the dominant one is open."""
    dominant = analysis.diagnosis.dominant_wall
    share = dict(zip(Wall, rank.typical.walls.parts(), strict=True))
    made = {
        Wall.COMMUNICATION: _communication(rank, analysis.anchor.typical),
        Wall.MEMORY: _memory(analysis, rank),
        Wall.HOST: host(rank, analysis.anchor.typical),
        Wall.COMPUTE: compute(rank, analysis.anchor.typical),
    }
    order = sorted(made, key=lambda wall: (wall != dominant, wall == Wall.COMPUTE, -share[wall]))
    step_ns = rank.typical.step_ns
    return tuple(
        Section(
            str(wall),
            f"{str(wall).capitalize()} in depth",
            f"Owns {units.milliseconds(share[wall])} of the {analysis.anchor.typical},"
            f" {units.percent(share[wall] / step_ns if step_ns else 0.0)}.",
            made[wall] or (Lines(("Nothing of it in this capture.",)),),
            is_open=wall == dominant,
            wall=wall,
        )
        for wall in order
    )


def _communication(rank: Rank, whole: str) -> tuple[Block, ...]:
    told = rank.communication
    if not told.operations:
        return ()
    columns = (
        text("operation"),
        text("axis", "dimension of the job, and what told it"),
        text("library"),
        Column("count", f"operations that begin in the {whole}"),
        Column("exposed", "time in which one of them ran and no compute did"),
        Column("work", "durations added up"),
        Column("bytes", "as NCCL counts them; of all-gather and reduce-scatter one rank's part"),
        Column("bus rate", "over the duration on this rank, which includes waiting for peers"),
    )
    rows = tuple(
        (
            Cell(str(entry.operation)),
            Cell("unknown" if entry.axis is Axis.UNKNOWN else f"{entry.axis} ({'; '.join(entry.evidence)})"),
            Cell(str(entry.backend)),
            *cells(
                units.number(entry.count),
                units.milliseconds(entry.exposed_ns),
                units.milliseconds(entry.work_ns),
                units.size(entry.bytes),
                units.rate(entry.bus_bandwidth_bytes_per_s),
            ),
        )
        for entry in told.operations[:_MOST_ROWS]
    )
    ran = (
        f"Communication ran {units.milliseconds(told.union_ns)} of the {whole},"
        f" {units.percent(told.hidden_share)} of it hidden behind compute."
    )
    return Lines((ran, *communication_lines(told))), Grid(
        "Communication operations", columns, rows, is_wordy=True
    )


def _worst_of_memory(rank: Rank, unit: str) -> list[str]:
    """The steady step that lost most to memory, where that is more than in the typical one."""
    steady = [step for step in rank.steps if step.steady]
    worst = max(steady, key=lambda step: step.walls.memory, default=None)
    usual_ns = rank.typical.walls.memory
    if worst is None or worst.walls.memory < _TELLING_TIMES * max(usual_ns, 1):
        return []
    most, usual = units.duration(worst.walls.memory), units.duration(usual_ns)
    return [
        f"Memory owns {most} of {unit} {worst.index}, the most of steady ones; {usual} of the typical one."
    ]


def _memory(analysis: Analysis, rank: Rank) -> tuple[Block, ...]:
    told = rank.memory
    whole = analysis.anchor.typical
    pressure = analysis.diagnosis.memory_pressure
    lines = [
        f"Memory pressure: {pressure.level}"
        + (f" ({'; '.join(pressure.evidence)})." if pressure.evidence else ".")
    ]
    if told.peak_bytes is not None:
        lines.append(
            f"Peak in use {units.size(told.peak_bytes)} of {units.size(told.capacity_bytes)} on the device."
        )
    elif told.capacity_bytes is not None:
        lines.append(f"The device has {units.size(told.capacity_bytes)}; what was in use is not known.")
    if told.use is not None:
        started = "" if told.use.from_the_start else "; older allocations are missing"
        lines.append(f"Headroom {units.size(told.use.headroom_bytes)} (a recorded bound{started}).")
    if told.allocator_calls is not None:
        calls = units.number(told.allocator_calls)
        lines.append(
            f"Allocator calls in the {whole}: {calls}, {units.duration(told.allocator_ns)} on the host."
        )
    lines += _worst_of_memory(rank, analysis.anchor.unit)
    if told.offload is not None:
        there, back = units.size(told.offload.to_host_bytes), units.size(told.offload.to_device_bytes)
        lines.append(
            f"Offload: {there} to the host, {back} back, work {units.milliseconds(told.offload.work_ns)}."
        )
    columns = (
        text("direction"),
        text("host memory", "pinned or pageable, where host memory takes part"),
        Column("count"),
        Column("bytes"),
        Column("work", "durations added up"),
        Column("alone", "time in which nothing else ran"),
        Column("rate", "of copies of 64 KiB and more, while they ran"),
    )
    rows = tuple(
        cells(
            str(entry.direction),
            {True: "pinned", False: "pageable", None: ""}[entry.pinned],
            units.number(entry.count),
            units.size(entry.bytes),
            units.milliseconds(entry.work_ns),
            units.milliseconds(entry.exposed_ns),
            "" if entry.bulk_bandwidth_bytes_per_s is None else units.rate(entry.bulk_bandwidth_bytes_per_s),
        )
        for entry in told.copies[:_MOST_ROWS]
    )
    traffic = (Grid(f"Memory traffic of the {whole}", columns, rows),) if rows else ()
    return Lines(tuple(lines)), *traffic
