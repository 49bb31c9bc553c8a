"""Where does the step lose its FLOPs? The lines from the ideal step to the measured one."""

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.section import Block, Cell, Column, Grid, Lines, Section, make_columns, tabulate
from wallscope.model.speed_of_light import (
    LedgerLine,
    MatrixWork,
    SampledClock,
    SampledWork,
    SpeedOfLight,
    UncountedWork,
)
from wallscope.render.figures import make_waterfall
from wallscope.views.light import (
    LightRow,
    explain_light,
    has_lines,
    list_light_rows,
    name_reason,
    write_shares,
)

_LEAST_ON_PAGE = 0.0005


def build_light(analysis: Analysis, rank: Rank) -> Section | None:
    """Make the section on the ledger of a rank; none if no compute kernel ran."""
    found = rank.speed_of_light
    if found is None or not any(one.category for one in found.lines):
        return None
    whole = analysis.anchor.typical
    answer = " ".join(explain_light(found)) or "It is not known how near to the peak the kernels run."
    rows = list_light_rows(found, _LEAST_ON_PAGE)
    blocks: list[Block] = [Lines(tuple(_describe_basis(found)))]
    if len(rows) > 1:
        blocks.append(make_waterfall([(row.name, row.ns, row.wall, row.note) for row in rows], whole))
    blocks.append(_tabulate_rows(f"From the ideal to the measured {whole}", rows, found))
    if found.matrices:
        blocks.append(_tabulate_matrices(found))
    if found.uncounted:
        blocks.append(_tabulate_uncounted(found))
    if found.sampled:
        columns = make_columns(SampledWork, "category", "samples", "sm_active", "tensor_active", "dram")
        blocks.append(tabulate("The GPU while only these kernels compute", columns, found.sampled))
    if found.clocks:
        columns = make_columns(SampledClock, "category", "samples", "clock_mhz", "peak_share")
        blocks.append(tabulate("The clock while these kernels run", columns, found.clocks))
    return Section("light", "Where the step loses its FLOPs", answer, tuple(blocks), is_open=has_lines(found))


def _describe_basis(found: SpeedOfLight) -> list[str]:
    """Say what FLOPs and peak are, and what they assume."""
    lines = []
    if shares := write_shares(found):
        lines.append(f"{shares}.")
    if (
        found.flops_whole_square is not None
        and found.model_flops
        and found.flops_whole_square > found.model_flops
    ):
        more = found.flops_whole_square / found.model_flops - 1
        lines.append(f"With the masked half of causal attention, FLOPs are {units.percent(more)} more.")
    if found.assumes:
        lines.append(f"The configuration assumes {found.assumes}.")
    if found.peak is not None:
        lines.append(f"Peak rates: {found.peak.source}.")
    if not found.clocks and any(one.line is LedgerLine.BELOW_PEAK for one in found.lines):
        lines.append("Whether the clock was below that of the peak is unknown: it was not sampled.")
    lacking = []
    if has_lines(found):
        lines.append("FLOPs are two for each multiply-add; peak rates are dense, without sparsity.")
    else:
        lacking.append("record_shapes=True (PyTorch)")
    if not found.sampled and (found.matrices or found.uncounted):
        lacking.append("--gpu-metrics-devices (nsys)")
    if lacking:
        lines.append(f"{' and '.join(lacking)} would show more.")
    return lines


def tabulate_light(found: SpeedOfLight, whole: str, most: int) -> Grid:
    """Make the table of a first screen: at most so many lines, the smallest together."""
    least, rows = 0.0, list_light_rows(found)
    while len(rows) > most:
        least += 0.01
        rows = list_light_rows(found, least)
    title = f"From the ideal to the measured {whole} ({units.duration(found.window_ns)})"
    shares = write_shares(found, is_brief=True)
    return _tabulate_rows(f"{title}: {shares}" if shares else title, rows, found, has_header=False)


def _tabulate_rows(
    title: str, rows: tuple[LightRow, ...], found: SpeedOfLight, *, has_header: bool = True
) -> Grid:
    columns = (
        Column("name", "line", value=lambda row: Cell(row.name, row.wall), wrap="fixed"),
        Column(
            "bar", "", "bar", value=lambda row: Cell(row.ns / found.window_ns, row.wall), media=("terminal",)
        ),
        Column("ns", "time", "ms"),
        Column("share", "share", "percent", value=lambda row: row.ns / found.window_ns),
        Column("note", "", wrap="cut", widths=(90, 1 << 30)),
    )
    return tabulate(title, columns, rows, has_header=has_header)


def _tabulate_uncounted(found: SpeedOfLight) -> Grid:
    """Make the table of kernels that multiply without known FLOPs, with the peaks of their precisions."""
    columns = (
        *make_columns(UncountedWork, "category", "precision", "work_ns", "peak_flops_per_s"),
        Column("reasons", "reason", value=lambda one: ", ".join(map(name_reason, one.reasons)), wrap="cut"),
    )
    return tabulate("Matrix kernels with unknown FLOPs", columns, found.uncounted)


def _tabulate_matrices(found: SpeedOfLight) -> Grid:
    """Make the table of kernels that multiply, with their rates."""
    columns = make_columns(MatrixWork, "category", "precision", "ns", "flops_per_s", "peak_share")
    return tabulate("Kernels that multiply", columns, found.matrices)
