"""What a word of the answer means, in sections to be read."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["cause", "wall", "fix", "finding", "fact", "topic"]


@dataclass(frozen=True, slots=True)
class Section:
    """Lines under a heading; `verbatim` ones keep their spaces and breaks."""

    heading: str
    lines: tuple[str, ...]
    verbatim: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """A word, what kind of word it is, what it means in a sentence, and the rest."""

    word: str
    kind: Kind
    meaning: str
    sections: tuple[Section, ...]
