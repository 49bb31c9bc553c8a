"""The statements with which a checkout's programs stop, as sets of words that survive a change of style.

A stop is a `raise` or an `assert`. Its words are the names and texts of its own test, and of the tests and loops
around it in its function. Sources are parsed, and never run.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass



@dataclass(frozen=True, slots=True)
class Stop:
    """A statement that stops a run, where it is, and the words of what it tests."""

    path: str
    function: str
    line: int
    words: frozenset[str]


def read_stops(path: str, source: str) -> Iterator[Stop]:
    """Yield the stops of a module; none if it is not Python of this version."""
    try:
        module = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef):
            yield from _walk(path, node.name, node.body, frozenset())


def _walk(path: str, function: str, body: list[ast.stmt], around: frozenset[str]) -> Iterator[Stop]:
    for node in body:
        if isinstance(node, ast.Assert):
            yield Stop(path, function, node.lineno, around | _list_words(node.test))
        elif isinstance(node, ast.Raise):
            yield Stop(path, function, node.lineno, around)
        elif isinstance(node, ast.If):
            inside = around | _list_words(node.test)
            yield from _walk(path, function, node.body, inside)
            yield from _walk(path, function, node.orelse, inside)
        elif isinstance(node, ast.For):
            yield from _walk(path, function, node.body, around | _list_words(node.iter))
        elif isinstance(node, ast.With | ast.While):
            yield from _walk(path, function, node.body, around)
        elif isinstance(node, ast.Try):
            parts = (node.body, node.orelse, node.finalbody, *(one.body for one in node.handlers))
            for part in parts:
                yield from _walk(path, function, part, around)


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
