"""What the typical step achieves: tokens and FLOPs as the user counts them, and the share of the peak."""

from wallscope.model.analysis import Anchor, Rank
from wallscope.model.capture import Finding, Gpu, Severity
from wallscope.model.kinds import Precision
from wallscope.model.throughput import Peak, StepFacts, Throughput
from wallscope.thresholds import KNOWN_PRECISION_SHARE
from wallscope.timeline.peaks import peak
from wallscope.walls.findings import MARK_STEPS


def throughput(rank: Rank, anchor: Anchor, facts: StepFacts, gpu: Gpu | None) -> Throughput | None:
    """The throughput of one rank; `None` where the user told nothing, or windows are not known to be steps.

    `gpu` is the one that the rank ran on.
    """
    step_ns = rank.typical.step_ns
    if facts == StepFacts() or anchor.unit != "step" or step_ns == 0:
        return None
    per_s = 1e9 / step_ns
    flops_per_s = None if facts.flops is None else facts.flops * per_s
    most = None if flops_per_s is None else _peak(rank, gpu)
    return Throughput(
        step_ns=step_ns,
        unprofiled_step_ns=facts.unprofiled_step_ns,
        perturbation=step_ns / facts.unprofiled_step_ns if facts.unprofiled_step_ns else None,
        tokens_per_s=None if facts.tokens is None else facts.tokens * per_s,
        flops_per_s=flops_per_s,
        peak=most,
        mfu=flops_per_s / most.flops_per_s if flops_per_s is not None and most is not None else None,
    )


def throughput_findings(anchor: Anchor, facts: StepFacts) -> tuple[Finding, ...]:
    """What the user told of a step is of no use where windows are not known to be steps."""
    if facts == StepFacts() or anchor.unit == "step":
        return ()
    return (
        Finding(
            "throughput-unknown",
            Severity.WARNING,
            "Tokens, FLOPs and the unprofiled length are those of a step, and windows are not known to be"
            " steps: nothing is said of them.",
            MARK_STEPS,
        ),
    )


def _peak(rank: Rank, gpu: Gpu | None) -> Peak | None:
    """That of the precision in which most of the matrix multiplication is done, if names tell it."""
    if rank.compute_details is None or gpu is None:
        return None
    first = next(iter(rank.compute_details.precisions), None)
    if first is None or first.precision is Precision.UNKNOWN or first.share < KNOWN_PRECISION_SHARE:
        return None
    return peak(gpu.name, first.precision)
