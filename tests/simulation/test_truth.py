from collections import Counter
from functools import cache
from itertools import pairwise

import polars as pl
import pytest

from fixtures.simulation import names
from fixtures.simulation.causes import copy_cause
from fixtures.simulation.plans import Theme, random_plan
from fixtures.simulation.program import Copy
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.truth import truths
from fixtures.simulation.verdict import verdict
from wallscope.model.schemas import NAMES
from wallscope.trace.kernel_classes import classify_kernels, load_kernel_rules

SEEDS = range(40)


@cache
def run_random_program(seed):
    return run(random_program(seed))


def of_story(story):
    return truths(run(story.program), is_split=story.is_split)[story.rank]


@pytest.mark.parametrize("story", stories(), ids=lambda story: story.name)
def test_every_steady_step_of_a_story_is_as_worked_out_by_hand(story):
    steps = of_story(story).steady

    assert len(steps) == 5
    for step in steps[1:]:  # what the warm-up step left in the queues is over
        assert dict(step.causes) == dict(sorted(story.expected.items()))
        assert not set(story.absent) & set(step.causes)


@pytest.mark.parametrize(
    "story", [story for story in stories() if story.slack_ns is not None], ids=lambda story: story.name
)
def test_the_slack_of_a_story_is_that_of_the_kernel_that_ends_the_longest_gap(story):
    rank = run(story.program).ranks[story.rank]
    computing = [one for one in rank.operations if one.computes]
    gaps = {after.start_ns - before.end_ns: after for before, after in pairwise(computing[2:])}
    latest_ns, next_ns = sorted((one.at_ns for one in gaps[max(gaps)].constraints), reverse=True)[:2]

    assert latest_ns - next_ns == story.slack_ns


def test_stories_have_names_of_their_own_and_say_what_they_show():
    told = Counter(story.name for story in stories())
    assert set(told.values()) == {1}
    assert all(story.sentence.endswith(".") for story in stories())


@pytest.mark.parametrize("is_split", [pytest.param(True, id="split"), pytest.param(False, id="whole")])
@pytest.mark.parametrize("seed", range(10))
def test_slices_tile_every_window_without_rest(seed, is_split):
    for rank in truths(run_random_program(seed), is_split=is_split):
        for step in rank.steps[
            1:-1
        ]:  # the truth begins with the first kernel and ends with the last operation
            borders = [(one.start_ns, one.end_ns) for one in step.slices]
            assert [start for start, _ in borders] == [step.start_ns, *(end for _, end in borders[:-1])]
            assert borders[-1][1] == step.end_ns
            assert sum(step.causes.values()) == sum(step.walls.values()) == step.duration_ns
            assert all(start < end for start, end in borders)


@pytest.mark.parametrize("seed", range(10))
def test_windows_tile_the_run_and_nothing_is_unresolved(seed):
    for rank in truths(run_random_program(seed)):
        assert all(before.end_ns == after.start_ns for before, after in pairwise(rank.steps))
        assert not any("unresolved" in cause for cause in rank.causes)
        assert len(rank.steady) >= 5


def test_a_split_collective_adds_up_to_the_whole():
    story = next(story for story in stories() if story.name == "slow peer")
    played = run(story.program)
    whole, split = (truths(played, is_split=is_split)[0].causes for is_split in (False, True))
    parts = sum(split[f"communication/ep/{part}"] for part in ("peer-wait", "transfer"))

    assert parts == whole["communication/ep/unsplit"]


def test_every_wall_is_the_largest_in_a_fair_share_of_random_programs():
    found = Counter(verdict(truths(run_random_program(seed))[0]).dominant for seed in SEEDS)

    assert set(found) == {"communication", "host", "memory", "mixed", "compute"}
    assert min(found.values()) >= len(SEEDS) // 20


def test_random_programs_are_of_ordinary_size():
    counts = [sum(len(rank.operations) for rank in run_random_program(seed).ranks) for seed in SEEDS]
    assert min(counts) >= 400
    assert max(counts) <= 4_000


def test_plans_differ_by_seed_alone():
    assert random_plan(3) == random_plan(3) != random_plan(4)
    assert {random_plan(seed).theme for seed in range(30)} == set(Theme)


@pytest.mark.parametrize(
    ("copy", "cause"),
    [
        pytest.param(Copy("device-to-host", 65_535, 1), "host/small-copy", id="one byte too small"),
        pytest.param(Copy("device-to-host", 65_536, 1), "memory/readback", id="just large enough"),
        pytest.param(Copy("host-to-device", 65_536, 1), "memory/staging", id="to the device"),
        pytest.param(Copy("host-to-device", 65_536, 1, is_offload=True), "memory/offload", id="and back"),
        pytest.param(Copy("host-to-device", 1, 1, is_offload=True), "host/small-copy", id="small and back"),
        pytest.param(Copy("device-to-device", 1, 1), "memory/device-copy", id="inside the device"),
    ],
)
def test_what_a_copy_stands_for(copy, cause):
    assert copy_cause(copy) == cause


def test_kernel_names_are_known_by_the_category_that_they_bear():
    kernels = [one for one in vars(names).values() if isinstance(one, names.Kernel)]
    texts = pl.DataFrame({"name": range(len(kernels)), "text": [one.name for one in kernels]}).cast(NAMES)
    found = classify_kernels(texts, load_kernel_rules(None))

    assert found["category"].cast(pl.String).to_list() == [one.category for one in kernels]
    assert found["matched"].all()
