"""Parallel layouts: how sizes share GPUs, which of them fit a sequence, and the memory that a GPU needs.

Memory is computed from the shape of the model and the degrees of parallelism, for the pipeline stage with
most memory. Temporary buffers, fragmentation and the memory of CUDA and NCCL are not included.
"""

import re
from collections.abc import Callable
from functools import cache
from math import ceil, log2

from wallscope.advice.conditions import Lookup
from wallscope.advice.published import Machine
from wallscope.errors import LayoutError, OptionError
from wallscope.files import read_toml
from wallscope.model.advice import Folding, MemoryEstimate, RecomputeChoice, Sizes
from wallscope.records import dataclass
from wallscope.thresholds.verdict import (
    TENSOR_FOR_CONTEXT_COUNT,
    TENSOR_FOR_CONTEXT_FROM_COUNT,
    TOKENS_OF_A_RANK_COUNT,
)

_NAMES = {
    "tp": "tensor",
    "pp": "pipeline",
    "cp": "context",
    "ep": "expert",
    "etp": "expert_tensor",
    "vpp": "virtual_pipeline",
}


def fold(sizes: Sizes, gpus: int, experts: int | None = None) -> Folding:
    """Divide the GPUs by the meshes of attention and experts, which share the same GPUs.

    >>> folded = fold(Sizes(tensor=4, pipeline=4, context=2, expert=64), 256, experts=256)
    >>> folded.data, folded.expert_data
    (8, 1)

    Raises:
        LayoutError: there are too few GPUs, or a size does not divide another.
    """
    text = f"TP{sizes.tensor} CP{sizes.context} PP{sizes.pipeline} EP{sizes.expert} ETP{sizes.expert_tensor}"
    if gpus < sizes.fewest_gpus:
        raise LayoutError(
            f"{text} on {gpus} GPUs — needs PP x max(TP x CP, EP x ETP) = {sizes.pipeline} x"
            f" max({sizes.attention}, {sizes.experts}) = {sizes.fewest_gpus} — reduce a size or add GPUs"
        )
    for name, mesh in (("TP x CP", sizes.attention), ("EP x ETP", sizes.experts)):
        if gpus % (mesh * sizes.pipeline):
            raise LayoutError(
                f"{text} — {gpus} GPUs are not divisible by PP x {name} = {mesh * sizes.pipeline} —"
                " change a size"
            )
    if experts == 0 and sizes.experts > 1:
        raise LayoutError(f"{text} — the model has no experts — leave out EP and ETP")
    if experts is not None and experts % sizes.expert:
        raise LayoutError(f"{text} — {experts} experts are not divisible by EP {sizes.expert} — change EP")
    stages = sizes.pipeline
    data, expert_data = gpus // (sizes.attention * stages), gpus // (sizes.experts * stages)
    return Folding(sizes, gpus, sizes.fewest_gpus, data, expert_data)


def fold_configuration(lookup: Lookup) -> Folding | None:
    """Fold the sizes of a configuration; `None` if GPUs, TP or PP are unknown. Other unset sizes are 1.

    Raises:
        LayoutError: the layout is impossible.
    """

    def size(name: str) -> int | None:
        value = lookup(name)[1]
        return value if isinstance(value, int) else None

    gpus, tensor, pipeline = (
        size(name) for name in ("world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size")
    )
    if gpus is None or tensor is None or pipeline is None:
        return None
    sizes = Sizes(
        tensor=tensor,
        pipeline=pipeline,
        context=size("context_parallel_size") or 1,
        expert=size("expert_model_parallel_size") or 1,
        expert_tensor=size("expert_tensor_parallel_size") or 1,
    )
    layout = fold(sizes, gpus, size("num_moe_experts"))
    of_training = size("global_batch_size"), size("micro_batch_size")
    of_evaluation = (
        size("eval_global_batch_size") or of_training[0],
        size("eval_micro_batch_size") or of_training[1],
    )
    for prefix, (batch, micro) in (("", of_training), ("eval_", of_evaluation)):
        if batch is not None and micro is not None and batch % (micro * layout.data):
            raise LayoutError(
                f"{prefix}global_batch_size {batch} — is not a multiple of {prefix}micro_batch_size x DP ="
                f" {micro} x {layout.data} — correct the sizes"
            )
    return layout


def parse_sizes(text: str | None) -> dict[str, int]:
    """Parse sizes as `tp4,cp2,pp4,vpp2,ep64`, by field of `Sizes`, and `virtual_pipeline`.

    >>> parse_sizes("tp4,cp2,PP=4")
    {'tensor': 4, 'context': 2, 'pipeline': 4}

    Raises:
        OptionError: a part is not a size, or occurs twice.
    """
    if not text:
        return {}
    found: dict[str, int] = {}
    for part in re.split(r"[\s,x]+", text.strip().lower()):
        match = re.fullmatch(r"(tp|pp|cp|ep|etp|vpp)=?([1-9]\d{0,5})", part)
        name = _NAMES[match[1]] if match else ""
        if match is None or name in found:
            raise OptionError(
                f"--layout {text} — {part!r} is not a size, or is repeated — write --layout tp4,cp2,pp4,ep64"
            )
        found[name] = int(match[2])
    return found


def context_and_tensor(seq_length: int, machine: Machine) -> tuple[int, int]:
    """Return CP and TP for a sequence: one rank per 4,096 tokens, rounded to a power of two.

    On racks of one NVLink domain, from 128K on, TP replaces a part and each rank has 8,192 tokens.
    """
    if machine.is_rack and seq_length >= TENSOR_FOR_CONTEXT_FROM_COUNT:
        ranks = power_of_two(seq_length / (2 * TOKENS_OF_A_RANK_COUNT))
        return max(ranks // TENSOR_FOR_CONTEXT_COUNT, 1), TENSOR_FOR_CONTEXT_COUNT
    return (
        power_of_two(seq_length / TOKENS_OF_A_RANK_COUNT) if seq_length > TOKENS_OF_A_RANK_COUNT else 1
    ), 1


def power_of_two(value: float) -> int:
    """Return the power of two that is nearest on a logarithmic scale, at least 1."""
    return int(2 ** max(round(log2(value)), 0))


def largest_expert(sizes: Sizes, gpus: int, experts: int | None) -> int:
    """Return the largest EP that GPUs, PP, ETP and the number of experts allow."""
    if experts == 0:
        return 1
    room, rest = divmod(gpus, sizes.pipeline * sizes.expert_tensor)
    if rest or not room:
        return 1
    divided = experts or room
    return max(each for each in range(1, room + 1) if room % each == 0 and divided % each == 0)


def check_shards(seq_length: int, context: int) -> None:
    """Refuse a sequence that context parallelism cannot divide.

    Raises:
        LayoutError: the sequence is not a multiple of 2 x CP.
    """
    if context > 1 and seq_length % (2 * context):
        raise LayoutError(
            f"sequence {seq_length:,} — is not divisible by 2 x CP = 2 x {context} — change its length or CP"
        )


def count_accumulation(global_batch: int | None, micro_batch: int, data: int) -> int | None:
    """Return the micro-batches of a step per data-parallel rank; `None` without a global batch.

    Raises:
        LayoutError: the global batch is not a multiple of DP x micro-batch.
    """
    if global_batch is None:
        return None
    if global_batch % (data * micro_batch):
        raise LayoutError(
            f"global batch {global_batch} — is not a multiple of DP x micro-batch = {data} x"
            f" {micro_batch} — change the batch"
        )
    return global_batch // (data * micro_batch)


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

    def change(
        self,
        *,
        gradient_bytes: int | None = None,
        recompute_modules: tuple[str, ...] = (),
        recompute_full: bool = False,
        fully_sharded: bool | None = None,
    ) -> "MemoryOptions":
        """Return the storage with other gradients, recomputation or sharding."""
        return MemoryOptions(
            self.weight_bytes,
            self.gradient_bytes if gradient_bytes is None else gradient_bytes,
            self.state_bytes,
            self.linear_input_bytes,
            recompute_modules,
            recompute_full,
            self.fully_sharded if fully_sharded is None else fully_sharded,
        )


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
    whole = counted.dense + counted.experts
    replicas = layout.data * layout.sizes.context  # Context parallelism has the same weights on all ranks.
    states = counted.dense / replicas + counted.experts / layout.expert_data
    sharded = states if options.fully_sharded else whole
    layers = _count_live_layers(shape, layout, virtual_stages)
    tokens = microbatch_tokens / layout.sizes.context
    working = whole / max(ceil(shape.layers / layout.sizes.pipeline), 1) if options.fully_sharded else 0
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

    sets = [choose(each, options.change(recompute_modules=each)) for each in list_module_sets(shape)]
    return (*sets, choose(("full",), options.change(recompute_full=True)))


def list_module_sets(shape: ModelShape) -> tuple[tuple[str, ...], ...]:
    """Return the sets of selective recomputation that the model has modules for."""
    if not shape.experts:
        return (), ("layernorm",), ("layernorm", "mlp")
    latent = ("mla_up_proj",) if shape.latent_rank else ()
    dense = ("mlp",) if shape.dense_layers else ()
    first = ("moe_act", "layernorm")
    sets = ((), first, (*first, *latent, *dense), ("moe", "layernorm", *latent, *dense))
    return tuple(dict.fromkeys(sets))
