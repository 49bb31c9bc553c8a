"""The reference of the Python library, made from its signatures and docstrings."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import wallscope

_HEAD = """# Python library

This page is generated from the docstrings of `wallscope`. For the functions at work, see [Use wallscope
in a notebook](notebook.md). Everything else in the package is internal, and may change in any version.
"""


def write_library() -> str:
    """Return the page: each public name with its signature and docstring."""
    return "\n".join([_HEAD, *(line for name in sorted(wallscope.__all__) for line in _entry(name))])


def _entry(name: str) -> Iterator[str]:
    thing: Any = getattr(wallscope, name)
    yield f"## {name}\n"
    if isinstance(thing, str):
        yield "The version of the package.\n"
        return
    if inspect.isclass(thing):
        yield from _docstring(thing)
        for member, value in vars(thing).items():
            if not member.startswith("_") and (inspect.isfunction(value) or hasattr(value, "__doc__")):
                yield from _member(member, value)
    else:
        yield f"```text\nwallscope.{name}{inspect.signature(thing)}\n```\n"
        yield from _docstring(thing)


def _member(name: str, value: Any) -> Iterator[str]:
    function = getattr(value, "fget", None) or getattr(value, "func", None) or value
    if not inspect.isfunction(function):
        return
    signature = f"{inspect.signature(function)}" if inspect.isfunction(value) else ""
    yield f"### {name}\n"
    if signature:
        yield f"```text\n{name}{signature.replace('(self, ', '(').replace('(self)', '()')}\n```\n"
    yield from _docstring(function)


def _docstring(thing: Any) -> Iterator[str]:
    """A docstring of Google's style as Markdown: arguments and errors as lists."""
    for line in (inspect.getdoc(thing) or "").splitlines():
        argument = re.fullmatch(r" {4}(\w+): (.*)", line)
        heading = re.fullmatch(r"(Args|Raises|Attributes):", line)
        if heading:
            yield f"{heading[1]}:\n"
        elif argument:
            yield f"- `{argument[1]}`: {argument[2]}"
        else:
            yield f"  {line.strip()}" if line.startswith(" " * 8) else line
    yield ""
