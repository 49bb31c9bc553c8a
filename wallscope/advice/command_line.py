"""Read settings of a command line or shell script: flags with values, overrides, exports, variables.

A script is not run. Values from outside (`$1`, `${EXTRA_ARGS}`, a command) are unknown. It is then also
unknown whether a missing flag is really left out.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wallscope.advice.settings import Entry, vocabulary
from wallscope.errors import ConfigurationError

_LARGEST = 2 * 2**20
_MOST_VALUES = 1_000
_DEEPEST = 8
_MOST_WORDS = 500_000
_LONGEST_EXPANDED, _LONGEST_VALUE = 4_000, 200
"""Most characters of a value in which variables are replaced, and of the replacements."""

_ASSIGNED = re.compile(r"(\+{0,2}[A-Za-z_][\w.]*)\+?=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^{}]*))?\}|(\w+))")
_WHOLE_ARRAY = re.compile(r"\$\{(\w+)\[[@*]\]\}|\$\{?(\w+)\}?")
_DOTTED_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_FLAG_AND_VALUE = re.compile(r"--[\w-]+\s")
_NUMBER = re.compile(r"-\d+(\.\d+)?([eE][+-]?\d+)?")
_OUTSIDE = re.compile(r"\$(?:[@*]|\{[@*][^}]*\})")
_NAMES_OF_FLAGS = re.compile(r"(?:^|_)(?:ARG|OPT|OPTION|FLAG|EXTRA|OVERRIDE)S?$", re.IGNORECASE)
"""Names of variables that hold flags."""
_ENDS = {"&&", "||", ";", "|", "&", ")", "done", "fi"}
_TOKEN = re.compile(
    r"""\s+|(?P<comment>\#[^\n]*)|(?P<operator>;;?|&&?|\|\|?)
    |(?P<word>(?:[^\s"'\\;&|]+|\\.|"[^"\\]*(?:\\.[^"\\]*)*"|'[^']*')+)|(?P<open>.)""",
    re.DOTALL | re.VERBOSE,
)
_QUOTED = re.compile(r"""\\(.)|"([^"\\]*(?:\\.[^"\\]*)*)"|'([^']*)'""", re.DOTALL)
FROM_ELSEWHERE = frozenset({"--use-checkpoint-args", "--yaml-cfg", "--config-file", "--config"})
"""Flags that read arguments from another file."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Settings of a command line; `is_open` if arguments may come from outside."""

    entries: tuple[Entry, ...]
    is_open: bool


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

    def read(self, words: Sequence[str], depth: int = 0) -> None:
        self._count(words)
        for word in words:
            assigned = _ASSIGNED.fullmatch(word)
            if assigned and not word.startswith("-"):
                self.close()
                self.assign(assigned[1], assigned[2], depth)
            elif _FLAG_AND_VALUE.match(word) and depth < _DEEPEST:
                self.read(word.split(), depth + 1)
            elif word in _ENDS:
                self.close()
            elif (word.startswith("--") and len(word) > 2) or (
                _DOTTED_NAME.fullmatch(word) and self.knows(word)
            ):
                self.close()
                name, equals, value = word.partition("=")
                self.flag, self.values = name, [value] if equals else []
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

    def _count(self, words: Sequence[str]) -> None:
        self.words_count += len(words)
        if self.words_count > _MOST_WORDS:
            raise ValueError("variables that expand to very long texts")

    def assign(self, name: str, value: str, depth: int) -> None:
        """Read a variable, or an override `name=value`; a string of flags counts as flags."""
        if value == "(":
            self.arrays.add(name)
        elif re.search(r"(?:^|\s)--[a-z]", value) and depth < _DEEPEST:
            self.arrays.add(name)
            self.read(value.split(), depth + 1)
            self.close()
        else:
            self.variables[name] = value
            self.entries.append((name, value))

    def insert(self, word: str, depth: int) -> None:
        """Read a variable that is a whole word: flags read before, one value, or unknown words."""
        match = _WHOLE_ARRAY.fullmatch(word)
        name = (match[1] or match[2]) if match else ""
        if name in self.arrays:
            self.close()
        elif name in self.variables and depth < _DEEPEST:
            self.read(self.variables[name].split(), depth + 1)
        elif self.flag is not None and not self.values and not _holds_flags(name, self.flag):
            self.values.append(word)
        else:
            self.close()
            self.is_open = True

    def close(self) -> None:
        if self.flag is not None:
            self.entries.append((self.flag, " ".join(self.values)))
        self.flag, self.values = None, []

    def expand(self, value: object) -> object:
        """Return a value with the variables replaced that the script sets; others stay."""
        if not isinstance(value, str) or "$" not in value or len(value) > _LONGEST_EXPANDED:
            return value

        def replace(match: re.Match[str]) -> str:
            known = self.variables.get(match[1] or match[3], match[2])
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
        if match["operator"]:
            found.append(match["operator"])
        elif match["word"]:
            found.append(_QUOTED.sub(lambda one: one[1] or one[2] or one[3] or "", match["word"]))
    return found


def parse_command_line(path: Path, text: str, knows: Callable[[str], bool]) -> CommandLine:
    """Return flags, `name=value` overrides and exports of a command line; the last one of a name counts.

    Args:
        path: the file, for messages.
        text: its content.
        knows: whether a dotted name alone, with its value as the next word, is a setting.

    Raises:
        ConfigurationError: it is too large, or quotes do not match.
    """
    if len(text) > _LARGEST:
        raise ConfigurationError(
            f"{path} — is too large for a command line — keep only the part with the flags"
        )
    joined = re.sub(r"\\\r?\n", " ", text)
    apart = re.sub(r"(?<=[\s;])\(|\)(?=[\s;]|$)", lambda found: f" {found[0]} ", joined).replace("=(", "=( ")
    try:
        words = _split(apart)
    except ValueError as error:
        raise ConfigurationError(
            f"{path} — is not a valid command line: {error} — close the quotes"
        ) from error
    reader = _Reader(knows)
    try:
        reader.read(words)
    except ValueError as error:
        raise ConfigurationError(f"{path} — contains {error} — write the flags out") from error
    reader.close()
    entries = tuple((name, reader.expand(value)) for name, value in reader.entries)
    return CommandLine(entries, reader.is_open or _OUTSIDE.search(joined) is not None)
