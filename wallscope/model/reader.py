"""How the big tables of an SQLite export are read."""

from enum import StrEnum


class Reader(StrEnum):
    """The ways; both give the same rows."""

    PAGES = "pages"
    """Many rows at a time, straight from the pages of the file; SQLite reads what is not plain."""
    SQLITE = "sqlite"
    """All through SQLite, ten to twenty times slower."""
