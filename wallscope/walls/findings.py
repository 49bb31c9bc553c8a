"""What the accounting itself has to say about the limits of its claims."""

from wallscope.model.analysis import Rank
from wallscope.model.capture import Finding, Severity
from wallscope.units import duration, plural


def accounting_findings(ranks: tuple[Rank, ...]) -> tuple[Finding, ...]:
    """Limits that show only once time is accounted for, the gravest first."""
    return (*_opaque_graphs(ranks), _no_steps(ranks), *_unmatched(ranks))


def _opaque_graphs(ranks: tuple[Rank, ...]) -> tuple[Finding, ...]:
    opaque_ns = sum(rank.typical.budget.opaque_graph for rank in ranks)
    if opaque_ns == 0:
        return ()
    return (
        Finding(
            "graph-mode-graphs",
            Severity.WARNING,
            f"CUDA graphs were traced as a whole: what ran inside {duration(opaque_ns)} of replays is not in"
            " the export.",
            "Capture with --cuda-graph-trace=node.",
            covers_ns=opaque_ns,
        ),
    )


def _no_steps(ranks: tuple[Rank, ...]) -> Finding:
    return Finding(
        "whole-capture",
        Severity.WARNING,
        "The whole capture is one window: start-up, steps and what lies between them are counted together.",
        "Capture steady steps alone: --capture-range=cudaProfilerApi around them.",
        covers_ns=sum(rank.typical.step_ns for rank in ranks),
    )


def _unmatched(ranks: tuple[Rank, ...]) -> tuple[Finding, ...]:
    kernels = {kernel.name for rank in ranks for kernel in rank.unmatched_kernels}
    if not kernels:
        return ()
    return (
        Finding(
            "unmatched-kernels",
            Severity.INFO,
            f"{plural(len(kernels), 'kernel name')} over 1 % of the window known to no pattern:"
            " counted as compute of category other.",
            "Name them in a file of rules: --kernels FILE.",
            covers_ns=sum(kernel.work_ns for rank in ranks for kernel in rank.unmatched_kernels),
        ),
    )
