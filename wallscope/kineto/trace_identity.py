"""Identities in a trace: processes, threads, devices, rank, and the data of machine and job.

Device rows have their device where host rows have their process. The process is that of the call with the
same correlation. Names of hosts, users and folders in the file are not read.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from wallscope.finding_texts import make_finding
from wallscope.kineto.event_tables import DEVICE_FRAMES, TraceTables
from wallscope.model.capture import CaptureConditions, Export, Finding, Gpu, Profiler
from wallscope.model.finding_codes import FindingCode
from wallscope.model.schemas import RANKS
from wallscope.nsys.identity import KNOWN_ROLES, make_gpu, write_cuda_version
from wallscope.nsys.integrity import content_size_bytes, fingerprint
from wallscope.nsys.ranks import find_rank_in_name
from wallscope.records import dataclass
from wallscope.units import spell_surrogates

_TID_BITS = 24
_INT32 = 2**31
_MOST_DEVICES = 65_536
_EPOCH_NS = 10**18  # 2001: later times count from 1970, earlier ones from a base
_MOST_RANKS = 1 << 24
_DISTRIBUTED = "distributedInfo"
TIMED = (*DEVICE_FRAMES, "calls", "annotations", "operators")
"""The frames that the session spans."""
_HOST_FRAMES = ("calls", "annotations", "operators", "python")


@dataclass(frozen=True, slots=True)
class JobFacts:
    """Job data of the trace: number of the rank, number of ranks, ranks of each group (`None`: unknown)."""

    rank: int | None
    world_size: int | None
    groups: Mapping[str, tuple[int, ...] | None]


def read_job_facts(tables: TraceTables) -> JobFacts:
    """Return the data of `distributedInfo`; contradictory numbers are unknown."""
    facts = tables.facts.keys.get(_DISTRIBUTED)
    if isinstance(facts, str):
        facts = _parse_json(facts)
    if not isinstance(facts, dict):
        return JobFacts(None, None, {})
    size = _read_count(facts.get("world_size"))
    rank = _read_count(facts.get("rank"))
    if size == 0 or (size is not None and rank is not None and rank >= size):
        size = None
    listed = facts.get("pg_config")
    groups = {
        entry["pg_name"]: parse_ranks(entry.get("ranks"))
        for entry in (listed if isinstance(listed, list) else ())
        if isinstance(entry, dict) and isinstance(entry.get("pg_name"), str)
    }
    return JobFacts(rank, size, groups)


def parse_ranks(listed: Any) -> tuple[int, ...] | None:
    """Return the numbers of a list, which may be text; `None` if it is cut or not a list.

    >>> parse_ranks("[0, 1]"), parse_ranks([3]), parse_ranks("[0, 1, ...]"), parse_ranks("[]")
    ((0, 1), (3,), None, None)
    """
    if isinstance(listed, str):
        listed = _parse_json(listed)
    if not isinstance(listed, list) or not listed:
        return None
    ranks = [_read_count(one) for one in listed]
    known = tuple(rank for rank in ranks if rank is not None)
    return known if len(known) == len(ranks) else None


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read_count(value: Any) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value < _MOST_RANKS else None


def find_session_start_ns(tables: TraceTables) -> int:
    """Return the first start of an operation, call or annotation, on the clock of the file."""
    starts = [tables.frames[name]["start"].min() for name in TIMED]
    return min((start for start in starts if isinstance(start, int)), default=0)


def identify_trace(path: Path, tables: TraceTables, start_ns: int) -> Export:
    """Return the identity of a trace; the base name of the file, never its folder."""
    size_bytes = content_size_bytes(path)
    base_ns = tables.facts.keys.get("baseTimeNanoseconds")
    if isinstance(base_ns, int) and not isinstance(base_ns, bool) and 0 < base_ns < 2**62:
        began_ns = base_ns + start_ns
    else:
        began_ns = start_ns
    version = tables.facts.keys.get("schemaVersion")
    return Export(
        name=spell_surrogates(path.name),
        fingerprint=fingerprint(path, size_bytes),
        size_bytes=size_bytes,
        nsys_version=None,
        schema_version=str(version) if isinstance(version, int) else None,
        hostname=None,
        session_start_utc_ns=began_ns if _EPOCH_NS < began_ns < 2**62 else None,
        time_shift_ns=0,
        gpus=_read_gpus(tables.facts.keys.get("deviceProperties")),
        environment={},
        profiler=Profiler.TORCH,
    )


def read_trace_conditions(tables: TraceTables) -> CaptureConditions:
    """Return the conditions that a trace shows, by its members and by what events it has."""
    keys, counts = tables.facts.keys, tables.counts
    shapes = tables.frames["multiplications"]["shapes"]
    has_recorded = {
        "operators": bool(counts["cpu_op"] or counts["operator"] or counts["Operator"]),
        "input shapes": keys.get("record_shapes") == 1 or shapes.null_count() < len(shapes),
        "Python stacks": keys.get("with_stack") == 1 or counts["python_function"] > 0,
        "allocations of memory": keys.get("profile_memory") == 1 or len(tables.frames["allocations"]) > 0,
    }
    version, cupti = (_read_count(keys.get(name)) for name in ("cuda_driver_version", "cupti_version"))
    return CaptureConditions(
        profiler_version=f"CUPTI {cupti}" if cupti else None,
        cuda_version=write_cuda_version(str(version)) if version else None,
        options=tuple(sorted((name, "on" if is_on else "off") for name, is_on in has_recorded.items())),
    )


def _read_gpus(listed: Any) -> tuple[Gpu, ...]:
    found = {}
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and (number := _read_count(entry.get("id"))) is not None:
            found[number] = make_gpu(
                {
                    "id": number,
                    "name": entry.get("name"),
                    "major": entry.get("computeMajor"),
                    "minor": entry.get("computeMinor"),
                    "sm_count": entry.get("numSms"),
                    "memory_bytes": entry.get("totalGlobalMem"),
                    "memory_mib": None,
                    "bandwidth": None,
                    "clock": None,
                }
            )
    return tuple(found[number] for number in sorted(found))


def number_trace_threads(tables: TraceTables) -> pl.DataFrame:
    """Return the threads with calls or ranges: `THREADS` with `own_pid` and `own_tid`, those of the file.

    Their global ids are generated.
    """
    pairs = pl.concat(
        [tables.frames[name].select("pid", "tid") for name in _HOST_FRAMES if name in tables.frames]
    )
    roles = (
        tables.frames["thread_names"]
        .with_columns(role=pl.col("role").str.extract(r"\(([^()]*)\)\s*$"))
        .filter(pl.col("role").str.contains(KNOWN_ROLES))
        .unique(["pid", "tid"], keep="first", maintain_order=True)
    )
    return (
        pairs.unique()
        .sort("pid", "tid")
        .join(roles, on=["pid", "tid"], how="left", nulls_equal=True, maintain_order="left")
        .with_row_index("thread")
        .with_columns(process=pl.col("pid").rank("dense").fill_null(0).cast(pl.Int64))
        .with_columns(process=pl.col("process") - pl.col("process").min())
        .with_columns(global_tid=pl.col("process") * (1 << _TID_BITS) + pl.col("thread"))
        .select(
            "thread",
            "process",
            "global_tid",
            *(pl.when(pl.col(name).is_between(-_INT32, _INT32 - 1)).then(name) for name in ("pid", "tid")),
            "role",
            own_pid="pid",
            own_tid="tid",
        )
    )


def join_thread_ids(rows: pl.DataFrame, numbered: pl.DataFrame) -> pl.DataFrame:
    """Return host rows with `thread`, `process` and `global_tid` of their thread."""
    keys = numbered.select("thread", "process", "global_tid", pid="own_pid", tid="own_tid")
    return rows.join(keys, on=["pid", "tid"], how="left", nulls_equal=True, maintain_order="left")


def find_processes(rows: pl.DataFrame, calls: pl.DataFrame) -> pl.Series:
    """Return the process of each device row: that of the only call with its correlation, else the usual one.

    Args:
        rows: device rows with `correlation` and `device`.
        calls: calls with `process` and `correlation`.
    """
    processes = calls["process"].unique()
    if len(processes) <= 1:
        usual = 0 if processes.is_empty() else processes[0]
        return pl.Series("process", [usual], dtype=pl.Int64).new_from_index(0, len(rows))
    sole = (
        calls.drop_nulls("correlation")
        .group_by("correlation")
        .agg(process=pl.when(pl.col("process").n_unique() == 1).then(pl.col("process").first()))
    )
    found = rows.select("correlation", "device").join(
        sole, on="correlation", how="left", maintain_order="left"
    )
    by_device = found.group_by("device").agg(usual=pl.col("process").drop_nulls().mode().min())
    busiest = calls["process"].mode().min()
    return (
        found.join(by_device, on="device", how="left", nulls_equal=True, maintain_order="left")
        .select(process=pl.coalesce("process", "usual", pl.lit(busiest)))["process"]
        .cast(pl.Int64)
    )


def identify_trace_ranks(
    export: Export, job: JobFacts, rows: pl.DataFrame, numbered: pl.DataFrame
) -> tuple[pl.DataFrame, tuple[Finding, ...]]:
    """Return the (process, device) pairs of device rows, with the rank of the busiest one (`RANKS`).

    Also findings about sources that contradict each other. `distributedInfo` and the name of the file refer
    to one process on one device.
    """
    by_name = find_rank_in_name(export.name)
    if job.world_size is not None and by_name is not None and by_name >= job.world_size:
        by_name = None
    rank, source = (job.rank, _DISTRIBUTED) if job.rank is not None else (by_name, "file name")
    counts = Counter(rows.select("process", "deviceId").iter_rows())
    pairs = sorted(counts, key=lambda pair: (pair[0], -1 if pair[1] is None else pair[1]))
    chosen = max(pairs, key=lambda pair: counts[pair])
    if len({process for process, _ in pairs}) > 1:
        rank = None  # a file merged from several
    pids = dict(numbered.select("process", "pid").unique("process").iter_rows())
    known = {gpu.id for gpu in export.gpus}
    frame = pl.DataFrame(
        [
            (
                number,
                rank if pair == chosen else None,
                source if pair == chosen and rank is not None else None,
                pair[0],
                pids.get(pair[0]),
                pair[1],
                pair[1] if pair[1] in known else None,
            )
            for number, pair in enumerate(pairs)
        ],
        schema=RANKS,
        orient="row",
    )
    return frame, tuple(_check_names(job.rank, by_name))


def _check_names(rank: int | None, by_name: int | None) -> Iterator[Finding]:
    if rank is not None and by_name is not None and rank != by_name:
        yield make_finding(FindingCode.RANK_CONTRADICTION, rank=rank, source=_DISTRIBUTED, by_name=by_name)
