"""Frames of rows on a terminal, one block a rank: text without room is cut, numbers never."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import polars as pl
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from wallscope import units
from wallscope.model.analysis import RangeWork, Step
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import Wall
from wallscope.model.frame_rows import KernelRow, RangeOperationsRow, SpanRow
from wallscope.model.shown import Unit, list_fields
from wallscope.records import dataclass
from wallscope.render.texts import shorten_kernel_name, visible

_MOST_ROWS = 40
_ROOMY = 100
_NARROW_TEXT = 14
_BETWEEN = "  "


class Cut(Enum):
    """Where text that does not fit is cut."""

    BEGINNING = "beginning"
    MIDDLE = "middle"
    END = "end"


@dataclass(frozen=True, slots=True)
class FrameColumn:
    """A column of a frame: heading, how a value reads, and where text is cut; numbers never are.

    It is left out on terminals of fewer columns than `least_width`, and `is_rare` where it is empty.
    """

    name: str
    heading: str
    write: Callable[[Any], str] = visible
    is_text: bool = False
    cut: Cut = Cut.END
    least_width: int = 0
    is_rare: bool = False


def _write_row_count(value: float) -> str:
    return units.number(round(value)) if value >= 10 or value == round(value) else f"{value:.1f}"


def _write_tera(rate_flops_per_s: float) -> str:
    return units.flops(rate_flops_per_s, is_bare=True)


def _write_milliseconds(time_ns: int) -> str:
    return units.milliseconds(time_ns, is_bare=True)


_WRITERS: Mapping[Unit, tuple[Callable[[Any], str], str]] = {
    "text": (visible, "{}"),
    "plain": (_write_row_count, "{}"),
    "count": (units.number, "{}"),
    "seconds": (units.seconds, "{} s"),
    "ms": (_write_milliseconds, "{} ms"),
    "duration": (units.duration, "{}"),
    "percent": (units.percent, "{}"),
    "flops": (_write_tera, "TFLOP/s"),
}
"""How values of a unit read below a heading that has the unit, and that heading."""


def _head_column(row: type, name: str, **settings: Any) -> FrameColumn:
    """Make a column of a field of a row as it declares it."""
    shown = list_fields(row)[name]
    write, heading = _WRITERS[shown.unit]
    title = heading.format(shown.title if shown.brief is None else shown.brief).strip()
    declared = {"heading": title, "write": write, "is_text": shown.unit == "text"}
    return FrameColumn(shown.column or name, **{**declared, **settings})


STEPS = (
    _head_column(Step, "index"),
    _head_column(SpanRow, "start_ns"),
    _head_column(SpanRow, "duration_ns"),
    *(_head_column(Walls, wall, heading=list_fields(Walls)[wall].brief or str(wall)) for wall in Wall),
    _head_column(Step, "steady", write=lambda steady: "yes" if steady else "no"),
)
KERNELS = (
    *(_head_column(KernelRow, name) for name in ("category", "count", "work_ns", "step_share", "median_ns")),
    *(
        _head_column(KernelRow, name, least_width=_ROOMY)
        for name in ("mean_ns", "least_ns", "most_ns", "deviation_ns")
    ),
    _head_column(KernelRow, "flops_per_s", is_rare=True),
    _head_column(KernelRow, "peak_share", least_width=_ROOMY, is_rare=True),
    _head_column(KernelRow, "name", write=shorten_kernel_name),
)
RANGES = (
    *(_head_column(RangeWork, name) for name in ("count", "host_ns", "gpu_ns", "own_gpu_ns")),
    _head_column(RangeOperationsRow, "operations"),
    _head_column(RangeWork, "path", cut=Cut.BEGINNING),
)


def render_frame(frame: pl.DataFrame, columns: tuple[FrameColumn, ...]) -> RenderableType:
    """Render the first rows of each rank, one block a rank; what is left out is said.

    Args:
        frame: `rank`, `pid`, `device`, what the columns name, and `reason` where steps do not count.
        columns: in order.
    """
    blocks: list[RenderableType] = []
    for (rank, pid, device), rows in frame.group_by("rank", "pid", "device", maintain_order=True):
        place = f"process {_or_unknown(pid)}, device {_or_unknown(device)}"
        blocks += [Text()] if blocks else []
        blocks.append(Text(place if rank is None else f"rank {rank} ({place})", style="bold"))
        shown = rows.head(_MOST_ROWS)
        cells = [
            ["" if value is None else column.write(value) for value in shown[column.name].to_list()]
            for column in columns
        ]
        used = [place for place, column in enumerate(columns) if any(cells[place]) or not column.is_rare]
        blocks.append(
            _FittedRows(
                tuple(columns[place] for place in used),
                tuple(zip(*(cells[place] for place in used), strict=True)),
            )
        )
        if "reason" in rows.columns:
            reasons = shown.drop_nulls("reason").group_by("reason", maintain_order=True)
            blocks += [
                Text(f"{', '.join(map(str, steps['step']))}: {reason}", style="dim")
                for (reason,), steps in reasons
            ]
        if len(rows) > _MOST_ROWS:
            left_out = units.plural(len(rows) - _MOST_ROWS, "more row")
            blocks.append(Text(f"{left_out}: --csv FILE writes all", style="dim"))
    return Group(*blocks) if blocks else Text("nothing to list")


def _or_unknown(value: object) -> object:
    return "unknown" if value is None else value


@dataclass(frozen=True, slots=True)
class _FittedRows:
    """Rows in columns: numbers keep their width, the last column of text gets what is left of the line."""

    columns: tuple[FrameColumn, ...]
    cells: tuple[tuple[str, ...], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kept = [place for place, column in enumerate(self.columns) if column.least_width <= options.max_width]
        columns = [self.columns[place] for place in kept]
        rows = [[row[place] for place in kept] for row in self.cells]
        widths = _fit_widths(columns, rows, options.max_width)
        yield Text(_join_row(columns, [column.heading for column in columns], widths), style="dim")
        yield from (Text(_join_row(columns, row, widths)) for row in rows)


def _fit_widths(columns: Sequence[FrameColumn], rows: Sequence[Sequence[str]], line: int) -> list[int]:
    by_column = zip(columns, zip(*rows, strict=True), strict=True)
    widths = [max(cell_len(text) for text in (column.heading, *texts)) for column, texts in by_column]
    *others, last = (index for index, column in enumerate(columns) if column.is_text)
    for index in others:
        widths[index] = min(widths[index], _NARROW_TEXT)
    rest = line - sum(widths) - len(_BETWEEN) * (len(widths) - 1) + widths[last]
    widths[last] = max(min(widths[last], rest), _NARROW_TEXT)
    return widths


def _join_row(columns: Sequence[FrameColumn], row: Sequence[str], widths: Sequence[int]) -> str:
    return _BETWEEN.join(map(fit_text, columns, row, widths)).rstrip()


def fit_text(column: FrameColumn, text: str, width: int) -> str:
    """Make the text as wide as its column: numbers to the right; text cut at its end, or where it begins."""
    length = cell_len(text)
    if length <= width:
        padding = " " * (width - length)
        return text + padding if column.is_text else padding + text
    head = {Cut.BEGINNING: 0, Cut.MIDDLE: width // 2, Cut.END: width - 1}[column.cut]
    room = width - 1 - head
    tail = next(text[at:] for at in range(len(text) + 1) if cell_len(text[at:]) <= room)
    # A wide letter that would not fit whole leaves a space.
    return set_cell_size(text, head) + "…" + " " * (room - cell_len(tail)) + tail
