"""The page of all fixes and facts, made from the rules and the other tables of advice.

A fact counts as reached where a table of the package names it: a fix, a note, a check, advice.
"""

from collections.abc import Iterator, Mapping

from wallscope.advice.rules import Rule, fix_rules
from wallscope.files import list_toml_paths, read_toml

_HEAD = """# Fixes

`wallscope analyze` recommends fixes for the causes that it measured, sorted by upper bound on speedup.
`wallscope explain FIX` shows all of one. They are data: [wallscope/advice/rules](../wallscope/advice/rules).
Published figures are quoted with their context and are not a prediction. Upper bounds come from the run.

This page is made from the rules (`make golden` writes it).
"""
_COVERAGE_HEAD = """
## Facts

This table lists each fact of the knowledge base by its id. A fact is used by a fix, a check of a
precondition, advice, or the output of `wallscope explain ID`.
"""

_FOLDERS = ("advice", "advice/notes", "advice/rules")


def index_facts() -> Mapping[str, tuple[str, ...]]:
    """Return where each fact is reached, by id; ids and places in order."""
    places: dict[str, list[str]] = {}
    for path in sorted(path for folder in _FOLDERS for path in list_toml_paths(folder)):
        for kind, entries in read_toml(path).items():
            for entry in entries if isinstance(entries, list) else [entries]:
                for fact in _facts_of(kind, entry):
                    places.setdefault(fact, []).append(_place(kind, entry, path))
                if kind == "fix":
                    for fact in entry.get("preconditions", ()):
                        places.setdefault(fact, []).append(f"needed by fix `{entry['id']}`")
    return {fact: tuple(dict.fromkeys(places[fact])) for fact in sorted(places, key=_order)}


def _facts_of(kind: str, entry: object) -> Iterator[str]:
    """Yield the ids that a table rests on."""
    if not isinstance(entry, Mapping):
        return
    if kind == "precondition":
        yield str(entry["id"])
    yield from entry.get("facts", ())


def _place(kind: str, entry: Mapping[str, object], path: str) -> str:
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
            return f"advice ({path.rpartition('/')[2].removesuffix('.toml')})"


def _order(fact: str) -> tuple[str, str, int]:
    letters = fact.rstrip("0123456789")
    prefix, _, kind = letters.partition("-")
    return prefix, kind, int(fact.removeprefix(letters))


def write_fixes() -> str:
    """Return the page: all fixes by wall, and the facts."""
    rules = fix_rules()
    walls = dict.fromkeys(sorted(rule.wall for rule in rules))
    parts = [_HEAD, *(_wall_table(wall, [rule for rule in rules if rule.wall == wall]) for wall in walls)]
    lines = [f"| {fact} | {', '.join(places)} |" for fact, places in index_facts().items()]
    return "\n".join([*parts, _COVERAGE_HEAD, "| fact | used by |", "|---|---|", *lines]) + "\n"


def _wall_table(wall: str, rules: list[Rule]) -> str:
    lines = [f"| `{rule.id}` | {rule.title} | {_cause_cell(rule)} | {_cell(rule.source)} |" for rule in rules]
    return "\n".join(
        [
            f"\n## {wall.capitalize()}\n",
            "| fix | what | causes it addresses | source |",
            "|---|---|---|---|",
            *lines,
        ]
    )


def _cause_cell(rule: Rule) -> str:
    return ", ".join(f"`{cause}`" for cause in rule.causes)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
