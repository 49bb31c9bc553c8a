"""Derive settings as a framework does before its checks: defaults, precedence of sections, derived numbers.

The rules follow Megatron-Core's configuration classes, Megatron-LM's arguments and Megatron Bridge's update
of a configuration before a run. Values that a framework replaces silently are replaced here too.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from math import prod
from typing import Final

from wallscope.files import read_toml
from wallscope.model.advice import KnownSetting, Value

_MOST_LAYERS: Final = 100_000
_LONGEST_SIZE: Final = 7
_PRECISIONS: Mapping[str, Mapping[str, Value]] = {
    "mxfp8": {
        "fp8": "e4m3",
        "fp8_recipe": "mxfp8",
        "fp8_param_gather": True,
        "reuse_grad_buf_for_mxfp8_param_ag": True,
    },
    "nvfp4": {"fp4": "e2m1", "fp8": None, "fp4_param": True},
    "fp8_current_scaling": {"fp8": "hybrid", "fp8_recipe": "tensorwise", "first_last_layers_bf16": True},
    "fp8_delayed_scaling": {"fp8": "hybrid", "fp8_recipe": "delayed"},
    "fp8_subchannel_scaling": {"fp8": "hybrid", "fp8_recipe": "blockwise"},
    "fp8_blockwise": {"fp8": "e4m3", "fp8_recipe": "blockwise"},
}
COUNTS_OF_LISTS: Final = {
    "cp_comm_type": "context_type_layers",
    "moe_router_load_balancing_type": "balancing_losses",
    "moe_aux_loss_coeff": "balancing_coefficients",
}
"""Settings whose lists have one entry per layer or per loss, and the name of the number of entries."""

_FORMER_SMS: Final = ("moe_deepep_num_sms", "moe_hybridep_num_sms")


@cache
def framework_defaults(framework: str) -> Mapping[str, Value]:
    """Return the framework's values of settings that a complete file leaves out."""
    found: dict[str, Value] = {}
    document = read_toml("advice/defaults.toml")
    for table in (document["core"], document.get(framework, {})):
        for word, value in (("none", None), ("false", False), ("true", True)):
            found |= dict.fromkeys(table.get(word, []), value)
        values = table.get("values", {}).items()
        found |= {name: tuple(value) if isinstance(value, list) else value for name, value in values}
    return found


def expand_recipe(name: str) -> dict[str, Value]:
    """Return the settings of one of Megatron Bridge's precision recipes, by name.

    >>> expand_recipe("bf16_with_fp8_subchannel_scaling_mixed")["fp8_recipe"]
    'blockwise'
    """
    words = f"_{name}_".replace("-", "_")
    values: dict[str, Value] = {kind: f"_{kind}_" in words for kind in ("bf16", "fp16")}
    values |= {"fp8": None, "fp4": None}
    for part, settings in _PRECISIONS.items():
        if f"_{part}_" in words:
            values |= settings
    return values


def resolve_settings(settings: Mapping[str, KnownSetting]) -> dict[str, KnownSetting]:
    """Return the settings as the framework has them when it checks them, and derived numbers."""
    found = dict(settings)
    _resolve_graphs(found)
    _resolve_names(found)
    framework = _value(found, "framework")
    if framework == "megatron-lm":
        _resolve_arguments(found)
    _resolve_sizes(found, in_bridge=framework == "megatron-bridge")
    for name, value in _follow(found):
        found.setdefault(name, KnownSetting(value, "derived from other settings"))
    return found


def _value(found: Mapping[str, KnownSetting], name: str) -> Value:
    return found[name].value if name in found else None


def _read_whole_number(found: Mapping[str, KnownSetting], name: str) -> int | None:
    value = _value(found, name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _set(found: dict[str, KnownSetting], name: str, value: Value, reason: str) -> None:
    found[name] = KnownSetting(value, found[reason].source)


def _resolve_graphs(found: dict[str, KnownSetting]) -> None:
    """Convert the former names of CUDA graphs; Megatron Bridge drops the modules if there are no graphs."""
    is_off = "cuda_graph_impl" in found and _value(found, "cuda_graph_impl") in {None, "none"}
    if is_off and _value(found, "framework") == "megatron-bridge":
        for name in {"cuda_graph_modules", "cuda_graph_scope"} & set(found):
            _set(found, name, () if name == "cuda_graph_modules" else None, name)
    for name, implementation in (
        ("enable_cuda_graph", "local"),
        ("external_cuda_graph", "transformer_engine"),
    ):
        if _value(found, name) is True and _value(found, "cuda_graph_impl") in {None, "none"}:
            _set(found, "cuda_graph_impl", implementation, name)
            _set(found, name, False, name)
    scope, modules = found.get("cuda_graph_scope"), _value(found, "cuda_graph_modules")
    if scope is not None and scope.value is not None and modules in {None, (), ("full",)}:
        found["cuda_graph_modules"] = scope
        found["cuda_graph_scope"] = KnownSetting(None, scope.source)
    chosen = found.get("cuda_graph_modules")
    if chosen is not None and isinstance(chosen.value, tuple):
        _resolve_graph_modules(found, chosen.value, chosen.source)


def _resolve_graph_modules(found: dict[str, KnownSetting], modules: tuple[Value, ...], source: str) -> None:
    """Resolve modules that stand for an implementation.

    `full_iteration` selects graphs of whole iterations, unless Transformer Engine's are selected, and `full`
    stands alone: otherwise both names stay, and are invalid.
    """
    implementation = _value(found, "cuda_graph_impl")
    if modules == ("full",):
        modules = ()
    elif "full_iteration" in modules and implementation != "transformer_engine":
        found["cuda_graph_impl"] = KnownSetting("full_iteration", source)
        modules = tuple(each for each in modules if each not in {"full", "full_iteration"})
    elif implementation == "local" and {"moe_router", "moe_preprocess"} & set(modules):
        modules = tuple(dict.fromkeys((*modules, "moe_router", "moe_preprocess")))
    found["cuda_graph_modules"] = KnownSetting(modules, source)


def _resolve_names(found: dict[str, KnownSetting]) -> None:
    if _value(found, "moe_router_padding_for_fp8") is True:
        _set(found, "moe_router_padding_for_quantization", True, "moe_router_padding_for_fp8")
    if _value(found, "moe_flex_dispatcher_num_sms") is None:
        former = [found[name] for name in _FORMER_SMS if _value(found, name) is not None]
        if len({each.value for each in former}) == 1:
            found["moe_flex_dispatcher_num_sms"] = former[0]
    if _value(found, "moe_enable_deepep") is True and _value(found, "moe_flex_dispatcher_backend") is None:
        _set(found, "moe_flex_dispatcher_backend", "deepep", "moe_enable_deepep")
    if _value(found, "num_moe_experts") == 0 and _value(found, "framework") != "megatron-bridge":
        _set(found, "num_moe_experts", None, "num_moe_experts")
    if _value(found, "use_transformer_engine_op_fuser") is True and _value(found, "moe_grouped_gemm") is True:
        _set(found, "moe_use_grouped_tensor", True, "use_transformer_engine_op_fuser")
    if "recompute_modules" in found and found["recompute_modules"].value is None:
        _set(found, "recompute_modules", ("core_attn",), "recompute_modules")
    if _value(found, "moe_layer_recompute") is True and _value(found, "recompute_granularity") != "full":
        # Recomputation is selective from here on, after its own checks: the granularity stays as written.
        modules = _value(found, "recompute_modules")
        kept = modules if isinstance(modules, tuple) else ("core_attn",)
        _set(found, "recompute_modules", tuple(dict.fromkeys((*kept, "moe"))), "moe_layer_recompute")


def _resolve_arguments(found: dict[str, KnownSetting]) -> None:
    """Change what Megatron-LM changes in its arguments before it checks them."""
    if _value(found, "recompute_activations") is True:
        _set(found, "recompute_granularity", "selective", "recompute_activations")
    if _value(found, "use_megatron_fsdp") is True:
        _set(found, "reuse_grad_buf_for_mxfp8_param_ag", False, "use_megatron_fsdp")
        if _read_whole_number(found, "megatron_fsdp_version") != 2:
            _set(found, "use_distributed_optimizer", True, "use_megatron_fsdp")
    if _value(found, "fake_process_group") is True:
        for name in ("check_for_nan_in_loss", "check_for_nan_in_grad"):
            _set(found, name, False, "fake_process_group")
    if (_read_whole_number(found, "cpu_offloading_num_layers") or 0) > 0:
        _set(found, "cpu_offloading", True, "cpu_offloading_num_layers")
    if _value(found, "group_query_attention") is False:
        found.pop("num_query_groups", None)
    if _value(found, "add_bias_linear") is True:
        _set(found, "add_qkv_bias", True, "add_bias_linear")
    _resolve_encoder(found)
    if _value(found, "rope_type") is None and "multi_latent_attention" in found:
        is_latent = _value(found, "multi_latent_attention") is True
        _set(found, "rope_type", "yarn" if is_latent else "rope", "multi_latent_attention")
    _resolve_activation(found)
    _resolve_messages(found)


def _resolve_encoder(found: dict[str, KnownSetting]) -> None:
    """Take the sizes of the encoder where those of the model are not set."""
    for name, former in (("num_layers", "encoder_num_layers"), ("seq_length", "encoder_seq_length")):
        if _value(found, name) is None and _read_whole_number(found, former) is not None:
            found[name], found[former] = found[former], KnownSetting(None, found[former].source)


def _resolve_activation(found: dict[str, KnownSetting]) -> None:
    """Derive the activation of Megatron-LM from its flags; GELU is not fused without biases."""
    if "swiglu" not in found:
        return
    is_swiglu = _value(found, "swiglu") is True
    is_quick = _value(found, "quick_geglu") is True
    is_squared = _value(found, "squared_relu") is True
    function = "squared_relu" if is_squared else "quick_gelu" if is_quick else "silu" if is_swiglu else "gelu"
    fusion = "bias_swiglu_fusion" if is_swiglu else "bias_gelu_fusion"
    has_bias = is_swiglu or _value(found, "add_bias_linear") is True
    _set(found, "activation_func", function, "swiglu")
    _set(found, "gated_linear_unit", is_swiglu or is_quick, "swiglu")
    if fusion in found:
        _set(found, "bias_activation_fusion", has_bias and _value(found, fusion) is True, fusion)


def _resolve_messages(found: dict[str, KnownSetting]) -> None:
    """Let pipeline messages overlap if Megatron-LM interleaves stages, and batch the others."""
    if isinstance(_value(found, "hybrid_layer_pattern"), str):
        for name in ("num_layers", "virtual_pipeline_model_parallel_size"):
            found.pop(name, None)
    elif "overlap_p2p_comm" in found and not any(
        _value(found, name)
        for name in (
            "num_layers_per_virtual_pipeline_stage",
            "num_virtual_stages_per_pipeline_rank",
            "virtual_pipeline_model_parallel_size",
            "pipeline_model_parallel_layout",
        )
    ):
        _set(found, "overlap_p2p_comm", False, "overlap_p2p_comm")
    if isinstance(_value(found, "overlap_p2p_comm"), bool):
        _set(found, "batch_p2p_comm", _value(found, "overlap_p2p_comm") is False, "overlap_p2p_comm")


def _resolve_sizes(found: dict[str, KnownSetting], *, in_bridge: bool) -> None:
    per_stage, layers, stages = (
        _read_whole_number(found, name)
        for name in ("num_layers_per_virtual_pipeline_stage", "num_layers", "pipeline_model_parallel_size")
    )
    if (
        per_stage
        and layers
        and stages
        and _read_whole_number(found, "virtual_pipeline_model_parallel_size") is None
    ):
        chunks = layers // (per_stage * stages)
        if chunks > 1:
            _set(
                found, "virtual_pipeline_model_parallel_size", chunks, "num_layers_per_virtual_pipeline_stage"
            )
    of_rank = _read_whole_number(found, "num_virtual_stages_per_pipeline_rank")
    if (
        of_rank is not None
        and of_rank > 1
        and _read_whole_number(found, "virtual_pipeline_model_parallel_size") is None
    ):
        found["virtual_pipeline_model_parallel_size"] = found["num_virtual_stages_per_pipeline_rank"]
    layout = _value(found, "pipeline_model_parallel_layout")
    counts = count_layout(layout) if isinstance(layout, str) else None
    if counts and stages and _read_whole_number(found, "virtual_pipeline_model_parallel_size") is None:
        chunks, rest = divmod(counts[0], stages)
        if not rest and chunks > 1:
            _set(found, "virtual_pipeline_model_parallel_size", chunks, "pipeline_model_parallel_layout")
    experts_tensor, tensor = found.get("expert_tensor_parallel_size"), found.get("tensor_model_parallel_size")
    if experts_tensor is not None and experts_tensor.value is None and tensor is not None:
        spread = (_read_whole_number(found, "expert_model_parallel_size") or 1) > 1
        value = 1 if in_bridge and spread else tensor.value
        found["expert_tensor_parallel_size"] = KnownSetting(value, experts_tensor.source)
    groups = found.get("num_query_groups")
    if (groups is None or groups.value is None) and "num_attention_heads" in found:
        found["num_query_groups"] = found["num_attention_heads"]


def _follow(found: Mapping[str, KnownSetting]) -> Iterable[tuple[str, Value]]:
    """Yield numbers that conditions compare: layers and stages of a pipeline and of its layout."""
    layers, stages = (
        _read_whole_number(found, "num_layers"),
        _read_whole_number(found, "pipeline_model_parallel_size"),
    )
    if layers and stages:
        yield "layers_per_stage", layers // stages
        extra = sum(
            _value(found, f"account_for_{part}_in_pipeline_split") is True for part in ("embedding", "loss")
        )
        yield "pipeline_layers", layers + extra
        ends = [_read_whole_number(found, f"num_layers_in_{end}_pipeline_stage") for end in ("first", "last")]
        set_ends = [end for end in ends if end is not None]
        yield "middle_layers", layers - sum(set_ends)
        yield "middle_stages", stages - len(set_ends)
    bf16 = [_read_whole_number(found, f"num_layers_at_{end}_in_bf16") for end in ("start", "end")]
    if None not in bf16:
        yield "bf16_layers_at_an_end", max(each or 0 for each in bf16)
    yield from _follow_lists(found)


def _follow_lists(found: Mapping[str, KnownSetting]) -> Iterable[tuple[str, Value]]:
    """Yield numbers of lists and layouts; nothing if the file has no such list."""
    if "hierarchical_context_parallel_sizes" in found:
        sizes = found["hierarchical_context_parallel_sizes"].value
        words = [str(size) for size in sizes] if isinstance(sizes, tuple) else []
        numbers = [int(word) for word in words if word.isdecimal() and len(word) < _LONGEST_SIZE]
        yield "hierarchical_context_product", prod(numbers[:8]) if numbers else None
    yield from ((count, None) for listed, count in COUNTS_OF_LISTS.items() if listed in found)
    if "pipeline_model_parallel_layout" in found:
        layout = found["pipeline_model_parallel_layout"].value
        counts = count_layout(layout) if isinstance(layout, str) else None
        if counts is not None or layout is None:
            names = ("layout_stages", "layout_decoders", "layout_mtp_layers")
            yield from zip(names, counts or (None, None, None), strict=True)


_LAYERS: Final = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}


def write_layout(stages: list[object]) -> str:
    """Return a pipeline layout as text, if it is a list of stages.

    >>> write_layout([["embedding", "decoder"], ["decoder", "loss"]])
    'Et|tL'
    """
    names = [stage if isinstance(stage, list) else [stage] for stage in stages]
    return "|".join("".join(_LAYERS.get(str(name), str(name)) for name in stage) for stage in names)


def count_layout(layout: str) -> tuple[int, int, int] | None:
    """Return the stages, decoder layers and prediction layers of a pipeline layout.

    >>> count_layout("Ettt|(tt|)*29,m|L")
    (32, 61, 1)
    """
    text = expand_layout(layout)
    return None if text is None else (text.count("|") + 1, text.count("t"), text.count("m"))


def expand_layout(layout: str) -> str | None:
    """Return a pipeline layout with all repeated parts written out, `None` if it is none.

    >>> expand_layout("Et*2|(t|)*2,m|L")
    'Ett|t|t|m|L'
    """
    text = layout.replace(",", "").replace(" ", "")
    for pattern in (r"\(([^()]+)\)\*(\d{1,4})", r"(.)\*(\d{1,4})"):
        lengths = [len(part) * int(times) for part, times in re.findall(pattern, text)]
        if sum(lengths) > _MOST_LAYERS:
            return None
        text = re.sub(pattern, lambda found: found[1] * int(found[2]), text)
    return text if re.fullmatch(r"[ELtm|]+", text) else None
