"""Words of training, apart from the terms of screens: what they mean, and words for the same topic."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter

from wallscope.advice.word_forms import spell_form
from wallscope.resources import read_toml


@dataclass(frozen=True, slots=True)
class TrainingWord:
    """A word, its other spellings, its meaning and its source; `find` are words for the same topic."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str
    text: Annotated[str, Field(min_length=10)]
    source: Annotated[str, Field(min_length=4)]
    also: tuple[str, ...] = ()
    find: tuple[str, ...] = ()

    @property
    def spellings(self) -> tuple[str, ...]:
        """Its name and its other spellings."""
        return (self.name, *self.also)


@cache
def list_training_words() -> tuple[TrainingWord, ...]:
    """Return all words, in the order of the file."""
    return TypeAdapter(tuple[TrainingWord, ...]).validate_python(read_toml("advice/words.toml")["word"])


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
