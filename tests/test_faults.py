"""Broken and hostile inputs: an answer that holds, or one clear line; the whole table is a benchmark."""

from itertools import islice

import pytest

from benchmarks.inputs import Input, good_inputs, inputs
from benchmarks.judging import Ending, judged
from fixtures.mutation import MUTATIONS
from fixtures.mutation.file_bytes import BYTE_MUTATIONS

QUICK = [
    *(
        (subject, kind)
        for subject in ("answer", "configuration", "kernel rules")
        for kind in MUTATIONS[subject]
    ),
    *(("export", kind) for kind in BYTE_MUTATIONS),
]

FOUND = [("export", "ranges nested deeply", 43)]
"""Inputs that once broke something, by subject, kind and seed."""


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return good_inputs(tmp_path_factory.mktemp("good"))


def outcome(good, one):
    return judged(one.write(good, good["export"][0].parent), one.subject, one.seed)


@pytest.mark.parametrize(("subject", "kind"), QUICK)
def test_a_broken_input_is_answered_or_refused_in_one_line(good, subject, kind):
    found = outcome(good, Input(subject, kind, 7))

    assert found.ending in {Ending.ANSWERED, Ending.REFUSED}, found.text


@pytest.mark.parametrize(("subject", "kind", "seed"), FOUND)
def test_what_once_broke_something_is_answered(good, subject, kind, seed):
    assert outcome(good, Input(subject, kind, seed)).ending is Ending.ANSWERED


@pytest.mark.slow
def test_three_hundred_broken_inputs_are_answered_or_refused_in_one_line(good):
    tried = [(one, outcome(good, one)) for one in islice(inputs(), 1_000, 1_300)]

    assert [(one, found.text) for one, found in tried if found.ending is Ending.BROKEN] == []
    assert {found.ending for _, found in tried} == {Ending.ANSWERED, Ending.REFUSED}


def test_an_input_of_each_kind_differs_from_the_good_one(good):
    same = [
        (subject, kind)
        for subject, kinds in MUTATIONS.items()
        for kind in kinds
        if all(
            Input(subject, kind, seed).write(good, good["export"][0].parent).read_bytes()
            == good[subject][seed % len(good[subject])].read_bytes()
            for seed in range(4)
        )
    ]

    assert same == []
