"""The page of all fixes and facts, made from the rules and the other tables of advice.

A fact counts as reached where a table of the package names it: a fix, a note, a check, advice.
"""

from collections.abc import Iterator, Mapping

from wallscope.advice.rules import Rule, fix_rules
from wallscope.files import list_toml_paths, read_toml

_HEAD = """# Fixes

`wallscope analyze` recommends fixes for the causes it measured, starting with the largest upper bound on
speedup. For a fix's settings in each framework, its conditions and its sources, run `wallscope explain FIX`.
This command also quotes published speedups and how these were measured. Your speedup may differ from them.

<!-- picture: explain-fix | A fix explained: why it helps, which causes it addresses, and its conditions -->

A cause that contains `*` stands for all causes that match the pattern. `memory-pressure` takes no time of its
own; it means that GPU memory is nearly full.

This page is generated from [wallscope/advice/rules](../wallscope/advice/rules).
"""
_FACTS_HEAD = """# Facts behind the advice

wallscope bases its advice on published facts. The second table shows where each fact is used. To read what
the notes say about a fact, and to see which fixes and checks use it, run `wallscope explain ID`.

This page is generated from [wallscope/advice](../wallscope/advice); `make golden` rewrites it.

| use | meaning |
|---|---|
| fix | The fact supports a fix. |
| configuration check | `wallscope check-config` and the preconditions of fixes use the fact. |
| precondition of fix | The fix works only if the run passes this fact's check. |
| finding | The fact supports a finding in the glossary. |
| `explain WORD` | `wallscope explain WORD` shows a note that contains the fact. |
| checklist | `wallscope advise` lists the fact in its checklist. |
| published throughput | The fact is a published throughput that `wallscope advise` shows. |
| model sizes | `wallscope advise` takes a model family's start values from the fact. |
| GPU table | The fact describes a GPU or a multi-GPU machine. |
"""
_ADVICE = {
    "advice": "checklist",
    "bands": "published throughput",
    "models": "model sizes",
    "hardware": "GPU table",
}

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
                        places.setdefault(fact, []).append(f"precondition of fix `{entry['id']}`")
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
            return f"`explain {topics[0]}`" if isinstance(topics, list) else "note"
        case "finding":
            return f"finding `{entry['code']}`"
        case "precondition":
            return "configuration check"
        case _:
            return _ADVICE[path.rpartition("/")[2].removesuffix(".toml")]


def _order(fact: str) -> tuple[str, str, int]:
    letters = fact.rstrip("0123456789")
    prefix, _, kind = letters.partition("-")
    return prefix, kind, int(fact.removeprefix(letters))


def write_fixes() -> str:
    """Return the page of all fixes, by wall."""
    rules = fix_rules()
    walls = dict.fromkeys(sorted(rule.wall for rule in rules))
    parts = [_HEAD, *(_wall_table(wall, [rule for rule in rules if rule.wall == wall]) for wall in walls)]
    return "\n".join(parts) + "\n"


def write_facts() -> str:
    """Return the page of all facts, with the places that use them."""
    lines = [f"| {fact} | {', '.join(places)} |" for fact, places in index_facts().items()]
    return "\n".join([_FACTS_HEAD, "| fact | use |", "|---|---|", *lines]) + "\n"


def _wall_table(wall: str, rules: list[Rule]) -> str:
    lines = [f"| `{rule.id}` | {rule.title} | {_cause_cell(rule)} |" for rule in rules]
    return "\n".join(
        [
            f"\n## {wall.capitalize()}\n",
            "| fix | what to do | causes that it addresses |",
            "|---|---|---|",
            *lines,
        ]
    )


def _cause_cell(rule: Rule) -> str:
    """Return the causes, those that differ only in their last part as one.

    >>> rule = next(one for one in fix_rules() if one.id == "ep-overlap")
    >>> _cause_cell(rule)
    '`communication/ep/` `unsplit`, `transfer`, `hand-over`'
    """
    ends: dict[str, list[str]] = {}
    for cause in rule.causes:
        beginning, _, end = cause.rpartition("/")
        ends.setdefault(beginning, []).append(end)
    return "; ".join(
        f"`{beginning}/` {', '.join(f'`{end}`' for end in listed)}"
        if len(listed) > 1
        else f"`{beginning}{'/' if beginning else ''}{listed[0]}`"
        for beginning, listed in ends.items()
    )
