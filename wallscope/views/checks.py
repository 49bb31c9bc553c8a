"""The check of a configuration on a terminal."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from wallscope import units
from wallscope.model.advice import ConfigurationCheck, FeatureCheck, Folding
from wallscope.model.capture import Finding, Severity
from wallscope.render.foreign import visible
from wallscope.render.grids import titled

_MOST_MISSING = 6
_SHOWN = {"unmet": ("✗", "bold red"), "unknown": ("?", "yellow"), "met": ("✓", "green")}


def check_summary(check: ConfigurationCheck, name: str) -> RenderableType:
    """What stops the run, then features that are on with all that is not met, then those that are off."""
    return Group(*_parts(check, name))


def _parts(check: ConfigurationCheck, name: str) -> Iterator[RenderableType]:
    yield _headline(check, name)
    for finding in check.findings:
        yield _finding(finding)
    if check.layout is not None:
        yield Text()
        yield layout_lines(check.layout)
    for feature in check.features:
        if feature.on and feature.rows:
            yield Text()
            yield _feature(feature)
    off = [
        feature
        for feature in check.features
        if feature.on is False or (feature.on is None and feature.unmet())
    ]
    if off:
        yield Text()
        yield titled("Off, or not told; what would be in the way", _off(off))


def _headline(check: ConfigurationCheck, name: str) -> Text:
    stops = len(check.stops)
    said = (
        f"{units.plural(stops, 'check')} failed that will stop the run"
        if stops
        else "nothing known stops the run"
    )
    return Text(f"{visible(name, most=60)} · {said}", style="bold red" if stops else "bold")


def _finding(finding: Finding) -> Text:
    cure = f"; {finding.cure}" if finding.cure else ""
    style = "yellow" if finding.severity is not Severity.INFO else "dim"
    return Text(visible(f"{finding.message}{cure}", most=400), style=style)


def layout_lines(layout: Folding) -> RenderableType:
    """Both meshes and the fewest GPUs."""
    sizes = layout.sizes
    attention = f"TP{sizes.tensor} x CP{sizes.context} x DP{layout.data} x PP{sizes.pipeline}"
    experts = f"ETP{sizes.expert_tensor} x EP{sizes.expert} x EDP{layout.expert_data} x PP{sizes.pipeline}"
    lines = Text(f"attention  {attention}\nexperts    {experts}\n")
    lines.append(f"needs {units.plural(layout.fewest_gpus, 'GPU')}, has {layout.gpus:,}")
    return titled("Layout", lines)


def _feature(feature: FeatureCheck) -> RenderableType:
    """Rows that are unmet, what the others would have to be told, and how many are met."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column()
    mark, style = _SHOWN["unmet"]
    for row in feature.unmet():
        known = row.precondition
        said = Text(f"{known.id} ", style="dim")
        said.append(known.text, style="default")
        said.append(f"\n{'error' if row.level == 'error' else 'warning'}: {known.unblock}", style="red")
        table.add_row(Text(mark, style=style), said)
    unknown = [row for row in feature.rows if row.precondition.status == "unknown"]
    if unknown:
        names = sorted({name for row in unknown for name in row.missing})
        mark, style = _SHOWN["unknown"]
        said = Text(f"{len(unknown)} of {len(feature.rows)} cannot be judged; not told: ", style="dim")
        said.append(_few(names), style="dim")
        table.add_row(Text(mark, style=style), said)
    met = sum(row.precondition.status == "met" for row in feature.rows)
    mark, style = _SHOWN["met"]
    table.add_row(Text(mark, style=style), Text(f"{met} of {len(feature.rows)} met", style="dim"))
    return titled(feature.title, table)


def _few(names: list[str]) -> str:
    more = len(names) - _MOST_MISSING
    return ", ".join(names[:_MOST_MISSING]) + (f" and {more} more" if more > 0 else "")


def _off(features: list[FeatureCheck]) -> RenderableType:
    lines: list[RenderableType] = []
    for feature in features:
        unmet = feature.unmet()
        lines.append(Text(f"{feature.title}: {'' if unmet else 'nothing known'}"))
        for row in unmet:
            said = Text(f"{row.precondition.id} ", style="dim")
            said.append(row.precondition.unblock or row.precondition.text, style="default")
            lines.append(Padding(said, (0, 0, 0, 2)))
    return Group(*lines)
