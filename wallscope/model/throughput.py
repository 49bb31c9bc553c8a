"""What a step achieves, in the answer: how far the capture slowed it, tokens, FLOPs.

A part of the published contract of `model.analysis`. `None` is unknown, or was not asked for.
"""

from dataclasses import dataclass

from wallscope.model.kinds import Precision


@dataclass(frozen=True, slots=True)
class Peak:
    """What a GPU can do at most with dense matrices of one precision, and who says so."""

    flops_per_s: float
    precision: Precision
    source: str


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What the user knows of a step: its length without the profiler, the job's tokens, FLOPs of one GPU."""

    unprofiled_step_ns: int | None = None
    tokens: int | None = None
    flops: float | None = None


@dataclass(frozen=True, slots=True)
class Throughput:
    """The typical step beside what the user knows of it.

    `perturbation` is the typical step over one without the profiler, a ratio: 1.05 is 5 % slower in the
    capture. `tokens_per_s`, of the job, and `flops_per_s`, of one GPU, are those of the captured step, by the
    user's own count. `mfu` is a share of `peak`, `None` where the peak of the GPU is not known.
    """

    step_ns: int
    unprofiled_step_ns: int | None
    perturbation: float | None
    tokens_per_s: float | None
    flops_per_s: float | None
    peak: Peak | None
    mfu: float | None
