"""The pipeline: an export is read, its operations are named, its time is accounted for."""

from pathlib import Path

from wallscope import __version__
from wallscope.model.analysis import SCHEMA, Analysis, Anchor, CaptureQuality, Diagnosis
from wallscope.model.capture import Progress
from wallscope.nsys import read_capture
from wallscope.timeline.kinds import classified, kernel_kinds, rules_with
from wallscope.walls.accounting import accounts
from wallscope.walls.budget import budgets, whole_capture
from wallscope.walls.findings import accounting_findings
from wallscope.walls.verdict import verdict


def analyze(path: Path, kernels: Path | None, progress: Progress) -> Analysis:
    """Read one export and account for the time of each of its ranks.

    Args:
        path: a `.sqlite` export.
        kernels: a file of kernel-name rules that are asked before the shipped ones.
        progress: told what long work is at.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    rules = rules_with(kernels)
    capture = read_capture(path, progress)

    progress("naming kernels")
    operations = classified(capture.operations, capture.copies, kernel_kinds(capture.names, rules))

    progress("accounting for time")
    ranks = accounts(capture, operations, budgets(operations, whole_capture(operations)))
    return Analysis(
        schema=SCHEMA,
        wallscope_version=__version__,
        inputs=(capture.export,),
        capture=CaptureQuality(
            findings=(*accounting_findings(ranks), *capture.findings),
            launch_correlation_share=None,
            resolved_dependency_share=None,
            cuda_graphs=capture.graphs,
            ranks_supplied=len(ranks),
        ),
        anchor=Anchor(kind="whole-trace", unit="window", name=None, steps=1),
        ranks=ranks,
        diagnosis=Diagnosis(dominant_wall="unknown", verdict=verdict(ranks)),
    )
