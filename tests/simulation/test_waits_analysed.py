"""Programs with noise whose waits the rows tell badly: are walls, largest causes and upper bounds true?"""

import sqlite3
from functools import cache

import pytest

from fixtures.simulation.judged import account_ranks
from fixtures.simulation.noise import add_noise
from fixtures.simulation.removal import without
from fixtures.simulation.run import run
from fixtures.simulation.stories_waits import waits
from fixtures.simulation.windows import busiest_stream, typical_step_ns
from fixtures.simulation.writing import write_run
from tests.conftest import run_part, slow
from wallscope.model.capture import Options
from wallscope.model.whatif import Asked, Question
from wallscope.pipeline import analyze, ask_what_if

STORIES = dict(waits())
RARE = {name: program for name, program in STORIES.items() if name.startswith("every fourth step")}
SHARED = "a device that another process uses too"
CLOCK = "a lower clock from step 9 on"
SEEDS = (1, 2, 3)


@pytest.fixture(
    scope="module", params=[SEEDS[:1], pytest.param(SEEDS, marks=pytest.mark.slow)], ids=["once", "often"]
)
def judged(request):
    """The ranks of a story by its name, for each seed of noise."""

    @cache
    def account(name):
        return [
            rank for seed in request.param for rank in account_ranks(seed, add_noise(STORIES[name], seed))
        ]

    return account


@pytest.fixture(scope="module")
def analyzed(tmp_path_factory):
    """The answer about a story with the noise of a seed, made once."""

    @cache
    def answer(name, seed=1):
        path = tmp_path_factory.mktemp("story") / "run.sqlite"
        write_run(run(add_noise(STORIES[name], seed)), path)
        return analyze(path, Options(), lambda _: None)

    return answer


@pytest.mark.parametrize("name", run_part(STORIES, name=str))
def test_walls_are_true(judged, name):
    ranks = judged(name)

    assert [rank.where for rank in ranks if rank.untold_ns] == []
    assert max(rank.wall_error for rank in ranks) <= 0.01
    assert [rank.dominant for rank in ranks] == [rank.truth.dominant for rank in ranks]


@pytest.mark.parametrize("name", run_part(sorted(set(STORIES) - set(RARE) - {SHARED, CLOCK}), name=str))
def test_the_largest_cause_and_what_it_wins_are_true(judged, name):
    for rank in judged(name):
        first = max(rank.removals, key=lambda removal: removal.won)
        told = max(rank.removals, key=lambda removal: removal.recoverable or 0.0)

        assert told.cause == first.cause
        assert told.recoverable == pytest.approx(first.won, abs=0.02)


@pytest.mark.parametrize("name", RARE)
def test_a_stall_on_every_fourth_step_is_in_the_headline(analyzed, name):
    cause = f"host/{name.rpartition(' ')[2]}"
    analysis = analyzed(name)

    (rank,) = analysis.ranks
    stall = rank.rare_stalls[0]
    assert (stall.cause, stall.period) == (cause, 4)
    assert stall.share == pytest.approx(0.25, abs=0.04)
    assert analysis.diagnosis.dominant_wall == "host"
    assert "every 4 steps" in analysis.diagnosis.verdict


def test_a_shared_device_is_named_before_any_wall(analyzed):
    analysis = analyzed(SHARED)

    assert analysis.diagnosis.dominant_wall == "unknown"
    assert "shared" in analysis.diagnosis.verdict.split(". ")[0]
    assert analysis.ranks[0].causes[0].cause == "unattributed/held-while-idle"


@pytest.mark.parametrize("seed", [1, *slow(2, 3)])
def test_a_lower_clock_is_named_with_its_factor_and_beginning(analyzed, seed):
    analysis = analyzed(CLOCK, seed)

    slower = analysis.ranks[0].slower_kernels
    first_gap = analysis.ranks[0].steps[0].index
    assert slower.ratio == pytest.approx(1.25, rel=0.02)
    assert slower.since_step == 9 + first_gap
    assert "slower-kernels" in [finding.code for finding in analysis.capture.findings]
    assert "the same compute kernels take" in analysis.diagnosis.verdict


@pytest.mark.parametrize("name", run_part(sorted(set(STORIES) - {CLOCK}), name=str))
def test_no_other_story_has_a_lower_clock(analyzed, name):
    analysis = analyzed(name)

    assert {rank.slower_kernels for rank in analysis.ranks} == {None}


@pytest.mark.parametrize("has_ranges", [True, False])
def test_no_rank_of_an_even_pipeline_is_called_late(analyzed, tmp_path, has_ranges):
    if has_ranges:
        analysis = analyzed("an even pipeline")
    else:
        path = tmp_path / "run.sqlite"
        write_run(run(add_noise(STORIES["an even pipeline"], 1)), path)
        connection = sqlite3.connect(path)
        connection.execute("DROP TABLE NVTX_EVENTS")
        connection.commit()
        connection.close()
        analysis = analyze(path, Options(), lambda _: None)

    assert analysis.diagnosis.dominant_wall == "communication"
    assert analysis.job is not None
    assert analysis.job.stragglers == ()


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("a value that is read from the device", "cudaMemcpyAsync"),
        ("an event that is asked for", "cudaEventQuery"),
    ],
)
def test_both_bounds_of_a_call_that_drains_the_queue_are_told(analyzed, tmp_path, name, call):
    program = add_noise(STORIES[name], 1)
    played = run(program)
    write_run(played, tmp_path / "run.sqlite")
    refill = Question("scale", f"refill:{call}", 0.0)
    told = ask_what_if(tmp_path / "run.sqlite", Options(), Asked((refill,)), lambda _: None)
    analysis = analyzed(name)

    (stream,) = {busiest_stream(rank) for rank in played.ranks}
    lengths_ns = [
        typical_step_ns(one.ranks[0], stream, 1) for one in (played, run(without(program, "host/framework")))
    ]
    assert told.answers[0].won_ns == pytest.approx(lengths_ns[0] - lengths_ns[1], rel=0.06)
    first = analysis.opportunities[0]
    assert first.cause == f"host/queue-drained/{call}"
    assert "with the call but without the host time after it" in first.evidence[-1]
