"""Ways to read an SQLite export."""

from enum import StrEnum


class Reader(StrEnum):
    """How the large tables are read: out of the file's pages where these are plain, or by SQLite alone."""

    PAGES = "pages"
    SQLITE = "sqlite"
