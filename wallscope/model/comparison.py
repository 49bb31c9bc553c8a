"""The machine-readable comparison: these classes are the published JSON contract, field by field.

Times are integer nanoseconds of the typical step, ratios are head over base, `None` is unknown. Deltas are
head less base; those of walls sum to that of the step, and each finer list to the coarser one.
"""

from dataclasses import dataclass
from typing import Final, Literal

from wallscope.model.enums import Axis, Wall

COMPARISON_SCHEMA: Final = "wallscope.comparison/1"

Verdict = Literal["regression", "improvement", "no-change", "inconclusive", "incomparable"]
Replication = Literal["runs", "steps", "same", "none"]
NoiseSource = Literal["runs", "recorded", "assumed"]
MismatchSeverity = Literal["incomparable", "changed", "note"]
Direction = Literal["slower", "faster", "either"]


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One side: its captures by base name and fingerprint, and the rank that is compared.

    Of a side from a store also the commit and the testbed, in words. `is_representative` marks the
    rank that an analysis of the side is about.
    """

    name: str
    inputs: tuple[str, ...]
    fingerprints: tuple[str, ...]
    gpu: str | None
    rank: int | None
    device: int | None
    commit: str | None = None
    testbed: str | None = None
    is_representative: bool = True


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Something that differs between the sides in addition to time: what, both values, and what follows.

    `effect` says which way it biases the comparison and `direction` how head seems then; `bias_ns` is its
    estimate of the change of the step, `None` where it is unknown. `wall` is the one that it concerns, `None`
    for all.
    """

    what: str
    base: str
    head: str
    severity: MismatchSeverity
    effect: str = ""
    direction: Direction | None = None
    bias_ns: int | None = None
    wall: Wall | None = None


@dataclass(frozen=True, slots=True)
class StepChange:
    """The typical steps and how sure their ratio is.

    `replication` tells what was drawn again for the interval: runs; blocks of steps of one run a side,
    which say nothing of other runs; nothing, where both sides are the same capture or have too few steps.
    The interval holds what runs differ by: `run_noise`, a standard deviation, seen in the runs of this
    comparison, recorded, or assumed. Of one run a side, `pair_ratio_low` to `pair_ratio_high` is the interval
    of these steps without it. The ratio that can be told from 1 in four of five comparisons like this is
    `minimum_detectable_ratio`. Slow steps last more than 1.25 times the median; `slow_steps_chance` is how
    likely both sides' are spread as unevenly without a change. Mean and p90 are of all steps that count, slow
    ones included, with intervals of their ratios. Per token where `tokens` is known and differs: both sides
    are scaled to that many.
    """

    base_typical_ns: int
    head_typical_ns: int
    base_median_ns: int
    head_median_ns: int
    base_p90_ns: int
    head_p90_ns: int
    base_mean_ns: int
    head_mean_ns: int
    base_slow_steps: int
    head_slow_steps: int
    mean_ratio_low: float | None
    mean_ratio_high: float | None
    p90_ratio_low: float | None
    p90_ratio_high: float | None
    slow_steps_chance: float
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    pair_ratio_low: float | None
    pair_ratio_high: float | None
    confidence: float
    minimum_detectable_ratio: float | None
    margin_ratio: float
    margin_ns: int
    base_steps: int
    head_steps: int
    base_runs: int
    head_runs: int
    replication: Replication
    run_noise: float | None
    run_noise_source: NoiseSource | None
    tokens: int | None


@dataclass(frozen=True, slots=True)
class WallDelta:
    """How a wall changed, with its interval where there is one.

    Of one run a side, `pair_low_ns` to `pair_high_ns` is the interval of these steps alone, without what
    other runs may differ by. `run_noise` is the standard deviation between runs, as a share of the wall.
    `significant` is whether it changed, at 5 % false discoveries among all walls.
    """

    wall: Wall
    base_ns: int
    head_ns: int
    delta_ns: int
    low_ns: int | None
    high_ns: int | None
    pair_low_ns: int | None = None
    pair_high_ns: int | None = None
    significant: bool = False
    run_noise: float | None = None
    run_noise_source: NoiseSource | None = None


@dataclass(frozen=True, slots=True)
class CauseDelta:
    """How a cause changed; causes of a wall sum to it. `significant` is as of walls, among all causes."""

    wall: Wall
    cause: str
    base_ns: int
    head_ns: int
    delta_ns: int
    low_ns: int | None
    high_ns: int | None
    significant: bool = False
    run_noise: float | None = None
    run_noise_source: NoiseSource | None = None


@dataclass(frozen=True, slots=True)
class OperationDelta:
    """How what operations of one kind own changed; those of a cause sum to it.

    `count_delta_ns` is from how often they run, `rate_delta_ns` from what each owns; both sum to
    `delta_ns`. `base_name` differs from `name` where a kernel was replaced by another that does the same
    work; `matched_by` tells what said so. Names are empty on the side that lacks the operation, counts are
    `None` for time on the host. The row named `rest` holds all that are too small to list.
    """

    name: str
    base_name: str
    path: str
    category: str
    cause: str
    delta_ns: int
    count_delta_ns: int
    rate_delta_ns: int
    base_count: float | None
    head_count: float | None
    matched_by: str


@dataclass(frozen=True, slots=True)
class OperationChange:
    """How operations of the device in one NVTX range and of one kind changed.

    `kind` is `replaced` where kernels of base gave way to others that do the same work. `count` is how often
    they run in the typical step and `work_ns` the sum of their durations: work by count is the time per call.
    `delta_ns` is the change of the time of the step that is attributed to them, most of it in `wall`. `name`
    is the short name of the one that runs longest of `names_count`.
    """

    kind: Literal["new", "gone", "replaced", "changed"]
    path: str
    category: str
    base_category: str
    name: str
    base_name: str
    wall: Wall
    delta_ns: int
    base_count: float
    head_count: float
    base_work_ns: int
    head_work_ns: int
    base_names_count: int
    head_names_count: int


@dataclass(frozen=True, slots=True)
class CommunicationChange:
    """Communication of one axis on both sides: volume, work, exposure, and what is hidden of the work."""

    axis: Axis
    base_count: float
    head_count: float
    base_bytes: int | None
    head_bytes: int | None
    base_work_ns: int
    head_work_ns: int
    base_exposed_ns: int
    head_exposed_ns: int
    base_hidden_share: float | None
    head_hidden_share: float | None
    peer_wait_delta_ns: int
    delta_ns: int


@dataclass(frozen=True, slots=True)
class Deltas:
    """The change of the typical step, three times as fine."""

    walls: tuple[WallDelta, ...]
    causes: tuple[CauseDelta, ...]
    operations: tuple[OperationDelta, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A change that is recognised: what it is, in words, and the change of the causes that it explains."""

    code: str
    message: str
    delta_ns: int | None
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GateResult:
    """A gate that the user set, whether it held, and the evidence in a line."""

    gate: str
    held: bool
    value: float | None
    evidence: str


@dataclass(frozen=True, slots=True)
class RankChange:
    """Another rank that both sides have."""

    rank: int | None
    device: int | None
    base_typical_ns: int
    head_typical_ns: int
    ratio: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One object a run of `diff`."""

    schema: Literal["wallscope.comparison/1"]
    wallscope_version: str
    base: ComparedSide
    head: ComparedSide
    comparable: bool
    mismatches: tuple[Mismatch, ...]
    verdict: Verdict
    window: str
    step: StepChange
    deltas: Deltas
    communication: tuple[CommunicationChange, ...]
    explanations: tuple[Explanation, ...]
    ranks: tuple[RankChange, ...]
    gates: tuple[GateResult, ...]
    operations: tuple[OperationChange, ...] = ()
