"""CUDA API calls of all threads: who called what, when, and under which correlation id."""

from dataclasses import dataclass

import polars as pl

from wallscope.model.frames import CALLS, ROLE
from wallscope.model.kinds import CallRole
from wallscope.nsys.strings import NAMELESS, numbered, texts_of
from wallscope.nsys.tables import Database
from wallscope.nsys.threads import with_threads

_VERSION = r"(_v\d{4,5})?(_ptsz|_ptds)?$"  # the entry point's CUDA version and stream flavour
_ALLOCATION = (
    r"^cu(da)?(Malloc|Free|Host(Alloc|Free|Register|Unregister))|MemPoolTrim"
    r"|^cuMem(Alloc|Free|HostAlloc|Create|Release|Map|Unmap|Address\w+|SetAccess)"
)
_ROLES = (
    (CallRole.GRAPH, r"GraphLaunch"),
    (CallRole.LAUNCH, r"^cu(da)?Launch|LaunchKernel|LaunchCooperative|LaunchGrid"),
    (CallRole.EVENT, r"EventRecord|EventQuery|StreamWaitEvent|EventCreate|EventDestroy|EventElapsed"),
    (CallRole.SYNC, r"Synchronize$|StreamWaitValue|StreamQuery"),
    (CallRole.ALLOC, _ALLOCATION),
    (CallRole.COPY, r"[mM]em(cpy|set|Prefetch)|^cuMem(cpy|set)"),
)


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls (`CALLS`), their names (`NAMES`) and the call of each (process, correlation id).

    Each call stands at the place that is its number.
    """

    calls: pl.DataFrame
    names: pl.DataFrame
    by_correlation: pl.DataFrame

    def issuing(self, operations: pl.DataFrame) -> pl.Series:
        """The call that issued each row, from its `process` and `correlationId`; -1 where none is known."""
        key = ["process", "correlationId"]
        keys = operations.select(key)
        asked = self.by_correlation.join(keys, on=key, how="semi")
        joined = keys.join(asked, on=key, how="left", maintain_order="left")
        return joined["call"].cast(pl.Int32).fill_null(-1)


def calls(source: Database, raw: pl.DataFrame, threads: pl.DataFrame, time_shift_ns: int) -> Calls:
    """The calls from their raw rows; version suffixes are cut off names.

    Calls that end before they start are left out. Correlation ids are unique inside a process alone;
    of several calls under one id the first counts.
    """
    texts = texts_of(source, raw["nameId"].fill_null(NAMELESS)).with_columns(
        pl.col("text").str.replace(_VERSION, "")
    )
    names = numbered(texts["text"])
    roles = names.with_columns(role=_role())
    rows = (
        raw.filter(pl.col("end") >= pl.col("start"))
        .with_columns(pl.col("nameId").fill_null(NAMELESS))
        .join(
            texts.join(roles, on="text").select("name", "role", nameId="string_id"),
            on="nameId",
            how="left",
            maintain_order="left",
        )
        .pipe(with_threads, threads, "globalTid")
        .select(
            *("name", "role", "thread", "process"),
            correlation="correlationId",
            start_ns=pl.col("start") - time_shift_ns,
            end_ns=pl.col("end") - time_shift_ns,
        )
        .sort("thread", "start_ns", maintain_order=True)
        .with_row_index("call")
    )
    by_correlation = (
        rows.select("call", "process", correlationId="correlation")
        .drop_nulls("correlationId")
        .unique(["process", "correlationId"], keep="first", maintain_order=True)
    )
    return Calls(rows.select(CALLS.names()).cast(CALLS), names, by_correlation)


def _role() -> pl.Expr:
    role = pl.lit(CallRole.OTHER, ROLE)
    for meaning, pattern in reversed(_ROLES):
        role = pl.when(pl.col("text").str.contains(pattern)).then(pl.lit(meaning, ROLE)).otherwise(role)
    return role
