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
    "comm_overlap.tp_comm_overlap": ("CommOverlapConfig", False),
    "train.global_batch_size": ("TrainingConfig", True),
    "train.micro_batch_size": ("TrainingConfig", True),
}
"""Settings without a usable default, the class of their section, and whether null does not do either."""

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
    for required, (owner, needs_value) in _REQUIRED.items():
        is_missing = required not in values or (needs_value and values[required] is None)
        if is_missing and _class_of(required.partition(".")[0], values).endswith(f".{owner}"):
            yield f"{required} is not set, and has no default", f"set {required}"
    layers, pattern = values.get("model.num_layers"), values.get("model.hybrid_layer_pattern")
    if isinstance(pattern, str) and isinstance(layers, int):
        count = len(pattern.partition(_END_OF_DECODER)[0].replace(_PIPE, ""))
        if layers != count:
            yield (
                f"model.num_layers is {layers}, and model.hybrid_layer_pattern has {count} layers",
                "set model.num_layers=null, or correct one of them",
            )


def _class_of(section: str, values: Mapping[str, object]) -> str:
    return str(values.get(f"{section}._target_", ""))


def report_impossible(message: str, cure: str) -> Finding:
    """Return the finding of a configuration with which no run starts."""
    return Finding("configuration-impossible", Severity.ERROR, message, cure)
