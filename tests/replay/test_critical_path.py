"""Laws of the replay: paths tile steps, slack is free and no more than that, and chains agree with paths."""

import polars as pl
import pytest

from fixtures.simulation.random_programs import random_program
from tests.replay.stretches import read
from wallscope.replay.critical_path import build_path_frame, name_path, sum_walls_of_run, trace_path
from wallscope.replay.edits import GraphEdit
from wallscope.replay.engine import measure_lags_of_other_steps, measure_step_lengths
from wallscope.replay.simulate import find_latest_ends, simulate

SEEDS = (0, 3, 5, 8, 17)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """By seed: the stretch, and the slices of its rank."""
    folder = tmp_path_factory.mktemp("exports")
    return {seed: _told(random_program(seed), folder / f"{seed}.sqlite") for seed in SEEDS}


def _told(program, path):
    stretch, prepared = read(program, path)
    return stretch, prepared.slices().filter(pl.col("rank_id") == stretch.rank_id)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stretch_played_unchanged_is_the_capture(told, seed):
    stretch, _ = told[seed]
    steps = _list_begins(stretch)
    played = simulate(stretch.graph)

    assert (
        measure_step_lengths(stretch, played, "typical").tolist()
        == (steps["end_ns"] - steps["start_ns"]).to_list()
    )


def _list_begins(stretch):
    """The typical steps, from the start of their first operations to that of the first ones behind them."""
    steps = stretch.steps.filter("typical")
    starts_ns = stretch.waits.start_ns
    return steps.select(
        "step",
        start_ns=pl.Series(starts_ns[steps["first"].to_numpy()]),
        end_ns=pl.Series(starts_ns[steps["behind"].to_numpy()]),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_the_path_tiles_each_step(told, seed):
    stretch, _ = told[seed]
    names = name_path(stretch)
    path = build_path_frame(stretch, names, trace_path(stretch, names, simulate(stretch.graph)))
    tiles = path.group_by("step").agg(
        pl.col("start_ns").min(),
        pl.col("end_ns").max(),
        time_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
    )

    assert tiles.sort("step").select("step", "start_ns", "end_ns").equals(_list_begins(stretch))
    assert (tiles["time_ns"] == tiles["end_ns"] - tiles["start_ns"]).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_where_no_compute_ran_the_path_is_the_binding_chain(told, seed):
    """In the gaps whose end the path goes through: elsewhere it has another branch to follow."""
    stretch, slices = told[seed]
    names = name_path(stretch)
    path = build_path_frame(stretch, names, trace_path(stretch, names, simulate(stretch.graph)))
    on_path = set(path["led_to"].to_list()) | set(stretch.steps["behind"].to_list())
    absent = slices.filter(pl.col("kind").is_not_null() & pl.col("gap").is_in(list(on_path)))
    steps = stretch.steps.filter(pl.col("typical"))["step"]
    absent = absent.filter(pl.col("step").is_in(steps.implode()))

    compared = 0
    for gap in absent.partition_by("gap"):
        begin_ns, end_ns = gap["start_ns"].min(), gap["end_ns"].max()
        if begin_ns < path["start_ns"].min():  # before the first operation of the first step
            continue
        chain = _runs(gap, begin_ns, end_ns)
        own = _runs(path, begin_ns, end_ns)
        assert own == chain
        compared += end_ns - begin_ns
    all_ns = slices.filter(pl.col("kind").is_not_null() & pl.col("step").is_in(steps.implode()))
    assert compared >= 0.8 * (all_ns["end_ns"] - all_ns["start_ns"]).sum()


def _runs(rows, begin_ns, end_ns):
    """Causes in order of time inside a stretch, neighbours of one cause together."""
    cut = rows.filter((pl.col("end_ns") > begin_ns) & (pl.col("start_ns") < end_ns)).sort("start_ns")
    found = []
    for start, end, cause in cut.select("start_ns", "end_ns", "cause").iter_rows():
        inside = max(start, begin_ns), min(end, end_ns)
        if found and found[-1][2] == cause:
            found[-1] = (found[-1][0], inside[1], cause)
        else:
            found.append((*inside, cause))
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_the_walls_of_the_replay_are_those_of_the_slices(told, seed):
    stretch, slices = told[seed]
    names, played = name_path(stretch), simulate(stretch.graph)
    of_cause = sum_walls_of_run(names, played, trace_path(stretch, names, played))
    steps = stretch.steps.filter(pl.col("typical"))["step"]
    own = slices.filter(pl.col("step").is_in(steps.implode()))
    whole = sum(of_cause.values())
    for wall in ("communication", "memory", "host"):
        true = own.filter(pl.col("wall") == wall)
        true_ns = (true["end_ns"] - true["start_ns"]).sum()
        found_ns = sum(ns for cause, ns in of_cause.items() if cause.startswith(wall))
        assert found_ns == pytest.approx(true_ns, abs=0.01 * whole)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_operation_may_take_its_slack_longer_and_not_a_microsecond_more(told, seed):
    stretch, _ = told[seed]
    graph = stretch.graph
    played = simulate(graph)
    first, behind = stretch.steps.filter(pl.col("typical")).select("first", "behind").row(1)
    until = graph.position_of[behind]
    late_ns = find_latest_ends(played, until)
    tried = 0
    for place in range(graph.position_of[first] + 1, until, 7):
        slack_ns = late_ns[place] - played.end_ns[place]
        if graph.meeting[place] >= 0 or not 0 <= slack_ns < 10**9:
            continue
        for more_ns, is_later in ((slack_ns, False), (slack_ns + 1_000, True)):
            draft = GraphEdit(graph)
            draft.set_operations(graph.op[[place]], graph.operation_ns[[place]] + more_ns)
            changed = simulate(draft.graph())
            assert (changed.start_ns[until] > played.start_ns[until]) == is_later
        tried += 1
    assert tried > 5


def test_the_lags_of_the_other_steps_tell_a_step_that_is_like_them(told):
    stretch, _ = told[0]
    others = measure_lags_of_other_steps(stretch)
    played = simulate(others.graph)
    steps = stretch.steps.filter(pl.col("checked"))

    assert measure_step_lengths(stretch, played, "checked").tolist() == pytest.approx(
        (steps["end_ns"] - steps["start_ns"]).to_list(), rel=0.02
    )
