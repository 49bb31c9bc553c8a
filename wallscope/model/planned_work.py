"""The multiplications that a configuration plans for a rank, and what its kernels must then look like.

FLOPs are exact fractions, so that those of all ranks add up to the FLOPs of the job.
"""

from collections.abc import Mapping
from enum import StrEnum
from fractions import Fraction

from wallscope.model.enums import ComputeCategory
from wallscope.records import dataclass


class PlanMismatch(StrEnum):
    """Why a configuration is not used for FLOPs: what it lacks, or where the kernels contradict it."""

    SIZES_UNKNOWN = "sizes-unknown"
    MODEL_UNKNOWN = "model-unknown"
    BATCH_UNKNOWN = "batch-unknown"
    STAGE_UNKNOWN = "stage-unknown"
    OTHER_ATTENTION = "other-attention"
    OTHER_LAYERS = "other-layers"
    OTHER_TOKENS = "other-tokens"
    OTHER_SEQUENCE = "other-sequence"
    HIDDEN_KERNELS = "hidden-kernels"


class PlannedKind(StrEnum):
    """Where in a model multiplications are; `other` are those outside layers, such as of predictions.

    `mixing` is that of state spaces and delta rules, without their linear layers.
    """

    LAYERS = "layers"
    ROUTER = "router"
    EXPERTS = "experts"
    ATTENTION = "attention"
    MIXING = "mixing"
    HEAD = "head"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """Multiplications of one kind in the forward pass of a rank and step.

    Attributes:
        kind: where in the model they are.
        category: of the kernels that multiply.
        flops: those that the model needs; none of parts that only the program needs, such as a router.
        whole_flops: with the pairs of a causal mask that attention need not compute.
        gradients: how many products of this size the backward pass has.
        executed_gradients: the same with the scores that fused attention computes again.
    """

    kind: PlannedKind
    category: ComputeCategory
    flops: Fraction
    whole_flops: Fraction
    gradients: int = 2
    executed_gradients: Fraction = Fraction(2)


@dataclass(frozen=True, slots=True)
class PlannedRepeat:
    """What the backward pass of a rank and step computes again by its settings.

    Attributes:
        products: how many matrix multiplications that may be in a micro-batch, without grouped ones.
        attentions: how many times it computes attention in a micro-batch.
        flops: of a step, by kind.
    """

    products: frozenset[int]
    attentions: int
    flops: Mapping[PlannedKind, Fraction]


@dataclass(frozen=True, slots=True)
class PlannedLayers:
    """Layers of one kind, each of which runs once in every micro-batch.

    `products` is how many matrix multiplications one of them may have, without attention and grouped ones.
    `has_mixing` is whether tokens are mixed by a state space or a delta rule.
    """

    count: int
    products: tuple[int, ...]
    has_attention: bool
    has_experts: bool
    has_mixing: bool = False


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """What a configuration plans for one rank and step.

    Attributes:
        parts: the multiplications of the forward pass.
        layers: of the rank, by kind.
        other_products: multiplications outside layers, in each micro-batch.
        output_products: those of them that are output layers.
        local_experts: how many experts of a layer the rank may have; empty without experts.
        expert_matrices: how many products an expert may be.
        expert_rows: rows of a local expert in a micro-batch if routing is balanced, `None` if unknown.
        micro_batches: in a step, `None` if unknown.
        tokens: of a step, on this rank.
        sequence: tokens of a sequence, on this rank.
        heads: of attention, on this rank.
        is_causal: whether attention has a causal mask.
        widths: outputs of multiplications that each micro-batch has, on this rank.
        outputs: all that multiplications outside attention may have.
        repeat: what is computed again by the settings, `None` if they do not say it.
        assumes: what is not known and taken for granted, in words; empty without any.
    """

    parts: tuple[PlannedPart, ...]
    layers: tuple[PlannedLayers, ...]
    other_products: int
    micro_batches: int | None
    tokens: int
    sequence: int
    heads: int
    widths: tuple[int, ...]
    is_causal: bool = True
    outputs: frozenset[int] = frozenset()
    output_products: int = 0
    local_experts: tuple[int, ...] = ()
    expert_matrices: tuple[int, ...] = ()
    expert_rows: Fraction | None = None
    repeat: PlannedRepeat | None = None
    assumes: str = ""

    @property
    def expert_layers(self) -> int:
        """How many layers have experts."""
        return sum(one.count for one in self.layers if one.has_experts)

    @property
    def attention_layers(self) -> int:
        """How many layers have attention."""
        return sum(one.count for one in self.layers if one.has_attention)

    @property
    def mixing_layers(self) -> int:
        """How many layers have a state space or a delta rule."""
        return sum(one.count for one in self.layers if one.has_mixing)

    @property
    def training_flops(self) -> Fraction:
        """The FLOPs that the model needs of the rank in a step with a backward pass."""
        return sum((part.flops * (1 + part.gradients) for part in self.parts), Fraction())
