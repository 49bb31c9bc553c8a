"""Models of recommendations and configurations: fixes, settings, checks, plans, explanations."""

import re
from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Annotated, Literal, get_args

from wallscope.model.calibration import FixCalibration
from wallscope.model.capture import Finding, GraphTracing, Severity
from wallscope.model.enums import Axis, Backend, Precision, Wall
from wallscope.model.finding_codes import FindingCode
from wallscope.model.shown import Shown
from wallscope.model.whatif import Answer
from wallscope.records import dataclass

System = Literal[
    "megatron-bridge",
    "megatron-lm",
    "pytorch",
    "jax",
    "tensorflow",
    "inference",
    "directives",
    "julia",
    "program",
    "environment",
    "launcher",
    "nsys",
]
Framework = Literal[
    "megatron",
    "pytorch",
    "jax",
    "tensorflow",
    "inference",
    "directives",
    "julia",
    "cuda",
]
Met = Literal["met", "unmet", "unknown", "set"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of one system, under its current name, with its `value` as it is written there.

    A flag without a value has an empty one. For `pytorch`, `program` and `launcher` the key is a line of code
    or a command.
    """

    system: Annotated[
        System,
        Shown(
            "program to which the setting belongs, such as megatron-bridge, megatron-lm, pytorch,"
            " environment or nsys",
            "program",
        ),
    ]
    key: Annotated[str, Shown("name of the setting, or a line of code or command", "setting")]
    value: Annotated[
        str, Shown("value of the setting as the program spells it; empty for code and flags", "value")
    ]

    def write(self) -> str:
        """The setting as its system writes it.

        >>> Setting("megatron-lm", "--moe-token-dispatcher-type", "flex").write()
        '--moe-token-dispatcher-type flex'
        >>> Setting("nsys", "--sample", "none").write(), Setting("megatron-lm", "--bf16", "").write()
        ('--sample=none', '--bf16')
        """
        if not self.value:
            return self.key
        return f"{self.key}{' ' if self.system == 'megatron-lm' else '='}{self.value}"

    def write_code(self) -> str:
        """The same without the comment that explains it."""
        return self.write().partition("  # ")[0]


@dataclass(frozen=True, slots=True)
class Precondition:
    """A condition of a fix, checked with the trace or the run configuration.

    `text` says what holds, what must hold and what is the case instead, or what is unknown. `set` means that
    the fix itself sets it, and that the run does not show it. `unblock` says what to change if it is unmet.
    """

    id: Annotated[str, Shown("id of the precondition", "id", column="precondition")]
    text: Annotated[
        str, Shown("the condition that is met, unmet or unknown, with the values from the run", "condition")
    ]
    status: Annotated[Met, Shown("met, unmet, unknown, or set (by the fix itself)", "state")]
    unblock: Annotated[str | None, Shown("what to change if the condition is unmet", "what to change")] = None


@dataclass(frozen=True, slots=True)
class ExpectedGain:
    """A published measurement with its context, not a prediction: speed-up ratios, or `None`."""

    text: str
    low: float | None
    high: float | None
    context: str


@dataclass(frozen=True, slots=True)
class Program:
    """The framework whose settings a program takes, and the evidence for it.

    `framework` is `None` without evidence. `parts` are libraries and features (`ddp`, `dali`,
    `torch-compile`), with `part_names` for readers. `evidence` is for the framework, then for each part.
    """

    framework: Framework | None
    name: str
    parts: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    part_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fix:
    """One ranked fix for one or several causes.

    `causes` are those of this run that it addresses. `recoverable_ns` is the gain of its own replay, else the
    largest ceiling of its causes, `None` if unknown. It is `blocked` while a precondition is unmet. `replay`
    is the replayed step with the fix fully effective, `None` if not computed (`Analysis.replay`). `evidence`
    lists the rows that support it. `refuted_by` is what another capture shows if it has no effect.
    `assumption` says what the upper bound assumes, in words that follow "the bound". `assumes` says the same
    as a sentence, and also why the bound differs much from the time of the causes. `experience` is how much
    of their bounds its applications realized, in the records that were given.
    """

    id: Annotated[str, Shown("id of the fix, as in docs/fixes.md", "fix", column="fix")]
    title: Annotated[str, Shown("what to do", "fix")]
    wall: Annotated[Wall, Shown("wall under which the fix is listed in docs/fixes.md", "wall")]
    causes: Annotated[
        tuple[str, ...], Shown("causes of this run that the fix addresses, separated by semicolons", "causes")
    ]
    why: str
    settings: tuple[Setting, ...]
    preconditions: tuple[Precondition, ...]
    blocked: Annotated[bool, Shown("whether any precondition of the fix is unmet", "blocked")]
    recoverable_ns: Annotated[
        int | None,
        Shown(
            "upper bound on how much the fix shortens the {whole}; with `most_speedup`, how much it does"
            " at the rates given in `assumes`",
            "gain",
            "ms",
        ),
    ]
    speedup_ceiling: Annotated[
        float | None,
        Shown(
            "upper bound on the speedup: length of the {whole} divided by its length without"
            " `recoverable_ns`",
            "upper bound",
            "speedup",
        ),
    ]
    expected_gain: ExpectedGain | None
    caveats: tuple[str, ...]
    verify: Annotated[str, Shown("how to check that the fix has an effect", "check")]
    source: Annotated[str, Shown("documents on which the fix is based", "source")]
    next_wall: str | None = None
    replay: Answer | None = None
    evidence: tuple[str, ...] = ()
    refuted_by: str = ""
    assumes: str = ""
    assumption: str = ""
    experience: FixCalibration | None = None
    most_speedup: Annotated[
        float | None,
        Shown(
            "largest speedup from removing the lines of `speed_of_light` that the fix can remove;"
            " `speedup_ceiling` is then the speedup at the rates given in `assumes`",
            "at most",
            "speedup",
        ),
    ] = None
    keeps_floor: Annotated[
        bool | None,
        Shown(
            "whether `most_speedup` leaves kernels the time that their FLOPs need at the peak rate; if not,"
            " their FLOPs are unknown, and the kernels take no time",
            "FLOPs known",
        ),
    ] = None


Value = bool | int | float | str | None | tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class KnownSetting:
    """A setting's value, and its source: a file, a kernel or range of the trace, the environment."""

    value: Value
    source: str


@dataclass(frozen=True, slots=True)
class RunConfiguration:
    """Settings by canonical name: the current Megatron Bridge key without its section.

    Missing settings are unknown. A setting that is known to be off is present with its value.
    """

    settings: Mapping[str, KnownSetting] = field(default_factory=dict)

    def get(self, key: str) -> Value:
        """Return the value, or `None` if it is unknown."""
        known = self.settings.get(key)
        return None if known is None else known.value

    def knows(self, key: str) -> bool:
        """Return whether the setting is known."""
        return key in self.settings


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What a trace shows of the machine and the run; empty or `None` is unknown.

    `architecture` is spelled as in exports (`sm_90`). `communicator_sizes` are the numbers of ranks of the
    communicators on an axis. `backends` are the communication libraries whose kernels ran. `least` are lower
    bounds of numbers of the configuration, whose values are not known by them.
    """

    architecture: str | None = None
    gpu: str | None = None
    nvlink_domain: int | None = None
    world_size: int | None = None
    backends: tuple[Backend, ...] = ()
    communicator_sizes: Mapping[Axis, tuple[int, ...]] = field(default_factory=dict)
    cuda_graphs: GraphTracing | None = None
    precisions: tuple[Precision, ...] = ()
    grouped_experts: bool | None = None
    permute_fused: bool | None = None
    router_fused: bool | None = None
    ep_overlap: bool | None = None
    delayed_wgrad: bool | None = None
    activation_offload: bool | None = None
    least: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, Value]:
        """Return properties of the machine under the keys of conditions, without unknown ones."""
        numbers = re.fullmatch(r"sm_(\d+)\d[a-z]?", self.architecture or "")
        facts: dict[str, Value] = {
            "compute_capability": None if numbers is None else int(numbers[1]),
            "gpu_name": self.gpu,
            "nvlink_domain": self.nvlink_domain,
            "world_size": self.world_size,
        }
        return {key: value for key, value in {**facts, **self.environment}.items() if value is not None}


Level = Literal["error", "warning"]
Phase = Literal["freeze", "fit", "scale", "profile", "retune", "validate"]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""The phases of tuning, in order."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Degrees of parallelism; expert tensor parallelism is 1 by default."""

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    expert_tensor: int = 1

    def change(self, **sizes: int) -> "Sizes":
        """Return the degrees with some others."""
        return replace(self, **sizes)

    @property
    def attention(self) -> int:
        """GPUs of one attention replica in a pipeline stage."""
        return self.tensor * self.context

    @property
    def experts(self) -> int:
        """GPUs of one replica of the experts in a pipeline stage."""
        return self.expert * self.expert_tensor

    @property
    def fewest_gpus(self) -> int:
        """The smallest number of GPUs of the layout: both meshes fold onto the same ones."""
        return self.pipeline * max(self.attention, self.experts)


@dataclass(frozen=True, slots=True)
class Folding:
    """Both meshes over the GPUs of a job: TP x CP x DP x PP, and ETP x EP x EDP x PP."""

    sizes: Sizes
    gpus: int
    fewest_gpus: int
    data: int
    expert_data: int


@dataclass(frozen=True, slots=True)
class Judged:
    """A precondition, the effect of breaking it, and the unknown settings that it needs."""

    precondition: Precondition
    level: Level
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FeatureCheck:
    """A feature with its preconditions, which are judged as if it were on even if it is off."""

    id: str
    title: str
    on: bool | None
    rows: tuple[Judged, ...]

    def unmet(self) -> tuple[Judged, ...]:
        """Return the preconditions that block it."""
        return tuple(row for row in self.rows if row.precondition.status == "unmet")


class FormKind(StrEnum):
    """What a file of settings is; only of a whole run can be said that it stops."""

    SETTINGS = "settings"
    LOG = "log"
    COMMAND = "command"
    ALTERNATIVES = "alternatives"
    PARTS_ELSEWHERE = "parts-elsewhere"
    DERIVED = "derived"
    OVERRIDES = "overrides"
    WRAPPER = "wrapper"
    SEVERAL_RUNS = "several-runs"
    FRAGMENT = "fragment"
    OTHER_PROGRAM = "other-program"


@dataclass(frozen=True, slots=True)
class FileForm:
    """What a file is, and the program that it starts; `is_whole` if it has all settings of a run."""

    kind: FormKind
    program: str | None = None
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class ConfigurationCheck:
    """What a configuration alone shows; the layout is `None` if sizes or the number of GPUs are unknown.

    If a file is incomplete, no check says that the run stops, because what is missing may decide.
    """

    schema: Literal["wallscope.check-config/1"]
    form: FileForm
    features: tuple[FeatureCheck, ...]
    layout: Folding | None
    findings: tuple[Finding, ...]

    @property
    def conflicts(self) -> tuple[Judged, ...]:
        """Return the preconditions that would stop a program with these settings."""
        on = [feature for feature in self.features if feature.on]
        return tuple(row for feature in on for row in feature.unmet() if row.level == "error")

    @property
    def stops(self) -> tuple[Judged, ...]:
        """Return the preconditions that stop the run."""
        return self.conflicts if self.form.is_whole else ()

    @property
    def stop_count(self) -> int:
        """How many checks fail that stop a run, impossible sizes included."""
        impossible = sum(finding.severity is Severity.ERROR for finding in self.findings)
        return len(self.stops) + impossible

    @property
    def stops_later(self) -> bool:
        """Whether the framework accepts the sizes when it starts, but training then stops."""
        return any(
            finding.code == FindingCode.CONFIGURATION_IMPOSSIBLE and finding.severity is Severity.WARNING
            for finding in self.findings
        )


@dataclass(frozen=True, slots=True)
class Item:
    """One item of the checklist; `facts` are the ids of the facts that support it."""

    phase: Phase
    text: str
    settings: tuple[str, ...]
    facts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preset:
    """A published configuration as a starting point; `None` stands for what it does not state."""

    name: str
    family: str
    gpus: int
    machine: str
    precision: str
    sizes: Sizes
    virtual_pipeline: int | None
    micro_batch: int | None
    global_batch: int | None
    dispatcher: str
    cuda_graphs: str
    recompute: str
    ep_overlap: bool | None
    states_layout: bool
    fully_sharded: bool = False


@dataclass(frozen=True, slots=True)
class Band:
    """Published throughput in model TFLOP/s per GPU, in words, with its software stack."""

    family: str
    machine: str
    gpus: int | None
    precision: str | None
    text: str
    facts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes that a GPU in the fullest pipeline stage needs, by part, without temporary buffers.

    `vision_bytes` are the activations of a vision tower and its projectors; its other parts are included in
    those of the decoder.
    """

    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    logits_bytes: int
    vision_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All parts together."""
        states = self.weights_bytes + self.gradients_bytes + self.optimizer_bytes
        return states + self.activations_bytes + self.logits_bytes + self.vision_bytes


@dataclass(frozen=True, slots=True)
class Levers:
    """What saves memory in a plan: recomputed modules (`full`: whole layers), BF16, an offloaded optimizer.

    `short_gradients` and `short_moments` are in BF16 instead of FP32.
    """

    recompute: tuple[str, ...] = ()
    short_gradients: bool = False
    short_moments: bool = False
    offloads_optimizer: bool = False


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The levers of a plan, and the memory that a GPU then needs; `fits` is `None` if its own is unknown."""

    levers: Levers
    memory: MemoryEstimate
    fits: bool | None


@dataclass(frozen=True, slots=True)
class RecomputeChoice:
    """Modules to recompute, `full` for whole layers, and the memory that a GPU then needs."""

    modules: tuple[str, ...]
    total_bytes: int
    fits: bool | None


@dataclass(frozen=True, slots=True)
class ShardedLayout:
    """A layout whose parameters, gradients and optimizer state are all sharded over data parallelism.

    `implementations` lists those that support it. `memory` is without recomputation; `recomputed_bytes` is
    the total with full recomputation.
    """

    layout: Folding
    implementations: tuple[str, ...]
    memory: MemoryEstimate
    recomputed_bytes: int


@dataclass(frozen=True, slots=True)
class Advice:
    """A plan for a run: its layout and where that comes from, the checklist, and similar published runs.

    `largest_expert` is the largest EP that the other sizes and the number of experts allow. `accumulation` is
    `None` without a global batch. `memory` is estimated, `None` if the sizes of the model are unknown.
    `planned` has the levers that make it fit. `dispatcher` is for experts, and empty without them. `bridge`
    is the plan as Megatron Bridge YAML, and `arguments` as Megatron-LM arguments. `memory_capacity_bytes` is
    the GPU memory available to it. `recompute` lists sets of modules, from none to whole layers. `feasible`
    has all sizes whose states fit, and `sharded` those that fit fully sharded. `misses_tower` means that the
    vision tower's sizes are unknown, so no memory figure includes it. Otherwise, at most `image_tokens` of a
    sequence come from images, `None` without a tower.
    """

    schema: Literal["wallscope.advice/1"]
    model: str
    machine: str
    seq_length: int
    precision: str
    layout: Folding
    layout_source: str
    largest_expert: int
    virtual_pipeline: int | None
    accumulation: int | None
    memory: MemoryEstimate | None
    memory_capacity_bytes: int | None
    planned: MemoryPlan | None
    dispatcher: str
    bridge: str
    arguments: str
    recompute: tuple[RecomputeChoice, ...]
    feasible: tuple[Sizes, ...]
    sharded: tuple[ShardedLayout, ...]
    items: tuple[Item, ...]
    presets: tuple[Preset, ...]
    bands: tuple[Band, ...]
    image_tokens: int | None = None
    misses_tower: bool = False


WordKind = Literal["cause", "wall", "fix", "finding", "fact", "term", "topic"]


@dataclass(frozen=True, slots=True)
class ExplanationSection:
    """Lines under a heading; `verbatim` ones keep their spaces and breaks."""

    heading: str
    lines: tuple[str, ...]
    verbatim: bool = False


@dataclass(frozen=True, slots=True)
class WordExplanation:
    """An explained word: its kind, its meaning in a sentence, and details."""

    word: str
    kind: WordKind
    meaning: str
    sections: tuple[ExplanationSection, ...]
