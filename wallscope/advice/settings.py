"""The settings that checks use: names, kinds of values, and what a file shows without a setting."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

from wallscope.advice.framework_rules import expand_recipe, resolve_settings
from wallscope.files import read_toml
from wallscope.model.advice import KnownSetting, RunConfiguration, Setting, Value
from wallscope.records import dataclass

Entry = tuple[str, object]
"""A dotted name, and a value as in the file; a `str` may have any kind in texts."""

_NONE = {"none", "null", "~", ""}
_SWITCHES = {"true": True, "false": False, "1": True, "0": False, "on": True, "off": False}
_WORD = re.compile(r"[A-Za-z][\w.:+-]*|\d+")
_LARGEST = 2**53
_LONGEST_WORD = 4_000


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Kinds of value by current name, current names by other ones, flags that disable a setting.

    A name in `former` that has a kind is a setting of its own, which the framework resolves.
    """

    kinds: Mapping[str, str]
    current: Mapping[str, str]
    former: Mapping[str, str]
    off: Mapping[str, str]

    def name(self, written: str) -> str | None:
        """Return the current name of a spelling, without sections and dashes; `None` if it is unknown."""
        leaf = written.strip().rpartition(".")[2].lstrip("-+")
        name = leaf if leaf in self.kinds else leaf.replace("-", "_")
        name = self.current.get(name, name)
        return name if name in self.kinds else None


def bare_name(written: str) -> str:
    """Return a name without sections and leading dashes, its other dashes as underscores.

    >>> bare_name("model.--use-flash-attn")
    'use_flash_attn'
    """
    return written.rpartition(".")[2].lstrip("-").replace("-", "_")


@cache
def vocabulary() -> Vocabulary:
    """Return the shipped settings."""
    document = read_toml("advice/settings.toml")
    lists = {kind: names for kind, names in document.items() if isinstance(names, list)}
    kinds = {name: kind for kind, names in lists.items() for name in names}
    former = document["former"]
    return Vocabulary(
        kinds=kinds,
        current={**document["current"], **{old: new for old, new in former.items() if old not in kinds}},
        former=former,
        off=document["off"],
    )


def parse_value(name: str, text: str) -> Value:
    """Parse the value of a setting from text.

    Raises:
        ValueError: the text has the wrong kind; the message names the kind.
    """
    bare = text.strip().strip("'\"")
    kind = vocabulary().kinds[name]
    if bare.lower() in _NONE and kind != "environment":
        return None
    match kind:
        case "sizes" | "whole" if re.fullmatch(r"[+-]?\d(?:_?\d){0,14}", bare):
            return check_value(name, int(bare))
        case "number":
            return check_value(name, _parse_float(bare))
        case "switch" if bare.lower() in _SWITCHES:
            return _SWITCHES[bare.lower()]
        case "words":
            inside = re.sub(r"<?\w*(?:Scope|Module)s?\.(\w+)(?:: ?\d+>)?", r"\1", bare)
            return check_value(name, tuple(_WORD.findall(inside)))
    return check_value(name, bare)


def check_value(name: str, value: object) -> Value:
    """Return the value if it has the kind of the setting.

    Raises:
        ValueError: it has not; the message names the kind.
    """
    if value is None:
        return None
    kind = vocabulary().kinds[name]
    return _OF_KIND[kind](value)


def _parse_float(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _parse_size(value: object) -> Value:
    found = _whole(value)
    if not isinstance(found, int) or found < 1:
        raise ValueError("is not a whole number above 0")
    return found


def _whole(value: object) -> Value:
    if isinstance(value, bool) or not isinstance(value, int) or not -_LARGEST < value < _LARGEST:
        raise ValueError("is not a whole number")
    return value


def _decimal(value: object) -> Value:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST:
        raise ValueError("is not a number")
    return value


def _switch(value: object) -> Value:
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false")  # noqa: TRY004  # a wrong value of a file, not of a call
    return value


def _word(value: object) -> Value:
    if isinstance(value, bool | int | float):
        return str(value)
    if not isinstance(value, str) or len(value) > _LONGEST_WORD:
        raise ValueError("is not a word")
    return None if value.lower() in _NONE else value


def _words(value: object) -> Value:
    one = [value] if isinstance(value, int) and not isinstance(value, bool) else value
    items = one.split(",") if isinstance(one, str) else one
    if not isinstance(items, list | tuple) or not all(isinstance(item, str | int) for item in items):
        raise ValueError("is not a list of words")
    return tuple(str(item).strip().rpartition(".")[2] for item in items if str(item).strip())


def _version(value: object) -> Value:
    if not isinstance(value, str) or not re.match(r"\d+\.\d+", value):
        raise ValueError('is not a version; write it as text, such as "2.6.0"')
    return value


def _environment(value: object) -> Value:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("is not text")  # noqa: TRY004  # as above
    return str(value)


_OF_KIND: Mapping[str, Callable[[object], Value]] = {
    "sizes": _parse_size,
    "whole": _whole,
    "number": _decimal,
    "switch": _switch,
    "word": _word,
    "words": _words,
    "version": _version,
    "environment": _environment,
}


def complete_settings(settings: Mapping[str, KnownSetting]) -> dict[str, KnownSetting]:
    """Return the settings with derived ones: graph names, precision recipes, virtual stages."""
    found = dict(settings)
    recipe = found.get("mixed_precision")
    if recipe is not None and isinstance(recipe.value, str):
        values = expand_recipe(recipe.value).items()
        found = {**{key: KnownSetting(value, recipe.source) for key, value in values}, **found}
    return resolve_settings(found)


def add_settings(configuration: RunConfiguration, settings: Iterable[Setting]) -> RunConfiguration:
    """Return the configuration with a fix's settings; settings with several values stay unchanged."""
    words = vocabulary()
    found = dict(configuration.settings)
    for setting in settings:
        name = words.name(setting.key)
        if name is None:
            continue
        try:
            value = parse_value(name, setting.value or "true")
        except ValueError:
            continue
        found[name] = KnownSetting(value, "the fix")
    return RunConfiguration(complete_settings(found))


_DATASETS = re.compile(r"(?:GPT|GPTSFT|DirectHFSFT|Energon|MockVLMSFT|MockGPT|GPTFIM)DatasetConfig")
"""Datasets of Megatron Bridge whose sequence length must equal that of the model."""
_FINETUNING = re.compile(r"(?:GPTSFT|DirectHFSFT|Energon|MockVLMSFT)DatasetConfig")
"""Those datasets for fine-tuning, where some ranks may have no token that counts."""

_MODEL_CLASS = "model._target_"
"""Where a dump of Megatron Bridge names the class that builds the model."""

_BUILT_MODEL = "model.transformer._target_"
"""Where a dump names the settings of a model that a builder makes, which Bridge checks before it builds."""

SECTIONS = ("comm_overlap", "mixed_precision", "model", "ddp", "optimizer", "dist", "train")
"""Precedence of sections that disagree about a setting: the first counts, later ones have its default."""

_PRECISION: Mapping[str, Value] = {
    "bf16": False,
    "fp16": False,
    "fp8": None,
    "fp4": None,
    "fp8_param_gather": False,
    "fp4_param_gather": False,
    "first_last_layers_bf16": False,
    "reuse_grad_buf_for_mxfp8_param_ag": False,
}
"""Defaults of Megatron Bridge's `MixedPrecisionConfig`, which replace what the model has."""

_SIZE = re.compile(r"[1-9]\d{0,5}(?!\S)")
_LAUNCHED = ("nproc_per_node", "nnodes")
"""Arguments of torchrun: processes of a node, and nodes, of which there is one unless it is set."""


@dataclass(frozen=True, slots=True)
class Written:
    """A setting of a file: its spelling there, its current name, its value."""

    written: str
    name: str
    value: Value


def derive_settings(entries: Sequence[Entry], known: Sequence[Written]) -> Iterator[Written]:
    """Yield what the form of a file shows without a setting: the framework and the model."""
    stated = {each.name for each in known}
    sections = {*SECTIONS, "dataset", "rng"}
    of_bridge = next((each.written for each in known if each.written.partition(".")[0] in sections), None)
    values = dict(entries)
    if of_bridge is None and str(values.get("_target_", "")).startswith("megatron.bridge."):
        of_bridge = "_target_"
    flags = (each.written for each in known if each.written.rpartition(".")[2].startswith("--"))
    of_megatron = next(flags, None)
    if "framework" not in stated and (of_bridge or of_megatron):
        yield Written(
            of_bridge or str(of_megatron), "framework", "megatron-bridge" if of_bridge else "megatron-lm"
        )
    model = values.get(_MODEL_CLASS)
    if "model_family" not in stated and isinstance(model, str):
        yield Written(_MODEL_CLASS, "model_family", model)
    if of_bridge is not None:
        yield from _derive_of_checkpoints_and_data(values)
        yield from _derive_of_precision(values)
        yield from _derive_of_sections(values)
    elif of_megatron is not None:
        yield from _derive_of_arguments(values, stated)


def _derive_of_sections(values: Mapping[str, object]) -> Iterator[Written]:
    """Yield what Megatron Bridge checks of one section alone, before it completes others."""
    delayed = "comm_overlap.delay_wgrad_compute"
    own = (value for name, value in values.items() if name.endswith(".delay_wgrad_compute"))
    if "_target_" in values and not _is_true(values.get(delayed)) and any(map(_is_true, own)):
        yield Written(delayed, "wgrad_is_checked", value=False)
    if _BUILT_MODEL in values:
        yield Written(_BUILT_MODEL, "builder_is_checked", value=True)
    if "optimizer.use_distributed_optimizer" in values:
        name = "optimizer.use_distributed_optimizer"
        yield Written(name, "optimizer_is_distributed", _is_true(values[name]))
    if _is_true(values.get("comm_overlap.overlap_moe_expert_parallel_comm")):
        for section in ("model", "model.transformer"):
            name = f"{section}.virtual_pipeline_model_parallel_size"
            if name in values:
                yield Written(name, "virtual_stages_are_written", values[name] is not None)


def _is_true(value: object) -> bool:
    return str(value).lower() == "true"


def _derive_of_arguments(values: Mapping[str, object], stated: set[str]) -> Iterator[Written]:
    """Yield the GPUs that torchrun starts, and whether Megatron-LM saves checkpoints."""
    bare = {bare_name(name): (name, value) for name, value in values.items()}
    for flag in ("save", "load"):
        if flag in bare and f"--{flag}" in bare[flag][0]:
            yield Written(bare[flag][0], "checkpoint_is_used", value=True)
    if "mock_data" in bare:
        yield Written(bare["mock_data"][0], "dataset_is_mock", value=True)
    if "save" in bare and "--save" in bare["save"][0]:
        yield Written(bare["save"][0], "checkpoint_is_saved", value=True)
    name, processes = bare.get(_LAUNCHED[0], ("", None))
    _, nodes = bare.get(_LAUNCHED[1], ("", "1"))
    sizes = [_SIZE.match(str(size)) for size in (processes, nodes)]
    if "world_size" not in stated and sizes[0] and sizes[1]:
        yield Written(name, "world_size", int(sizes[0][0]) * int(sizes[1][0]))


def _derive_of_checkpoints_and_data(values: Mapping[str, object]) -> Iterator[Written]:
    if {"checkpoint.save", "checkpoint.load"} <= set(values):
        is_saved = values["checkpoint.save"] is not None
        yield Written("checkpoint.save", "checkpoint_is_saved", is_saved)
        yield Written(
            "checkpoint.save", "checkpoint_is_used", is_saved or values["checkpoint.load"] is not None
        )
    if "dataset.enable_offline_packing" in values:
        described = (name for name in values if name.startswith("dataset.offline_packing_specs"))
        packs = next((name for name in described if values[name] is not None), None)
        yield Written(packs or "dataset", "packing_is_described", packs is not None)
    length, dataset = values.get("dataset.seq_length"), str(values.get("dataset._target_", ""))
    if dataset:
        is_tuning = _FINETUNING.search(dataset) is not None
        yield Written("dataset._target_", "dataset_is_for_finetuning", is_tuning)
        yield Written("dataset._target_", "dataset_is_mock", "mock" in dataset.lower())
    if isinstance(length, int) and _DATASETS.search(dataset):
        yield Written("dataset.seq_length", "dataset_seq_length", length)


def _derive_of_precision(values: Mapping[str, object]) -> Iterator[Written]:
    recipe = values.get("mixed_precision")
    if isinstance(recipe, str):
        for name, value in expand_recipe(recipe).items():
            yield Written("mixed_precision", name, value)
    elif str(values.get("mixed_precision._target_", "")).endswith(".MixedPrecisionConfig"):
        for name, default in _PRECISION.items():
            if f"mixed_precision.{name}" not in values:
                written = f"mixed_precision.{name}"
                yield Written(written, vocabulary().name(written) or name, default)
    if "comm_overlap.wgrad_deferral_limit" in values and values["comm_overlap.wgrad_deferral_limit"] is None:
        yield Written("comm_overlap.wgrad_deferral_limit", "wgrad_deferral_limit", -1)


_TRAINING = re.compile(
    r"optim|\bloss|GradScaler|zero_grad|no_sync|float8_training|DistributedDataParallel|check[._-]for|rerun_state"
    r"|^(--)?(dataset|train|ddp)\.|mixed_precision\.|gradient|wgrad|create-attention-mask"
)


def leave_out_training(settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """Return the settings that a program without a backward pass and an optimizer may use.

    >>> lines = ("model = torch.compile(model)", "torch.optim.AdamW(..., fused=True)")
    >>> [one.key for one in leave_out_training([Setting("pytorch", line, "") for line in lines])]
    ['model = torch.compile(model)']
    """
    return tuple(one for one in settings if not _TRAINING.search(one.key))
