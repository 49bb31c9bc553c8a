"""Contents of an export, explanations, plans and checked configurations, as text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from wallscope import units
from wallscope.advice.condition_words import join_words, name_key
from wallscope.model.advice import (
    Advice,
    ConfigurationCheck,
    FeatureCheck,
    FileForm,
    Folding,
    FormKind,
    Item,
    MemoryEstimate,
    MemoryPlan,
    Preset,
    ShardedLayout,
    Sizes,
    WordExplanation,
)
from wallscope.model.capture import Contents, Finding, Gpu, Profiler, Severity
from wallscope.model.section import (
    Column,
    Grid,
    Items,
    Line,
    Lines,
    Row,
    Section,
    Span,
    Tone,
    on_terminal,
    tabulate,
)
from wallscope.render.texts import visible

_MOST_MISSING = 6
_MOST_LAYOUTS = 3
_UNKNOWN = "unknown"


def build_explanation(found: WordExplanation) -> Iterator[Section]:
    """Make the word and its meaning; a section each for the rest."""
    yield _head((Span(visible(found.word), "strong"), f" ({found.kind}): {found.meaning}"))
    yield from (Section("part", one.heading, "", (Lines(one.lines),)) for one in found.sections)


def build_contents(contents: Contents) -> Iterator[Section]:
    """Make identity, tables with row counts, and limits of an export."""
    from wallscope.views.sections.findings import build_findings  # noqa: PLC0415  # keeps explain fast

    columns = (Column("fact", "", wrap="fixed", tone="dim"), Column("value", "", wrap="words"))
    yield Section(
        "facts", "", "", (Grid("", columns, tuple(_list_capture_facts(contents)), has_header=False),)
    )
    yield Section("tables", "", "", tuple(_list_tables(contents)))
    yield build_findings(contents.findings)


def _list_capture_facts(contents: Contents) -> Iterator[Row]:
    from wallscope.views.sections.words import describe_profiler  # noqa: PLC0415  # keeps explain fast

    export = contents.export
    yield "export", f"{visible(export.name, most=100)}, {units.size(export.size_bytes)}"
    if export.profiler == Profiler.TORCH:
        yield "profiler", f"{describe_profiler(export)}, schema {export.schema_version or _UNKNOWN}"
    else:
        yield "nsys", f"{export.nsys_version or _UNKNOWN}, schema {export.schema_version or _UNKNOWN}"
    yield "host", export.hostname or _UNKNOWN
    yield "session start", units.utc(export.session_start_utc_ns)
    yield "captured", units.duration(contents.duration_ns)
    yield "traced", ", ".join(contents.traced) or _UNKNOWN
    yield "CUDA graphs", f"traced by {contents.graph_mode}" if contents.graph_mode else _UNKNOWN
    calling = contents.processes
    yield (
        "processes",
        f"{units.plural(calling, 'process')} with CUDA calls" if calling is not None else _UNKNOWN,
    )
    yield "GPUs", tuple(_describe_gpu(gpu) for gpu in export.gpus) or _UNKNOWN
    environment = tuple(f"{name}={value}" for name, value in export.environment.items())
    yield "environment", environment or "none of the variables that are read"


def _describe_gpu(gpu: Gpu) -> str:
    return (
        f"{gpu.id}: {gpu.name or _UNKNOWN}, {gpu.architecture or _UNKNOWN},"
        f" {units.number(gpu.sm_count)} SMs, {units.size(gpu.memory_bytes)}"
    )


def _list_tables(contents: Contents) -> Iterator[Grid | Lines]:
    columns = (
        on_terminal("row_count", "rows", "count", is_right=True, wrap="fixed"),
        on_terminal("rows_are", "of"),
        on_terminal("table", "table", wrap="fold", tone="dim"),
    )
    yield tabulate("", columns, [entry for entry in contents.tables if entry.row_count is not None])
    missing = [entry.rows_are for entry in contents.tables if entry.row_count is None]
    is_trace = contents.export.profiler == Profiler.TORCH
    if missing:
        lack = "Not in the trace" if is_trace else "Not captured or not exported"
        yield Lines((f"{lack}: {', '.join(missing)}.",))
    others = "other event category" if is_trace else "other table"
    yield Lines((f"{units.plural(contents.other_tables, others)} in the file, not listed here.",), "dim")


def build_advice(advice: Advice) -> Iterator[Section]:
    """Make the layout, the checklist in the order of work, and what was published nearby."""
    layout = advice.layout
    run = (f"{layout.gpus:,} x {advice.machine}", f"sequence {advice.seq_length:,}", advice.precision)
    yield _head((Span(" · ".join((advice.model, *run)), "strong"),))
    virtual = f", VPP{advice.virtual_pipeline}" if advice.virtual_pipeline else ""
    has_experts = advice.largest_expert > 1 or layout.sizes.expert > 1
    most = f"; EP could be up to {advice.largest_expert}" if has_experts else ""
    source = Span(f"from {advice.layout_source}{virtual}{most}", "dim")
    yield _build_layout(layout, (source,), has_experts=has_experts)
    if advice.memory is not None:
        yield _build_memory(advice, advice.memory)
    if advice.sharded:
        yield _build_sharded(advice.sharded, advice.largest_expert)
    for phase, items in groupby(advice.items, key=lambda item: item.phase):
        yield Section(phase, phase.capitalize(), "", (Items(tuple(_list_items(items))),))
    if advice.presets:
        presets = tuple(_describe_preset(preset) for preset in advice.presets)
        yield Section("presets", "Published configurations to start from", "", presets)
    if advice.bands:
        places = (
            f"{f'{band.gpus:,} GPUs' if band.gpus else ''} {band.precision or ''}".strip() or "any"
            for band in advice.bands
        )
        bands = Items(tuple(zip(places, (band.text for band in advice.bands), strict=True)))
        yield Section("bands", "Published TFLOP/s per GPU (not a prediction)", "", (bands,))


def _head(*lines: Line) -> Section:
    return Section("head", "", "", (Lines(lines),))


def _list_items(items: Iterable[Item]) -> Iterator[tuple[Line, ...]]:
    for item in items:
        yield "□", (item.text, Span(f" [{item.facts[0]}]", "dim"))
        yield from (("", (Span(str(setting), "setting"), "")) for setting in item.settings)


def _describe_preset(preset: Preset) -> Section:
    sizes = preset.sizes
    virtual = f" VPP{preset.virtual_pipeline}" if preset.virtual_pipeline else ""
    is_dense = preset.dispatcher == "-"
    experts = "" if is_dense else f" EP{sizes.expert}"
    sharded = " FSDP" if preset.fully_sharded else ""
    parts = [
        f"TP{sizes.tensor} PP{sizes.pipeline}{virtual} CP{sizes.context}{experts}{sharded}",
        *([] if is_dense else [f"dispatcher {_name_inherited(preset.dispatcher)}"]),
        f"graphs {_name_inherited(preset.cuda_graphs)}",
        f"recompute {_name_inherited(preset.recompute)}",
    ]
    if sizes.fewest_gpus > preset.gpus:
        parts.append(f"its published sizes need {sizes.fewest_gpus:,} GPUs")
    return Section("preset", (preset.name,), "", (Lines((" · ".join(parts),), "dim"),))


def _name_inherited(word: str) -> str:
    """Name a published value; `base` says that it comes from the recipe below."""
    return "inherited" if word == "base" else word.replace("(base)", " (inherited)")


def _build_layout(layout: Folding, *more: Line, has_experts: bool = True) -> Section:
    """Make both meshes, or the one of a model without experts, and the fewest GPUs."""
    sizes, pipeline = layout.sizes, f"PP{layout.sizes.pipeline}"
    dense = f"TP{sizes.tensor} x CP{sizes.context} x DP{layout.data} x {pipeline}"
    experts = f"ETP{sizes.expert_tensor} x EP{sizes.expert} x EDP{layout.expert_data} x {pipeline}"
    meshes = (f"attention  {dense}", f"experts    {experts}") if has_experts else (dense,)
    lines = (*meshes, f"needs {units.plural(layout.fewest_gpus, 'GPU')}, has {layout.gpus:,}")
    return Section("layout", "Layout", "", (Lines((*lines, *more)),))


def _build_memory(advice: Advice, memory: MemoryEstimate) -> Section:
    """Make the parts of the memory that a GPU needs, and what makes it fit."""
    capacity_bytes, feasible = advice.memory_capacity_bytes, advice.feasible
    parts = (
        ("weights", memory.weights_bytes),
        ("gradients", memory.gradients_bytes),
        ("optimizer", memory.optimizer_bytes),
        ("activations", memory.activations_bytes),
        ("logits", memory.logits_bytes),
    )
    shown = " + ".join(f"{name} {units.size(part_bytes)}" for name, part_bytes in parts)
    total = memory.total_bytes
    lines: list[Line] = [(f"{units.size(total)} without recomputation: {shown}",)]
    if capacity_bytes is not None and advice.planned is not None:
        lines.append(_describe_plan(advice.planned, total, capacity_bytes))
    if feasible:
        first = ", ".join(_write_sizes(sizes, advice.largest_expert) for sizes in feasible[:_MOST_LAYOUTS])
        fitting = f"{units.plural(len(feasible), 'layout')} fit without activations; the least split: {first}"
        lines.append((Span(fitting, "dim"),))
    return Section("memory", "Estimated memory per GPU", "", (Lines(tuple(lines)),))


def _describe_plan(plan: MemoryPlan, total_bytes: int, capacity_bytes: int) -> Line:
    """Say which levers make a plan fit, or by how much it does not."""
    needed_bytes, levers = plan.memory.total_bytes, plan.levers
    has_room = f"available per GPU: {units.size(capacity_bytes)}"
    pulled = []
    if levers.recompute:
        whole = levers.recompute == ("full",)
        pulled.append("whole layers recomputed" if whole else f"{', '.join(levers.recompute)} recomputed")
    pulled += ["moments in BF16"] if levers.short_moments else []
    pulled += ["the optimizer on the host"] if levers.offloads_optimizer else []
    said = f"{units.size(needed_bytes)} with {join_words(pulled, 'and')}" if pulled else ""
    if plan.fits is False:
        missing = units.size(needed_bytes - capacity_bytes)
        return (Span(f"{said or units.size(total_bytes)}: {missing} more than the GPU has", "warning"),)
    return (Span(f"{said}; {has_room}" if said else has_room, "strong" if said else "dim"),)


def _build_sharded(sharded: Sequence[ShardedLayout], largest_expert: int) -> Section:
    """Make the fully sharded layouts with most room, and how to set them."""
    lines: list[Line] = []
    for one in sharded[:_MOST_LAYOUTS]:
        layout, totals = one.layout, (units.size(one.memory.total_bytes), units.size(one.recomputed_bytes))
        experts = f", of experts {layout.expert_data}" if layout.sizes.expert > 1 else ""
        shards = f"{units.plural(layout.data * layout.sizes.context, 'shard')}{experts}"
        sizes = _write_sizes(layout.sizes, largest_expert)
        lines.append((f"{sizes} · {shards} · {totals[0]}, with full recomputation {totals[1]}",))
    names = " or ".join(sharded[0].implementations)
    note = (
        f"{units.plural(len(sharded), 'layout')} of {names} fit. Use FSDP layouts for a first run, or if"
        " pipeline stages are hard to balance. FSDP layouts need CUDA_DEVICE_MAX_CONNECTIONS unset or above 1"
    )
    return Section("sharded", "Fully sharded layouts (FSDP)", "", (Lines((*lines, (Span(note, "dim"),))),))


def _write_sizes(sizes: Sizes, largest_expert: int) -> str:
    """Write sizes, those of experts if there can be several groups of them."""
    experts = f" EP{sizes.expert}" if max(largest_expert, sizes.expert) > 1 else ""
    return f"TP{sizes.tensor} PP{sizes.pipeline} CP{sizes.context}{experts}"


_FORMS: Mapping[FormKind, str] = {
    FormKind.COMMAND: "a whole command ({program})",
    FormKind.ALTERNATIVES: "a command ({program}) with branches; what stands in one is unknown",
    FormKind.PARTS_ELSEWHERE: "a part of a command ({program}), which takes arguments from elsewhere",
    FormKind.DERIVED: (
        "a command of a derived program ({program}): no release of Megatron-LM has these flags,"
        " so its checks may be others"
    ),
    FormKind.OVERRIDES: "overrides ({program}); what the recipe or file below them sets is unknown",
    FormKind.WRAPPER: "a call of {program}, which may set arguments of its own",
    FormKind.SEVERAL_RUNS: "several runs ({program}); what differs between them is unknown",
    FormKind.FRAGMENT: "a fragment: nothing in it starts a program, so what it leaves out is unknown",
}


def describe_form(form: FileForm) -> str:
    """Say what a file is and what follows; empty for a file of settings or a log."""
    return _FORMS.get(form.kind, "").format(program=visible(form.program or "", most=60))


def _describe_stops(check: ConfigurationCheck) -> str:
    """Say whether the run stops; empty where the file cannot show it."""
    if check.stop_count:
        return f"{units.plural(check.stop_count, 'failed check')} that will stop the run"
    if check.stops_later:
        return "validation accepts this file, but training stops at its first step"
    if check.form.is_whole:
        return "no check finds an error that stops the run"
    conflicts = units.plural(len(check.conflicts), "failed check")
    return f"{conflicts} that would stop a run with these settings alone" if check.conflicts else ""


def build_check(
    check: ConfigurationCheck, name: str, quoted: Mapping[str, Sequence[str]], *, has_machine: bool
) -> Iterator[Section]:
    """Make what stops the run, then features that are on with all that is not met, then the others.

    Args:
        check: the result.
        name: of the file.
        quoted: lines of the file by id of the failed check that uses them.
        has_machine: whether the GPU was named.
    """
    stops, is_whole = check.stop_count, check.form.is_whole
    is_foreign = check.form.kind is FormKind.OTHER_PROGRAM
    verdict = "not checked, as no setting shows that Megatron reads this file"
    if not is_foreign:
        verdict = _describe_stops(check)
    said = " · ".join(filter(None, (visible(name, most=60), describe_form(check.form), verdict)))
    tone: Tone = "bad" if stops else "warning" if is_foreign or check.stops_later else "strong"
    yield _head((Span(said, tone),), *map(_describe_finding, check.findings))
    if check.layout is not None:
        yield _build_layout(check.layout)
    if is_foreign:
        return
    for feature in check.features:
        if feature.on and feature.rows:
            yield Section(
                "feature",
                feature.title,
                "",
                (Items(tuple(_list_unmet_rows(feature, quoted, is_whole=is_whole))),),
            )
    off = [one for one in check.features if one.on is False or (one.on is None and one.unmet())]
    if off:
        title = "Features that are off or unknown, and what blocks them"
        yield Section("off", title, "", tuple(map(_describe_off, off)))
    if any(row.precondition.status == "unknown" for one in check.features if one.on for row in one.rows):
        machine = "" if has_machine else ", and name the GPU with --hardware"
        yield Section(
            "next", "Next", "", (Lines((f"Add unknown settings to the file{machine} to check more.",)),)
        )


def _describe_finding(finding: Finding) -> Line:
    cure = f"; {finding.cure}" if finding.cure else ""
    tones: dict[Severity, Tone] = {Severity.ERROR: "bad", Severity.WARNING: "warning", Severity.INFO: "dim"}
    mark = "✗ " if finding.severity is Severity.ERROR else ""
    return (Span(visible(f"{mark}{finding.message}{cure}", most=400), tones[finding.severity]),)


def _list_unmet_rows(
    feature: FeatureCheck, quoted: Mapping[str, Sequence[str]], *, is_whole: bool
) -> Iterator[tuple[Line, ...]]:
    """List the rows that are not met, the settings that others need, and how many are met."""
    for row in feature.unmet():
        known = row.precondition
        yield (Span("✗", "bad"),), (Span(f"{known.id} ", "dim"), Span(known.text, "faint"))
        level = ("error" if is_whole else "conflict") if row.level == "error" else "warning"
        yield "", (Span("", "dim"), Span(f"{level}: {known.unblock}", "wrong"))
        yield from (("", (Span(visible(line, most=110), "dim"),)) for line in quoted.get(known.id, ()))
    unknown = [row for row in feature.rows if row.precondition.status == "unknown"]
    if unknown:
        names = sorted({name_key(key) for row in unknown for key in row.missing})
        more = f" and {len(names) - _MOST_MISSING} more" if len(names) > _MOST_MISSING else ""
        missing = Span(", ".join(names[:_MOST_MISSING]) + more, "dim")
        counted = f"{len(unknown)} of {len(feature.rows)} to check; unknown settings: "
        yield (Span("?", "warning"),), (Span(counted, "dim"), missing)
    met = sum(row.precondition.status == "met" for row in feature.rows)
    yield (Span("✓", "good"),), (Span(f"{met} of {len(feature.rows)} met", "dim"),)


def _describe_off(feature: FeatureCheck) -> Section:
    unmet = [row.precondition for row in feature.unmet()]
    lines = tuple((Span(f"{one.id} ", "dim"), Span(one.unblock or one.text, "faint")) for one in unmet)
    return Section("off", (f"{feature.title}: {'' if unmet else 'nothing'}",), "", (Lines(lines),))
