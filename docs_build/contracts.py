"""The reference of the JSON that commands write, made from the published schemas."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

_REPORTS = Path(__file__).resolve().parent.parent / "reports"
_SCHEMAS = {
    "analysis": "`wallscope analyze --json`",
    "comparison": "`wallscope diff --json`",
    "ledger": "`wallscope ledger --json`",
    "whatif": "`wallscope whatif --json`",
    "check-config": "`wallscope check-config --json`",
    "advice": "`wallscope advise --json`",
}
_HEAD = """# JSON

`--json FILE` writes one object that follows a published JSON Schema; with `-`, it goes to standard output.
This page is generated from the schemas, which are in [reports](../reports) and in the installed package.
Objects that several schemas share are listed once.

- Times are integer nanoseconds. Shares are between 0 and 1.
- `null` means unknown or not applicable, never 0. A key marked *optional* may be absent.
- Within one version (`wallscope.analysis/1`), keys may be added but are never renamed or removed.

In an analysis, start with these keys:
"""
_KEYS = {
    "diagnosis": "dominant wall, runner-up, margin, shares, verdict; `rank_index` is the representative rank",
    "ranks[].steps[]": "each step; `budget`, `compute_absent` and `walls` each sum to what they divide",
    "ranks[].causes[]": "each cause in the typical step",
    "ranks[].speed_of_light": "from the model's FLOPs at the peak to the typical step: "
    "[where the step loses its FLOPs](speed-of-light.md)",
    "opportunities[]": "upper bounds on speedup, the highest first, with evidence",
    "fixes[]": "recommendations, with settings, preconditions and replay",
    "job": "several ranks: verdict, late ranks and reasons, waiting by rank, clocks",
    "capture.findings[]": "what limits the result, and how to avoid that in the next capture",
}


def write_json_page() -> str:
    """Return the page: every object of every schema, with its keys and their types."""
    keys = ["| key | content |\n|---|---|", *(f"| `{key}` | {said} |" for key, said in _KEYS.items()), ""]
    return "\n".join(
        [_HEAD, *keys, *(line for name, source in _SCHEMAS.items() for line in _schema(name, source))]
    )


def _schema(name: str, source: str) -> Iterator[str]:
    schema = _read(name)
    yield f"## {name}\n\nWritten by {source}: [{name}.schema.json](../reports/{name}.schema.json).\n"
    yield from _object(name, schema, name)
    for title, part in schema.get("$defs", {}).items():
        if "properties" in part and _find_first(name, title) == name:
            yield f"### {title} {{ #{name}-{title.lower()} }}\n"
            yield from _object(name, part, title)


def _object(schema: str, part: dict[str, Any], title: str) -> Iterator[str]:
    description = str(part.get("description", title)).partition("\n\nAttributes:")[0]
    yield f"{_text(description)}\n"
    yield "| key | type | meaning |\n|---|---|---|"
    required = set(part.get("required", ()))
    for key, kind in part["properties"].items():
        mark = "" if key in required else ", *optional*"
        yield f"| `{key}` | {_kind(schema, kind)}{mark} | {_text(kind.get('description', ''))} |"
    yield ""


def _kind(schema: str, kind: dict[str, Any]) -> str:
    """The type of a value in words, with links to the objects."""
    if "$ref" in kind:
        name = kind["$ref"].rpartition("/")[2]
        return _reference(schema, name)
    if "anyOf" in kind:
        return " or ".join(dict.fromkeys(_kind(schema, one) for one in kind["anyOf"]))
    if "enum" in kind or "const" in kind:
        return ", ".join(f"`{one}`" for one in kind.get("enum", [kind.get("const")]))
    if kind.get("type") == "array":
        inner = kind.get("items") or {"type": "value"}
        return f"list of {_kind(schema, inner)}" if "prefixItems" not in kind else "pair"
    if kind.get("type") == "object" and isinstance(kind.get("additionalProperties"), dict):
        return f"map to {_kind(schema, kind['additionalProperties'])}"
    return str(kind.get("type", "value"))


def _reference(schema: str, name: str) -> str:
    text = _read(schema)["$defs"][name]
    first = _find_first(schema, name)
    return f"[{name}](#{first}-{name.lower()})" if "properties" in text else _kind(schema, text)


def _find_first(schema: str, name: str) -> str:
    """Return the first schema that has the same object under this name."""
    wanted = _read(schema)["$defs"][name]
    return next(one for one in _SCHEMAS if _read(one).get("$defs", {}).get(name) == wanted)


@cache
def _read(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((_REPORTS / f"{name}.schema.json").read_text(encoding="utf-8"))
    return schema


def _text(text: str) -> str:
    return " ".join(text.split()).replace("<", "&lt;")
