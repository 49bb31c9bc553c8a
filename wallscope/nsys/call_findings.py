"""What limits the claims about who issued the device operations: CUDA calls and what is left of them."""

import numpy as np
import polars as pl

from wallscope.model.capture import Capture, Finding, Presence, Severity
from wallscope.model.kinds import CallRole, CopyDirection
from wallscope.thresholds import MATERIAL_CALLS_SHARE
from wallscope.timeline.spans import length_ns, ordered, union
from wallscope.units import duration, plural

_MIGRATIONS = (
    CopyDirection.MIGRATION_TO_DEVICE,
    CopyDirection.MIGRATION_TO_HOST,
    CopyDirection.MIGRATION_BETWEEN_DEVICES,
)
_EVENT_WAIT = r"StreamWaitEvent|EventSynchronize"
_NO_KERNEL = r"LaunchHostFunc"
_CAPTURE_BEGINS, _CAPTURE_ENDS = r"StreamBeginCapture", r"StreamEndCapture"


def call_findings(capture: Capture, *, began_inside: bool) -> tuple[Finding, ...]:
    """Operations without their call, calls without their operation, waits for events that were not recorded.

    `began_inside` tells that tables show the capture to have begun while the program ran.
    """
    if capture.calls.is_empty():
        return (*_capture_range(0, began_inside=began_inside), _no_calls(capture))
    orphans = _orphans(capture)
    early = orphans.filter("early")
    without_call = _without_call(capture, orphans, early)
    return (
        *without_call,
        *_without_work(capture),
        *_no_events(capture),
        *_capture_range(0 if without_call else len(early), began_inside=began_inside or not early.is_empty()),
    )


def _no_calls(capture: Capture) -> Finding:
    operations = plural(len(capture.operations), "device operation")
    return Finding(
        "no-api-calls",
        Severity.WARNING,
        f"No CUDA API call is in the export: who issued its {operations}, and when, is unknown.",
        "Capture with --trace=cuda,nvtx, and export without --tables.",
    )


def _orphans(capture: Capture) -> pl.DataFrame:
    """`OPERATIONS` without their call, and whether each is `early`: queued before the capture began.

    A stream runs in the order of issue, so what precedes the first operation with a call was issued before
    it. Unified memory migrates pages without a call.
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


def _without_call(capture: Capture, orphans: pl.DataFrame, early: pl.DataFrame) -> tuple[Finding, ...]:
    if orphans.is_empty():
        return ()
    covers_ns, all_ns = _busy_ns(orphans), _busy_ns(capture.operations)
    is_material = (
        len(orphans) >= MATERIAL_CALLS_SHARE * len(capture.operations)
        or covers_ns >= MATERIAL_CALLS_SHARE * all_ns
    )
    if len(early) == len(orphans) and not is_material:
        return ()
    among = (
        f"{len(orphans):,} of {plural(len(capture.operations), 'device operation')} ({duration(covers_ns)})"
    )
    if len(early) == len(orphans):
        message = f"{among} were issued before the capture began: their calls and ranges are unknown."
        cure = "Start the capture a step before the steps that matter, after a device synchronisation."
    else:
        known = f"; {len(early):,} of them were issued before the capture began" if len(early) else ""
        message = f"{among} have no API call in the export, so no range either{known}."
        cure = "Capture fewer steps, and export without --tables and --times."
    return (Finding("orphan-operations", Severity.WARNING, message, cure, covers_ns=covers_ns),)


def _busy_ns(operations: pl.DataFrame) -> int:
    """Time in which at least one of the operations ran, added up over ranks."""
    return sum(
        length_ns(union(ordered(own["start_ns"].to_numpy(), own["end_ns"].to_numpy())))
        for own in operations.partition_by("rank_id")
    )


def _without_work(capture: Capture) -> tuple[Finding, ...]:
    works = np.zeros(len(capture.calls) + 1, np.bool_)  # the last is for -1
    works[capture.operations["call"].to_numpy()] = True
    is_launch = (pl.col("role") == CallRole.LAUNCH) & ~_named(capture, _NO_KERNEL)
    idle = capture.calls.filter(is_launch, pl.Series(~works[:-1]))
    if idle.is_empty():
        return ()
    calls = capture.calls.select("call", "thread", "start_ns", "correlation", "role", "name").with_columns(
        process=capture.threads["process"].gather(capture.calls["thread"])
    )
    # several calls may share one correlation id: a tool's wrapper around the CUDA call
    key = ["process", "correlation"]
    with_work = calls.select(key).filter(pl.Series(works[:-1]))
    launches = calls.filter(is_launch).unique(key, keep="first", maintain_order=True)
    missing = launches.join(with_work, on=key, how="anti")
    missing = missing.join(_still_queued(capture, calls), on="process", how="left").filter(
        (pl.col("start_ns") <= pl.col("drained_ns")).fill_null(value=True)
    )
    begins, ends = (calls.filter(_named(capture, what)) for what in (_CAPTURE_BEGINS, _CAPTURE_ENDS))
    count = len(_outside_captures(missing, begins, ends))
    if count == 0 or count < MATERIAL_CALLS_SHARE * len(launches):
        return ()
    return (
        Finding(
            "launches-without-work",
            Severity.WARNING,
            f"{count:,} of {plural(len(launches), 'kernel launch')} left no kernel in the export: idle time"
            " may be work unseen.",
            "Capture fewer steps, or flush more often: --cuda-flush-interval=100.",
        ),
    )


def _named(capture: Capture, pattern: str) -> pl.Expr:
    """Whether the name of a call has the pattern."""
    names = capture.call_names.filter(pl.col("text").str.contains(pattern))["name"]
    return pl.col("name").is_in(names.to_list())


def _still_queued(capture: Capture, calls: pl.DataFrame) -> pl.DataFrame:
    """Columns `process`, `drained_ns`: what was launched later may not have run when the capture ended.

    That is the last launch that ran, on the stream that was furthest behind of those at work to the end.
    """
    issued_at = calls.select(pl.col("call").cast(pl.Int32), "process", issued_ns="start_ns")
    streams = (
        capture.operations.join(issued_at, on="call")
        .group_by("process", "rank_id", "stream")
        .agg(pl.col("issued_ns").max(), pl.col("end_ns").max(), pl.col("start_ns").min())
    )
    reach_ns = pl.col("end_ns").max().over("process")
    span_ns = reach_ns - pl.col("start_ns").min().over("process")
    at_work = streams.filter(pl.col("end_ns") >= reach_ns - MATERIAL_CALLS_SHARE * span_ns)
    return at_work.group_by("process").agg(drained_ns=pl.col("issued_ns").min())


def _outside_captures(launches: pl.DataFrame, begins: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """The launches that were not being captured into a CUDA graph, by any thread of their process."""
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


def _no_events(capture: Capture) -> tuple[Finding, ...]:
    if capture.presence["CUPTI_ACTIVITY_KIND_CUDA_EVENT"] is Presence.ROWS:
        return ()
    waiting = capture.call_names.filter(pl.col("text").str.contains(_EVENT_WAIT))
    waits = len(capture.calls.join(waiting, on="name", how="semi"))
    if waits == 0:
        return ()
    return (
        Finding(
            "no-cuda-events",
            Severity.WARNING,
            f"{plural(waits, 'wait')} for CUDA events, and no record of the events: what was waited for"
            " is told by order alone.",
            "Capture with --cuda-event-trace=true.",
        ),
    )


def _capture_range(early: int, *, began_inside: bool) -> tuple[Finding, ...]:
    if early == 0 and not began_inside:
        return ()
    queued = f", and so are the calls of {plural(early, 'operation')} already queued" if early else ""
    return (
        Finding(
            "capture-range",
            Severity.INFO,
            f"The capture began while the program ran: ranges opened before it are missing{queued}.",
        ),
    )
