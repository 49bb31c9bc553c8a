"""How a run was configured, from a file that a user names."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wallscope.advice.documents import (
    Entry,
    detect_kind,
    parse_arguments,
    parse_log,
    parse_toml,
    parse_yaml,
    read_text,
)
from wallscope.advice.settings import check_value, complete_settings, parse_value, vocabulary
from wallscope.errors import ConfigurationError
from wallscope.model.capture import Finding, Severity
from wallscope.model.configuration import KnownSetting, RunConfiguration, Value
from wallscope.thresholds import MEANT_KEY_RATIO

_SECTIONS = (
    "comm_overlap",
    "mixed_precision",
    "model",
    "ddp",
    "optimizer",
    "dist",
    "train",
    "dataset",
    "rng",
)
"""Where sections disagree about a setting, the first of these is heeded: later ones hold its default."""

_MODEL_CLASS = "model._target_"
"""Where a dump of Megatron Bridge names the class that builds the model."""

_FEW_KEYS = 100


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """What a file states: the settings that anything asks for, and what is odd about it."""

    configuration: RunConfiguration
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _Written:
    """A setting of a file: as it is written there, its current name, its value."""

    written: str
    name: str
    value: Value


def read_configuration(path: Path) -> ConfigurationFile:
    """Read a YAML configuration, an argument list, a log that holds one, or TOML with `name = value`.

    In YAML and logs, hundreds of settings that nothing asks for are normal; in TOML one is a mistake.

    Raises:
        ConfigurationError: the file cannot be read, a value is none of its setting's, or sizes contradict.
    """
    text = read_text(path)
    kind = detect_kind(path, text)
    match kind:
        case "toml":
            entries = parse_toml(path, text)
        case "log":
            entries = parse_log(text)
        case "arguments":
            entries = parse_arguments(path, text)
        case _:
            entries = parse_yaml(path, text)
    entries = list(entries)
    known, unknown = _read_entries(path, entries, is_text=kind in {"log", "arguments"})
    if kind == "toml" and unknown:
        raise ConfigurationError(f"{path} — {unknown[0]} is no setting that is known{_suggest(unknown[0])}")
    if not known:
        raise ConfigurationError(
            f"{path} — holds no setting that is known — name a configuration or a log of one"
        )
    settings, findings = _resolve(path, [*known, *_derive(entries, known)])
    _check_sizes(path, settings)
    odd = (*findings, *_unused(path, unknown, len(known)), *_former(path, known))
    return ConfigurationFile(RunConfiguration(complete_settings(settings)), odd)


def _read_entries(path: Path, entries: Iterable[Entry], *, is_text: bool) -> tuple[list[_Written], list[str]]:
    known: list[_Written] = []
    unknown: list[str] = []
    for written, value in entries:
        name, off = _find_name(written)
        if name is None:
            unknown.append(written)
            continue
        if isinstance(value, str) and "${" in value:
            continue
        try:
            found = _value(name, value, is_text=is_text, off=off)
        except ValueError as error:
            shown = repr(value) if isinstance(value, str) else str(value)
            raise ConfigurationError(f"{path} — {written}: {shown[:60]} {error} — mend that value") from error
        known.extend(_Written(written, *pair) for pair in _with_implied(written, name, found))
    return known, unknown


def _derive(entries: Sequence[Entry], known: Sequence[_Written]) -> Iterator[_Written]:
    """Yield what the form of a file tells and no setting in it: whose settings these are, which model."""
    stated = {each.name for each in known}
    of_bridge = next((each.written for each in known if each.written.partition(".")[0] in _SECTIONS), None)
    of_megatron = next((each.written for each in known if each.written.startswith("--")), None)
    if "framework" not in stated and (of_bridge or of_megatron):
        yield _Written(
            of_bridge or str(of_megatron), "framework", "megatron-bridge" if of_bridge else "megatron-lm"
        )
    model = dict(entries).get(_MODEL_CLASS)
    if "model_family" not in stated and isinstance(model, str):
        yield _Written(_MODEL_CLASS, "model_family", model)


def _find_name(written: str) -> tuple[str | None, bool]:
    """Return the current name, and whether the flag switches it off."""
    words = vocabulary()
    bare = written.lstrip("-").replace("-", "_")
    if bare in words.off:
        return words.off[bare], True
    name = words.name(written)
    if name is None and bare.startswith("no_"):
        inside = words.name(bare.removeprefix("no_"))
        return inside, inside is not None
    return name, False


def _value(name: str, value: object, *, is_text: bool, off: bool) -> Value:
    if off:
        return isinstance(value, str) and value.lower() == "false"
    if is_text and value == "" and vocabulary().kinds[name] == "switch":
        return True
    if isinstance(value, str) and (is_text or vocabulary().kinds[name] in {"word", "environment"}):
        return parse_value(name, value)
    if name == "cp_comm_type" and isinstance(value, list) and len(set(map(str, value))) == 1:
        return str(value[0])
    if vocabulary().kinds[name] == "word" and isinstance(value, list):
        return str(value)
    return check_value(name, value)


def _with_implied(written: str, name: str, value: Value) -> Iterator[tuple[str, Value]]:
    yield name, value
    leaf = written.lstrip("-").rpartition(".")[2].replace("-", "_")
    if leaf.removeprefix("no_") == "check_for_nan_in_loss_and_grad":
        yield "check_for_nan_in_grad", value


def _resolve(path: Path, known: list[_Written]) -> tuple[dict[str, KnownSetting], list[Finding]]:
    """Return one value a setting: of the section that decides, unless it has none."""
    by_name: dict[str, list[_Written]] = {}
    for each in known:
        by_name.setdefault(each.name, []).append(each)
    settings: dict[str, KnownSetting] = {}
    findings = []
    for name, same in by_name.items():
        given = [each for each in same if each.value is not None] or same
        chosen = min(given, key=_precedence)
        others = [each for each in given if each.value != chosen.value]
        rivals = [each for each in others if _precedence(each) < len(_SECTIONS)] or (
            others if _precedence(chosen) == len(_SECTIONS) else []
        )
        if rivals and vocabulary().kinds[name] == "sizes":
            raise ConfigurationError(
                f"{path} — {chosen.written} is {chosen.value} and {rivals[0].written} is {rivals[0].value}"
                " — keep the one that holds"
            )
        if others and _precedence(chosen) == _precedence(others[0]):
            findings.append(_disputed(path, chosen, others[0]))
        settings[name] = KnownSetting(chosen.value, f"{path.name}: {chosen.written}")
    return settings, findings


def _precedence(each: _Written) -> int:
    """Return the rank of the innermost section that decides, as `model` in `model.transformer.seq_length`."""
    for section in reversed(each.written.split(".")[:-1]):
        if section in _SECTIONS:
            return _SECTIONS.index(section)
    return len(_SECTIONS)


def _disputed(path: Path, one: _Written, other: _Written) -> Finding:
    return Finding(
        "configuration-disputed",
        Severity.WARNING,
        f"{path.name}: {one.written} is {one.value} and {other.written} is {other.value}; the first counts",
        "keep the one that holds",
    )


def _check_sizes(path: Path, settings: dict[str, KnownSetting]) -> None:
    def size(name: str) -> int | None:
        value = settings[name].value if name in settings else None
        return value if isinstance(value, int) else None

    world, stages = size("world_size"), size("pipeline_model_parallel_size")
    tensor, context = size("tensor_model_parallel_size"), size("context_parallel_size")
    product = (tensor or 1) * (stages or 1) * (context or 1)
    if world is not None and world % product:
        raise ConfigurationError(
            f"{path} — {world} ranks are not divided by TP x PP x CP = {product} — mend the sizes"
        )
    batch, micro = size("global_batch_size"), size("micro_batch_size")
    if batch is not None and micro is not None and batch % micro:
        raise ConfigurationError(
            f"{path} — global_batch_size {batch} is no multiple of micro_batch_size {micro} — mend the sizes"
        )


def _suggest(written: str) -> str:
    leaf = written.rpartition(".")[2]
    close = difflib.get_close_matches(leaf, vocabulary().kinds, 1)
    return f" — did you mean {close[0]}?" if close else " — leave it out"


def _unused(path: Path, unknown: list[str], known: int) -> Iterator[Finding]:
    if not unknown:
        return
    kinds = vocabulary().kinds
    close = {
        name: match[0]
        for name in (unknown if len(unknown) <= _FEW_KEYS else [])
        if (match := difflib.get_close_matches(name.rpartition(".")[2], kinds, 1, MEANT_KEY_RATIO))
    }
    for name, meant in close.items():
        yield Finding(
            "configuration-misspelled",
            Severity.WARNING,
            f"{path.name}: {name} is no setting that is known, {meant} is",
            f"write {meant} if that is meant",
        )
    rest = len(unknown) - len(close)
    if rest:
        yield Finding(
            "configuration-unused",
            Severity.INFO,
            f"{path.name}: no check asks for {rest} of its {len(unknown) + known} settings",
        )


def _former(path: Path, known: list[_Written]) -> Iterator[Finding]:
    current = vocabulary().current
    former = {
        each.written: each.name
        for each in known
        if current.get(each.written.lstrip("-").rpartition(".")[2].replace("-", "_")) == each.name
        and each.name
        in {"cuda_graph_modules", "moe_flex_dispatcher_num_sms", "moe_router_padding_for_quantization"}
    }
    for written, name in former.items():
        yield Finding(
            "configuration-former-name",
            Severity.INFO,
            f"{path.name}: {written} is now called {name}",
            f"write {name}",
        )
