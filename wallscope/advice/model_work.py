"""The multiplications of a model by its configuration: for each token, rank and step.

A layer is counted as Megatron-LM counts it: biases, norms and routers have no FLOPs. Causal
attention has the pairs that the mask leaves, those of a window if it has one. Sizes come from settings of
Megatron, or from `config.json` of Hugging Face with sequence and batch added.
"""

import json
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from wallscope.advice.configuration import ConfigurationFile
from wallscope.advice.configuration_text import read_text
from wallscope.advice.framework_rules import expand_layout
from wallscope.model.enums import ComputeCategory
from wallscope.model.planned_work import PlanMismatch, PlannedKind, PlannedPart, PlannedRepeat, PlannedWork
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
        has_experts: of each layer, whether it has experts.
        windows: of each layer, the keys that a query sees, 0 without a limit.
        predictions: layers that predict further tokens, each with a head.
        patches: inputs of a patch of an image, 0 of a model of tokens; `vocabulary` is then what a patch
            predicts.
    """

    hidden: int
    heads: int
    groups: int
    head_size: int
    vocabulary: int
    feed_forward: int
    has_experts: tuple[bool, ...]
    windows: tuple[int, ...]
    experts: int = 0
    experts_of_a_token: int = 0
    expert_width: int = 0
    shared_width: int = 0
    latent_width: int = 0
    latent: LatentAttention | None = None
    predictions: int = 0
    is_gated: bool = True
    has_output_gate: bool = False
    is_causal: bool = True
    patches: int = 0


@dataclass(frozen=True, slots=True)
class LayerWork:
    """Multiply-adds of one layer and token in the forward pass.

    `pairs` and `whole_pairs` count scores and values, for the pairs that a mask leaves and for all.
    """

    dense: int
    experts: int
    router: int
    pairs: Fraction
    whole_pairs: Fraction


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
        return None if stage is None else _plan_stage(self, self.stages[stage])


def count_layer(sizes: ModelSizes, layer: int, sequence: int) -> LayerWork:
    """Count the multiply-adds of one layer and token in the forward pass."""
    hidden, heads = sizes.hidden, sizes.heads
    if sizes.latent is not None:
        own = sizes.latent
        key_size, value_size = own.key_size + own.rope_size, own.value_size
        queries = (
            own.query_rank * (hidden + heads * key_size) if own.query_rank else hidden * heads * key_size
        )
        dense = queries + hidden * (own.latent_rank + own.rope_size)
        dense += own.latent_rank * heads * (own.key_size + value_size) + heads * value_size * hidden
    else:
        key_size = value_size = sizes.head_size
        wide = heads * (2 if sizes.has_output_gate else 1) + 2 * sizes.groups
        dense = hidden * key_size * wide + heads * value_size * hidden
    matrices = 3 if sizes.is_gated else 2
    experts = router = 0
    if sizes.has_experts[layer]:
        width = sizes.latent_width or hidden
        experts = matrices * width * sizes.expert_width * sizes.experts_of_a_token
        dense += matrices * hidden * sizes.shared_width + 2 * hidden * sizes.latent_width
        router = hidden * sizes.experts
    else:
        dense += matrices * hidden * sizes.feed_forward
    a_pair = heads * (key_size + value_size)
    pairs = _count_pairs(sequence, sizes.windows[layer]) if sizes.is_causal else sequence * sequence
    return LayerWork(dense, experts, router, Fraction(a_pair * pairs, sequence), Fraction(a_pair * sequence))


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
    return sum((_plan_stage(run, stage).training_flops for stage in run.stages), Fraction()) / sequence


def place_layers(sizes: ModelSizes, settings: Mapping[str, Any]) -> tuple[tuple[int | str, ...], ...]:
    """Return the layers of each pipeline stage by settings of Megatron, without any all in one stage.

    Raises:
        ValueError: the settings do not divide the layers.
    """
    layers = len(sizes.has_experts)
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
    found[-1] += ["m"] * sizes.predictions + ["L"]
    return tuple(map(tuple, found))


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


def _plan_stage(run: PlannedRun, stage: tuple[int | str, ...]) -> PlannedWork:
    """Return what a rank of a pipeline stage multiplies in a step."""
    sizes, last = run.sizes, len(run.sizes.has_experts) - 1
    counted = [count_layer(sizes, one, run.sequence) for one in stage if isinstance(one, int)]
    ahead = [count_layer(sizes, last, run.sequence) for one in stage if one == "m"]
    heads = stage.count("m") + stage.count("L")
    scale = Fraction(_FMA * run.tokens * run.micro_batches, run.tensor * run.context)
    every = counted + ahead

    def part(kind: PlannedKind, needed: int | Fraction, *more: Any, **kinds: Any) -> PlannedPart:
        category = _CATEGORIES.get(kind, _GEMM)
        return PlannedPart(kind, category, needed * scale, *(one * scale for one in more), **kinds)

    dense, router = sum(one.dense for one in every), sum(one.router for one in every)
    experts, output = sum(one.experts for one in every), heads * sizes.hidden * sizes.vocabulary
    pairs, whole = sum(one.pairs for one in every), sum(one.whole_pairs for one in every)
    predicted = len(ahead) * 2 * sizes.hidden**2
    parts = [
        part(PlannedKind.LAYERS, dense, dense),
        part(PlannedKind.HEAD, output, output),
        part(PlannedKind.OTHER, predicted, predicted),
        part(PlannedKind.ROUTER, 0, router),
        part(PlannedKind.EXPERTS, experts, experts),
        part(PlannedKind.ATTENTION, pairs, whole, executed_gradients=_measure_gradients(sizes)),
    ]
    if "E" in stage and sizes.patches:  # images have no gradient
        patches = sizes.patches * sizes.hidden
        parts.append(part(PlannedKind.OTHER, patches, patches, gradients=1))
    numbers = [one for one in stage if isinstance(one, int)]
    of_experts = sum(sizes.has_experts[one] for one in numbers) + len(ahead) * sizes.has_experts[last]
    return PlannedWork(
        parts=tuple(one for one in parts if one.flops or one.whole_flops),
        layers=len(every),
        expert_layers=of_experts,
        layer_products=tuple(sorted({one + two for one in _of_attention(sizes) for two in _of_mlp(sizes)})),
        expert_products=tuple(
            sorted({one + two for one in _of_attention(sizes) for two in _of_shared(sizes)})
        ),
        other_products=heads * bool(sizes.vocabulary) + len(ahead),
        micro_batches=run.micro_batches,
        tokens=run.tokens * run.micro_batches // run.context,
        sequence=run.sequence // run.context,
        heads=sizes.heads // run.tensor,
        widths=(sizes.hidden, *((sizes.vocabulary // run.tensor,) if heads and sizes.vocabulary else ())),
        is_causal=sizes.is_causal,
        outputs=frozenset(one for one in _list_outputs(sizes, run.tensor) if one),
        output_products=heads * bool(sizes.vocabulary),
        local_experts=tuple(_list_local_experts(sizes, run.expert)) if of_experts else (),
        expert_matrices=_of_mlp(sizes),
        repeat=_plan_repeat(run, every, of_experts, scale),
        assumes="balanced routing" if experts else "",
    )


_CATEGORIES = {PlannedKind.EXPERTS: _GROUPED, PlannedKind.ATTENTION: _ATTENTION}
"""Of kernels; those of other kinds are matrix multiplications."""


def _list_local_experts(sizes: ModelSizes, ranks: int | None) -> Iterator[int]:
    """Yield how many experts of a layer a rank may have."""
    for local in range(1, sizes.experts + 1):
        if sizes.experts % local == 0 and ranks in {None, sizes.experts // local}:
            yield local


def _plan_repeat(
    run: PlannedRun, layers: list[LayerWork], expert_layers: int, scale: Fraction
) -> PlannedRepeat | None:
    """Return what the backward pass computes again by named modules, `None` if they are not known."""
    if run.repeated is None or not run.repeated <= _REPEATABLE:
        return None
    sizes, count, flops = run.sizes, len(layers), dict[PlannedKind, Fraction]()
    products, again = {0}, 0
    dense_layers = count - expert_layers
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
    own = sizes.latent
    key, value = (
        (sizes.head_size, sizes.head_size) if own is None else (own.key_size + own.rope_size, own.value_size)
    )
    return Fraction(3 * key + 2 * value, key + value)


def _of_attention(sizes: ModelSizes) -> tuple[int, ...]:
    """Return how many products the projections may be: inputs together or apart, and the output."""
    if sizes.latent is None:
        return 2, 3, 4
    return (4, 5) if sizes.latent.query_rank else (3, 4)


def _of_mlp(sizes: ModelSizes) -> tuple[int, ...]:
    return (2, 3) if sizes.is_gated else (2,)


def _of_shared(sizes: ModelSizes) -> tuple[int, ...]:
    """Return how many products a layer with experts has outside them: a router, and a shared expert."""
    shared = _of_mlp(sizes) if sizes.shared_width else (0,)
    latent = 2 if sizes.latent_width else 0
    return tuple(1 + one + latent for one in shared)


def describes_model(path: Path) -> bool:
    """Return whether a file is the `config.json` of a model of Hugging Face."""
    return _read_json(path) is not None


def read_run(path: Path, read: ConfigurationFile | None, gpus: int | None) -> PlannedRun | PlanMismatch:
    """Return the sizes of a run by a user's file, or what it lacks.

    Args:
        path: the file.
        read: its settings of Megatron, `None` if it describes a model of Hugging Face.
        gpus: of the job, if the capture shows it.
    """
    if read is None:
        return _read_hugging_face(_read_json(path) or {})
    known = {name: known.value for name, known in read.configuration.settings.items()}
    try:
        return _read_megatron({**read.sizes, **known}, gpus)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return PlanMismatch.SIZES_UNKNOWN


def _read_json(path: Path) -> Mapping[str, Any] | None:
    """Return the `config.json` of a model of Hugging Face, `None` of other files."""
    if path.suffix.lower() != ".json":
        return None
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and "model_type" in found else None


_DECODERS = frozenset(
    (
        *("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "deepseek_v2"),
        *("deepseek_v3", "gpt2", "gpt_neox", "gpt_oss", "gemma", "phi3", "olmo", "olmo2", "stablelm"),
        *("starcoder2", "opt", "granite"),
    )
)
_ENCODERS = frozenset(("bert", "roberta", "vit"))
_NAMES = {
    "hidden": ("hidden_size", "n_embd"),
    "layers": ("num_hidden_layers", "n_layer"),
    "heads": ("num_attention_heads", "n_head"),
    "feed_forward": ("intermediate_size", "n_inner", "ffn_dim"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "sequence": ("seq_length", "sequence_length", "max_seq_length", "n_ctx_train"),
    "batch": ("micro_batch_size", "per_device_train_batch_size"),
    "accumulation": ("gradient_accumulation_steps",),
}
_UNGATED = frozenset(("gpt2", "gpt_neox", "opt", "bert", "roberta", "vit", "starcoder2"))


def _read_hugging_face(written: Mapping[str, Any]) -> PlannedRun | PlanMismatch:
    """Read `config.json`; sequence and batch are added to it by the user."""
    kind = written.get("model_type")
    if kind not in _DECODERS | _ENCODERS:
        return PlanMismatch.MODEL_UNKNOWN

    def number(*names: str, default: int = 0) -> int:
        found = (written[name] for name in names if written.get(name) is not None)
        return int(next(found, default))

    try:
        hidden, layers, heads = (number(*_NAMES[name]) for name in ("hidden", "layers", "heads"))
        experts = number(*_NAMES["experts"])
        latent = None
        if written.get("kv_lora_rank"):
            latent = LatentAttention(
                number("q_lora_rank"),
                number("kv_lora_rank"),
                number("qk_nope_head_dim"),
                number("qk_rope_head_dim"),
                number("v_head_dim"),
            )
        width = number("moe_intermediate_size", "intermediate_size")
        patches, vocabulary, sequence = 0, number("vocab_size"), number(*_NAMES["sequence"])
        if kind == "vit":
            patch, channels = number("patch_size"), number("num_channels", default=3)
            patches = patch * patch * channels
            vocabulary = number("encoder_stride", default=0) ** 2 * channels
            size = written["image_size"]
            tall, wide = size if isinstance(size, list) else (size, size)
            sequence = sequence or (tall // patch) * (wide // patch)
        batch, micro_batches = number(*_NAMES["batch"]), number(*_NAMES["accumulation"], default=1)
        sizes = ModelSizes(
            hidden=hidden,
            heads=heads,
            groups=number("num_key_value_heads", default=heads),
            head_size=number("head_dim", default=hidden // heads),
            vocabulary=vocabulary,
            feed_forward=number(*_NAMES["feed_forward"], default=4 * hidden),
            has_experts=tuple(_list_expert_layers(written, layers) if experts else [False] * layers),
            windows=tuple(_list_windows(written, layers)),
            experts=experts,
            experts_of_a_token=number("num_experts_per_tok"),
            expert_width=width if experts else 0,
            shared_width=number(
                "shared_expert_intermediate_size", default=number("n_shared_experts") * width
            ),
            latent=latent,
            predictions=number("num_nextn_predict_layers") if written.get("use_mtp") else 0,
            is_gated=kind not in _UNGATED,
            is_causal=kind in _DECODERS,
            patches=patches,
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return PlanMismatch.SIZES_UNKNOWN
    if not (hidden and layers and heads):
        return PlanMismatch.SIZES_UNKNOWN
    if not (sequence and batch):
        return PlanMismatch.BATCH_UNKNOWN
    stages = place_layers(sizes, {})
    return PlannedRun(sizes, sequence, sequence * batch, micro_batches, stages=stages)


def _list_expert_layers(written: Mapping[str, Any], layers: int) -> Iterator[bool]:
    dense = int(written.get("first_k_dense_replace") or 0)
    every = int(written.get("moe_layer_freq") or written.get("decoder_sparse_step") or 1)
    listed = set(written.get("mlp_only_layers") or ())
    for layer in range(layers):
        is_turn = (layer + 1) % every == 0 if "decoder_sparse_step" in written else layer % every == 0
        yield layer >= dense and is_turn and layer not in listed


def _list_windows(written: Mapping[str, Any], layers: int) -> Iterator[int]:
    """Yield the keys that a query of each layer sees, 0 without a limit."""
    window, kinds = written.get("sliding_window"), written.get("layer_types")
    has_window = bool(window) and written.get("use_sliding_window", True) is not False
    for layer in range(layers):
        is_limited = kinds[layer] == "sliding_attention" if kinds else has_window
        yield int(window or 0) if has_window and is_limited else 0


def _read_megatron(settings: Mapping[str, Any], gpus: int | None) -> PlannedRun | PlanMismatch:
    """Read settings of Megatron-LM or Megatron Bridge."""
    if settings.get("hybrid_layer_pattern") or settings.get("experimental_attention_variant"):
        return PlanMismatch.MODEL_UNKNOWN
    hidden, layers, heads = (
        int(settings[name]) for name in ("hidden_size", "num_layers", "num_attention_heads")
    )
    experts = settings.get("num_moe_experts") or 0
    latent = None
    if settings.get("multi_latent_attention"):
        latent = LatentAttention(
            settings.get("q_lora_rank") or 0,
            settings["kv_lora_rank"],
            settings["qk_head_dim"],
            settings["qk_pos_emb_head_dim"],
            settings["v_head_dim"],
        )
    wide = settings.get("ffn_hidden_size") or 4 * hidden
    sizes = ModelSizes(
        hidden=hidden,
        heads=heads,
        groups=settings.get("num_query_groups") or heads,
        head_size=settings.get("kv_channels") or hidden // heads,
        vocabulary=settings.get("padded_vocab_size") or settings["vocab_size"],
        feed_forward=wide,
        has_experts=_read_pattern(settings.get("moe_layer_freq"), layers) if experts else (False,) * layers,
        windows=_read_windows(settings, layers),
        experts=experts,
        experts_of_a_token=settings["moe_router_topk"] if experts else 0,
        expert_width=(settings.get("moe_ffn_hidden_size") or wide) if experts else 0,
        shared_width=settings.get("moe_shared_expert_intermediate_size") or 0,
        latent_width=settings.get("moe_latent_size") or 0,
        latent=latent,
        predictions=settings.get("mtp_num_layers") or 0,
        is_gated=bool(settings.get("swiglu") or settings.get("gated_linear_unit")),
        has_output_gate=bool(settings.get("attention_output_gate")),
    )
    if not settings.get("seq_length") or not settings.get("micro_batch_size"):
        return PlanMismatch.BATCH_UNKNOWN
    tensor, context, pipeline = (
        settings.get(f"{axis}_parallel_size") or 1 for axis in ("tensor_model", "context", "pipeline_model")
    )
    world = settings.get("world_size") or gpus
    if not world or not settings.get("global_batch_size"):
        return PlanMismatch.BATCH_UNKNOWN
    data, rest = divmod(world, tensor * context * pipeline)
    micro_batches, left = divmod(settings["global_batch_size"], settings["micro_batch_size"] * max(data, 1))
    if rest or left or not data:
        return PlanMismatch.SIZES_UNKNOWN
    return PlannedRun(
        sizes,
        settings["seq_length"],
        settings["seq_length"] * settings["micro_batch_size"],
        micro_batches,
        tensor=tensor,
        context=context,
        data=data,
        stages=place_layers(sizes, settings),
        pipeline_before_data=settings.get("use_tp_pp_dp_mapping") is True,
        expert=settings.get("expert_model_parallel_size") or 1,
        repeated=_read_repeated(settings),
    )


def _read_repeated(settings: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the modules that are computed again, `None` if settings do not say it, or say whole layers."""
    granularity = settings.get("recompute_granularity")
    if granularity != "selective":
        return None
    modules = settings.get("recompute_modules") or ("core_attn",)
    listed = re.findall(r"\w+", modules) if isinstance(modules, str) else modules
    return frozenset(map(str, listed))


def _read_pattern(written: Any, layers: int) -> tuple[bool, ...]:
    """Return which layers have experts, by a frequency or a list such as `([0]*3+[1]*58)`.

    >>> _read_pattern(2, 4), _read_pattern("([0]*1+[1]*2)", 3)
    ((True, False, True, False), (False, True, True))
    """
    text = str(1 if written is None else written)
    if text.isdecimal():
        return tuple(layer % int(text) == 0 for layer in range(layers))
    found: list[bool] = []
    for listed, times in re.findall(r"\[([01](?:,\s*[01])*)\](?:\s*\*\s*(\d{1,4}))?", text):
        found += [one == "1" for one in re.findall("[01]", listed)] * int(times or 1)
    if len(found) != layers:
        raise ValueError("the pattern of layers has another length")
    return tuple(found)


def _read_windows(settings: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """Return the keys that a query of each layer sees, 0 without a limit."""
    window, every = settings.get("window_size"), settings.get("window_attn_skip_freq")
    if not window:
        return (0,) * layers
    before = window[0] if isinstance(window, list | tuple) else int(re.findall(r"\d+", str(window))[0])
    if isinstance(every, int) and every:  # these layers see all keys
        return tuple(0 if (layer + 1) % every == 0 else int(before) + 1 for layer in range(layers))
    return (int(before) + 1,) * layers
