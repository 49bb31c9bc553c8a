"""The plan for a run, and the check of a configuration, on a terminal."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from wallscope import units
from wallscope.model.advice import Advice, ConfigurationCheck, FeatureCheck, Folding, Item, Preset
from wallscope.model.capture import Finding, Severity
from wallscope.model.section import Items, Line, Lines, Section, Span, Tone
from wallscope.render.foreign import visible

_MOST_MISSING = 6


def build_advice(advice: Advice) -> Iterator[Section]:
    """Make the layout, the checklist in the order of work, and what was published nearby."""
    layout = advice.layout
    run = (f"{layout.gpus:,} x {advice.machine}", f"sequence {advice.seq_length:,}", advice.precision)
    yield _head((Span(" · ".join((advice.model, *run)), "strong"),))
    virtual = f", VPP{advice.virtual_pipeline}" if advice.virtual_pipeline else ""
    source = f"from {advice.layout_source}{virtual}; EP could be up to {advice.largest_expert}"
    yield _build_layout(layout, (Span(source, "dim"),))
    for phase, items in groupby(advice.items, key=lambda item: item.phase):
        yield Section(phase, phase.capitalize(), "", (Items(tuple(_list_items(items))),))
    if advice.presets:
        presets = tuple(_describe_preset(preset) for preset in advice.presets)
        yield Section("presets", "Presets nearby, to start from", "", presets)
    if advice.bands:
        bands = Items(tuple(_list_bands(advice)))
        yield Section("bands", "Published TFLOP/s per GPU, never promised", "", (bands,))


def _head(*lines: Line) -> Section:
    return Section("head", "", "", (Lines(lines),))


def _list_items(items: Iterable[Item]) -> Iterator[tuple[Line, ...]]:
    for item in items:
        yield "□", (item.text, Span(f" [{item.facts[0]}]", "dim"))
        yield from (("", (Span(str(setting), "setting"), "")) for setting in item.settings)


def _describe_preset(preset: Preset) -> Section:
    sizes = preset.sizes
    virtual = f" VPP{preset.virtual_pipeline}" if preset.virtual_pipeline else ""
    parts = [
        f"TP{sizes.tensor} PP{sizes.pipeline}{virtual} CP{sizes.context} EP{sizes.expert}",
        f"dispatcher {_name_inherited(preset.dispatcher)}",
        f"graphs {_name_inherited(preset.cuda_graphs)}",
        f"recompute {_name_inherited(preset.recompute)}",
    ]
    if sizes.fewest_gpus > preset.gpus:
        parts.append(f"as published its sizes need {sizes.fewest_gpus:,} GPUs")
    return Section("preset", (preset.name,), "", (Lines((" · ".join(parts),), "dim"),))


def _name_inherited(word: str) -> str:
    """Name a published value; `base` says that it comes from the recipe below."""
    return "inherited" if word == "base" else word.replace("(base)", " (inherited)")


def _list_bands(advice: Advice) -> Iterator[tuple[Line, ...]]:
    for band in advice.bands:
        where = f"{band.gpus:,} GPUs" if band.gpus else ""
        yield f"{where} {band.precision or ''}".strip() or "any", band.text


def _build_layout(layout: Folding, *more: Line) -> Section:
    """Make both meshes and the fewest GPUs."""
    sizes, pipeline = layout.sizes, f"PP{layout.sizes.pipeline}"
    lines = (
        f"attention  TP{sizes.tensor} x CP{sizes.context} x DP{layout.data} x {pipeline}",
        f"experts    ETP{sizes.expert_tensor} x EP{sizes.expert} x EDP{layout.expert_data} x {pipeline}",
        f"needs {units.plural(layout.fewest_gpus, 'GPU')}, has {layout.gpus:,}",
    )
    return Section("layout", "Layout", "", (Lines((*lines, *more)),))


def build_check(check: ConfigurationCheck, name: str) -> Iterator[Section]:
    """Make what stops the run, then features that are on with all that is not met, then the others."""
    stops = len(check.stops)
    verdict = "nothing known stops the run"
    if stops:
        verdict = f"{units.plural(stops, 'check')} failed that will stop the run"
    head = Span(f"{visible(name, most=60)} · {verdict}", "bad" if stops else "strong")
    yield _head((head,), *map(_describe_finding, check.findings))
    if check.layout is not None:
        yield _build_layout(check.layout)
    for feature in check.features:
        if feature.on and feature.rows:
            yield Section("feature", feature.title, "", (Items(tuple(_list_rows(feature))),))
    off = [one for one in check.features if one.on is False or (one.on is None and one.unmet())]
    if off:
        title = "Off, or not told; what would be in the way"
        yield Section("off", title, "", tuple(map(_describe_off, off)))


def _describe_finding(finding: Finding) -> Line:
    cure = f"; {finding.cure}" if finding.cure else ""
    tone: Tone = "warning" if finding.severity is not Severity.INFO else "dim"
    return (Span(visible(f"{finding.message}{cure}", most=400), tone),)


def _list_rows(feature: FeatureCheck) -> Iterator[tuple[Line, ...]]:
    """List rows that are unmet, what the others would have to be told, and how many are met."""
    for row in feature.unmet():
        known = row.precondition
        yield (Span("✗", "bad"),), (Span(f"{known.id} ", "dim"), Span(known.text, "faint"))
        level = "error" if row.level == "error" else "warning"
        yield "", (Span("", "dim"), Span(f"{level}: {known.unblock}", "wrong"))
    unknown = [row for row in feature.rows if row.precondition.status == "unknown"]
    if unknown:
        names = sorted({name for row in unknown for name in row.missing})
        more = f" and {len(names) - _MOST_MISSING} more" if len(names) > _MOST_MISSING else ""
        missing = Span(", ".join(names[:_MOST_MISSING]) + more, "dim")
        counted = f"{len(unknown)} of {len(feature.rows)} cannot be judged; not told: "
        yield (Span("?", "warning"),), (Span(counted, "dim"), missing)
    met = sum(row.precondition.status == "met" for row in feature.rows)
    yield (Span("✓", "good"),), (Span(f"{met} of {len(feature.rows)} met", "dim"),)


def _describe_off(feature: FeatureCheck) -> Section:
    unmet = feature.unmet()
    lines = tuple(
        (
            Span(f"{row.precondition.id} ", "dim"),
            Span(row.precondition.unblock or row.precondition.text, "faint"),
        )
        for row in unmet
    )
    return Section("off", (f"{feature.title}: {'' if unmet else 'nothing known'}",), "", (Lines(lines),))
