"""What an export holds, on a terminal."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wallscope import units
from wallscope.model.capture import Contents, Gpu
from wallscope.render.foreign import visible
from wallscope.render.grids import render_section
from wallscope.views.sections.findings import build_findings

_UNKNOWN = "unknown"


def contents_listing(contents: Contents) -> RenderableType:
    """Identity, tables with row counts, and limits of an export."""
    export = contents.export
    facts = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    facts.add_row("export", f"{visible(export.name, most=100)}, {units.size(export.size_bytes)}")
    facts.add_row("nsys", f"{export.nsys_version or _UNKNOWN}, schema {export.schema_version or _UNKNOWN}")
    facts.add_row("host", export.hostname or _UNKNOWN)
    facts.add_row("session start", units.utc(export.session_start_utc_ns))
    facts.add_row("captured", units.duration(contents.duration_ns))
    facts.add_row("traced", ", ".join(contents.traced) or _UNKNOWN)
    facts.add_row("CUDA graphs", f"traced by {contents.graph_mode}" if contents.graph_mode else _UNKNOWN)
    calling = contents.processes
    facts.add_row(
        "processes", _UNKNOWN if calling is None else f"{units.plural(calling, 'process')} with CUDA calls"
    )
    facts.add_row("GPUs", Text("\n".join(_gpu(gpu) for gpu in export.gpus) or _UNKNOWN))
    environment = "\n".join(f"{name}={value}" for name, value in export.environment.items())
    facts.add_row("environment", Text(environment or "none of the variables that are read"))
    return Group(facts, Text(), _tables(contents), Text(), render_section(build_findings(contents.findings)))


def _gpu(gpu: Gpu) -> str:
    return (
        f"{gpu.id}: {gpu.name or _UNKNOWN}, {gpu.architecture or _UNKNOWN},"
        f" {units.number(gpu.sm_count)} SMs, {units.size(gpu.memory_bytes)}"
    )


def _tables(contents: Contents) -> Group:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("of", no_wrap=True)
    table.add_column("table", style="dim", overflow="fold")
    there = [entry for entry in contents.tables if entry.row_count is not None]
    for entry in there:
        table.add_row(units.number(entry.row_count), entry.rows_are, entry.table)
    missing = [entry.rows_are for entry in contents.tables if entry.row_count is None]
    lines: list[RenderableType] = [table]
    if missing:
        lines.append(Text(f"Not captured or not exported: {', '.join(missing)}."))
    lines.append(Text(f"{units.plural(contents.other_tables, 'other table')} in the file.", style="dim"))
    return Group(*lines)
