"""The machine-readable comparison: these classes are the published JSON contract, field by field.

Times are integer nanoseconds, ratios are head over base, `None` is unknown. Deltas are head minus base, of
the step that is compared: the typical one, or the mean of all. Those of walls sum to that of the step, and
each finer list to the coarser one.
"""

from typing import Final, Literal

from wallscope.model.enums import Axis, Grade, Wall
from wallscope.model.speed_of_light import MatrixWork
from wallscope.records import dataclass

COMPARISON_SCHEMA: Final = "wallscope.comparison/1"

Verdict = Literal["regression", "improvement", "no-change", "inconclusive", "incomparable"]
Replication = Literal["runs", "steps", "same", "none"]
NoiseSource = Literal["runs", "recorded", "assumed"]
ComparedStep = Literal["typical", "mean"]
MismatchSeverity = Literal["incomparable", "changed", "note"]
Direction = Literal["slower", "faster", "either"]


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One run of a comparison: its captures by base name and fingerprint, and the compared rank.

    A side from a store also has the commit and the testbed, in words. `is_representative` marks the rank that
    an analysis of the side is about. `matrices` lists the first run's multiplying kernels with known FLOPs.
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
    matrices: tuple[MatrixWork, ...] = ()


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Something besides time that differs between the sides: what, both values, and what follows.

    `effect` says which way it biases the comparison, and `direction` how that makes head look. `bias_ns` is
    the estimated change of the step, `None` if it is unknown. `wall` is the wall that it concerns, `None` for
    all. `is_setting` marks a declared setting or an environment variable.
    """

    what: str
    base: str
    head: str
    severity: MismatchSeverity
    effect: str = ""
    direction: Direction | None = None
    bias_ns: int | None = None
    wall: Wall | None = None
    is_setting: bool = False


@dataclass(frozen=True, slots=True)
class StepChange:
    """The typical steps and the confidence interval of their ratio.

    `replication` names what was resampled for the interval: runs, or blocks of steps of one run each, which
    do not show variation between runs. Nothing is resampled if both sides have the same capture or too few
    steps. The interval includes `run_noise`, the standard deviation between runs: observed in this
    comparison, recorded, or assumed. With one run each, `pair_ratio_low` to `pair_ratio_high` is the interval
    without it. `minimum_detectable_ratio` is the ratio that four out of five such comparisons would detect.
    Slow steps last more than 1.25 times the median. `slow_steps_chance` is the probability of such uneven
    numbers of slow steps without a change; consecutive ones count once. Mean and p90 cover all counted steps,
    including slow ones, with intervals of their ratios. If `tokens` are known and differ, both runs are
    scaled to that number. `paired` is true if runs were compared in pairs. About `runs_to_decide` runs of
    each program would decide an inconclusive verdict. `compared` is the step that sentences and deltas are
    about. This is the mean of all steps if slow steps surely changed it differently from the typical step.
    `grade` says how certain it is that this step changed, `None` if no change is claimed.
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
    paired: bool = False
    runs_to_decide: int | None = None
    grade: Grade | None = None
    compared: ComparedStep = "typical"

    @property
    def base_ns(self) -> int:
        """The length of the compared step of base."""
        return self.base_mean_ns if self.compared == "mean" else self.base_typical_ns

    @property
    def head_ns(self) -> int:
        """The length of the compared step of head."""
        return self.head_mean_ns if self.compared == "mean" else self.head_typical_ns

    @property
    def change_ns(self) -> int:
        """Head less base of the compared step."""
        return self.head_ns - self.base_ns

    @property
    def compared_ratio(self) -> float:
        """Head over base of the compared step."""
        return self.head_mean_ns / self.base_mean_ns if self.compared == "mean" else self.ratio

    @property
    def compared_low(self) -> float | None:
        """The lower end of the interval of that ratio."""
        return self.mean_ratio_low if self.compared == "mean" else self.ratio_low

    @property
    def compared_high(self) -> float | None:
        """The upper end of the interval of that ratio."""
        return self.mean_ratio_high if self.compared == "mean" else self.ratio_high


@dataclass(frozen=True, slots=True)
class WallDelta:
    """How a wall changed, with its interval if there is one.

    With one run per side, `pair_low_ns` to `pair_high_ns` is the interval of these steps alone, without the
    noise between runs. `run_noise` is the standard deviation between runs, as a share of the wall.
    `significant` says whether it changed, at 5 % false discoveries among all walls. `grade` says how certain
    these runs make the change, `None` if none is claimed.
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
    grade: Grade | None = None


@dataclass(frozen=True, slots=True)
class CauseDelta:
    """How a cause changed; a wall's causes sum to it. `significant` is tested among all causes."""

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
    grade: Grade | None = None


@dataclass(frozen=True, slots=True)
class OperationDelta:
    """How the time of one kind of operation changed; those of a cause sum to the cause.

    `count_delta_ns` comes from the number of operations, `rate_delta_ns` from the time per operation. Both
    sum to `delta_ns`. `base_name` differs from `name` if another kernel now does the same work, and
    `matched_by` is the evidence. A run without the operation has an empty name, and counts are `None` for
    host time. The row `rest` is the sum of those too small to list. `significant` says whether it changed, at
    5 % false discoveries among all rows.
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
    low_ns: int | None = None
    high_ns: int | None = None
    significant: bool = False
    grade: Grade | None = None


@dataclass(frozen=True, slots=True)
class OperationChange:
    """How device operations of one kind in one NVTX range changed.

    `kind` is `replaced` if other kernels now do the work of kernels in base. `count` is how often they run in
    the typical step, and `work_ns` the sum of their durations, so work divided by count is the time per call.
    `delta_ns` is the change of the step time attributed to them, without host time; most of it is in `wall`.
    `name` is the short name of the longest-running one of `names_count`. `low_ns` to `high_ns` is the
    interval of `delta_ns`. `significant` says whether they changed, at 5 % false discoveries among all
    operations.
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
    low_ns: int | None = None
    high_ns: int | None = None
    significant: bool = False
    grade: Grade | None = None


@dataclass(frozen=True, slots=True)
class CommunicationChange:
    """Communication of one axis in both runs: volume, work, exposed time, and hidden share.

    `low_ns` to `high_ns` is the interval of `delta_ns`. `significant` says whether it changed, at 5 % false
    discoveries among all axes.
    """

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
    low_ns: int | None = None
    high_ns: int | None = None
    significant: bool = False
    grade: Grade | None = None


@dataclass(frozen=True, slots=True)
class Deltas:
    """The change of the compared step at three levels of detail."""

    walls: tuple[WallDelta, ...]
    causes: tuple[CauseDelta, ...]
    operations: tuple[OperationDelta, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A recognized change: its description, and the change of the causes that it explains.

    If precision changed, `precisions` are those that most kernels of head run in.
    """

    code: str
    message: str
    delta_ns: int | None
    causes: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AppliedFix:
    """A recommendation for base that head has applied, with its bound and what was measured.

    Attributes:
        id: of the fix.
        title: what to do.
        wall: under which the fix is listed.
        evidence: settings, kernels and causes that show it.
        alternatives: ids of recommendations that the evidence fits too.
        window: the step of bound and gain: the typical one, or the mean over all steps.
        base_ns: its length in base.
        head_ns: its length in head.
        bound_ns: gain at most, by the recommendation for base.
        replayed_ns: gain in the replay of base.
        measured_ns: base less head.
        low_ns: lower end of its interval.
        high_ns: upper end of its interval.
        causes_ns: by how much the causes became shorter that the evidence concerns.
        share: measured gain by bound; `None` without a bound, and with several applied fixes.
        is_joint: whether other recommendations were applied too, so that they share the gain.
        causes: what its evidence concerns.
        precisions: in which kernels of head run, where that is not what the recommendation names.
        assumption: what the bound assumes, or what was expected, in words that follow "the bound".
        expected_next_wall: the wall of base's replayed step.
        next_wall: the wall of head: its largest loss, or compute.
        next_wall_ns: its time in head's typical step.
        expected_ns: gain at the rates that the recommendation assumed; `None` where the bound assumes them.
    """

    id: str
    title: str
    wall: Wall
    evidence: tuple[str, ...]
    alternatives: tuple[str, ...]
    window: Literal["typical", "mean"]
    base_ns: int
    head_ns: int
    bound_ns: int | None
    replayed_ns: int | None
    measured_ns: int
    low_ns: int | None
    high_ns: int | None
    causes_ns: int
    share: float | None
    is_joint: bool
    assumption: str
    expected_next_wall: str | None
    next_wall: Wall
    next_wall_ns: int
    expected_ns: int | None = None
    causes: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()


def is_perhaps_chance(one: AppliedFix) -> bool:
    """Return whether the 95 % interval of a gain holds none, or is unknown."""
    return one.low_ns is None or one.high_ns is None or one.low_ns <= 0 <= one.high_ns


@dataclass(frozen=True, slots=True)
class GateResult:
    """A gate that the user set, whether it passed, and the evidence in one line."""

    gate: str
    held: bool
    value: float | None
    evidence: str


@dataclass(frozen=True, slots=True)
class RankChange:
    """Another rank that is in both runs."""

    rank: int | None
    device: int | None
    base_typical_ns: int
    head_typical_ns: int
    ratio: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of one run of `diff`; `opening` is the sentence that all its screens begin with."""

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
    applied: tuple[AppliedFix, ...] = ()
    opening: str = ""
