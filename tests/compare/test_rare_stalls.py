"""Rare stalls in a comparison: what every fourth step loses is named, with its cause."""

import pytest

from fixtures.simulation.noise import add_noise
from fixtures.simulation.program import HostThread, Program, SyncDevice, Why, Work, stepped
from fixtures.simulation.run import run
from fixtures.simulation.story import US, gemm
from fixtures.simulation.writing import write_run
from wallscope.compare.compare import CompareOptions, Side, compare_sides
from wallscope.jobs.inputs import resolve_runs
from wallscope.model.capture import Options
from wallscope.views.comparison_words import describe_change

STEPS, STALL_US = 24, 1_333


def program(why=None, every=4, kernels=0):
    """Steps of 1 ms; every so many stall for a reason, or run more kernels."""

    def step(number):
        is_rare = number % every == every - 1
        stall = (SyncDevice(), Work(STALL_US * US, why)) if why and is_rare else ()
        return (*stall, *(gemm(100) for _ in range(10 + kernels * is_rare)))

    return Program(((HostThread("python", stepped(STEPS, step)),),))


@pytest.fixture
def compare(tmp_path):
    def of(base, head):
        sides = []
        for seed, (name, one) in enumerate((("base", base), ("head", head))):
            write_run(run(add_noise(one, seed, spread=0.01)), tmp_path / f"{name}.sqlite")
            sides.append(Side(name, resolve_runs((tmp_path / f"{name}.sqlite",), Options(), lambda _: None)))
        return compare_sides(*sides, CompareOptions())

    return of


def stalls(found):
    return [(one.code, one.causes) for one in found.explanations if one.code.startswith("rare-stalls")]


@pytest.mark.parametrize(
    ("why", "cause", "said"),
    [
        pytest.param(Why.GARBAGE_COLLECTION, "host/garbage-collection", "garbage collection", id="gc"),
        pytest.param(
            Why.DATA_LOADING, "host/data-loading", "data loading", id="loader", marks=pytest.mark.slow
        ),
        pytest.param(
            Why.FRAMEWORK,
            "host/queue-drained/cudaDeviceSynchronize",
            "host time after cudaDeviceSynchronize",
            id="checkpoint without a name",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_stalls_every_fourth_step_of_one_side_explains_the_change(why, cause, said, compare):
    for base, head, code, sign in (
        (None, why, "rare-stalls-more", 1),
        (why, None, "rare-stalls-fewer", -1),
    ):
        found = compare(program(base), program(head))
        (one,) = [entry for entry in found.explanations if entry.causes == (cause,)]

        assert stalls(found) == [(code, (cause,))]
        assert "slow-steps" not in {entry.code for entry in found.explanations}
        assert one.delta_ns == pytest.approx(sign * STALL_US * US / 4, rel=0.15)
        assert said in one.message
        assert "every 4 steps" in one.message
        assert said in describe_change(found)


def test_stalls_of_both_sides_explain_nothing(compare):
    assert stalls(compare(program(Why.DATA_LOADING), program(Why.DATA_LOADING))) == []


def test_more_frequent_stalls_are_named(compare):
    found = compare(program(Why.DATA_LOADING, every=12), program(Why.DATA_LOADING, every=4))

    assert stalls(found) == [("rare-stalls-more", ("host/data-loading",))]


def test_steps_with_more_work_are_slow_and_not_stalled(compare):
    found = compare(program(), program(kernels=10))

    assert stalls(found) == []
    assert "slow-steps" in {entry.code for entry in found.explanations}
