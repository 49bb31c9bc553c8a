"""`explain`: what a cause, fix, finding, fact or topic means, how it is told, what it rests on."""

from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase

from wallscope.advice.notes import Note, cause_notes, finding_notes, notes, precondition_notes
from wallscope.advice.predicates import MEASURES, Conditions
from wallscope.advice.rules import Rule, shipped_rules
from wallscope.errors import UnknownWordError
from wallscope.model.catalogue import CALL, catalogue, meaning
from wallscope.model.explanation import Explanation, Section
from wallscope.model.fixes import Setting
from wallscope.model.kinds import Wall
from wallscope.shipped import query

_DRAINED = "host/queue-drained/"
_NEAR = 4


def explained(word: str) -> Explanation:
    """What a word means.

    Raises:
        UnknownWordError: nothing explains it; near words are named.
    """
    causes = dict(catalogue())
    if rule := next((rule for rule in shipped_rules() if rule.id == word), None):
        return _fix(rule)
    if word in causes or (word.startswith(_DRAINED) and word != _DRAINED):
        return _cause(word)
    if word in set(Wall):
        return _wall(word, causes)
    if finding := next((finding for finding in finding_notes() if finding.code == word), None):
        sections = [Section("Told by", (finding.told_by,))]
        sections += [Section("Cure", (finding.cure,))] if finding.cure else []
        return Explanation(word, "finding", finding.means, (*sections, *_rests_on(finding.facts)))
    if word.upper() in _facts():
        return _fact(word.upper())
    if found := [note for note in notes() if word in note.topics]:
        return Explanation(word, "topic", found[0].text, _told(found[1:]))
    raise UnknownWordError(f"explain — knows no {word!r} — {_near(word, causes)}")


def _near(word: str, causes: Iterable[str]) -> str:
    """What may have been meant."""
    words = {*causes, *(rule.id for rule in shipped_rules()), *(entry.code for entry in finding_notes())}
    words |= {topic for note in notes() for topic in note.topics} | set(Wall)
    inside = sorted(entry for entry in words if word and word.lower() in entry.lower())
    near = list(dict.fromkeys([*get_close_matches(word, sorted(words), n=_NEAR, cutoff=0.5), *inside]))
    if not near:
        return "give a cause, fix or finding of the answer, or a wall"
    return f"perhaps {', '.join(near[:_NEAR])}"


def _cause(word: str) -> Explanation:
    known = word.replace(CALL, "cudaStreamSynchronize")
    note = next(note for note in cause_notes() if fnmatchcase(known, note.pattern))
    answers = sorted((rule for rule in shipped_rules() if rule.answers(known)), key=lambda rule: rule.order)
    beside = [entry for entry in notes() if any(_is_of(topic, known) for topic in entry.topics)]
    sections = [
        Section("How it is computed", (note.computed,)),
        Section("Fixes, where they fit", tuple(f"{rule.id}: {rule.title}" for rule in answers)),
        *_told(beside),
        *(_sql(name) for name in note.sql),
    ]
    return Explanation(word, "cause", meaning(word), tuple(section for section in sections if section.lines))


def _sql(name: str) -> Section:
    return Section(f"queries/{name}.sql", tuple(query(name).splitlines()), verbatim=True)


def _is_of(topic: str, cause: str) -> bool:
    """Whether a topic is a cause or the beginning of one, more than its wall."""
    return "/" in topic and (cause == topic or cause.startswith(f"{topic}/"))


def _wall(word: str, causes: dict[str, str]) -> Explanation:
    own = tuple(f"{cause}: {said}" for cause, said in causes.items() if cause.split("/")[0] == word)
    told = [note for note in notes() if word in note.topics]
    return Explanation(
        word,
        "wall",
        "one of the five parts of a step that add up to it; its causes add up to it in turn",
        (Section("Causes", own), *_told(told)),
    )


def _fix(rule: Rule) -> Explanation:
    sections = [
        Section("Why", (rule.because,)),
        Section("Answers", rule.causes),
        Section("Where", tuple(_conditions(rule.when))),
        *_settings(rule.all_settings()),
        Section("Needs", tuple(map(_needed, rule.preconditions))),
        Section(
            "Measured by others, no promise",
            (f"{rule.gain.text}: {rule.gain.context}",) if rule.gain else (),
        ),
        Section("Mind", rule.caveats),
        Section("Seen by", (rule.active,)),
        *_told([note for note in notes() if rule.id in note.topics]),
        Section("Source", (rule.source,)),
        *_rests_on(rule.facts),
    ]
    return Explanation(rule.id, "fix", rule.title, tuple(section for section in sections if section.lines))


def _needed(name: str) -> str:
    """A precondition with what it asks for, where its table tells."""
    text, _ = precondition_notes().get(name, ("", ""))
    return f"{name}: {text}" if text else name


def _settings(settings: tuple[Setting, ...]) -> list[Section]:
    systems = dict.fromkeys(entry.system for entry in settings)
    return [
        Section(system, tuple(entry.written() for entry in settings if entry.system == system), verbatim=True)
        for system in systems
    ]


def _conditions(when: Conditions) -> Iterable[str]:
    """The conditions in words."""
    for name, bound in when.at_least.items():
        yield f"{name} is at least {bound:g}: {MEASURES[name]}"
    for name, bound in when.at_most.items():
        yield f"{name} is at most {bound:g}: {MEASURES[name]}"
    for name, values in when.one_of.items():
        yield f"{name} is {' or '.join(map(_value, values))}: {MEASURES[name]}"
    for name, values in when.none_of.items():
        yield f"{name} is not {' or '.join(map(_value, values))}: {MEASURES[name]}"
    for name, values in when.given.items():
        yield f"the configuration says {name} = {' or '.join(map(_value, values))}"
    for name, values in when.unless.items():
        yield f"the configuration does not say {name} = {' or '.join(map(_value, values))}"
    for name in when.unset:
        yield f"the configuration does not set {name}"


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _facts() -> set[str]:
    of_rules = {fact for rule in shipped_rules() for fact in (*rule.facts, *rule.preconditions)}
    of_findings = {fact for entry in finding_notes() for fact in entry.facts}
    return (
        of_rules
        | of_findings
        | set(precondition_notes())
        | {fact for entry in notes() for fact in entry.facts}
    )


def _fact(word: str) -> Explanation:
    """Everything that rests on a fact."""
    told = [note for note in notes() if word in note.facts]
    rules = [rule for rule in shipped_rules() if word in (*rule.facts, *rule.preconditions)]
    codes = tuple(f"{entry.code}: {entry.means}" for entry in finding_notes() if word in entry.facts)
    sections = [
        *_told(told),
        *(Section(f"fix {rule.id}: {rule.title}", _told_by(rule)) for rule in rules),
        Section("Findings", codes),
    ]
    if check := precondition_notes().get(word):
        sections = [Section("Checked", (check[0],)), Section("If it does not hold", (check[1],)), *sections]
    kept = tuple(section for section in sections if section.lines)
    return Explanation(word, "fact", "a fact of the knowledge base; this rests on it", kept)


def _told_by(rule: Rule) -> tuple[str, ...]:
    gain = (f"{rule.gain.text}: {rule.gain.context}",) if rule.gain else ()
    return (rule.because, *gain, *rule.caveats)


def _told(found: Iterable[Note]) -> tuple[Section, ...]:
    lines = tuple(f"{note.text} [{', '.join(note.facts)}]" for note in found)
    return (Section("Notes", lines),) if lines else ()


def _rests_on(facts: tuple[str, ...]) -> tuple[Section, ...]:
    return (Section("Rests on", (", ".join(facts),)),) if facts else ()
