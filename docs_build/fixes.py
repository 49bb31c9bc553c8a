"""The page of all fixes and facts, made from the rules and the other tables of advice.

A fact counts as reached where a table of the package names it: a fix, a note, a check, advice.
"""

from collections.abc import Iterator, Mapping

from wallscope.advice.rules import Rule, fix_rules
from wallscope.files import list_toml_paths, read_toml

_HEAD = """# Fixes

`wallscope analyze` recommends fixes for the causes that it measured, those with the largest upper bound on
the speedup first. For settings of each framework, conditions and sources, run `wallscope explain FIX`. It
also quotes published speedups with the setup in which they were measured; those do not predict yours.

<!-- picture: explain-fix | A fix explained: why it helps, which causes it addresses, and its conditions -->

A cause with `*` stands for all that fit the pattern. `memory-pressure` is not a cause of time: GPU memory is
nearly full.

This page is generated from [wallscope/advice/rules](../wallscope/advice/rules).
"""
_FACTS_HEAD = """# Facts behind the advice

Advice rests on published facts. This table lists their ids and where each one is used.
`wallscope explain ID` shows what the notes say about a fact, and which fixes and checks use it.

This page is generated from [wallscope/advice](../wallscope/advice). Write it anew with `make golden`.

| use | meaning |
|---|---|
| fix | The fact supports a fix. |
| configuration check | `wallscope check-config` and the preconditions of fixes use the fact. |
| precondition of fix | The fix works only if the check of this fact is met. |
| finding | The fact supports a finding of the glossary. |
| `explain WORD` | A note of `wallscope explain WORD` states the fact. |
| checklist | The fact is in the checklist of `wallscope advise`. |
| published throughput | The fact is a throughput that others published. `wallscope advise` shows it. |
| model sizes | `wallscope advise` takes start values for a model family from the fact. |
| GPU table | The fact describes a GPU or a machine with several GPUs. |
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
