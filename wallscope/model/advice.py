"""What is answered without a trace: a checked configuration, a plan for a run, and what a word means."""

from dataclasses import dataclass
from typing import Literal, get_args

from wallscope.model.capture import Finding
from wallscope.model.fixes import Precondition

Level = Literal["error", "warning"]
Phase = Literal["freeze", "fit", "scale", "profile", "retune", "validate"]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""The parts of a tuning campaign, in their order."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Degrees of parallelism; expert tensor parallelism is 1 unless said otherwise."""

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    expert_tensor: int = 1

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
        """GPUs without which the layout cannot be: both meshes fold onto the same ones."""
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
    """A precondition with what breaking it means, and the settings that it could not be judged without."""

    precondition: Precondition
    level: Level
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FeatureCheck:
    """A feature with its preconditions; those of one that is off are judged as if it were on."""

    id: str
    title: str
    on: bool | None
    rows: tuple[Judged, ...]

    def unmet(self) -> tuple[Judged, ...]:
        """What is in its way."""
        return tuple(row for row in self.rows if row.precondition.status == "unmet")


@dataclass(frozen=True, slots=True)
class ConfigurationCheck:
    """Everything that a configuration alone tells; the layout is `None` where sizes or GPUs are unknown."""

    schema: Literal["wallscope.check-config/1"]
    features: tuple[FeatureCheck, ...]
    layout: Folding | None
    findings: tuple[Finding, ...]

    @property
    def stops(self) -> tuple[Judged, ...]:
        """What a program would stop at."""
        on = [feature for feature in self.features if feature.on]
        return tuple(row for feature in on for row in feature.unmet() if row.level == "error")


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to do; `facts` are the ids of the documents' facts that it rests on."""

    phase: Phase
    text: str
    settings: tuple[str, ...]
    facts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preset:
    """A published configuration: where it starts from, no promise; `None` is not stated there."""

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


@dataclass(frozen=True, slots=True)
class Band:
    """Published throughput in model TFLOP/s per GPU, in words, with what reached it."""

    family: str
    machine: str
    gpus: int | None
    precision: str | None
    text: str
    facts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Advice:
    """A plan for a run: its layout and where that comes from, the checklist, and what was published nearby.

    `largest_expert` is the largest EP that the other sizes and the number of experts leave; `accumulation`
    is `None` where no global batch was told.
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
    items: tuple[Item, ...]
    presets: tuple[Preset, ...]
    bands: tuple[Band, ...]


WordKind = Literal["cause", "wall", "fix", "finding", "fact", "topic"]


@dataclass(frozen=True, slots=True)
class ExplanationSection:
    """Lines under a heading; `verbatim` ones keep their spaces and breaks."""

    heading: str
    lines: tuple[str, ...]
    verbatim: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """A word, what kind of word it is, what it means in a sentence, and the rest."""

    word: str
    kind: WordKind
    meaning: str
    sections: tuple[ExplanationSection, ...]
