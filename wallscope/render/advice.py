"""The plan for a run on a terminal."""

from collections.abc import Iterator
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from wallscope.model.advice import Advice, Item, Preset
from wallscope.render.checks import layout_lines
from wallscope.render.grids import titled


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
    said = Text(
        f"TP{sizes.tensor} PP{sizes.pipeline}{virtual} CP{sizes.context} EP{sizes.expert}"
        f" · dispatcher {preset.dispatcher} · graphs {preset.cuda_graphs} · recompute {preset.recompute}",
        style="dim",
    )
    return Group(Text(preset.name), Padding(said, (0, 0, 0, 2)))


def _bands(advice: Advice) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column()
    for band in advice.bands:
        where = f"{band.gpus:,} GPUs" if band.gpus else ""
        table.add_row(Text(f"{where} {band.precision or ''}".strip() or "any"), Text(band.text))
    return table
