"""The known tables and columns of exports, and those that an export has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from wallscope.errors import InputError
from wallscope.files import read_query
from wallscope.model.capture import Presence, Progress


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table to read: columns of integers, columns of text, columns that the table must have."""

    name: str
    columns: tuple[str, ...]
    texts: tuple[str, ...] = ()
    required: tuple[str, ...] = ("start", "end")


_WHERE_AND_WHEN = ("start", "end", "deviceId", "contextId", "streamId", "globalPid", "correlationId")

LAUNCH_SHAPE = (
    "gridX",
    "gridY",
    "gridZ",
    "blockX",
    "blockY",
    "blockZ",
    "registersPerThread",
    "staticSharedMemory",
    "dynamicSharedMemory",
)
KERNELS = CatalogTable(
    "CUPTI_ACTIVITY_KIND_KERNEL",
    (*_WHERE_AND_WHEN, "demangledName", "shortName", "graphNodeId", *LAUNCH_SHAPE),
)
COPIES = CatalogTable(
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    (
        *_WHERE_AND_WHEN,
        "bytes",
        "copyKind",
        "srcKind",
        "dstKind",
        "srcDeviceId",
        "dstDeviceId",
        "graphNodeId",
    ),
)
FILLS = CatalogTable("CUPTI_ACTIVITY_KIND_MEMSET", (*_WHERE_AND_WHEN, "bytes", "memKind", "graphNodeId"))
GRAPHS = CatalogTable("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", _WHERE_AND_WHEN)

CALLS = CatalogTable("CUPTI_ACTIVITY_KIND_RUNTIME", ("start", "end", "globalTid", "correlationId", "nameId"))
RANGES = CatalogTable(
    "NVTX_EVENTS",
    ("start", "end", "eventType", "rangeId", "textId", "domainId", "globalTid", "endGlobalTid"),
    texts=("text",),
    required=("start", "end", "eventType"),
)

DEVICE_TABLES = (KERNELS, COPIES, FILLS, GRAPHS)
"""The tables whose rows are device operations."""

STRINGS = "StringIds"
EXPORT_METADATA = ("META_DATA_EXPORT", "EXPORT_META_DATA")
"""Both spellings, the newer first; the older one up to schema 3.1."""

CONTENTS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernels",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "memory copies",
    "CUPTI_ACTIVITY_KIND_MEMSET": "memory fills",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "CUDA graph replays traced as a whole",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "CUDA API calls",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "CUDA synchronisations",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "CUDA events",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "CUDA overheads",
    "CUDA_GRAPH_EVENTS": "CUDA graph creations",
    "CUDA_GRAPH_NODE_EVENTS": "CUDA graph node creations",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": "GPU memory allocations and releases",
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": "unified-memory faults of the CPU",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": "unified-memory faults of the GPU",
    "NVTX_EVENTS": "NVTX ranges, marks and names",
    "NVTX_PAYLOAD_SCHEMAS": "layouts of NVTX payloads",
    "OSRT_API": "operating-system calls",
    "SCHED_EVENTS": "thread switches",
    "COMPOSITE_EVENTS": "CPU samples",
    "GPU_METRICS": "GPU metric samples",
    "GENERIC_EVENTS": "generic events",
    "NET_NIC_METRIC": "network card samples",
    "MPI_COLLECTIVES_EVENTS": "MPI collectives",
    "MPI_P2P_EVENTS": "MPI messages",
    "PROFILER_OVERHEAD": "profiler overheads",
    "DIAGNOSTIC_EVENT": "diagnostics of the profiler",
}
"""Descriptions of the rows of tables that `wallscope info` counts."""


_KNOWN = (STRINGS, *EXPORT_METADATA, "TARGET_INFO_SESSION_START_TIME")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Columns of integers and text to read from a table, and the rows, by default all.

    `keys` has some of the integer columns; only rows with values equal to one of its rows count.
    """

    table: str
    integers: Sequence[str]
    texts: Sequence[str] = ()
    keys: pl.DataFrame | None = None


class Tables(Protocol):
    """The tables: in one SQLite file, or in a folder with one file each."""

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """The columns of each table, in their order."""

    def select(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""

    def has_rows(self, table: str) -> bool:
        """Return whether the table, which must exist, has a row."""

    def row_count(self, table: str) -> int:
        """Return the number of rows of a table, which must exist."""

    def read_frame(self, wanted: Wanted, progress: Progress) -> pl.DataFrame:
        """Return columns of a table, which must exist, int64 or text, in row order; thread-safe."""


@dataclass(frozen=True, slots=True)
class Database:
    """An open export: the path that the user named, and its tables."""

    path: Path
    tables: Tables

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """The columns of each table, in their order."""
        return self.tables.columns

    def rows(self, query_name: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a shipped query."""
        return self.select(read_query(query_name), *values)

    def select(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query that spells each table and column as the export does."""
        return self.tables.select(sql, values)

    def has(self, table: str, *columns: str) -> bool:
        """Return whether the export has the table, with these columns."""
        return table in self.columns and set(columns) <= set(self.columns[table])

    def presence(self, table: str) -> Presence:
        """Return whether the table is absent, empty or has rows."""
        if table not in self.columns:
            return Presence.ABSENT
        return Presence.ROWS if self.tables.has_rows(table) else Presence.EMPTY

    def row_count(self, table: str) -> int | None:
        """Return the number of rows, `None` if there is no such table."""
        return self.tables.row_count(table) if table in self.columns else None


def make_database(path: Path, tables: Tables) -> Database:
    """Return the tables of an open export, without views and virtual tables.

    Raises:
        InputError: the tables belong to an nvprof profile or to no Nsight export at all.
    """
    columns = tables.columns
    if "_id_" in columns.get("CUPTI_ACTIVITY_KIND_KERNEL", ()) or "CUPTI_ACTIVITY_KIND_DRIVER" in columns:
        raise InputError(
            f"{path} — is an nvprof profile — capture with Nsight Systems: nsys profile --trace=cuda,nvtx"
        )
    if not any(table in columns for table in _KNOWN) and not any(t.startswith("CUPTI_") for t in columns):
        raise InputError(
            f"{path} — is not an Nsight Systems export: it has none of Nsight's tables — export a report:"
            " nsys export --type sqlite"
        )
    return Database(path, tables)


def read_table(
    source: Database, table: CatalogTable, progress: Progress, keys: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Return the declared columns of a table in row order, int64 or text; missing columns are all null.

    With `keys`, whose columns must exist, only rows with values equal to one of its rows count.

    Raises:
        InputError: a required column is missing, or a value is not an integer where it must be one.
    """
    declared = {**dict.fromkeys(table.columns, pl.Int64()), **dict.fromkeys(table.texts, pl.String())}
    there = [column for column in declared if source.has(table.name, column)]
    if missing := [column for column in table.required if source.has(table.name) and column not in there]:
        raise InputError(
            f"{source.path} — table {table.name} has no column {missing[0]} — export the report again"
        )
    integers = [column for column in there if column in table.columns]
    if not there:
        return pl.DataFrame(schema=declared)
    found = source.tables.read_frame(Wanted(table.name, integers, there[len(integers) :], keys), progress)
    absent = [
        pl.Series(name, [None], kind).new_from_index(0, len(found))
        for name, kind in declared.items()
        if name not in there
    ]
    return found.hstack(absent)[list(declared)]


def quote(identifier: str) -> str:
    """Return the name quoted for SQL.

    >>> print(quote('an "odd" table'))
    "an ""odd"" table"
    """
    return '"' + identifier.replace('"', '""') + '"'
