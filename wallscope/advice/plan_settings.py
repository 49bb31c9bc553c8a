"""The settings of a plan: as YAML of Megatron Bridge, and as arguments of Megatron-LM.

The memory model chose them, so that both files pass `check-config`.
"""

import re
from collections.abc import Mapping
from typing import Final

from wallscope.advice.parallel_layout import ModelShape
from wallscope.advice.published import Machine
from wallscope.model.advice import Folding, Levers, Value

_FLEX: Final = frozenset({"deepep", "hybridep"})
_END_LAYERS = "EL"
"""The embedding and the loss, which count as layers of the first and last stage."""
_GPUS_PER_NODE: Final = 8


def list_settings(  # noqa: PLR0913  # what a plan consists of
    *,
    shape: ModelShape | None,
    layout: Folding,
    virtual_stages: int | None,
    levers: Levers,
    dispatcher: str,
    precision: str,
    machine: Machine,
    is_sharded: bool,
    seq_length: int,
    micro_batch: int,
    global_batch: int | None,
) -> dict[str, Value]:
    """Return the settings of a plan by their dotted name in Megatron Bridge, in the order of its sections."""
    found: dict[str, Value] = {
        **(_describe_model(shape) if shape is not None else {}),
        "model.seq_length": seq_length,
        **_describe_layout(layout, virtual_stages, shape),
        **_describe_experts(dispatcher, machine),
        **_describe_recompute(levers),
        "dataset.seq_length": seq_length,
        "train.micro_batch_size": micro_batch,
        **({"train.global_batch_size": global_batch} if global_batch else {}),
        **_describe_precision(precision, machine, levers),
        **_describe_states(levers, is_sharded=is_sharded),
    }
    return found


def _describe_model(shape: ModelShape) -> dict[str, Value]:
    found: dict[str, Value] = {
        "model.num_layers": shape.layers,
        "model.hidden_size": shape.hidden,
        "model.num_attention_heads": shape.heads,
        "model.add_bias_linear": False,
    }
    if shape.latent_rank:
        found |= {
            "model.multi_latent_attention": True,
            "model.kv_lora_rank": shape.latent_rank,
            **({"model.q_lora_rank": shape.query_rank} if shape.query_rank else {}),
            "model.qk_head_dim": shape.key_size or shape.head_size,
            "model.qk_pos_emb_head_dim": shape.rope_size,
            "model.v_head_dim": shape.head_size,
        }
    else:
        found["model.num_query_groups"] = shape.groups
        found["model.kv_channels"] = shape.head_size
    if shape.experts and shape.dense_layers:
        sparse = shape.layers - shape.dense_layers
        found["model.moe_layer_freq"] = (*(0,) * shape.dense_layers, *(1,) * sparse)
    if shape.feed_forward:
        found["model.ffn_hidden_size"] = shape.feed_forward
    if shape.experts:
        found |= {
            "model.num_moe_experts": shape.experts,
            "model.moe_router_topk": shape.experts_of_a_token,
            "model.moe_ffn_hidden_size": shape.expert_width,
            **(
                {"model.moe_shared_expert_intermediate_size": shape.shared_width}
                if shape.shared_width
                else {}
            ),
            **({"model.moe_latent_size": shape.latent_width} if shape.latent_width else {}),
        }
    if shape.predictions:
        found["model.mtp_num_layers"] = shape.predictions
    if 0 < shape.linear_layers < shape.layers:
        found |= {
            "model.experimental_attention_variant": "gated_delta_net",
            "model.linear_attention_freq": round(shape.layers / (shape.layers - shape.linear_layers)),
            "model.linear_num_key_heads": shape.linear_key_heads,
            "model.linear_num_value_heads": shape.linear_value_heads,
        }
    if shape.vision is not None and shape.vision.frozen:
        found["model.freeze_vision_model"] = True
    return found


def _describe_layout(
    layout: Folding, virtual_stages: int | None, shape: ModelShape | None
) -> dict[str, Value]:
    sizes = layout.sizes
    found: dict[str, Value] = {
        "model.tensor_model_parallel_size": sizes.tensor,
        "model.pipeline_model_parallel_size": sizes.pipeline,
        "model.context_parallel_size": sizes.context,
        "model.sequence_parallel": sizes.tensor > 1,
    }
    if sizes.experts > 1:
        found["model.expert_model_parallel_size"] = sizes.expert
        found["model.expert_tensor_parallel_size"] = sizes.expert_tensor
    if sizes.context > 1:
        found["model.cp_comm_type"] = "p2p"
    if sizes.pipeline > 1:
        chunks = virtual_stages or 1
        if chunks > 1:
            found["model.virtual_pipeline_model_parallel_size"] = chunks
        if shape is not None and (shape.layers % (sizes.pipeline * chunks) or shape.predictions):
            found["model.pipeline_model_parallel_layout"] = divide_layers(
                shape.layers, sizes.pipeline * chunks, shape.predictions
            )
    return found


def divide_layers(layers: int, stages: int, predictions: int = 0) -> str:
    """Return a pipeline layout whose stages differ by at most one layer, embedding and loss counted.

    The last stage has all layers that predict further tokens, and may be longer for them.

    >>> divide_layers(5, 4), divide_layers(5, 4, 1)
    ('Et|tt|tt|L', 'Et|tt|tt|mL')

    Raises:
        ValueError: there are more stages than layers, embedding and loss.
    """
    whole = layers + len(_END_LAYERS)
    if stages > whole:
        raise ValueError(f"{stages} stages for {layers} layers")
    least, rest = divmod(whole, stages)
    middle = (stages - rest) // 2
    counts = [least + (middle <= index < middle + rest) for index in range(stages)]
    row = "E" + "t" * layers + "L"
    ends = [sum(counts[: index + 1]) for index in range(stages)]
    layout = "|".join(row[end - count : end] for count, end in zip(counts, ends, strict=True))
    return f"{layout[:-1]}{'m' * predictions}L"


def _describe_experts(dispatcher: str, machine: Machine) -> dict[str, Value]:
    if not dispatcher:
        return {}
    found: dict[str, Value] = {
        "model.moe_grouped_gemm": machine.best_precision == "bf16",
        "model.moe_router_dtype": "fp32",
        "model.moe_token_dispatcher_type": "flex" if dispatcher in _FLEX else dispatcher,
    }
    if dispatcher in _FLEX:
        found["model.moe_flex_dispatcher_backend"] = dispatcher
        found["model.moe_shared_expert_overlap"] = False
    return found


def _describe_recompute(levers: Levers) -> dict[str, Value]:
    if levers.recompute == ("full",):
        return {
            "model.recompute_granularity": "full",
            "model.recompute_method": "uniform",
            "model.recompute_num_layers": 1,
        }
    if levers.recompute:
        return {"model.recompute_granularity": "selective", "model.recompute_modules": levers.recompute}
    return {}


def _describe_precision(precision: str, machine: Machine, levers: Levers) -> dict[str, Value]:
    """Name the recipe of a precision on a GPU; FP8 weights only where the optimizer stays on the GPU."""
    found: dict[str, Value] = {f"mixed_precision.{'fp16' if precision == 'fp16' else 'bf16'}": True}
    if precision == "fp8":
        recipe = "blockwise" if machine.is_hopper else "tensorwise"
        found |= {
            "mixed_precision.fp8": "e4m3" if recipe == "blockwise" else "hybrid",
            "mixed_precision.fp8_recipe": recipe,
            "mixed_precision.fp8_param_gather": not levers.offloads_optimizer,
        }
    if precision == "mxfp8":
        gathers = not levers.offloads_optimizer
        found |= {
            "mixed_precision.fp8": "e4m3",
            "mixed_precision.fp8_recipe": "mxfp8",
            "mixed_precision.fp8_param_gather": gathers,
            "mixed_precision.reuse_grad_buf_for_mxfp8_param_ag": gathers,
        }
    if precision == "nvfp4":
        found |= {"mixed_precision.fp4": "e2m1", "mixed_precision.fp4_recipe": "nvfp4"}
    found["mixed_precision.grad_reduce_in_fp32"] = not levers.short_gradients
    return found


def _describe_states(levers: Levers, *, is_sharded: bool) -> dict[str, Value]:
    found: dict[str, Value] = {}
    if is_sharded:
        found |= {
            "dist.use_megatron_fsdp": True,
            "ddp.use_megatron_fsdp": True,
            "ddp.data_parallel_sharding_strategy": "optim_grads_params",
            "checkpoint.ckpt_format": "fsdp_dtensor",
        }
    found |= {
        "ddp.use_distributed_optimizer": True,
        "ddp.overlap_grad_reduce": True,
        "ddp.overlap_param_gather": True,
        "optimizer.optimizer": "adam",
        "optimizer.use_distributed_optimizer": True,
    }
    if levers.short_moments or levers.offloads_optimizer:
        found["optimizer.use_precision_aware_optimizer"] = True
    if levers.short_moments:
        found |= {"optimizer.exp_avg_dtype": "bf16", "optimizer.exp_avg_sq_dtype": "bf16"}
    if levers.offloads_optimizer:
        found |= {
            "optimizer.optimizer_cpu_offload": True,
            "optimizer.optimizer_offload_fraction": 1.0,
            "optimizer.overlap_cpu_optimizer_d2h_h2d": True,
        }
    return found


def write_bridge(settings: Mapping[str, Value], gpus: int) -> str:
    """Write settings as YAML of Megatron Bridge."""
    lines = [f"world_size: {gpus}"]
    section = ""
    for name, value in settings.items():
        head, leaf = name.split(".")
        lines += [f"{head}:"] if head != section else []
        lines.append(f"  {leaf}: {_write_yaml(value)}")
        section = head
    return "\n".join(lines) + "\n"


def _write_yaml(value: Value) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) and "|" in value else str(value)


_FLAGS: Final[Mapping[str, str]] = {
    "num_moe_experts": "num-experts",
    "fp8": "fp8-format",
    "fp4": "fp4-format",
    "recompute_modules": "recompute-modules",
}
"""Flags of Megatron-LM that differ from the settings of Megatron Bridge with dashes."""
_NO_FLAGS: Final = {"add_bias_linear": "--disable-bias-linear"}
"""Flags that disable what a setting enables."""
_OF_BRIDGE: Final = {
    "dist.use_megatron_fsdp",
    "dataset.seq_length",
    "optimizer.use_distributed_optimizer",
    "model.freeze_vision_model",
}
"""Settings of Megatron Bridge that another one stands for in Megatron-LM, or that a vision tower has."""
_DECODER: Final = "# the decoder alone: Megatron Bridge has the vision tower\n"
_WITH_LAYOUT: Final = "pipeline_model_parallel_layout"
_LINE: Final = 100


def write_arguments(settings: Mapping[str, Value], gpus: int, shape: ModelShape | None) -> str:
    """Write settings as arguments of a run of Megatron-LM, whose data and tokenizer are left out."""
    per_node = min(gpus, _GPUS_PER_NODE)
    words = ["torchrun", f"--nproc_per_node {per_node}", f"--nnodes {gpus // per_node}", "pretrain_gpt.py"]
    names = {name.rpartition(".")[2] for name in settings}
    for name, value in settings.items():
        leaf = name.rpartition(".")[2]
        if name in _OF_BRIDGE or (leaf == "virtual_pipeline_model_parallel_size" and _WITH_LAYOUT in names):
            continue
        words += _list_flags(leaf, value)
    if _WITH_LAYOUT in names and "virtual_pipeline_model_parallel_size" not in names:
        words.append("--no-overlap-p2p-communication")
    words.append(f"--max-position-embeddings {settings['model.seq_length']}")
    words += [] if shape is None else _list_flags_of_shape(shape)
    return (_DECODER if shape is not None and shape.vision is not None else "") + _wrap(words)


def _list_flags_of_shape(shape: ModelShape) -> list[str]:
    flags = ["--swiglu"] if shape.gated else []
    flags += ["--position-embedding-type rope"]
    flags += [] if shape.tied else ["--untie-embeddings-and-output-weights"]
    flags += ["--group-query-attention"] if not shape.latent_rank and shape.groups < shape.heads else []
    return flags


def _list_flags(name: str, value: Value) -> list[str]:
    if name in _NO_FLAGS:
        return [] if value else [_NO_FLAGS[name]]
    if name == "grad_reduce_in_fp32":
        return ["--accumulate-allreduce-grads-in-fp32"] if value else []
    if name == "moe_layer_freq" and isinstance(value, tuple):
        return [f"--moe-layer-freq '([0]*{value.count(0)}+[1]*{value.count(1)})'"]
    if name == "virtual_pipeline_model_parallel_size":
        return [f"--num-virtual-stages-per-pipeline-rank {value}"]
    flag = f"--{_FLAGS.get(name, name.replace('_', '-'))}"
    if isinstance(value, bool):
        return [flag] if value else []
    shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return [f"{flag} {repr(shown) if re.search(r'[|*]', shown) else shown}"]


def _wrap(words: list[str]) -> str:
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) < _LINE:
            lines[-1] += f" {word}"
        else:
            lines.append(f"  {word}")
    return " \\\n".join(lines) + "\n"
