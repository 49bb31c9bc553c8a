"""Limits of one export, as far as its tables show them.

Limits are lost or unexported records, operations without their call, calls without their operation, and the
profiler's own overhead. NVTX ranges can also be missing, truncated or too many.
"""

import re
from collections.abc import Iterable, Sized

import numpy as np
import polars as pl

from wallscope.finding_texts import make_finding
from wallscope.model.capture import Capture, Finding, GraphTracing, Presence, Progress, Severity
from wallscope.model.enums import CallRole, CopyDirection
from wallscope.model.finding_codes import FindingCode
from wallscope.nsys.host_events import CUDA_OVERHEADS, PROFILER_OVERHEADS, PROFILER_TYPES, RawRanges
from wallscope.nsys.identity import ExportFacts, look_up_texts, read_capture_options
from wallscope.nsys.tables import Database, read_table
from wallscope.records import dataclass
from wallscope.thresholds.verdict import (
    AT_WORK_TO_THE_END_SHARE,
    FEWEST_OPERATOR_RANGES_COUNT,
    GRAVE_PROFILER_OVERHEAD_SHARE,
    MATERIAL_SHARE,
    RANGES_A_LAUNCH_RATIO,
)
from wallscope.trace.device_clocks import DeviceClock
from wallscope.trace.intervals import covered_ns, length_ns, make_spans, order_spans, union
from wallscope.trace.names import match_alike
from wallscope.units import average, duration, percent, plural

_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_MIGRATIONS = tuple(direction for direction in CopyDirection if direction.startswith("migration"))
_EVENT_WAIT = r"(Stream|Ctx)WaitEvent|EventSynchronize"
_CAPTURE_BEGINS, _CAPTURE_ENDS = r"StreamBegin(Rec|C)apture", r"StreamEnd(Rec|C)apture"
_MARK, _DOMAIN = 34, 75
_LONGEST_WARNING = 200
_QUOTES = str.maketrans({'"': "'"})
_OF_LIBRARIES = (
    r"(?i)^(MPI|UCX|NVSHMEM|NCCL|OpenACC|CCCL|CUB|Thrust|TensorRT|myelin.*"
    r"|cu(BLAS|DNN|FFT|RAND|SOLVER|SPARSE|TENSOR|StateVec|File)\w*)$"
)
# Domains that a library or the profiler creates, with or without ranges.
_AUTOGRAD = r"^(aten|autograd|c10d)::"
_MARK_STEPS = "Mark steps and phases with NVTX."
_WHO_AND_WHEN = ("start", "end", "globalTid")
_ISSUING = (CallRole.LAUNCH, CallRole.GRAPH, CallRole.COPY)


def check_losses(source: Database) -> tuple[Finding, ...]:
    """Report records that the profiler lost; exports before schema 3.8 do not contain this."""
    if not source.has("DIAGNOSTIC_EVENT", "text"):
        return (make_finding(FindingCode.LOSS_UNKNOWN),)
    ((lost, incomplete),) = source.rows("diagnostics")
    findings = []
    if lost:
        findings.append(make_finding(FindingCode.RECORDS_LOST, messages=plural(lost, "message")))
    if incomplete:
        findings.append(make_finding(FindingCode.PERHAPS_INCOMPLETE, messages=plural(incomplete, "message")))
    return tuple(findings)


def count_launches(source: Database) -> int:
    """Return how many calls launched kernels or graphs; 0 if the export does not have their names."""
    if not (source.has("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId") and source.has("StringIds", "id", "value")):
        return 0
    ((launches,),) = source.rows("kernel_launches")
    return int(launches)


_OF_GPU = re.compile(
    r"(?i)\bcuda (trace|event|profiling|driver|device)|\b(cupti|gpu|lost|dropped|discarded)\b|driver version"
)
_MOST_MESSAGES = 4
_SYSTEMS = (
    (
        "SoftwareReleaseVersion",
        re.compile(r"WSL2"),
        "the system is WSL2",
        "on WSL2 update the Windows driver and nsys, and let all users read GPU performance counters",
    ),
    (
        "SoftwareReleaseVersion",
        re.compile(r"4\.4\.0"),
        "the system is the sandbox gVisor",
        "run nsys in a container without the sandbox gVisor",
    ),
    (
        "Hostname",
        re.compile(r"[0-9a-f]{12}"),
        "the program ran in a container",
        "start the container with --cap-add=SYS_ADMIN",
    ),
)
"""By fact of the system: what its value shows, and what to do."""
_OLD_DRIVER = re.compile(r"(?i)driver version .* is not supported|updating the CUDA driver")


@dataclass(frozen=True, slots=True)
class LossReasons:
    """What may explain missing rows: reasons as parts of a sentence, and cures."""

    reasons: tuple[str, ...]
    cures: tuple[str, ...]

    @property
    def aside(self) -> str:
        """The reasons in parentheses, as the end of a sentence; empty without any."""
        return f" ({'; '.join(self.reasons)})" if self.reasons else ""

    def join_cures(self, *usual: str) -> str:
        """Return usual cures and those that fit the reasons, in one line."""
        return ", ".join(dict.fromkeys((*usual, *self.cures)))


def find_loss_reasons(source: Database, *, is_any_message: bool = True) -> LossReasons:
    """Return what may explain missing rows: the system, and warnings and errors of the profiler.

    Messages about CUDA come first; without any, and only if `is_any_message`, others stand in.
    """
    reasons, cures = [], []
    if source.has("TARGET_INFO_SYSTEM_ENV", "name", "value"):
        facts = [(str(name), str(value)) for name, value in source.rows("system_release")]
        for fact, shows, reason, cure in _SYSTEMS:
            if any(name == fact and _is_shown(shows, value) for name, value in facts):
                reasons.append(reason)
                cures.append(cure)
    if source.has("DIAGNOSTIC_EVENT", "text", "severity"):
        texts = (_keep_plain_sentences(str(text)) for (text,) in source.rows("profiler_warnings"))
        said = dict.fromkeys(filter(None, texts))
        related = [text for text in said if _OF_GPU.search(text)]
        first = related or (said if is_any_message else [])
        quoted = [text[:_LONGEST_WARNING].translate(_QUOTES) for text in [*first][:_MOST_MESSAGES]]
        reasons += [f'nsys reports "{text}"' for text in quoted]
        if any(_OLD_DRIVER.search(text) for text in said):
            cures.append("use an nsys release that supports the driver")
    return LossReasons(tuple(reasons), tuple(cures))


def _keep_plain_sentences(text: str) -> str:
    """Return the sentences of words and numbers alone: paths and names of the machine are not repeated.

    >>> _keep_plain_sentences("CUPTI dropped 5 records. See /home/jane/run-7f3a.log")
    'CUPTI dropped 5 records.'
    """
    sentences = re.split(r"(?<=[.?!])\s+", " ".join(text.split()))
    return " ".join(one for one in sentences if all(map(_PLAIN_WORD.fullmatch, one.split())))


_PLAIN_WORD = re.compile(r"[(\"']*(?:[A-Za-z]+(?:[-'][A-Za-z]+)*|\d+(?:\.\d+)*)[)\"',.:;?!]*")


def _is_shown(shows: re.Pattern[str], value: str) -> bool:
    found = shows.search(value) if "WSL" in shows.pattern else shows.fullmatch(value)
    return found is not None


_WITHOUT_ROWS = {
    FindingCode.GRAPH_REPLAYS_MISSING,
    FindingCode.LAUNCHES_WITHOUT_WORK,
    FindingCode.NO_API_CALLS,
    FindingCode.NO_CUDA_EVENTS,
    FindingCode.ORPHAN_OPERATIONS,
    FindingCode.RANGES_LOST,
    FindingCode.RECORDS_LOST,
    FindingCode.UNTIMED_OPERATIONS,
}
"""Findings that say that rows are missing."""


def check_loss_reasons(source: Database, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Report what the profiler and the system say where rows are missing."""
    if _WITHOUT_ROWS.isdisjoint(finding.code for finding in findings):
        return ()
    found = find_loss_reasons(source, is_any_message=False)
    if not found.reasons:
        return ()
    cure = found.join_cures() or "see what nsys reported"
    return (
        make_finding(
            FindingCode.PROFILER_MESSAGES,
            cure=f"{cure[0].upper()}{cure[1:]}.",
            reasons="; ".join(found.reasons),
        ),
    )


def check_times(operations: int, calls: int, ranges: int) -> tuple[Finding, ...]:
    """Report how many rows were left out because they have no time, or one that cannot be."""
    counts = ((operations, "device operation"), (calls, "call"), (ranges, "range"))
    listed = [plural(count, what) for count, what in counts if count]
    if not listed:
        return ()
    return (make_finding(FindingCode.UNTIMED_OPERATIONS, "export", records=" and ".join(listed)),)


def check_export(facts: ExportFacts) -> tuple[Finding, ...]:
    """Report tables or times that the exporter left out on request."""
    if not facts.is_filtered:
        return ()
    return (make_finding(FindingCode.FILTERED_EXPORT),)


def check_graph_tracing(
    source: Database, *, has_nodes: bool, has_graphs: bool
) -> tuple[GraphTracing, tuple[Finding, ...]]:
    """Report how CUDA graphs were traced; launches without device work make idle time uncertain."""
    if has_graphs:
        return GraphTracing.GRAPH, ()
    if has_nodes:
        return GraphTracing.NODE, ()
    launches = 0
    if source.has(_RUNTIME, "nameId") and source.has("StringIds", "id", "value"):
        ((launches,),) = source.rows("graph_launches")
    if launches == 0:
        return GraphTracing.NONE, ()
    return GraphTracing.GRAPH, (
        make_finding(FindingCode.GRAPH_REPLAYS_MISSING, launches=plural(launches, "CUDA graph launch")),
    )


def check_gpus(source: Database) -> tuple[Finding, ...]:
    """Report whether the export describes the GPUs."""
    if Presence.ROWS in (source.presence("TARGET_INFO_GPU"), source.presence("TARGET_INFO_CUDA_GPU")):
        return ()
    return (make_finding(FindingCode.GPU_UNKNOWN, "export"),)


def check_clocks(capture: Capture, clocks: tuple[DeviceClock, ...]) -> tuple[Finding, ...]:
    """Report devices whose clock was off, by how much and how sure, or whose clock could not be aligned."""
    unknown = [clock for clock in clocks if clock.offset_ns is None]
    aligned = [(abs(clock.offset_ns), clock) for clock in clocks if clock.offset_ns is not None]
    findings = []
    if unknown:
        findings.append(
            make_finding(
                FindingCode.DEVICE_CLOCK_UNKNOWN,
                device=_name_device(capture, unknown[0]),
                others=_count_others(unknown),
                reason=_find_contradiction(unknown[0]),
            )
        )
    if aligned:
        offset_ns, clock = max(aligned, key=lambda one: one[0])
        least_ns, most_ns = sorted(
            (clock.least_ns, clock.least_ns if clock.most_ns is None else clock.most_ns)
        )
        findings.append(
            make_finding(
                FindingCode.DEVICE_CLOCK_ALIGNED,
                device=_name_device(capture, clock),
                others=_count_others(aligned),
                reason=_find_contradiction(clock),
                offset=duration(offset_ns),
                way="ahead of" if (clock.offset_ns or 0) < 0 else "behind",
                drift=f", with a drift of {clock.drift * 1e6:+.1f} ppm" if clock.drift else "",
                least=duration(least_ns),
                most="on" if clock.most_ns is None else f"to {duration(most_ns)}",
            )
        )
    return tuple(findings)


def _name_device(capture: Capture, clock: DeviceClock) -> str:
    return f"GPU {capture.ranks.filter(pl.col('rank_id') == clock.rank_id)['device'][0]}"


def _count_others(clocks: Sized) -> str:
    return f", and {plural(len(clocks) - 1, 'other clock')} likewise" if len(clocks) > 1 else ""


def _find_contradiction(clock: DeviceClock) -> str:
    if clock.early:
        return f"{clock.early:,} of {plural(clock.launches, 'operation')} started before their launch"
    if clock.late:
        return (
            f"{clock.late:,} of {plural(clock.waits, 'call')} returned before the end of what they waited for"
        )
    return "No operation starts soon after its launch, although the GPU is idle"


def check_calls(capture: Capture, *, began_inside: bool) -> tuple[Finding, ...]:
    """Report operations without calls, calls without operations, and waits for unrecorded events.

    `began_inside` means that tables show the capture to have begun while the program ran.
    """
    if capture.calls.is_empty():
        return (*_check_capture_range(0, began_inside=began_inside), _report_no_calls(capture))
    orphans = _find_orphans(capture)
    early = orphans.filter("early")
    without_call = _check_orphans(capture, orphans, early)
    return (
        *without_call,
        *_check_launches(capture),
        *_check_event_records(capture),
        *_check_capture_range(
            0 if without_call else len(early), began_inside=began_inside or not early.is_empty()
        ),
    )


def _report_no_calls(capture: Capture) -> Finding:
    operations = plural(len(capture.operations), "device operation")
    return make_finding(FindingCode.NO_API_CALLS, operations=operations)


def _find_orphans(capture: Capture) -> pl.DataFrame:
    """Return `OPERATIONS` without their call, and whether each is `early`: queued before the capture began.

    A stream runs in the order of issue, so operations before the first one with a call were issued before it.
    Unified memory migrates pages without a call.
    """
    migrations = capture.copies.filter(pl.col("direction").is_in([str(kind) for kind in _MIGRATIONS]))
    orphans = capture.operations.filter(pl.col("call") < 0).join(migrations, on="op", how="anti")
    if orphans.is_empty():
        return orphans.with_columns(early=pl.lit(value=False))
    first_known = (
        capture.operations.filter(pl.col("call") >= 0)
        .join(migrations, on="op", how="anti")
        .group_by("rank_id", "stream")
        .agg(first_known_ns=pl.col("start_ns").min())
    )
    first_calls = (
        capture.calls.group_by("thread")
        .agg(first_call_ns=pl.col("start_ns").min())
        .join(capture.threads, on="thread")
        .group_by("process")
        .agg(pl.col("first_call_ns").min())
    )
    return (
        orphans.join(first_known, on=["rank_id", "stream"], how="left")
        .join(capture.ranks.select("rank_id", "process"), on="rank_id", how="left")
        .join(first_calls, on="process", how="left")
        .with_columns(
            early=(pl.col("start_ns") < pl.coalesce("first_known_ns", "first_call_ns")).fill_null(value=False)
        )
    )


def _check_orphans(capture: Capture, orphans: pl.DataFrame, early: pl.DataFrame) -> tuple[Finding, ...]:
    if orphans.is_empty():
        return ()
    covers_ns, all_ns = _busy_ns(orphans), _busy_ns(capture.operations)
    is_material = (
        len(orphans) >= MATERIAL_SHARE * len(capture.operations) or covers_ns >= MATERIAL_SHARE * all_ns
    )
    if len(early) == len(orphans) and not is_material:
        return ()
    operations = plural(len(capture.operations), "device operation")
    among = f"{len(orphans):,} of {operations} ({duration(covers_ns)} in total)"
    if len(early) == len(orphans):
        message = f"{among} were issued before the capture began, so their calls and ranges are unknown."
        cure = "Start the capture after a device synchronization, one step before the steps of interest."
    else:
        known = f"; {len(early):,} of these were issued before the capture began" if len(early) else ""
        message = f"{among} have no API call in the export, and therefore no NVTX range{known}."
        cure = "Capture fewer steps, and export without --tables and --times."
    return (Finding(FindingCode.ORPHAN_OPERATIONS, Severity.WARNING, message, cure, covers_ns=covers_ns),)


def _busy_ns(operations: pl.DataFrame) -> int:
    """Return the time in which at least one of the operations ran, added up over ranks."""
    return sum(
        length_ns(union(order_spans(own["start_ns"].to_numpy(), own["end_ns"].to_numpy())))
        for own in operations.partition_by("rank_id")
    )


def _check_launches(capture: Capture) -> tuple[Finding, ...]:
    works = np.zeros(len(capture.calls) + 1, np.bool_)  # the last is for -1
    works[capture.operations["call"].to_numpy()] = True
    is_launch = pl.col("role") == CallRole.LAUNCH
    idle = capture.calls.filter(is_launch, pl.Series(~works[:-1]))
    if idle.is_empty():
        return ()
    calls = capture.calls.select("call", "thread", "start_ns", "correlation", "role", "name").with_columns(
        process=capture.threads["process"].gather(capture.calls["thread"])
    )
    # Several calls may share one correlation id, such as a tool's wrapper around the CUDA call.
    key = ["process", "correlation"]
    with_work = calls.select(key).filter(pl.Series(works[:-1]))
    launches = calls.filter(is_launch).unique(key, keep="first", maintain_order=True)
    missing = launches.join(with_work, on=key, how="anti")
    missing = missing.join(_find_queue_ends(capture, calls), on="process", how="left").filter(
        (pl.col("start_ns") <= pl.col("drained_ns")).fill_null(value=True)
    )
    begins, ends = (calls.filter(_match_call(capture, what)) for what in (_CAPTURE_BEGINS, _CAPTURE_ENDS))
    count = len(_drop_captured(missing, begins, ends))
    if count == 0 or count < MATERIAL_SHARE * len(launches):
        return ()
    return (
        make_finding(
            FindingCode.LAUNCHES_WITHOUT_WORK, count=count, launches=plural(len(launches), "kernel launch")
        ),
    )


def _match_call(capture: Capture, pattern: str) -> pl.Expr:
    """Return whether the name of a call matches the pattern."""
    names = capture.call_names.filter(pl.col("text").str.contains(pattern))["name"]
    return pl.col("name").is_in(names.to_list())


def _find_queue_ends(capture: Capture, calls: pl.DataFrame) -> pl.DataFrame:
    """Return `process`, `drained_ns`: work launched later may not have run when the capture ended.

    This is the last launch that ran, on the stream that was furthest behind among those busy until the end.
    """
    issued_at = calls.select(pl.col("call").cast(pl.Int32), "process", issued_ns="start_ns")
    streams = (
        capture.operations.join(issued_at, on="call")
        .group_by("process", "rank_id", "stream")
        .agg(pl.col("issued_ns").max(), pl.col("end_ns").max(), pl.col("start_ns").min())
    )
    reach_ns = pl.col("end_ns").max().over("process")
    span_ns = reach_ns - pl.col("start_ns").min().over("process")
    at_work = streams.filter(pl.col("end_ns") >= reach_ns - AT_WORK_TO_THE_END_SHARE * span_ns)
    return at_work.group_by("process").agg(drained_ns=pl.col("issued_ns").min())


def _drop_captured(launches: pl.DataFrame, begins: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Return launches that no thread of their process captured into a CUDA graph."""
    if begins.is_empty():
        return launches
    turns = (
        pl.concat(
            [
                begins.select("process", "start_ns", turn=pl.lit(1)),
                ends.select("process", "start_ns", turn=pl.lit(-1)),
            ]
        )
        .sort("start_ns", maintain_order=True)
        .with_columns(open=pl.col("turn").cum_sum().over("process"))
    )
    return (
        launches.sort("start_ns")
        .join_asof(turns, on="start_ns", by="process", check_sortedness=False)
        .filter((pl.col("open") <= 0).fill_null(value=True))
    )


def _check_event_records(capture: Capture) -> tuple[Finding, ...]:
    if capture.presence["CUPTI_ACTIVITY_KIND_CUDA_EVENT"] is Presence.ROWS:
        return ()
    waiting = capture.call_names.filter(pl.col("text").str.contains(_EVENT_WAIT))
    waits = len(capture.calls.join(waiting, on="name", how="semi"))
    if waits == 0:
        return ()
    return (make_finding(FindingCode.NO_CUDA_EVENTS, waits=plural(waits, "wait")),)


def _check_capture_range(early: int, *, began_inside: bool) -> tuple[Finding, ...]:
    if early == 0 and not began_inside:
        return ()
    queued = f", and so are the calls of {plural(early, 'operation')} already queued" if early else ""
    return (make_finding(FindingCode.CAPTURE_RANGE, queued=queued),)


def check_ranges(source: Database, raw: RawRanges, capture: Capture) -> tuple[Finding, ...]:
    """Report limits of the rows of NVTX_EVENTS, `raw`, and their ranges."""
    return (
        *_check_presence(source, raw),
        *_check_clipped(source, capture),
        *_check_annotations(capture),
        *check_payloads(source),
    )


def has_begun_inside(source: Database, raw: RawRanges, time_shift_ns: int) -> bool:
    """Return whether the capture began while the program ran, by earlier names or diagnostics."""
    if (raw.frame["start"] < time_shift_ns).any():
        return True
    if not source.has("DIAGNOSTIC_EVENT", "text"):
        return False
    ((starts,),) = source.rows("capture_range_starts")
    return bool(starts)


def _check_presence(source: Database, raw: RawRanges) -> tuple[Finding, ...]:
    if raw.is_range.any():
        return ()
    traced = _read_traced(source)
    domains = _count_program_domains(source, raw)
    if domains and not (raw.places["eventType"] == _MARK).any():
        return (make_finding(FindingCode.RANGES_LOST, domains=plural(domains, "NVTX domain")),)
    if traced and "NvtxEvents" not in traced:
        message = "NVTX was not traced, so steps and phases have no names."
        return (Finding(FindingCode.NO_NVTX, Severity.WARNING, message, "Capture with --trace=cuda,nvtx."),)
    if traced:
        message = "NVTX was traced, but the program has no NVTX ranges, so steps and phases have no names."
        return (Finding(FindingCode.NO_NVTX, Severity.INFO, message, _MARK_STEPS),)
    message = "The export has no NVTX ranges, so steps and phases have no names."
    return (
        Finding(
            FindingCode.NO_NVTX, Severity.INFO, message, f"Capture with --trace=cuda,nvtx. {_MARK_STEPS}"
        ),
    )


def _read_traced(source: Database) -> set[str]:
    """Return the kinds of event that the capture was configured to record; empty if unknown."""
    return {str(value) for name, value in read_capture_options(source) if name == "CAPTURE_EVENT_TYPE"}


def _count_program_domains(source: Database, raw: RawRanges) -> int:
    domains = raw.frame.filter(raw.places["eventType"].gather(raw.frame["place"]) == _DOMAIN)
    by_id = look_up_texts(source, domains.filter(pl.col("text").is_null())["textId"])
    names = pl.concat([domains["text"].drop_nulls(), by_id["text"]]).unique()
    return int((~names.str.contains(_OF_LIBRARIES)).sum())


def _check_clipped(source: Database, capture: Capture) -> tuple[Finding, ...]:
    """If the export does not contain the end of the capture, an end that ranges share proves nothing."""
    clipped = int(capture.ranges["clipped"].sum())
    if clipped == 0 or not source.has("ANALYSIS_DETAILS", "duration"):
        return ()
    return (make_finding(FindingCode.CLIPPED_RANGES, ranges=plural(clipped, "range")),)


def _check_annotations(capture: Capture) -> tuple[Finding, ...]:
    is_autograd = match_alike(capture.range_names, _AUTOGRAD)
    annotations = int(is_autograd[capture.ranges["name"].to_numpy()].sum())
    launches = int(capture.calls["role"].is_in([CallRole.LAUNCH, CallRole.GRAPH]).sum())
    if annotations < max(FEWEST_OPERATOR_RANGES_COUNT, RANGES_A_LAUNCH_RATIO * launches):
        return ()
    return (make_finding(FindingCode.EMIT_NVTX, average=average(annotations / max(launches, 1))),)


def check_payloads(source: Database) -> tuple[Finding, ...]:
    """Report payloads of ranges, with the sizes of NCCL's calls, that the exporter left out."""
    if source.presence("NVTX_PAYLOAD_SCHEMAS") is not Presence.ROWS:
        return ()
    if not source.has("NVTX_EVENTS", "binaryData", "jsonText", "jsonTextId"):
        return ()
    ((_, payloads),) = source.rows("payload_count")
    if payloads:
        return ()
    return (make_finding(FindingCode.PAYLOADS_NOT_EXPORTED),)


def check_overhead(
    source: Database, capture: Capture, time_shift_ns: int, progress: Progress
) -> tuple[Finding, ...]:
    """Report how long the profiler blocked a launching thread at most, while the device was traced.

    This is a lower bound of the capture's overhead. Only a step timed without the profiler shows all of it.
    """
    start_ns, end_ns = _device_window(capture)
    overheads = pl.concat(
        [
            read_table(source, PROFILER_OVERHEADS, progress).select(_WHO_AND_WHEN),
            read_table(source, CUDA_OVERHEADS, progress)
            .filter(pl.col("overheadType").is_in(PROFILER_TYPES))
            .select(_WHO_AND_WHEN),
        ]
    )
    if overheads.is_empty():
        return ()
    issuing = capture.calls.filter(pl.col("role").is_in([str(role) for role in _ISSUING]))
    tids = capture.threads.join(issuing, on="thread", how="semi").select(globalTid="global_tid")
    window = make_spans((start_ns + time_shift_ns, end_ns + time_shift_ns))
    held_ns = [
        int(covered_ns(union(order_spans(own["start"].to_numpy(), own["end"].to_numpy())), window).sum())
        for own in overheads.drop_nulls().join(tids, on="globalTid", how="semi").partition_by("globalTid")
    ]
    longest_ns, window_ns = max(held_ns, default=0), end_ns - start_ns
    if longest_ns == 0 or longest_ns < MATERIAL_SHARE * window_ns:
        return ()
    return (
        make_finding(
            FindingCode.PROFILER_OVERHEAD,
            "thread",
            severity=Severity.WARNING
            if longest_ns >= GRAVE_PROFILER_OVERHEAD_SHARE * window_ns
            else Severity.INFO,
            covers_ns=longest_ns,
            longest=duration(longest_ns),
            share=percent(longest_ns / window_ns),
        ),
    )


def _device_window(capture: Capture) -> tuple[int, int]:
    """Return the time from the first device operation to the last."""
    start_ns, end_ns = capture.operations.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    return int(start_ns), int(end_ns)
