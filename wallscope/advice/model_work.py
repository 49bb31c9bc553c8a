"""The multiplications of a model by its sizes: for each token, rank and step.

A layer is counted as Megatron-LM counts it: biases, norms and routers have no FLOPs. Causal
attention has the pairs that the mask leaves, those of a window if it has one.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from wallscope.advice.framework_rules import expand_layout
from wallscope.advice.model_layers import (
    DeltaRule,
    FeedForward,
    HybridLayers,
    LayerShape,
    Mixer,
    StateSpace,
    count_delta_rule,
    count_state_space,
)
from wallscope.model.enums import ComputeCategory
from wallscope.model.planned_work import (
    PlannedKind,
    PlannedLayers,
    PlannedPart,
    PlannedRepeat,
    PlannedWork,
)
from wallscope.records import dataclass

_GEMM, _GROUPED, _ATTENTION = (
    ComputeCategory.GEMM,
    ComputeCategory.GROUPED_GEMM,
    ComputeCategory.ATTENTION,
)
_FMA = 2


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Sizes of multi-latent attention; queries have no latent space if `query_rank` is 0."""

    query_rank: int
    latent_rank: int
    key_size: int
    rope_size: int
    value_size: int


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """Sizes that decide the multiplications of a model.

    Attributes:
        layers: of the decoder or encoder.
        ahead: layers that predict each further token, which has a head of its own.
        is_hybrid: whether each layer is one part alone, as in hybrid models of Megatron-LM.
        patches: inputs of a patch of an image, 0 of a model of tokens; `vocabulary` is then what a patch
            predicts.
    """

    hidden: int
    heads: int
    groups: int
    head_size: int
    vocabulary: int
    feed_forward: int
    layers: tuple[LayerShape, ...]
    ahead: tuple[tuple[LayerShape, ...], ...] = ()
    is_hybrid: bool = False
    experts: int = 0
    experts_of_a_token: int = 0
    expert_width: int = 0
    shared_width: int = 0
    latent_width: int = 0
    latent: LatentAttention | None = None
    state_space: StateSpace | None = None
    delta_rule: DeltaRule | None = None
    is_gated: bool = True
    has_output_gate: bool = False
    has_shared_gate: bool = False
    is_causal: bool = True
    patches: int = 0


@dataclass(frozen=True, slots=True)
class LayerWork:
    """Multiply-adds of one layer and token in the forward pass.

    `pairs` and `whole_pairs` count scores and values, for the pairs that a mask leaves and for all. `mixing`
    is an estimate of what a state space or a delta rule needs in addition to its linear layers.
    """

    dense: int
    experts: int
    router: int
    pairs: Fraction
    whole_pairs: Fraction
    mixing: Fraction


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """Sizes of a run: the model, its batches and how ranks divide it.

    `sequence` and `tokens` count a sequence and a micro-batch, before ranks divide them. `micro_batches`
    counts those of a step and rank. `stages` has the layers of each pipeline stage, with `E`, `m` and `L` for
    embedding, prediction and loss. `pipeline_before_data` is whether ranks of a pipeline are nearer to each
    other than those of data parallelism. `expert` is how many ranks share the experts, `None` if unknown.
    `repeated` names the modules that the backward pass computes again, `None` if unknown.
    """

    sizes: ModelSizes
    sequence: int
    tokens: int
    micro_batches: int
    tensor: int = 1
    context: int = 1
    data: int = 1
    stages: tuple[tuple[int | str, ...], ...] = ()
    pipeline_before_data: bool = False
    expert: int | None = None
    repeated: frozenset[str] | None = None

    def find_stage(self, rank: int | None) -> int | None:
        """Return the pipeline stage of a rank; `None` if its number is unknown and there are several."""
        if len(self.stages) == 1:
            return 0
        if rank is None:
            return None
        inner = self.tensor * self.context * (1 if self.pipeline_before_data else self.data)
        return rank // inner % len(self.stages)

    def plan_rank(self, rank: int | None) -> PlannedWork | None:
        """Return what a rank multiplies in a step; `None` if its stage is unknown."""
        stage = self.find_stage(rank)
        return None if stage is None else _plan_stage(self, stage)


def count_layer(sizes: ModelSizes, layer: LayerShape, sequence: int) -> LayerWork:
    """Count the multiply-adds of one layer and token in the forward pass."""
    hidden = sizes.hidden
    dense = experts = router = 0
    pairs = whole_pairs = mixing = Fraction(0)
    if layer.mixer is Mixer.ATTENTION:
        dense = _count_projections(sizes)
        a_pair = sizes.heads * sum(_measure_head(sizes))
        seen = _count_pairs(sequence, layer.window) if sizes.is_causal else sequence * sequence
        pairs, whole_pairs = Fraction(a_pair * seen, sequence), Fraction(a_pair * sequence)
    elif layer.mixer is Mixer.STATE_SPACE and sizes.state_space is not None:
        dense, mixing = count_state_space(sizes.state_space, hidden)
    elif layer.mixer is Mixer.DELTA_RULE and sizes.delta_rule is not None:
        dense, mixing = count_delta_rule(sizes.delta_rule, hidden)
    matrices = 3 if sizes.is_gated else 2
    if layer.feed_forward is FeedForward.EXPERTS:
        width = sizes.latent_width or hidden
        experts = matrices * width * sizes.expert_width * sizes.experts_of_a_token
        dense += matrices * hidden * sizes.shared_width + 2 * hidden * sizes.latent_width
        router = hidden * sizes.experts
    elif layer.feed_forward is FeedForward.DENSE:
        dense += matrices * hidden * sizes.feed_forward
    return LayerWork(dense, experts, router, pairs, whole_pairs, mixing)


def _count_projections(sizes: ModelSizes) -> int:
    """Count the multiply-adds of the linear layers of attention."""
    hidden, heads, own = sizes.hidden, sizes.heads, sizes.latent
    key_size, value_size = _measure_head(sizes)
    if own is None:
        wide = heads * (2 if sizes.has_output_gate else 1) + 2 * sizes.groups
        return hidden * key_size * wide + heads * value_size * hidden
    queries = own.query_rank * (hidden + heads * key_size) if own.query_rank else hidden * heads * key_size
    latent = hidden * (own.latent_rank + own.rope_size) + own.latent_rank * heads * (
        own.key_size + value_size
    )
    return queries + latent + heads * value_size * hidden


def _measure_head(sizes: ModelSizes) -> tuple[int, int]:
    """Return the size of a key and of a value of each head."""
    own = sizes.latent
    if own is None:
        return sizes.head_size, sizes.head_size
    return own.key_size + own.rope_size, own.value_size


def _count_pairs(sequence: int, window: int) -> int:
    """Count the pairs of query and key that a causal mask leaves, with a window of so many keys if not 0.

    >>> _count_pairs(4, 0), _count_pairs(4, 2), _count_pairs(4, 9)
    (10, 7, 10)
    """
    keys = min(window, sequence) if window else sequence
    return keys * sequence - keys * (keys - 1) // 2


def count_token_flops(sizes: ModelSizes, sequence: int) -> Fraction:
    """Return the FLOPs that training needs for each token: three times those of the forward pass."""
    run = PlannedRun(sizes, sequence, sequence, 1, stages=(place_layers(sizes, {})))
    stages = range(len(run.stages))
    return sum((_plan_stage(run, stage).training_flops for stage in stages), Fraction()) / sequence


def place_layers(sizes: ModelSizes, settings: Mapping[str, Any]) -> tuple[tuple[int | str, ...], ...]:
    """Return the layers of each pipeline stage by settings of Megatron, without any all in one stage.

    Raises:
        ValueError: the settings do not divide the layers.
    """
    layers = len(sizes.layers)
    stages = settings.get("pipeline_model_parallel_size") or 1
    chunks = settings.get("virtual_pipeline_model_parallel_size") or 1
    layout = settings.get("pipeline_model_parallel_layout")
    if layout:
        return _read_layout(str(layout), layers, stages)
    counts = _count_stages(layers, stages, chunks, settings)
    found: list[list[int | str]] = [[] for _ in range(stages)]
    next_layer = 0
    for chunk in range(chunks):
        for stage in range(stages):
            size = counts[stage] // chunks
            is_first, is_last = chunk + stage == 0, chunk == chunks - 1 and stage == stages - 1
            if settings.get("account_for_embedding_in_pipeline_split") and is_first:
                size -= 1
            if settings.get("account_for_loss_in_pipeline_split") and is_last:
                size -= 1
            found[stage] += range(next_layer, next_layer + size)
            next_layer += size
    if next_layer != layers:
        raise ValueError("layers and stages do not fit")
    found[0].insert(0, "E")
    found[-1] += ["m"] * len(sizes.ahead) + ["L"]
    return tuple(map(tuple, found))


def place_hybrid_layers(
    found: HybridLayers, settings: Mapping[str, Any]
) -> tuple[tuple[int | str, ...], ...]:
    """Return the layers of each pipeline stage, to which the parts of a hybrid pattern belong in turn.

    Raises:
        ValueError: parts and stages do not fit.
    """
    stages = settings.get("pipeline_model_parallel_size") or 1
    parts = found.parts if len(found.parts) > 1 else _count_stages(len(found.layers), stages, 1, settings)
    if len(parts) % stages:
        raise ValueError("parts of the pattern and stages do not fit")
    placed: list[list[int | str]] = [[] for _ in range(stages)]
    next_layer = 0
    for place, size in enumerate(parts):
        placed[place % stages] += range(next_layer, next_layer + size)
        next_layer += size
    placed[0].insert(0, "E")
    placed[-1] += ["m"] * len(found.ahead) + ["L"]
    return tuple(map(tuple, placed))


def _count_stages(layers: int, stages: int, chunks: int, settings: Mapping[str, Any]) -> list[int]:
    """Return how many layers each stage has, with those that stand for embedding and loss."""
    first, last = (settings.get(f"num_layers_in_{end}_pipeline_stage") for end in ("first", "last"))
    ends = sum(bool(settings.get(f"account_for_{one}_in_pipeline_split")) for one in ("embedding", "loss"))
    middle = stages - (first is not None) - (last is not None)
    left = layers + ends - (first or 0) - (last or 0)
    each, rest = divmod(left, middle) if middle else (0, left)
    counts = [each] * stages
    counts[0] = counts[0] if first is None else first
    counts[-1] = counts[-1] if last is None else last
    if rest or any(count % chunks for count in counts):
        raise ValueError("layers and stages do not fit")
    return counts


def _read_layout(text: str, layers: int, stages: int) -> tuple[tuple[int | str, ...], ...]:
    """Return the layers of each stage by a layout, whose parts belong to the stages in turn."""
    parts = (expand_layout(text) or "").split("|")
    found: list[list[int | str]] = [[] for _ in range(stages)]
    numbers = iter(range(layers))
    for place, part in enumerate(parts):
        found[place % stages] += [next(numbers, "?") if one == "t" else one for one in part]
    if next(numbers, None) is not None or any("?" in stage for stage in found):
        raise ValueError("layout and layers do not fit")
    return tuple(map(tuple, found))


def _plan_stage(run: PlannedRun, number: int) -> PlannedWork:
    """Return what a rank of a pipeline stage multiplies in a step."""
    sizes, stage = run.sizes, run.stages[number]
    before = sum(one.count("m") for one in run.stages[:number])
    predictions = stage.count("m")
    ahead = itertools.chain.from_iterable(sizes.ahead[before : before + predictions])
    shapes = [*(sizes.layers[one] for one in stage if isinstance(one, int)), *ahead]
    every = [count_layer(sizes, one, run.sequence) for one in shapes]
    heads = predictions + stage.count("L")
    scale = Fraction(_FMA * run.tokens * run.micro_batches, run.tensor * run.context)

    def part(kind: PlannedKind, needed: int | Fraction, *more: Any, **kinds: Any) -> PlannedPart:
        category = _CATEGORIES.get(kind, _GEMM)
        return PlannedPart(kind, category, needed * scale, *(one * scale for one in more), **kinds)

    dense, router = sum(one.dense for one in every), sum(one.router for one in every)
    experts, output = sum(one.experts for one in every), heads * sizes.hidden * sizes.vocabulary
    pairs, whole = sum(one.pairs for one in every), sum(one.whole_pairs for one in every)
    mixing = sum((one.mixing for one in every), Fraction(0))
    predicted = predictions * 2 * sizes.hidden**2
    parts = [
        part(PlannedKind.LAYERS, dense, dense),
        part(PlannedKind.HEAD, output, output),
        part(PlannedKind.OTHER, 0 if sizes.is_hybrid else predicted, predicted),
        part(PlannedKind.ROUTER, 0, router),
        part(PlannedKind.EXPERTS, experts, experts),
        part(PlannedKind.ATTENTION, pairs, whole, executed_gradients=_measure_gradients(sizes)),
        part(PlannedKind.MIXING, mixing, mixing),
    ]
    if "E" in stage and sizes.patches:  # images have no gradient
        patches = sizes.patches * sizes.hidden
        parts.append(part(PlannedKind.OTHER, patches, patches, gradients=1))
    has_experts = any(one.feed_forward is FeedForward.EXPERTS for one in shapes)
    return PlannedWork(
        parts=tuple(one for one in parts if one.flops or one.whole_flops),
        layers=tuple(_group_layers(sizes, shapes)),
        other_products=heads * bool(sizes.vocabulary) + predictions,
        micro_batches=run.micro_batches,
        tokens=run.tokens * run.micro_batches // run.context,
        sequence=run.sequence // run.context,
        heads=sizes.heads // run.tensor,
        widths=(sizes.hidden, *((sizes.vocabulary // run.tensor,) if heads and sizes.vocabulary else ())),
        is_causal=sizes.is_causal,
        outputs=frozenset(one for one in _list_outputs(sizes, run.tensor) if one),
        output_products=heads * bool(sizes.vocabulary),
        local_experts=tuple(_list_local_experts(sizes, run.expert)) if has_experts else (),
        expert_matrices=_of_mlp(sizes),
        expert_rows=_count_expert_rows(run) if has_experts else None,
        repeat=_plan_repeat(run, shapes, scale),
        assumes=" and ".join(_list_assumed(sizes, shapes)),
    )


def _group_layers(sizes: ModelSizes, shapes: list[LayerShape]) -> Iterator[PlannedLayers]:
    """Yield the layers of each kind, and how many products one of them may have."""
    for (mixer, own), count in Counter((one.mixer, one.feed_forward) for one in shapes).items():
        products = {one + two for one in _of_mixer(sizes, mixer) for two in _of_feed_forward(sizes, own)}
        yield PlannedLayers(
            count,
            tuple(sorted(products)),
            has_attention=mixer is Mixer.ATTENTION,
            has_experts=own is FeedForward.EXPERTS,
            has_mixing=mixer not in {None, Mixer.ATTENTION},
        )


def _count_expert_rows(run: PlannedRun) -> Fraction | None:
    """Return the rows of a local expert in a micro-batch with balanced routing."""
    if run.expert is None:
        return None
    rows = run.tokens * run.sizes.experts_of_a_token * run.expert
    return Fraction(rows, run.tensor * run.context * run.sizes.experts)


def _list_assumed(sizes: ModelSizes, shapes: list[LayerShape]) -> Iterator[str]:
    """Yield what the FLOPs of layers rest on."""
    if any(one.feed_forward is FeedForward.EXPERTS for one in shapes):
        yield "balanced routing"
    mixers, own = {one.mixer for one in shapes}, sizes.state_space
    if Mixer.STATE_SPACE in mixers and own is not None:
        is_as_wide = own.heads * own.head_size == 2 * sizes.hidden
        yield f"Megatron-LM's estimate of Mamba layers{'' if is_as_wide else f', {_TWICE}'}"
    if Mixer.DELTA_RULE in mixers:
        yield "Megatron-LM's estimate of gated delta nets"


_TWICE = "as if twice as wide as the hidden size"
_CATEGORIES = {
    PlannedKind.EXPERTS: _GROUPED,
    PlannedKind.ATTENTION: _ATTENTION,
    PlannedKind.MIXING: ComputeCategory.OTHER,
}
"""Of kernels; those of other kinds are matrix multiplications."""


def _list_local_experts(sizes: ModelSizes, ranks: int | None) -> Iterator[int]:
    """Yield how many experts of a layer a rank may have."""
    for local in range(1, sizes.experts + 1):
        if sizes.experts % local == 0 and ranks in {None, sizes.experts // local}:
            yield local


def _plan_repeat(run: PlannedRun, shapes: list[LayerShape], scale: Fraction) -> PlannedRepeat | None:
    """Return what the backward pass computes again by named modules, `None` if they are not known."""
    if run.repeated is None or not run.repeated <= _REPEATABLE:
        return None
    sizes, flops = run.sizes, dict[PlannedKind, Fraction]()
    layers = [count_layer(sizes, one, run.sequence) for one in shapes]
    products, again = {0}, 0
    count = sum(one.mixer is Mixer.ATTENTION for one in shapes)
    dense_layers, expert_layers = (sum(one.feed_forward is each for one in shapes) for each in FeedForward)
    per_matrix = sizes.hidden * (3 if sizes.is_gated else 2)

    def add(times: int, choices: tuple[int, ...], macs: int) -> None:
        nonlocal products, again
        products = {one + times * each for one in products for each in choices}
        again += times * macs

    if "mla_up_proj" in run.repeated and sizes.latent is not None:
        own = sizes.latent
        of_queries = own.query_rank * sizes.heads * (own.key_size + own.rope_size)
        add(
            count,
            (1 + bool(own.query_rank),),
            of_queries + own.latent_rank * sizes.heads * (own.key_size + own.value_size),
        )
    if "mlp" in run.repeated:
        add(dense_layers, _of_mlp(sizes), per_matrix * sizes.feed_forward)
    if run.repeated & {"shared_experts", "moe"} and sizes.shared_width:
        add(expert_layers, _of_mlp(sizes), per_matrix * sizes.shared_width)
    if "moe" in run.repeated:
        add(expert_layers, (1,), 0)
        flops[PlannedKind.ROUTER] = sum(one.router for one in layers) * scale
        flops[PlannedKind.EXPERTS] = sum(one.experts for one in layers) * scale
    attentions = count if "core_attn" in run.repeated else 0
    if attentions:
        flops[PlannedKind.ATTENTION] = sum((one.pairs for one in layers), Fraction()) * scale
    flops[PlannedKind.LAYERS] = again * scale
    return PlannedRepeat(frozenset(products), attentions, flops)


_REPEATABLE = frozenset(("mla_up_proj", "core_attn", "mlp", "shared_experts", "moe", "moe_act", "layernorm"))
"""Modules of Megatron that selective recomputation may name, whose multiplications are known."""


def _list_outputs(sizes: ModelSizes, tensor: int) -> Iterator[int]:
    """Yield the widths of multiplications outside attention on a rank, whatever is computed together."""
    yield sizes.hidden
    queries, keys = sizes.heads * sizes.head_size, sizes.groups * sizes.head_size
    wide = sizes.feed_forward, sizes.shared_width
    for width in (queries, keys, 2 * keys, queries + 2 * keys, sizes.vocabulary, *wide):
        yield width // tensor
    yield from (2 * width // tensor for width in wide)


def _measure_gradients(sizes: ModelSizes) -> Fraction:
    """Return the products of the backward pass of fused attention by those of the forward pass."""
    key, value = _measure_head(sizes)
    return Fraction(3 * key + 2 * value, key + value) if key else Fraction(2)


def _of_mixer(sizes: ModelSizes, mixer: Mixer | None) -> tuple[int, ...]:
    """Return how many products the linear layers of a mixer may be: inputs together or apart, the output."""
    if mixer is None:
        return (0,)
    if mixer is not Mixer.ATTENTION:
        return (2,) if mixer is Mixer.STATE_SPACE else (2, 3)
    if sizes.latent is None:
        return 2, 3, 4
    return (4, 5) if sizes.latent.query_rank else (3, 4)


def _of_feed_forward(sizes: ModelSizes, kind: FeedForward | None) -> tuple[int, ...]:
    """Return how many products a layer has after its mixer, without those of experts."""
    if kind is FeedForward.EXPERTS:
        shared = _of_mlp(sizes) if sizes.shared_width else (0,)
        outside = (2 if sizes.latent_width else 0) + sizes.has_shared_gate
        return tuple(1 + one + outside for one in shared)
    return (0,) if kind is None else _of_mlp(sizes)


def _of_mlp(sizes: ModelSizes) -> tuple[int, ...]:
    return (2, 3) if sizes.is_gated else (2,)
