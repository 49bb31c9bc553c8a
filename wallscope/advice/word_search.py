"""Topics by the words that people use: what notes, fixes, checks and findings say about them."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Literal

from wallscope.advice.definitions import (
    find_term,
    find_training_word,
    finding_notes,
    list_terms,
    list_training_words,
    notes,
    spell_form,
)
from wallscope.advice.parallel_layout import model_shapes
from wallscope.advice.preconditions import precondition_rows
from wallscope.advice.published import list_models, machines, presets
from wallscope.advice.rejected_settings import releases
from wallscope.advice.rules import Rule, fix_rules
from wallscope.advice.settings import bare_name, vocabulary
from wallscope.files import read_toml
from wallscope.model.advice import ExplanationSection, Preset, WordExplanation
from wallscope.model.cause_catalogue import list_cause_meanings
from wallscope.model.enums import Wall
from wallscope.records import dataclass

_SHORTEST = 2
_MOST_LINES = 8
_MOST_NOTES = 20
_Kind = Literal["Notes", "Fixes", "Checks", "Findings"]
_KINDS: tuple[_Kind, ...] = ("Fixes", "Notes", "Checks", "Findings")


@cache
def _empty_words() -> frozenset[str]:
    """Return the words that name no topic."""
    return frozenset(read_toml("advice/words.toml")["empty"])


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line that an answer can show, and the form of the text that is searched."""

    kind: _Kind
    line: str
    form: str
    topics: frozenset[str]

    def rank(self, forms: tuple[str, ...]) -> tuple[bool, float]:
        """Return a key that is smaller for entries that are more about the words."""
        count = sum(self.form.count(f" {form} ") for form in forms)
        return self.topics.isdisjoint(forms), -count / len(self.form) ** 0.5


@cache
def _entries() -> tuple[_Entry, ...]:
    return tuple(_list_entries())


def _list_entries() -> Iterator[_Entry]:
    for rule in fix_rules():
        yield _entry("Fixes", f"{rule.id}: {rule.title}", _text(rule), (rule.id,))
    for note in notes():
        yield _entry("Notes", f"{note.text} [{', '.join(note.facts)}]", note.text, note.topics)
    for row in precondition_rows().values():
        text = f"{row.text} . {' . '.join(row.keys())} . {row.unblock}"
        yield _entry("Checks", f"{row.id}: {row.text}", text, ())
    for one in finding_notes():
        yield _entry("Findings", f"{one.code}: {one.means}", f"{one.code} . {one.means}", (one.code,))


def _entry(kind: _Kind, line: str, text: str, topics: Iterable[str]) -> _Entry:
    forms = frozenset(map(spell_form, topics))
    return _Entry(kind, line, f" {' | '.join(map(spell_form, re.split(r'[.;:,] ', text)))} ", forms)


def _text(rule: Rule) -> str:
    keys = " . ".join(setting.key for setting in rule.all_settings())
    return " . ".join((rule.id, rule.title, rule.because, *rule.all_caveats, rule.active, keys))


def search_word(word: str) -> WordExplanation | None:
    """Return what a word means and everything that names it; `None` where nothing does."""
    known = find_training_word(word)
    name = find_setting(word)
    form = spell_form(word)
    if known is None and name is None and (len(form) < _SHORTEST or form in _empty_words()):
        return None
    also = (known.name, *known.find) if known else ()
    names = () if name is None else (name, bare_name(word.strip()))
    ids = {one for one in also if "-" in one and any(spell_form(one) in entry.topics for entry in _entries())}
    forms = _spell((word, *names, *(one for one in also if one not in ids)))
    sections = [
        *_describe_hardware(forms),
        *_describe_models(word),
        ExplanationSection("Terms", tuple(_list_terms(also))),
        ExplanationSection("Causes", tuple(_match_causes(also))),
        _match_settings(name, form, also),
        *_find_entries(forms, _spell(ids)),
    ]
    found = tuple(section for section in sections if section.lines)
    if known is not None:
        source = ExplanationSection("Source", (known.source,))
        return WordExplanation(word, "topic", known.text, (*found, source))
    if found:
        is_hardware = found[0].heading == "Hardware"
        meaning = (
            found[0].lines[0] if is_hardware else f"what notes, fixes and checks say about {name or word}"
        )
        return WordExplanation(word, "topic", meaning, found)
    scattered = tuple(section for section in _find_scattered(form) if section.lines)
    meaning = f"notes, fixes and checks that have all of the words {', '.join(word.split())}"
    return WordExplanation(word, "topic", meaning, scattered) if scattered else None


def _list_terms(words: Iterable[str]) -> Iterator[str]:
    """Yield the terms of screens that are among the words."""
    for term in dict.fromkeys(filter(None, map(find_term, words))):
        yield f"{term.name}: {term.text}"


def _match_causes(words: Iterable[str]) -> Iterator[str]:
    """Yield the causes that are among the words, or begin with one of them."""
    for cause, meaning in list_cause_meanings():
        if any("/" in word and f"{cause}/".startswith(f"{word}/") for word in words):
            yield f"{cause}: {meaning}"


def find_setting(word: str) -> str | None:
    """Return the name of the setting that a spelling means; `None` if it is unknown.

    >>> find_setting("TransformerConfig.recompute_granularity"), find_setting("--recompute-granularity full")
    ('recompute_granularity', 'recompute_granularity')
    """
    bare = re.split(r"[=\s]", word.strip(), maxsplit=1)[0] if re.match(r"--|[\w.]+=", word.strip()) else word
    words = vocabulary()
    return words.name(bare) or words.name(bare.upper()) or words.name("_".join(bare.lower().split()))


def _spell(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, map(spell_form, words))))


def _find_entries(forms: tuple[str, ...], ids: tuple[str, ...]) -> Iterator[ExplanationSection]:
    """Yield the entries that have any of the words or ids, those that are most about them first."""
    every = (*forms, *ids)
    found = [
        one
        for one in _entries()
        if not one.topics.isdisjoint(every) or any(f" {form} " in one.form for form in forms)
    ]
    yield from _section(sorted(found, key=lambda one: one.rank(every)))


def _find_scattered(form: str) -> Iterator[ExplanationSection]:
    """Yield the entries that have all words of a form in one sentence, in any order."""
    wanted = set(form.split()) - _empty_words()
    if len(wanted) > 1:
        yield from _section(
            [one for one in _entries() if any(wanted <= set(part.split()) for part in one.form.split("|"))]
        )


def _section(found: list[_Entry]) -> Iterator[ExplanationSection]:
    for kind in _KINDS:
        lines = [one.line for one in found if one.kind == kind]
        yield _cut(kind, lines, _MOST_NOTES if kind == "Notes" else _MOST_LINES)


def _match_settings(name: str | None, form: str, also: Iterable[str]) -> ExplanationSection:
    """Return the setting of a name, else the settings whose names have all of the words."""
    if name is not None:
        return ExplanationSection("Setting", tuple(_describe_setting(name)))
    wanted = set(form.split()) - _empty_words()
    named = [one for one in also if one in vocabulary().kinds]
    if wanted and not named:
        named = [one for one in vocabulary().kinds if wanted <= set(spell_form(one).split())]
    lines = [f"{one}: {_TYPES[vocabulary().kinds[one]]}" for one in dict.fromkeys(named)]
    return _cut("Settings", lines, _MOST_LINES)


def _describe_setting(name: str) -> Iterator[str]:
    """Yield the type of a setting, the releases that have it, and its former names."""
    words = vocabulary()
    yield f"{name}: {_TYPES[words.kinds[name]]}"
    for framework, program in (("megatron-lm", "Megatron-LM"), ("megatron-bridge", "Megatron Bridge")):
        if first := releases("since", framework).get(name):
            yield f"from {program} {'.'.join(map(str, first))}"
    former = [old for old, new in words.former.items() if new == name]
    if former:
        yield f"formerly {', '.join(former)}"
    if name in words.former:
        yield f"a former name; write {words.former[name]}"


_TYPES = {
    "sizes": "a whole number above 0",
    "whole": "a whole number",
    "number": "a number",
    "switch": "true or false",
    "word": "a word",
    "words": "a list of words",
    "version": "a version",
    "environment": "an environment variable",
}


def _describe_hardware(forms: Iterable[str]) -> Iterator[ExplanationSection]:
    """Yield what is known of the GPUs of these names."""
    for machine in machines().values():
        if machine.id in forms:
            facts = [f"the GPU {machine.name}"]
            if machine.architecture is not None:
                facts.append(f"architecture {machine.architecture}")
            if machine.memory_bytes is not None:
                facts.append(f"{machine.memory_bytes // 10**9} GB of memory")
            if machine.nvlink_domain is not None:
                facts.append(f"NVLink joins {machine.nvlink_domain} GPUs")
            own = sorted({preset.family for preset in presets() if preset.machine == machine.id})
            lines = [", ".join(facts), f"`wallscope advise --hardware {machine.id}` plans a layout for it"]
            if own:
                lines.append(f"presets of Megatron Bridge for it: {', '.join(own)}")
            yield ExplanationSection("Hardware", tuple(lines))


def _describe_models(word: str) -> Iterator[ExplanationSection]:
    """Yield what is known of the models that a word names: how to plan one, and its presets."""
    found = list_models(word)
    yield ExplanationSection("Models", tuple(map(_describe_model, found)))
    own = [preset for preset in presets() if preset.family in found and preset.states_layout]
    yield _cut("Published layouts", map(_write_preset, own), _MOST_LINES)


def _describe_model(model: str) -> str:
    """Return a model with its sizes, if they are known, and how to plan it."""
    shape = model_shapes().get(model)
    planned = f"`wallscope advise --model {model}` plans a layout"
    if shape is None:
        return f"{model}: {planned}"
    experts = f", {shape.experts} experts" if shape.experts else ""
    return f"{model}: {shape.layers} layers, hidden size {shape.hidden:,}{experts}; {planned}"


def _write_preset(preset: Preset) -> str:
    sizes = preset.sizes
    experts = "" if preset.dispatcher == "-" else f" EP{sizes.expert}"
    layout = f"TP{sizes.tensor} PP{sizes.pipeline} CP{sizes.context}{experts}"
    more = f" VPP{preset.virtual_pipeline}" if preset.virtual_pipeline else ""
    more += " FSDP" if preset.fully_sharded else ""
    return f"{preset.family}, {preset.gpus} x {preset.machine}, {preset.precision}: {layout}{more}"


def _cut(heading: str, lines: Iterable[str], most: int) -> ExplanationSection:
    """Return a section of the first lines, and how many more there are."""
    every = tuple(lines)
    more = (f"and {len(every) - most} more",) if len(every) > most else ()
    return ExplanationSection(heading, (*every[:most], *more))


def list_topics() -> WordExplanation:
    """Return all words that can be explained, by kind; facts have ids, which docs/facts.md lists."""
    topics = sorted({topic for note in notes() for topic in note.topics if "/" not in topic})
    fixes = sorted(rule.id for rule in fix_rules())
    sections = (
        ExplanationSection("Terms", (", ".join(term.name for term in list_terms() if "," not in term.name),)),
        ExplanationSection("Walls", (", ".join(wall.value for wall in Wall),)),
        ExplanationSection("Topics", (", ".join(topic for topic in topics if topic not in fixes),)),
        ExplanationSection("Words of training", (", ".join(word.name for word in list_training_words()),)),
        ExplanationSection("Hardware", (", ".join(machines()),)),
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
        "words of training": len(list_training_words()),
        "settings": len(vocabulary().kinds),
        "causes": len(every["Causes"].lines),
        "fixes": len(fix_rules()),
        "findings": len(finding_notes()),
        "checks": len(precondition_rows()),
    }
    listed = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    more = ExplanationSection("More", (f"{listed}: `wallscope explain --list` names all of them",))
    shown = tuple(every[heading] for heading in ("Terms", "Walls", "Topics"))
    return WordExplanation("topics", "topic", "`wallscope explain WORD` explains one", (*shown, more))
