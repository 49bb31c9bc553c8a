"""The answer on a terminal: what is wrong and what to do on the first screen, then the details."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from wallscope import units
from wallscope.model.analysis import Analysis, Anchor, Rank
from wallscope.model.capture import Export, Finding, Severity
from wallscope.model.diagnosis import MemoryPressure
from wallscope.model.throughput import Throughput
from wallscope.render.foreign import spelled, visible
from wallscope.render.grids import titled
from wallscope.thresholds import ENOUGH_STEPS_COUNT
from wallscope.views.details import details, rank_name
from wallscope.views.fixes import fixes
from wallscope.views.job import job_sections, job_verdict
from wallscope.views.walls import causes, walls

_MOST_LIMITS = 3
_SEVERITY = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: ""}


def summary(analysis: Analysis) -> RenderableType:
    """The whole answer; the details are those of the rank that the diagnosis speaks of."""
    return Group(*_summary(analysis))


def _summary(analysis: Analysis) -> Iterator[RenderableType]:
    """The first screen: verdict, walls, losses, limits; then what they are made of."""
    shown = analysis.ranks[analysis.diagnosis.rank_index]
    export = analysis.inputs[shown.input]
    anchor = analysis.anchor
    whole = anchor.typical
    yield headline(export, analysis)
    yield steps_found(anchor, shown)
    if len(analysis.ranks) > 1:
        yield Text(f"Of {len(analysis.ranks)} ranks this is {rank_name(shown)}, {chosen(analysis)}")
    if analysis.diagnosis.throughput is not None:
        yield from map(Text, throughput_lines(analysis.diagnosis.throughput))
    yield Text()
    verdicts = [_verdict(analysis.diagnosis.verdict)]
    if analysis.job is not None:
        verdicts.insert(0 if analysis.job.collectives.matched else 1, job_verdict(analysis.job))
    for paragraph in verdicts:
        yield paragraph
        yield Text()
    yield walls(shown, analysis, whole)
    if analysis.diagnosis.memory_pressure.level != "unknown":
        yield _pressure(analysis.diagnosis.memory_pressure)
    losses = causes(shown, analysis.opportunities, whole)
    if losses is not None:
        yield Text()
        yield losses
    if analysis.fixes:
        yield Text()
        yield fixes(analysis.fixes, whole, analysis.replay)
    yield Text()
    yield limits(analysis.capture.findings, _MOST_LIMITS)
    for section in (*_of_job(analysis), *details(analysis, shown, whole)):
        yield Text()
        yield section


def chosen(analysis: Analysis) -> str:
    """Why this rank is shown."""
    job = analysis.job
    is_critical = (
        job is not None and job.collectives.matched and job.critical_place == analysis.diagnosis.rank_index
    )
    return "which waits least for others" if is_critical else "which computed the smallest share"


def _of_job(analysis: Analysis) -> Iterator[RenderableType]:
    if analysis.job is not None and analysis.job.collectives.matched:
        yield from job_sections(analysis.job)


def headline(export: Export, analysis: Analysis) -> Text:
    """What was analysed: export, version, GPUs, ranks."""
    used = [analysis.inputs[rank.input].gpu(rank.gpu) for rank in analysis.ranks]
    models = sorted({gpu.name for gpu in used if gpu is not None and gpu.name})
    parts = [
        visible(export.name, most=60) if len(analysis.inputs) == 1 else exports(analysis),
        f"nsys {export.nsys_version}" if export.nsys_version else "nsys version unknown",
        ", ".join(models) or "GPU unknown",
        _supplied(analysis),
    ]
    return Text(visible(" · ".join(parts)))


def exports(analysis: Analysis) -> str:
    """How many exports there are, from how many hosts."""
    hosts = {export.hostname for export in analysis.inputs if export.hostname}
    where = f" of {units.plural(len(hosts), 'host')}" if hosts else ""
    return f"{units.plural(len(analysis.inputs), 'export')}{where}"


def _supplied(analysis: Analysis) -> str:
    """How many ranks there are, of how many."""
    supplied, of_all = len(analysis.ranks), analysis.capture.world_size
    if of_all is None or of_all <= 1:
        return units.plural(supplied, "rank")
    (number, *others) = [rank.rank for rank in analysis.ranks]
    return (
        f"rank {number} of {of_all}" if number is not None and not others else f"{supplied} of {of_all} ranks"
    )


def steps_found(anchor: Anchor, rank: Rank) -> Text:
    """How long steps take, how many count, and by what they were found."""
    if anchor.kind == "whole-trace":
        whole = "whole capture" if anchor.selected_time_ns is None else "selected time"
        return Text(f"No step found: the {whole} is one window", style="yellow")
    steady = sorted(step.end_ns - step.start_ns for step in rank.steps if step.steady)
    counted = f"{units.plural(len(steady), f'steady {anchor.unit}')} of {len(rank.steps)}"
    found = f"found {_by(anchor)}"
    if len(steady) < ENOUGH_STEPS_COUNT and anchor.inner is not None:
        inner = anchor.inner
        spread = f"median {units.duration(inner.median_ns)}, {_spread(inner.p10_ns, inner.p90_ns)}"
        name = visible(inner.name, most=40)
        return Text(f"{counted}, {found}\n{inner.count} times {name} inside ({inner.unit}): {spread}")
    if not steady:
        return Text(f"{counted}, {found}")
    low, median, high = (_decile(steady, tenths) for tenths in (1, 5, 9))
    return Text(f"{counted}: median {units.duration(median)}, {_spread(low, high)}\n{found}")


def _decile(ordered: Sequence[int], tenths: int) -> int:
    """The time below which so many tenths of the sorted times lie, between neighbours in proportion.

    >>> _decile([10, 20, 40], 5), _decile([10, 20, 40], 9), _decile([7], 1)
    (20, 36, 7)
    """
    place, beyond = divmod((len(ordered) - 1) * tenths, 10)
    if not beyond:
        return ordered[place]
    return ordered[place] + (ordered[place + 1] - ordered[place]) * beyond // 10


def _spread(low_ns: int, high_ns: int) -> str:
    return f"p10-p90 {units.duration(low_ns)} to {units.duration(high_ns)}"


def _by(anchor: Anchor) -> str:
    """By what steps were found."""
    if anchor.name:
        return f"by ranges {visible(anchor.name, most=60)}"
    bursts = "by bursts of optimizer kernels"
    return bursts if anchor.kind == "optimizer" else "by the repeating kernel sequence"


def throughput_lines(found: Throughput) -> Iterator[str]:
    """The capture beside an unprofiled step; tokens and FLOPs by the user's own count."""
    if found.perturbation is not None:
        unprofiled = units.duration(found.unprofiled_step_ns)
        yield f"Unprofiled step {unprofiled}: in the capture it takes {found.perturbation:.2f}x as long"
    parts = []
    if found.tokens_per_s is not None:
        parts.append(f"{units.number(round(found.tokens_per_s))} tokens/s of the job")
    if found.flops_per_s is not None:
        parts.append(f"{units.flops(found.flops_per_s)} a GPU by your count")
    if parts:
        yield f"Captured step: {', '.join(parts)}"
    if found.mfu is not None and found.peak is not None:
        peak = f"{units.flops(found.peak.flops_per_s)} dense {found.peak.precision}"
        yield f"MFU {units.percent(found.mfu)} of {peak} ({found.peak.source})"


def _verdict(paragraph: str) -> Text:
    """The paragraph with its first sentence in bold."""
    first, point, rest = spelled(paragraph).partition(". ")
    return Text.assemble((f"{first}{point.strip()}", "bold"), f" {rest}" if rest else "")


def _pressure(pressure: MemoryPressure) -> Padding:
    evidence = f": {'; '.join(pressure.evidence)}" if pressure.evidence else ""
    return Padding(Text(f"memory pressure {pressure.level}{evidence}"), (0, 0, 0, 2))


def limits(findings: tuple[Finding, ...], most: int | None = None) -> Group:
    """What limits the claims, with the cure, the gravest first; what is left out is said."""
    order = list(_SEVERITY)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    graded = sorted(findings, key=lambda entry: order.index(entry.severity))
    for finding in graded[:most]:
        body = Text(spelled(finding.message))
        if finding.cure:
            body.append(f" → {finding.cure}", style="dim")
        table.add_row(Text("•", style=_SEVERITY[finding.severity]), body)
    if most is not None and len(graded) > most:
        said = f"{len(graded) - most} more in the JSON; cures: wallscope capture-help FILE"
        table.add_row("", Text(said, style="dim"))
    return titled("Limits", table if findings else Text("none found"))
