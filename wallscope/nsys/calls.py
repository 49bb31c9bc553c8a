"""CUDA API calls of all threads: caller, time and correlation id."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Codes, Flags, Rows, as_integers, number_densely
from wallscope.model.capture import Progress
from wallscope.model.schemas import CALLS
from wallscope.nsys import tables
from wallscope.nsys.call_names import express_roles, normalize_call_names
from wallscope.nsys.identity import NAMELESS, join_threads, look_up_texts, number_texts
from wallscope.nsys.tables import Database, read_table

Times = npt.NDArray[np.int64]
_ROOMY = 4
_MOST_THREADS = 1 << 16
"""Up to this number, rows are sorted by counting."""


class _ByCorrelation:
    """The first call under each (process, correlation id); most ids lie close together."""

    def __init__(self, process: npt.NDArray[np.integer], correlation: Times, call: Codes) -> None:
        self._ids = self._distinct(correlation)
        key = process.astype(np.int64)
        self._processes = int(key.max(initial=-1)) + 1
        key *= self._width
        if self._ids is None:  # in place: these are as many as there are calls
            key += correlation
            key -= self._first
        else:
            key += self._places(correlation)
        self._table: Rows | None = None
        if self._processes * self._width <= _ROOMY * key.size + _ROOMY:
            self._table = np.full(
                self._processes * self._width + 1, -1, np.int32
            )  # the last entry is for missing ones
            self._table[key[::-1]] = call[::-1]  # the value written last, which is the first call, stays
        else:
            order = np.argsort(key, kind="stable")
            self._keys, self._calls = key[order], call[order]

    def _distinct(self, correlation: Times) -> Times | None:
        """Return the distinct ids in order, `None` if they are close enough to be used directly."""
        self._first = int(correlation.min(initial=0))
        span = int(correlation.max(initial=0)) - self._first + 1
        is_close = span <= _ROOMY * correlation.size + _ROOMY
        ids = None if is_close else np.unique(correlation)
        self._width = span if ids is None else ids.size
        return ids

    def _places(self, correlation: Times) -> Rows:
        """Return the index of each id, if it is known."""
        if self._ids is None:
            return correlation - self._first
        return np.minimum(np.searchsorted(self._ids, correlation), self._width - 1)

    def _codes(self, correlation: Times) -> tuple[Rows, Flags]:
        """Return the index of each id, and whether it is known."""
        if self._ids is None:
            is_known = (correlation >= self._first) & (correlation <= self._first + self._width - 1)
            return self._places(np.where(is_known, correlation, self._first)), is_known
        place = self._places(correlation)
        return place, self._ids[place] == correlation

    def find(self, process: Rows, correlation: Times) -> Rows:
        """Return the call of each pair, -1 if it has none."""
        code, is_known = self._codes(correlation)
        is_known &= (process >= 0) & (process < self._processes)
        key = np.where(is_known, process * self._width + code, 0)
        if self._table is not None:
            return np.where(is_known, self._table[key], -1)
        place = np.minimum(np.searchsorted(self._keys, key), self._keys.size - 1)
        return np.where(is_known & (self._keys[place] == key), self._calls[place], -1)


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls (`CALLS`), their names (`NAMES`) and the call of each (process, correlation id).

    The index of each call is its number.
    """

    calls: pl.DataFrame
    names: pl.DataFrame
    by_correlation: _ByCorrelation

    def find_issuing(self, operations: pl.DataFrame) -> pl.Series:
        """Return the call that issued each row, from its `process` and `correlationId`; -1 if unknown."""
        found = self.by_correlation.find(
            operations["process"].fill_null(-1).to_numpy().astype(np.int64),
            operations["correlationId"].fill_null(0).to_numpy(),
        )
        found[operations["correlationId"].is_null().to_numpy()] = -1
        return pl.Series("call", found, dtype=pl.Int32)


@dataclass(frozen=True, slots=True)
class RawCalls:
    """Calls on the clock of the export, in its order, with their names; columns are freed after use.

    `columns` are `start`, `end`, `globalTid`, `correlationId`, and `named`. The latter is the row of each
    call in the frame of that name, which has `name` of `names` (`NAMES`) and `role`. `callers` are the
    distinct global ids of threads, also of calls without a valid time.
    """

    columns: dict[str, pl.Series]
    named: pl.DataFrame
    names: pl.DataFrame
    callers: pl.Series


def read_calls(source: Database, progress: Progress) -> RawCalls:
    """Return the calls, without those that end before they start."""
    raw = read_table(source, tables.CALLS, progress)
    callers = raw["globalTid"].unique()
    is_timed = (raw["end"] >= raw["start"]).fill_null(value=False)
    left = (raw if is_timed.all() else raw.filter(is_timed)).to_dict()
    del raw  # Free each column once it is copied, because these are the largest of an export.
    string_ids, place = number_densely(as_integers(left.pop("nameId"), NAMELESS))
    texts = look_up_texts(source, pl.Series(string_ids)).with_columns(normalize_call_names("text"))
    names = number_texts(texts["text"])
    named = texts.join(
        names.with_columns(role=express_roles("text")), on="text", how="left", maintain_order="left"
    )
    left["named"] = pl.Series(place, dtype=pl.UInt32)
    return RawCalls(left, named, names, callers)


def build_calls(raw: RawCalls, threads: pl.DataFrame, time_shift_ns: int) -> Calls:
    """Return the calls in session time, by thread and start; this frees the raw columns.

    Correlation ids are unique only inside a process. Of several calls with one id, the first counts.
    """
    left = raw.columns
    known = join_threads(left.pop("globalTid").to_frame(), threads, "globalTid")["thread", "process"]
    rows = pl.Series(_sort_by_thread(known["thread"].to_numpy(), left["start"].to_numpy()).astype(np.uint32))
    thread, process = (known[name].gather(rows) for name in known.columns)
    del known
    named = left.pop("named").gather(rows)
    made = pl.DataFrame(
        {
            "call": np.arange(len(rows), dtype=np.uint32),
            "thread": thread,
            "start_ns": left.pop("start").gather(rows) - time_shift_ns,
            "end_ns": left.pop("end").gather(rows) - time_shift_ns,
            "name": raw.named["name"].gather(named),
            "correlation": left.pop("correlationId").gather(rows),
            "role": raw.named["role"].gather(named),
        }
    )
    del rows, named
    correlations = made["correlation"]
    if correlations.null_count():
        held = np.flatnonzero(correlations.is_not_null().to_numpy())
        issuer = process.to_numpy()[held]
        by_correlation = _ByCorrelation(issuer, correlations.drop_nulls().to_numpy(), held)
    else:
        every = np.arange(len(made), dtype=np.int32)
        by_correlation = _ByCorrelation(process.to_numpy(), correlations.to_numpy(), every)
    return Calls(made.select(CALLS.names()).cast(CALLS), raw.names, by_correlation)


def _sort_by_thread(thread: npt.NDArray[np.integer], start_ns: Times) -> Rows:
    """Sort rows by thread, start and row; most threads are already in order, and threads are few."""
    is_few = thread.size and thread.max() < _MOST_THREADS
    order = np.argsort(thread.astype(np.uint16) if is_few else thread, kind="stable")
    starts_ns, of = start_ns[order], thread[order]
    if ((starts_ns[1:] < starts_ns[:-1]) & (of[1:] == of[:-1])).any():
        order = np.lexsort((start_ns, thread))
    return order
