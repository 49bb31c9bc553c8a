"""Topics by the words that people use: what notes, fixes, checks and findings say about them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from wallscope.advice.explanation_notes import Note, finding_notes, notes
from wallscope.advice.preconditions import precondition_rows
from wallscope.advice.releases import releases
from wallscope.advice.rules import Rule, fix_rules
from wallscope.advice.settings import bare_name, vocabulary
from wallscope.advice.terms import list_terms
from wallscope.model.advice import ExplanationSection, WordExplanation
from wallscope.model.cause_catalogue import list_cause_meanings
from wallscope.model.enums import Wall
from wallscope.resources import read_toml

_SHORTEST = 2
_MOST_LINES = 12


@cache
def _synonyms() -> Mapping[str, tuple[str, ...]]:
    table: Mapping[str, list[str]] = read_toml("advice/words.toml")["words"]
    return {word: tuple(meant) for word, meant in table.items()}


def list_words() -> tuple[str, ...]:
    """Return the words of people that stand for others."""
    return tuple(_synonyms())


def search_word(word: str) -> WordExplanation | None:
    """Return everything that names a word or what it stands for; `None` where nothing does."""
    bare = word.strip().lower()
    name = vocabulary().name(word)
    meant = (*_synonyms().get(bare, ()), bare)
    if len(bare) < _SHORTEST:
        return None
    if name is not None:
        leaf = bare_name(word.strip())
        names = dict.fromkeys((name, leaf, name.replace("_", "-"), leaf.replace("_", "-")))
        meant = (*names, *(f"--{one}" for one in names), *meant)
    pattern = re.compile("|".join(rf"(?<![\w-]){re.escape(one)}s?(?![\w-])" for one in meant), re.IGNORECASE)
    related = [note for note in notes() if pattern.search(note.text) or _is_topic(note, meant)]
    codes = [one for one in finding_notes() if pattern.search(one.means)]
    sections = (
        ExplanationSection("Setting", () if name is None else tuple(_describe_setting(name))),
        _cut("Notes", (f"{note.text} [{', '.join(note.facts)}]" for note in related)),
        _cut("Fixes", (f"{rule.id}: {rule.title}" for rule in fix_rules() if pattern.search(_text(rule)))),
        _cut("Checks", _checks(pattern)),
        _cut("Findings", (f"{one.code}: {one.means}" for one in codes)),
    )
    found = tuple(section for section in sections if section.lines)
    if not found:
        return None
    other = [name] if name is not None and name.lower() != bare else _synonyms().get(bare, ())
    named = f", which stands for {', '.join(other)}" if other else ""
    return WordExplanation(word, "topic", f"what notes, fixes and checks say about {word}{named}", found)


def _describe_setting(name: str) -> Iterator[str]:
    """Yield the type of a setting, the releases that have it, and its former names."""
    words = vocabulary()
    yield f"{name}: {_KINDS[words.kinds[name]]}"
    for framework, program in (("megatron-lm", "Megatron-LM"), ("megatron-bridge", "Megatron Bridge")):
        if first := releases("since", framework).get(name):
            yield f"from {program} {'.'.join(map(str, first))}"
    former = [old for old, new in words.former.items() if new == name]
    if former:
        yield f"formerly {', '.join(former)}"
    if name in words.former:
        yield f"a former name; write {words.former[name]}"


_KINDS = {
    "sizes": "a whole number above 0",
    "whole": "a whole number",
    "number": "a number",
    "switch": "true or false",
    "word": "a word",
    "words": "a list of words",
    "version": "a version",
    "environment": "an environment variable",
}


def _is_topic(note: Note, meant: Iterable[str]) -> bool:
    return not set(meant).isdisjoint(note.topics)


def _text(rule: Rule) -> str:
    keys = " ".join(setting.key for setting in rule.all_settings())
    named = (str(getattr(rule, name)) for name in ("id", "title", "because", "caveats", "active"))
    return " ".join((*named, keys))


def _checks(pattern: re.Pattern[str]) -> Iterator[str]:
    for row in precondition_rows().values():
        if pattern.search(f"{row.text} {' '.join(row.keys())} {row.unblock}"):
            yield f"{row.id}: {row.text}"


def _cut(heading: str, lines: Iterable[str]) -> ExplanationSection:
    """Return a section of the first lines, and how many more there are."""
    every = tuple(lines)
    more = (f"and {len(every) - _MOST_LINES} more",) if len(every) > _MOST_LINES else ()
    return ExplanationSection(heading, (*every[:_MOST_LINES], *more))


def list_topics() -> WordExplanation:
    """Return all words that can be explained, by kind; facts have ids, which docs/fixes.md lists."""
    topics = sorted({topic for note in notes() for topic in note.topics if "/" not in topic})
    fixes = sorted(rule.id for rule in fix_rules())
    sections = (
        ExplanationSection("Terms", (", ".join(term.name for term in list_terms() if "," not in term.name),)),
        ExplanationSection("Walls", (", ".join(wall.value for wall in Wall),)),
        ExplanationSection("Topics", (", ".join(topic for topic in topics if topic not in fixes),)),
        ExplanationSection("Words for them", (", ".join(sorted(list_words())),)),
        ExplanationSection("Causes", tuple(cause for cause, _ in list_cause_meanings())),
        ExplanationSection("Fixes", (", ".join(fixes),)),
        ExplanationSection("Findings", (", ".join(sorted(one.code for one in finding_notes())),)),
        ExplanationSection("Checks", (", ".join(precondition_rows()),)),
    )
    return WordExplanation("topics", "topic", "every word that `wallscope explain` knows", sections)


def outline_topics() -> WordExplanation:
    """Return the terms, walls and topics, and how many causes, fixes and findings there are."""
    every = {section.heading: section for section in list_topics().sections}
    counts = {
        "causes": len(every["Causes"].lines),
        "fixes": len(fix_rules()),
        "findings": len(finding_notes()),
        "checks": len(precondition_rows()),
    }
    listed = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    more = ExplanationSection("More", (f"{listed}: `wallscope explain --list` names all of them",))
    shown = tuple(every[heading] for heading in ("Terms", "Walls", "Topics"))
    return WordExplanation("topics", "topic", "`wallscope explain WORD` explains one", (*shown, more))
