"""Configurations of programs other than Megatron, whose settings may have the same names."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from wallscope.advice.configuration_text import Entry
from wallscope.advice.settings import bare_name
from wallscope.model.capture import Finding, Severity

_MARKS: Final[Mapping[str, frozenset[str]]] = {
    "the Trainer of Hugging Face": frozenset(
        {"per_device_train_batch_size", "gradient_accumulation_steps", "model_name_or_path", "fsdp_config"}
    ),
    "torchtitan": frozenset(
        {"data_parallel_shard_degree", "data_parallel_replicate_degree", "tensor_parallel_degree"}
    ),
    "DeepSpeed": frozenset(
        {"train_micro_batch_size_per_gpu", "zero_optimization", "stage3_max_live_parameters"}
    ),
}
"""Settings that only this program has."""

_COMMON: Final = frozenset(
    {
        "activation_func",
        "async_save",
        "attention_backend",
        "attention_dropout",
        "bf16",
        "clip_grad",
        "deterministic_mode",
        "ffn_hidden_size",
        "fp16",
        "fp8",
        "global_batch_size",
        "hidden_dropout",
        "hidden_size",
        "max_position_embeddings",
        "micro_batch_size",
        "model_family",
        "num_attention_heads",
        "num_layers",
        "num_moe_experts",
        "optimizer",
        "save_interval",
        "seq_length",
        "vocab_size",
        "world_size",
    }
)
"""Settings that programs of any kind have: they do not show that a file is Megatron's."""

_NAME_OF_MEGATRON: Final = re.compile(
    r"(?:.*\.)?(?:num_moe_experts|--(?:micro-batch-size|seq-length|max-position-embeddings|hidden-size"
    r"|num-(?:attention-heads|experts|layers)))"
)
"""Names that Megatron alone has, and flags in its spelling; most other programs write underscores."""

_CLASS_OF_MEGATRON: Final = re.compile(r"(?:megatron|bridge)\.")

KEPT_KINDS: Final = frozenset({"sizes", "environment", "version"})
"""Kinds of settings that mean the same in any program."""


def _names_megatron(name: str, value: object) -> bool:
    is_class = name.rpartition(".")[2] == "_target_" and _CLASS_OF_MEGATRON.match(str(value)) is not None
    return is_class or _NAME_OF_MEGATRON.fullmatch(name) is not None


def find_other_framework(
    path: Path, entries: Sequence[Entry], known: Collection[str], *, is_misspelled: bool
) -> Finding | None:
    """Return a finding if a file is not a configuration of Megatron, or does not show it.

    Args:
        path: the file, for messages.
        entries: its settings.
        known: the current names of those that a check uses.
        is_misspelled: whether others nearly have the name of one.
    """
    if "framework" in known or any(_names_megatron(*entry) for entry in entries):
        return None
    if any(not name.isupper() and name not in _COMMON for name in known):
        return None
    names = {bare_name(name) for name, _ in entries} | {
        part for name, _ in entries for part in name.split(".")[:-1]
    }
    program = next((program for program, marks in _MARKS.items() if marks & names), None)
    if program is not None:
        return Finding(
            "configuration-framework",
            Severity.WARNING,
            f"{path.name}: is a configuration of {program}; wallscope checks those of Megatron",
            "name a configuration of Megatron Bridge or Megatron-LM",
        )
    if path.suffix.lower() == ".toml" or not known or is_misspelled:
        return None
    return Finding(
        "configuration-framework",
        Severity.WARNING,
        f"{path.name}: no setting shows its framework, so that no check applies",
        "add framework: megatron-bridge, or megatron-lm",
    )
