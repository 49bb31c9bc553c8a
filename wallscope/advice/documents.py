"""Files that hold a configuration: YAML, an argument list, a log, or TOML, as flat names and values.

Whatever is read was written by others: sizes, depth, aliases and tags are bounded before anything is built.
"""

import math
import re
import shlex
import tomllib
from collections.abc import Hashable, Iterator
from pathlib import Path

import yaml

from wallscope.errors import ConfigurationError

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
