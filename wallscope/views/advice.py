"""The plan for a run on a terminal."""

from collections.abc import Iterator
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from wallscope.model.advice import Advice, Item, Preset
from wallscope.render.grids import titled
from wallscope.views.checks import layout_lines


def advice_summary(advice: Advice) -> RenderableType:
    """The layout, the checklist in the order of work, and what was published nearby."""
    return Group(*_parts(advice))


def _parts(advice: Advice) -> Iterator[RenderableType]:
    layout = advice.layout
    run = (f"{layout.gpus:,} x {advice.machine}", f"sequence {advice.seq_length:,}", advice.precision)
    yield Text(" · ".join((advice.model, *run)), style="bold")
    yield Text()
    yield layout_lines(layout)
    virtual = f", VPP{advice.virtual_pipeline}" if advice.virtual_pipeline else ""
    source = f"from {advice.layout_source}{virtual}; EP could be up to {advice.largest_expert}"
    yield Padding(Text(source, style="dim"), (0, 0, 0, 2))
    for phase, items in groupby(advice.items, key=lambda item: item.phase):
        yield Text()
        yield titled(phase.capitalize(), _items(list(items)))
    if advice.presets:
        yield Text()
        yield titled("Presets nearby, to start from", Group(*map(_preset, advice.presets)))
    if advice.bands:
        yield Text()
        yield titled("Published TFLOP/s per GPU, never promised", _bands(advice))


def _items(items: list[Item]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column()
    for item in items:
        said = Text(item.text)
        said.append(f" [{item.facts[0]}]", style="dim")
        for setting in item.settings:
            said.append(f"\n{setting}", style="cyan")
        table.add_row("□", said)
    return table


def _preset(preset: Preset) -> RenderableType:
    sizes = preset.sizes
    virtual = f" VPP{preset.virtual_pipeline}" if preset.virtual_pipeline else ""
    parts = [
        f"TP{sizes.tensor} PP{sizes.pipeline}{virtual} CP{sizes.context} EP{sizes.expert}",
        f"dispatcher {_inherited(preset.dispatcher)}",
        f"graphs {_inherited(preset.cuda_graphs)}",
        f"recompute {_inherited(preset.recompute)}",
    ]
    if sizes.fewest_gpus > preset.gpus:
        parts.append(f"as published its sizes need {sizes.fewest_gpus:,} GPUs")
    return Group(Text(preset.name), Padding(Text(" · ".join(parts), style="dim"), (0, 0, 0, 2)))


def _inherited(word: str) -> str:
    """A published value, where `base` says that it comes from the recipe below."""
    return "inherited" if word == "base" else word.replace("(base)", " (inherited)")


def _bands(advice: Advice) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column()
    for band in advice.bands:
        where = f"{band.gpus:,} GPUs" if band.gpus else ""
        table.add_row(Text(f"{where} {band.precision or ''}".strip() or "any"), Text(band.text))
    return table
