"""Records behave as the standard decorator makes them."""

import dataclasses
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

    @decorator(frozen=True, slots=True)
    class Made:
        x: int
        many: list = dataclasses.field(default_factory=list)
        seen: list = dataclasses.field(default_factory=list, kw_only=True)

        def __post_init__(self):
            self.seen.append(self.x)

    @decorator(frozen=True)
    class Later:
        x: int
        twice: int = dataclasses.field(init=False, default=4)

    return Point, Nothing, Apart, Own, Made, Later


OURS, STANDARD = declare(dataclass), declare(dataclasses.dataclass)


# Whether one NaN equals itself inside a class is another matter in the standard library from Python 3.13 on.
@given(st.tuples(*[st.floats(allow_nan=False), st.sampled_from("ab"), st.integers(0, 1)] * 2))
def test_equality_hash_and_representation_are_those_of_the_standard_library(values):
    (ours, other), (theirs, another) = (
        (point(*values[:3]), point(*values[3:])) for point in (OURS[0], STANDARD[0])
    )

    assert (ours == other) is (theirs == another)
    assert hash(ours) == hash(theirs)
    assert repr(ours) == repr(theirs)


def test_other_classes_are_never_equal_and_options_hold():
    (_, nothing, apart, own, *_), (_, nothing_there, *_) = OURS, STANDARD

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


@pytest.mark.parametrize("kind", range(len(OURS)))
def test_wrong_arguments_are_refused_as_in_the_standard_library(kind):
    for values, named in [((), {}), ((1,), {}), ((1, 2, 3, 4), {}), ((1,), {"x": 1}), ((1,), {"no": 1})]:
        said = []
        for declared in (OURS, STANDARD):
            try:
                said.append(repr(declared[kind](*values, **named)))
            except TypeError as error:
                said.append(str(error))
        assert said[0] == said[1]


def test_records_with_defaults_that_are_made_share_none():
    made = OURS[4]
    first, second, third = made(1), made(2, [3]), made(3, seen=[4])

    assert (first.many, second.many, first.seen, third.seen) == ([], [3], [1], [4, 3])


def test_only_derived_classes_have_other_attributes():
    class Derived(OURS[1]):
        pass

    class Longer(OURS[3]):
        def __init__(self):
            super().__init__(2)
            self.more = 3

    derived, longer = Derived(), Longer()
    derived.more = 1
    del derived.more

    assert (vars(derived), longer.x, longer.more) == ({}, 2, 3)
    attempts = (
        lambda: setattr(longer, "x", 1),
        lambda: delattr(longer, "x"),
        lambda: setattr(OURS[1](), "more", 1),
    )
    for attempt in attempts:
        with pytest.raises(dataclasses.FrozenInstanceError):
            attempt()


def test_a_record_can_be_the_base_of_another():
    @dataclass(frozen=True, slots=True)
    class Base:
        x: int

    @dataclass(frozen=True, slots=True)
    class More(Base):
        y: int = 2

    assert (More(1), More(1).x, Base(3).x) == (More(1, 2), 1, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        More(1).y = 3
