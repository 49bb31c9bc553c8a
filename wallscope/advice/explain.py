"""`explain`: what a cause, fix, finding, fact or topic means, how it is computed, what it rests on.

Notes stand behind fixes and causes, a thought each, with ids of the facts that they rest on. docs/facts.md
lists all facts.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase

import polars as pl

from wallscope.advice.condition_words import say_holds
from wallscope.advice.definitions import (
    Note,
    cause_notes,
    find_term,
    find_training_word,
    finding_notes,
    list_terms,
    list_training_words,
    normalize_word,
    notes,
    spell_form,
)
from wallscope.advice.preconditions import precondition_rows
from wallscope.advice.rules import Rule, fix_rules
from wallscope.advice.settings import vocabulary
from wallscope.advice.word_search import find_setting, search_word
from wallscope.errors import UnknownWordError
from wallscope.files import read_query
from wallscope.model.advice import ExplanationSection, Setting, WordExplanation
from wallscope.model.cause_catalogue import CALL, DRAINED, UNSPLIT, describe_cause, list_cause_meanings
from wallscope.model.enums import Wall
from wallscope.model.schemas import NAMES
from wallscope.trace.kernel_classes import classify_kernels, load_shipped_kernel_rules

_NEAR = 4
_LEAST_ALIKE = 0.7
_SHORTEST_PART = 4
_CALL = re.compile(r"\w+")
_NEEDED = "Conditions (wallscope explain ID says what to do if one does not hold)"
_OF_AXES = "communication: its axis comes from ranges, payload and communicator (`wallscope explain axis`)"


def explain_word(word: str) -> WordExplanation:
    """Return what a word means.

    Raises:
        UnknownWordError: nothing explains it; near words are named.
    """
    causes = dict(list_cause_meanings())
    topic = (
        _named(word, causes)
        or _term(word)
        or _setting_or_word(word)
        or _spelled(word, causes)
        or _explain_axis_causes(word, causes)
        or _meaning(word, causes)
        or _topic(word)
        or _kernel(word)
        or search_word(word)
    )
    if topic is None:
        raise UnknownWordError(f"explain — unknown topic {word!r} — {_near(word, causes)}")
    return topic


def _named(word: str, causes: dict[str, str]) -> WordExplanation | None:
    """Return the fix, cause, wall, finding or fact of an id."""
    if rule := next((rule for rule in fix_rules() if rule.id == word), None):
        return _explain_fix(rule)
    if word in causes or (word.startswith(DRAINED) and word != DRAINED):
        return _cause(word)
    if word in set(Wall):
        return _wall(word, causes)
    if finding := next((finding for finding in finding_notes() if finding.code == word), None):
        sections = [ExplanationSection("Evidence", (finding.evidence,))]
        sections += [ExplanationSection("Cure", (finding.cure,))] if finding.cure else []
        return WordExplanation(word, "finding", finding.means, (*sections, *_rests_on(finding.facts)))
    return _fact(word.upper()) if word.upper() in _list_explained_facts() else None


def _setting_or_word(word: str) -> WordExplanation | None:
    """Return what is known of a word of training, or of the name of a setting."""
    if find_training_word(word) is not None or find_setting(word) is not None:
        return search_word(word)
    return None


def _spelled(word: str, causes: dict[str, str]) -> WordExplanation | None:
    """Return the fix, cause, finding or wall whose id a word spells in another way, such as "manual gc"."""
    ids = [*(rule.id for rule in fix_rules()), *causes, *(one.code for one in finding_notes()), *Wall]
    form = spell_form(word)
    found = next((one for one in ids if spell_form(one) == form), None)
    return None if found is None else _named(found, causes)


def _term(word: str) -> WordExplanation | None:
    term = find_term(word)
    if term is None:
        return None
    names = {normalize_word(one) for one in (term.name, *term.also)}
    related = [note for note in notes() if not names.isdisjoint(note.topics)]
    return WordExplanation(term.name, "term", term.text, _notes(related))


def _explain_axis_causes(word: str, causes: Mapping[str, str]) -> WordExplanation | None:
    """Return the causes that begin with a word, such as those of an axis."""
    own = tuple(f"{cause}: {text}" for cause, text in causes.items() if cause.startswith(f"{word}/"))
    meaning = f"the causes that begin with {word}"
    return WordExplanation(word, "topic", meaning, (ExplanationSection("Causes", own),)) if own else None


def _meaning(word: str, causes: Mapping[str, str]) -> WordExplanation | None:
    """Return the causes that screens describe in these words, such as "data loading on the host"."""
    wanted = normalize_word(word)
    drained = (DRAINED + call for call in _CALL.findall(word))
    if (cause := next((one for one in drained if describe_cause(one) == word), None)) is not None:
        return _cause(cause)
    found = [cause for cause in causes if wanted in _list_forms(cause)]
    if len(found) == 1:
        return _cause(found[0])
    own = tuple(f"{cause}: {causes[cause]}" for cause in found)
    shown = (ExplanationSection("Causes", own),)
    return WordExplanation(word, "topic", "causes with this meaning", shown) if own else None


def _list_forms(cause: str) -> set[str]:
    """Return the forms in which screens show a meaning: whole, up to a comma or bracket, its axis alone."""
    wall, _, rest = cause.partition("/")
    axis = rest.partition("/")[0]
    whole = f"{wall}/{axis}/{UNSPLIT}" if wall == Wall.COMMUNICATION and axis != rest else cause
    texts = {describe_cause(cause), describe_cause(whole)}
    return {normalize_word(text.partition(mark)[0]) for text in texts for mark in ("\n", ",", " (")}


def _topic(word: str) -> WordExplanation | None:
    found = [note for note in notes() if word in note.topics]
    return WordExplanation(word, "topic", found[0].text, _notes(found[1:])) if found else None


def _kernel(word: str) -> WordExplanation | None:
    """Return how a kernel of this name is counted; `None` for an unrecognized name."""
    if re.search(r"::|kernel|^nccl|\w_\d", word, re.IGNORECASE) is None:
        return None
    names = pl.DataFrame({"name": [0], "text": [word]}, schema=NAMES)
    kind = classify_kernels(names, load_shipped_kernel_rules()).row(0, named=True)
    if not kind["matched"]:
        return None
    if kind["backend"] is not None:
        meaning = f"a kernel of {kind['backend']} that communicates ({kind['category']})"
        return WordExplanation(word, "topic", meaning, (ExplanationSection("Counted as", (_OF_AXES,)),))
    cause = f"compute/{kind['category']}"
    counted = ExplanationSection("Counted as", (f"{cause}: {describe_cause(cause)}",))
    return WordExplanation(word, "topic", f"a kernel that computes ({kind['category']})", (counted,))


def _near(word: str, causes: Iterable[str]) -> str:
    """Return what may have been meant, as text."""
    words = {*causes, *(rule.id for rule in fix_rules()), *(entry.code for entry in finding_notes())}
    words |= {topic for note in notes() for topic in note.topics} | set(Wall) | set(vocabulary().kinds)
    words |= {one for term in list_terms() for one in (term.name, *term.also)}
    words |= {one for known in list_training_words() for one in known.spellings}
    forms: dict[str, str] = {}
    for one in sorted(words):
        forms.setdefault(spell_form(one), one)
    near = [
        forms[one] for part in _list_longer_words(spell_form(word)) for one in _list_near(part, sorted(forms))
    ]
    near = list(dict.fromkeys(near))
    if not near:
        return "`wallscope explain` lists the topics"
    return f"did you mean {', '.join(near[:_NEAR])}?"


def _list_longer_words(form: str) -> list[str]:
    """Return a form as a whole, then its longer words."""
    parts = [part for part in form.split() if len(part) >= _SHORTEST_PART]
    return [form, *parts] if form else []


def _list_near(form: str, among: list[str]) -> list[str]:
    """Return the forms that are spelled alike, then those that contain the words."""
    inside = [one for one in among if f" {form} " in f" {one} "]
    return [*get_close_matches(form, among, n=_NEAR, cutoff=_LEAST_ALIKE), *inside]


def _cause(word: str) -> WordExplanation:
    known = word.replace(CALL, "cudaStreamSynchronize")
    note = next(note for note in cause_notes() if fnmatchcase(known, note.pattern))
    fixes = sorted((rule for rule in fix_rules() if rule.answers(known)), key=lambda rule: rule.order)
    related = [entry for entry in notes() if any(_is_of(topic, known) for topic in entry.topics)]
    sections = [
        ExplanationSection("How it is computed", (note.computed,)),
        ExplanationSection("Fixes", tuple(f"{rule.id}: {rule.title}" for rule in fixes)),
        *_notes(related),
        *(_sql(name) for name in note.sql),
    ]
    return WordExplanation(word, "cause", describe_cause(word), _keep_filled(sections))


def _sql(name: str) -> ExplanationSection:
    return ExplanationSection(f"queries/{name}.sql", tuple(read_query(name).splitlines()), verbatim=True)


def _is_of(topic: str, cause: str) -> bool:
    """Return whether a topic is a cause or the beginning of one, more than its wall."""
    return "/" in topic and (cause == topic or cause.startswith(f"{topic}/"))


def _wall(word: str, causes: dict[str, str]) -> WordExplanation:
    own = tuple(f"{cause}: {text}" for cause, text in causes.items() if cause.split("/")[0] == word)
    related = [note for note in notes() if word in note.topics]
    return WordExplanation(
        word,
        "wall",
        "one of the five parts that add up to the step; its causes add up to it",
        (ExplanationSection("Causes", own), *_notes(related)),
    )


def _explain_fix(rule: Rule) -> WordExplanation:
    sections = [
        ExplanationSection("Why", (rule.because,)),
        ExplanationSection("Causes it addresses", tuple(map(_describe_pattern, rule.causes))),
        ExplanationSection("Recommended if", tuple(map(say_holds, rule.when))),
        *_list_settings_by_system(rule.all_settings()),
        ExplanationSection(_NEEDED, tuple(map(_needed, rule.preconditions))),
        ExplanationSection(
            "Published results (not a prediction)",
            (f"{rule.gain.text}: {rule.gain.context}",) if rule.gain else (),
        ),
        ExplanationSection("Caveats", rule.all_caveats),
        ExplanationSection("How to see that it is active", (rule.active,)),
        *_notes([note for note in notes() if rule.id in note.topics]),
        ExplanationSection("Source", (rule.source,)),
        *_rests_on(rule.facts),
    ]
    return WordExplanation(rule.id, "fix", rule.title, _keep_filled(sections))


def _keep_filled(sections: Iterable[ExplanationSection]) -> tuple[ExplanationSection, ...]:
    return tuple(section for section in sections if section.lines)


def _describe_pattern(cause: str) -> str:
    """Return a cause with its meaning; a pattern of causes, or pressure, stands for itself."""
    return f"{cause}: {describe_cause(cause)}" if cause in dict(list_cause_meanings()) else cause


def _needed(name: str) -> str:
    """Return a precondition with what it asks for."""
    return f"{precondition_rows()[name].requirement} [{name}]" if name in precondition_rows() else name


def _list_settings_by_system(settings: tuple[Setting, ...]) -> list[ExplanationSection]:
    systems = dict.fromkeys(entry.system for entry in settings)
    return [
        ExplanationSection(
            system, tuple(entry.write() for entry in settings if entry.system == system), verbatim=True
        )
        for system in systems
    ]


def _list_explained_facts() -> set[str]:
    of_rules = {fact for rule in fix_rules() for fact in (*rule.facts, *rule.preconditions)}
    of_findings = {fact for entry in finding_notes() for fact in entry.facts}
    of_notes = {fact for note in notes() for fact in note.facts}
    return of_rules | of_findings | of_notes | set(precondition_rows())


def _fact(word: str) -> WordExplanation:
    """Return everything that rests on a fact."""
    related = [note for note in notes() if word in note.facts]
    rules = [rule for rule in fix_rules() if word in (*rule.facts, *rule.preconditions)]
    codes = tuple(f"{entry.code}: {entry.means}" for entry in finding_notes() if word in entry.facts)
    sections = [
        *_notes(related),
        *(ExplanationSection(f"fix {rule.id}: {rule.title}", _reasons(rule)) for rule in rules),
        ExplanationSection("Findings", codes),
    ]
    if row := precondition_rows().get(word):
        sections = [
            ExplanationSection("Checked", (row.requirement,)),
            ExplanationSection("If it does not hold", (row.unblock,)),
            *sections,
        ]
    meaning = "a fact of the knowledge base, and what is based on it"
    return WordExplanation(word, "fact", meaning, _keep_filled(sections))


def _reasons(rule: Rule) -> tuple[str, ...]:
    gain = (f"{rule.gain.text}: {rule.gain.context}",) if rule.gain else ()
    return (rule.because, *gain, *rule.all_caveats)


def _notes(found: Iterable[Note]) -> tuple[ExplanationSection, ...]:
    lines = tuple(f"{note.text} [{', '.join(note.facts)}]" for note in found)
    return (ExplanationSection("Notes", lines),) if lines else ()


def _rests_on(facts: tuple[str, ...]) -> tuple[ExplanationSection, ...]:
    return (
        (ExplanationSection("Facts (wallscope explain ID shows what rests on one)", (", ".join(facts),)),)
        if facts
        else ()
    )
