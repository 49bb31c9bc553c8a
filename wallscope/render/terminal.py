"""The answer on a terminal: verdict first, one screen at 80 columns."""

from collections.abc import Iterator

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wallscope import units
from wallscope.model.analysis import ENOUGH_STEPS, Analysis, Anchor, Rank
from wallscope.model.capture import Export, Finding, Severity
from wallscope.model.kinds import Axis, CopyDirection, DeviceState
from wallscope.model.memory import CopyWork
from wallscope.render.colours import STATE_COLOURS
from wallscope.render.foreign import visible
from wallscope.render.grids import BAR_CELLS, bar, grid, titled
from wallscope.render.walls import causes, walls

_MOST_ROWS = 6
_MOST_LIMITS = 4
_TELLING_BYTES = 1 << 16
_SEVERITY = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: ""}
_STATE_NAMES = {
    DeviceState.COMPUTE: "compute",
    DeviceState.OPAQUE_GRAPH: "opaque graphs",
    DeviceState.EXPOSED_COMMUNICATION: "exposed communication",
    DeviceState.EXPOSED_COPY: "exposed copies",
    DeviceState.IDLE: "idle",
}


def summary(analysis: Analysis, shown: Rank) -> RenderableType:
    """The whole answer; `shown` is the rank whose details are laid out."""
    return Group(*_summary(analysis, shown))


def _summary(analysis: Analysis, shown: Rank) -> Iterator[RenderableType]:
    """The first screen: verdict, walls, losses, limits; then what they are made of."""
    (export,) = analysis.inputs
    whole = "capture" if analysis.anchor.kind == "whole-trace" else f"typical {analysis.anchor.unit}"
    yield _headline(export, analysis)
    yield _steps(analysis.anchor, shown)
    yield Text()
    yield Text(analysis.diagnosis.verdict, style="bold")
    yield Text()
    yield walls(shown, analysis, whole)
    losses = causes(shown, analysis.opportunities, whole)
    if losses is not None:
        yield Text()
        yield losses
    yield Text()
    yield limits(analysis.capture.findings, _MOST_LIMITS)
    if len(analysis.ranks) > 1:
        yield Text()
        yield _ranks(analysis.ranks)
        yield Text()
        yield Text(f"Above and below: {_rank_name(shown)}, the one that computed least", style="dim")
    yield Text()
    yield _budget(shown, analysis)
    for section in (_communication(shown), _compute(shown), _copies(shown), _unmatched(shown)):
        if section is not None:
            yield Text()
            yield section


def _headline(export: Export, analysis: Analysis) -> Text:
    used = [export.gpu(rank.gpu) for rank in analysis.ranks]
    models = sorted({gpu.name for gpu in used if gpu is not None and gpu.name})
    parts = [
        visible(export.name, most=60),
        f"nsys {export.nsys_version}" if export.nsys_version else "nsys version unknown",
        ", ".join(models) or "GPU unknown",
        _supplied(analysis),
    ]
    return Text(" · ".join(parts))


def _supplied(analysis: Analysis) -> str:
    """How many ranks there are, of how many."""
    supplied, of_all = len(analysis.ranks), analysis.capture.world_size
    if of_all is None or of_all <= 1:
        return units.plural(supplied, "rank")
    (number, *others) = [rank.rank for rank in analysis.ranks]
    return (
        f"rank {number} of {of_all}" if number is not None and not others else f"{supplied} of {of_all} ranks"
    )


def _steps(anchor: Anchor, rank: Rank) -> Text:
    """How many steps count, by what they were found, and how long they take."""
    if anchor.kind == "whole-trace":
        return Text("No step found: the whole capture is one window", style="yellow")
    steady = [step.end_ns - step.start_ns for step in rank.steps if step.steady]
    steady_of = f"{units.plural(len(steady), f'steady {anchor.unit}')} of {len(rank.steps)}"
    counted = f"{steady_of}, found {_by(anchor)}"
    if len(steady) < ENOUGH_STEPS and anchor.inner is not None:
        inner = anchor.inner
        spread = f"{units.duration(inner.p10_ns)} to {units.duration(inner.p90_ns)}"
        counted += f"\n{inner.count} times {visible(inner.name, most=40)} inside: median"
        return Text(f"{counted} {units.duration(inner.median_ns)}, p10-p90 {spread} ({inner.unit})")
    if not steady:
        return Text(counted)
    low, median, high = (int(time_ns) for time_ns in np.percentile(steady, [10, 50, 90]))
    spread = f"median {units.duration(median)}, p10-p90 {units.duration(low)} to {units.duration(high)}"
    return Text(f"{counted}\n{spread}")


def _by(anchor: Anchor) -> str:
    """By what steps were found."""
    if anchor.name:
        return f"by ranges {visible(anchor.name, most=60)}"
    bursts = "by bursts of optimizer kernels"
    return bursts if anchor.kind == "optimizer" else "by the repeating kernel sequence"


def _rank_name(rank: Rank) -> str:
    """How a rank is told from the others: its number in the job if known, its process and device."""
    place = f"process {_or_unknown(rank.pid)}, device {_or_unknown(rank.device)}"
    return place if rank.rank is None else f"rank {rank.rank} ({place})"


def _or_unknown(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _budget(rank: Rank, analysis: Analysis) -> Group:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    unseen = any(finding.code == "graph-replays-missing" for finding in analysis.capture.findings)
    whole = "capture" if analysis.anchor.kind == "whole-trace" else f"typical {analysis.anchor.unit}"
    window_ns = rank.typical.step_ns
    for state in DeviceState:
        time_ns = getattr(rank.typical.budget, state)
        name = _STATE_NAMES[state]
        if state is DeviceState.IDLE and unseen:
            name = "idle or unseen graphs"
        share = time_ns / window_ns if window_ns else 0.0
        table.add_row(
            name, bar(share, STATE_COLOURS[state]), units.percent(share), units.milliseconds(time_ns)
        )
    table.add_row(whole, Text(" " * BAR_CELLS), "100.0 %", units.milliseconds(window_ns), style="dim")
    return titled(f"Device time of the {whole}, each nanosecond once", table)


def _ranks(ranks: tuple[Rank, ...]) -> Group:
    table = grid("rank", "typical", "compute", "graphs", "exp. comm", "exp. copy", "idle")
    for rank in ranks:
        window_ns, budget = rank.typical.step_ns, rank.typical.budget
        parts = (getattr(budget, state) for state in DeviceState)
        name = f"pid {_or_unknown(rank.pid)} dev {_or_unknown(rank.device)}"
        table.add_row(
            name if rank.rank is None else f"{rank.rank}",
            units.duration(window_ns),
            *(units.percent(part / window_ns if window_ns else 0.0) for part in parts),
        )
    return titled("Ranks", table)


def _communication(rank: Rank) -> Group | None:
    communication = rank.communication
    if not communication.operations:
        return None
    table = grid("operation", "count", "exposed", "work", "bytes")
    for entry in communication.operations[:_MOST_ROWS]:
        table.add_row(
            f"{_axis(entry.axis)}{entry.operation} ({entry.backend})",
            units.number(entry.count),
            units.milliseconds(entry.exposed_ns),
            units.milliseconds(entry.work_ns),
            units.size(entry.bytes),
        )
    title = (
        f"Communication ran {units.milliseconds(communication.union_ns)},"
        f" {units.percent(communication.hidden_share)} of it hidden behind compute"
    )
    return titled(title, _with_rest(table, len(communication.operations)))


def _axis(axis: Axis) -> str:
    return "" if axis is Axis.UNKNOWN else f"{axis} "


def _compute(rank: Rank) -> Group | None:
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
    return titled("Compute kernels (work: durations added up)", _with_rest(table, len(rank.compute)))


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
    is_telling = entry.direction != CopyDirection.FILL and entry.bytes >= _TELLING_BYTES * entry.count
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


def limits(findings: tuple[Finding, ...], most: int | None = None) -> Group:
    """What limits the claims, with the cure, the gravest first; what is left out is said."""
    order = list(_SEVERITY)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    graded = sorted(findings, key=lambda entry: order.index(entry.severity))
    for finding in graded[:most]:
        body = Text(finding.message)
        if finding.cure:
            body.append(f" → {finding.cure}", style="dim")
        table.add_row(Text("•", style=_SEVERITY[finding.severity]), body)
    if most is not None and len(graded) > most:
        table.add_row("", Text(f"{len(graded) - most} more: wallscope capture-help FILE", style="dim"))
    return titled("Limits", table if findings else Text("none found"))
