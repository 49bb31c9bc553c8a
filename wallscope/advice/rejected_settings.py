"""Settings that a framework rejects: unknown names, those of other releases, and files of other programs."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from wallscope.advice.settings import Entry, bare_name, vocabulary
from wallscope.files import read_toml
from wallscope.finding_texts import make_finding
from wallscope.model.advice import KnownSetting
from wallscope.model.capture import Finding, Severity
from wallscope.model.finding_codes import FindingCode
from wallscope.user_files import quote_word

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

IGNORED_WITH_MEGATRON_FSDP = ("dist.use_torch_fsdp2",)
"""Switches without effect if only the section `ddp` enables Megatron FSDP; with `dist` too, Bridge stops."""


def find_unread_switches(path: Path, values: Mapping[str, object]) -> Iterator[Finding]:
    """Yield the switches that Megatron Bridge ignores without a word."""
    if values.get("ddp.use_megatron_fsdp") is not True or values.get("dist.use_megatron_fsdp") is not False:
        return
    for name in IGNORED_WITH_MEGATRON_FSDP:
        if values.get(name) is True:
            yield make_finding(FindingCode.CONFIGURATION_DISPUTED, "ignored", file=path.name, name=name)


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
    return Finding(FindingCode.CONFIGURATION_IMPOSSIBLE, Severity.ERROR, message, cure)


_VALUES_OF_SWITCHES: Final = {"true", "false", "1", "0", "yes", "no"}
_FEW: Final = 8


@cache
def choices() -> dict[str, list[str]]:
    """Return the accepted values of settings that have few, by current name."""
    return dict(read_toml("advice/settings.toml")["choices"])


def find_rejected_arguments(path: Path, entries: Iterable[Entry], *, is_open: bool) -> Iterator[Finding]:
    """Yield the flags of an argument list with which the parser of Megatron-LM stops.

    Args:
        path: the file, for messages.
        entries: flags and their values.
        is_open: whether words of the list may be missing.
    """
    words = vocabulary()
    for written, value in entries:
        bare = bare_name(written)
        name = words.name(written) or words.off.get(bare) or words.name(bare.removeprefix("no_"))
        kind = words.kinds.get(name or "")
        if not written.startswith("--") or name is None or kind is None or not isinstance(value, str):
            continue
        if "$" in value:
            continue
        first, *others = value.split() or [""]
        if kind == "switch":
            if first.lower() in _VALUES_OF_SWITCHES and not others:
                yield report_impossible(
                    f"{path.name}: {written} takes no value, and has one",
                    "remove the value; leave out the flag to disable it",
                )
        elif not first and kind != "environment" and not is_open:
            yield report_impossible(f"{path.name}: {written} has no value", "write its value after it")
        elif first and name in choices() and first not in choices()[name]:
            known = choices()[name]
            yield report_impossible(
                f"{path.name}: {written} has none of its choices",
                f"choose from {', '.join(known[:_FEW])}",
            )


_STATED_BY: Final = {
    "megatron-lm": ("Megatron-LM", "megatron_core_version"),
    "megatron-bridge": ("Megatron Bridge", "megatron_bridge_version"),
}
_SHOWN_COUNT: Final = 3
_UNSET = (None, False, "None", "False", "null", "none")

_Release = tuple[int, int]


@cache
def releases(kind: str, framework: str) -> Mapping[str, _Release]:
    """Return the first release with a setting (`since`), or without it (`until`), by the setting's name."""
    table = read_toml("advice/releases.toml")[kind].get(framework, {})
    return {name: _parse(release) for release, names in table.items() for name in names}


def _parse(text: str) -> _Release:
    major, minor = re.findall(r"\d+", text)[:2]
    return int(major), int(minor)


def find_unused_backend(path: Path, known: Mapping[str, object]) -> Iterator[Finding]:
    """Yield a finding if a file names a backend of the flex dispatcher, and another dispatcher.

    `known` are the values that the file itself sets.
    """
    backend, dispatcher = known.get("moe_flex_dispatcher_backend"), known.get("moe_token_dispatcher_type")
    if backend in (None, "none", "None") or dispatcher in (None, "flex"):
        return
    yield make_finding(
        FindingCode.CONFIGURATION_DISPUTED,
        "without-flex",
        file=path.name,
        backend=quote_word(backend),
        dispatcher=quote_word(dispatcher),
    )


def check_releases(
    path: Path, entries: Iterable[Entry], settings: Mapping[str, KnownSetting]
) -> Iterator[Finding]:
    """Yield a finding for settings that the stated release lacks, or one that no release is stated.

    Megatron-LM stops at an unknown argument. Megatron Bridge drops an unknown key with a warning. Values that
    enable nothing are ignored.
    """
    framework = str(settings["framework"].value) if "framework" in settings else ""
    if framework not in _STATED_BY:
        return
    program, key = _STATED_BY[framework]
    since, until = releases("since", framework), releases("until", framework)
    names = dict.fromkeys(bare_name(name) for name, value in entries if value not in _UNSET and value != [])
    newer = sorted((each for each in names if each in since), key=lambda each: since[each])
    stated = settings.get(key)
    if stated is None or not isinstance(stated.value, str):
        if newer:
            first = _write(since[newer[-1]])
            yield make_finding(
                FindingCode.CONFIGURATION_RELEASE,
                "unstated",
                file=path.name,
                setting=newer[-1],
                program=program,
                first=first,
                key=key,
            )
        return
    release = _parse(stated.value)
    lacking = {each: f"from {_write(since[each])}" for each in newer if since[each] > release}
    lacking |= {
        each: f"before {_write(until[each])}" for each in names if each in until and until[each] <= release
    }
    if lacking:
        shown = [f"{name} ({where})" for name, where in list(lacking.items())[:_SHOWN_COUNT]]
        more = f" and {len(lacking) - _SHOWN_COUNT} more" if len(lacking) > _SHOWN_COUNT else ""
        stops = framework == "megatron-lm"
        yield make_finding(
            FindingCode.CONFIGURATION_RELEASE,
            "lacks",
            severity=Severity.ERROR if stops else Severity.WARNING,
            file=path.name,
            program=program,
            release=_write(release),
            settings=", ".join(shown),
            more=more,
            reaction="stops at them" if stops else "ignores them",
            key=key,
        )


def _write(release: _Release) -> str:
    return ".".join(map(str, release))


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


def _find_certain_program(entries: Sequence[Entry], others: Mapping[str, Any]) -> str | None:
    """Return the program that a file names, or whose names it alone has."""
    for written, value in entries:
        leaf = bare_name(written).rpartition(".")[2]
        if leaf == "framework" and str(value) in others["frameworks"]:
            return str(others["frameworks"][str(value)])
        for program, marks in others["certain"].items():
            if leaf in marks:
                return str(program)
    return None


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
    others = read_toml("advice/programs.toml")["configurations"]
    if (program := _find_certain_program(entries, others)) is not None:
        return make_finding(FindingCode.CONFIGURATION_FRAMEWORK, "other", file=path.name, program=program)
    if "framework" in known or any(_names_megatron(*entry) for entry in entries):
        return None
    if any(not name.isupper() and name not in others["common"] for name in known):
        return None
    names = {bare_name(name) for name, _ in entries} | {
        part for name, _ in entries for part in name.split(".")[:-1]
    }
    program = next(
        (program for program, marks in others["marks"].items() if not names.isdisjoint(marks)), None
    )
    if program is not None:
        return make_finding(FindingCode.CONFIGURATION_FRAMEWORK, "other", file=path.name, program=program)
    if path.suffix.lower() == ".toml" or not known or is_misspelled:
        return None
    return make_finding(FindingCode.CONFIGURATION_FRAMEWORK, "unknown", file=path.name)
