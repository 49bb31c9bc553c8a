"""Notes on fixes, causes and findings: one idea each, with the facts that support it."""

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter

from wallscope.resources import list_toml_paths, read_toml


@dataclass(frozen=True, slots=True)
class Note:
    """One idea; `topics` are ids of fixes, causes (whole or their beginning), or other words."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    topics: Annotated[tuple[str, ...], Field(min_length=1)]
    facts: Annotated[tuple[str, ...], Field(min_length=1)]
    text: Annotated[str, Field(min_length=10)]


@dataclass(frozen=True, slots=True)
class FindingNote:
    """The meaning of a finding about a capture, and what it does not allow to conclude."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    code: str
    means: str
    evidence: str
    cure: str = ""
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CauseNote:
    """How the causes of a pattern are computed, and the queries that show the numbers."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    pattern: str
    computed: str
    sql: tuple[str, ...]


@cache
def notes() -> tuple[Note, ...]:
    """Return all notes, in the order of the files."""
    return TypeAdapter(tuple[Note, ...]).validate_python(_note_tables("note"))


@cache
def finding_notes() -> tuple[FindingNote, ...]:
    """Return the notes on every finding."""
    return TypeAdapter(tuple[FindingNote, ...]).validate_python(_note_tables("finding"))


@cache
def cause_notes() -> tuple[CauseNote, ...]:
    """Return how causes are computed; the first pattern that matches a cause counts."""
    return TypeAdapter(tuple[CauseNote, ...]).validate_python(_note_tables("cause"))


def _note_tables(kind: str) -> list[dict[str, Any]]:
    return [table for path in list_toml_paths("advice/notes") for table in read_toml(path).get(kind, [])]
