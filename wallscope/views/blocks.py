"""What sections of the page are made of; all text in them is escaped where it is written."""

from dataclasses import dataclass

from wallscope.model.kinds import Wall
from wallscope.model.section import Block, Canvas, Code, Figure, Lines, Section

__all__ = ["Block", "Canvas", "Cell", "Code", "Column", "Figure", "Grid", "Lines", "Section", "cells", "text"]

_MANY_ROWS = 24


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and what the numbers below it mean; text stands to the left, numbers to the right."""

    heading: str
    meaning: str = ""
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a table; one that speaks of a wall bears its mark.

    One of a shown step leads there, to a moment of it if it has one (`at_ns`, session time); `anchor` is
    what a link to it says.
    """

    text: str
    wall: Wall | None = None
    hint: str = ""
    step: int | None = None
    at_ns: int | None = None
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table with its caption; `note` says what is left out. Rows of a wordy one are cards on a phone."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    is_wordy: bool = False
    kind: str = "grid"

    @property
    def is_long(self) -> bool:
        """Whether it scrolls in its place."""
        return len(self.rows) > _MANY_ROWS


def cells(*texts: str) -> tuple[Cell, ...]:
    """A row of plain text."""
    return tuple(map(Cell, texts))


def text(heading: str, meaning: str = "") -> Column:
    """A column of text."""
    return Column(heading, meaning, is_text=True)
