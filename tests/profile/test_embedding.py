import polars as pl
import pytest

from fixtures.scenario import scenarios
from tests.answered_once import analyze_scenario_once
from tests.conftest import run_part
from tests.shipped_example import EXAMPLE
from wallscope.model.capture import Options
from wallscope.model.diagnosis import StepFacts
from wallscope.model.enums import Wall
from wallscope.pipeline import analyze
from wallscope.profile import build
from wallscope.profile.codec import unpack_profile


@pytest.fixture(scope="module")
def example():
    return EXAMPLE


@pytest.fixture(scope="module")
def answer(example):
    return analyze(example, Options(step_facts=StepFacts(tokens=4096)), lambda _: None)


def read(rank):
    return unpack_profile(rank.profile, "run.json")


def assert_true_to(rank):
    """The tables say what the answer says of each step."""
    profile = read(rank)
    rows = profile.steps.select(
        "step", "start_ns", "end_ns", "steady", *[f"{wall}_wall_ns" for wall in Wall], "idle_ns"
    ).rows()
    assert rows == [
        (step.index, step.start_ns, step.end_ns, step.steady, *step.walls.parts(), step.budget.idle)
        for step in rank.steps
    ]
    by_wall = (
        profile.owned.with_columns(wall=pl.col("cause").str.split("/").list.first())
        .group_by("step", "wall")
        .agg(pl.col("owned_ns").sum())
    )
    owned = {row[:2]: row[2] for row in by_wall.iter_rows()}
    for step in rank.steps:
        for wall, time_ns in zip(Wall, step.walls.parts(), strict=True):
            assert owned.get((step.index, str(wall)), 0) == time_ns
    causes = profile.causes.group_by("step", "cause").agg(pl.col("ns").sum()).sort("step", "cause")
    owned_causes = profile.owned.group_by("step", "cause").agg(ns=pl.col("owned_ns").sum())
    assert causes.rows() == owned_causes.sort("step", "cause").rows()


def test_the_profile_tells_the_steps_of_the_answer(answer):
    (rank,) = answer.ranks

    assert_true_to(rank)
    assert len(rank.profile.data) < 80_000


@pytest.mark.parametrize("scenario", run_part(scenarios(), name=lambda scenario: scenario.name))
def test_every_scenario_has_a_profile(scenario):
    for rank in analyze_scenario_once(scenario.name).ranks:
        assert_true_to(rank)


def test_work_and_count_are_those_of_the_answer(answer):
    (rank,) = answer.ranks
    profile = read(rank)
    ran = profile.work.join(profile.keys, on="key").filter(pl.col("category") == "all-to-all")
    (listed,) = [entry for entry in rank.communication.operations if entry.operation == "all-to-all"]
    by_step = ran.group_by("step").agg(
        pl.col("count").sum(), pl.col("work_ns").sum(), pl.col("exposed_ns").sum()
    )
    steady = by_step.filter(pl.col("step").is_between(1, 8))

    assert steady["count"].to_list() == [listed.count] * 8
    assert steady["work_ns"].min() <= listed.work_ns <= steady["work_ns"].max()
    assert steady["exposed_ns"].min() <= listed.exposed_ns <= steady["exposed_ns"].max()
    assert set(ran["axis"]) == {"ep"}
    assert set(ran["backend"]) == {"nccl"}


def test_the_header_tells_the_work_and_the_capture(answer):
    header = read(answer.ranks[0]).header

    assert (header.rank, header.device, header.work.unit, header.work.tokens_per_step) == (3, 3, "step", 4096)
    assert (header.work.gpu, header.work.world_size) == ("NVIDIA H100 80GB HBM3", 16)
    assert [entry.fingerprint for entry in header.inputs] == [answer.inputs[0].fingerprint]
    assert "one-rank" in header.inputs[0].findings


def test_the_smallest_of_too_many_operations_are_one(monkeypatch, example, answer):
    whole = read(answer.ranks[0])
    monkeypatch.setattr(build, "_MOST_ROWS", 1_000)
    (rank,) = analyze(example, Options(), lambda _: None).ranks

    assert_true_to(rank)
    small = read(rank)
    assert len(small.keys) < len(whole.keys)
    assert "other operations" in set(small.keys["name"])
    assert small.work["work_ns"].sum() == whole.work["work_ns"].sum()


def test_what_a_run_configuration_declares_is_in_the_header(example, answer, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("micro_batch_size = 2\nexpert_model_parallel_size = 8\n")
    (rank,) = analyze(example, Options(configuration=path), lambda _: None).ranks

    settings = dict(unpack_profile(rank.profile, "run").header.work.settings)
    assert settings["micro_batch_size"] == "2"
    assert unpack_profile(answer.ranks[0].profile, "run").header.work.settings == ()
