"""All public functions and classes of the package, read from its source; the page that lists them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_HEAD = """# Functions and classes

Every public function and class of the package, by module, with what it returns or does. This page is made
from the source by `make golden`. Notebooks and programs call [wallscope](notebook.md) itself; the modules are
for those who change it ([CONTRIBUTING](../CONTRIBUTING.md)) and may change with any version.
"""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Name:
    """A public function, class or method: where it stands, what it is called, what it says of itself."""

    module: str
    name: str
    kind: str
    said: str


@cache
def _modules() -> tuple[tuple[str, ast.Module], ...]:
    return tuple(
        (
            ".".join(part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__"),
            ast.parse(path.read_text(encoding="utf-8")),
        )
        for path in sorted((ROOT / "wallscope").rglob("*.py"))
    )


def _said(node: _Function | ast.ClassDef | ast.Module) -> str:
    return (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ").strip()


@cache
def public_names() -> tuple[Name, ...]:
    """Return public functions and classes of modules, and public methods of classes (`Class.method`)."""
    return tuple(name for module, tree in _modules() for name in _names(module, tree))


def _names(module: str, tree: ast.Module) -> Iterator[Name]:
    for node in tree.body:
        if not isinstance(node, _Function | ast.ClassDef) or node.name.startswith("_"):
            continue
        yield Name(module, node.name, "class" if isinstance(node, ast.ClassDef) else "function", _said(node))
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, _Function) and not method.name.startswith("_"):
                    kind = "value" if _is_value(method) else "method"
                    yield Name(module, f"{node.name}.{method.name}", kind, _said(method))


def _is_value(method: _Function) -> bool:
    return any(ast.unparse(one).rpartition(".")[2].endswith("property") for one in method.decorator_list)


def index_page() -> str:
    """Return the page that lists public functions and classes, a table a module."""
    listed: dict[str, list[Name]] = {}
    for name in public_names():
        if name.kind in {"function", "class"}:
            listed.setdefault(name.module, []).append(name)
    about = {module: _said(tree) for module, tree in _modules()}
    parts = [_HEAD]
    for module, names in listed.items():
        rows = "".join(f"| `{one.name}` | {_cell(one.said)} |\n" for one in names)
        parts.append(f"\n## {module}\n\n{about[module]}\n\n| name | what |\n|---|---|\n{rows}")
    return "".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
