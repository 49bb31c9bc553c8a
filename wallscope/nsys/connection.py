"""A read-only connection to a file that is not trusted.

`immutable` keeps SQLite from making a journal, a lock or a shared-memory file beside the export;
`check_file` has refused files with a log, which that mode would overlook.
"""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wallscope.errors import InputError
from wallscope.nsys.integrity import check_file

_PRAGMAS = ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON", "temp_store = MEMORY")
_LIMITS = {
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LENGTH: 64 << 20,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
}


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The export at `path`, open for reading as long as the block lasts.

    Raises:
        InputError: the file is no database, is damaged, or cannot be read.
    """
    check_file(path)
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error as error:
        raise InputError(f"{path} — cannot be opened: {error} — check its permissions") from error
    try:
        _defend(connection)
        yield connection
    except (sqlite3.DatabaseError, sqlite3.DataError) as error:
        raise InputError(f"{path} — is damaged: {error} — copy or export it again") from error
    finally:
        connection.close()


def _defend(connection: sqlite3.Connection) -> None:
    connection.text_factory = _text
    for category, limit in _LIMITS.items():
        connection.setlimit(category, limit)
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()


def _text(raw: bytes) -> str:
    """Text of the export; exports made on Windows hold bytes that are no UTF-8."""
    return raw.decode("utf-8", "replace")
