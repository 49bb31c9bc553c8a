"""NVTX ranges, activities of the operating system and the profiler on host threads, and garbage collection.

A garbage collector has no NVTX range. Its functions are in the stacks of the thread that it holds up. Samples
in it that follow each other show when it began and ended, to half the time between samples.
"""

import json
from collections.abc import Iterator

import numpy as np
import polars as pl

from wallscope.columns import Flags, Rows, are_among, as_integers, iterate_groups
from wallscope.model.capture import Progress
from wallscope.model.schemas import (
    BYSTANDER_WAITS,
    CPU_SAMPLES,
    HOST_EVENTS,
    NAMES,
    RANGES,
    THREADS,
    HostKind,
)
from wallscope.nsys.identity import (
    LONGEST_NAME_LETTERS,
    NAMELESS,
    join_threads,
    list_processes,
    look_up_texts,
    number_texts,
    process_of,
    read_duration_ns,
)
from wallscope.nsys.tables import RANGES as RANGE_ROWS
from wallscope.nsys.tables import STRINGS, CatalogTable, Database, read_row_numbers, read_table
from wallscope.records import dataclass
from wallscope.thresholds.causes import (
    COLLECTOR_SAMPLES_APART_RATIO,
    FEWEST_COLLECTOR_SAMPLES_COUNT,
    LONGEST_RECORD_NS,
)
from wallscope.thresholds.steps import SHORTEST_HELD_CALL_NS
from wallscope.trace.bystander_locks import EXCLUSION_CALL
from wallscope.trace.names import bring_together, fold_names

GARBAGE_COLLECTION = "garbage collection"
COLLECTORS = (
    "gc_collect_main",  # CPython
    "gc_collect_generations",
    "gc_collect_with_callback",
    "collect_with_callback",  # CPython up to 3.8
    "PyGC_Collect",
    "_PyGC_Collect",
    "_PyGC_CollectNoFail",
    "_PyGC_CollectIfEnabled",
    "jl_gc_collect",  # Julia
    "ijl_gc_collect",
    "_jl_gc_collect",
)
"""Functions that are on the stack while a collector runs."""
_STACKS = CatalogTable("SAMPLING_CALLCHAINS", ("id", "symbol"), required=("id", "symbol"))
_SAMPLES = CatalogTable(
    "COMPOSITE_EVENTS",
    ("id", "start", "globalTid", "cpuCycles"),
    required=("id", "start", "globalTid", "cpuCycles"),
)


def read_collections(source: Database, progress: Progress) -> pl.DataFrame:
    """Return `start`, `end`, `globalTid`, as in the export, of each run of a garbage collector."""
    nothing = pl.DataFrame(schema=dict.fromkeys(("start", "end", "globalTid"), pl.Int64()))
    is_there = source.has(STRINGS, "id", "value") and source.has(_SAMPLES.name, "id")
    if not (is_there and source.has(_STACKS.name, "id", "symbol")):
        return nothing
    symbols = [number for (number,) in source.rows("ids_of_names", json.dumps(COLLECTORS))]
    if not symbols:
        return nothing
    wanted = pl.DataFrame({"symbol": symbols}, schema={"symbol": pl.Int64()})
    stacks = read_table(source, _STACKS, progress, wanted)["id"].unique()
    if stacks.is_empty():
        return nothing
    samples = read_table(source, _SAMPLES, progress).drop_nulls(["start", "globalTid"])
    samples = samples.filter(pl.col("cpuCycles") > 0).sort("globalTid", "start", maintain_order=True)
    at_ns, thread = samples["start"].to_numpy(), samples["globalTid"].to_numpy()
    collects = are_among(samples["id"].to_numpy(), np.sort(stacks.to_numpy()))
    found = [
        (start_ns, end_ns, one)
        for one, own in iterate_groups(thread)
        for start_ns, end_ns in _join_samples(at_ns[own], collects[own])
    ]
    return pl.DataFrame(found, schema=nothing.schema, orient="row")


def _join_samples(at_ns: Rows, collects: Flags) -> Iterator[tuple[int, int]]:
    """Yield when a collector ran on a thread, given its samples in order."""
    if not collects.any() or at_ns.size < FEWEST_COLLECTOR_SAMPLES_COUNT:
        return
    usual_ns = int(np.median(np.diff(at_ns)))
    is_near = np.diff(at_ns) <= COLLECTOR_SAMPLES_APART_RATIO * usual_ns
    goes_on = np.append(False, collects[1:] & collects[:-1] & is_near)
    first = np.flatnonzero(collects & ~goes_on)
    last = np.flatnonzero(collects & ~np.append(goes_on[1:], False))
    for begin, end in zip(first.tolist(), last.tolist(), strict=True):
        if end - begin + 1 >= FEWEST_COLLECTOR_SAMPLES_COUNT:
            yield int(at_ns[begin]) - usual_ns // 2, int(at_ns[end]) + usual_ns // 2


PUSH_POP, START_END = 59, 60
_NEVER = 2**62


@dataclass(frozen=True, slots=True)
class RawRanges:
    """Rows of `NVTX_EVENTS`: `start`, `end`, `text`, `textId` and `place`, which is a row of `places`.

    `places` has `eventType`, `domainId`, `globalTid` and `endGlobalTid`.
    """

    frame: pl.DataFrame
    places: pl.DataFrame

    @property
    def is_range(self) -> pl.Series:
        """Whether each place is one of ranges. Marks, categories and names of domains are none."""
        return self.places["eventType"].is_in([PUSH_POP, START_END]).fill_null(value=False)


def read_ranges(source: Database, progress: Progress) -> RawRanges:
    """Read the ranges on the clock of the export, and what else its table of ranges holds."""
    place = ("eventType", "domainId", "globalTid", "endGlobalTid")
    frame, distinct = read_row_numbers(source, RANGE_ROWS, {"place": place}, progress)
    return RawRanges(frame, distinct["place"])


def build_ranges(
    source: Database, raw: RawRanges, threads: pl.DataFrame, time_shift_ns: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read the ranges and their names (`RANGES`, `RANGE_NAMES`) from the raw rows.

    A range that was open when the capture ended has the end of the capture, and is marked clipped. Rows that
    end before they start are excluded.
    """
    kept = _select_range_rows(raw)
    last_ns = _capture_end_ns(source, kept["end"], time_shift_ns)
    is_timed = _mark_timed(kept)
    kept = kept if is_timed.all() else kept.filter(is_timed)
    end, start = kept["end"].fill_null(last_ns), kept["start"]
    texts = _look_up_range_texts(source, kept)
    names = bring_together(number_texts(texts))
    numbers = texts.alias("text").to_frame().join(names, on="text", how="left", maintain_order="left")["name"]
    ends_elsewhere = (pl.col("endGlobalTid") != pl.col("globalTid")) & (pl.col("endGlobalTid") != 0)
    of_place = raw.places.pipe(join_threads, threads, "globalTid").select(
        "thread",
        crosses=ends_elsewhere.fill_null(value=False),
        domain=pl.when(pl.col("domainId").is_between(0, 2**31)).then("domainId").otherwise(0),
    )
    rows = of_place[kept["place"]].with_columns(
        numbers,
        start_ns=start - time_shift_ns,
        end_ns=end - time_shift_ns,
        clipped=end >= last_ns,
    )
    rows = sort_outside_in(rows, names).with_row_index("range")
    return rows.select(RANGES.names()).cast(RANGES), names


def _select_range_rows(raw: RawRanges) -> pl.DataFrame:
    is_range = raw.is_range.gather(raw.frame["place"])
    return raw.frame if is_range.all() else raw.frame.filter(is_range)


def _mark_timed(rows: pl.DataFrame) -> pl.Series:
    """Return which rows may have run when they say; those without an end ran until the capture ended."""
    start, end = rows["start"], rows["end"].fill_null(rows["start"])
    is_timed = (start.is_not_null() & (end - start).is_between(0, LONGEST_RECORD_NS)).fill_null(value=False)
    return is_timed & ~((start == 0) & (end == 0)).fill_null(value=False)


def count_untimed_ranges(raw: RawRanges) -> int:
    """Return how many ranges have a time that cannot be."""
    return int((~_mark_timed(_select_range_rows(raw))).sum())


def _look_up_range_texts(source: Database, rows: pl.DataFrame) -> pl.Series:
    """The text of each row, its own or that of its id."""
    own = rows["text"].str.head(LONGEST_NAME_LETTERS)
    if not own.has_nulls():
        return own
    by_id = look_up_texts(source, rows["textId"].filter(own.is_null()).fill_null(NAMELESS))
    of_id = (
        pl.col("textId")
        .fill_null(NAMELESS)
        .replace_strict(by_id["string_id"], by_id["text"], default=None, return_dtype=pl.String)
    )
    return rows.select(pl.coalesce(own, of_id)).to_series()


def sort_outside_in(rows: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Sort ranges of each thread from the outside in; of equal ranges, the longer kind is outside.

    Rows of an export have no order, so equal ranges would nest differently from step to step. If their kinds
    also have equal lengths, the kind that comes first in the export is outside.
    """
    thread, start_ns, end_ns = (as_integers(rows[name]) for name in ("thread", "start_ns", "end_ns"))
    order = np.lexsort((-end_ns, start_ns, thread))
    is_tied = np.ones(max(order.size - 1, 0), np.bool_)
    for column in (thread, start_ns, end_ns):
        in_order = column[order]
        is_tied &= in_order[1:] == in_order[:-1]
    if not is_tied.any():
        return rows[order]
    span, outside_in = ["thread", "start_ns", "end_ns"], [False, False, True]
    folds = names.select("name", fold=fold_names(names))
    length = pl.col("end_ns") - pl.col("start_ns")
    kind = ["domain", "fold"]
    return (
        rows.with_row_index("row")
        .join(folds, on="name", how="left", maintain_order="left")
        .with_columns(like_ns=length.mean().over(kind), first=pl.col("row").min().over(kind))
        .sort(*span, "like_ns", "first", descending=[*outside_in, True, False], maintain_order=True)
        .drop("row", "fold", "like_ns", "first")
    )


def _capture_end_ns(source: Database, ends: pl.Series, time_shift_ns: int) -> int:
    """Return the end of the capture on the clock of the raw rows, which Nsight gives to open ranges.

    If the export does not contain it, the last of the `ends` of ranges is used if several share it.
    """
    duration_ns = read_duration_ns(source)
    if duration_ns is not None and duration_ns > 0:
        return duration_ns + time_shift_ns
    last_ns = ends.max()
    if not isinstance(last_ns, int):
        return _NEVER
    is_shared = (ends == last_ns).sum() > 1 or ends.null_count() > 0
    return last_ns if is_shared else _NEVER


_WHAT_AND_WHEN = ("start", "end", "globalTid", "nameId")
_OS_CALLS = CatalogTable("OSRT_API", _WHAT_AND_WHEN)
PROFILER_OVERHEADS = CatalogTable("PROFILER_OVERHEAD", _WHAT_AND_WHEN)
CUDA_OVERHEADS = CatalogTable("CUPTI_ACTIVITY_KIND_OVERHEAD", (*_WHAT_AND_WHEN, "overheadType"))
SWITCHES = CatalogTable(
    "SCHED_EVENTS", ("start", "isSchedIn", "globalTid"), required=("start", "isSchedIn", "globalTid")
)
SAMPLES = CatalogTable(
    "COMPOSITE_EVENTS", ("start", "globalTid", "cpuCycles"), required=("start", "globalTid", "cpuCycles")
)
PROFILER_TYPES = (3, 4, 5)  # buffer flush, instrumentation, resource; the others are costs of CUDA itself
_KINDS = {
    HostKind.LOCK: r"^(__)?(pthread_(mutex|cond|rwlock|spin|barrier)_|sem_|futex|flockfile)",
    HostKind.IO: r"^(__)?(p?(read|write)v?2?|open|openat|creat|close|access|faccessat|l?stat|fstat|fstatat"
    r"|statx|lseek|sync|fsync|fdatasync|msync|syncfs|ftruncate|truncate|fallocate|sendfile|splice"
    r"|send|recv|sendto|recvfrom|sendm?msg|recvm?msg|connect|accept4?|epoll_p?wait2?"
    r"|f(re|d)?open|fclose|fread|fwrite|fflush|fseeko?|fprintf|printf"
    r"|f?getc|f?gets|f?putc|f?puts|getdelim|getline|readdir)(64)?(_unlocked|_chk)?$",
    HostKind.PROFILER: r" profiling (started|finished)$",
}
_OFF_CPU = "off the CPU"
_NO_SPANS = pl.Schema({**dict.fromkeys(_WHAT_AND_WHEN, pl.Int64()), "kind": pl.String()})
_NO_SWITCHES = pl.Schema(
    {
        "thread": THREADS["thread"],
        **dict.fromkeys(("start", "end"), pl.Int64()),
        **dict.fromkeys(("kind", "text"), pl.String()),
    }
)


def read_host_events(
    source: Database, threads: pl.DataFrame, time_shift_ns: int, progress: Progress
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Read activities of the threads, and their names, without NVTX ranges, and the waits of other threads.

    These are `HOST_EVENTS`, `NAMES` and `BYSTANDER_WAITS`. Calls that end before they start are excluded.
    """
    of_cuda = pl.when(pl.col("overheadType").is_in(PROFILER_TYPES)).then(pl.lit(str(HostKind.PROFILER)))
    kinds = {
        _OS_CALLS: pl.lit(None, pl.String),
        PROFILER_OVERHEADS: pl.lit(str(HostKind.PROFILER)),
        CUDA_OVERHEADS: of_cuda.otherwise(pl.lit(str(HostKind.CUDA))),
    }
    found = [(read_table(source, table, progress), kind) for table, kind in kinds.items()]
    spans = [frame.select(*_WHAT_AND_WHEN, kind=kind) for frame, kind in found if not frame.is_empty()]
    off_cpu = _read_off_cpu(source, threads, progress)
    collected = _join_threads(read_collections(source, progress), threads).with_columns(
        kind=pl.lit(str(HostKind.GC)), text=pl.lit(GARBAGE_COLLECTION)
    )
    if not spans and off_cpu.is_empty() and collected.is_empty():
        return HOST_EVENTS.to_frame(), NAMES.to_frame(), BYSTANDER_WAITS.to_frame()
    columns = ["thread", "start", "end", "kind", "text"]
    rows = pl.concat([_NO_SPANS.to_frame(), *spans]).filter(pl.col("end") >= pl.col("start"))
    named = _add_names(source, _join_threads(rows, threads))
    if _has_long_exclusion(named):
        bystanders = _select_bystanders(source, rows, threads).with_columns(_shift_times(time_shift_ns))
    else:
        bystanders = BYSTANDER_WAITS.to_frame()
    parts = (named, off_cpu, collected.cast({"thread": THREADS["thread"]}))
    rows = pl.concat([part.select(columns) for part in parts])
    names = number_texts(rows["text"])
    return (
        (
            rows.join(names, on="text", how="left", maintain_order="left")
            .with_columns(_shift_times(time_shift_ns))
            .sort("thread", "start_ns", "end_ns", "name", descending=[False, False, True, False])
            .select(HOST_EVENTS.names())
            .cast(HOST_EVENTS)
        ),
        names,
        bystanders.select(BYSTANDER_WAITS.names()).cast(BYSTANDER_WAITS),
    )


def _shift_times(time_shift_ns: int) -> list[pl.Expr]:
    return [(pl.col(side) - time_shift_ns).alias(f"{side}_ns") for side in ("start", "end")]


def _has_long_exclusion(rows: pl.DataFrame) -> bool:
    is_long = rows["end"] - rows["start"] >= SHORTEST_HELD_CALL_NS
    return bool((is_long & rows["text"].str.contains(EXCLUSION_CALL)).any())


def _select_bystanders(source: Database, rows: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """Return the waits for locks of threads that are none of `threads`, but of their processes."""
    others = rows.join(threads.select(globalTid="global_tid"), on="globalTid", how="anti")
    waits = _add_names(source, others).filter(pl.col("kind") == str(HostKind.LOCK))
    return (
        waits.with_columns(globalPid=process_of("globalTid"))
        .join(list_processes(threads).drop_nulls("globalPid"), on="globalPid")
        .rename({"globalTid": "global_tid"})
        .sort("process", "global_tid", "start", "end")
    )


def read_cpu_samples(
    source: Database, threads: pl.DataFrame, time_shift_ns: int, progress: Progress
) -> pl.DataFrame:
    """Return the samples of the threads (`CPU_SAMPLES`)."""
    rows = read_table(source, SAMPLES, progress)
    if rows.is_empty():
        return CPU_SAMPLES.to_frame()
    return (
        _join_threads(rows, threads)
        .with_columns(at_ns=pl.col("start") - time_shift_ns, cpu_cycles="cpuCycles")
        .sort("thread", "at_ns", maintain_order=True)
        .select(CPU_SAMPLES.names())
        .cast(CPU_SAMPLES)
    )


def _join_threads(rows: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    numbers = threads.select("thread", globalTid="global_tid")
    return rows.join(numbers, on="globalTid", nulls_equal=True, maintain_order="left")


def _add_names(source: Database, rows: pl.DataFrame) -> pl.DataFrame:
    """Add the `text` of their name to rows, which shows the kind if the table does not."""
    rows = rows.with_columns(pl.col("nameId").fill_null(NAMELESS))
    texts = look_up_texts(source, rows["nameId"]).rename({"string_id": "nameId"})
    by_name = pl.lit(str(HostKind.OS))
    for kind, pattern in _KINDS.items():
        is_meant = pl.col("text").str.contains(pattern)
        by_name = pl.when(is_meant).then(pl.lit(str(kind))).otherwise(by_name)
    return rows.join(
        texts.with_columns(by_name=by_name), on="nameId", how="left", maintain_order="left"
    ).with_columns(pl.coalesce("kind", "by_name").alias("kind"))


def _read_off_cpu(source: Database, threads: pl.DataFrame, progress: Progress) -> pl.DataFrame:
    """Return `thread`, `start`, `end`, `kind`, `text`: from a switch off the CPU to the next one onto it.

    Switches in and out at the same time cancel each other. A switch without its partner, at the ends of the
    capture or inside, gives no span.
    """
    switches = read_table(source, SWITCHES, progress)
    if switches.is_empty():
        return _NO_SWITCHES.to_frame()
    onto = pl.when(pl.col("isSchedIn") != 0).then(1).otherwise(-1)
    return (
        _join_threads(switches, threads)
        .drop_nulls(["start", "isSchedIn"])
        .group_by("thread", "start")
        .agg(turn=onto.sum().sign())
        .filter(pl.col("turn") != 0)
        .sort("thread", "start")
        .with_columns(
            end=pl.col("start").shift(-1).over("thread"), next_turn=pl.col("turn").shift(-1).over("thread")
        )
        .filter((pl.col("turn") < 0) & (pl.col("next_turn") > 0))
        .with_columns(kind=pl.lit(str(HostKind.SCHED)), text=pl.lit(_OFF_CPU))
    )
