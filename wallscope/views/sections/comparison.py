"""What became of the step, and why? Walls, causes, operations, communication, ranks; are sides comparable?"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from wallscope import units
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.comparison import CauseDelta, Comparison, MismatchSeverity, OperationDelta, StepChange
from wallscope.model.enums import Wall
from wallscope.model.report import ComparisonReport
from wallscope.model.section import (
    Cell,
    Column,
    Grid,
    Limit,
    Medium,
    Row,
    Section,
    Value,
    append_row,
    on_markdown,
    on_page,
    on_terminal,
    tabulate,
)
from wallscope.render.figures import draw_both_steps, draw_way
from wallscope.render.texts import visible
from wallscope.views.comparison_words import (
    name_rank_of,
    write_change,
    write_tested_interval,
    write_time_interval,
)
from wallscope.views.sections.findings import list_pairs
from wallscope.views.sections.words import WALL_WORDS

_MOST_CAUSES, _MOST_OPERATIONS = 6, 8
_MOST_CAUSES_IN_MARKDOWN, _MOST_OPERATIONS_IN_MARKDOWN = 8, 10
_MOST_OPERATIONS_ON_PAGE = 60
_WIDE, _LEAST_ROOM = 120, 12
_NARROW, _BROAD = (0, _WIDE), (_WIDE, 1 << 30)
_ARROW = " → "
_SIDES = (Column("base_ns", "base", "ms"), Column("head_ns", "head", "ms"))
_INTERVAL = "interval of the change; empty with too few steps. Of many intervals, some exclude 0 by chance"
_OF_CHANGE = "interval of the change in ms"
_NAMELESS = {"host": "host time without calls"}
_REPLACED = "kernel, copy or call; two names if head runs another one instead"
_BY_COUNT = "part of the change that comes from more or fewer calls"
_BY_EACH = "part of the change that comes from the time per call, and from overlap"
_HOW_OFTEN = "how often it runs in the compared step of base and of head"
_PEER_WAIT = "part that is waiting for peers; time that is not split may contain more of it"
_EXPOSED = "time in which it ran and no compute kernel ran, base and head"
_HIDDEN = "share of its work that compute overlaps, base and head"
_FOLLOWS: dict[MismatchSeverity, str] = {
    "incomparable": "no verdict",
    "changed": "part of what is compared",
    "note": "a caveat",
}


def find_step_interval(step: StepChange) -> tuple[int, int] | None:
    """Return the interval of the step's change in ns, like those of its parts; `None` without one."""
    low, high, base_ns = step.compared_low, step.compared_high, step.base_ns
    if low is None or high is None or step.replication == "same":
        return None
    return round((low - 1) * base_ns), round((high - 1) * base_ns)


def sum_walls(comparison: Comparison) -> Grid:
    """Make the walls of both sides and the change of the step beneath; a page stresses what changed most."""
    step, walls = comparison.step, comparison.deltas.walls
    largest_ns = max(abs(row.delta_ns) for row in walls)

    def name(row: Any) -> Cell:
        is_largest = largest_ns > 0 and abs(row.delta_ns) == largest_ns
        return Cell(str(row.wall), row.wall, WALL_WORDS[row.wall], tone="strong" if is_largest else None)

    interval = partial(write_tested_interval, among="walls")
    columns = (
        on_terminal("wall", "", value=lambda row: Cell(str(row.wall), row.wall)),
        on_markdown("wall", "wall"),
        on_page("wall", "wall", value=name),
        *_SIDES,
        Column("delta_ns", "change", "signed_ms", "head less base"),
        on_terminal("interval", "95 % interval", "plain", "", interval),
        on_markdown("interval", "95 % interval", "plain", value=interval),
        on_page("interval", "95 % interval", "plain", _OF_CHANGE, interval, widths=(1, 1)),
    )
    title = f"Time breakdown of the {step.compared} {comparison.window}"
    window = Cell(comparison.window, tone="strong")
    change = Cell(step.change_ns, tone="strong")
    sides = {"base": step.base_ns, "head": step.head_ns}
    whole: dict[str, Value | Cell] = {"": window, "wall": window, **sides, "change": change}
    if ends := find_step_interval(step):
        low, high = map(units.signed_milliseconds, ends)
        whole["95 % interval"] = units.join_ends(low, high, " … ")
    return append_row(tabulate(title, columns, walls), whole)


def _mark_wall(row: CauseDelta | OperationDelta) -> Cell:
    return Cell(row.cause, Wall(row.cause.partition("/")[0]))


def _tabulate_causes(comparison: Comparison) -> Grid:
    interval = partial(write_tested_interval, among="causes")
    own = f"its time in the {comparison.step.compared} {comparison.window} of"
    columns = (
        on_terminal("cause", "cause", value=_mark_wall, most=60),
        on_markdown("cause", "cause", most=500),
        on_page("cause", "cause", "text", "wall/cause[/detail]", _mark_wall),
        on_page("meaning", "what it is", value=lambda row: describe_cause(row.cause)),
        on_terminal("base_ns", "base", "ms", widths=(_WIDE, 1 << 30)),
        on_terminal("head_ns", "head", "ms", widths=(_WIDE, 1 << 30)),
        on_markdown("base_ns", "base", "ms"),
        on_markdown("head_ns", "head", "ms"),
        on_page("base_ns", "base", "ms", f"{own} base"),
        on_page("head_ns", "head", "ms", f"{own} head"),
        Column("delta_ns", "change", "signed_ms"),
        on_terminal("interval", "95 % CI", "plain", "", interval),
        on_markdown("interval", "95 % interval", "plain", value=interval),
        on_page("interval", "95 % interval", "plain", _INTERVAL, interval),
    )
    title = "Change of the step by cause; rows sum to the change"
    return tabulate(title, columns, comparison.deltas.causes, brief="Causes by their change", is_wordy=True)


def build_cause_changes(comparison: Comparison) -> Section:
    """Make what exactly changed."""
    deltas_ns = [row.delta_ns for row in comparison.deltas.causes]
    if not deltas_ns:
        return Section("causes", "Causes that changed", "No cause changed.", ())
    change_ns = comparison.step.change_ns
    grew = units.signed_duration(sum(time_ns for time_ns in deltas_ns if time_ns > 0))
    shrank = units.signed_duration(sum(time_ns for time_ns in deltas_ns if time_ns < 0))
    together = f"{units.signed_duration(change_ns)} together"
    answer = f"Causes that grew add {grew}, those that shrank {shrank}: {together}."
    return Section(
        "causes", "Causes that changed", answer, (draw_way(comparison), _tabulate_causes(comparison))
    )


def list_cause_changes(comparison: Comparison) -> Grid:
    """Make what a terminal shows of the causes; the rest is added up."""
    table, rows = _tabulate_causes(comparison), comparison.deltas.causes
    rest = units.plural(len(rows[_MOST_CAUSES:]), "other cause")
    return _sum_rest(table, rows, _MOST_CAUSES, Cell(rest, tone="dim")) if rows[_MOST_CAUSES:] else table


def sum_causes(comparison: Comparison) -> Grid:
    """Make what Markdown shows of the causes; the rest is added up."""
    table = _tabulate_causes(comparison)
    return _sum_rest(table, comparison.deltas.causes, _MOST_CAUSES_IN_MARKDOWN, "the rest")


def _sum_rest(table: Grid, rows: Sequence[CauseDelta | OperationDelta], most: int, name: str | Cell) -> Grid:
    """Cut a table to so many rows, and add up the change of the rest."""
    left_ns = sum(row.delta_ns for row in rows[most:])
    return append_row(table, {"cause": name, "operation": name, "change": left_ns}, most)


def tabulate_operations(comparison: Comparison) -> Grid:
    """Make the change of the step by operation."""
    rows = comparison.deltas.operations
    by_time = _if_counted("rate_delta_ns", ["base"])
    narrow, wide = (partial(_name_changed_operation, most=most) for most in (26, 46))
    interval = partial(write_tested_interval, among="operations")
    columns = (
        on_terminal("name", "operation", value=narrow, widths=(0, _WIDE), wrap="fixed"),
        on_terminal("name", "operation", value=wide, widths=(_WIDE, 1 << 30), wrap="fixed"),
        on_markdown("name", "operation", value=partial(_name_changed_operation, most=80), most=500),
        on_markdown("cause", "attributed to", most=500),
        on_page("name", "operation", "text", _REPLACED, _name_with_hint),
        on_page("path", "in", "text", "NVTX ranges around the operation, numbers in names shown as #"),
        on_page(
            "cause",
            "attributed to",
            "text",
            "the cause that the time of the operation is attributed to",
            _mark_wall,
        ),
        on_terminal("change", "change, 95 % CI", "plain", "", write_change, widths=_NARROW),
        on_terminal("delta_ns", "change", "signed_ms", widths=_BROAD),
        on_terminal("interval", "95 % CI", "plain", "", write_time_interval, widths=_BROAD),
        on_markdown("delta_ns", "change", "signed_ms"),
        on_page("delta_ns", "change", "signed_ms"),
        on_markdown("interval", "95 % interval", "plain", value=interval),
        on_page("interval", "95 % interval", "plain", _INTERVAL, interval),
        on_markdown("count_delta_ns", "from calls", "signed_ms"),
        on_markdown("rate_delta_ns", "from time per call", "signed_ms"),
        on_terminal("count_delta_ns", "by calls", "signed_ms", "", _if_counted("count_delta_ns", ["base"])),
        on_terminal("rate_delta_ns", "by time", "signed_ms", "", by_time, widths=_BROAD),
        on_page("count_delta_ns", "from calls", "signed_ms", _BY_COUNT, _if_counted("count_delta_ns")),
        on_page("rate_delta_ns", "from time per call", "signed_ms", _BY_EACH, _if_counted("rate_delta_ns")),
        on_terminal("count", "calls", "plain", "", partial(_write_counts, template="{:.0f}")),
        on_page("count", "calls per step", "plain", _HOW_OFTEN, _write_counts),
        on_terminal("cause", "attributed to", most=40, widths=(_WIDE, 1 << 30)),
        on_page("matched_by", "matched by", "text", "how operations of base and head were matched"),
    )

    def limit(most: int, noun: str, where: str) -> Limit:
        left = units.signed_duration(sum(row.delta_ns for row in rows[most:]))
        return Limit(most, noun, f", {left} together{where}")

    limits: dict[Medium, Limit] = {
        "terminal": limit(_MOST_OPERATIONS, "other row", ": --json"),
        "page": limit(_MOST_OPERATIONS_ON_PAGE, "more row", ", in --json."),
    }
    title = "Change of the step by operation; rows sum to the change"
    brief = "Change of the step by operation: number of calls, and time per call"
    return tabulate(title, columns, rows, brief=brief, limits=limits, is_wordy=True)


def _name_changed_operation(row: OperationDelta, most: int, *, has_range: bool = True) -> str:
    """Name an operation in a line: its name, or both if it was replaced, and the innermost range around it.

    Names go without their arguments; of time on the host outside calls the range alone is known.
    """
    mark = {"only in base": "gone: ", "only in head": "new: "}.get(row.matched_by, "")
    name, before, around = (
        _shorten_signature(row.name),
        _shorten_signature(row.base_name),
        row.path.rpartition(" / ")[2] if has_range else "",
    )
    if name and before and name != before:
        half = (most - 3) // 2
        return f"{visible(before, most=half)}{_ARROW}{visible(name, most=half)}"
    if not (name or before):
        return visible(mark + (around or _NAMELESS.get(row.category, row.category)), most=most)
    text = visible(mark + (name or before), most=most)
    room = most - len(text) - 4
    return f"{text} in {visible(around, most=room)}" if around and room >= _LEAST_ROOM else text


def _shorten_signature(name: str) -> str:
    """Leave out template arguments and parameters, unless nothing else is in it.

    >>> _shorten_signature("void at::native::reduce_kernel<(int)512>(T3)"), _shorten_signature("(anonymous)")
    ('at::native::reduce_kernel', '(anonymous)')
    """
    return re.split(r"[<(]", name, maxsplit=1)[0].removeprefix("void ").strip() or name


def _name_with_hint(row: OperationDelta) -> Cell:
    both = row.name if row.name == row.base_name else f"{row.base_name}{_ARROW}{row.name}"
    return Cell(_name_changed_operation(row, most=120, has_range=False), hint=both[:2_000])


def _if_counted(key: str, sides: Sequence[str] = ("base", "head")) -> Callable[[OperationDelta], int | str]:
    """Read a change where operations are counted on these sides; empty elsewhere."""
    counts = [f"{side}_count" for side in sides]
    return lambda row: "" if any(getattr(row, name) is None for name in counts) else getattr(row, key)


def _write_counts(row: Any, template: str = "{:,.0f}") -> str:
    def write(count: float) -> str:
        return template.format(count) if count >= 10 or count == int(count) else f"{count:.1f}"

    known = row.base_count is not None and row.head_count is not None
    return _pair(write(row.base_count), write(row.head_count)) if known else ""


def _pair(base: str, head: str) -> str:
    return base if base == head else f"{base}{_ARROW}{head}"


def build_operations(comparison: Comparison) -> Section | None:
    """Make how much calls, time per call, and time without calls changed; `None` where nothing did."""
    found = comparison.deltas.operations
    if not found:
        return None
    counted = [row for row in found if row.base_count is not None and row.head_count is not None]
    parts_ns = {
        "the number of calls": sum(row.count_delta_ns for row in counted),
        "time per call and overlap": sum(row.rate_delta_ns for row in counted),
        "time without calls, such as idle time": sum(row.delta_ns for row in found if row not in counted),
    }
    answer = (
        f"{', '.join(f'{units.signed_duration(ns)} from {name}' for name, ns in parts_ns.items() if ns)}."
    )
    return Section("operations", "Operations that changed", answer, (tabulate_operations(comparison),))


def sum_operations(comparison: Comparison) -> Grid:
    """Make what Markdown shows of the operations; the rest is added up."""
    table = tabulate_operations(comparison)
    return _sum_rest(table, comparison.deltas.operations, _MOST_OPERATIONS_IN_MARKDOWN, "the rest")


def tabulate_communication(comparison: Comparison) -> Grid:
    """Make a table of communication by axis: its change on a terminal, both sides on a page."""

    def change(name: str) -> Callable[[Any], int]:
        return lambda row: getattr(row, f"head_{name}") - getattr(row, f"base_{name}")

    def both(name: str, write: Callable[[Any], str], *, is_twice: bool = False) -> Callable[[Any], str]:
        def write_both(row: Any) -> str:
            base, head = (write(getattr(row, f"{side}_{name}")) for side in ("base", "head"))
            return f"{base}{_ARROW}{head}" if is_twice else _pair(base, head)

        return write_both

    def sizes(row: Any) -> str:
        is_known = row.base_bytes is not None and row.head_bytes is not None
        return both("bytes", units.size, is_twice=True)(row) if is_known else "unknown"

    time, share = units.milliseconds, units.percent
    interval = partial(write_tested_interval, among="axes")
    columns = (
        Column("axis", "axis", "text", "the dimension of the job that it is for"),
        on_terminal("change", "time, 95 % CI", "plain", "", write_change, widths=_NARROW),
        on_terminal("delta_ns", "time", "signed_ms", widths=_BROAD),
        on_terminal("interval", "95 % CI", "plain", "", write_time_interval, widths=_BROAD),
        on_markdown("delta_ns", "time", "signed_ms"),
        on_page("delta_ns", "time", "signed_ms", "change of the time of the step that is attributed to it"),
        on_markdown("interval", "95 % interval", "plain", value=interval),
        on_page("interval", "95 % interval", "plain", _INTERVAL, interval),
        on_page("peer_wait_delta_ns", "peer wait", "signed_ms", _PEER_WAIT),
        on_terminal("exposed", "exposed", "signed_ms", "", change("exposed_ns")),
        on_terminal("work", "work", "signed_ms", "", change("work_ns"), widths=_BROAD),
        on_page("exposed", "exposed", "plain", _EXPOSED, both("exposed_ns", time)),
        on_terminal("hidden", "hidden", "plain", "", both("hidden_share", share, is_twice=True)),
        on_page("hidden", "hidden", "plain", _HIDDEN, both("hidden_share", share)),
        on_page("work", "work", "plain", "durations added up, base and head", both("work_ns", time)),
        on_terminal("bytes", "bytes", "plain", "", sizes),
        on_page("bytes", "bytes", "plain", "as NCCL counts them, base and head", both("bytes", units.size)),
        on_page("count", "calls per step", "plain", "operations per step, base and head", _write_counts),
    )
    brief = "Communication: change of its time in the step, exposed time, and duration"
    return tabulate("Communication by axis", columns, comparison.communication, brief=brief, is_wordy=True)


def build_communication(comparison: Comparison) -> Section | None:
    """Make volume, exposure, what is hidden, waiting for peers; `None` where neither side communicates."""
    found = comparison.communication
    if not found:
        return None
    answer = (
        f"The time of communication changed by {units.signed_duration(sum(row.delta_ns for row in found))},"
        f" and waiting for peers by {units.signed_duration(sum(row.peer_wait_delta_ns for row in found))}."
    )
    blocks = (tabulate_communication(comparison),)
    return Section("communication", "Communication", answer, blocks, wall=Wall.COMMUNICATION)


def tabulate_rank_changes(comparison: Comparison, most: int | None = None) -> Grid:
    """Make a table of other ranks that both sides have."""
    columns = (
        Column("rank", "rank", value=name_rank_of, brief="other ranks"),
        Column("base_typical_ns", "base", "ms"),
        Column("head_typical_ns", "head", "ms"),
        Column("ratio", "change", "signed_percent", "", lambda row: row.ratio - 1),
    )
    title = f"Typical {comparison.window} of the other ranks"
    return tabulate(title, columns, comparison.ranks[:most], brief="Other ranks")


def build_rank_changes(comparison: Comparison) -> Section | None:
    """Make whether it is every rank; `None` where both sides have one alone."""
    ranks, margin_ratio = comparison.ranks, comparison.step.margin_ratio
    if not ranks:
        return None
    slower = sum(row.ratio > 1 + margin_ratio for row in ranks)
    faster = sum(row.ratio < 1 / (1 + margin_ratio) for row in ranks)
    answer = (
        f"Of {units.plural(len(ranks), 'other rank')} {slower} took longer and {faster} shorter,"
        f" by more than {units.percent(margin_ratio)}."
    )
    return Section("ranks", "Other ranks", answer, (tabulate_rank_changes(comparison),))


def build_step_changes(report: ComparisonReport) -> Section:
    """Make whether it is every step."""
    comparison = report.comparison
    step, unit = comparison.step, comparison.window
    decides = "mean of all" if step.compared == "mean" else "typical one"
    answer = (
        f"All {unit}s on one scale; the {decides} is compared. Slow ones, over 1.25 times the median:"
        f" {step.base_slow_steps} of {step.base_steps} in base,"
        f" {step.head_slow_steps} of {step.head_steps} in head."
    )
    columns = (Column("name", "of the steps"), *_SIDES, Column("change", "change", "signed_ms"))
    lengths = (
        ("typical", "mean of those of ordinary length", step.base_typical_ns, step.head_typical_ns),
        ("median", "of all that count", step.base_median_ns, step.head_median_ns),
        ("p90", "of all that count", step.base_p90_ns, step.head_p90_ns),
        ("mean", "of all that count, slow ones included", step.base_mean_ns, step.head_mean_ns),
    )
    counts = (
        ("steps that count", step.base_steps, step.head_steps),
        ("slow ones", step.base_slow_steps, step.head_slow_steps),
        ("runs", step.base_runs, step.head_runs),
    )
    rows: tuple[Row, ...] = (
        *((Cell(name, hint=hint), base, head, head - base) for name, hint, base, head in lengths),
        *(
            (name, units.number(base), units.number(head), f"{head - base:+,}" if head != base else "0")
            for name, base, head in counts
        ),
    )
    table = Grid(f"Lengths of the {unit}s that count", columns, rows)
    return Section("steps", "Steps", answer, (draw_both_steps(report), table))


def build_comparability(report: ComparisonReport) -> Section:
    """Make whether they can be compared, and what differs in addition to time."""
    found = report.comparison.mismatches
    tuned = sum(entry.severity == "changed" for entry in found)
    reasons = [f"{one.what}, {one.base} and {one.head}" for one in found if one.severity == "incomparable"]
    answer = "Yes; nothing that a capture shows was changed between them."
    if not report.comparison.comparable:
        answer = f"No: {'; '.join(reasons)}."
    elif tuned:
        names = ", ".join(entry.what for entry in found if entry.severity == "changed")
        answer = f"Yes; {units.plural(tuned, 'other difference')}: {visible(names, most=200)}."
    tables = (tabulate_mismatches(report.comparison),) if found else ()
    return Section("comparable", "Comparability", answer, (*tables, _tabulate_sides(report)))


def tabulate_mismatches(comparison: Comparison) -> Grid:
    """Make a table of what differs in addition to time."""
    columns = (
        on_markdown("what", "what differs", "plain", is_right=False),
        on_page("what", "what differs"),
        *(on_markdown(side, side, most=500, is_right=True) for side in ("base", "head")),
        *(on_page(side, side) for side in ("base", "head")),
        on_page("severity", "what follows", value=lambda entry: _FOLLOWS[entry.severity]),
        Column("effect", "bias", "text", "in which direction this biases the comparison"),
    )
    return tabulate("Differences between the captures", columns, comparison.mismatches, is_wordy=True)


def _tabulate_sides(report: ComparisonReport) -> Grid:
    comparison = report.comparison
    base, head = (
        {
            "name": entry.name,
            "commit": entry.commit or "unknown",
            "testbed": entry.testbed or "unknown",
            "GPU": entry.gpu or "unknown",
            "rank that is compared": name_rank_of(entry),
            "ranks of the job": units.number(side.work.world_size),
            "tokens a step": units.number(side.work.tokens_per_step),
            "CUDA graphs": str(side.work.graphs),
            "steps by": side.work.name or side.work.kind,
        }
        for entry, side in ((comparison.base, report.base), (comparison.head, report.head))
    )
    rows = ((name, base[name], head[name]) for name in base)
    return list_pairs("The sides", ("of", "base", "head"), rows)
