"""Which record of an event each wait means.

Event handles are reused and timestamps are often not collected, so neither identifies a record. If the export
has the records, the number of the record (`eventSyncId`) does. In exports with numbers but without records,
the number minus the ordinal of the record call is constant in a process. In exports with records but without
numbers, the latest record of that event before the wait counts.
"""

from enum import StrEnum

import numpy as np
import polars as pl

from wallscope.columns import Flags, Rows, as_integers, encode_member, iterate_runs, list_members
from wallscope.model.schemas import SyncKind
from wallscope.records import dataclass
from wallscope.thresholds.steps import AGREEING_RECORDS_SHARE
from wallscope.trace.intervals import Times
from wallscope.trace.thread_timeline import FlattenedCalls

_RECORD_CALL = r"^(?:cu(?:da)?|hip)Event\w*Record|CtxRecordEvent"


class ResolvedBy(StrEnum):
    """How the record behind a wait was found."""

    RECORD_NUMBER = "event_id"
    RECORD_ORDER = "record_order"
    HANDLE = "handle"
    BEFORE_CAPTURE = "before_capture"
    NOTHING = "none"


class StreamBy(StrEnum):
    """How the stream of a record was found."""

    STATED = "stated"
    LAST_OPERATION = "last_operation"
    HAND_OVER = "hand_over"


RECORDS = pl.Schema(
    {
        "record": pl.UInt32(),
        "process": pl.UInt32(),
        "thread": pl.UInt32(),
        "at_ns": pl.Int64(),  # start of the call
        "context": pl.Int64(),  # null if only the order of calls identifies the record
        "stream": pl.Int64(),
        "event": pl.Int64(),
        "event_sync": pl.Int64(),
        "stream_by": pl.Enum(StreamBy),
    }
)
"""Records of events, by process and time of the call."""

WAITS = pl.Schema(
    {
        "process": pl.UInt32(),
        "thread": pl.UInt32(),
        "call": pl.Int32(),
        "kind": pl.Enum(SyncKind),
        "at_ns": pl.Int64(),  # start of the call
        "context": pl.Int64(),
        "stream": pl.Int64(),
        "record": pl.Int64(),  # -1 where none was found, or none is needed
        "how": pl.Enum(ResolvedBy),
    }
)
"""Waits of streams and threads for events, by process and time of the call."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Frames `RECORDS` and `WAITS`."""

    records: pl.DataFrame
    waits: pl.DataFrame


def resolve_waits(
    syncs: pl.DataFrame, events: pl.DataFrame, calls: pl.DataFrame, names: pl.DataFrame, threads: pl.DataFrame
) -> Waits:
    """The record that each wait for an event means (`SYNCS`, `EVENTS`, `CALLS`, `NAMES`, `THREADS`)."""
    kind = as_integers(syncs["kind"])
    waiting = syncs[
        np.flatnonzero((kind == encode_member(SyncKind.EVENT)) | (kind == encode_member(SyncKind.WAIT)))
    ]
    called = waiting["call"].to_numpy()
    at_ns = np.where(called < 0, waiting["start_ns"].to_numpy(), _started_ns(calls, called))
    waiting, at_ns = _in_order(waiting, at_ns)
    records = _recorded(events, calls) if len(events) else _make_records_of_calls(calls, names, threads)
    record, how = np.full(len(waiting), -1), np.zeros(len(waiting), np.uint8)
    of_process = dict(iterate_runs(as_integers(records["process"])))
    for process, own in iterate_runs(as_integers(waiting["process"])):
        made = records[of_process.get(process, slice(0)) if process >= 0 else slice(0)]
        record[own], how[own] = _of_process(waiting[own], at_ns[own], made)
    resolved = {"at_ns": at_ns, "record": record, "how": list_members(ResolvedBy)[how]}
    columns = {name: resolved[name] if name in resolved else waiting[name] for name in WAITS.names()}
    return Waits(records, pl.DataFrame(columns, schema=WAITS))


def _started_ns(calls: pl.DataFrame, call: Rows) -> Times:
    """When each call started, 0 for -1."""
    return FlattenedCalls(calls["start_ns"].to_numpy(), 0)[call]


def _in_order(rows: pl.DataFrame, at_ns: Times) -> tuple[pl.DataFrame, Times]:
    """Rows by process and time."""
    order = np.lexsort((at_ns, as_integers(rows["process"])))
    return rows[order], at_ns[order]


def _recorded(events: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    call = events["call"].to_numpy()
    known = np.flatnonzero(call >= 0)
    held, at_ns = _in_order(events[known], _started_ns(calls, call[known]))
    return _numbered(held, at_ns, StreamBy.STATED)


def _make_records_of_calls(calls: pl.DataFrame, names: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """Return records as far as their calls alone determine them."""
    is_recording = names["text"].str.contains(_RECORD_CALL).to_numpy()
    made = np.flatnonzero(is_recording[calls["name"].to_numpy()])
    thread = calls["thread"].to_numpy()[made]
    process = threads["process"].to_numpy()[thread]
    rows = pl.DataFrame({"process": process, "thread": thread})
    return _numbered(*_in_order(rows, calls["start_ns"].to_numpy()[made]), StreamBy.LAST_OPERATION)


def _numbered(rows: pl.DataFrame, at_ns: Times, stream_by: StreamBy) -> pl.DataFrame:
    """`RECORDS` from rows in their order; columns that these lack are null."""
    columns_found = {
        "record": np.arange(at_ns.size, dtype=np.uint32),
        "at_ns": at_ns,
        "stream_by": list_members(StreamBy)[np.full(at_ns.size, encode_member(stream_by))],
    }
    held = {name: rows[name] for name in rows.columns if name in RECORDS}
    unknown = pl.Series([None], dtype=pl.Int64).new_from_index(0, at_ns.size)
    columns = {name: columns_found.get(name, held.get(name, unknown)) for name in RECORDS.names()}
    return pl.DataFrame(columns, schema=RECORDS)


def _of_process(waits: pl.DataFrame, at_ns: Times, records: pl.DataFrame) -> tuple[Rows, Rows]:
    """The record that each wait means (-1: none), and how it was found, as a place."""
    if records["event_sync"].null_count() < len(records):
        return _by_number(waits, records)
    if records["event"].null_count() < len(records):
        return _by_handle(waits, at_ns, records)
    return _by_order(waits, at_ns, records)


def _by_number(waits: pl.DataFrame, records: pl.DataFrame) -> tuple[Rows, Rows]:
    """Numbers count up in a process; one below all that were recorded is from before the capture.

    A number given twice is that of the later record.
    """
    is_known, number = _fill_unknown(records["event_sync"])
    rows = np.flatnonzero(is_known)
    rows = rows[np.argsort(number[rows], kind="stable")]
    is_asked, asked = _fill_unknown(waits["event_sync"])
    last = rows[np.searchsorted(number[rows], asked, side="right") - 1]
    is_found = is_asked & (number[last] == asked)
    is_before = is_asked & (asked < number[rows[0]])
    return np.where(is_found, _read_record_numbers(records)[last], -1), np.select(
        [is_found, is_before],
        [encode_member(ResolvedBy.RECORD_NUMBER), encode_member(ResolvedBy.BEFORE_CAPTURE)],
        encode_member(ResolvedBy.NOTHING),
    )


def _by_handle(waits: pl.DataFrame, at_ns: Times, records: pl.DataFrame) -> tuple[Rows, Rows]:
    asked = pl.DataFrame({"at_ns": at_ns, "event": waits["event"]})
    latest = asked.join_asof(
        records.select("event", "record", recorded_ns="at_ns"),
        left_on="at_ns",
        right_on="recorded_ns",
        by="event",
        check_sortedness=False,
    )["record"]
    is_asked, (is_found, record) = _fill_unknown(waits["event"])[0], _fill_unknown(latest)
    is_found &= is_asked
    return np.where(is_found, record, -1), np.select(
        [is_found, is_asked],
        [encode_member(ResolvedBy.HANDLE), encode_member(ResolvedBy.BEFORE_CAPTURE)],
        encode_member(ResolvedBy.NOTHING),
    )


def _by_order(waits: pl.DataFrame, at_ns: Times, records: pl.DataFrame) -> tuple[Rows, Rows]:
    """The number of a record less its ordinal is constant: most waits mean the record just before them."""
    is_known, number = _fill_unknown(waits["event_sync"])
    nothing = np.full(number.size, -1), np.full(number.size, encode_member(ResolvedBy.NOTHING))
    if not is_known.any() or records.is_empty():
        return nothing
    made_before = np.searchsorted(records["at_ns"].to_numpy(), at_ns, side="left")
    offsets = (number - made_before)[is_known]
    offset = int(offsets.max())
    agrees = float(np.mean(offsets == offset))
    if agrees < AGREEING_RECORDS_SHARE and (number[is_known] < offset).any():
        return nothing
    ordinal = number - offset - 1
    is_early = is_known & (ordinal < 0)
    is_found = is_known & ~is_early & (ordinal < len(records))
    row = np.where(is_found, ordinal, 0)
    return np.where(is_found, _read_record_numbers(records)[row], -1), np.select(
        [is_found, is_early],
        [encode_member(ResolvedBy.RECORD_ORDER), encode_member(ResolvedBy.BEFORE_CAPTURE)],
        encode_member(ResolvedBy.NOTHING),
    )


def _fill_unknown(values: pl.Series) -> tuple[Flags, Rows]:
    """Which values are known, and all of them, 0 where unknown."""
    if not values.null_count():
        return np.ones(len(values), np.bool_), values.to_numpy().astype(np.int64)
    return values.is_not_null().to_numpy(), values.fill_null(0).to_numpy().astype(np.int64)


def _read_record_numbers(records: pl.DataFrame) -> Rows:
    return records["record"].to_numpy().astype(np.int64)
