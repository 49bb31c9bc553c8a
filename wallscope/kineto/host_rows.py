"""Rows of host threads: calls, ranges of the program and of PyTorch, operators of the backward pass, waits.

**Backward pass.** PyTorch numbers the operators that run while it records gradients. The backward operator
has the number of its forward operator (`Sequence number`). It also has PyTorch's own number of the forward
thread (`Fwd thread id`), which is 0 for forward operators. Of forward operators with one number, the latest
recorded it, as in `profiler_kineto.cpp`. Where these arguments are absent, the flows between the two
(`fwdbwd`) are used. The backward pass does not record gradients. A numbered forward operator inside a
backward one is therefore recomputed work, unless it has a backward operator of its own: then gradients of
gradients may be computed.

**Waits and event records** come from `cuda_sync` rows, joined with the calls that made them. Such rows
exist only if the profiler was configured to record them. They name the record of an event by the
correlation of its call, -1 if the profiler did not see it: always from CUDA 12.9 on. Up to 2026-04 it may
name a later record, so a record whose call began after the wait is ignored.
"""

import numpy as np
import polars as pl

from wallscope.kernels import range_nesting, views
from wallscope.kineto.event_tables import TraceTables
from wallscope.kineto.trace_identity import join_thread_ids
from wallscope.model.schemas import AUTOGRAD_RANGES, EVENTS, RANGES, SYNCS, SyncKind
from wallscope.nsys.calls import Calls, RawCalls, express_roles, normalize_call_names
from wallscope.nsys.host_events import sort_outside_in
from wallscope.nsys.identity import number_texts
from wallscope.nsys.tables import DistinctRows
from wallscope.trace.intervals import Times
from wallscope.trace.names import bring_together

_ANNOTATION, _OPERATOR, _PYTHON = range(3)
"""Domains of ranges."""
_OF_RANGES, _LINKING = ("start", "end", "pid", "tid", "text"), ("sequence", "forward_thread")
ROUNDING_NS = 2_000
"""Up to torch 2.3, starts and lengths are rounded down to microseconds: an end is up to two early."""
_SYNC_KINDS = {
    "Stream Sync": SyncKind.STREAM,
    "Event Sync": SyncKind.EVENT,
    "Context Sync": SyncKind.CONTEXT,
    "Stream Wait Event": SyncKind.WAIT,
}
_RECORD_CALL = r"EventRecord"


def build_raw_calls(tables: TraceTables, calls: pl.DataFrame) -> RawCalls:
    """Return the calls with their names; `calls` has the `global_tid` of each."""
    used = calls["text"].unique().sort()
    spelled = pl.Series("text", [tables.texts[place] for place in used.to_list()], dtype=pl.String)
    named = spelled.to_frame().with_columns(normalize_call_names("text"))
    names = number_texts(named["text"])
    roles = names.with_columns(role=express_roles("text"))
    place = pl.DataFrame({"text": used, "place": np.arange(len(used), dtype=np.uint32)})
    callers = DistinctRows("global_tid")
    return RawCalls(
        columns={
            "start": calls["start"],
            "end": calls["end"],
            "caller": callers.number_frame(calls),
            "correlationId": calls["correlation"],
            "named": calls.select("text").join(place, on="text", how="left", maintain_order="left")["place"],
        },
        named=named.join(roles, on="text", how="left", maintain_order="left"),
        names=names,
        callers=callers.list_rows(callers.columns)["global_tid"],
    )


def build_trace_ranges(
    tables: TraceTables, numbered: pl.DataFrame, start_ns: int
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return the ranges, their names, and those of autograd (`RANGES`, `RANGE_NAMES`, `AUTOGRAD_RANGES`)."""
    domains = {"annotations": _ANNOTATION, "operators": _OPERATOR, "python": _PYTHON}
    spans = pl.concat(
        [
            tables.frames[name].select(
                *_OF_RANGES, *(_LINKING if name == "operators" else ()), domain=pl.lit(domain)
            )
            for name, domain in domains.items()
            if name in tables.frames
        ],
        how="diagonal",
    )
    found, name = tables.number_names(spans["text"])
    names = bring_together(found)
    rows = (
        spans.with_columns(name)
        .pipe(join_thread_ids, numbered)
        .with_columns(
            start_ns=pl.col("start") - start_ns,
            end_ns=pl.col("end") - start_ns,
            clipped=pl.lit(value=False),
            crosses=pl.lit(value=False),
        )
        .pipe(sort_outside_in, names)
    )
    if tables.is_coarse:
        ends_ns = hold_inner_ends(*(rows[name].to_numpy() for name in ("thread", "start_ns", "end_ns")))
        rows = rows.with_columns(end_ns=pl.Series(ends_ns))
    rows = rows.with_row_index("range")
    autograd = find_autograd_ranges(rows, tables.frames["flows"].pipe(join_thread_ids, numbered), start_ns)
    return rows.select(RANGES.names()).cast(RANGES), names, autograd


def hold_inner_ends(thread: np.ndarray, start_ns: Times, end_ns: Times) -> Times:
    """Return the ends of ranges; those beyond the enclosing range by rounding alone are cut to its end.

    Args:
        thread: integer[range], the thread of each; ranges by thread and start, the longest first.
        start_ns: int64[range], ns.
        end_ns: int64[range], ns.

    >>> hold_inner_ends(np.zeros(3, int), np.array([0, 5000, 9000]), np.array([9000, 10000, 30000])).tolist()
    [9000, 9000, 30000]
    """
    ends = end_ns.astype(np.int64)
    threads, starts = thread.astype(np.int32), start_ns.astype(np.int64)
    range_nesting.hold_ends(*views(threads, starts, ROUNDING_NS, ends, np.empty_like(ends)))
    return ends


def find_autograd_ranges(rows: pl.DataFrame, flows: pl.DataFrame, start_ns: int) -> pl.DataFrame:
    """Return the operators of the backward pass (`AUTOGRAD_RANGES`).

    Args:
        rows: ranges with `domain`, `range`, `thread`, `process`, times, `sequence` and `forward_thread`.
        flows: begin and end of flows with `process`, `thread`, `start`, `link` and `is_backward`.
        start_ns: when the session begins, on the clock of the file.
    """
    operators = rows.filter(pl.col("domain") == _OPERATOR)
    is_backward = pl.col("forward_thread").fill_null(0) > 0
    by_number = _link_by_number(operators, is_backward)
    by_flow = _link_by_flow(operators, flows, start_ns).join(by_number, on="range", how="anti")
    links = pl.concat([by_number, by_flow])
    backward = operators.filter(is_backward | pl.col("range").is_in(by_flow["range"].implode()))
    replayed = _find_replayed(operators.filter(~is_backward), backward)
    replayed = replayed.join(links, left_on="range", right_on="forward", how="anti")
    return (
        pl.concat(
            [
                backward.select("range").join(links, on="range", how="left").with_columns(is_replay=False),
                replayed.select("range", is_replay=True),
            ],
            how="diagonal",
        )
        .sort("range")
        .select(AUTOGRAD_RANGES.names())
        .cast(AUTOGRAD_RANGES)
    )


def _link_by_number(operators: pl.DataFrame, is_backward: pl.Expr) -> pl.DataFrame:
    numbered = operators.filter(pl.col("sequence") >= 0)
    forward = (
        numbered.filter(~is_backward)
        .sort("start_ns")
        .unique(["process", "thread", "sequence"], keep="last", maintain_order=True)
        .select("process", "sequence", "thread", forward="range", began_ns="start_ns")
    )
    pairs = (
        numbered.filter(is_backward)
        .select("range", "process", "start_ns", "sequence", thread_of="forward_thread")
        .join(forward, on=["process", "sequence"])
        .filter(pl.col("began_ns") < pl.col("start_ns"))
    )
    usual = (  # the thread of the operating system of each number, by most pairs
        pairs.group_by("process", "thread_of", "thread")
        .len()
        .sort("len", "thread", descending=[True, False])
        .unique(["process", "thread_of"], keep="first", maintain_order=True)
    )
    return pairs.join(usual, on=["process", "thread_of", "thread"], how="semi").select("range", "forward")


def _link_by_flow(operators: pl.DataFrame, flows: pl.DataFrame, start_ns: int) -> pl.DataFrame:
    """Return links of operators that begin where a flow does; of several, the innermost of each side."""
    ends = (
        flows.drop_nulls("thread")
        .select("process", "link", "is_backward", "thread", start_ns=pl.col("start") - start_ns)
        .join(operators.select("range", "thread", "start_ns"), on=["thread", "start_ns"])
        .sort("range")
        .unique(["process", "link", "is_backward"], keep="last", maintain_order=True)
    )
    backward = ends.filter(pl.col("is_backward")).select("process", "link", "range")
    forward = ends.filter(~pl.col("is_backward")).select("process", "link", forward="range")
    return (
        backward.join(forward, on=["process", "link"]).select("range", "forward").unique("range", keep="any")
    )


def _find_replayed(forward: pl.DataFrame, backward: pl.DataFrame) -> pl.DataFrame:
    """Return the numbered operators that begin inside a backward operator of their thread."""
    around = (
        backward.select("thread", began_ns="start_ns", until_ns="end_ns")
        .sort("began_ns")
        .with_columns(pl.col("until_ns").cum_max().over("thread"))
    )
    return (
        forward.filter(pl.col("sequence") >= 0)
        .select("range", "thread", "start_ns", "end_ns")
        .sort("start_ns")
        .join_asof(around, left_on="start_ns", right_on="began_ns", by="thread", check_sortedness=False)
        .filter(pl.col("end_ns") <= pl.col("until_ns"))
    )


def build_syncs(
    tables: TraceTables, processes: pl.Series, threads: pl.DataFrame, made: Calls, start_ns: int
) -> pl.DataFrame:
    """Return the waits (`SYNCS`); `processes` has the process of each `cuda_sync` row."""
    rows = tables.frames["syncs"].with_columns(processes, correlationId="correlation")
    if rows.is_empty():
        return SYNCS.to_frame()
    rows = rows.with_columns(
        made.find_issuing(rows["process"], rows["correlationId"]), row=pl.int_range(pl.len())
    )
    rows = _with_call(rows, made).with_columns(
        kind=pl.col("sync_kind").replace_strict(
            {name: str(kind) for name, kind in _SYNC_KINDS.items()}, default=None, return_dtype=SYNCS["kind"]
        ),
        start_ns=pl.col("start") - start_ns,
        end_ns=pl.col("end") - start_ns,
        stream=_null_if_negative("stream"),
        event=_null_if_negative("wait_event"),
        record=_null_if_negative("wait_record"),
    )
    records = _select_record_calls(threads, made).select(
        "process", record="correlation", recorded_ns="start_ns"
    )
    return (
        rows.join(records, on=["process", "record"], how="left", maintain_order="left")
        .with_columns(
            event_sync=pl.when(
                pl.col("recorded_ns") <= pl.coalesce("called_ns", "start_ns")
            ).then("record")
        )
        .drop_nulls("kind")
        .sort("process", "start_ns", maintain_order=True)
        .select(SYNCS.names())
        .cast(SYNCS)
    )  # fmt: skip


def build_events(
    tables: TraceTables, processes: pl.Series, threads: pl.DataFrame, made: Calls
) -> pl.DataFrame:
    """Return the records (`EVENTS`): all calls that make one; stream and event if a wait names them."""
    waits = tables.frames["syncs"].with_columns(processes)
    if waits.is_empty():
        return EVENTS.to_frame()
    named = (
        waits.with_columns(
            correlation=_null_if_negative("wait_record"), stream=_null_if_negative("wait_stream")
        )
        .drop_nulls(["correlation", "stream"])
        .group_by("process", "correlation", maintain_order=True)
        .agg(pl.col("context", "stream", "wait_event").first())
    )
    return (
        _select_record_calls(threads, made)
        .join(named, on=["process", "correlation"], how="left", maintain_order="left")
        .with_columns(
            event="wait_event", event_sync="correlation", timestamp_ns=pl.lit(None, pl.Int64)
        )
        .sort("process", "call", maintain_order=True)
        .select(EVENTS.names())
        .cast(EVENTS)
    )  # fmt: skip


def _select_record_calls(threads: pl.DataFrame, made: Calls) -> pl.DataFrame:
    names = made.names.filter(pl.col("text").str.contains(_RECORD_CALL))["name"]
    calls = made.calls.filter(pl.col("name").is_in(names.to_list()))
    processes = threads["process"].gather(calls["thread"]).cast(pl.Int64)
    return calls.with_columns(processes).unique(["process", "correlation"], keep="first", maintain_order=True)


def _with_call(rows: pl.DataFrame, made: Calls) -> pl.DataFrame:
    """Add the thread and start of their call to the rows, null without one."""
    place = rows["call"].set(rows["call"] < 0, None)
    return rows.with_columns(
        made.calls["thread"].gather(place), made.calls["start_ns"].gather(place).alias("called_ns")
    )


def _null_if_negative(column: str) -> pl.Expr:
    """Return the number, null for -1, which means none."""
    return pl.when(pl.col(column) >= 0).then(pl.col(column))
