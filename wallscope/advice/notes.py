"""Notes: what stands behind fixes and causes, a thought each, with the facts that it rests on."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter


@dataclass(frozen=True, slots=True)
class Note:
    """One thought; `topics` are ids of fixes, causes (whole or their beginning), or words of their own."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    topics: Annotated[tuple[str, ...], Field(min_length=1)]
    facts: Annotated[tuple[str, ...], Field(min_length=1)]
    text: Annotated[str, Field(min_length=10)]


@dataclass(frozen=True, slots=True)
class FindingNote:
    """What a finding about a capture means, and what it forbids to claim."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    code: str
    means: str
    told_by: str
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
    """All notes, in the order of the files."""
    return TypeAdapter(tuple[Note, ...]).validate_python(_tables("note"))


@cache
def finding_notes() -> tuple[FindingNote, ...]:
    """What is known of every finding."""
    return TypeAdapter(tuple[FindingNote, ...]).validate_python(_tables("finding"))


@cache
def cause_notes() -> tuple[CauseNote, ...]:
    """How causes are computed; the first whose pattern matches a cause tells."""
    return TypeAdapter(tuple[CauseNote, ...]).validate_python(_tables("cause"))


@cache
def precondition_notes() -> Mapping[str, tuple[str, str]]:
    """What each precondition asks for, and what unblocks it, by id."""
    found = _tables("precondition", files("wallscope.advice"))
    return {table["id"]: (table["text"], table["unblock"]) for table in found}


def _tables(kind: str, folder: Traversable | None = None) -> list[dict[str, Any]]:
    """The tables of a kind in all TOML files of a folder, else in those of the notes."""
    entries = sorted((folder or files("wallscope.advice") / "notes").iterdir(), key=lambda entry: entry.name)
    texts = [entry.read_text(encoding="utf-8") for entry in entries if entry.name.endswith(".toml")]
    return [table for text in texts for table in tomllib.loads(text).get(kind, [])]
