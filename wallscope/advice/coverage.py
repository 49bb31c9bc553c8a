"""Where each fact of the knowledge base is reached, and the page that tells it.

A fact counts where a table of the package names it: a fix, a note that `explain` prints, a check, advice.
"""

import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

from wallscope.advice.rules import Rule, shipped_rules

_HEAD = """# Fixes

`wallscope analyze` names fixes for the causes that it measured, the most worth first; `wallscope explain FIX`
tells the whole of one. They are data: [wallscope/advice/rules](../wallscope/advice/rules). Figures are quoted
with their context and promise nothing; ceilings come from the run itself.

This page is made from the rules (`make golden` writes it).
"""
_COVERAGE_HEAD = """
## Facts

Each row of the knowledge base by its id, and where it is reached: a fix, a check of a precondition, advice,
or what `wallscope explain ID` tells.
"""


def reached() -> Mapping[str, tuple[str, ...]]:
    """Where each fact is reached, by id; ids and places in order."""
    places: dict[str, list[str]] = {}
    for path in sorted(_tables(files("wallscope.advice")), key=str):
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        for kind, entries in document.items():
            for entry in entries if isinstance(entries, list) else [entries]:
                for fact in _facts(kind, entry):
                    places.setdefault(fact, []).append(_place(kind, entry, path.name))
                if kind == "fix":
                    for fact in entry.get("preconditions", ()):
                        places.setdefault(fact, []).append(f"needed by fix `{entry['id']}`")
    return {fact: tuple(dict.fromkeys(places[fact])) for fact in sorted(places, key=_order)}


def _tables(folder: Traversable) -> Iterator[Traversable]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _tables(entry)
        elif entry.name.endswith(".toml"):
            yield entry


def _facts(kind: str, entry: object) -> Iterator[str]:
    """The ids that a table rests on."""
    if not isinstance(entry, Mapping):
        return
    if kind == "precondition":
        yield str(entry["id"])
    yield from entry.get("facts", ())


def _place(kind: str, entry: Mapping[str, object], file: str) -> str:
    match kind:
        case "fix":
            return f"fix `{entry['id']}`"
        case "note":
            topics = entry["topics"]
            return f"note on {topics[0]}" if isinstance(topics, list) else "note"
        case "finding":
            return f"finding `{entry['code']}`"
        case "precondition":
            return "check"
        case _:
            return f"advice ({file.removesuffix('.toml')})"


def _order(fact: str) -> tuple[str, str, int]:
    letters = fact.rstrip("0123456789")
    prefix, _, kind = letters.partition("-")
    return prefix, kind, int(fact.removeprefix(letters))


def page() -> str:
    """The page on fixes: all of them by wall, and the facts."""
    rules = shipped_rules()
    walls = dict.fromkeys(sorted(rule.wall for rule in rules))
    parts = [_HEAD, *(_section(wall, [rule for rule in rules if rule.wall == wall]) for wall in walls)]
    rows = [f"| {fact} | {', '.join(places)} |" for fact, places in reached().items()]
    return "\n".join([*parts, _COVERAGE_HEAD, "| fact | reached by |", "|---|---|", *rows]) + "\n"


def _section(wall: str, rules: list[Rule]) -> str:
    rows = [f"| `{rule.id}` | {rule.title} | {_causes(rule)} | {_cell(rule.source)} |" for rule in rules]
    return "\n".join(
        [f"\n## {wall.capitalize()}\n", "| fix | what | answers | source |", "|---|---|---|---|", *rows]
    )


def _causes(rule: Rule) -> str:
    return ", ".join(f"`{cause}`" for cause in rule.causes)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
