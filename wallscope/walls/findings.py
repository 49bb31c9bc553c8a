"""What the accounting itself has to say about the limits of its claims."""

from wallscope.model.analysis import ENOUGH_STEPS, Anchor, Rank
from wallscope.model.capture import Finding, Severity
from wallscope.units import duration, plural
from wallscope.walls.verdict import working


def accounting_findings(ranks: tuple[Rank, ...], anchor: Anchor) -> tuple[Finding, ...]:
    """Limits that show only once time is accounted for, the gravest first."""
    return (*_opaque_graphs(ranks), *_steps(ranks, anchor), *_unmatched(ranks))


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


def _steps(ranks: tuple[Rank, ...], anchor: Anchor) -> tuple[Finding, ...]:
    if anchor.kind == "whole-trace":
        return (
            Finding(
                "no-steps",
                Severity.WARNING,
                "No step was found: the whole capture is one window, start-up and what lies between steps"
                " included.",
                "Mark steps with NVTX (Megatron Bridge: profiling.nvtx_ranges=true), or name a range:"
                " --step-range REGEX.",
                covers_ns=max(rank.typical.step_ns for rank in ranks),
            ),
        )
    return (*_repeated_unit(anchor), *_disagreement(anchor), *_few_steps(ranks, anchor), *_outside(ranks))


def _repeated_unit(anchor: Anchor) -> tuple[Finding, ...]:
    if anchor.kind != "kernel-sequence":
        return ()
    what = "whether it is a step or a layer cannot be told" if anchor.unit == "window" else "it holds layers"
    return (
        Finding(
            "unmarked-steps",
            Severity.WARNING,
            f"No range marks the steps: windows are the unit that the kernel sequence repeats; {what}.",
            "Mark steps with NVTX (Megatron Bridge: profiling.nvtx_ranges=true), or name a range:"
            " --step-range REGEX.",
        ),
    )


def _disagreement(anchor: Anchor) -> tuple[Finding, ...]:
    check = anchor.cross_check
    if check is None or check.agrees:
        return ()
    return (
        Finding(
            "anchors-disagree",
            Severity.WARNING,
            f"The ranges say {plural(anchor.steps, 'step')}, the kernel sequence repeats"
            f" {plural(check.steps, 'time')}.",
            "Name the range that is a step: --step-range REGEX.",
        ),
    )


def _few_steps(ranks: tuple[Rank, ...], anchor: Anchor) -> tuple[Finding, ...]:
    steady = min(sum(step.steady for step in rank.steps) for rank in working(ranks))
    if steady >= ENOUGH_STEPS:
        return ()
    counted = f"Only {plural(steady, 'steady window')}"
    said = "No window is steady: all of them stand in" if steady == 0 else counted
    return (
        Finding(
            "few-steps",
            Severity.WARNING,
            f"{said}: what varies from step to step {_told_by(anchor)}.",
            "Capture 8 steps or more beyond warm-up (Megatron Bridge: profile_step_start, profile_step_end).",
        ),
    )


def _told_by(anchor: Anchor) -> str:
    if anchor.inner is None:
        return "cannot be told"
    return f"is told by {plural(anchor.inner.count, anchor.inner.unit)} inside"


def _outside(ranks: tuple[Rank, ...]) -> tuple[Finding, ...]:
    """What lies before the first step has no window."""
    outside_ns = max(rank.outside_ns for rank in ranks)
    if outside_ns == 0:
        return ()
    return (
        Finding(
            "outside-steps",
            Severity.INFO,
            f"{duration(outside_ns)} between the first device operation and the first step are in no window.",
            covers_ns=outside_ns,
        ),
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
