"""A comparison in every medium: whether to revert comes first, then the change of walls and operations."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from rich.console import RenderableType

from wallscope import units
from wallscope.compare.comparability import KERNELS_DIFFER
from wallscope.model.comparison import Comparison, Mismatch, OperationChange
from wallscope.model.report import ComparisonReport
from wallscope.model.section import (
    Cell,
    Column,
    Grid,
    Items,
    Line,
    Lines,
    Section,
    Span,
    Tone,
    append_row,
    on_markdown,
    on_page,
    on_terminal,
    tabulate,
)
from wallscope.render.data import write_junit
from wallscope.render.html import FirstScreen, build_sides, render_page, write_card
from wallscope.render.markdown import code, escape, render_table
from wallscope.render.terminal import render_sections
from wallscope.render.texts import drop_namespaces, shorten_range_path, visible
from wallscope.thresholds.verdict import EXPLAINING_SHARE, SHOWN_CHANGE_SHARE
from wallscope.views import comparison_words as words
from wallscope.views.comparison_answers import explain_wide_intervals
from wallscope.views.comparison_statement import ChangeStatement, state_comparison
from wallscope.views.comparison_words import (
    TIMES,
    describe_calls,
    describe_kernels,
    describe_place,
    is_of_overlap,
    select_operations,
    write_calls,
    write_change,
    write_tested_interval,
    write_time_interval,
)
from wallscope.views.sections import comparison as sections
from wallscope.views.sections.findings import build_comparison_methods

_MOST_EXPLANATIONS, _MOST_OPERATIONS, _MOST_NOTES, _MOST_RANKS = 4, 5, 3, 8
_MOST_OPERATIONS_IN_MARKDOWN = 10
_MOST_DIFFERENCES, _MOST_CAUSES_FIRST, _MOST_CONFOUNDERS, _MOST_CARDS = 6, 5, 2, 3
OPERATIONS_TITLE = f"Operations: calls{TIMES}time per call in one step"
_WIDE, _MOST_ON_PAGE = 120, 60
_WATERFALL_CELLS, _SHORT_STEP_NS = 16, 1_000_000


def render_comparison(comparison: Comparison, *, full: bool = False, named: str = "") -> RenderableType:
    """Render a comparison for a terminal: what decides whether to revert; if `full`, all tables too.

    `named` is how the user named head, for the command to run next.
    """
    told = state_comparison(comparison, named)
    parts = [*_build_first_part(comparison, told), *(_build_full_part(comparison) if full else ())]
    return render_sections([*parts, *_build_last_part(comparison, told, full=full)])


def _build_first_part(comparison: Comparison, told: ChangeStatement) -> Iterator[Section | Grid]:
    """Make the verdict, the time by wall, what explains it, and operations."""
    yield Section("head", "", "", (Lines(tuple(_describe_comparison_head(comparison, told))),))
    if comparison.verdict != "incomparable":
        yield tabulate_waterfall(comparison)
    if words.select_operations(comparison, 1):
        yield list_operation_changes(comparison, _MOST_OPERATIONS)
    if told.missing:
        yield Section("missing", "", "", (Lines((told.missing,)),))
    least_ns = EXPLAINING_SHARE * comparison.step.base_ns
    found = [
        (size_ns, text) for size_ns, text in told.explained if size_ns is None or abs(size_ns) >= least_ns
    ]
    if found:
        rows = tuple(
            ("" if delta_ns is None else units.signed_duration(delta_ns), text)
            for delta_ns, text in found[:_MOST_EXPLANATIONS]
        )
        yield Section("explanations", "What explains it", "", (Items(rows, ("right", "text")),))

    if told.applied:
        yield Section("applied", "Recommendations that were applied", "", (Lines(told.applied),))


def _build_full_part(comparison: Comparison) -> Iterator[Section | Grid]:
    """Make the tables of causes, operations, communication and ranks."""
    if comparison.deltas.causes:
        yield sections.list_cause_changes(comparison)
        yield sections.tabulate_operations(comparison)
    if any(row.delta_ns for row in comparison.communication):
        yield sections.tabulate_communication(comparison)
    if comparison.ranks:
        yield sections.tabulate_rank_changes(comparison, _MOST_RANKS)


def _build_last_part(
    comparison: Comparison, told: ChangeStatement, *, full: bool
) -> Iterator[Section | Grid]:
    """Make what differs between the sides, gates, and what to do next."""
    title = "Comparability" if comparison.comparable else "Not comparable"
    if lines := tuple(_describe_mismatches(comparison, told, full=full)):
        yield Section("mismatches", title, "", (Lines(lines),))
    if comparison.gates:
        gates = []
        for gate in comparison.gates:
            text = f"{gate.gate}: {gate.evidence}"
            gates.append((Span(f"held    {text}") if gate.held else Span(f"FAILED  {text}", "bad"),))
        yield Section("gates", "Gates", "", (Lines(tuple(gates)),))
    yield Section("sure", "Confidence", "", (Lines((told.sureness,)),))
    todo = [*told.next_steps]
    todo += [] if full else ["All causes, operations and ranks: add --full, or --html FILE"]
    if todo:
        yield Section("next", "Next", "", (Lines(tuple(todo)),))


def _describe_comparison_head(comparison: Comparison, told: ChangeStatement) -> Iterator[Line]:
    sides = f"{visible(comparison.base.name, most=60)} → {visible(comparison.head.name, most=60)}"
    yield sides
    yield (Span(" · ".join(told.sides), "dim"),)
    if told.testbeds:
        yield (Span(told.testbeds, "dim"),)
    yield ""
    yield Span(told.word, told.tone), f": {told.reason}."
    yield from filter(None, (told.sentence, told.of_head, told.doubt))
    for entry in told.confounders[:_MOST_CONFOUNDERS]:
        yield Span("Caution", "doubt"), f"  {words.describe_mismatch(entry)}"


def _is_repeated(entry: Mismatch) -> bool:
    """Return whether a difference is one of the kernels that the operations show already."""
    return entry.what == KERNELS_DIFFER and entry.severity == "changed"


def _describe_mismatches(comparison: Comparison, told: ChangeStatement, *, full: bool) -> Iterator[Line]:
    most = len(comparison.mismatches) if full else _MOST_NOTES
    stated = told.confounders[:_MOST_CONFOUNDERS]
    listed = [one for one in comparison.mismatches if one not in stated and (full or not _is_repeated(one))]
    for entry in listed[:most]:
        tone: Tone | None = "strong" if entry.severity == "incomparable" else None
        yield (Span(words.describe_mismatch(entry), tone),)
    if left := listed[most:]:
        yield (Span(f"{units.plural(len(left), 'more difference')}: --full", "dim"),)


def write_comparison_markdown(comparison: Comparison) -> str:
    """Write it for pull requests and job summaries; foreign names can't make links or mentions."""
    told = state_comparison(comparison)
    names = f"{code(comparison.base.name)} → {code(comparison.head.name)}"
    lines = [
        f"### wallscope: {told.word.lower()}",
        "",
        f"{names} · {escape(' · '.join(told.sides))}  ",
        *([f"{escape(told.testbeds)}  "] if told.testbeds else []),
        f"**{escape(told.opening)}**",
        "",
        escape(" ".join(filter(None, (told.sentence, told.of_head)))),
        "",
        *(f"**Caution:** {escape(words.describe_mismatch(entry))}  " for entry in told.confounders),
        escape(told.certainty),
        "",
    ]
    lines += render_table(_tabulate_gates(comparison)) if comparison.gates else []
    lines += render_table(sections.sum_walls(comparison))
    if told.explained:
        lines += ["**What explains it**", ""]
        for delta_ns, text in told.explained:
            size = "" if delta_ns is None else f"**{units.signed_duration(delta_ns)}** "
            lines.append(f"- {size}{escape(text)}")
        lines += [""]
    if told.applied:
        lines += ["**Recommendations that were applied**", ""]
        lines += [*(f"- {escape(text)}" for text in told.applied), ""]
    if words.select_operations(comparison, 1):
        lines += [f"**{OPERATIONS_TITLE}**", ""]
        lines += render_table(list_operation_changes(comparison, _MOST_OPERATIONS_IN_MARKDOWN))
    if told.missing:
        lines += [escape(told.missing), ""]
    lines += render_table(sections.tabulate_mismatches(comparison)) if comparison.mismatches else []
    todo = " ".join(told.next_steps)
    lines += [f"Next: {escape(todo)}", ""] if todo else []
    if comparison.deltas.causes:
        lines += ["<details><summary>Causes and operations</summary>", ""]
        lines += render_table(sections.sum_causes(comparison))
        lines += [*render_table(sections.sum_operations(comparison)), "</details>", ""]
    return "\n".join(lines).rstrip() + "\n"


def _tabulate_gates(comparison: Comparison) -> Grid:
    def name_state(gate: Any) -> Cell:
        return Cell("held") if gate.held else Cell("failed", tone="strong")

    columns = (
        on_markdown("gate", "gate", "code", most=120),
        on_markdown("held", "", value=name_state),
        on_markdown("evidence", "evidence", most=500),
    )
    return tabulate("Gates", columns, comparison.gates)


def write_comparison_card(comparison: Comparison) -> str:
    """Write what a notebook shows: the verdict, and walls of both sides with their difference."""
    told = state_comparison(comparison)
    step, sides = comparison.step, (Column("base", "base", "ms"), Column("head", "head", "ms"))
    columns = (Column("wall", "wall"), *sides, Column("change", "change", "signed_ms"))
    walls = [(str(row.wall), row.base_ns, row.head_ns) for row in comparison.deltas.walls]
    walls.append(("all", step.base_ns, step.head_ns))
    rows = tuple((name, base_ns, head_ns, head_ns - base_ns) for name, base_ns, head_ns in walls)
    names = f"{comparison.base.name} → {comparison.head.name}"
    return write_card(names, (told.opening, told.sentence), Grid("", columns, rows), {}, ())


def write_comparison_junit(comparison: Comparison) -> str:
    """Write a test case a gate; without gates one, which fails by a regression."""
    told = state_comparison(comparison)
    change = f"{told.opening} {told.sentence}".rstrip()
    is_held = comparison.verdict not in {"regression", "incomparable"}
    cases = [(gate.gate, gate.held, gate.evidence) for gate in comparison.gates]
    return write_junit("diff", cases or [("verdict", is_held, f"{comparison.verdict}: {change}")], change)


def write_comparison_page(report: ComparisonReport) -> str:
    """Write the comparison as one HTML file."""
    comparison = report.comparison
    told = state_comparison(comparison)
    names = f"{comparison.base.name} → {comparison.head.name}"
    shown = (
        sections.build_step_changes(report),
        sections.build_cause_changes(comparison),
        build_operation_changes(comparison, told),
        sections.build_rank_changes(comparison),
        sections.build_operations(comparison),
        sections.build_communication(comparison),
        sections.build_comparability(report),
        build_comparison_methods(report),
    )
    taken = [
        f"{name} captured {units.utc(side.inputs[0].session_start_utc_ns)}"
        for name, side in (("base", report.base), ("head", report.head))
    ]
    times_ns = {
        side: {row.wall: getattr(row, f"{side}_ns") for row in comparison.deltas.walls}
        for side in ("base", "head")
    }
    first = FirstScreen(
        f"{names}: {told.word.lower()}",
        (names, *told.sides, *taken),
        told.word,
        told.answers,
        build_sides(times_ns, lambda side, wall: units.duration(times_ns[side][wall])),
        f"{comparison.step.compared} {comparison.window}, base → head",
        verdict=comparison.verdict,
        sentence=told.sentence,
        brief=(names,),
    )
    return render_page(
        "comparison.html.j2",
        first,
        shown,
        comparison=comparison,
        told=told,
        more=_list_details(comparison, told),
        version=comparison.wallscope_version,
    )


def _list_details(comparison: Comparison, told: ChangeStatement) -> dict[str, Any]:
    """List what the first screen shows below the answers: causes, gates, doubts and differences."""
    changed = comparison.deltas.causes
    least_ns = comparison.step.base_ns * SHOWN_CHANGE_SHARE
    shown = max(sum(abs(row.delta_ns) >= least_ns for row in changed[:_MOST_CAUSES_FIRST]), 1)
    return {
        "walls": sections.sum_walls(comparison),
        "walls_note": explain_wide_intervals(comparison),
        "cautions": [words.describe_mismatch(entry) for entry in told.confounders],
        "gates": sorted(comparison.gates, key=lambda gate: gate.held),
        "failed": sum(not gate.held for gate in comparison.gates),
        "causes": changed[:shown],
        "left": len(changed) - min(shown, _MOST_CARDS),
        "differences": comparison.mismatches[:_MOST_DIFFERENCES],
        "more_differences": max(len(comparison.mismatches) - _MOST_DIFFERENCES, 0),
    }


def tabulate_waterfall(comparison: Comparison) -> Grid:
    """Make how the step of base becomes that of head on a terminal: the change of each wall, then of all."""
    step = comparison.step
    least_ns = SHOWN_CHANGE_SHARE * max(step.base_ns, step.head_ns)
    walls = [row for row in comparison.deltas.walls if max(row.base_ns, row.head_ns) >= least_ns]
    down_ns = max((-row.delta_ns for row in walls if row.delta_ns < 0), default=0)
    up_ns = max((row.delta_ns for row in walls), default=0)
    scale = _WATERFALL_CELLS / max(down_ns + up_ns, step.margin_ratio * step.base_ns, 1)

    def bar(row: Any) -> Cell:
        cells = "█" * max(round(abs(row.delta_ns) * scale), 1 if abs(row.delta_ns) >= least_ns else 0)
        before, after = (cells, "") if row.delta_ns < 0 else ("", cells)
        return Cell(f"{before.rjust(round(down_ns * scale))}│{after}", row.wall)

    is_short = max(step.base_ns, step.head_ns) < _SHORT_STEP_NS
    unit, factor = ("µs", 1_000) if is_short else ("ms", 1)

    def write(time_ns: int) -> str:
        return units.milliseconds(factor * time_ns, is_bare=True)

    def write_signed(time_ns: int) -> str:
        return units.signed_milliseconds(factor * time_ns, is_bare=True)

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
    total_ns = step.change_ns
    whole = f"{write(step.base_ns)} → {write(step.head_ns)}"
    title = f"Time breakdown of the {step.compared} {comparison.window}"
    last = {unit: Cell(comparison.window, tone="strong"), "base → head": Cell(whole, tone="strong")}
    last["change"] = Cell(write_signed(total_ns), tone="strong")
    if ends := sections.find_step_interval(step):
        last["95 % CI"] = Cell(" … ".join(map(write_signed, ends)))
    return append_row(tabulate(title, columns, walls), last)


def list_operation_changes(comparison: Comparison, most: int) -> Grid:
    """Make operations by NVTX range that are new, gone, replaced or changed, as calls and time per call."""
    rows = select_operations(comparison, most)
    interval = partial(write_tested_interval, among="operations")
    calls = f"calls{TIMES}time per call"
    columns = (
        on_terminal("change", "change, 95 % CI", "plain", "", write_change, widths=(0, _WIDE)),
        on_terminal("delta_ns", "change", "signed_duration", widths=(_WIDE, 1 << 30)),
        on_terminal("interval", "95 % CI", "plain", "", write_time_interval, widths=(_WIDE, 1 << 30)),
        on_markdown("delta_ns", "change", "signed_duration"),
        on_page("delta_ns", "change", "signed_duration"),
        on_markdown("interval", "95 % interval", "plain", value=interval),
        on_page("interval", "95 % interval", "plain", "of the change", interval),
        on_terminal("kind", "", "text", "", _name_kind_briefly, widths=(0, _WIDE)),
        on_terminal("kind", "", "text", widths=(_WIDE, 1 << 30)),
        on_markdown("kind", "", "text"),
        on_page("kind", "", "text"),
        on_terminal("place", "operation", "text", "", _name_place, widths=(0, _WIDE), wrap="cut"),
        on_terminal("place", "operation", value=describe_place, widths=(_WIDE, 1 << 30), wrap="cut"),
        on_terminal("kernels", "kernel", value=describe_kernels, widths=(_WIDE, 1 << 30), wrap="cut"),
        on_markdown("place", "operation", value=describe_place, most=500),
        on_markdown("kernels", "kernel", value=describe_kernels, most=500),
        on_page(
            "place", "operation", "text", "kind of work, and the NVTX ranges around it", _place_with_hint
        ),
        on_page("kernels", "kernel", "text", "the one that runs longest, base and head", describe_kernels),
        on_terminal("calls", calls, "plain", "", write_calls, is_right=False, widths=(0, _WIDE)),
        on_terminal("calls", calls, "plain", "", describe_calls, is_right=False, widths=(_WIDE, 1 << 30)),
        on_markdown("calls", calls, "plain", "", describe_calls, is_right=False),
        on_page("calls", calls, "plain", "", describe_calls, is_right=False),
    )
    return tabulate(OPERATIONS_TITLE, columns, rows)


def build_operation_changes(comparison: Comparison, told: ChangeStatement) -> Section | None:
    """Make which operations are new, gone, replaced or changed; `None` where none is."""
    table = list_operation_changes(comparison, _MOST_ON_PAGE)
    if not table.rows:
        return None
    counts = Counter(row.kind for row in select_operations(comparison, _MOST_ON_PAGE))
    least = units.percent(float(EXPLAINING_SHARE))
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in sorted(counts))
    answer = f"Operations that change the step by {least} of base or more, by NVTX range: {kinds}."
    answer += f" {told.missing}" if told.missing else ""
    return Section("operation-changes", "New, gone and changed operations", answer, (table,))


def _place_with_hint(row: OperationChange) -> Cell:
    return Cell(describe_place(row), row.wall, row.path)


def _name_kind_briefly(row: OperationChange) -> str:
    """Name the kind; a change of overlap reads "+11.8 ms exposed"."""
    return "exposed" if is_of_overlap(row) else row.kind


def _name_place(row: OperationChange) -> str:
    """Name the operation in few words; of replaced kernels without a range, the new one."""
    if row.path:
        return f"{row.category} in {shorten_range_path(row.path.rpartition(' / ')[2])}"
    return f"{describe_place(row)}{f' ({visible(drop_namespaces(row.name))})' if row.name else ''}"
