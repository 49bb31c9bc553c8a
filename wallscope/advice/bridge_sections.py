"""Sections of a Megatron Bridge configuration that their own classes reject, before any rule of settings."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from wallscope.model.capture import Finding, Severity

_PIPE, _END_OF_DECODER = "|", "/"
"""Marks in a hybrid layer pattern that are not layers: a pipeline stage ends, prediction layers begin."""

_NEEDS = (
    ("peft._target_", "checkpoint.pretrained_checkpoint", "name the checkpoint of the base model"),
    ("dataset.fast_cache_load", "dataset.path_to_cache", "name the folder of the cache"),
)
"""Settings that need another one, which a dump has as null, and what to do."""

_REQUIRED = {
    "comm_overlap.tp_comm_overlap": ("CommOverlapConfig", False, ""),
    "dataset.seq_length": ("GPTDatasetConfig", True, "dataset.sequence_length"),
    "train.global_batch_size": ("TrainingConfig", True, ""),
    "train.micro_batch_size": ("TrainingConfig", True, "validation.eval_micro_batch_size"),
}
"""Settings without a default: the class of their section, whether null is rejected, and a stand-in."""

_REQUIRED_SECTIONS = (
    "train",
    "model",
    "optimizer",
    "scheduler",
    "dataset",
    "logger",
    "tokenizer",
    "checkpoint",
)
"""Sections of a whole configuration that have no default; a file without half of them is an excerpt."""

_LISTS_OF_MODULES = {
    "recompute_modules": ("recompute_granularity", "selective"),
    "offload_modules": ("fine_grained_activation_offloading", True),
}
"""Lists of which Megatron-Core checks each item, and the value of the setting with which it does."""

_OF_THE_MODEL = ("model", "model.transformer")

IGNORED_BESIDE_MEGATRON_FSDP = ("dist.use_torch_fsdp2",)
"""Switches without effect if only the section `ddp` enables Megatron FSDP; with `dist` too, Bridge stops."""


def find_unread_switches(path: Path, values: Mapping[str, object]) -> Iterator[Finding]:
    """Yield the switches that Megatron Bridge ignores without a word."""
    if values.get("ddp.use_megatron_fsdp") is not True or values.get("dist.use_megatron_fsdp") is not False:
        return
    for name in IGNORED_BESIDE_MEGATRON_FSDP:
        if values.get(name) is True:
            yield Finding(
                "configuration-disputed",
                Severity.WARNING,
                f"{path.name}: {name} has no effect, because ddp.use_megatron_fsdp is set",
                "keep the correct one",
            )


def find_rejected_sections(path: Path, values: Mapping[str, object]) -> Iterator[Finding]:
    """Yield what the classes of a configuration of Megatron Bridge reject, by values of dotted names."""
    for message, cure in _list_rejections(values):
        yield report_impossible(f"{path.name}: {message}", cure)


def _list_rejections(values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong, and what to do."""
    is_reused = values.get("ddp.reuse_grad_buf_for_mxfp8_param_ag") is True
    is_of_core = _class_of("ddp", values).startswith("megatron.core.")
    if is_of_core and is_reused and not values.get("ddp.fp8_param_gather"):
        yield (
            "ddp.reuse_grad_buf_for_mxfp8_param_ag is set without ddp.fp8_param_gather",
            "set both, or neither",
        )
    for switch, needed, cure in _NEEDS:
        if values.get(switch) not in {None, False} and needed in values and values[needed] is None:
            yield f"{switch.removesuffix('._target_')} is set without {needed}", cure
    for required, (owner, needs_value, stand_in) in _REQUIRED.items():
        is_missing = required not in values or (needs_value and values[required] is None)
        if (
            is_missing
            and values.get(stand_in) is None
            and _class_of(required.partition(".")[0], values).endswith(f".{owner}")
        ):
            yield f"{required} is not set, and has no default", f"set {required}"
    yield from _list_rejected_dump(values)
    layers, pattern = values.get("model.num_layers"), values.get("model.hybrid_layer_pattern")
    if isinstance(pattern, str) and isinstance(layers, int):
        count = len(pattern.partition(_END_OF_DECODER)[0].replace(_PIPE, ""))
        if layers != count:
            yield (
                f"model.num_layers is {layers}, and model.hybrid_layer_pattern has {count} layers",
                "set model.num_layers=null, or correct one of them",
            )


def _list_rejected_dump(values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield missing sections, module lists that are texts, and precisions that exclude each other."""
    if _is_whole(values):
        found = {name.partition(".")[0] for name in values}
        missing = [section for section in _REQUIRED_SECTIONS if section not in found]
        for section in missing if 2 * len(missing) < len(_REQUIRED_SECTIONS) else ():
            yield f"the section {section} is missing, and has no default", f"add the section {section}"
    for section in _OF_THE_MODEL:
        for name, (switch, value) in _LISTS_OF_MODULES.items():
            if (
                isinstance(values.get(f"{section}.{name}"), str)
                and values.get(f"{section}.{switch}") == value
            ):
                yield (
                    f"{section}.{name} is a text, of which each letter counts as a module",
                    "write a list, such as [core_attn]",
                )
    is_precise = values.get("mixed_precision") is not None or _class_of("mixed_precision", values)
    if not is_precise and values.get("optimizer.bf16") is True and values.get("optimizer.fp16") is True:
        yield "optimizer.bf16 and optimizer.fp16 are both set", "set one of them"


def _is_whole(values: Mapping[str, object]) -> bool:
    return str(values.get("_target_", "")).endswith(".ConfigContainer")


def _class_of(section: str, values: Mapping[str, object]) -> str:
    return str(values.get(f"{section}._target_", ""))


def report_impossible(message: str, cure: str) -> Finding:
    """Return the finding of a configuration with which no run starts."""
    return Finding("configuration-impossible", Severity.ERROR, message, cure)
