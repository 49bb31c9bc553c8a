"""The sizes of a run, by a user's file.

They come from settings of Megatron, or from `config.json` of Hugging Face with sequence and batch added.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wallscope.advice.configuration import ConfigurationFile
from wallscope.advice.configuration_text import read_text
from wallscope.advice.model_layers import (
    DeltaRule,
    FeedForward,
    LayerShape,
    Mixer,
    StateSpace,
    list_mixers,
    list_single_parts,
    read_hybrid_pattern,
)
from wallscope.advice.model_work import (
    LatentAttention,
    ModelSizes,
    PlannedRun,
    place_hybrid_layers,
    place_layers,
)
from wallscope.model.planned_work import PlanMismatch


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
_MIXING = {
    "mamba2": Mixer.STATE_SPACE,
    "nemotron_h": Mixer.STATE_SPACE,
    "bamba": Mixer.STATE_SPACE,
    "granitemoehybrid": Mixer.STATE_SPACE,
    "qwen3_next": Mixer.DELTA_RULE,
}
"""Decoders with other layers than attention, and what mixes their tokens in these."""
_SINGLE_PARTS, _WITHOUT_FEED_FORWARD = "nemotron_h", "mamba2"
_NAMES = {
    "hidden": ("hidden_size", "n_embd"),
    "layers": ("num_hidden_layers", "n_layer"),
    "heads": ("num_attention_heads", "n_head", "num_heads"),
    "feed_forward": ("intermediate_size", "n_inner", "ffn_dim"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "shared": (
        *("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"),
        "shared_intermediate_size",
    ),
    "sequence": ("seq_length", "sequence_length", "max_seq_length", "n_ctx_train"),
    "batch": ("micro_batch_size", "per_device_train_batch_size"),
    "accumulation": ("gradient_accumulation_steps",),
    "state": ("ssm_state_size", "mamba_d_state", "state_size"),
    "state_groups": ("n_groups", "mamba_n_groups"),
    "state_heads": ("mamba_num_heads", "mamba_n_heads", "num_heads"),
}
_UNGATED = frozenset(("gpt2", "gpt_neox", "opt", "bert", "roberta", "vit", "starcoder2", "nemotron_h"))
_SHARED_GATES = frozenset(("qwen2_moe", "qwen3_next"))


class _Numbers:
    """Sizes of a `config.json`, under any of several names."""

    def __init__(self, written: Mapping[str, Any]) -> None:
        self._written = written

    def __call__(self, *names: str, default: int = 0) -> int:
        known = (name for given in names for name in _NAMES.get(given, (given,)))
        found = (self._written[name] for name in known if self._written.get(name) is not None)
        return int(next(found, default))


def _read_hugging_face(written: Mapping[str, Any]) -> PlannedRun | PlanMismatch:
    """Read `config.json`; sequence and batch are added to it by the user."""
    kind = str(written.get("model_type"))
    if kind not in _DECODERS | _ENCODERS | _MIXING.keys():
        return PlanMismatch.MODEL_UNKNOWN
    number = _Numbers(written)
    try:
        sequence = number("sequence")
        if kind == "vit":
            patch, size = number("patch_size"), written["image_size"]
            tall, wide = size if isinstance(size, list) else (size, size)
            sequence = sequence or (tall // patch) * (wide // patch)
        sizes = _read_sizes(written, number, kind)
        batch, micro_batches = number("batch"), number("accumulation", default=1)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, IndexError):
        return PlanMismatch.SIZES_UNKNOWN
    if not (sizes.hidden and sizes.layers and sizes.heads):
        return PlanMismatch.SIZES_UNKNOWN
    if not (sequence and batch):
        return PlanMismatch.BATCH_UNKNOWN
    stages = place_layers(sizes, {})
    return PlannedRun(sizes, sequence, sequence * batch, micro_batches, stages=stages)


def _read_sizes(written: Mapping[str, Any], number: _Numbers, kind: str) -> ModelSizes:
    """Return the sizes of a model of Hugging Face.

    Raises:
        KeyError, TypeError, ValueError, ZeroDivisionError, IndexError: a size is missing, or is none.
    """
    hidden, heads, experts = number("hidden"), number("heads"), number("experts")
    latent = None
    if written.get("kv_lora_rank"):
        names = "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"
        latent = LatentAttention(*(number(one) for one in names))
    width = number("moe_intermediate_size", "intermediate_size")
    patches, vocabulary = 0, number("vocab_size")
    if kind == "vit":
        patch, channels = number("patch_size"), number("num_channels", default=3)
        patches = patch * patch * channels
        vocabulary = number("encoder_stride", default=0) ** 2 * channels
    layers, ahead = _list_layers(written, number, kind)
    has_experts = any(one.feed_forward is FeedForward.EXPERTS for one in layers)
    mixing = _MIXING.get(kind)
    shared = number("shared", default=number("n_shared_experts") * width) if experts else 0
    return ModelSizes(
        hidden=hidden,
        heads=heads,
        groups=number("num_key_value_heads", default=heads),
        head_size=number("head_dim", "attention_head_dim", default=hidden // heads),
        vocabulary=vocabulary,
        feed_forward=number(*_DENSE_WIDTHS.get(kind, ("feed_forward",)), default=4 * hidden),
        layers=layers,
        ahead=ahead,
        is_hybrid=kind == _SINGLE_PARTS,
        experts=experts if has_experts else 0,
        experts_of_a_token=number("num_experts_per_tok"),
        expert_width=width if has_experts else 0,
        shared_width=shared,
        latent_width=number("moe_latent_size") if has_experts else 0,
        latent=latent,
        state_space=_read_state_space(number, hidden) if mixing is Mixer.STATE_SPACE else None,
        delta_rule=_read_delta_rule(number, is_second=False) if mixing is Mixer.DELTA_RULE else None,
        is_gated=kind not in _UNGATED,
        has_output_gate=mixing is Mixer.DELTA_RULE,
        has_shared_gate=kind in _SHARED_GATES and shared > 0,
        is_causal=kind not in _ENCODERS,
        patches=patches,
    )


_DENSE_WIDTHS = {"granitemoehybrid": ("shared_intermediate_size",)}
"""Where layers without experts have the width of what is the shared expert of others."""


def _list_layers(
    written: Mapping[str, Any], number: _Numbers, kind: str
) -> tuple[tuple[LayerShape, ...], tuple[tuple[LayerShape, ...], ...]]:
    """Return the layers of a `config.json`, and those that predict each further token."""
    if kind == _SINGLE_PARTS:
        found = list_single_parts(written)
        return found.layers, found.ahead
    count = number("layers")
    experts = list_expert_layers(written, count) if number("experts") else iter([False] * count)
    mixing = _MIXING.get(kind)
    mixers = iter([Mixer.ATTENTION] * count) if mixing is None else list_mixers(written, count, mixing)
    windows = _list_windows(written, count) if mixing is None else iter([0] * count)
    layers = tuple(
        LayerShape(mixer, None if kind == _WITHOUT_FEED_FORWARD else _name_feed_forward(has_experts), window)
        for mixer, has_experts, window in zip(mixers, experts, windows, strict=True)
    )
    predictions = number("num_nextn_predict_layers") if written.get("use_mtp") else 0
    return layers, (layers[-1:],) * predictions


def _name_feed_forward(has_experts: bool) -> FeedForward:  # noqa: FBT001  # the only thing that it depends on
    return FeedForward.EXPERTS if has_experts else FeedForward.DENSE


def _read_state_space(number: _Numbers, hidden: int) -> StateSpace:
    """Return the sizes of Mamba-2 layers, whose heads are as wide as all of them together allow."""
    heads = number("state_heads")
    inner = number("expand", "mamba_expand", default=2) * hidden
    size = number("mamba_head_dim", default=inner // heads)
    return StateSpace(number("state"), number("state_groups", default=1), heads, size)


def _read_delta_rule(number: _Numbers, *, is_second: bool) -> DeltaRule:
    return DeltaRule(
        number("linear_num_key_heads", default=16),
        number("linear_key_head_dim", default=128),
        number("linear_num_value_heads", default=32),
        number("linear_value_head_dim", default=128),
        number("linear_conv_kernel_dim", default=4),
        is_second,
    )


def list_expert_layers(written: Mapping[str, Any], layers: int) -> Iterator[bool]:
    """Yield of each layer of a `config.json` whether it has experts.

    Raises:
        TypeError: a value has another type.
        ValueError: a value is not a number.
        ZeroDivisionError: every 0th layer has experts.
    """
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
    """Read settings of Megatron-LM or Megatron Bridge.

    Raises:
        KeyError, TypeError, ValueError, ZeroDivisionError: a size is missing, or is none.
    """
    variant = settings.get("experimental_attention_variant")
    pattern = str(settings.get("hybrid_layer_pattern") or "")
    has_products = bool(pattern) and _PRODUCTS_SPEC.search(str(settings.get("spec"))) is not None
    if variant not in {None, *_DELTA_NETS} or has_products or _OTHER_LAYERS & set(pattern):
        return PlanMismatch.MODEL_UNKNOWN
    hybrid = read_hybrid_pattern(_join_predictions(pattern, settings)) if pattern else None
    layers, ahead = _read_layers(settings) if hybrid is None else (hybrid.layers, hybrid.ahead)
    hidden, heads = int(settings["hidden_size"]), int(settings["num_attention_heads"])
    experts = settings.get("num_moe_experts") or 0
    latent = None
    if settings.get("multi_latent_attention"):
        latent = LatentAttention(
            settings.get("q_lora_rank") or 0,
            *(int(settings[name]) for name in _LATENT_SIZES),
        )
    wide = settings.get("ffn_hidden_size") or 4 * hidden
    sizes = ModelSizes(
        hidden=hidden,
        heads=heads,
        groups=settings.get("num_query_groups") or heads,
        head_size=settings.get("kv_channels") or hidden // heads,
        vocabulary=int(settings.get("padded_vocab_size") or settings["vocab_size"]),
        feed_forward=wide,
        layers=layers,
        ahead=ahead,
        is_hybrid=hybrid is not None,
        experts=experts,
        experts_of_a_token=int(settings["moe_router_topk"]) if experts else 0,
        expert_width=(settings.get("moe_ffn_hidden_size") or wide) if experts else 0,
        shared_width=settings.get("moe_shared_expert_intermediate_size") or 0,
        latent_width=settings.get("moe_latent_size") or 0,
        latent=latent,
        state_space=_read_mamba(settings) if hybrid is not None else None,
        delta_rule=_read_delta_rule(_Numbers(settings), is_second=variant == _SECOND_DELTA_NET),
        is_gated=bool(settings.get("swiglu") or settings.get("gated_linear_unit")),
        has_output_gate=bool(settings.get("attention_output_gate")),
        has_shared_gate=bool(settings.get("moe_shared_expert_gate")),
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
        stages=place_layers(sizes, settings) if hybrid is None else place_hybrid_layers(hybrid, settings),
        pipeline_before_data=settings.get("use_tp_pp_dp_mapping") is True,
        expert=settings.get("expert_model_parallel_size") or 1,
        repeated=_read_repeated(settings),
    )


_LATENT_SIZES = ("kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")
_OTHER_LAYERS = frozenset("+D")
"""Latent and sparse attention in hybrid patterns, which Megatron-LM does not count."""
_PRODUCTS_SPEC = re.compile(r"\b(?:gdp|gated_delta_product)_stack_spec\b")
_DELTA_NETS = ("gated_delta_net", "gdn", "gdn2")
_SECOND_DELTA_NET = "gdn2"


def _join_predictions(pattern: str, settings: Mapping[str, Any]) -> str:
    """Return a hybrid pattern with the layers that predict further tokens, which may be a setting apart."""
    further, count = settings.get("mtp_hybrid_override_pattern"), settings.get("mtp_num_layers") or 0
    return pattern if "/" in pattern or not further else pattern + f"/{further}" * count


def _read_layers(
    settings: Mapping[str, Any],
) -> tuple[tuple[LayerShape, ...], tuple[tuple[LayerShape, ...], ...]]:
    """Return the layers of a usual model, and those that predict each further token."""
    count, ahead = int(settings["num_layers"]), int(settings.get("mtp_num_layers") or 0)
    frequency = settings.get("moe_layer_freq")
    experts = _read_pattern(frequency, count) if settings.get("num_moe_experts") else (False,) * count
    mixers = [Mixer.ATTENTION] * (count + ahead)
    if settings.get("experimental_attention_variant"):
        mixers = list(_read_linear_layers(settings.get("linear_attention_freq"), count, ahead))
    windows = _read_windows(settings, count)
    found = tuple(
        LayerShape(mixer, _name_feed_forward(has_experts), window if mixer is Mixer.ATTENTION else 0)
        for mixer, has_experts, window in zip(
            mixers, experts + experts[-1:] * ahead, windows + windows[-1:] * ahead, strict=True
        )
    )
    return found[:count], tuple((one,) for one in found[count:])


def _read_linear_layers(frequency: Any, layers: int, ahead: int) -> Iterator[Mixer]:
    """Yield how layers mix tokens: all but every nth have a gated delta net, or those of a list.

    A list may leave out layers that predict tokens, which are then like the last one.
    """
    words = (frequency,) if isinstance(frequency, int | str) else tuple(frequency or ())
    text = ",".join(map(str, words))
    if text.isdecimal():
        linear = [(layer + 1) % int(text) != 0 for layer in range(layers + ahead)]
    else:
        linear = _repeat_pattern(text if "[" in text else f"[{text}]")
        linear += linear[-1:] * (ahead if len(linear) == layers else 0)
        if len(linear) != layers + ahead:
            raise ValueError("the pattern of layers has another length")
    yield from (Mixer.DELTA_RULE if one else Mixer.ATTENTION for one in linear)


def _read_mamba(settings: Mapping[str, Any]) -> StateSpace:
    """Return the sizes of Mamba-2 layers, with the defaults of Megatron-LM."""
    number = _Numbers(settings)
    size = number("mamba_head_dim", default=64)
    heads = number("mamba_num_heads", default=2 * number("hidden_size") // size)
    return StateSpace(
        number("mamba_state_dim", default=128), number("mamba_num_groups", default=8), heads, size
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
    """Return which layers belong to a kind, by a frequency or a list such as `([0]*3+[1]*58)`.

    Raises:
        ValueError: it cannot be read, or has another number of layers.

    >>> _read_pattern(2, 4), _read_pattern("([0]*1+[1]*2)", 3), _read_pattern("([1]+[0])*2", 4)
    ((True, False, True, False), (False, True, True), (True, False, True, False))
    """
    text = str(1 if written is None else written)
    if text.isdecimal():
        return tuple(layer % int(text) == 0 for layer in range(layers))
    found = _repeat_pattern(text)
    if len(found) != layers:
        raise ValueError("the pattern of layers has another length")
    return tuple(found)


def _repeat_pattern(text: str) -> list[bool]:
    """Return what a pattern says of each layer."""
    try:
        return _repeat_lists(ast.parse(text[:_LONGEST_PATTERN], mode="eval").body)
    except SyntaxError as error:
        raise ValueError("the pattern of layers cannot be read") from error


def _repeat_lists(written: ast.expr) -> list[bool]:
    """Return a list of zeros and ones, or several joined and repeated."""
    match written:
        case ast.List(elts=each):
            return [ast.literal_eval(one) == 1 for one in each]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _repeat_lists(left) + _repeat_lists(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=ast.Constant(value=int(times))):
            repeated = _repeat_lists(left)
            if len(repeated) * times <= _MOST_LAYERS:
                return repeated * times
    raise ValueError("the pattern of layers cannot be read")


_LONGEST_PATTERN = 2_000
_MOST_LAYERS = 10_000


def _read_windows(settings: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """Return the keys that a query of each layer sees, 0 without a limit."""
    window, every = settings.get("window_size"), settings.get("window_attn_skip_freq")
    if not window:
        return (0,) * layers
    before = window[0] if isinstance(window, list | tuple) else int(re.findall(r"\d+", str(window))[0])
    if isinstance(every, int) and every:  # these layers see all keys
        return tuple(0 if (layer + 1) % every == 0 else int(before) + 1 for layer in range(layers))
    return (int(before) + 1,) * layers
