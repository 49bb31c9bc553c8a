"""Steps that differ: of several kinds, or held up now and then."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fixtures.simulation.program import HostThread, Program, SyncDevice, Why, Work, stepped
from fixtures.simulation.run import run
from fixtures.simulation.story import US, gemm
from fixtures.simulation.truth import truths
from fixtures.simulation.verdict import verdict
from fixtures.simulation.writing import write_run
from tests.answered_once import analyze_once
from wallscope.model.analysis import Analysis
from wallscope.model.capture import Options
from wallscope.pipeline import analyze
from wallscope.summary.diagnosis import decide_wall
from wallscope.trace.step_variation import find_stall_period, find_step_modes, measure_rare_excess

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
STEPS = 25


def modes(duration_ns):
    found = find_step_modes(np.arange(len(duration_ns)), np.array(duration_ns, np.int64))
    return [(len(mode.steps), mode.median_ns) for mode in found]


@pytest.mark.parametrize(
    ("spread", "allowed"),
    [
        pytest.param(lambda rng, n: rng.uniform(0.88, 1.12, n), 0.03, id="even, 12 %"),
        pytest.param(lambda rng, n: rng.lognormal(0, 0.12, n), 0.02, id="lognormal, 12 %"),
        pytest.param(lambda rng, n: rng.lognormal(0, 0.5, n), 0.02, id="lognormal, 50 %"),
        pytest.param(lambda rng, n: 1 + rng.exponential(0.3, n), 0.03, id="with a tail"),
        pytest.param(lambda rng, n: rng.uniform(0.2, 2, n), 0.04, id="even, tenfold"),
    ],
)
@pytest.mark.parametrize("count", [8, 10, 28, 60])
def test_one_spread_is_seldom_taken_for_two_kinds(spread, allowed, count):
    rng = np.random.default_rng(count)

    wrong = sum(bool(modes(1e8 * spread(rng, count))) for _ in range(300))

    assert wrong <= allowed * 300


@pytest.mark.parametrize("spread", [0.02, 0.05, 0.12])
@pytest.mark.parametrize("few", [6, 10, 15])
def test_two_kinds_far_apart_are_found(spread, few):
    rng = np.random.default_rng(few)
    missed = 0
    for _ in range(100):
        short, long = 1e8 * rng.lognormal(0, spread, few), 4e8 * rng.lognormal(0, spread, 30 - few)
        missed += [count for count, _ in modes(np.concatenate([long, short]))] != [few, 30 - few]

    assert missed <= 10


def test_kinds_name_their_steps_and_a_few_stalls_are_none():
    found = find_step_modes(np.arange(10, 22), np.array([100, 200] * 6) * 1_000)

    assert [mode.steps for mode in found] == [(10, 12, 14, 16, 18, 20), (11, 13, 15, 17, 19, 21)]
    assert [mode.median_ns for mode in found] == [100_000, 200_000]
    assert modes([1_000_000] * 18 + [9_000_000] * 2) == []
    assert modes([100, 300] * 3) == []  # too few
    assert modes([100] * 10 + [200] * 10 + [400] * 10) == [(10, 100), (10, 200), (10, 400)]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        pytest.param([0, 0, 0, 12] * 5, [3, 7, 11, 15, 19], id="every fourth"),
        pytest.param([0, 0, 0, 11] * 5, [], id="below three hundredths of all time"),
        pytest.param([0, 50] * 10, [], id="every second is no rarity"),
        pytest.param([0] * 19 + [70], [19], id="once"),
        pytest.param([0] * 16 + [4] * 4, [], id="too small for a step"),
        pytest.param([20, 40] * 9 + [30, 60], [], id="not beyond what it usually varies"),
        pytest.param([50] * 15 + [0] * 5, [], id="seldom less is no stall"),
    ],
)
def test_what_is_a_rare_stall(times, expected):
    excess = measure_rare_excess(np.array(times), np.full(20, 100))

    assert np.flatnonzero(excess).tolist() == expected


@pytest.mark.parametrize(
    ("steps", "period"), [([1, 5, 9], 4), ([1, 5, 9, 13, 30], 4), ([1, 5, 12], None), ([4, 5, 6], None)]
)
def test_a_period_needs_most_distances_to_be_equal(steps, period):
    assert find_stall_period(np.array(steps)) == period


def one_in_four(stall, usual=(0, 0, 0)):
    """Twenty steps of 100 with losses as `usual`, of communication, memory and host; each fourth waits."""
    steps = []
    for index in range(20):
        more = stall if index % 4 == 3 else 0
        steps.append((100 - sum(usual), usual[0], usual[1], usual[2] + more, 0))
    return decide_wall(np.array(steps), np.zeros((20, 3), np.int64))


@pytest.mark.parametrize(
    ("stall", "usual", "dominant", "is_mean"),
    [
        pytest.param(133, (0, 0, 0), "host", True, id="a quarter of all time"),
        pytest.param(10, (0, 0, 0), "compute", False, id="too little"),
        pytest.param(40, (0, 0, 0), "compute", True, id="a hundredth below a tenth"),
        pytest.param(100, (0, 15, 0), "host", True, id="more than the usual wall"),
        pytest.param(60, (0, 12, 0), "mixed", True, id="close to the usual wall"),
        pytest.param(100, (0, 40, 0), "memory", False, id="less than the usual wall"),
    ],
)
def test_rare_stalls_decide_where_they_take_more_than_any_usual_loss(stall, usual, dominant, is_mean):
    found = one_in_four(stall, usual)

    assert (found.dominant, found.is_mean) == (dominant, is_mean)


def played(folder: Path, why: Why) -> Analysis:
    """Training steps of 1 ms of which every fourth loses 1,333 us on the host: a quarter of all time."""

    def step(why, index):
        stall = (SyncDevice(), Work(1_333 * US, why)) if index % 4 == 3 else ()
        return (*stall, *(gemm(100) for _ in range(10)))

    true = run(Program(((HostThread("python", stepped(STEPS, partial(step, why))),),)))
    write_run(true, folder / "run.sqlite")
    found = analyze(folder / "run.sqlite", Options(), lambda _: None)
    assert verdict(truths(true, is_split=False)[0]).dominant == found.diagnosis.dominant_wall
    return found


@pytest.mark.parametrize(
    ("why", "cause", "said"),
    [
        pytest.param(
            Why.GARBAGE_COLLECTION, "host/garbage-collection", "garbage collection on the host", id="gc"
        ),
        pytest.param(Why.DATA_LOADING, "host/data-loading", "data loading on the host", id="loader"),
        pytest.param(
            Why.FRAMEWORK,
            "host/queue-drained/cudaDeviceSynchronize",
            "host time after cudaDeviceSynchronize",
            id="checkpoint without a name",
        ),
    ],
)
def test_the_headline_names_what_every_fourth_step_loses(why, cause, said, tmp_path):
    found = played(tmp_path, why)
    (rank,) = found.ranks
    stall = rank.rare_stalls[0]

    assert (found.diagnosis.dominant_wall, stall.cause, stall.period) == ("host", cause, 4)
    assert stall.share == pytest.approx(0.25, abs=0.02)
    assert stall.total_ns == pytest.approx(1_333 * US * len(stall.steps), rel=0.05)
    assert said in ". ".join(found.diagnosis.verdict.split(". ")[:2])
    assert "come every 4 steps" in found.diagnosis.verdict
    assert found.diagnosis.verdict.startswith("Host time is the largest loss")
    # its recommendation ranks by the share of all time
    assert cause in found.fixes[0].causes
    assert found.fixes[0].speedup_ceiling == pytest.approx(1 / (1 - stall.share), abs=0.01)


def answer(stem: str) -> Analysis:
    path = TRACES / f"{stem}.sqlite"
    if not path.exists():
        pytest.skip("no real exports here: ../shared/traces is absent")
    return analyze_once(path)


def test_a_loader_that_stalls_each_eighth_step_is_named_beside_the_copies():
    found = answer("nersc_sc21_8workers")
    rank = found.ranks[0]

    assert found.diagnosis.dominant_wall in {"memory", "host", "mixed"}
    assert rank.mean_step_ns == pytest.approx(209_900_000, rel=0.1)
    assert "H2D copies of 64 KiB or more" in found.diagnosis.verdict
    assert rank.rare_stalls[0].wall == "host"
    assert rank.rare_stalls[0].share > 0.1


def test_bimodal_steps_are_told_as_two_kinds():
    found = answer("nersc_sc21_baseline")
    rank = found.ranks[0]

    assert found.diagnosis.dominant_wall == "host"
    assert len(rank.modes) == 2
    assert sum(len(mode.steps) for mode in rank.modes) == 28
    assert rank.mean_step_ns == pytest.approx(719_600_000, rel=0.01)
    assert "9 of 28 steps take about 177.0 ms and 19 take about 1.056 s" in found.diagnosis.verdict


@pytest.mark.parametrize("stem", ["nersc_sc22_4gpu_base", "nersc_sc23_dali", "nersc_sc23_dali_bf16"])
def test_even_steps_are_of_one_kind_and_without_stalls(stem):
    rank = answer(stem).ranks[0]

    assert (rank.modes, rank.rare_stalls) == ((), ())
