"""The first screen of a comparison: the change of each wall, and operations by NVTX range."""

from collections import Counter
from functools import partial
from typing import Any

from wallscope import units
from wallscope.model.comparison import Comparison, OperationChange
from wallscope.model.section import (
    Cell,
    Column,
    Grid,
    Section,
    append_row,
    on_markdown,
    on_page,
    on_terminal,
    tabulate,
)
from wallscope.render.texts import shorten_range_path, visible
from wallscope.thresholds.verdict import EXPLAINING_SHARE, SHOWN_CHANGE_SHARE
from wallscope.views.comparison_words import (
    TIMES,
    describe_calls,
    describe_kernels,
    describe_place,
    drop_namespaces,
    select_operations,
    write_change,
    write_interval,
    write_tested_interval,
    write_time_interval,
)

OPERATIONS_TITLE = f"Operations: calls{TIMES}time per call in the typical step"
_WIDE, _MOST_ON_PAGE = 120, 60
_WATERFALL_CELLS, _SHORT_STEP_NS = 16, 1_000_000


def tabulate_waterfall(comparison: Comparison) -> Grid:
    """Make how the step of base becomes that of head on a terminal: the change of each wall, then of all."""
    step = comparison.step
    least_ns = SHOWN_CHANGE_SHARE * max(step.base_typical_ns, step.head_typical_ns)
    walls = [row for row in comparison.deltas.walls if max(row.base_ns, row.head_ns) >= least_ns]
    down_ns = max((-row.delta_ns for row in walls if row.delta_ns < 0), default=0)
    up_ns = max((row.delta_ns for row in walls), default=0)
    scale = _WATERFALL_CELLS / max(down_ns + up_ns, step.margin_ratio * step.base_typical_ns, 1)

    def bar(row: Any) -> Cell:
        cells = "█" * max(round(abs(row.delta_ns) * scale), 1 if abs(row.delta_ns) >= least_ns else 0)
        before, after = (cells, "") if row.delta_ns < 0 else ("", cells)
        return Cell(f"{before.rjust(round(down_ns * scale))}│{after}", row.wall)

    is_short = max(step.base_typical_ns, step.head_typical_ns) < _SHORT_STEP_NS
    unit, factor = ("µs", 1_000) if is_short else ("ms", 1)

    def write(time_ns: int) -> str:
        return units.milliseconds(factor * time_ns).removesuffix(" ms")

    def write_signed(time_ns: int) -> str:
        return units.signed_milliseconds(factor * time_ns).removesuffix(" ms")

    def both(row: Any) -> str:
        return f"{write(row.base_ns)} → {write(row.head_ns)}"

    def interval(row: Any) -> str:
        if row.low_ns is None or row.high_ns is None or row.low_ns == row.high_ns:
            return ""
        return " … ".join(write_signed(end) for end in (row.low_ns, row.high_ns))

    columns = (
        Column("wall", unit, value=lambda row: Cell(str(row.wall), row.wall), wrap="fixed"),
        Column("both", "base → head", "plain", "", both),
        Column("change", "change", "plain", "", lambda row: write_signed(row.delta_ns)),
        Column("interval", "95 % CI", "plain", "", interval),
        Column("bar", "", "plain", "", bar, is_right=False, wrap="cut"),
    )
    total_ns = step.head_typical_ns - step.base_typical_ns
    whole = f"{write(step.base_typical_ns)} → {write(step.head_typical_ns)}"
    title = f"Time breakdown of the typical {comparison.window}"
    last = {unit: Cell(comparison.window, tone="strong"), "base → head": Cell(whole, tone="strong")}
    last["change"] = Cell(write_signed(total_ns), tone="strong")
    if step.ratio_low is not None and step.ratio_high is not None and step.replication != "same":
        last["95 % CI"] = Cell(write_interval(step.ratio_low, step.ratio_high))
    return append_row(tabulate(title, columns, walls), last)


def list_operation_changes(comparison: Comparison, most: int) -> Grid:
    """Make operations by NVTX range that are new, gone, replaced or changed, as calls and time per call."""
    rows = select_operations(comparison, most)
    interval = partial(write_tested_interval, among="operations")
    columns = (
        on_terminal("change", "change, 95 % CI", "plain", "", write_change, widths=(0, _WIDE)),
        on_terminal("delta_ns", "change", "signed_duration", widths=(_WIDE, 1 << 30)),
        on_terminal("interval", "95 % CI", "plain", "", write_time_interval, widths=(_WIDE, 1 << 30)),
        on_markdown("delta_ns", "change", "signed_duration"),
        on_page("delta_ns", "change", "signed_duration"),
        on_markdown("interval", "95 % interval", "plain", value=interval),
        on_page("interval", "95 % interval", "plain", "of the change", interval),
        Column("kind", "", "text"),
        on_terminal("place", "operation", "text", "", _name_place, widths=(0, _WIDE), wrap="cut"),
        on_terminal("place", "operation", value=describe_place, widths=(_WIDE, 1 << 30), wrap="cut"),
        on_terminal("kernels", "kernel", value=describe_kernels, widths=(_WIDE, 1 << 30), wrap="cut"),
        on_markdown("place", "operation", value=describe_place, most=500),
        on_markdown("kernels", "kernel", value=describe_kernels, most=500),
        on_page(
            "place", "operation", "text", "kind of work, and the NVTX ranges around it", _place_with_hint
        ),
        on_page("kernels", "kernel", "text", "the one that runs longest, base and head", describe_kernels),
        Column("calls", f"calls{TIMES}time per call", "plain", "", describe_calls, is_right=False),
    )
    return tabulate(OPERATIONS_TITLE, columns, rows)


def build_operation_changes(comparison: Comparison) -> Section | None:
    """Make which operations are new, gone, replaced or changed; `None` where none is."""
    table = list_operation_changes(comparison, _MOST_ON_PAGE)
    if not table.rows:
        return None
    counts = Counter(row.kind for row in select_operations(comparison, _MOST_ON_PAGE))
    least = units.percent(float(EXPLAINING_SHARE))
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in sorted(counts))
    answer = f"Operations that change the step by {least} of base or more, by NVTX range: {kinds}."
    return Section("operation-changes", "New, gone and changed operations", answer, (table,))


def _place_with_hint(row: OperationChange) -> Cell:
    return Cell(describe_place(row), row.wall, row.path)


def _name_place(row: OperationChange) -> str:
    """Name the operation in few words; of replaced kernels without a range, the new one."""
    if row.path:
        return f"{row.category} in {shorten_range_path(row.path.rpartition(' / ')[2])}"
    return f"{describe_place(row)}{f' ({visible(drop_namespaces(row.name))})' if row.name else ''}"
