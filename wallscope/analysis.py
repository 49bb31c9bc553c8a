"""The pipeline: an export is read, its operations are named, its time is divided and accounted for."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from wallscope import __version__
from wallscope.model.analysis import (
    SCHEMA,
    Analysis,
    Anchor,
    CaptureQuality,
    CrossCheck,
    Diagnosis,
    DroppedStep,
    Rank,
)
from wallscope.model.capture import Capture, Progress
from wallscope.nsys import read_capture
from wallscope.timeline.anchors import check_pattern, labelled
from wallscope.timeline.kinds import classified, kernel_kinds, rules_with
from wallscope.timeline.paths import nested
from wallscope.timeline.projection import projection
from wallscope.timeline.selection import Selection, clipped, only_steps, selected_ranks
from wallscope.timeline.steadiness import Host
from wallscope.timeline.steps import Division, divided
from wallscope.walls.accounting import Divided, accounts
from wallscope.walls.budget import budgets
from wallscope.walls.findings import accounting_findings
from wallscope.walls.phases import Phases
from wallscope.walls.verdict import least_computing, verdict

_AGREEMENT = 0.05


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asks for: kernel-name rules, a pattern for steps, a part to look at."""

    kernels: Path | None = None
    step_range: str | None = None
    selection: Selection = field(default_factory=Selection)


def analyze(path: Path, options: Options, progress: Progress) -> Analysis:
    """Read one export and account for the time of each of its ranks.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    parts, division = divide(path, options, progress)
    progress("accounting for time")
    ranks = accounts(parts)
    shown = least_computing(ranks)
    anchor = _anchor(division, shown)
    return Analysis(
        schema=SCHEMA,
        wallscope_version=__version__,
        inputs=(parts.capture.export,),
        capture=CaptureQuality(
            findings=(*accounting_findings(ranks, anchor), *parts.capture.findings),
            launch_correlation_share=_launch_correlation_share(parts.capture),
            resolved_dependency_share=None,
            cuda_graphs=parts.capture.graphs,
            ranks_supplied=len(ranks),
            world_size=parts.capture.world_size,
        ),
        anchor=anchor,
        ranks=ranks,
        diagnosis=Diagnosis(
            dominant_wall="unknown",
            verdict=verdict(ranks, anchor),
            steady_steps=sum(step.steady for step in shown.steps),
        ),
    )


def divide(path: Path, options: Options, progress: Progress) -> tuple[Divided, Division]:
    """Read an export, name its operations, find the range of each, and divide the capture into windows.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    rules = rules_with(options.kernels)
    capture = read_capture(path, progress)

    progress("naming kernels")
    operations = classified(capture.operations, capture.copies, kernel_kinds(capture.names, rules))

    progress("nesting ranges")
    tree, paths, names = nested(capture.ranges, capture.range_names, capture.calls, capture.threads)
    ranges = labelled(tree, capture.range_names, capture.threads)
    check_pattern(options.step_range, ranges)
    projected = projection(capture.operations, capture.calls, tree, capture.threads)

    progress("finding steps")
    capture = replace(capture, ranks=selected_ranks(capture.ranks, options.selection))
    is_selected = pl.col("rank_id").is_in(capture.ranks["rank_id"].implode())
    operations = clipped(operations.filter(is_selected), options.selection)
    host = Host(capture.calls, capture.call_names, capture.threads)
    division = divided(operations, capture.ranks, host, ranges, options.step_range)
    windows = budgets(operations, only_steps(division.windows, options.selection))
    return Divided(capture, operations, windows, projected, Phases(ranges, paths, names)), division


def _anchor(division: Division, rank: Rank) -> Anchor:
    """What divided the capture, with the steps of one rank that do not count as steady."""
    step_count = len(rank.steps)
    check = division.check
    return Anchor(
        kind=division.kind,
        unit=division.unit,
        name=division.name,
        steps=step_count,
        dropped=tuple(DroppedStep(step.index, step.reason) for step in rank.steps if step.reason is not None),
        inner=division.inner,
        cross_check=None
        if check is None
        else CrossCheck("kernel-sequence", check, agrees=abs(check - step_count) <= _AGREEMENT * step_count),
    )


def _launch_correlation_share(capture: Capture) -> float | None:
    """Share of the device operations whose issuing call is in the export; `None` where none has one to have.

    Pages of unified memory migrate by themselves.
    """
    migrations = capture.copies.filter(pl.col("direction").cast(pl.String).str.starts_with("migration"))
    issued = capture.operations.join(migrations, on="op", how="anti")["call"]
    return None if issued.is_empty() else int((issued >= 0).sum()) / len(issued)
