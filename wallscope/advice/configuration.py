"""How a run was configured, from a file that a user names: YAML, TOML, an argument list or a log.

Whatever is read was written by others: sizes, depth, aliases and tags are bounded before anything is built.
"""

import difflib
import math
import re
import shlex
import tomllib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from wallscope.advice.settings import check_value, complete_settings, parse_value, vocabulary
from wallscope.errors import ConfigurationError
from wallscope.model.advice import KnownSetting, RunConfiguration, Value
from wallscope.model.capture import Finding, Severity
from wallscope.thresholds import MEANT_KEY_RATIO

Entry = tuple[str, object]
"""A dotted name, and a value as its file has it; a `str` may stand for anything in texts."""

_LARGEST = {"YAML": 2 * 2**20, "TOML": 2**20, "text": 32 * 2**20}
_DEEPEST, _MOST_NODES, _MOST_EXPANDED = 40, 100_000, 200_000
_DOTTED = re.compile(r"(?:^|[\s:\]])([a-z]\w*) ?\.{3,}\s?(.*?)\s*$")
_FLAG = re.compile(r"(?:^|\s)--?[a-z][\w-]+")
_ASSIGNED = re.compile(r"(?:\+{0,2})[A-Za-z_][\w.]*=.*", re.DOTALL)
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def detect_kind(path: Path, text: str) -> str:
    """Return `toml`, `yaml`, `log` (dotted lines) or `arguments`: by suffix, else by content."""
    suffix = path.suffix.lower()
    if suffix == ".toml":
        return "toml"
    if suffix in {".yaml", ".yml", ".json"}:
        return "yaml"
    if any(_DOTTED.search(line) for line in text.splitlines()):
        return "log"
    if _FLAG.search(text) and not re.search(r"^[\w.]+:(\s|$)", text, re.MULTILINE):
        return "arguments"
    return "yaml"


def read_text(path: Path) -> str:
    """Return the text of a file that is not too large for what it claims to be.

    Raises:
        ConfigurationError: it cannot be read, is too large or no text.
    """
    suffix = path.suffix.lower()
    kind = {".toml": "TOML", ".yaml": "YAML", ".yml": "YAML", ".json": "YAML"}.get(suffix, "text")
    try:
        if path.exists() and not path.is_file():
            raise ConfigurationError(f"{path} — is no regular file — name a file of settings")
        if path.stat().st_size > _LARGEST[kind]:
            most = _LARGEST[kind] // 2**20
            raise ConfigurationError(
                f"{path} — is larger than {most} MiB — cut out the part with the settings"
            )
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise ConfigurationError(f"{path} — cannot be read: {reason} — name a file of settings") from error
    if "\0" in text:
        raise ConfigurationError(f"{path} — is no text — name a file of settings")
    return text


def parse_toml(path: Path, text: str) -> list[Entry]:
    """Return the settings of a TOML file, tables joined to their keys by dots.

    Raises:
        ConfigurationError: it is no TOML, or nested deeply.
    """
    try:
        return list(_flatten(tomllib.loads(text), ""))
    except (ValueError, RecursionError) as error:
        is_syntax = isinstance(error, tomllib.TOMLDecodeError)
        reason = str(error) if is_syntax else "nested too deeply, or a number too long"
        raise ConfigurationError(f"{path} — is no TOML: {reason} — mend that line") from error


def parse_yaml(path: Path, text: str) -> list[Entry]:
    """Return the settings of a YAML document, sections joined to their keys by dots.

    Raises:
        ConfigurationError: it is no plain YAML mapping: tags, cycles, or far more of anything than settings.
    """
    if len(text) > _LARGEST["YAML"]:
        raise ConfigurationError(f"{path} — is too large for YAML — cut out the part with the settings")
    try:
        _check_events(path, text)
        loader = _LOADER(text)
        try:
            node = loader.get_single_node()
            _check_nodes(path, node)
            document = loader.construct_document(node) if node is not None else None
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" in line {where.line + 1}" if where is not None else ""
        reason = getattr(error, "problem", None) or str(error)
        raise ConfigurationError(f"{path} — is no YAML{line}: {reason} — mend that line") from error
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(f"{path} — holds a value that is none: {error} — mend that line") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path} — holds no settings — write sections of `name: value`")
    return list(_flatten(document, ""))


def _check_events(path: Path, text: str) -> None:
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise ConfigurationError(f"{path} — has the tag {tag} — write plain values")
        if depth > _DEEPEST:
            raise ConfigurationError(
                f"{path} — is nested more than {_DEEPEST} deep — write sections of settings"
            )
        if number > _MOST_NODES:
            raise ConfigurationError(
                f"{path} — holds over {_MOST_NODES} values — cut out those of the settings"
            )


def _check_nodes(path: Path, root: yaml.Node | None) -> None:
    """Refuse aliases that lead to themselves or unfold to very much, and names written twice."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        if isinstance(node, yaml.ScalarNode):
            return 1
        key = id(node)
        if sizes.get(key) == 0:
            raise ConfigurationError(f"{path} — has an alias to what it stands in — write values out")
        if key not in sizes:
            sizes[key] = 0
            inside = node.value
            if isinstance(node, yaml.MappingNode):
                _check_names(path, node)
                inside = [part for pair in node.value for part in pair]
            sizes[key] = 1 + sum(map(size, inside))
        if sizes[key] > _MOST_EXPANDED:
            raise ConfigurationError(f"{path} — has aliases that unfold to very much — write values out")
        return sizes[key]

    if root is not None:
        size(root)


def _check_names(path: Path, node: yaml.MappingNode) -> None:
    seen: set[Hashable] = set()
    for name, _ in node.value:
        if isinstance(name, yaml.ScalarNode) and name.value in seen:
            line = name.start_mark.line + 1
            raise ConfigurationError(f"{path} — has {name.value} twice, again in line {line} — keep one")
        seen.add(name.value if isinstance(name, yaml.ScalarNode) else None)


def _flatten(document: object, prefix: str) -> Iterator[Entry]:
    if isinstance(document, dict):
        if prefix and _member(document) is not None:
            yield prefix, _member(document)
        for name, value in document.items():
            yield from _flatten(value, f"{prefix}.{name}" if prefix else str(name))
    elif isinstance(document, list) and any(
        isinstance(item, dict) and "_target_" in item for item in document
    ):
        members = [_member(item) for item in document if isinstance(item, dict)]
        if all(members):
            yield prefix, members
    elif not (isinstance(document, float) and not math.isfinite(document)):
        yield prefix, document


def _member(document: dict[object, object]) -> str | None:
    """Return the name of an object of a dump, else the end of its path; `None` of one with a number alone."""
    if isinstance(document.get("_name_"), str):
        return str(document["_name_"])
    if document.get("_call_") is not False or "_target_" not in document:
        return None
    return str(document["_target_"]).rpartition(".")[2]


def parse_log(text: str) -> list[Entry]:
    """Return the dotted lines in which Megatron-LM prints its arguments, whatever stands before them."""
    found = (_DOTTED.search(line) for line in text.splitlines() if len(line) < 4_000)
    return [(match[1], match[2]) for match in found if match is not None]


def parse_arguments(path: Path, text: str) -> list[Entry]:
    """Return the flags of a command line or of a shell array, and `name=value` overrides and exports.

    Raises:
        ConfigurationError: quotes do not match.
    """
    apart = re.sub(r"(?<=\s)\(|=\(|\)(?=\s|$)", " ) ", re.sub(r"\\\r?\n", " ", text))
    try:
        words = shlex.split(apart, comments=True)
    except ValueError as error:
        raise ConfigurationError(f"{path} — is no command line: {error} — close the quotes") from error
    found: list[Entry] = []
    flag: str | None = None
    values: list[str] = []
    for word in [*words, "--"]:
        starts = word.startswith("--") or word in {"&&", ";", "|", ")"}
        if starts or _ASSIGNED.fullmatch(word):
            if flag is not None:
                found.append((flag, " ".join(values)))
            name, equals, value = word.partition("=")
            flag, values = (name, [value] if equals else []) if starts and len(word) > 2 else (None, [])
            if not starts:
                found.append((name, value))
        elif flag is not None and word:
            values.append(word)
    return found


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
