"""Definitions of words: terms of screens, words of training, their spellings, notes on causes and findings.

Blanks, dashes, underscores and capitals do not count in a spelling, nor do endings (`buckets`, `bucketing`)
and usual short forms (`grad`). The forms are for comparison alone.
"""

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import Annotated, Any, Literal

from msgspec import Meta

from wallscope.files import list_toml_paths, make_entry, read_toml
from wallscope.model.capture import Severity
from wallscope.model.cause_catalogue import list_cause_meanings
from wallscope.model.finding_codes import FindingCode
from wallscope.records import dataclass

_PARTS = re.compile(r"[a-z0-9]+")
_ENDINGS = (
    "izations ization izers izer izing ized izes ize ations ation ators ator ating ated ates ate ings ing"
    " isms ism ions ion ers er ed es"
)
_SHORTEST = 3
_DOUBLED = "bdgmnpt"
"""Letters that endings double, as in `mapping`."""


@cache
def _short_forms() -> Mapping[str, str]:
    """Return the words that usual short forms stand for."""
    found: Mapping[str, str] = read_toml("advice/words.toml")["short"]
    return found


def spell_form(text: str) -> str:
    """Return the form of a text: its words without endings, with one blank between them.

    >>> spell_form("--overlap_grad-reduce") == spell_form("Overlapped gradients, reduced")
    True
    >>> spell_form("expert parallelism") == spell_form("Expert-Parallel")
    True
    """
    return " ".join(
        _cut_ending(word)
        for part in _PARTS.findall(text.lower())
        for word in _short_forms().get(part, part).split()
    )


@cache
def _cut_ending(word: str) -> str:
    """Return a word without its ending; numbers and short words stay.

    >>> [_cut_ending(word) for word in ("recomputed", "recompute", "parallelism", "losses", "h100")]
    ['recomput', 'recomput', 'parallel', 'loss', 'h100']
    """
    if not word.isalpha():
        return word
    word = word.replace("isation", "ization")
    if word.endswith("ies") and len(word) > _SHORTEST + 1:
        return f"{word[:-3]}y"
    for ending in _ENDINGS.split():
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
            word = word.removesuffix(ending)
            return word[:-1] if word[-1] == word[-2] and word[-1] in _DOUBLED else word
    if word.endswith("s") and not word.endswith(("ss", "us", "as", "is")) and len(word) > _SHORTEST:
        word = word[:-1]
    return word[:-1] if word.endswith("e") and len(word) > _SHORTEST else word


@dataclass(frozen=True, slots=True)
class Term:
    """A term, its other spellings, and its definition; `of` is the table of the glossary that lists it."""

    name: str
    text: Annotated[str, Meta(min_length=10)]
    also: tuple[str, ...] = ()
    of: Literal["analysis", "comparison"] | None = None


@cache
def list_terms() -> tuple[Term, ...]:
    """Return all terms, in the order in which a reader meets them."""
    return tuple(make_entry(table, Term) for table in read_toml("advice/terms.toml")["term"])


@cache
def _index_terms() -> Mapping[str, Term]:
    names = [(normalize_word(term.name), term) for term in list_terms()]
    others = [(normalize_word(word), term) for term in list_terms() for word in term.also]
    return dict([*others, *names])


def find_term(word: str) -> Term | None:
    """Return the term of a word in any of its spellings; `None` without one.

    >>> find_term("Upper  bound") == find_term("ceilings"), find_term("teapot")
    (True, None)
    """
    return _index_terms().get(normalize_word(word))


def define_terms(of: Literal["analysis", "comparison"]) -> dict[str, str]:
    """Return the definitions that one table of the glossary lists, by term."""
    return {term.name: term.text for term in list_terms() if term.of == of}


def normalize_word(word: str) -> str:
    """Return a word with one blank between its parts, in lower case, without punctuation at its end.

    >>> normalize_word(" Critical_path: ")
    'critical path'
    """
    return " ".join(word.lower().replace("_", " ").replace("-", " ").split()).rstrip(":.?!")


@dataclass(frozen=True, slots=True)
class TrainingWord:
    """A word, its other spellings, its meaning and its source; `find` are words for the same topic."""

    name: str
    text: Annotated[str, Meta(min_length=10)]
    source: Annotated[str, Meta(min_length=4)]
    also: tuple[str, ...] = ()
    find: tuple[str, ...] = ()

    @property
    def spellings(self) -> tuple[str, ...]:
        """Its name and its other spellings."""
        return (self.name, *self.also)


@cache
def list_training_words() -> tuple[TrainingWord, ...]:
    """Return all words, in the order of the file."""
    return tuple(make_entry(table, TrainingWord) for table in read_toml("advice/words.toml")["word"])


@cache
def _index_words() -> Mapping[str, TrainingWord]:
    names = {spell_form(word.name): word for word in list_training_words()}
    return {
        **{spell_form(other): word for word in list_training_words() for other in word.also},
        **names,
    }


def find_training_word(word: str) -> TrainingWord | None:
    """Return the entry of a word in any of its spellings; `None` without one.

    >>> find_training_word("Activation-Checkpointing").name
    'activation recomputation'
    """
    return _index_words().get(spell_form(word))


@dataclass(frozen=True, slots=True)
class Note:
    """One idea; `topics` are ids of fixes, causes (whole or their beginning), or other words."""

    topics: Annotated[tuple[str, ...], Meta(min_length=1)]
    facts: Annotated[tuple[str, ...], Meta(min_length=1)]
    text: Annotated[str, Meta(min_length=10)]


@dataclass(frozen=True, slots=True)
class FindingText:
    """One of several texts of a finding: severity, text, and what to do, each with places for values."""

    text: str
    severity: Severity | None = None
    do: str = ""
    lead: str = ""


@dataclass(frozen=True, slots=True)
class FindingNote:
    """The meaning of a finding about a capture, and what it does not allow to conclude.

    `severity`, `lead`, `text` and `do` are those of a finding with one text; `says` has several. A stage
    that decides them gives what is empty here (`make_finding`). `torch` is what to do with a trace of
    PyTorch, `megatron` what to do in addition in Megatron, `unknown` what a brief answer calls unknown.
    """

    code: FindingCode
    means: str
    evidence: str
    cure: str = ""
    facts: tuple[str, ...] = ()
    severity: Severity | None = None
    text: str = ""
    do: str = ""
    says: Mapping[str, FindingText] = field(default_factory=dict)
    torch: str = ""
    megatron: str = ""
    unknown: str = ""
    lead: str = ""


@dataclass(frozen=True, slots=True)
class CauseNote:
    """How the causes of a pattern are computed, and the queries that show the numbers."""

    pattern: str
    computed: str
    sql: tuple[str, ...]


@cache
def notes() -> tuple[Note, ...]:
    """Return all notes, in the order of the files."""
    return tuple(make_entry(table, Note) for table in _note_tables("note"))


@cache
def finding_notes() -> tuple[FindingNote, ...]:
    """Return the notes on every finding."""
    return tuple(make_entry(table, FindingNote) for table in _note_tables("finding"))


@cache
def cause_notes() -> tuple[CauseNote, ...]:
    """Return how causes are computed; the first pattern that matches a cause counts."""
    notes = tuple(make_entry(table, CauseNote) for table in _note_tables("cause"))
    causes = [cause for cause, _ in list_cause_meanings()]
    if unknown := [note.pattern for note in notes if not fnmatch.filter(causes, note.pattern)]:
        raise ValueError(f"notes on causes: no cause matches {unknown}")
    return notes


def _note_tables(kind: str) -> list[dict[str, Any]]:
    return [table for path in list_toml_paths("advice/notes") for table in read_toml(path).get(kind, [])]
