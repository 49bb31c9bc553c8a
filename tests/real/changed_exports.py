"""Changes of an export that keep what happened: other numbers for the same things, or less evidence of them.

Each change is a function of a connection, and returns whether the export has what it changes.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterator

Change = Callable[[sqlite3.Connection], bool]
CUPTI = "CUPTI_ACTIVITY_KIND_"
CALLS, KERNELS = f"{CUPTI}RUNTIME", f"{CUPTI}KERNEL"
TIMES, NAMES = {"start", "end", "timestamp", "rawTimestamp"}, ("shortName", "demangledName", "mangledName")
ROWS_OF_TIME = (CUPTI, "NVTX", "OSRT", "SCHED", "COMPOSITE", "SAMPLING")
SHIFT_NS = 123_456_789_012
PROCESS_BITS, THREAD_BITS = 0x50 << 24, 0x5A5A5
UNNUMBERED_STREAMS = 1 << 31
"""Numbers of streams from here on stand for no stream."""


def list_tables(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return [name for (name,) in rows if not name.startswith("sqlite_")]


def list_columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]


def _drop(*names: str) -> Change:
    def change(connection: sqlite3.Connection) -> bool:
        found = [table for table in list_tables(connection) if table in names]
        for table in found:
            connection.execute(f'DROP TABLE "{table}"')
        return bool(found)

    return change


def _drop_calls(place: int) -> Change:
    """Remove the calls of a thread; threads are ordered by their number of calls, the largest first."""

    def change(connection: sqlite3.Connection) -> bool:
        if CALLS not in list_tables(connection):
            return False
        counted = f"SELECT globalTid FROM {CALLS} GROUP BY 1 ORDER BY COUNT(*) DESC, 1"
        threads = [row[0] for row in connection.execute(counted)]
        if place >= len(threads):
            return False
        connection.execute(f"DELETE FROM {CALLS} WHERE globalTid = {threads[place]}")
        return True

    return change


def _lose_calls(connection: sqlite3.Connection) -> bool:
    """Remove three of ten calls, as a profiler does whose buffers are full."""
    if CALLS not in list_tables(connection):
        return False
    connection.execute(f"DELETE FROM {CALLS} WHERE (start / 7919) % 10 < 3")
    return True


def _hash_names(connection: sqlite3.Connection) -> bool:
    """Replace every kernel name as a whole, so that no part of it can be recognized."""
    if KERNELS not in list_tables(connection):
        return False
    texts = dict(connection.execute("SELECT id, value FROM StringIds"))
    number = max(texts) + 1
    for column in set(NAMES) & set(list_columns(connection, KERNELS)):
        used = connection.execute(f"SELECT DISTINCT {column} FROM {KERNELS} WHERE {column} NOT NULL")
        for (old,) in used.fetchall():
            hashed = "k" + hashlib.sha256(texts[old].encode()).hexdigest()[:12]
            connection.execute("INSERT INTO StringIds (id, value) VALUES (?, ?)", (number, hashed))
            connection.execute(f"UPDATE {KERNELS} SET {column} = ? WHERE {column} = ?", (number, old))
            number += 1
    return True


def _use_short_names(connection: sqlite3.Connection) -> bool:
    if KERNELS not in list_tables(connection) or "demangledName" not in list_columns(connection, KERNELS):
        return False
    connection.execute(f"UPDATE {KERNELS} SET demangledName = shortName")
    return True


def _each_column(connection: sqlite3.Connection, wanted: set[str]) -> Iterator[tuple[str, str]]:
    for table in list_tables(connection):
        if not table.startswith(("ENUM", "META", "TARGET", "EXPORT")):
            yield from ((table, column) for column in list_columns(connection, table) if column in wanted)


def _set(wanted: set[str], value: str, where: str = "1") -> Change:
    """Set columns of some names; `{0}` in the expression is the column."""

    def change(connection: sqlite3.Connection) -> bool:
        found = list(_each_column(connection, wanted))
        for table, column in found:
            name = f'"{column}"'
            connection.execute(
                f'UPDATE "{table}" SET {name} = {value.format(name)}'
                f" WHERE {name} NOT NULL AND {where.format(name)}"
            )
        return bool(found)

    return change


def _toggle(bits: int) -> str:
    """An expression that inverts bits of a column."""
    return f"({{0}} | {bits}) - ({{0}} & {bits})"


def _renumber_streams(connection: sqlite3.Connection) -> bool:
    """Give new numbers to all streams but the lowest of each context, which may be the null stream."""
    tables = [
        table
        for table in list_tables(connection)
        if table.startswith(CUPTI) and {"streamId", "contextId"} <= set(list_columns(connection, table))
    ]
    lowest: dict[tuple[int, int], int] = {}
    numbers = set()
    for table in tables:
        process = "globalPid" if "globalPid" in list_columns(connection, table) else "0"
        rows = connection.execute(f"SELECT DISTINCT {process}, contextId, streamId FROM {table}")
        for process_id, context, stream in rows:
            if 0 < stream < UNNUMBERED_STREAMS:
                numbers.add(stream)
                lowest[process_id, context] = min(lowest.get((process_id, context), stream), stream)
    moved = numbers - set(lowest.values())
    if not moved:
        return False
    listed = ", ".join(map(str, sorted(moved)))
    return _set({"streamId"}, "100000 - 3 * {0}", f"{{0}} IN ({listed})")(connection)


def _shuffle_rows(connection: sqlite3.Connection) -> bool:
    """Write the rows of every table in another order."""
    connection.execute("PRAGMA legacy_alter_table = ON")
    for table in list_tables(connection):
        if not table.startswith(ROWS_OF_TIME):
            continue
        (created,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        indexes = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql NOT NULL", (table,)
        )
        for (index,) in indexes.fetchall():
            connection.execute(f'DROP INDEX "{index}"')
        connection.execute(f'ALTER TABLE "{table}" RENAME TO ordered')
        connection.execute(created)
        order = "ORDER BY (rowid * 7919) % 10007, rowid DESC"
        connection.execute(f'INSERT INTO "{table}" SELECT * FROM ordered {order}')
        connection.execute("DROP TABLE ordered")
    return True


LESS: dict[str, Change] = {
    "no waits": _drop(f"{CUPTI}SYNCHRONIZATION", f"{CUPTI}CUDA_EVENT"),
    "no synchronizations": _drop(f"{CUPTI}SYNCHRONIZATION"),
    "no OS calls": _drop("OSRT_API"),
    "no ranges": _drop("NVTX_EVENTS"),
    "no calls": _drop(CALLS),
    "no calls of the busiest thread": _drop_calls(0),
    "no calls of the second thread": _drop_calls(1),
    "no calls of the third thread": _drop_calls(2),
    "three of ten calls lost": _lose_calls,
    "no schedule and samples": _drop("SCHED_EVENTS", "COMPOSITE_EVENTS", "SAMPLING_CALLCHAINS"),
    "hashed kernel names": _hash_names,
    "short kernel names": _use_short_names,
}
"""Changes that take evidence away."""

SAME: dict[str, Change] = {
    "all times later": _set(TIMES, f"{{0}} + {SHIFT_NS}"),
    "other process ids": _set({"globalTid", "globalPid"}, _toggle(PROCESS_BITS)),
    "other thread ids": _set({"globalTid"}, _toggle(THREAD_BITS)),
    "other correlation ids": _set({"correlationId"}, "3 * {0} + 1000003", "{0} > 0"),
    "other stream ids": _renumber_streams,
    "rows in another order": _shuffle_rows,
}
"""Changes that take nothing away."""
