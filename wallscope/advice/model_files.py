"""The shape of a model from a file: `config.json` of Hugging Face, or a configuration of Megatron."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from wallscope.advice.configuration import read_configuration
from wallscope.advice.parallel_layout import ModelShape, VisionShape
from wallscope.advice.planned_runs import list_expert_layers
from wallscope.advice.published import Model, find_model
from wallscope.errors import ConfigurationError
from wallscope.files import read_json_bytes

_SUFFIXES: Final = frozenset({".json", ".yaml", ".yml", ".sh", ".txt", ".log", ".toml"})
_UNGATED: Final = frozenset({"gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "relu2"})
"""Activations of feed-forward layers with two matrices; of models with `gated` names there are three."""
_GATED_MODELS: Final = ("gemma",)
_CURE: Final = "name a config.json of Hugging Face, or a configuration of Megatron"
_LARGEST: Final = 10**9
_LONGEST: Final = 40
_COLORS: Final = 3
_LEAST_RATIO: Final = 0.05
_USUAL_INTERVAL: Final = 4
"""Of layers with full attention among linear ones, as in Qwen3-Next."""
_MODELED: Final = frozenset({"full_attention", "sliding_attention", "chunked_attention", "linear_attention"})
"""Kinds of layers whose memory is known."""
_UNMODELED: Final = (
    *("hybrid_override_pattern", "hybrid_layer_pattern", "layers_block_type", "ssm_cfg", "mamba_num_heads"),
    *("mamba_d_state", "attn_layer_period", "linear_attn_config"),
)
"""Settings of models with state-space layers and the like."""

Lookup = Callable[[str], Any]


def read_model(name: str) -> tuple[Model, ModelShape | None]:
    """Return the model family with a name, or the model of a file with its shape.

    Raises:
        OptionError: the name is unknown.
        ConfigurationError: the file cannot be read, or lacks a size.
    """
    path = Path(name)
    if path.suffix.lower() not in _SUFFIXES or not path.is_file():
        return find_model(name), None
    if path.suffix.lower() == ".json":
        shape, has_vision = _read_hugging_face_model(path)
    else:
        shape, has_vision = _read_megatron_model(path), False
    stem = path.parent.name if path.stem == "config" and path.parent.name else path.stem
    return Model(stem, shape.experts, None, has_vision), shape


def _read_hugging_face_model(path: Path) -> tuple[ModelShape, bool]:
    try:
        document = json.loads(read_json_bytes(path, _CURE, ConfigurationError))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} — cannot be read as JSON — {_CURE}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path} — is not an object — {_CURE}")
    text = next((document[key] for key in ("text_config", "llm_config") if key in document), document)
    if not isinstance(text, dict):
        raise ConfigurationError(f"{path} — has no sizes of a language model — {_CURE}")
    kind = next((name for name in _UNMODELED if text.get(name)), None)
    kind = kind or next((str(each) for each in text.get("layer_types") or () if each not in _MODELED), None)
    if kind is not None:
        raise ConfigurationError(
            f"{path} — has layers other than attention ({kind[:_LONGEST]}), of unknown memory — {_CURE}"
        )
    shape = _shape_of_hugging_face(path, text)
    vision = document.get("vision_config")
    if isinstance(vision, dict):
        shape = replace(shape, vision=_read_tower(path, document, vision, shape.hidden))
    return shape, "vision_config" in document


def _read_tower(
    path: Path, document: Mapping[str, Any], vision: Mapping[str, Any], out: int
) -> VisionShape | None:
    """Return the sizes of a vision tower; `None` if the file lacks them.

    Towers of Qwen join patches before their projectors, and may have several of these. Others project each
    patch, or a square of patches, to the width of the decoder.
    """
    layers = _first(path, vision.get, "depth", "num_hidden_layers")
    hidden = _first(path, vision.get, "embed_dim", "hidden_size")
    inner = _first(path, vision.get, "intermediate_size")
    inner = inner or hidden * _first(path, vision.get, "mlp_ratio")
    patch = _first(path, vision.get, "patch_size")
    if not (layers and hidden and inner and patch):
        return None
    side = _first(path, vision.get, "spatial_merge_size")
    ratio = document.get("downsample_ratio")
    squeezed = round(1 / ratio) if isinstance(ratio, float) and _LEAST_RATIO < ratio <= 1 else 1
    merged = (side or squeezed) ** 2
    further = vision.get("deepstack_visual_indexes")
    return VisionShape(
        layers=layers,
        hidden=hidden,
        feed_forward=inner,
        patch_inputs=patch**2
        * (_first(path, vision.get, "in_channels", "in_chans", "num_channels") or _COLORS)
        * (_first(path, vision.get, "temporal_patch_size") or 1),
        out=out,
        merged=merged,
        inner=merged * hidden if side else out,
        projectors=1 + (len(further) if isinstance(further, list) else 0),
        gated=vision.get("hidden_act") == "silu",
    )


def _shape_of_hugging_face(path: Path, text: Mapping[str, Any]) -> ModelShape:
    hidden = _need(path, text.get, "hidden_size")
    heads = _need(path, text.get, "num_attention_heads")
    layers = _need(path, text.get, "num_hidden_layers")
    experts = _first(path, text.get, "num_experts", "num_local_experts", "n_routed_experts")
    inner = _first(path, text.get, "intermediate_size")
    width = _first(path, text.get, "moe_intermediate_size") or inner
    latent = _first(path, text.get, "kv_lora_rank")
    shared = _first(path, text.get, "shared_expert_intermediate_size")
    shared = shared or width * _first(path, text.get, "n_shared_experts")
    dense = _count_without_experts(path, text, layers) if experts else 0
    activation = str(text.get("hidden_act") or text.get("hidden_activation") or "silu")
    is_gated = activation not in _UNGATED or str(text.get("model_type", "")).startswith(_GATED_MODELS)
    named = ("v_head_dim",) if latent else ("head_dim",)
    head_size = _first(path, text.get, *named) or hidden // heads
    key_size = _first(path, text.get, "qk_nope_head_dim") if latent else 0
    key_heads, value_heads = (_first(path, text.get, f"linear_num_{kind}_heads") for kind in ("key", "value"))
    linear_keys = key_heads * _first(path, text.get, "linear_key_head_dim")
    linear_values = value_heads * _first(path, text.get, "linear_value_head_dim")
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        groups=_first(path, text.get, "num_key_value_heads") or heads,
        head_size=head_size,
        vocabulary=_need(path, text.get, "vocab_size"),
        feed_forward=0 if experts and not dense else inner,
        experts=experts,
        expert_width=width if experts else 0,
        experts_of_a_token=_first(path, text.get, "num_experts_per_tok", "moe_topk") if experts else 0,
        shared_width=shared if experts else 0,
        dense_layers=dense if experts else 0,
        query_rank=_first(path, text.get, "q_lora_rank") if latent else 0,
        latent_rank=latent,
        rope_size=_first(path, text.get, "qk_rope_head_dim") if latent else 0,
        gated=is_gated,
        tied=text.get("tie_word_embeddings") is True,
        key_size=key_size if key_size != head_size else 0,
        predictions=_first(path, text.get, "num_nextn_predict_layers", "mtp_num_hidden_layers"),
        linear_layers=_count_linear(path, text, layers) if linear_values else 0,
        linear_keys=linear_keys,
        linear_values=linear_values,
        linear_key_heads=key_heads if linear_values else 0,
        linear_value_heads=value_heads if linear_values else 0,
        output_gate=text.get("attn_output_gate") is True or text.get("model_type") == "qwen3_next",
    )


def _count_without_experts(path: Path, text: Mapping[str, Any], layers: int) -> int:
    try:
        return layers - sum(list_expert_layers(text, layers))
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ConfigurationError(f"{path} — the layers with experts cannot be read — {_CURE}") from error


def _count_linear(path: Path, text: Mapping[str, Any], layers: int) -> int:
    """Count the layers with linear attention: listed ones, or all but one of each interval."""
    kinds = text.get("layer_types")
    if isinstance(kinds, list):
        return min(kinds.count("linear_attention"), layers)
    every = _first(path, text.get, "full_attention_interval") or _USUAL_INTERVAL
    return layers - layers // every


def _read_megatron_model(path: Path) -> ModelShape:
    known = read_configuration(path, with_defaults=True).configuration
    hidden = _need(path, known.get, "hidden_size")
    heads = _need(path, known.get, "num_attention_heads")
    is_latent = known.get("multi_latent_attention") is True
    experts = _first(path, known.get, "num_moe_experts")
    inner = _first(path, known.get, "ffn_hidden_size") or 4 * hidden
    frequency = str(known.get("moe_layer_freq") or "")
    layers = _need(path, known.get, "num_layers")
    head_size = _first(path, known.get, "v_head_dim" if is_latent else "kv_channels") or hidden // heads
    key_size = _first(path, known.get, "qk_head_dim") if is_latent else 0
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        groups=_first(path, known.get, "num_query_groups") or heads,
        head_size=head_size,
        vocabulary=_need(path, known.get, "vocab_size"),
        feed_forward=inner,
        experts=experts,
        expert_width=(_first(path, known.get, "moe_ffn_hidden_size") or inner) if experts else 0,
        experts_of_a_token=(_first(path, known.get, "moe_router_topk") or 2) if experts else 0,
        shared_width=_first(path, known.get, "moe_shared_expert_intermediate_size") if experts else 0,
        dense_layers=min(_count_dense(frequency), layers) if experts else 0,
        query_rank=_first(path, known.get, "q_lora_rank") if is_latent else 0,
        latent_rank=_first(path, known.get, "kv_lora_rank") if is_latent else 0,
        rope_size=_first(path, known.get, "qk_pos_emb_head_dim") if is_latent else 0,
        gated=known.get("gated_linear_unit") is not False and known.get("swiglu") is not False,
        tied=known.get("untie_embeddings_and_output_weights") is False,
        key_size=key_size if key_size != head_size else 0,
        latent_width=_first(path, known.get, "moe_latent_size") if experts else 0,
        predictions=_first(path, known.get, "mtp_num_layers"),
    )


def _count_dense(frequency: str) -> int:
    """Count the layers without experts of a list as Megatron writes it.

    >>> _count_dense("([0]*3+[1]*58)"), _count_dense("1"), _count_dense("[0, 1, 1]")
    (3, 0, 1)
    """
    parts = frequency.replace(" ", "").strip("()").split("+")
    repeated = [part.removeprefix("[0]*") for part in parts if part.startswith("[0]*")]
    if repeated:
        return sum(int(part) for part in repeated if part.isdecimal() and len(part) < len(str(_LARGEST)))
    return frequency.count("0") if frequency.startswith(("[", "(")) else 0


def _first(path: Path, lookup: Lookup, *names: str) -> int:
    """Return the first of several sizes that is set, 0 if none is."""
    for name in names:
        value = lookup(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
            raise ConfigurationError(f"{path} — {name} is not a size — {_CURE}")
        if value:
            return value
    return 0


def _need(path: Path, lookup: Lookup, name: str) -> int:
    value = _first(path, lookup, name)
    if not value:
        raise ConfigurationError(f"{path} — has no {name} — add it, or {_CURE}")
    return value
