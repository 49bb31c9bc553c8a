"""The evidence of a recommendation: kernels, copies and calls with their number and time per step.

Readers find them in Nsight Systems by these names.
"""

from collections.abc import Iterator

from wallscope.advice.measurements import LAUNCHING, MeasuredRun
from wallscope.model.capture import Profiler
from wallscope.model.enums import CopyDirection
from wallscope.model.rank_summaries import CopyWork
from wallscope.thresholds.causes import BULK_COPY_BYTES
from wallscope.thresholds.verdict import EVIDENCE_LINES_COUNT
from wallscope.units import duration, number, percent, plural, size

_COPIES = {
    "staging": (CopyDirection.HOST_TO_DEVICE,),
    "readback": (CopyDirection.DEVICE_TO_HOST,),
    "offload": (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST),
    "device-copy": (CopyDirection.DEVICE_TO_DEVICE,),
    "migration": (
        CopyDirection.MIGRATION_TO_DEVICE,
        CopyDirection.MIGRATION_TO_HOST,
        CopyDirection.MIGRATION_BETWEEN_DEVICES,
    ),
    "fill": (CopyDirection.FILL,),
}
_DRAINED, _DRIVER_LOCK = "host/queue-drained/", "memory/driver-lock"
_WHERE_PARTS_COUNT = 2


def list_evidence(
    run: MeasuredRun, causes: tuple[str, ...], asked: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Return the evidence of the representative rank for a fix and its causes, one line per kind.

    `asked` are the measurements that the conditions of the fix name.
    """
    lines = dict.fromkeys(_list_attention(run) if "unfused_attention_share" in asked else ())
    lines |= dict.fromkeys(line for cause in causes for line in _list_rows(run, cause))
    return tuple(lines)[:EVIDENCE_LINES_COUNT]


def _list_attention(run: MeasuredRun) -> Iterator[str]:
    """Yield what runs between the multiplications of attention."""
    details = run.rank.compute_details
    if details is not None and (found := details.unfused_attention) is not None:
        shown = ", ".join(found.ranges[:_WHERE_PARTS_COUNT])
        yield (
            f"{plural(found.between_kernels, 'kernel')} that do not multiply, in ranges {shown}:"
            f" {duration(found.between_ns)} per {run.analysis.anchor.window}"
        )


def _list_rows(run: MeasuredRun, cause: str) -> Iterator[str]:
    wall, kind, *_ = [*cause.split("/"), ""]
    yield from _list_stalls(run, cause)
    if wall == "compute":
        yield from _list_kernels(run, kind)
    elif wall == "memory":
        yield from _list_copies(run, kind)
    elif wall == "communication":
        yield from _list_collectives(run, kind)
    elif cause.startswith(_DRAINED):
        yield from _list_blocking_calls(run, cause.removeprefix(_DRAINED))
    elif cause == "host/data-loading":
        yield from _list_loading(run)
    elif cause == "host/small-copy":
        yield from _list_small_copies(run)
    elif cause == _DRIVER_LOCK:
        yield from _list_locked_calls(run)
    elif cause in LAUNCHING:
        yield from _list_launches(run)


def _list_stalls(run: MeasuredRun, cause: str) -> Iterator[str]:
    """Yield the few steps with most of a cause's time."""
    for stall in run.rank.rare_stalls:
        if stall.cause == cause and run.rare_share(cause):
            shown = ", ".join(map(str, stall.steps[:3]))
            yield (
                f"{plural(len(stall.steps), 'step')} ({shown}{' …' if len(stall.steps) > 3 else ''}) take"
                f" {duration(stall.least_ns)} to {duration(stall.most_ns)} more, {percent(stall.share)} of"
                " all time"
            )


def _list_kernels(run: MeasuredRun, category: str) -> Iterator[str]:
    details = run.rank.compute_details
    for kernel in () if details is None else details.leading_kernels:
        if kernel.category == category:
            precision = "" if kernel.precision == "unknown" else f", {kernel.precision}"
            yield (
                f"{plural(kernel.kernels, 'kernel')} {kernel.name}{precision}: {duration(kernel.work_ns)}"
                f" per {run.analysis.anchor.window}"
            )


def _list_copies(run: MeasuredRun, kind: str) -> Iterator[str]:
    for copy in run.rank.memory.copies:
        if copy.direction in _COPIES.get(kind, ()) and copy.count:
            yield f"{_describe_copy(copy)} per {run.analysis.anchor.window}"


def _name_copies(copy: CopyWork) -> str:
    noun = ("memset", "memsets") if copy.direction == "fill" else ("copy", "copies")
    return f"{'' if copy.direction == 'fill' else f'{copy.direction} '}{noun[copy.count != 1]}"


def _describe_copy(copy: CopyWork) -> str:
    pinned = "" if copy.pinned is None else ", pinned" if copy.pinned else ", pageable"
    return (
        f"{number(copy.count)} {_name_copies(copy)}{pinned}: {size(copy.bytes)} in {duration(copy.work_ns)},"
        f" of which {duration(copy.exposed_ns)} is not overlapped"
    )


def _list_collectives(run: MeasuredRun, axis: str) -> Iterator[str]:
    for entry in run.rank.communication.operations:
        if entry.axis == axis:
            told = f"; {entry.evidence[0]}" if entry.evidence else ""
            yield (
                f"{number(entry.count)} {entry.operation} ({entry.backend}): {duration(entry.work_ns)}"
                f" per {run.analysis.anchor.window}, {duration(entry.exposed_ns)} exposed{told}"
            )


def _list_blocking_calls(run: MeasuredRun, name: str) -> Iterator[str]:
    host = run.rank.host_details
    for call in () if host is None else host.blocking_calls:
        if call.name == name:
            where = (
                "" if call.path is None else f" in {' / '.join(call.path.split(' / ')[-_WHERE_PARTS_COUNT:])}"
            )
            yield (
                f"{call.count:.1f} calls {call.name}{where} per {run.analysis.anchor.window}:"
                f" {duration(call.waited_ns)} waiting, then {duration(call.drained_ns)} GPU idle"
            )


def _list_loading(run: MeasuredRun) -> Iterator[str]:
    host = run.rank.host_details
    own = [one for one in run.rank.memory.copies if one.direction == CopyDirection.HOST_TO_DEVICE]
    if own:
        largest = max(own, key=lambda one: one.bytes)
        yield f"a copy of a batch ends the waits: {_describe_copy(largest)}"
    yield from _count_loader_threads(run)
    if host is not None and host.cpu is not None:
        yield f"the launching thread is on a CPU for {percent(host.cpu.share)} of the step"


def _count_loader_threads(run: MeasuredRun) -> Iterator[str]:
    """Yield how many threads and worker processes of loaders the export names."""
    if run.loader_threads:
        counts = (f"{number(count)} {kind}" for kind, count in sorted(run.loader_threads.items()))
        yield f"loader threads and worker processes by their names: {', '.join(counts)}"
    elif run.framework == "pytorch" and run.profiler == Profiler.NSYS:
        yield "no thread or process in the export has the name of a loader worker: their number is unknown"


def _list_small_copies(run: MeasuredRun) -> Iterator[str]:
    for copy in run.rank.memory.copies:
        crosses = copy.direction in _COPIES["offload"]
        if crosses and copy.count and copy.bytes < BULK_COPY_BYTES * copy.count:
            yield f"{_describe_copy(copy)} per {run.analysis.anchor.window}"


def _list_locked_calls(run: MeasuredRun) -> Iterator[str]:
    host = run.rank.host_details
    for call in () if host is None else host.locked_calls:
        yield (
            f"{call.count:.1f} calls {call.name} per {run.analysis.anchor.window} wait while another thread"
            f" is in {call.holder}: {duration(call.waited_ns)}"
        )


def _list_launches(run: MeasuredRun) -> Iterator[str]:
    host = run.rank.host_details
    if host is not None and host.launches is not None:
        cost = host.launches
        yield (
            f"{number(cost.calls)} launch calls per {run.analysis.anchor.window}, median"
            f" {duration(cost.median_ns)}; {percent(cost.outpaced_share)} take longer than the launched"
            " kernel"
        )
