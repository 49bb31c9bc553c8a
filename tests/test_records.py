"""Records behave as the standard decorator makes them."""

import dataclasses
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope.records import dataclass


def declare(decorator):
    """The same classes, made by one decorator."""

    @decorator(frozen=True, slots=True)
    class Point:
        x: float
        label: str = dataclasses.field(default="", compare=False)
        hidden: int = dataclasses.field(default=0, repr=False)

    @decorator(frozen=True)
    class Nothing:
        pass

    @decorator(frozen=True, slots=True, eq=False)
    class Apart:
        x: int

    @decorator(frozen=True)
    class Own:
        x: int

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 7

        def __repr__(self):
            return "own"

    return Point, Nothing, Apart, Own


OURS, STANDARD = declare(dataclass), declare(dataclasses.dataclass)


@given(st.tuples(*[st.floats() | st.just(math.nan), st.sampled_from("ab"), st.integers(0, 1)] * 2))
def test_equality_hash_and_representation_are_those_of_the_standard_library(values):
    (ours, other), (theirs, another) = (
        (point(*values[:3]), point(*values[3:])) for point in (OURS[0], STANDARD[0])
    )

    assert (ours == other) is (theirs == another)
    assert hash(ours) == hash(theirs)
    assert repr(ours) == repr(theirs)


def test_other_classes_are_never_equal_and_options_hold():
    (_, nothing, apart, own), (_, nothing_there, *_) = OURS, STANDARD

    assert nothing() == nothing()
    assert nothing() != nothing_there()
    assert hash(nothing()) == hash(nothing_there())
    assert apart(1) != apart(1)
    assert (own(1) == 3, hash(own(1)), repr(own(1))) == (True, 7, "own")


@dataclass(frozen=True, slots=True)
class Kept:
    """Kept in a file."""

    x: int


def test_they_are_frozen_replaced_listed_and_kept():
    kept = Kept(1)

    with pytest.raises(dataclasses.FrozenInstanceError):
        kept.x = 2
    assert dataclasses.replace(kept, x=2) == Kept(2)
    assert [one.name for one in dataclasses.fields(kept)] == ["x"]
    assert pickle.loads(pickle.dumps(kept)) == kept  # made here


def test_what_is_not_frozen_cannot_be_hashed():
    @dataclass(slots=True)
    class Open:
        x: int

    assert Open(1) == Open(1)
    with pytest.raises(TypeError):
        hash(Open(1))
