"""Limits of a trace of PyTorch's profiler, traces that are refused, and cures of findings for this profiler.

Data that this profiler does not record is listed as a limit and never counts as 0. Flags of nsys do not apply
to it, so findings about any capture get its own cures.
"""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from wallscope.errors import InputError, NothingToAnalyzeError
from wallscope.finding_texts import adapt_cures, make_finding
from wallscope.kineto.event_decoding import CATEGORIES
from wallscope.kineto.event_tables import DEVICE_FRAMES, TraceTables, describe_counts
from wallscope.model.capture import Capture, Finding, Presence
from wallscope.model.enums import CallRole
from wallscope.model.finding_codes import FindingCode
from wallscope.nsys.calls import express_roles
from wallscope.nsys.findings import check_calls, check_clocks
from wallscope.thresholds.verdict import MATERIAL_SHARE, RANGES_A_LAUNCH_RATIO
from wallscope.trace.device_clocks import DeviceClock
from wallscope.trace.record_times import LeftOut
from wallscope.units import average, duration, percent, plural

_PROFILER_HINT = "profile with torch.profiler and export_chrome_trace on a GPU of NVIDIA or AMD"
_ANY_PROGRAM_HINT = "capture the program with Nsight Systems (wallscope capture-help) or torch.profiler"
_OTHER_DEVICES = {
    "mtia_": "an MTIA accelerator",
    "xpu_": "an Intel XPU",
    "hpu_": "a Gaudi accelerator",
    "privateuse1_": "a device of another vendor",
}
_TRACE_KEYS = ("schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "trace_id")
_REPLAYING = "cuda_profiler_range"
_EVENTS, _CALLS = "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "CUPTI_ACTIVITY_KIND_RUNTIME"


def refuse_other_traces(path: Path, tables: TraceTables) -> None:
    """Refuse a file that is not a trace of a GPU of NVIDIA or AMD by PyTorch's profiler.

    Raises:
        InputError: states what it is instead.
    """
    facts = tables.facts
    if facts.is_list and not any(category in CATEGORIES.values() for category in tables.counts):
        raise InputError(
            f"{path} — is a list of events, as other programs and PyTorch's profilers before Kineto write it"
            f" — {_PROFILER_HINT}"
        )
    if not facts.has_events:
        fault = f": {facts.fault}" if facts.fault else ""
        raise InputError(
            f"{path} — is JSON without traceEvents, not a trace of PyTorch's profiler{fault} —"
            f" {_PROFILER_HINT}"
        )
    if tables.counts[_REPLAYING]:
        raise InputError(
            f"{path} — has {_REPLAYING}: kernels were replayed for counters, so times are meaningless —"
            " profile without experimental_config metrics"
        )
    for prefix, what in _OTHER_DEVICES.items():
        if any(category.startswith(prefix) for category in tables.counts):
            raise InputError(f"{path} — is a trace of {what}, which is not supported — {_PROFILER_HINT}")
    if not facts.fault and not facts.lost_events and _is_of_another_program(tables):
        raise InputError(
            f"{path} — is a trace of another program: PyTorch's profiler wrote none of its events"
            f" — {_ANY_PROGRAM_HINT}"
        )


def _is_of_another_program(tables: TraceTables) -> bool:
    """Return whether there are events, and PyTorch's profiler wrote neither them nor members of the file."""
    known = CATEGORIES.values()
    return (
        tables.unknown_events > 0
        and not any(key in tables.facts.keys for key in _TRACE_KEYS)
        and not any(category in known for category in tables.counts)
    )


def refuse_empty_trace(path: Path, tables: TraceTables) -> None:
    """Refuse a trace without device operations.

    Raises:
        NothingToAnalyzeError: states what the trace has instead.
    """
    if tables.has_work:
        return
    held = describe_counts(tables.counts) or "no event"
    fault = f"; {tables.facts.fault}" if tables.facts.fault else ""
    untimed = sum((tables.left_out.get(name, LeftOut()) for name in DEVICE_FRAMES), LeftOut())
    if untimed.count:
        raise NothingToAnalyzeError(
            f"has no device operation with a valid time: {untimed.describe('event')}{fault}",
            "profile again and end after torch.cuda.synchronize()",
            str(path),
        )
    if launches := _count_launches(tables):
        raise NothingToAnalyzeError(
            f"has {plural(launches, 'kernel launch')} but no kernel ({held}{fault}):"
            " records of the GPU were lost",
            "end the profile after torch.cuda.synchronize(), and check that this user may profile the GPU",
            str(path),
        )
    raise NothingToAnalyzeError(
        f"has no kernel, copy or fill ({held}{fault})",
        "profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] while the GPU is busy",
        str(path),
    )


def _count_launches(tables: TraceTables) -> int:
    """Return how many calls launched kernels or graphs."""
    names = pl.DataFrame({"name": tables.texts}, schema={"name": pl.String})
    roles = names.select(role=express_roles("name"))["role"].is_in([CallRole.LAUNCH, CallRole.GRAPH])
    return int(roles.gather(tables.frames["calls"]["text"]).sum())


def find_presence(tables: TraceTables) -> dict[str, Presence]:
    """Return which of Nsight's tables, used by findings, have an equivalent in a trace."""
    has_waits, has_calls = (bool(len(tables.frames[name])) for name in ("syncs", "calls"))
    return {
        _EVENTS: Presence.ROWS if has_waits else Presence.ABSENT,
        _CALLS: Presence.ROWS if has_calls else Presence.ABSENT,
    }


def find_damage(tables: TraceTables) -> tuple[Finding, ...]:
    """Report parts of the file that could not be read."""
    facts, found = tables.facts, []
    if facts.fault:
        found.append(make_finding(FindingCode.TRACE_CUT_OFF, fault=facts.fault))
    if facts.lost_events:
        found.append(make_finding(FindingCode.TRACE_EVENTS_LOST, events=plural(facts.lost_events, "event")))
    left_out = sum(one.count for one in tables.left_out.values())
    if left_out:
        found.append(make_finding(FindingCode.UNTIMED_OPERATIONS, "trace", events=plural(left_out, "event")))
    return tuple(found)


def find_trace_limits(
    tables: TraceTables, capture: Capture, clocks: tuple[DeviceClock, ...]
) -> tuple[Finding, ...]:
    """Return all limits of a trace."""
    calls = check_calls(capture, began_inside=False)
    return (
        *find_damage(tables),
        *adapt_cures((*check_clocks(capture, clocks), *calls), capture.export),
        *_check_calls_left(capture),
        *_check_order(capture),
        *_check_cost(tables, capture),
        *_check_overhead(tables, capture),
        *_check_clock(tables),
        *_describe_lacks(tables),
        *_check_gpus(capture),
    )


def _check_calls_left(capture: Capture) -> Iterator[Finding]:
    """Report that only calls that issue work are left, although programs with several streams make others."""
    issuing = [CallRole.LAUNCH, CallRole.GRAPH, CallRole.COPY]
    if capture.calls.is_empty() or capture.operations["stream"].n_unique() == 1:
        return
    if capture.calls["role"].is_in(issuing).all():
        yield make_finding(FindingCode.TRACE_FILTERED)


def _check_order(capture: Capture) -> Iterator[Finding]:
    """Report operations that begin before their calls: the clocks of host and device differ."""
    issued = capture.operations.filter(pl.col("call") >= 0)
    early = int((issued["start_ns"] < capture.calls["start_ns"].gather(issued["call"])).sum())
    if early:
        yield make_finding(
            FindingCode.WORK_BEFORE_CALLS, operations=plural(early, "device operation"), all=len(issued)
        )


def _check_cost(tables: TraceTables, capture: Capture) -> Iterator[Finding]:
    """Report recording on the host that slowed it."""
    frames = tables.counts["python_function"]
    operators = len(tables.frames["operators"])
    launches = int(capture.calls["role"].is_in([CallRole.LAUNCH, CallRole.GRAPH]).sum())
    if frames:
        yield make_finding(
            FindingCode.TORCH_STACKS,
            frames=plural(frames, "function call"),
            launches=plural(launches, "launch"),
        )
    elif operators and operators >= RANGES_A_LAUNCH_RATIO * launches:
        yield make_finding(
            FindingCode.TORCH_OPERATORS,
            average=average(operators / max(launches, 1)),
            operators=plural(operators, "operator"),
        )


def _check_overhead(tables: TraceTables, capture: Capture) -> Iterator[Finding]:
    rows = tables.frames["overheads"]
    start_ns, end_ns = capture.operations.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    spent_ns = int((rows["end"] - rows["start"]).sum())
    if rows.is_empty() or spent_ns < MATERIAL_SHARE * (end_ns - start_ns):
        return
    yield make_finding(
        FindingCode.PROFILER_OVERHEAD,
        "trace",
        covers_ns=spent_ns,
        spent=duration(spent_ns),
        share=percent(spent_ns / (end_ns - start_ns)),
    )


def _check_clock(tables: TraceTables) -> Iterator[Finding]:
    if tables.is_coarse:
        yield make_finding(FindingCode.MICROSECOND_TIMES)


def _describe_lacks(tables: TraceTables) -> Iterator[Finding]:
    lacks = ["system calls", "thread switches", "NVTX ranges", "GPU metrics", "stream flags"]
    if tables.frames["allocations"].is_empty():
        lacks.append("GPU memory use")
    if not len(tables.frames["overheads"]):
        lacks.append("overhead of the profiler")
    yield make_finding(FindingCode.TORCH_PROFILER, lacks=", ".join(lacks))


def _check_gpus(capture: Capture) -> Iterator[Finding]:
    if not capture.export.gpus:
        yield make_finding(FindingCode.GPU_UNKNOWN, "trace")
