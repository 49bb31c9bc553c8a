"""A comparison on a terminal: whether to revert in the first lines, then where the time went."""

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from wallscope import units
from wallscope.model.comparison import Comparison, OperationDelta
from wallscope.render.colours import WALL_COLOURS
from wallscope.render.foreign import visible
from wallscope.render.grids import grid, titled
from wallscope.views.comparison_text import headline, operation_name, sureness, testbeds, verdict_word

_MOST_CAUSES = 6
_MOST_OPERATIONS = 8
_MOST_EXPLANATIONS = 4
_WIDE = 136
_STYLE = {
    "regression": "bold red",
    "improvement": "bold green",
    "no-change": "bold",
    "inconclusive": "bold yellow",
    "incomparable": "bold yellow",
}


def comparison_summary(comparison: Comparison) -> RenderableType:
    """The whole comparison."""
    return Group(*_summary(comparison))


def _summary(comparison: Comparison) -> Iterator[RenderableType]:
    yield Text(f"{visible(comparison.base.name, most=60)} → {visible(comparison.head.name, most=60)}")
    if testbeds(comparison):
        yield Text(testbeds(comparison), style="dim")
    yield Text.assemble((verdict_word(comparison), _STYLE[comparison.verdict]), f"  {headline(comparison)}")
    yield Text(sureness(comparison), style="dim")
    if comparison.explanations:
        yield Text()
        for entry in comparison.explanations[:_MOST_EXPLANATIONS]:
            size = "" if entry.delta_ns is None else f"{units.signed_duration(entry.delta_ns)}  "
            yield Text(f"• {size}{visible(entry.message, most=300)}")
    yield Text()
    yield _walls(comparison)
    if comparison.deltas.causes:
        yield Text()
        yield _causes(comparison)
        yield Text()
        yield titled(
            "What changed most, of it by count and by time each", _Operations(comparison.deltas.operations)
        )
    if comparison.communication and any(row.delta_ns for row in comparison.communication):
        yield Text()
        yield _communication(comparison)
    if comparison.ranks:
        yield Text()
        yield _ranks(comparison)
    if comparison.mismatches:
        yield Text()
        yield _mismatches(comparison)
    if comparison.gates:
        yield Text()
        yield _gates(comparison)


def _walls(comparison: Comparison) -> RenderableType:
    table = grid("", "base", "head", "change", "95 % interval")
    for row in comparison.deltas.walls:
        interval = ""
        if row.low_ns is not None and row.high_ns is not None and row.low_ns != row.high_ns:
            interval = f"{units.signed_milliseconds(row.low_ns)} … {units.signed_milliseconds(row.high_ns)}"
        table.add_row(
            Text(str(row.wall), style=WALL_COLOURS[row.wall]),
            units.milliseconds(row.base_ns),
            units.milliseconds(row.head_ns),
            units.signed_milliseconds(row.delta_ns),
            interval,
        )
    step = comparison.step
    table.add_row(
        Text(comparison.window, style="bold"),
        units.milliseconds(step.base_typical_ns),
        units.milliseconds(step.head_typical_ns),
        Text(units.signed_milliseconds(step.head_typical_ns - step.base_typical_ns), style="bold"),
        "",
    )
    return titled(f"Who pays for the typical {comparison.window}, each nanosecond once", table)


def _causes(comparison: Comparison) -> RenderableType:
    table = grid("cause", "base", "head", "change")
    shown = comparison.deltas.causes[:_MOST_CAUSES]
    for row in shown:
        table.add_row(
            Text(visible(row.cause, most=60), style=WALL_COLOURS[row.wall]),
            units.milliseconds(row.base_ns),
            units.milliseconds(row.head_ns),
            units.signed_milliseconds(row.delta_ns),
        )
    rest = comparison.deltas.causes[_MOST_CAUSES:]
    if rest:
        left = units.signed_milliseconds(sum(row.delta_ns for row in rest))
        table.add_row(Text(f"{units.plural(len(rest), 'other cause')}", style="dim"), "", "", left)
    return titled("Why", table)


class _Operations:
    """Operations; where there is room, what their time is made of and where they run."""

    def __init__(self, rows: tuple[OperationDelta, ...]) -> None:
        self.rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_wide = options.max_width >= _WIDE
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
        table.add_column("operation", no_wrap=True, overflow="ellipsis")
        for name in ("change", "by count", "by each", "times a step"):
            table.add_column(name, justify="right", no_wrap=True)
        if is_wide:
            table.add_column("owns time as", no_wrap=True, overflow="ellipsis")
        shown = self.rows[:_MOST_OPERATIONS]
        for row in shown:
            cells = [
                operation_name(row, most=46 if is_wide else 26),
                units.signed_milliseconds(row.delta_ns),
                "" if row.base_count is None else units.signed_milliseconds(row.count_delta_ns),
                "" if row.base_count is None else units.signed_milliseconds(row.rate_delta_ns),
                _counts(row),
            ]
            table.add_row(*cells, *([visible(row.cause, most=40)] if is_wide else []))
        yield table
        rest = self.rows[_MOST_OPERATIONS:]
        if rest:
            left = units.signed_duration(sum(row.delta_ns for row in rest))
            yield Text(f"{units.plural(len(rest), 'other row')}, {left} together: --json", style="dim")


def _counts(row: OperationDelta) -> str:
    if row.base_count is None or row.head_count is None:
        return ""
    ours, theirs = (
        f"{count:.0f}" if count >= 10 or count == int(count) else f"{count:.1f}"
        for count in (row.base_count, row.head_count)
    )
    return ours if ours == theirs else f"{ours} → {theirs}"


def _communication(comparison: Comparison) -> RenderableType:
    table = grid("axis", "owns", "exposed", "work", "hidden", "bytes")
    for row in comparison.communication:
        hidden = f"{units.percent(row.base_hidden_share)} → {units.percent(row.head_hidden_share)}"
        sizes = (
            "unknown"
            if row.base_bytes is None or row.head_bytes is None
            else f"{units.size(row.base_bytes)} → {units.size(row.head_bytes)}"
        )
        table.add_row(
            str(row.axis),
            units.signed_milliseconds(row.delta_ns),
            units.signed_milliseconds(row.head_exposed_ns - row.base_exposed_ns),
            units.signed_milliseconds(row.head_work_ns - row.base_work_ns),
            hidden,
            sizes,
        )
    return titled("Communication: change of what it owns, is exposed, and works", table)


def _ranks(comparison: Comparison) -> RenderableType:
    table = grid("other ranks", "base", "head", "change")
    for row in comparison.ranks[:8]:
        name = f"rank {row.rank}" if row.rank is not None else f"device {row.device}"
        table.add_row(
            name,
            units.milliseconds(row.base_typical_ns),
            units.milliseconds(row.head_typical_ns),
            units.signed_percent(row.ratio - 1),
        )
    return titled("Beside it", table)


def _mismatches(comparison: Comparison) -> RenderableType:
    lines = [
        Text(
            f"{entry.what}: {visible(entry.base)} → {visible(entry.head)}"
            if entry.base != entry.head
            else f"{entry.what}: {visible(entry.base)} on both sides",
            style="bold" if entry.severity == "incomparable" else "",
        )
        for entry in comparison.mismatches
    ]
    return titled("Not only the time" if comparison.comparable else "Not comparable", Group(*lines))


def _gates(comparison: Comparison) -> RenderableType:
    lines = [
        Text(
            f"{'held  ' if gate.held else 'FAILED'}  {gate.gate}: {gate.evidence}",
            style="" if gate.held else "bold red",
        )
        for gate in comparison.gates
    ]
    return titled("Gates", Group(*lines))
