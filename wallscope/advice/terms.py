"""Terms that people meet on screens, pages and in tables, each with its definition."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from wallscope.resources import read_toml


@dataclass(frozen=True, slots=True)
class Term:
    """A term, its other spellings, and its definition; `of` is the table of the glossary that lists it."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str
    text: Annotated[str, Field(min_length=10)]
    also: tuple[str, ...] = ()
    of: Literal["analysis", "comparison"] | None = None


@cache
def list_terms() -> tuple[Term, ...]:
    """Return all terms, in the order in which a reader meets them."""
    return TypeAdapter(tuple[Term, ...]).validate_python(read_toml("advice/terms.toml")["term"])


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
