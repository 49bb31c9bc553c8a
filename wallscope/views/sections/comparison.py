"""What became of the step, and why? Walls, causes, operations, communication, ranks; are sides comparable?"""

from collections.abc import Callable, Sequence
from typing import Any

from wallscope import units
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.comparison import (
    Comparison,
    MismatchSeverity,
    OperationDelta,
    RankChange,
    StepChange,
)
from wallscope.model.enums import Wall
from wallscope.model.report import ComparisonReport
from wallscope.model.section import (
    Block,
    Cell,
    Column,
    Grid,
    Limit,
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
from wallscope.views.comparison_phrases import name_operation
from wallscope.views.sections.findings import list_pairs
from wallscope.views.words import COMPARISON_WORDS, WALL_WORDS

_MOST_CAUSES, _MOST_OPERATIONS = 6, 8
_MOST_CAUSES_IN_MARKDOWN, _MOST_OPERATIONS_IN_MARKDOWN = 8, 10
_MOST_OPERATIONS_ON_PAGE = 60
_WIDE = 136
_ARROW = " → "
_FOLLOWS: dict[MismatchSeverity, str] = {
    "incomparable": "no verdict",
    "changed": "part of what is compared",
    "note": "to be kept in mind",
}
_REPLICATION = {
    "runs": "Runs were taken as what varies: Student's interval on the logarithms of their typical steps.",
    "steps": "One run a side: blocks of consecutive steps were drawn again and again, from a seed made of the"
    " lengths of the steps, so that the same captures give the same interval. What runs differ by is added.",
    "same": "Both sides are the same capture: nothing varies.",
    "none": "Too few steps or nothing that varies: there is no interval.",
}


def tabulate_walls(comparison: Comparison) -> Grid:
    """Make a table of the walls of both sides; the one that changed most is stressed on the page."""
    largest_ns = max(abs(row.delta_ns) for row in comparison.deltas.walls)

    def name(row: Any) -> Cell:
        is_largest = largest_ns > 0 and abs(row.delta_ns) == largest_ns
        return Cell(str(row.wall), row.wall, WALL_WORDS[row.wall], tone="strong" if is_largest else None)

    columns = (
        on_terminal("wall", "", value=lambda row: Cell(str(row.wall), row.wall)),
        on_markdown("wall", "wall"),
        on_page("wall", "wall", value=name),
        Column("base_ns", "base", "ms"),
        Column("head_ns", "head", "ms"),
        Column("delta_ns", "change", "signed_ms", "head less base"),
        on_terminal("interval", "95 % interval", "plain", "", _write_interval),
        on_page("interval", "95 % interval", "plain", "of the change", _write_interval, widths=(1, 1)),
    )
    title = f"Who pays for the typical {comparison.window}, each nanosecond once"
    return tabulate(title, columns, comparison.deltas.walls)


def sum_walls(comparison: Comparison) -> Grid:
    """Make the same table with the change of the step beneath."""
    step = comparison.step
    window = Cell(comparison.window, tone="strong")
    sums: dict[str, Value | Cell] = {
        "": window,
        "wall": window,
        "base": step.base_typical_ns,
        "head": step.head_typical_ns,
        "change": Cell(step.head_typical_ns - step.base_typical_ns, tone="strong"),
    }
    return append_row(tabulate_walls(comparison), sums)


def _write_interval(row: Any) -> str:
    """Write both ends of an interval; empty where it is not known, or nothing can vary."""
    if row.low_ns is None or row.high_ns is None or row.low_ns == row.high_ns:
        return ""
    return f"{units.signed_milliseconds(row.low_ns)} … {units.signed_milliseconds(row.high_ns)}"


def _tabulate_causes(comparison: Comparison, most: int | None = None) -> Grid:
    columns = (
        on_terminal("cause", "cause", value=lambda row: Cell(row.cause, row.wall), most=60),
        on_markdown("cause", "cause", most=500),
        on_page("cause", "cause", "text", "wall/cause[/detail]", lambda row: Cell(row.cause, row.wall)),
        on_page("meaning", "what it is", value=lambda row: describe_cause(row.cause)),
        Column("base_ns", "base", "ms", f"what it owns of base's typical {comparison.window}"),
        Column("head_ns", "head", "ms", f"what it owns of head's typical {comparison.window}"),
        Column("delta_ns", "change", "signed_ms"),
        on_page("interval", "95 % interval", "plain", _TOLD_BY, _write_interval),
    )
    title = "Causes that changed; they add up to the change"
    return tabulate(title, columns, comparison.deltas.causes[:most], brief="Why", is_wordy=True)


_TOLD_BY = "of the change; empty where too few steps tell it"


def build_causes(comparison: Comparison) -> Section:
    """Make what exactly changed."""
    step, rows = comparison.step, comparison.deltas.causes
    if not rows:
        return Section("causes", "What exactly?", "No cause changed.", ())
    grew = sum(row.delta_ns for row in rows if row.delta_ns > 0)
    shrank = sum(row.delta_ns for row in rows if row.delta_ns < 0)
    answer = (
        f"Causes that grew add {units.signed_duration(grew)},"
        f" those that shrank {units.signed_duration(shrank)}:"
        f" {units.signed_duration(step.head_typical_ns - step.base_typical_ns)} together."
    )
    return Section("causes", "What exactly?", answer, (draw_way(comparison), _tabulate_causes(comparison)))


def list_causes(comparison: Comparison) -> Grid:
    """Make what a terminal shows of the causes; the rest is added up."""
    table, rest = _tabulate_causes(comparison, _MOST_CAUSES), comparison.deltas.causes[_MOST_CAUSES:]
    if not rest:
        return table
    others = Cell(units.plural(len(rest), "other cause"), tone="dim")
    return append_row(table, {"cause": others, "change": sum(row.delta_ns for row in rest)})


def sum_causes(comparison: Comparison) -> Grid:
    """Make what Markdown shows of the causes."""
    rest = comparison.deltas.causes[_MOST_CAUSES_IN_MARKDOWN:]
    left_ns = sum(row.delta_ns for row in rest)
    table = _tabulate_causes(comparison, _MOST_CAUSES_IN_MARKDOWN)
    return append_row(table, {"cause": "the rest", "change": left_ns})


def _tabulate_operations(rows: Sequence[OperationDelta], **settings: Any) -> Grid:
    columns = (
        on_terminal("name", "operation", value=_name_within(26), widths=(0, _WIDE), wrap="fixed"),
        on_terminal("name", "operation", value=_name_within(46), widths=(_WIDE, 1 << 30), wrap="fixed"),
        on_markdown("name", "operation", value=_name_within(80), most=500),
        on_markdown("cause", "owns time as", most=500),
        on_page("name", "operation", "text", _REPLACED, _name_with_hint),
        on_page("path", "in", "text", "NVTX ranges around it, their names folded"),
        on_page("cause", "owns time as", "text", "the cause that its time goes to", _mark_cause),
        Column("delta_ns", "change", "signed_ms"),
        on_markdown("count_delta_ns", "by count", "signed_ms"),
        on_markdown("rate_delta_ns", "by each", "signed_ms"),
        on_terminal("count_delta_ns", "by count", "signed_ms", "", _if_counted("count_delta_ns", ["base"])),
        on_terminal("rate_delta_ns", "by each", "signed_ms", "", _if_counted("rate_delta_ns", ["base"])),
        on_page("count_delta_ns", "by count", "signed_ms", _BY_COUNT, _if_counted("count_delta_ns")),
        on_page("rate_delta_ns", "by each", "signed_ms", _BY_EACH, _if_counted("rate_delta_ns")),
        on_terminal("count", "times a step", "plain", "", _write_counts("{:.0f}")),
        on_page("count", "times a step", "plain", _HOW_OFTEN, _write_counts("{:,.0f}")),
        on_terminal("cause", "owns time as", most=40, widths=(_WIDE, 1 << 30)),
        on_page("matched_by", "matched by", "text", "what says that both sides do the same"),
    )
    caption = "Operations by what their change makes of the step; they add up to the change"
    return tabulate(caption, columns, rows, is_wordy=True, **settings)


_REPLACED = "kernel, copy or call; both where one was replaced by the other"
_BY_COUNT = "what the change of how often it runs makes"
_BY_EACH = "the rest: what each of them owns"
_HOW_OFTEN = "how often it runs in the typical step of base and of head"


def _name_within(most: int) -> Callable[[OperationDelta], str]:
    return lambda row: name_operation(row, most)


def _name_with_hint(row: OperationDelta) -> Cell:
    both = row.name if row.name == row.base_name else f"{row.base_name}{_ARROW}{row.name}"
    return Cell(name_operation(row, most=120), hint=both[:2_000])


def _mark_cause(row: OperationDelta) -> Cell:
    return Cell(row.cause, Wall(row.cause.partition("/")[0]))


def _if_counted(key: str, sides: Sequence[str] = ("base", "head")) -> Callable[[OperationDelta], int | str]:
    """Read a change where operations are counted on these sides; empty elsewhere."""
    return lambda row: (
        "" if any(getattr(row, f"{side}_count") is None for side in sides) else getattr(row, key)
    )


def _write_counts(template: str) -> Callable[[Any], str]:
    def write(row: Any) -> str:
        if row.base_count is None or row.head_count is None:
            return ""
        return _pair(*(write_one(count) for count in (row.base_count, row.head_count)))

    def write_one(count: float) -> str:
        return template.format(count) if count >= 10 or count == int(count) else f"{count:.1f}"

    return write


def _pair(base: str, head: str) -> str:
    return base if base == head else f"{base}{_ARROW}{head}"


def build_operations(comparison: Comparison) -> Section | None:
    """Make which operations, by their number or by what each owns; `None` where none changed."""
    found = comparison.deltas.operations
    if not found:
        return None
    answer = (
        f"{units.signed_duration(sum(row.count_delta_ns for row in found))} by how often they run,"
        f" {units.signed_duration(sum(row.rate_delta_ns for row in found))} by what each owns."
    )
    where = f", {_sum_rest(found, _MOST_OPERATIONS_ON_PAGE)} together, in --json."
    table = _tabulate_operations(found, limits={"page": Limit(_MOST_OPERATIONS_ON_PAGE, "more row", where)})
    return Section("operations", "Which operations?", answer, (table,))


def _sum_rest(rows: Sequence[OperationDelta], most: int) -> str:
    return units.signed_duration(sum(row.delta_ns for row in rows[most:]))


def list_operations(comparison: Comparison) -> Grid:
    """Make what a terminal shows of the operations."""
    found = comparison.deltas.operations
    where = f", {_sum_rest(found, _MOST_OPERATIONS)} together: --json"
    limits = {"terminal": Limit(_MOST_OPERATIONS, "other row", where)}
    brief = "What changed most, of it by count and by time each"
    return _tabulate_operations(found, limits=limits, brief=brief)


def sum_operations(comparison: Comparison) -> Grid:
    """Make what Markdown shows of the operations; the rest is added up."""
    found, most = comparison.deltas.operations, _MOST_OPERATIONS_IN_MARKDOWN
    left_ns = sum(row.delta_ns for row in found[most:])
    return append_row(_tabulate_operations(found[:most]), {"operation": "the rest", "change": left_ns})


def tabulate_communication(comparison: Comparison) -> Grid:
    """Make a table of communication by axis: its change on a terminal, both sides on a page."""

    def change(name: str) -> Callable[[Any], int]:
        return lambda row: getattr(row, f"head_{name}") - getattr(row, f"base_{name}")

    def both(name: str, write: Callable[[Any], str]) -> Callable[[Any], str]:
        return lambda row: _pair(*(write(getattr(row, f"{side}_{name}")) for side in ("base", "head")))

    def hidden(row: Any) -> str:
        return f"{units.percent(row.base_hidden_share)}{_ARROW}{units.percent(row.head_hidden_share)}"

    def sizes(row: Any) -> str:
        if row.base_bytes is None or row.head_bytes is None:
            return "unknown"
        return f"{units.size(row.base_bytes)}{_ARROW}{units.size(row.head_bytes)}"

    time, share = units.milliseconds, units.percent
    columns = (
        Column("axis", "axis", "text", "the dimension of the job that it is for"),
        Column("delta_ns", "owns", "signed_ms", "change of the time that it owns"),
        on_page("peer_wait_delta_ns", "peer wait", "signed_ms", _PEER_WAIT),
        on_terminal("exposed", "exposed", "signed_ms", "", change("exposed_ns")),
        on_terminal("work", "work", "signed_ms", "", change("work_ns")),
        on_page("exposed", "exposed", "plain", _EXPOSED, both("exposed_ns", time)),
        on_terminal("hidden", "hidden", "plain", "", hidden),
        on_page("hidden", "hidden", "plain", _HIDDEN, both("hidden_share", share)),
        on_page("work", "work", "plain", "durations added up, base and head", both("work_ns", time)),
        on_terminal("bytes", "bytes", "plain", "", sizes),
        on_page("bytes", "bytes", "plain", "as NCCL counts them, base and head", both("bytes", units.size)),
        on_page("count", "times a step", "plain", "operations, base and head", _write_counts("{:,.0f}")),
    )
    brief = "Communication: change of what it owns, is exposed, and works"
    return tabulate("Communication by axis", columns, comparison.communication, brief=brief, is_wordy=True)


_PEER_WAIT = "of it, waiting for peers; part of unsplit time may be that too"
_EXPOSED = "time in which it ran beside no compute, base and head"
_HIDDEN = "share of its work beside compute, base and head"


def build_communication(comparison: Comparison) -> Section | None:
    """Make volume, exposure, what is hidden, waiting for peers; `None` where neither side communicates."""
    found = comparison.communication
    if not found:
        return None
    answer = (
        f"What communication owns changed by {units.signed_duration(sum(row.delta_ns for row in found))},"
        f" waiting for peers by {units.signed_duration(sum(row.peer_wait_delta_ns for row in found))} of it."
    )
    blocks = (tabulate_communication(comparison),)
    return Section("communication", "What of communication?", answer, blocks, wall=Wall.COMMUNICATION)


def tabulate_ranks(comparison: Comparison, most: int | None = None) -> Grid:
    """Make a table of other ranks that both sides have."""
    columns = (
        Column("rank", "rank", value=_name_rank, brief="other ranks"),
        Column("base_typical_ns", "base", "ms"),
        Column("head_typical_ns", "head", "ms"),
        Column("ratio", "change", "signed_percent", "", lambda row: row.ratio - 1),
    )
    title = f"Typical {comparison.window} of the other ranks"
    return tabulate(title, columns, comparison.ranks[:most], brief="Beside it")


def _name_rank(row: RankChange) -> str:
    return f"rank {row.rank}" if row.rank is not None else f"device {row.device}"


def build_ranks(comparison: Comparison) -> Section | None:
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
    return Section("ranks", "Is it every rank?", answer, (tabulate_ranks(comparison),))


def build_steps(report: ComparisonReport) -> Section:
    """Make whether it is every step."""
    comparison = report.comparison
    step, unit = comparison.step, comparison.window
    change_ns = step.head_median_ns - step.base_median_ns
    answer = (
        f"Median {units.duration(step.base_median_ns)}{_ARROW}{units.duration(step.head_median_ns)},"
        f" {units.signed_duration(change_ns)}. Slow ones, over 1.25 times the median:"
        f" {step.base_slow_steps} of {step.base_steps} in base,"
        f" {step.head_slow_steps} of {step.head_steps} in head."
    )
    columns = (
        Column("name", "of the steps"),
        Column("base", "base", "ms"),
        Column("head", "head", "ms"),
        Column("change", "change", "signed_ms"),
    )
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
    return Section("steps", "Is it every step?", answer, (draw_both_steps(report), table))


def build_comparability(report: ComparisonReport) -> Section:
    """Make whether they can be compared, and what was changed beside time."""
    found = report.comparison.mismatches
    tuned = sum(entry.severity == "changed" for entry in found)
    answer = "Yes; nothing that a capture tells was changed between them."
    if not report.comparison.comparable:
        reasons = [
            f"{entry.what}, {entry.base} and {entry.head}"
            for entry in found
            if entry.severity == "incomparable"
        ]
        answer = f"No: {'; '.join(reasons)}."
    elif tuned:
        answer = f"Yes; {units.plural(tuned, 'setting')} differ{'s' if tuned == 1 else ''} between them."
    tables = (tabulate_mismatches(report.comparison),) if found else ()
    return Section("comparable", "Can they be compared?", answer, (*tables, _tabulate_sides(report)))


def tabulate_mismatches(comparison: Comparison) -> Grid:
    """Make a table of what differs beside time."""
    columns = (
        on_markdown("what", "what differs", "plain", is_right=False),
        on_page("what", "what differs"),
        *(on_markdown(side, side, most=500, is_right=True) for side in ("base", "head")),
        *(on_page(side, side) for side in ("base", "head")),
        on_page("severity", "what follows", value=lambda entry: _FOLLOWS[entry.severity]),
    )
    return tabulate("What differs beside time", columns, comparison.mismatches, is_wordy=True)


def _tabulate_sides(report: ComparisonReport) -> Grid:
    comparison = report.comparison
    base, head = (
        {
            "name": entry.name,
            "commit": entry.commit or "not told",
            "testbed": entry.testbed or "not told",
            "GPU": entry.gpu or "unknown",
            "rank that is compared": _name_compared(entry.rank, entry.device),
            "ranks of the job": units.number(side.work.world_size),
            "tokens a step": units.number(side.work.tokens_per_step),
            "CUDA graphs": str(side.work.graphs),
            "steps by": side.work.name or side.work.kind,
        }
        for entry, side in ((comparison.base, report.base), (comparison.head, report.head))
    )
    return list_pairs(
        "The sides", ("of", "base", "head"), tuple((name, base[name], head[name]) for name in base)
    )


def _name_compared(rank: int | None, device: int | None) -> str:
    if rank is not None:
        return f"rank {rank}"
    return "unknown" if device is None else f"device {device}"


def build_methods(report: ComparisonReport) -> Section:
    """Make definitions, what the interval rests on, captures and versions."""
    comparison, step = report.comparison, report.comparison.step
    told = step.minimum_detectable_ratio
    rests = {
        "confidence": units.percent(step.confidence),
        "margin": f"{units.percent(step.margin_ratio)} and {units.duration(step.margin_ns)}",
        "ratio, head over base": f"{step.ratio:.4f}",
        "its interval": _write_ratios(step.ratio_low, step.ratio_high),
        "could be told": "unknown" if told is None else f"a change of {units.percent(told - 1)}",
        "the steps of this pair alone": _write_ratios(step.pair_ratio_low, step.pair_ratio_high),
        "deviation between runs": _write_noise(step),
        "scaled to tokens": "no" if step.tokens is None else units.number(step.tokens),
        "drawn again": _REPLICATION[step.replication],
    }
    versions = {"wallscope": comparison.wallscope_version, "comparison": comparison.schema}
    blocks: tuple[Block, ...] = (
        list_pairs("Words", ("word", "what it means"), tuple(COMPARISON_WORDS.items())),
        list_pairs("What the verdict rests on", ("of", "is"), tuple(rests.items())),
        _tabulate_captures(report),
        list_pairs("Versions", ("of", "is"), tuple(versions.items())),
    )
    answer = "Definitions, intervals, captures, versions."
    return Section("computed", "How is each number computed?", answer, blocks, is_open=False)


def _write_ratios(low: float | None, high: float | None) -> str:
    return "none" if low is None or high is None else f"{low:.4f} … {high:.4f}"


def _write_noise(step: StepChange) -> str:
    """Say what runs differ by, and who says so."""
    if step.run_noise is None:
        return "unknown"
    return f"{units.percent(step.run_noise)}, {step.run_noise_source or 'unknown whence'}"


def _tabulate_captures(report: ComparisonReport) -> Grid:
    columns = (
        Column("side", "side"),
        Column("name", "capture"),
        Column("taken", "taken"),
        Column("nsys_version", "nsys"),
        Column("hostname", "host"),
        Column("fingerprint", "fingerprint", "text", "of its content"),
        Column("findings", "findings", "text", "codes of what limits it: wallscope explain CODE"),
        Column("steps", "steps", "count", "that are listed above, counting or not"),
    )
    rows = []
    for name, side in (("base", report.base), ("head", report.head)):
        counts = dict(side.steps["run"].value_counts().iter_rows())
        rows += [
            (
                name,
                entry.name,
                units.utc(entry.session_start_utc_ns),
                entry.nsys_version or "unknown",
                entry.hostname or "unknown",
                entry.fingerprint,
                ", ".join(entry.findings) or "none",
                counts.get(run),
            )
            for run, entry in enumerate(side.inputs)
        ]
    return Grid("Captures", columns, tuple(rows), is_wordy=True)
