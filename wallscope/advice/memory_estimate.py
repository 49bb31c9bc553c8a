"""Estimate the memory of a GPU for a layout: parameters, gradients, optimizer state, activations, logits.

It is computed from the shape of the model and the degrees of parallelism, for the pipeline stage with most
memory. Temporary buffers, fragmentation and the memory of CUDA and NCCL are not included.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import ceil

from wallscope.model.advice import Folding, MemoryEstimate, RecomputeChoice
from wallscope.resources import read_toml

_OF_RECOMPUTED = {"layernorm": "norms", "moe_act": "expert_activation", "mla_up_proj": "projections"}
_LOGITS_BYTES = 6
"""Bytes per word of the vocabulary and token: scores in BF16, and in FP32 for the loss."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder; `dense_layers` have no experts; ranks and `rope_size` are for latent attention.

    A gated feed-forward layer has three matrices, others have two. Tied models share their two embeddings.
    """

    layers: int
    hidden: int
    heads: int
    groups: int
    head_size: int
    vocabulary: int
    feed_forward: int = 0
    experts: int = 0
    expert_width: int = 0
    experts_of_a_token: int = 0
    shared_width: int = 0
    dense_layers: int = 0
    query_rank: int = 0
    latent_rank: int = 0
    rope_size: int = 0
    gated: bool = True
    tied: bool = False

    @property
    def query_width(self) -> int:
        """Return the numbers of all query heads of a token."""
        return self.heads * (self.head_size + self.rope_size)

    @property
    def key_value_width(self) -> int:
        """Return the numbers of all key and value heads of a token, as attention reads them."""
        if self.latent_rank:
            return self.query_width + self.heads * self.head_size
        return 2 * self.groups * self.head_size

    def attention_parameters(self) -> int:
        """Count the parameters of attention in a layer."""
        out = self.heads * self.head_size * self.hidden
        if not self.latent_rank:
            return self.hidden * (self.query_width + self.key_value_width) + out
        queries = (
            self.query_rank * (self.hidden + self.query_width)
            if self.query_rank
            else self.hidden * self.query_width
        )
        latent = self.hidden * (self.latent_rank + self.rope_size)
        return queries + latent + self.latent_rank * 2 * self.heads * self.head_size + out


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """Storage of numbers: bytes of each, the recomputed modules, and whether all states are sharded."""

    weight_bytes: float = 2
    gradient_bytes: int = 4
    state_bytes: int = 12
    linear_input_bytes: float = 2
    recompute_modules: tuple[str, ...] = ()
    recompute_full: bool = False
    fully_sharded: bool = False


@cache
def model_shapes() -> dict[str, ModelShape]:
    """Return the shapes of model families, by name of the family."""
    return {name: ModelShape(**table) for name, table in read_toml("advice/shapes.toml")["shape"].items()}


@dataclass(frozen=True, slots=True)
class _Parameters:
    dense: float
    experts: float


def estimate_memory(
    shape: ModelShape,
    layout: Folding,
    microbatch_tokens: int,
    options: MemoryOptions,
    virtual_stages: int | None = None,
) -> MemoryEstimate:
    """Return the bytes that a GPU of the fullest pipeline stage needs, by part."""
    counted = _count_parameters(shape, layout)
    held = counted.dense + counted.experts
    replicas = layout.data * layout.sizes.context  # Context parallelism has the same weights on all ranks.
    states = counted.dense / replicas + counted.experts / layout.expert_data
    sharded = states if options.fully_sharded else held
    layers = _count_live_layers(shape, layout, virtual_stages)
    tokens = microbatch_tokens / layout.sizes.context
    working = held / max(ceil(shape.layers / layout.sizes.pipeline), 1) if options.fully_sharded else 0
    return MemoryEstimate(
        weights_bytes=round((sharded + 2 * working) * options.weight_bytes),
        gradients_bytes=round(sharded * options.gradient_bytes),
        optimizer_bytes=round(states * options.state_bytes),
        activations_bytes=round(tokens * layers * _token_bytes(shape, layout, options)),
        logits_bytes=round(tokens * shape.vocabulary / layout.sizes.tensor * _LOGITS_BYTES),
    )


def smallest_states(shape: ModelShape, layout: Folding) -> int:
    """Return the smallest possible bytes of parameters, gradients and optimizer state."""
    options = MemoryOptions(gradient_bytes=2, state_bytes=8)
    return estimate_memory(shape, layout, 0, options).total_bytes


def _count_parameters(shape: ModelShape, layout: Folding) -> _Parameters:
    """Count the parameters of a GPU in the stage with the embedding and its share of layers."""
    sizes = layout.sizes
    part = 1 / sizes.pipeline
    sparse = shape.layers - shape.dense_layers if shape.experts else 0
    dense = shape.layers - sparse
    width = (3 if shape.gated else 2) * shape.hidden
    attention = shape.layers * shape.attention_parameters()
    others = dense * width * shape.feed_forward + sparse * width * shape.shared_width
    embeddings = shape.vocabulary * shape.hidden * (2 if sizes.pipeline == 1 and not shape.tied else 1)
    routers = sparse * shape.hidden * shape.experts
    experts = sparse * width * shape.expert_width * shape.experts
    return _Parameters(
        dense=((attention + others) * part + embeddings) / sizes.tensor + routers * part,
        experts=experts * part / sizes.experts,
    )


def _count_live_layers(shape: ModelShape, layout: Folding, virtual_stages: int | None) -> float:
    """Return how many layers keep activations at once on the first stage, over all its microbatches."""
    stages, chunks = layout.sizes.pipeline, virtual_stages or 1
    if stages == 1:
        return shape.layers
    in_flight = stages if chunks == 1 else stages * (chunks - 1) + 2 * (stages - 1) + 1
    return in_flight * shape.layers / (stages * chunks)


def _token_bytes(shape: ModelShape, layout: Folding, options: MemoryOptions) -> float:
    """Return the bytes per token that backward needs in an average layer of a GPU."""
    hidden = shape.hidden
    if options.recompute_full:
        return 2 * hidden / layout.sizes.tensor
    linear = options.linear_input_bytes
    sparse = (shape.layers - shape.dense_layers) / shape.layers if shape.experts else 0
    topk = shape.experts_of_a_token
    parts = {
        "residuals": 4 * hidden,
        "norms": 2 * linear * hidden,
        "projections": 2 * (shape.query_width + shape.key_value_width),
        "latent": 2 * linear * (shape.query_rank + shape.latent_rank),
        "attention": linear * shape.heads * shape.head_size,
        "feed_forward": (1 - sparse) * ((4 if shape.gated else 2) + linear) * shape.feed_forward,
        "shared": sparse * (4 + linear) * shape.shared_width,
        "dispatched": sparse * topk * linear * hidden,
        "experts": sparse * topk * 4 * shape.expert_width,
        "expert_activation": sparse * topk * linear * shape.expert_width,
    }
    for module in options.recompute_modules:
        parts.pop(_OF_RECOMPUTED.get(module, module), None)
    if "mlp" in options.recompute_modules:
        parts["feed_forward"] = 0
    if "moe" in options.recompute_modules:
        parts |= {"dispatched": 0, "experts": 0, "expert_activation": 0, "shared": 0}
    return sum(parts.values()) / layout.sizes.tensor


def list_recompute_choices(
    shape: ModelShape,
    options: MemoryOptions,
    estimate: Callable[[MemoryOptions], MemoryEstimate],
    memory_bytes: int | None,
) -> tuple[RecomputeChoice, ...]:
    """Return the sets of modules from none to whole layers, in the order in which documents widen them."""

    def choose(modules: tuple[str, ...], chosen: MemoryOptions) -> RecomputeChoice:
        total_bytes = estimate(chosen).total_bytes
        fits = None if memory_bytes is None else total_bytes <= memory_bytes
        return RecomputeChoice(modules, total_bytes, fits)

    sets = [choose(each, replace(options, recompute_modules=each)) for each in _list_module_sets(shape)]
    return (*sets, choose(("full",), replace(options, recompute_full=True)))


def _list_module_sets(shape: ModelShape) -> tuple[tuple[str, ...], ...]:
    """Return the sets of selective recomputation that the model has modules for."""
    if not shape.experts:
        return (), ("layernorm",), ("layernorm", "mlp")
    latent = ("mla_up_proj",) if shape.latent_rank else ()
    dense = ("mlp",) if shape.dense_layers else ()
    first = ("moe_act", "layernorm")
    sets = ((), first, (*first, *latent, *dense), ("moe", "layernorm", *latent, *dense))
    return tuple(dict.fromkeys(sets))
