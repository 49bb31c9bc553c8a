"""The host's part in the step, and what the GPU's own counters say: below the first screen."""

from collections.abc import Iterator

from rich.console import Group
from rich.text import Text

from wallscope import units
from wallscope.model.analysis import Rank
from wallscope.model.host import BlockingCall, HostDetails, Serialisation
from wallscope.model.metrics import GpuMetrics
from wallscope.render.foreign import visible
from wallscope.render.grids import grid, titled
from wallscope.thresholds import SHOWN_HOST_SHARE

_MOST_CALLS = 4
_LONGEST_NAME = 28


def host(rank: Rank) -> Group | None:
    """Calls that drained the queue, launches, and kernels that waited without a reason."""
    if rank.host_details is None:
        return None
    details, step_ns = rank.host_details, rank.typical.step_ns
    calls = [call for call in details.blocking_calls if call.drained_ns >= SHOWN_HOST_SHARE * step_ns]
    table = grid("call that emptied the queue", "a step", "waited", "cost")
    for call in calls[:_MOST_CALLS]:
        table.add_row(
            _where(call),
            how_often(call),
            units.milliseconds(call.waited_ns),
            units.milliseconds(call.drained_ns),
        )
    lines = list(host_lines(details, step_ns))
    if not calls and not lines:
        return None
    return titled("Host", Group(*([table] if calls else []), *map(Text, lines)))


def gpu_metrics(rank: Rank) -> Group | None:
    """Means of the sampled GPU metrics."""
    if rank.gpu_metrics is None or not rank.gpu_metrics.means:
        return None
    metrics = rank.gpu_metrics
    table = grid("metric", "mean of peak", "samples")
    for entry in metrics.means:
        table.add_row(str(entry.metric), units.percent(entry.mean_share), units.number(entry.samples))
    return titled("GPU metrics, sampled in the step", Group(table, Text(whose(metrics))))


def _where(call: BlockingCall) -> Text:
    """The call and the innermost range that it is mostly made in."""
    name = visible(call.name, most=40)
    if not call.path:
        return Text(name, overflow="ellipsis", no_wrap=True)
    innermost = call.path.rsplit(" / ", 1)[-1]
    cut = innermost if len(innermost) <= _LONGEST_NAME else f"…{innermost[1 - _LONGEST_NAME :]}"
    return Text(f"{name} in {visible(cut)}", overflow="ellipsis", no_wrap=True)


def how_often(call: BlockingCall) -> str:
    """How many of a call a step holds, and a layer or microbatch."""
    if call.unit is None or call.per_unit is None:
        return f"{call.count:,.1f}"
    return f"{call.count:,.1f}, {call.per_unit:,.1f} a {call.unit}"


def host_lines(details: HostDetails, step_ns: int) -> Iterator[str]:
    """Launches, how far the host is ahead, CPU time, false order, in sentences."""
    launches, ahead, cpu = details.launches, details.ahead, details.cpu
    if launches is not None:
        bound = "; the step is launch-bound" if launches.is_launch_bound else ""
        middle, high = units.duration(launches.median_ns), units.duration(launches.p90_ns)
        yield (
            f"{units.plural(launches.calls, 'launch call')} a step, median {middle}, p90 {high};"
            f" {units.percent(launches.outpaced_share)} took longer than what they launched{bound}."
        )
    if ahead is not None:
        yield (
            f"The host runs {units.duration(ahead.median_ns)} ahead of compute in the median,"
            f" {units.duration(ahead.p10_ns)} at p10 (0: the GPU waits for it)."
        )
    if cpu is not None:
        source = {"switches": "switches of threads", "samples": "CPU samples, estimated"}[cpu.source]
        yield f"The launching thread was on a CPU for {units.percent(cpu.share)} of the step ({source})."
    serial = details.serialisation
    if serial is not None and serial.held_ns >= SHOWN_HOST_SHARE * step_ns:
        yield _serialised(serial)


def _serialised(serial: Serialisation) -> str:
    connections = (
        "" if serial.max_connections is None else f"; CUDA_DEVICE_MAX_CONNECTIONS is {serial.max_connections}"
    )
    return (
        f"{serial.count:,.1f} kernels a step stood ready behind one of another stream that nothing puts"
        f" before them, {units.duration(serial.held_ns)} in all:"
        f" a shared work queue, or a full GPU{connections}."
    )


def whose(metrics: GpuMetrics) -> str:
    """How far the samples are of this rank alone."""
    if metrics.exclusive_share is None:
        return "Of the whole GPU: on which GPU the other ranks ran is unknown."
    alone = units.percent(metrics.exclusive_share)
    return f"Of the whole GPU; in {alone} of the samples no other rank of the export ran on it."
