import pytest

from fixtures.simulation.random_programs import random_program
from fixtures.simulation.removal import without, won_ns
from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.truth import truths

STORIES = {story.name: story for story in stories()}
LATENCIES_NS = 25_000
"""Launches, hand-overs and returns around one cause, in a step of a story."""
ON_ONE_RANK = [story for story in stories() if len(story.program.ranks) == 1]


@pytest.mark.parametrize("story", ON_ONE_RANK, ids=lambda story: story.name)
def test_no_step_gets_longer_without_one_of_its_causes(story):
    for cause in story.expected:
        assert won_ns(story.program, cause)[0] >= -LATENCIES_NS


@pytest.mark.parametrize("story", ON_ONE_RANK, ids=lambda story: story.name)
def test_removing_what_runs_on_the_device_wins_at_most_what_it_owned(story):
    for cause, owned_ns in story.expected.items():
        if cause.startswith(("communication/", "memory/")):
            assert won_ns(story.program, cause)[0] <= owned_ns + LATENCIES_NS


@pytest.mark.parametrize("story", stories(), ids=lambda story: story.name)
def test_what_owns_nothing_wins_nothing(story):
    for cause in story.absent:
        if cause.startswith(("communication/", "memory/")):
            assert won_ns(story.program, cause)[story.rank] == pytest.approx(0, abs=LATENCIES_NS)


@pytest.mark.parametrize(
    ("story", "cause", "won"),
    [
        pytest.param("exposed all-to-all", "communication/ep/unsplit", 200_000, id="exposed"),
        pytest.param("token-count read", "host/queue-drained/cudaStreamSynchronize", 190_500, id="drained"),
        pytest.param("allocator stall", "memory/allocator", 506_500, id="allocator"),
        pytest.param("data loading", "host/data-loading", 400_000, id="data loading"),
        pytest.param("activations offloaded and reloaded", "memory/offload", 800_000, id="offload"),
        pytest.param("staging from pageable memory", "memory/staging", 500_000, id="staging"),
        pytest.param("slow peer", "communication/ep/transfer", 300_000, id="all of a collective, wait too"),
        # the host is 100 µs behind: less the latency of its launch, no more can be won
        pytest.param("late host beside a long all-to-all", "communication/ep/unsplit", 98_000, id="slack"),
        pytest.param("latest of two waits", "communication/ep/unsplit", 50_000, id="next wait"),
    ],
)
def test_what_a_step_wins(story, cause, won):
    told = STORIES[story]
    assert won_ns(told.program, cause)[told.rank] == won


@pytest.mark.parametrize(
    "seed", [0, 3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 16))]
)
def test_random_programs_run_without_any_of_their_causes(seed):
    program = random_program(seed)
    owned = {cause for rank in truths(run(program)) for cause in rank.causes}
    for cause in sorted(owned):
        assert len(won_ns(program, cause)) == len(program.ranks)


def test_a_cause_that_no_program_knows_is_an_error():
    with pytest.raises(KeyError):
        without(STORIES["relay"].program, "host/unheard-of")
