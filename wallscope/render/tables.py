"""Tables for people, for spreadsheets and for machines."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import polars as pl
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from wallscope import units
from wallscope.render.foreign import visible

_MOST_ROWS = 40
_NARROW_TEXT = 14
_BETWEEN = "  "
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


class Cut(Enum):
    """Where text that does not fit is cut."""

    BEGINNING = "beginning"
    MIDDLE = "middle"
    END = "end"


@dataclass(frozen=True, slots=True)
class Column:
    """A column as it is shown: heading, and how a value reads; text may be cut, numbers never.

    `cut` tells where text is cut.
    """

    name: str
    heading: str
    shown: Callable[[Any], str] = visible
    is_text: bool = False
    cut: Cut = Cut.END


def _count(value: float) -> str:
    return units.number(round(value)) if value >= 10 or value == round(value) else f"{value:.1f}"


def _milliseconds(time_ns: int) -> str:
    return units.milliseconds(time_ns).removesuffix(" ms")


STEPS = (
    Column("step", "step", units.number),
    Column("start_ns", "start s", units.seconds),
    Column("duration_ns", "ms", _milliseconds),
    Column("compute_wall_ns", "compute", _milliseconds),
    Column("communication_wall_ns", "comm", _milliseconds),
    Column("memory_wall_ns", "memory", _milliseconds),
    Column("host_wall_ns", "host", _milliseconds),
    Column("unattributed_wall_ns", "unknown", _milliseconds),
    Column("steady", "counts", lambda steady: "yes" if steady else "no", is_text=True),
)
KERNELS = (
    Column("category", "category", is_text=True),
    Column("count", "a step", _count),
    Column("work_ns", "work ms", _milliseconds),
    Column("step_share", "of step", units.percent),
    Column("median_ns", "median", units.duration),
    Column("most_ns", "longest", units.duration),
    Column("name", "kernel", is_text=True, cut=Cut.MIDDLE),
)
RANGES = (
    Column("count", "a step", units.number),
    Column("host_ns", "host ms", _milliseconds),
    Column("gpu_ns", "device ms", _milliseconds),
    Column("own_gpu_ns", "own ms", _milliseconds),
    Column("operations", "ops", units.number),
    Column("path", "range", is_text=True, cut=Cut.BEGINNING),
)


def table(frame: pl.DataFrame, columns: tuple[Column, ...]) -> RenderableType:
    """The first rows of each rank, one block a rank; what is left out is said."""
    blocks: list[RenderableType] = []
    for (rank, pid, device), rows in frame.group_by("rank", "pid", "device", maintain_order=True):
        if blocks:
            blocks.append(Text())
        blocks.append(Text(_who(rank, pid, device), style="bold"))
        blocks.append(_block(rows.head(_MOST_ROWS), columns))
        blocks.extend(_reasons(rows.head(_MOST_ROWS)))
        if len(rows) > _MOST_ROWS:
            left_out = units.plural(len(rows) - _MOST_ROWS, "more row")
            blocks.append(Text(f"{left_out}: --csv FILE writes all", style="dim"))
    return Group(*blocks) if blocks else Text("nothing to list")


def _reasons(rows: pl.DataFrame) -> Iterator[RenderableType]:
    """Why steps do not count, one line for each reason."""
    if "reason" in rows.columns:
        told = rows.filter(pl.col("reason").is_not_null())
        for (reason,), steps in told.group_by("reason", maintain_order=True):
            yield Text(f"{', '.join(map(str, steps['step']))}: {reason}", style="dim")


def _who(rank: object, pid: object, device: object) -> str:
    place = f"process {'unknown' if pid is None else pid}, device {'unknown' if device is None else device}"
    return place if rank is None else f"rank {rank} ({place})"


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows in columns: numbers keep their width, the last column of text gets what is left of the line."""

    columns: tuple[Column, ...]
    cells: tuple[tuple[str, ...], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._widths(options.max_width)
        yield Text(self._line([column.heading for column in self.columns], widths), style="dim")
        for row in self.cells:
            yield Text(self._line(row, widths))

    def _widths(self, line: int) -> list[int]:
        by_column = zip(self.columns, zip(*self.cells, strict=True), strict=True)
        widths = [max(cell_len(text) for text in (column.heading, *texts)) for column, texts in by_column]
        texts = [index for index, column in enumerate(self.columns) if column.is_text]
        for index in texts[:-1]:
            widths[index] = min(widths[index], _NARROW_TEXT)
        rest = line - sum(widths) - len(_BETWEEN) * (len(widths) - 1) + widths[texts[-1]]
        widths[texts[-1]] = max(min(widths[texts[-1]], rest), _NARROW_TEXT)
        return widths

    def _line(self, row: Iterable[str], widths: list[int]) -> str:
        placed = (_placed(*cell) for cell in zip(self.columns, row, widths, strict=True))
        return _BETWEEN.join(placed).rstrip()


def _placed(column: Column, text: str, width: int) -> str:
    """The text as wide as its column: numbers to the right; text cut at its end, or where it begins."""
    length = cell_len(text)
    if length <= width:
        padding = " " * (width - length)
        return text + padding if column.is_text else padding + text
    head = {Cut.BEGINNING: 0, Cut.MIDDLE: width // 2, Cut.END: width - 1}[column.cut]
    return set_cell_size(text, head) + "…" + _ending(text, width - 1 - head)


def _ending(text: str, width: int) -> str:
    """The longest end of a text that fits; a wide letter that would not fit whole leaves a space."""
    fitting = next(text[at:] for at in range(len(text) + 1) if cell_len(text[at:]) <= width)
    return " " * (width - cell_len(fitting)) + fitting


def _block(rows: pl.DataFrame, columns: tuple[Column, ...]) -> RenderableType:
    cells = [[_cell(column, value) for value in rows[column.name].to_list()] for column in columns]
    return _Block(columns, tuple(zip(*cells, strict=True)))


def _cell(column: Column, value: Any) -> str:
    return "" if value is None else column.shown(value)


def csv(frame: pl.DataFrame) -> str:
    """The whole table as CSV, harmless in a spreadsheet."""
    return guarded(frame).write_csv()


def guarded(frame: pl.DataFrame) -> pl.DataFrame:
    """The table with a quote before each text that a spreadsheet would take for a formula."""
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    is_formula = {
        name: pl.any_horizontal(pl.col(name).str.starts_with(start) for start in _FORMULA_STARTS)
        for name in texts
    }
    quoted = [
        pl.when(is_formula[name])
        .then(pl.concat_str(pl.lit("'"), pl.col(name)))
        .otherwise(pl.col(name))
        .alias(name)
        for name in texts
    ]
    return frame.with_columns(quoted)


def rows_as_json(frame: pl.DataFrame) -> str:
    """The whole table as a JSON list of objects, ASCII alone."""
    return json.dumps(frame.to_dicts(), indent=1, ensure_ascii=True, allow_nan=False) + "\n"
