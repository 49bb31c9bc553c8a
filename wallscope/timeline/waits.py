"""Which record of an event each wait means.

Event handles are reused and timestamps are often not collected, so neither tells. Where the export has
the records, the number of the record (`eventSyncId`) does; in exports with numbers but without records
the number less the ordinal of the record call is constant in a process; in those with records but
without numbers the latest record of that event before the wait counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl

from wallscope.model.events import SyncKind

_RECORD_CALL = r"EventRecord"
_AGREEING_SHARE = 0.5


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
        "context": pl.Int64(),  # null where only the order of calls tells of the record
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


def resolved_waits(
    syncs: pl.DataFrame, events: pl.DataFrame, calls: pl.DataFrame, names: pl.DataFrame, threads: pl.DataFrame
) -> Waits:
    """The record that each wait for an event means (`SYNCS`, `EVENTS`, `CALLS`, `NAMES`, `THREADS`)."""
    waiting = _timed(syncs.filter(pl.col("kind").is_in([SyncKind.EVENT, SyncKind.WAIT])), calls)
    records = (
        _recorded(events, calls) if len(events) else _record_calls(calls, names, threads)
    ).with_row_index("record")
    stream_by = pl.lit(StreamBy.STATED if len(events) else StreamBy.LAST_OPERATION)
    records = records.with_columns(stream_by=stream_by).select(RECORDS.names()).cast(RECORDS)
    found: list[pl.DataFrame] = [
        _of_process(
            own, records.filter(pl.col("process") == pl.lit(own["process"][0], records["process"].dtype))
        )
        for own in waiting.partition_by("process")
    ]
    waits = pl.concat(found) if found else WAITS.to_frame()
    return Waits(records, waits.sort("process", "at_ns", maintain_order=True))


def _timed(rows: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """The rows with `at_ns`, the start of their call, else their own."""
    place = rows["call"].set(rows["call"] < 0, None)
    own_ns = pl.col("start_ns") if "start_ns" in rows.columns else pl.lit(None, pl.Int64)
    return rows.with_columns(at_ns=pl.coalesce(calls["start_ns"].gather(place), own_ns))


def _recorded(events: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    timed = _timed(events, calls).filter(pl.col("at_ns").is_not_null())
    return timed.sort("process", "at_ns", maintain_order=True)


def _record_calls(calls: pl.DataFrame, names: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """Records as far as their calls alone tell of them."""
    recording = names.filter(pl.col("text").str.contains(_RECORD_CALL))["name"]
    nothing = pl.lit(None, pl.Int64)
    return (
        calls.filter(pl.col("name").is_in(recording.implode()))
        .join(threads.select("thread", "process"), on="thread", how="left")
        .select(
            "process",
            "thread",
            at_ns="start_ns",
            context=nothing,
            stream=nothing,
            event=nothing,
            event_sync=nothing,
        )
        .sort("process", "at_ns", maintain_order=True)
    )


def _of_process(waits: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    if records["event_sync"].drop_nulls().len():
        record, how = _by_number(waits, records)
    elif records["event"].drop_nulls().len():
        record, how = _by_handle(waits, records)
    else:
        record, how = _by_order(waits, records)
    return (
        waits.with_columns(pl.Series("record", record, pl.Int64), pl.Series("how", how, pl.Enum(ResolvedBy)))
        .select(WAITS.names())
        .cast(WAITS)
    )


def _by_number(waits: pl.DataFrame, records: pl.DataFrame) -> tuple[list[int], list[ResolvedBy]]:
    """Numbers count up in a process; one below all that were recorded is from before the capture."""
    of_number = dict(records.drop_nulls("event_sync").select("event_sync", "record").iter_rows())
    first = min(of_number)
    return _told(
        (
            (of_number[number], ResolvedBy.RECORD_NUMBER)
            if number in of_number
            else (
                -1,
                ResolvedBy.BEFORE_CAPTURE if number is not None and number < first else ResolvedBy.NOTHING,
            )
        )
        for number in waits["event_sync"]
    )


def _by_handle(waits: pl.DataFrame, records: pl.DataFrame) -> tuple[list[int], list[ResolvedBy]]:
    latest = (
        waits.select("at_ns", "event")
        .with_row_index("row")
        .sort("at_ns")
        .join_asof(
            records.select("event", "record", recorded_ns="at_ns").sort("recorded_ns"),
            left_on="at_ns",
            right_on="recorded_ns",
            by="event",
            check_sortedness=False,
        )
        .sort("row")["record"]
    )
    unseen = {True: ResolvedBy.NOTHING, False: ResolvedBy.BEFORE_CAPTURE}
    return _told(
        (-1, unseen[event is None]) if event is None or row is None else (row, ResolvedBy.HANDLE)
        for row, event in zip(latest, waits["event"], strict=True)
    )


def _by_order(waits: pl.DataFrame, records: pl.DataFrame) -> tuple[list[int], list[ResolvedBy]]:
    """The number of a record less its ordinal is constant: most waits mean the record just before them."""
    numbers = waits["event_sync"].to_list()
    known = [row for row, number in enumerate(numbers) if number is not None]
    if not known or records.is_empty():
        return _told((-1, ResolvedBy.NOTHING) for _ in numbers)
    number = np.array([numbers[row] for row in known])
    made_before = np.searchsorted(records["at_ns"].to_numpy(), waits["at_ns"].to_numpy()[known], side="left")
    offset = int((number - made_before).max())
    agrees = float(np.mean(number - made_before == offset))
    if agrees < _AGREEING_SHARE and (number - offset < 0).any():
        return _told((-1, ResolvedBy.NOTHING) for _ in numbers)
    rows = records["record"].to_list()
    ordinals = (None if value is None else value - offset - 1 for value in numbers)
    return _told(_nth(rows, ordinal) for ordinal in ordinals)


def _nth(rows: list[int], ordinal: int | None) -> tuple[int, ResolvedBy]:
    if ordinal is None or ordinal >= len(rows):
        return -1, ResolvedBy.NOTHING
    return (rows[ordinal], ResolvedBy.RECORD_ORDER) if ordinal >= 0 else (-1, ResolvedBy.BEFORE_CAPTURE)


def _told(found: Iterable[tuple[int, ResolvedBy]]) -> tuple[list[int], list[ResolvedBy]]:
    pairs = list(found)
    return [record for record, _ in pairs], [how for _, how in pairs]
