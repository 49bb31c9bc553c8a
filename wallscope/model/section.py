"""Output independent of the medium: sections of sentences, tables of raw values, figures.

Renderers convert units to text and escape foreign text; here values and names are unchanged. Differences
between media are properties of a column or a table.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any, Literal, Union

from wallscope.model.enums import Wall
from wallscope.model.shown import WORDS, Unit, list_fields
from wallscope.records import dataclass

Value = str | int | float | tuple[str, ...] | None
"""The content of a cell; several texts are stacked."""


Medium = Literal["terminal", "page", "markdown"]
MEDIA: tuple[Medium, ...] = ("terminal", "page", "markdown")
PAGE: tuple[Medium, ...] = ("page",)
Tone = Literal["strong", "dim", "faint", "good", "best", "doubt", "warning", "wrong", "bad", "setting"]
"""The tone of a text, where it can be shown."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A value with additions for some media: its wall, a tone, and more on a page.

    On a page, `hint` is its tooltip and `anchor` the target of links. A cell with a `step` links to that step
    of the timeline, at `at_ns` (session time) if known.
    """

    value: Value
    wall: Wall | None = None
    hint: str = ""
    step: int | None = None
    at_ns: int | None = None
    anchor: str = ""
    tone: Tone | None = None


Row = tuple[Value | Cell, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: `key` is the attribute of an entry to show, unless `value` computes it from the entry.

    `brief` is its title on a terminal, if different. Text is cut to `most` letters. `none` is shown for
    `None`. On a terminal it is shown at widths from `widths[0]` to `widths[1]`. The first column wraps there
    and others keep their width, unless `wrap` is set. `words` wraps between words, `fold` also inside them,
    and `cut` shortens the text to fit.
    """

    key: str
    title: str
    unit: Unit = "text"
    meaning: str = ""
    value: Callable[[Any], Value | Cell] | None = None
    brief: str | None = None
    media: tuple[Medium, ...] = MEDIA
    most: int = 2_000
    none: str = "unknown"
    widths: tuple[int, int] = (0, 1 << 30)
    wrap: Literal["", "fixed", "words", "fold", "cut"] = ""
    tone: Tone | None = None
    is_right: bool | None = None

    @property
    def is_text(self) -> bool:
        """Whether it is left-aligned: text is, unless `is_right` is set."""
        return self.unit in {"text", "code"} if self.is_right is None else not self.is_right

    def cell(self, entry: Any) -> Value | Cell:
        """Return the cell of an entry."""
        value: Value | Cell = getattr(entry, self.key) if self.value is None else self.value(entry)
        return value


on_page = partial(Column, media=PAGE)
"""Makes a column for a page only."""
on_terminal = partial(Column, media=("terminal",))
"""Makes a column for a terminal only."""
on_markdown = partial(Column, media=("markdown",))
"""Makes a column for Markdown only."""


def make_columns(
    row: type, *names: str, words: Mapping[str, str] | None = None, **settings: Any
) -> tuple[Column, ...]:
    """Make columns of fields of a row as it declares them; `words` stand in meanings and titles.

    `settings` are other fields of each column, or what replaces a title or a unit.
    """
    fields, made = list_fields(row), []
    for name in names:
        shown = fields[name]
        title = shown.title.format_map({**WORDS, **(words or {})})
        meaning = shown.describe(**(words or {})).replace("`", "")
        declared = {"title": title, "unit": shown.unit, "meaning": meaning}
        made.append(Column(name, **{**declared, **settings}))
    return tuple(made)


def make_column(row: type, name: str, **settings: Any) -> Column:
    """Make the column of one field of a row (`make_columns`)."""
    (made,) = make_columns(row, name, **settings)
    return made


@dataclass(frozen=True, slots=True)
class Limit:
    """The number of rows on a medium; for the rest it shows number, name, and `where` they are."""

    most: int
    noun: str = ""
    where: str = " in the JSON"


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of raw values: `title` is its caption, `brief` the one on a terminal.

    Each medium shows its columns and, if `limits` names it, only so many rows. Rows of a wordy table are
    cards on a phone. `notes` are below it. `rest` describes entries that were left out before.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    brief: str = ""
    notes: tuple[str, ...] = ()
    rest: str = ""
    limits: Mapping[Medium, Limit] = field(default_factory=dict)
    is_wordy: bool = False
    has_header: bool = True
    kind: str = "grid"


def append_row(grid: Grid, values: Mapping[str, Value | Cell], after: int | None = None) -> Grid:
    """Add a row of values by the titles of their columns, other cells empty; after so many rows, or all."""
    row = tuple(values.get(column.title, "") for column in grid.columns)
    return replace(grid, rows=(*grid.rows[:after], row))


def tabulate(title: str, columns: Iterable[Column], entries: Iterable[Any], **settings: Any) -> Grid:
    """Return a table with a row per entry; `settings` are the other fields of `Grid`."""
    shown = tuple(columns)
    rows = tuple(tuple(column.cell(entry) for column in shown) for entry in entries)
    return Grid(title, shown, rows, **settings)


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a line with a tone, or in the color of a wall; a terminal shows a strong one in bold."""

    text: str
    tone: Tone | Wall | None = None
    is_strong: bool = False


Line = str | tuple[str | Span, ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """Stacked sentences; all have one tone if `tone` is set."""

    lines: tuple[Line, ...]
    tone: Tone | None = None
    kind: str = "lines"


Shape = Literal["mark", "text", "fold", "right"]


@dataclass(frozen=True, slots=True)
class Items:
    """A list without a header: rows of lines, one per column.

    A mark keeps its width, text wraps, `fold` also wraps inside words, `right` is a number.
    """

    rows: tuple[tuple[Line, ...], ...]
    shape: tuple[Shape, ...] = ("mark", "text")
    kind: str = "items"


@dataclass(frozen=True, slots=True)
class Figure:
    """A plotly figure (traces, layout) and its description; `height_px` is reserved for it."""

    name: str
    caption: str
    traces: tuple[Mapping[str, Any], ...]
    layout: Mapping[str, Any]
    height_px: int
    kind: str = "figure"


@dataclass(frozen=True, slots=True)
class Code:
    """The text of a query."""

    caption: str
    text: str
    kind: str = "code"


@dataclass(frozen=True, slots=True)
class Canvas:
    """The place of the step timeline, with the steps in detail; `gap` leads to the longest of all."""

    steps: tuple[str, ...]
    note: str
    gap: Cell | None = None
    unit: str = "step"
    is_numbered: bool = True
    kind: str = "canvas"


Block = Union[Grid, Lines, Items, Figure, Code, Canvas, "Section"]


@dataclass(frozen=True, slots=True)
class Section:
    """One question with its answer in a sentence; on a page it is folded unless open.

    On a terminal, sections can be parts of others.
    """

    key: str
    title: Line
    answer: str
    blocks: tuple[Block, ...]
    is_open: bool = True
    wall: Wall | None = None


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """One of the five answers that each page begins with: wall, cause, first action, its bound, doubts.

    Args:
        label: what the answer is about.
        head: the answer in a few words.
        lines: what explains it.
        target: the part of the page with the details; empty without one.
        wall: the wall whose color stands next to it.
        predicted: the step before and after, and the latter as a share of the former.
        command: the command to run or the first setting, empty without one.
        tone: whether the answer is sure, where the answer is about that.
    """

    label: str
    head: str
    lines: tuple[str, ...] = ()
    target: str = ""
    wall: Wall | None = None
    predicted: tuple[str, str, float] | None = None
    command: str = ""
    tone: Literal["ok", "warn", ""] = ""
