"""Which kernels run in the step that a page shows: how often, how long in all, on average and at most."""

from typing import TYPE_CHECKING

from wallscope import units
from wallscope.model.report import Report
from wallscope.model.section import Cell, Column, Grid, Section
from wallscope.render.texts import shorten_names, visible

if TYPE_CHECKING:
    import polars as pl

_MOST_KERNELS = 12
_LONGEST_NAME = 64


def build_kernels(report: Report) -> Section | None:
    """Make the kernels of the step that is nearest to the typical one; `None` without a drawn step."""
    if not report.timelines:
        return None
    shown, unit = report.timelines[0], report.analysis.anchor.window
    found = _sum_kernels(shown.operations)
    if found.is_empty():
        return None
    total_ns, count = int(found["total_ns"].sum()), int(found["calls"].sum())
    step = "" if report.analysis.anchor.kind == "whole-trace" else f" of {unit} {shown.step}"
    answer = f"{units.plural(count, 'kernel')}{step} under {units.plural(len(found), 'name')} take"
    answer += f" {units.duration(total_ns)} in all; those that overlap each count in full."
    return Section("kernels", "Kernels", answer, (_tabulate_kernels(found, total_ns),))


def _sum_kernels(operations: "pl.DataFrame") -> "pl.DataFrame":
    """Sum the kernels of a step by name and category, the longest first; copies have no name of a kernel."""
    import polars as pl  # noqa: PLC0415  # kept answers need no tables

    length = pl.col("end_ns") - pl.col("start_ns")
    is_kernel = pl.col("wall").cast(pl.String).is_in(["compute", "communication"])
    return (
        operations.filter(is_kernel)
        .group_by("name", "what", pl.col("wall").cast(pl.String))
        .agg(calls=pl.len(), total_ns=length.sum(), mean_ns=length.mean(), longest_ns=length.max())
        .sort("total_ns", "name", descending=[True, False])
    )


def _tabulate_kernels(found: "pl.DataFrame", total_ns: int) -> Grid:
    shown = found.head(_MOST_KERNELS)
    shorts = shorten_names(shown["name"])
    rows = tuple(
        (
            Cell(visible(shorts[name], most=_LONGEST_NAME), None, visible(name, most=300)),
            what,
            calls,
            summed_ns,
            summed_ns / max(total_ns, 1),
            round(mean_ns),
            longest_ns,
        )
        for name, what, _, calls, summed_ns, mean_ns, longest_ns in shown.iter_rows()
    )
    columns = (
        Column("name", "kernel", "text"),
        Column("what", "kind", "text"),
        Column("calls", "calls", "count"),
        Column("total_ns", "total", "ms"),
        Column("share", "share", "percent", "of the time of all kernels"),
        Column("mean_ns", "mean", "duration"),
        Column("longest_ns", "longest", "duration"),
    )
    left = len(found) - len(rows)
    note = (f"{units.plural(left, 'more name')}: wallscope kernels FILE",) if left else ()
    return Grid("Kernels, those that take most time first", columns, rows, notes=note)
