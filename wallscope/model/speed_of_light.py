"""The ledger from the ideal step to the measured one: a part of the published contract of `model.analysis`.

Each nanosecond of the typical step is in one line. `None` is unknown.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple

from wallscope.model.enums import ComputeCategory, Precision
from wallscope.model.planned_work import PlanMismatch
from wallscope.model.shown import Shown
from wallscope.records import dataclass


class LedgerLine(StrEnum):
    """What the time of a line is spent on, from the ideal step to the measured one."""

    IDEAL_MATH = "ideal-math"
    PRECISION = "precision"
    COMPUTED_TWICE = "computed-twice"
    EMULATED_PRECISION = "emulated-precision"
    BELOW_PEAK = "below-peak"
    AT_BANDWIDTH = "at-bandwidth"
    ABOVE_FLOOR = "above-floor"
    COMPUTE_UNKNOWN = "compute-unknown"
    HAND_OVER = "hand-over"
    RECOMPUTATION = "recomputation"
    EXPOSED_COMMUNICATION = "exposed-communication"
    COPIES = "copies"
    HOST = "host"
    OPAQUE_GRAPHS = "opaque-graphs"
    UNATTRIBUTED = "unattributed"


class LossUnknown(StrEnum):
    """Why it is unknown how much of the time of kernels is lost."""

    FLOPS_UNKNOWN = "flops-unknown"
    BYTES_UNKNOWN = "bytes-unknown"
    KERNEL_UNKNOWN = "kernel-unknown"
    PRECISION_UNKNOWN = "precision-unknown"
    PEAK_UNKNOWN = "peak-unknown"
    ABOVE_PEAK = "above-peak"
    IMPOSSIBLE_FLOPS = "impossible-flops"


AT_PEAK = (LedgerLine.IDEAL_MATH, LedgerLine.PRECISION, LedgerLine.COMPUTED_TWICE)
"""Lines that the kernels would take at the peak of the precision in use."""
OF_MATRICES = (*AT_PEAK, LedgerLine.EMULATED_PRECISION, LedgerLine.BELOW_PEAK)
"""Lines of kernels that multiply, with known FLOPs."""


class BelowPeak(StrEnum):
    """Why kernels that multiply are below their peak."""

    FEW_ROWS = "few-rows"
    SHORT_KERNELS = "short-kernels"
    UNFILLED_GPU = "unfilled-gpu"
    LAST_WAVE = "last-wave"
    BANDWIDTH = "bandwidth"
    LOW_CLOCK = "low-clock"
    FEW_EXPERT_ROWS = "few-expert-rows"
    OLD_KERNELS = "old-kernels"
    FINE_ACCUMULATION = "fine-accumulation"


FlopsSource = Literal["user", "shapes", "configuration"]


@dataclass(frozen=True, slots=True)
class PrecisionRate:
    """The peak rate of a GPU for dense matrices in one precision."""

    precision: Precision
    flops_per_s: float


@dataclass(frozen=True, slots=True)
class GpuPeak:
    """The peak rates of a GPU and their source, which is a data sheet unless they are derived.

    `clock_hz` is the clock of the multiprocessors at which it has these rates, `None` if it is unknown.
    `measured` are the best rates that libraries reach, as far as someone searched for them.
    """

    gpu: str
    rates: tuple[PrecisionRate, ...]
    source: str
    is_derived: bool
    clock_hz: float | None = None
    measured: tuple[PrecisionRate, ...] = ()

    def find_rate(self, precision: Precision) -> float | None:
        """Return the FLOP/s of a precision, `None` if it is unknown."""
        return next((one.flops_per_s for one in self.rates if one.precision is precision), None)

    def find_best_rate(self, precision: Precision) -> float | None:
        """Return the best measured FLOP/s of a precision, `None` if it is unknown."""
        return next((one.flops_per_s for one in self.measured if one.precision is precision), None)


@dataclass(frozen=True, slots=True)
class LineReason:
    """A part of a line, and why it is there."""

    reason: LossUnknown
    ns: int


@dataclass(frozen=True, slots=True)
class PeakReason:
    """Why kernels are below their peak; the size is `None` if it is only known that this matters."""

    reason: BelowPeak
    ns: int | None


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A line of the ledger; if compute kernels run, it is for one category of them.

    FLOPs given by the user have no category, because they belong to all kernels that multiply. `proven` means
    that the line's size is known. Other lines are time of kernels whose loss is unknown; their `reasons` say
    why, and sum to the line. `explained_by` says why kernels are below the peak.
    """

    line: Annotated[LedgerLine, Shown("what the time is spent on", "line")]
    category: Annotated[ComputeCategory | None, Shown("category of the kernels", "category")]
    ns: Annotated[int, Shown("time of the line in the typical step", "time", "ms")]
    proven: bool
    source: FlopsSource | None = None
    reasons: tuple[LineReason, ...] = ()
    explained_by: tuple[PeakReason, ...] = ()


@dataclass(frozen=True, slots=True)
class MatrixWork:
    """Kernels of one category that multiply in one precision, and how close to the peak they come.

    Attributes:
        category: of the kernels; `None` of FLOPs of the user, which all that multiply share.
        precision: in which they multiply.
        products: how many products of this precision stand for one: more than 1 where FP32 is emulated.
        ns: time of the typical step in them, without recomputed ones.
        model_flops: those that the model needs, at most.
        executed_flops: those that ran, `None` if only those of the model are known.
        flops_per_s: executed FLOPs by time, of the model if only these are known.
        peak_share: of the peak rate in this precision, divided by `products`; `None` without a peak.
        repeated_ns: time of recomputed kernels, in addition to `ns`.
        repeated_flops: those of recomputed kernels, `None` if unknown.
    """

    category: Annotated[ComputeCategory | None, Shown("category of the kernels", "category")]
    precision: Annotated[Precision, Shown("precision of the products", "precision")]
    products: int
    ns: Annotated[int, Shown("time in the typical step", "time", "ms")]
    model_flops: int
    executed_flops: int | None
    flops_per_s: Annotated[float | None, Shown("rate", "rate", "flops")]
    peak_share: Annotated[float | None, Shown("share of the peak rate", "of peak", "percent")]
    repeated_ns: int = 0
    repeated_flops: int | None = 0


@dataclass(frozen=True, slots=True)
class UncountedWork:
    """Kernels of one category that multiply in one precision, and whose FLOPs are unknown.

    Attributes:
        category: of the kernels.
        precision: in which they multiply.
        products: how many products of this precision stand for one: more than 1 where FP32 is emulated.
        work_ns: their durations in the typical step, without recomputed ones.
        peak_flops_per_s: the rate that the GPU reaches in such products at most, `None` if it is unknown.
        reasons: why they are below it, as names and grids show; how much each costs needs FLOPs.
    """

    category: Annotated[ComputeCategory, Shown("category of the kernels", "category")]
    precision: Annotated[Precision, Shown("precision of the products", "precision")]
    products: int
    work_ns: Annotated[int, Shown("work in the typical step", "work", "ms")]
    peak_flops_per_s: Annotated[float | None, Shown("peak rate of the GPU", "peak rate", "flops")]
    reasons: tuple[BelowPeak, ...] = ()


@dataclass(frozen=True, slots=True)
class SampledWork:
    """What Nsight Systems sampled of the GPU while only kernels of one category computed.

    Shares are means of the samples, `None` where the metric was not sampled.

    Attributes:
        category: of the kernels.
        samples: how many.
        sm_active: multiprocessors with a block.
        tensor_active: tensor cores at work, by their peak.
        dram: reads and writes of the memory, by its peak.
    """

    category: Annotated[ComputeCategory, Shown("category of the kernels", "category")]
    samples: Annotated[int, Shown("number of samples while only these kernels compute", "samples", "count")]
    sm_active: Annotated[float | None, Shown("share of multiprocessors with a block", "SM active", "percent")]
    tensor_active: Annotated[
        float | None, Shown("share of the tensor cores' peak", "tensor active", "percent")
    ]
    dram: Annotated[float | None, Shown("share of the memory's peak, reads and writes", "DRAM", "percent")]


@dataclass(frozen=True, slots=True)
class SampledClock:
    """The clock of the multiprocessors that Nsight Systems sampled while kernels of one category ran.

    Attributes:
        category: of the kernels.
        samples: how many.
        clock_mhz: their mean.
        peak_share: of the clock at which the GPU has its peak rates, `None` if that is unknown.
    """

    category: Annotated[ComputeCategory, Shown("category of the kernels", "category")]
    samples: Annotated[int, Shown("count of samples while any of these kernels runs", "samples", "count")]
    clock_mhz: Annotated[int, Shown("mean clock of the multiprocessors in MHz", "clock, MHz", "count")]
    peak_share: Annotated[float | None, Shown("share of the clock of the peak rates", "of peak", "percent")]


class LowClockLoss(NamedTuple):
    """Time that a low clock costs, in ns: of kernels with known FLOPs, and about that of the others."""

    known_ns: int
    unknown_ns: float


@dataclass(frozen=True, slots=True)
class SpeedOfLight:
    """Where the typical step of a rank loses its FLOPs: `lines` sum to `window_ns` exactly.

    FLOPs are for one step and GPU, counting two for a multiplication and an addition. `model_flops` are those
    that the model needs, according to the user, a configuration or operator shapes, and `executed_flops`
    those of the kernels that ran. `flops_whole_square` is the model FLOPs with the masked half of causal
    attention, which other tools count. With operator shapes, FLOPs are known for kernels with a share
    `covered` of all multiplying work. If that is below 1, FLOPs and shares are lower bounds, and below one
    half, the shares are `None`.

    Attributes:
        is_step: whether the window is a training step; shares of peak and step need one.
        mfu: time of the model FLOPs at the peak of the precision that they ran in, divided by the step.
        hfu: the same of the executed FLOPs.
        mfu_16bit: model FLOPs divided by what the step could do at the 16-bit peak.
        refused: why the configuration of the user gives no FLOPs; `None` if it does, or without any.
        assumes: what the FLOPs of a configuration take for granted, in words.
        uncounted: kernels that multiply without known FLOPs, those with most work first.
        sampled: GPU metrics while kernels multiply; empty if none were sampled, or too few.
    """

    window_ns: int
    is_step: bool
    peak: GpuPeak | None
    model_flops: int | None
    executed_flops: int | None
    source: FlopsSource | None
    covered: float | None
    mfu: float | None
    hfu: float | None
    mfu_16bit: float | None
    model_flops_per_s: float | None
    lines: tuple[LedgerEntry, ...]
    matrices: tuple[MatrixWork, ...] = ()
    flops_whole_square: int | None = None
    refused: PlanMismatch | None = None
    assumes: str = ""
    uncounted: tuple[UncountedWork, ...] = ()
    sampled: tuple[SampledWork, ...] = ()
    clocks: tuple[SampledClock, ...] = ()

    @property
    def peak_share(self) -> float | None:
        """MFU, else HFU; `None` without a step or its FLOPs."""
        return None if not self.is_step else self.hfu if self.mfu is None else self.mfu

    def measure_low_clock(self, categories: Collection[str]) -> LowClockLoss:
        """Return what kernels of some categories lose by a clock below that of the peak.

        Of lines without known FLOPs it is as much as is missing of the clock.
        """
        reasons = (each for one in self.lines if one.category in categories for each in one.explained_by)
        known_ns = sum(one.ns or 0 for one in reasons if one.reason is BelowPeak.LOW_CLOCK)
        unknown_ns = sum(
            self.total(LedgerLine.COMPUTE_UNKNOWN, category=one.category) * max(1 - one.peak_share, 0.0)
            for one in self.clocks
            if one.peak_share is not None and one.category in categories
        )
        return LowClockLoss(known_ns, unknown_ns)

    def total(self, *lines: LedgerLine, category: ComputeCategory | None = None) -> int:
        """Return the ns of some lines, of one category if it is given."""
        own = (one for one in self.lines if category is None or one.category is category)
        return sum(one.ns for one in own if one.line in lines)
