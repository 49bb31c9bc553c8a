"""The statements with which a checkout's programs stop, as sets of words that survive a change of style.

A stop is a `raise` or an `assert`. Its words are the names and texts of its own test, and of the tests and
loops around it in its function. Sources are parsed, and never run.
"""

import ast
import re
import subprocess
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wallscope.advice.assertion_releases import Release, parse_release, parse_span
from wallscope.files import read_toml

_SOURCES = {
    "megatron": ("megatron/core", "megatron/training"),
    "bridge": ("src/megatron/bridge/training", "src/megatron/bridge/models", "src/megatron/bridge/data"),
}
"""Folders whose stops are read; `megatron` has Core and Megatron-LM, with the releases of Core."""
_OF_PROGRAM = {"core": "megatron", "megatron-lm": "megatron", "megatron-bridge": "bridge"}
_TAGS = {"megatron": re.compile(r"core_v(\d+(?:\.\d+)+)"), "bridge": re.compile(r"v(\d+(?:\.\d+)+)")}
_WORDS = Path(__file__).with_name("stops.toml")

Stops = Sequence[frozenset[str]]


@dataclass(frozen=True, slots=True)
class Stop:
    """A statement that stops a run: its function, its line, and the words of what it tests."""

    function: str
    line: int
    words: frozenset[str]


def read_stops(source: str) -> Iterator[Stop]:
    """Yield the stops of a module; none if it is not Python of this version."""
    try:
        module = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef):
            yield from _walk(node.name, node.body, frozenset())


def _walk(function: str, body: list[ast.stmt], around: frozenset[str]) -> Iterator[Stop]:
    for node in body:
        if isinstance(node, ast.Assert):
            yield Stop(function, node.lineno, around | _list_words(node.test))
        elif isinstance(node, ast.Raise):
            yield Stop(function, node.lineno, around)
        elif isinstance(node, ast.If):
            inside = around | _list_words(node.test)
            yield from _walk(function, node.body, inside)
            yield from _walk(function, node.orelse, inside)
        elif isinstance(node, ast.For):
            yield from _walk(function, node.body, around | _list_words(node.iter))
        elif isinstance(node, ast.With | ast.While):
            yield from _walk(function, node.body, around)
        elif isinstance(node, ast.Try):
            parts = (node.body, node.orelse, node.finalbody, *(one.body for one in node.handlers))
            for part in parts:
                yield from _walk(function, part, around)


def _list_words(node: ast.expr) -> frozenset[str]:
    """Return the names, attributes, texts and numbers of an expression, in lower case."""
    found: set[str] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute):
            found.add(one.attr.lower())
        elif isinstance(one, ast.Name):
            found.add(one.id.lower())
        elif isinstance(one, ast.Constant) and isinstance(one.value, str | int | float):
            found |= set(str(one.value).lower().split())
    return frozenset(found - {"self", "args", "config", "none"})


def read_checkout(root: Path, program: str) -> Stops:
    """Return the words of all stops of a checkout, with the names of their functions.

    Args:
        root: the checkout.
        program: `megatron` or `bridge`.
    """
    paths = (path for folder in _SOURCES[program] for path in sorted((root / folder).rglob("*.py")))
    return tuple(_with_functions(path.read_text(encoding="utf-8") for path in paths))


def read_release_at(clone: Path, tag: str, program: str) -> Stops:
    """Return the same of a tag of a clone, which needs no work tree.

    Raises:
        CalledProcessError: git does not know the clone or the tag.
    """
    listed = _git(clone, "ls-tree", "-r", "--name-only", tag, *_SOURCES[program]).decode().splitlines()
    paths = [path for path in listed if path.endswith(".py")]
    return tuple(_with_functions(_read_blobs(clone, tag, paths)))


def list_release_tags(clone: Path, program: str) -> dict[Release, str]:
    """Return the tags of releases of a clone, oldest first; release candidates are left out."""
    tags = ((_TAGS[program].fullmatch(tag), tag) for tag in _git(clone, "tag").decode().split())
    return dict(sorted((parse_release(found[1]), tag) for found, tag in tags if found))


def _git(clone: Path, *words: str, given: bytes = b"") -> bytes:
    command = ["git", "-C", str(clone), *words]
    return subprocess.run(command, input=given, capture_output=True, check=True).stdout  # noqa: S603  # git


def _read_blobs(clone: Path, tag: str, paths: Sequence[str]) -> Iterator[str]:
    wanted = "".join(f"{tag}:{path}\n" for path in paths).encode()
    packed, at = _git(clone, "cat-file", "--batch", given=wanted), 0
    for _ in paths:
        end = packed.index(b"\n", at)
        size = int(packed[at:end].rsplit(b" ", 1)[1])
        yield packed[end + 1 : end + 1 + size].decode("utf-8", "replace")
        at = end + size + 2


def _with_functions(sources: Iterator[str]) -> Iterator[frozenset[str]]:
    return (one.words | {one.function} for source in sources for one in read_stops(source))


def words_of_assertions() -> Mapping[tuple[str, str], Sequence[frozenset[str]]]:
    """Return the words by which a stop is found, by assertion and program; one of the sets must be there."""
    document = tomllib.loads(_WORDS.read_text(encoding="utf-8"))
    return {
        (each, program): tuple(frozenset(line.split()) for line in lines)
        for each, table in document.items()
        for program, lines in table.items()
    }


def compare_assertions(stops: Stops, release: Release, program: str) -> Iterator[str]:
    """Yield assertions whose stop is in a release that does not make them, or is not in one that does.

    Args:
        stops: those of the release.
        release: its numbers.
        program: `megatron` or `bridge`.
    """
    words = words_of_assertions()
    for table in (
        *read_toml("advice/assertions.toml")["assertion"],
        *read_toml("advice/preconditions.toml")["precondition"],
    ):
        for span in map(parse_span, table.get("holds", [])):
            if _OF_PROGRAM[span.program] != program:
                continue
            wanted = words.get((table["id"], span.program))
            if wanted is None:
                yield f"assertion {table['id']}: no words of {span.program} in stops.toml"
                continue
            is_there = any(one <= found for one in wanted for found in stops)
            if is_there != span.contains(release):
                where = "stops before" if is_there else "does not stop"
                yield f"assertion {table['id']}: {span.say() or span.program}, but {_write(release)} {where}"


def _write(release: Collection[int]) -> str:
    return ".".join(map(str, release))
