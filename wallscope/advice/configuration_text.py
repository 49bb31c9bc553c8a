"""Read the names and values of a file: YAML, TOML, a command line, a shell script or a log.

Files come from others. Sizes, depth, aliases and tags are limited before anything is built. A script is not
run: values from outside (`$1`, `${EXTRA_ARGS}`, a command) are unknown. It is then also unknown whether a
missing flag is really left out.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from wallscope.advice.launches import Launch, choose_launches, decide_form, list_foreign_flags, name_program
from wallscope.advice.settings import Entry, vocabulary
from wallscope.errors import ConfigurationError
from wallscope.files import read_toml
from wallscope.model.advice import FileForm
from wallscope.records import dataclass
from wallscope.user_files import read_user_text

OPAQUE: Final = object()
"""The value of an object of a dump whose parts are not in the file."""

_LARGEST_BYTES = {"YAML": 2 * 2**20, "TOML": 2**20, "text": 32 * 2**20}
_DEEPEST, _MOST_NODES, _MOST_EXPANDED = 40, 100_000, 200_000
_LONGEST_NUMBER = 40
_LONGEST_LINE = 4_000
_DOTTED = re.compile(r"(?:^|[\s:\]])([a-z]\w*) ?\.{3,}\s?(.*)$")
_FLAG = re.compile(r"(?:^|\s)--?[a-z][\w-]+")
_LAUNCH = re.compile(r"^[ \t]*(?:export \w+=|(?:\w+=\S* )*(?:torchrun|srun|python3?) )", re.MULTILINE)
_JSON = re.compile(r"\s*(?:\{|\[\s*\{)")
_PRINTED = re.compile(
    r"(?im)^[#*> ]*recommendations \(upper bound on speedup|\A[\w-]+ \((?:fix|finding|cause|wall)\): "
)
_CURE = "name a file of settings"
_SCRIPTS = {".sh", ".bash", ".slurm", ".sbatch"}
_PART_OF_KEY = r"(?:[\w-]+|\"[^\"\n]*\"|'[^'\n]*')"
_DEEP_KEY = re.compile(rf"(?<![\w-]){_PART_OF_KEY}(?:[ \t]*\.[ \t]*{_PART_OF_KEY}){{{_DEEPEST}}}")
_DEEP_LIST = re.compile(rf"(?:[\[{{]\s*+){{{_DEEPEST + 1}}}")
_NO_YAML = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_YAML = "tag:yaml.org,2002:"
_PLAIN_TAGS = {
    f"{_YAML}{name}"
    for name in ("set", "str", "int", "float", "bool", "null", "seq", "map", "binary", "timestamp")
} | {f"{_YAML}python/tuple", "!"}
"""Tags of plain values, including those with which Megatron Bridge saves sets and tuples."""
_TRUE, _FALSE = {"yes", "true", "on"}, {"no", "false", "off"}


def detect_kind(path: Path, text: str) -> str:
    """Return `toml`, `yaml`, `log` (dotted lines) or `arguments`: by suffix, else by content."""
    suffix = path.suffix.lower()
    if suffix == ".toml":
        return "toml"
    if _JSON.match(text) or suffix in {".yaml", ".yml", ".json"}:
        return "yaml"
    is_script = suffix in _SCRIPTS
    if not is_script and any(_DOTTED.search(line) for line in text.splitlines() if len(line) < _LONGEST_LINE):
        return "log"
    is_launched = is_script or _LAUNCH.search(text)
    if is_launched or (_FLAG.search(text) and not re.search(r"^[\w.]+:(\s|$)", text, re.MULTILINE)):
        return "arguments"
    return "yaml"


def read_text(path: Path) -> str:
    """Return the text of a file within the size limit of its format.

    Raises:
        ConfigurationError: it cannot be read, is too large, is not text, or is a text that wallscope printed,
            whose settings are those that it recommends.
    """
    kind = {".toml": "TOML", ".yaml": "YAML", ".yml": "YAML", ".json": "YAML"}.get(
        path.suffix.lower(), "text"
    )
    text = read_user_text(path, _LARGEST_BYTES[kind], _CURE, ConfigurationError)
    if _PRINTED.search(text):
        raise ConfigurationError(f"{path} — is an output of wallscope, not a configuration — {_CURE}")
    return text


def parse_toml(path: Path, text: str) -> list[Entry]:
    """Return the settings of a TOML file, tables joined to their keys by dots.

    Raises:
        ConfigurationError: it is not TOML, or nested too deeply.
    """
    if _DEEP_KEY.search(text):
        raise ConfigurationError(f"{path} — has a key of over {_DEEPEST} parts — write tables of settings")
    try:
        return list(_flatten(tomllib.loads(text), ""))
    except (ValueError, RecursionError) as error:
        is_syntax = isinstance(error, tomllib.TOMLDecodeError)
        reason = str(error) if is_syntax else "nested too deeply, or a number too long"
        raise ConfigurationError(f"{path} — is not valid TOML: {reason} — correct that line") from error


def parse_yaml(path: Path, text: str) -> tuple[list[Entry], tuple[str, ...]]:
    """Return the settings of a YAML document, sections joined to their keys by dots, and repeated names.

    The last value of a repeated name counts, as in PyYAML.

    Raises:
        ConfigurationError: it is not a plain YAML mapping, or exceeds the limits (tags, cycles, sizes).
    """
    if len(text) > _LARGEST_BYTES["YAML"]:
        raise ConfigurationError(f"{path} — is too large for YAML — keep only the part with the settings")
    repeated: list[str] = []
    try:
        _check_events(path, text)
        loader = _LOADER(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
        if node is not None:
            _check_nodes(path, node)
        document = None if node is None else _build(node, repeated)
    except yaml.YAMLError as error:
        raise ConfigurationError(
            f"{path} — is not valid YAML{_locate_fault(error)} — correct that place"
        ) from error
    except ValueError as error:
        raise ConfigurationError(f"{path} — has an invalid value: {error} — correct that line") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path} — has no settings — write sections of `name: value`")
    if what := _name_other_document(document):
        raise ConfigurationError(f"{path} — is {what}, not a configuration — {_CURE}")
    return list(_flatten(document, "")), tuple(dict.fromkeys(repeated))


def _name_other_document(document: dict[Any, object]) -> str | None:
    """Return what a document is whose names are not settings; `None` for a configuration, or what may be one.

    >>> _name_other_document({"schema": "wallscope.analysis/1"})
    'an output of wallscope (wallscope.analysis/1)'
    """
    schema = document.get("schema")
    if isinstance(schema, str) and schema.startswith("wallscope."):
        return f"an output of wallscope ({schema[:60]})"
    return "a trace of PyTorch's profiler" if "traceEvents" in document else None


def _locate_fault(error: yaml.YAMLError) -> str:
    """Return where YAML is wrong, without the parser's words, which differ between its releases.

    >>> _locate_fault(yaml.scanner.ScannerError(None, None, "no", yaml.Mark("", 0, 2, 4, None, None)))
    ' in line 3, column 5'
    """
    marks = (getattr(error, name, None) for name in ("problem_mark", "context_mark"))
    fault, begin = (f"line {mark.line + 1}, column {mark.column + 1}" if mark else "" for mark in marks)
    if begin in {"", fault}:
        return fault and f" in {fault}"
    return f" in {fault}, inside what begins in {begin}"


def _check_events(path: Path, text: str) -> None:
    if found := _NO_YAML.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise ConfigurationError(f"{path} — has an unprintable character in line {line} — remove it")
    # a parser reads ahead in such a line before it returns an event, up to a limit of its own
    depth = _DEEPEST + 1 if _DEEP_LIST.search(text) else 0
    document_count = 0
    for number, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        if isinstance(event, yaml.DocumentStartEvent):
            document_count += 1
        if document_count > 1:
            raise ConfigurationError(f"{path} — has several documents — keep the one with the settings")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        tag = getattr(event, "tag", None)
        if tag is not None and tag not in _PLAIN_TAGS:
            raise ConfigurationError(f"{path} — has the tag {tag[:80]} — write plain values")
        if depth > _DEEPEST:
            raise ConfigurationError(
                f"{path} — is nested more than {_DEEPEST} levels deep — write sections of settings"
            )
        if number > _MOST_NODES:
            raise ConfigurationError(
                f"{path} — has over {_MOST_NODES} values — keep only those of the settings"
            )


def _check_nodes(path: Path, root: yaml.Node) -> None:
    """Refuse aliases that form a cycle or expand too much."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        if isinstance(node, yaml.ScalarNode):
            return 1
        key = id(node)
        if sizes.get(key) == 0:
            raise ConfigurationError(
                f"{path} — has an alias to an object that contains it — write values out"
            )
        if key not in sizes:
            sizes[key] = 0
            inside = node.value
            if isinstance(node, yaml.MappingNode):
                inside = [part for pair in node.value for part in pair]
            sizes[key] = 1 + sum(map(size, inside))
        if sizes[key] > _MOST_EXPANDED:
            raise ConfigurationError(f"{path} — has aliases that expand too much — write values out")
        return sizes[key]

    size(root)


def _build(node: yaml.Node, repeated: list[str]) -> object:
    """Return plain values; numbers too long for a setting, and dates, stay texts."""
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, repeated) for item in node.value]
    if node.tag == f"{_YAML}set":
        return [_build(name, repeated) for name, _ in node.value]
    merged: dict[str, object] = {}
    found: dict[str, object] = {}
    for name, value in node.value:
        if name.tag == f"{_YAML}merge":
            for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                inside = _build(each, repeated)
                if not isinstance(inside, dict):
                    raise yaml.YAMLError("a merge key (<<) does not name a mapping")
                merged = {**inside, **merged}
            continue
        key = str(_scalar(name)) if isinstance(name, yaml.ScalarNode) else "?"
        if key in found:
            repeated.append(key)
        found[key] = _build(value, repeated)
    return {**merged, **found}


def _scalar(node: yaml.ScalarNode) -> object:
    text, kind = str(node.value), str(node.tag).removeprefix(_YAML)
    bare = text.replace("_", "").lower()
    if kind == "null":
        return None
    if kind == "bool":
        if bare not in _TRUE | _FALSE:
            raise ValueError("a switch is neither true nor false")
        return bare in _TRUE
    if kind not in {"int", "float"} or ":" in text or len(text) > _LONGEST_NUMBER:
        return text
    if kind == "float":
        return float(bare.replace(".inf", "inf").replace(".nan", "nan"))
    sign, digits = (bare[0], bare[1:]) if bare[:1] in {"+", "-"} else ("", bare)
    base = {"0x": 16, "0b": 2, "0o": 8}.get(digits[:2], 8 if digits[:1] == "0" and len(digits) > 1 else 10)
    return int(f"{sign}{digits}", base)


def _flatten(document: object, prefix: str) -> Iterator[Entry]:
    if isinstance(document, dict):
        member = _member(document)
        if prefix and (member is not None or "_target_" in document):
            yield prefix, OPAQUE if member is None else member
        for name, value in document.items():
            yield from _flatten(value, f"{prefix}.{name}" if prefix else str(name))
        if prefix and not document:
            yield prefix, None
    elif isinstance(document, list):
        members = [_name_members(item) for item in document]
        yield prefix, OPAQUE if any(item is OPAQUE for item in members) else members
    elif not (isinstance(document, float) and not math.isfinite(document)):
        yield prefix, document


def _name_members(item: object) -> object:
    """Return an item of a list with enumeration members replaced by their names."""
    if isinstance(item, list):
        return [_name_members(each) for each in item]
    if isinstance(item, dict) and "_target_" in item:
        return _member(item) or OPAQUE
    return item


def _member(document: dict[object, object]) -> str | None:
    """Return the name of an object of a dump, else the end of its path; `None` if it has only a number."""
    if isinstance(document.get("_name_"), str):
        return str(document["_name_"])
    if document.get("_call_") is not False or "_target_" not in document:
        return None
    return str(document["_target_"]).rpartition(".")[2]


def parse_log(text: str) -> list[Entry]:
    """Return the dotted lines in which Megatron-LM prints its arguments, after any prefix."""
    found = (_DOTTED.search(line) for line in text.splitlines() if len(line) < _LONGEST_LINE)
    return [(match[1], match[2].strip()) for match in found if match is not None]


_LONGEST_SCRIPT = 2 * 2**20
_MOST_VALUES = 1_000
_DEEPEST_VARIABLE = 8
_MOST_WORDS = 500_000
_LONGEST_EXPANDED, _LONGEST_VALUE = 4_000, 200
"""Most characters of a value in which variables are replaced, and of the replacements."""

_ASSIGNED = re.compile(r"(\+{0,2}[A-Za-z_][\w.]*)\+?=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^{}]*))?\}|(\w+))")
_OF_SCHEDULER = re.compile(
    r"(?:SLURM|PBS|LSB|OMPI|PMI|PMIX|PET|FLUX|COBALT)_\w+|(?:LOCAL_)?WORLD_SIZE|(?:NODE_|LOCAL_)?RANK"
    r"|NNODES|NUM_NODES"
)
"""Variables that a scheduler or launcher sets, so that a default for them shows nothing of a run."""
_WHOLE_ARRAY = re.compile(r"\$\{(\w+)\[[@*]\]\}|\$\{?(\w+)\}?")
_DOTTED_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_FLAG_AND_VALUE = re.compile(r"--[\w-]+\s")
_NUMBER = re.compile(r"-\d+(\.\d+)?([eE][+-]?\d+)?")
_OUTSIDE = re.compile(r"\$(?:[@*]|\{[@*][^}]*\})")
_NAMES_OF_FLAGS = re.compile(r"(?:^|_)(?:ARG|OPT|OPTION|FLAG|EXTRA|OVERRIDE)S?$", re.IGNORECASE)
"""Names of variables that hold flags."""
_ENDS = {"&&", "||", ";", ";;", "|", "&", ")", "done", "fi", "esac"}
_OF_SHELLS = {"-c"}
_LEADS = {"then", "else", "elif", "do", "{"}
"""Words behind which a command begins."""
_BRANCHES, _BRANCH_ENDS = {"if", "case"}, {"fi", "esac"}
_LINE_END = "\n"
_OTHER_COMMAND = re.compile(r"[A-Za-z./\[][^=]*$")
"""The first word of a command, unlike a flag, an assignment and a variable."""
_TOKEN = re.compile(
    r"""(?P<line_end>\s*\n\s*)|\s+|(?P<comment>\#[^\n]*)|(?P<operator>;;?|&&?|\|\|?)
    |(?P<word>(?:[^\s"'\\;&|]+|\\.|"[^"\\]*(?:\\.[^"\\]*)*"|'[^']*')+)|(?P<open>.)""",
    re.DOTALL | re.VERBOSE,
)
_LEXED = re.compile(
    r"""(?P<comment>(?<![^\s;&|()])\#[^\n]*)|(?P<quoted>"[^"\\]*(?:\\.[^"\\]*)*"|'[^']*')|(?P<joined>\\\r?\n)|\\.""",
    re.DOTALL | re.VERBOSE,
)
"""What decides where a command ends: comments, quotes, and lines that are continued."""
_JOINED = re.compile(r"\\\r?\n")
_HERE = re.compile(r"(?<!<)<<-?[ \t]*['\"]?(\w+)['\"]?")
"""The start of a text that ends in a line with its word alone."""
_QUOTED = re.compile(r"""\\(.)|"([^"\\]*(?:\\.[^"\\]*)*)"|'([^']*)'""", re.DOTALL)
_SAID = re.compile(
    r"""(?P<quoted>"[^"\\]*(?:\\.[^"\\]*)*"|'[^']*')|"""
    r"""(?:^|(?<=[;&|]))[ \t]*(?:then[ \t]+|else[ \t]+|do[ \t]+)?(?:echo|printf)\b"""
    r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\n"';&|])*""",
    re.MULTILINE | re.DOTALL,
)
"""A command that only prints its words, outside quotes."""
_TESTED = re.compile(r"(?<![^\s;])\[\[[ \t][^\n]*?[ \t]\]\](?![^\s;])")
"""A condition; its words count as no flags."""
_WRAPPED = re.compile(
    r"\b(?:bash|sh|sbatch)\s+\S+\.(?:sh|sbatch|slurm)\s+-|\b(?:swift|megatron)\s+(?:sft|pt|rlhf)\s"
)
"""A command that starts another script or program, which adds arguments of its own."""
FROM_ELSEWHERE = frozenset({"--use-checkpoint-args", "--yaml-cfg", "--config-file", "--config"})
"""Flags that read arguments from another file."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Settings of a script; `is_open` if arguments may come from outside.

    `conditional` are names that stand in a branch, or that several commands which train set differently.
    """

    entries: tuple[Entry, ...]
    is_open: bool
    conditional: frozenset[str]
    form: FileForm


@dataclass(slots=True)
class _Reader:
    """The words of a script in order, with the settings and variables found so far."""

    knows: Callable[[str], bool]
    entries: list[Entry] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    arrays: set[str] = field(default_factory=set)
    is_open: bool = False
    flag: str | None = None
    values: list[str] = field(default_factory=list)
    words_count: int = 0
    launches: list[Launch] = field(default_factory=list)
    conditional: set[str] = field(default_factory=set)
    branches_count: int = 0
    groups: list[int] = field(default_factory=list)
    group: int = 0
    flag_group: int = 0
    program_group: int = -1

    def read_script(self, words: Sequence[str]) -> None:
        """Read the commands of a script, and note what they start and what stands in branches."""
        command: list[str] = []
        begin, is_in_list, was_open = 0, False, False
        for word in (*words, _LINE_END):
            is_in_list = (is_in_list and word != ")") or word.endswith("=(")
            if not is_in_list and (word == _LINE_END or word in _ENDS or word in _LEADS):
                is_launch = self._note_launch(command, begin)
                if command and not is_launch and _OTHER_COMMAND.match(command[0]):
                    self.is_open = was_open  # it works on something else
                self.branches_count = max(self.branches_count - (word in _BRANCH_ENDS), 0)
                command, begin, was_open = ["if"] if word == "elif" else [], len(self.entries), self.is_open
                self.group += 1
            elif word != _LINE_END:
                self.branches_count += word in _BRANCHES and not command
                command.append(word)
            if command[-2:-1] == ["-c"]:
                self._read_command(word)
            elif word != _LINE_END and command[:1] != ["if"]:
                self.read([word])
        self.close()

    def _read_command(self, text: str) -> None:
        """Read a command that another one starts: `bash -c 'torchrun …'`."""
        self.close()
        words, begin = text.split(), len(self.entries)
        self.read(words, 1)
        self._note_launch(words, begin)

    def _note_launch(self, words: Sequence[str], begin: int) -> bool:
        """Note the program that a command starts; return whether it starts one."""
        program = name_program([self._resolve(word) for word in words])
        if program is not None:
            self.close()
            self.launches.append(Launch(program, begin, len(self.entries), self.branches_count > 0))
        return program is not None

    def _resolve(self, word: str) -> str:
        """Return a word that names a program of Python with known variables replaced."""
        known = str(self.expand(word)) if word.startswith("$") else word
        return re.sub(r"\$\{(\w+)[^}]*\}", r"$\1", known if known.endswith(".py") else word)

    def read(self, words: Sequence[str], depth: int = 0) -> None:
        self._count(words)
        for word in words:
            assigned = _ASSIGNED.fullmatch(word)
            self._note_program(word)
            if assigned and not word.startswith("-"):
                self.close()
                self.assign(assigned[1], assigned[2], depth)
            elif _FLAG_AND_VALUE.match(word) and depth < _DEEPEST_VARIABLE:
                self.read(word.split(), depth + 1)
            elif word in _ENDS:
                self.close()
            elif (
                (word.startswith("--") and len(word) > 2)
                or self._is_short_option(word)
                or (_DOTTED_NAME.fullmatch(word) and self.knows(word))
            ):
                self.close()
                name, equals, value = word.partition("=")
                self.flag, self.values = name, [value] if equals else []
                self.flag_group = self.group
                self.is_open |= name in FROM_ELSEWHERE
            elif _OUTSIDE.fullmatch(word):
                self.close()
                self.is_open = True
            elif word.startswith("$") and _WHOLE_ARRAY.fullmatch(word):
                self.insert(word, depth)
            elif self.flag is not None and word and len(self.values) < _MOST_VALUES:
                if word.startswith("-") and not _NUMBER.fullmatch(word):
                    self.close()
                else:
                    self.values.append(word)

    def _note_program(self, word: str) -> None:
        """Begin a group of flags behind the name of a program; those before it belong to what starts it."""
        if word.endswith(".py"):
            self.group = self.program_group = self.group + 1

    def _is_short_option(self, word: str) -> bool:
        """Return whether a word is a short option of a recipe's program; shells have one of them too."""
        name = word.partition("=")[0]
        is_behind = name not in _OF_SHELLS or self.group == self.program_group
        return name in _list_short_options() and is_behind

    def _count(self, words: Sequence[str]) -> None:
        self.words_count += len(words)
        if self.words_count > _MOST_WORDS:
            raise ValueError("variables that expand to very long texts")

    def assign(self, name: str, value: str, depth: int) -> None:
        """Read a variable, or an override `name=value`; a string of flags counts as flags."""
        self.group += 1
        if value == "(":
            self.arrays.add(name)
        elif re.search(r"(?:^|\s)--[a-z]", value) and depth < _DEEPEST_VARIABLE:
            begin = len(self.entries)
            self.arrays.add(name)
            self.read(value.split(), depth + 1)
            self.close()
            self._note_launch(value.split(), begin)
        else:
            self.variables[name] = value
            self._keep(name, value, self.group)
            if " " in value:  # a command that is run later
                self._note_launch(value.split(), len(self.entries))

    def _keep(self, name: str, value: str, group: int) -> None:
        """Keep a setting; in a branch, what counts is unknown."""
        if self.branches_count:
            self.conditional.add(name)
            self.variables.pop(name, None)
        self.entries.append((name, value))
        self.groups.append(group)

    def insert(self, word: str, depth: int) -> None:
        """Read a variable that is a whole word: flags read before, one value, or unknown words."""
        match = _WHOLE_ARRAY.fullmatch(word)
        name = (match[1] or match[2]) if match else ""
        if name in self.arrays:
            self.close()
        elif name in self.variables and depth < _DEEPEST_VARIABLE:
            self.read(self.variables[name].split(), depth + 1)
        elif self.flag is not None and not self.values and not _holds_flags(name, self.flag):
            self.values.append(word)
        else:
            self.close()
            self.is_open = True

    def close(self) -> None:
        if self.flag is not None:
            self._keep(self.flag, " ".join(self.values), self.flag_group)
        self.flag, self.values = None, []

    def expand(self, value: object) -> object:
        """Return a value with the variables replaced that the script sets; others stay."""
        if not isinstance(value, str) or "$" not in value or len(value) > _LONGEST_EXPANDED:
            return value

        def replace(match: re.Match[str]) -> str:
            name = match[1] or match[3]
            known = self.variables.get(name, None if _OF_SCHEDULER.fullmatch(name) else match[2])
            return known if known is not None and len(known) <= _LONGEST_VALUE else match[0]

        return _VARIABLE.sub(replace, _VARIABLE.sub(replace, value)[:_LONGEST_EXPANDED])


def _holds_flags(variable: str, flag: str) -> bool:
    """Return whether an unknown variable after a flag holds flags: by its name, or the flag is a switch."""
    words = vocabulary()
    return _NAMES_OF_FLAGS.search(variable) is not None or words.kinds.get(words.name(flag) or "") == "switch"


def _split(text: str) -> list[str]:
    """Return the words of a line of a shell script, without quotes and comments.

    Raises:
        ValueError: quotes do not match.
    """
    found = []
    for match in _TOKEN.finditer(text):
        if match["open"]:
            raise ValueError("missing closing quotation")
        if match["line_end"]:
            found.append(_LINE_END)
        if match["operator"]:
            found.append(match["operator"])
        elif match["word"]:
            found.append(_QUOTED.sub(lambda one: one[1] or one[2] or one[3] or "", match["word"]))
    return found


def _close_texts(text: str) -> str:
    r"""Return a script whose texts between `<<WORD` and `WORD` have no odd quotes.

    >>> _close_texts("cat <<END\nI don't\nEND\nrun 'a'")
    "cat <<END\nI dont\nEND\nrun 'a'"
    """
    lines = text.split("\n")
    last = {line.strip(): index for index, line in enumerate(lines)}
    end = -1
    for index, line in enumerate(lines):
        begin = _HERE.search(line)
        if index <= end or begin is None or line.lstrip().startswith("#"):
            continue
        if (last_end := last.get(begin[1], -1)) <= index:
            continue
        end = next(row for row in range(index + 1, last_end + 1) if lines[row].strip() == begin[1])
        body = lines[index + 1 : end]
        if any(match["open"] for match in _TOKEN.finditer("\n".join(body))):
            lines[index + 1 : end] = [re.sub(r"[\"']", "", each) for each in body]
    return "\n".join(lines)


def _join_lines(text: str) -> str:
    r"""Return a script without comments and with continued lines in one; a comment is not continued.

    >>> _join_lines("a \\\n--b # it's \\\n--c '#d'")
    "a  --b \n--c '#d'"
    """

    def replace(match: re.Match[str]) -> str:
        if match["comment"]:
            return ""
        return _JOINED.sub(" ", match[0]) if match["quoted"] or match["joined"] else match[0]

    return _LEXED.sub(replace, text)


def parse_command_line(path: Path, text: str, knows: Callable[[str], bool]) -> CommandLine:
    """Return flags, `name=value` overrides and exports of a command line; the last one of a name counts.

    Args:
        path: the file, for messages.
        text: its content.
        knows: whether a dotted name alone, with its value as the next word, is a setting.

    Raises:
        ConfigurationError: it is too large, or quotes do not match.
    """
    if len(text) > _LONGEST_SCRIPT:
        raise ConfigurationError(
            f"{path} — is too large for a command line — keep only the part with the flags"
        )
    joined = _TESTED.sub(
        " true ", _SAID.sub(lambda said: said["quoted"] or "true ", _join_lines(_close_texts(text)))
    )
    apart = re.sub(r"(?<=[\s;])\(|\)(?=[\s;]|$)", lambda found: f" {found[0]} ", joined).replace("=(", "=( ")
    try:
        words = _split(apart)
    except ValueError as error:
        raise ConfigurationError(
            f"{path} — is not a valid command line: {error} — close the quotes"
        ) from error
    reader = _Reader(knows)
    try:
        reader.read_script(words)
    except ValueError as error:
        raise ConfigurationError(f"{path} — contains {error} — write the flags out") from error
    is_open = reader.is_open or any(one.search(joined) for one in (_OUTSIDE, _WRAPPED))
    return _keep_training(reader, is_open=is_open)


def _expand_recipe_options(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield settings, in the place of options of a recipe's program what these set."""
    document = read_toml("advice/programs.toml")
    names, options = document["recipe_names"], document["recipe_options"]
    for written, value in entries:
        name = names.get(written.lstrip("-"), written)
        values = options.get(name.lstrip("-"), {})
        sets = values.get(str(value).lower(), values.get("*"))
        if sets is None:
            yield name, value
        else:
            yield from ((each, value if word == "{}" else word) for each, word in sets.items())


@cache
def _list_short_options() -> frozenset[str]:
    """Return the short options of a recipe's program, with their dash."""
    return frozenset(
        f"-{name}" for name in read_toml("advice/programs.toml")["recipe_names"] if "_" not in name
    )


def _keep_training(reader: _Reader, *, is_open: bool) -> CommandLine:
    """Return the settings without those of commands that do not train."""
    chosen = choose_launches(reader.launches)
    others = [one for one in reader.launches if one not in chosen]
    left_out = {row for one in others for row in range(one.begin, one.end)} - {
        row for one in chosen for row in range(one.begin, one.end)
    }
    entries = tuple(
        (name, reader.expand(value))
        for row, (name, value) in enumerate(reader.entries)
        if row not in left_out
    )
    if any(one.is_recipe for one in chosen):
        entries = tuple(_expand_recipe_options(entries))
    entries = tuple(entry for entry in entries if entry[0] not in _list_short_options())
    conditional = set(reader.conditional)
    if len(chosen) > 1:
        runs = [dict(reader.entries[one.begin : one.end]) for one in chosen]
        conditional |= {name for run in runs for name in run if len({str(one.get(name)) for one in runs}) > 1}
    kept = [
        (group, name)
        for row, (group, (name, _)) in enumerate(zip(reader.groups, reader.entries, strict=True))
        if row not in left_out
    ]
    form = decide_form(
        chosen, is_open=is_open, has_branches=bool(reader.conditional), added=list_foreign_flags(kept)
    )
    has_defaults = bool(chosen) and all(one.has_defaults for one in chosen) and not is_open
    return CommandLine(entries, not has_defaults, frozenset(conditional), form)
