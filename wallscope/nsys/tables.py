"""The known tables and columns of exports, and those that an export has."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wallscope.errors import InputError
from wallscope.files import read_query
from wallscope.kernels import row_numbers, views
from wallscope.model.capture import Presence, Progress
from wallscope.records import dataclass


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
    ("start", "end", "eventType", "textId", "domainId", "globalTid", "endGlobalTid"),
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
    "NET_IB_SWITCH_METRIC": "InfiniBand switch samples",
    "MPI_COLLECTIVES_EVENTS": "MPI collectives",
    "MPI_P2P_EVENTS": "MPI messages",
    "PROFILER_OVERHEAD": "profiler overheads",
    "DIAGNOSTIC_EVENT": "diagnostics of the profiler",
}
"""Descriptions of the rows of tables that `wallscope info` counts."""


_KNOWN = (STRINGS, *EXPORT_METADATA, "TARGET_INFO_SESSION_START_TIME")


Numbers = NDArray[np.int64]

NULL = -(2**63)
"""Represents NULL among integers in buffers; no time or id of an export is that small."""


def make_nullable(name: str, numbers: NDArray[np.integer[Any]]) -> pl.Series:
    """Return the numbers as a column, with `NULL` as null."""
    column = pl.Series(name, numbers)
    return column.set(column == NULL, None) if column.min() == NULL else column


class DistinctRows:
    """The distinct rows of some integer columns, numbered from 0 in the order in which they appear."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self._count = np.zeros(1, np.int64)
        self._make_room(_FIRST_ROOM)

    def _make_room(self, room: int) -> None:
        self._rows = np.empty((room, len(self.columns)), np.int64)
        self._table = np.full(2 * room, -1, np.int32)

    def number(self, columns: Numbers) -> NDArray[np.uint32]:
        """Return the number of each row of int64[column, row], in which `NULL` is null."""
        found = np.empty(columns.shape[1], np.uint32)
        done = 0
        while True:
            state = (self._rows, self._count, self._table)
            done = row_numbers.number_rows(*views(columns, done, *state, found))
            if done == found.size:
                return found
            known = np.ascontiguousarray(self._rows[: self._count[0]].T)
            self._make_room(2 * len(self._rows))
            self._count[0] = 0
            self.number(known)

    def number_frame(self, rows: pl.DataFrame) -> pl.Series:
        """Return the number of each row of a frame that has the columns, among others."""
        columns = [rows[name].fill_null(NULL).to_numpy() for name in self.columns]
        return pl.Series(self.number(np.array(columns, np.int64).reshape(len(columns), len(rows))))

    def list_rows(self, columns: tuple[str, ...]) -> pl.DataFrame:
        """Return the distinct rows by number; columns that the table lacks are null."""
        known = self._rows[: self._count[0]].T
        found = dict(zip(self.columns, known, strict=True))
        nothing = np.full(self._count[0], NULL)
        return pl.DataFrame([make_nullable(name, found.get(name, nothing).copy()) for name in columns])


_FIRST_ROOM = 256


@dataclass(frozen=True, slots=True)
class Wanted:
    """Columns of integers and text to read from a table, and the rows, by default all.

    `keys` has some of the integer columns; only rows with values equal to one of its rows count. `numbered`
    are other integer columns of which each row only gets the number of its distinct row, by the name of the
    column with these numbers.
    """

    table: str
    integers: Sequence[str]
    texts: Sequence[str] = ()
    keys: pl.DataFrame | None = None
    numbered: Mapping[str, DistinctRows] = field(default_factory=dict)

    @property
    def all_integers(self) -> list[str]:
        """The columns of integers to read; those that are numbered together follow one another."""
        return [*self.integers, *(name for rows in self.numbered.values() for name in rows.columns)]

    def place_groups(self) -> dict[str, tuple[slice, DistinctRows]]:
        """Return which of the integer columns are numbered together, by name."""
        ends = accumulate((len(rows.columns) for rows in self.numbered.values()), initial=len(self.integers))
        return {
            name: (slice(*own), rows)
            for own, (name, rows) in zip(pairwise(ends), self.numbered.items(), strict=True)
        }

    def number(self, found: pl.DataFrame) -> pl.DataFrame:
        """Return rows with all these columns with the numbers of their distinct rows instead."""
        for name, rows in self.numbered.items():
            rows.clear()
            found = found.with_columns(rows.number_frame(found).alias(name)).drop(rows.columns)
        return found


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
        """Return columns of a table, which must exist, int64, text or numbers, in row order; thread-safe."""


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
    return read_row_numbers(source, table, {}, progress, keys)[0]


def read_row_numbers(
    source: Database,
    table: CatalogTable,
    groups: Mapping[str, tuple[str, ...]],
    progress: Progress,
    keys: pl.DataFrame | None = None,
) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
    """Do the same, and number the distinct rows of groups of integer columns that repeat.

    Returns:
        The columns outside of groups, and for each group a column uint32 of its name; and the distinct rows
        of each group, by number.
    """
    grouped = {column for columns in groups.values() for column in columns}
    declared = {**dict.fromkeys(table.columns, pl.Int64()), **dict.fromkeys(table.texts, pl.String())}
    there = [column for column in declared if source.has(table.name, column)]
    if missing := [column for column in table.required if source.has(table.name) and column not in there]:
        raise InputError(
            f"{source.path} — table {table.name} has no column {missing[0]} — export the report again"
        )
    numbered = {
        name: DistinctRows(*(column for column in columns if column in there))
        for name, columns in groups.items()
    }
    alone = {name: kind for name, kind in declared.items() if name not in grouped}
    if not there:
        found = pl.DataFrame(schema={**alone, **dict.fromkeys(groups, pl.UInt32())})
    else:
        integers = [column for column in there if column in table.columns and column not in grouped]
        texts = [column for column in there if column in table.texts]
        found = source.tables.read_frame(Wanted(table.name, integers, texts, keys, numbered), progress)
        absent = [
            pl.Series(name, [None], kind).new_from_index(0, len(found))
            for name, kind in alone.items()
            if name not in there
        ]
        found = found.hstack(absent)[[*alone, *groups]]
    return found, {name: rows.list_rows(groups[name]) for name, rows in numbered.items()}


def quote(identifier: str) -> str:
    """Return the name quoted for SQL.

    >>> print(quote('an "odd" table'))
    "an ""odd"" table"
    """
    return '"' + identifier.replace('"', '""') + '"'
