"""What holds a job up, against what an independent generator planted, and what the step is without it."""

import json
import tarfile
from pathlib import Path

import pytest

from fixtures.simulated_ranks import US, Host, Meet, Work, played, profiles
from wallscope.jobs.merge import run_job
from wallscope.model.capture import Options
from wallscope.ranks.job import match_ranks
from wallscope.summary.diagnosis import find_dominant_wall

JOBS = Path(__file__).resolve().parents[3] / "shared" / "traces" / "minimal" / "jobs"
STEPS = 8
PLANTED = {
    "01_drain_no_fault": None,
    "02_drain_hides_late_stage": ("stage", [2, 3], "compute"),
    "03_slow_link": ("link", [2, 3], "communication"),
    "04_slow_node": ("node", [2, 3], "compute"),
    "05_pipeline_4_stages": None,
    "05d_late_stage_of_4": ("stage", [2], "compute"),
    "10_slow_host_pp": ("rank", [3], "host"),
}


@pytest.mark.skipif(not JOBS.is_dir(), reason="no small inputs here: ../shared/traces/minimal is absent")
@pytest.mark.parametrize("name", PLANTED)
def test_the_unit_and_what_its_repair_saves_are_those_of_an_independent_generator(tmp_path, name):
    with tarfile.open(JOBS / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    truth = json.loads((JOBS / f"{name}.truth.json").read_text())
    job = run_job(sorted((tmp_path / name).iterdir()), Options(), lambda _: None).analysis.job

    assert job.replayed_step_ns == pytest.approx(truth["step_ns"], rel=0.005)
    expected = PLANTED[name]
    assert len(job.stragglers) == (expected is not None)
    for found, gain_ns in zip(job.stragglers, truth["gain_ns"].values(), strict=True):
        assert (found.unit, list(found.places), found.cause_wall) == expected
        assert found.saved_ns == pytest.approx(gain_ns, rel=0.1)
        assert found.replayed_step_ns + found.saved_ns == pytest.approx(job.replayed_step_ns, abs=1)


def two_nodes(compute=lambda _: 1.0, link=lambda _: 1.0):
    """Eight ranks on two nodes: they meet in their node after each layer, and all at the end of the step."""

    def rank(number):
        node = number // 4
        group = tuple(range(4 * node, 4 * node + 4))
        layer = (Work(400 * US * compute(number)), Meet(group, 50 * US * link(node), "ep", "all-to-all"))
        return [[*layer * 4, Meet(tuple(range(8)), 200 * US)] for _ in range(STEPS)]

    return played([rank(number) for number in range(8)], exit_ns=0)


def judged(ranks):
    hosts = [Host(f"node-{number // 4}") for number in range(8)]
    return match_ranks(profiles(ranks, hosts), find_dominant_wall).job


def measure_step_ns(ranks):
    return max(rank.bounds[-1][1] for rank in ranks) / STEPS


@pytest.mark.parametrize(
    ("planted", "unit", "places"),
    [
        ({"compute": lambda rank: 1.1 if rank == 5 else 1.0}, "rank", (5,)),
        ({"compute": lambda rank: 1.1 if rank >= 4 else 1.0}, "node", (4, 5, 6, 7)),
        ({"link": lambda node: 3.0 if node else 1.0}, "link", (4, 5, 6, 7)),
    ],
    ids=["rank", "node", "link"],
)
def test_the_smallest_unit_is_named_with_what_a_run_without_the_fault_saves(planted, unit, places):
    job = judged(two_nodes(**planted))
    gain_ns = measure_step_ns(two_nodes(**planted)) - measure_step_ns(two_nodes())

    assert [(one.unit, one.places) for one in job.stragglers] == [(unit, places)]
    assert job.stragglers[0].saved_ns == pytest.approx(gain_ns, rel=0.02)


def test_of_two_faults_each_is_named_in_the_order_of_repair():
    speeds = {2: 1.3, 6: 1.15}
    job = judged(two_nodes(compute=lambda rank: speeds.get(rank, 1.0)))
    steps_ns = [
        measure_step_ns(two_nodes(compute=lambda rank, left=left: left.get(rank, 1.0)))
        for left in (speeds, {6: 1.15}, {})
    ]

    assert [one.rank for one in job.stragglers] == [2, 6]
    found = [job.replayed_step_ns, *(one.replayed_step_ns for one in job.stragglers)]
    assert found == pytest.approx(steps_ns, rel=0.01)


def test_nobody_is_named_where_all_work_alike():
    job = judged(two_nodes())

    assert job.stragglers == ()
    assert job.verdict.startswith("Nothing holds the job up")
