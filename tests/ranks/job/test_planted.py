"""Lateness planted in jobs that are written as exports and read by the whole tool: named, and why."""

import pytest

from fixtures.simulation.program import Why
from fixtures.simulation.writing import HostClock
from tests.conftest import run_part, slow
from tests.ranks.planted import (
    MS,
    US,
    USUAL,
    Rank,
    captured_by_node,
    data_parallel,
    jittered,
    judged,
    pipelined,
)
from wallscope.jobs.merge import run_job
from wallscope.model.capture import Options

SIZES = [3, *(pytest.param(size, marks=pytest.mark.slow) for size in (2, 16))]
PLANTED = {
    "slower clock": (Rank(slow=1.08), "slower-kernels", "compute", None),
    "more tokens": (Rank(tokens=1.3), "more-tokens", "compute", "compute/grouped-gemm"),
    "host": (Rank(host_us=150), "host", "host", None),
    "data loading": (Rank(host_us=180, why=Why.DATA_LOADING), "host", "host", "host/data-loading"),
    "allocator": (Rank(allocated_us=160), "memory", "memory", "memory/allocator"),
    "other work": (Rank(extra_us=70), "other-work", "compute", "compute/gemm"),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", run_part(PLANTED, name=str))
def test_the_late_rank_and_its_cause_are_named(tmp_path, name, size):
    planted, reason, wall, cause = PLANTED[name]
    late = size - 1
    found = judged(data_parallel(size, lambda rank, _: planted if rank == late else USUAL), tmp_path).job

    assert [(one.rank, str(one.reason), one.cause_wall) for one in found.stragglers] == [(late, reason, wall)]
    assert cause in {None, found.stragglers[0].cause}
    assert found.critical_rank == late
    assert found.verdict.startswith(f"Rank {late} is late in every step: ")
    assert found.stragglers[0].since_step is not None


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("jitter_us", [4, *slow(0, 25)])
def test_no_rank_is_late_where_none_is(tmp_path, size, jitter_us):
    found = judged(data_parallel(size, jittered(size, jitter_us)), tmp_path).job

    assert found.stragglers == ()
    assert found.verdict.startswith("Nothing holds the job up")


@pytest.mark.parametrize("size", SIZES)
def test_ranks_that_stall_in_turn_are_not_always_late(tmp_path, size):
    stall = Rank(host_us=500, why=Why.GARBAGE_COLLECTION)
    steps = 2 * size + 5
    planted = data_parallel(size, lambda rank, step: stall if step % size == rank else USUAL, steps)
    found = judged(planted, tmp_path).job

    (one,) = found.stragglers
    assert (one.unit, one.cause) == ("job", "host/garbage-collection")
    assert one.places == tuple(range(size))


CLOCKS = [
    pytest.param(50, 20, id="50 ms, 20 ppm"),
    *(
        pytest.param(offset_ms, drift_ppm, marks=pytest.mark.slow, id=f"{offset_ms} ms, {drift_ppm} ppm")
        for offset_ms, drift_ppm in ((0, 0), (-50, 20), (3.7, -20), (0.02, 5), (-17.3, 0))
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("offset_ms", "drift_ppm"), CLOCKS)
def test_clocks_of_two_nodes_are_laid_on_each_other(tmp_path, offset_ms, drift_ppm):
    clocks = [HostClock("node-0")] * 2 + [HostClock("node-1", round(offset_ms * MS), drift_ppm)] * 2
    late = Rank(slow=1.08)
    planted = data_parallel(4, lambda rank, _: late if rank == 2 else USUAL, steps=36)
    found = judged(planted, tmp_path, clocks).job
    hosts = {host.hostname: host for host in found.clock.hosts}

    assert found.clock.method == "collective-ends"
    apart_ns = hosts["node-1"].offset_ns - hosts["node-0"].offset_ns
    assert abs(apart_ns - offset_ms * MS) < 5 * US
    drift_ppm_found = hosts["node-1"].drift_ppm - hosts["node-0"].drift_ppm
    assert drift_ppm_found == pytest.approx(drift_ppm, abs=2)
    assert max(-found.clock.residual_p05_ns, found.clock.residual_p95_ns) < 5 * US
    assert found.collectives.unmatched == 0
    assert [(one.rank, str(one.reason)) for one in found.stragglers] == [(2, "slower-kernels")]


def test_stages_of_a_pipeline_wait_by_design(tmp_path):
    found = judged(pipelined(3, 1, lambda *_: USUAL), tmp_path)

    assert found.job.stragglers == ()
    assert [stage.places for stage in found.job.pipeline] == [(0,), (1,), (2,)]
    waiting = {one.cause for rank in found.ranks for one in rank.causes if one.cause.endswith("wait")}
    assert waiting == {"communication/pp/pipeline-wait"}


@pytest.mark.parametrize(
    ("planted", "reason"),
    [
        pytest.param(Rank(slow=1.3), "slower-kernels", id="slower"),
        pytest.param(Rank(extra_us=90), "other-work", id="other work", marks=pytest.mark.slow),
    ],
)
def test_a_stage_with_more_to_do_is_named(tmp_path, planted, reason):
    found = judged(pipelined(4, 1, lambda rank, _: planted if rank == 2 else USUAL), tmp_path).job

    assert [(one.rank, str(one.reason)) for one in found.stragglers] == [(2, reason)]


@pytest.mark.slow
def test_a_slow_replica_of_a_stage_is_named_across_nodes(tmp_path):
    clocks = [HostClock(f"node-{rank // 4}", rank // 4 * 7 * MS, rank // 4 * 6.0) for rank in range(8)]
    late = Rank(slow=1.12)
    found = judged(pipelined(2, 4, lambda rank, _: late if rank == 5 else USUAL), tmp_path, clocks).job

    assert found.stragglers[0].rank == 5
    assert str(found.stragglers[0].reason) == "slower-kernels"
    assert all(one.stage == one.place % 2 for one in found.members)


def test_exports_of_whole_nodes_are_one_job(tmp_path):
    """Collectives of all four ranks lack participants in each export: split where both are there."""
    clocks = [HostClock("node-0"), HostClock("node-1", 31 * MS, -7.0)]
    late = Rank(tokens=1.3)
    planted = data_parallel(4, lambda rank, _: late if rank == 3 else USUAL)
    exports = captured_by_node(planted, tmp_path, clocks, 2)
    alone = run_job(exports[:1], Options(), lambda _: None).analysis
    found = run_job(exports, Options(), lambda _: None).analysis

    assert {one.cause for rank in alone.ranks for one in rank.causes if one.cause.endswith("wait")} == set()
    assert [(one.place, str(one.reason)) for one in found.job.stragglers] == [(3, "more-tokens")]
    assert found.job.critical_place == found.diagnosis.rank_index == 3
    waits_ns = [
        sum(one.typical_ns for one in rank.causes if one.cause.endswith("peer-wait")) for rank in found.ranks
    ]
    assert min(waits_ns[:3]) > 100 * US
    assert waits_ns[3] < 5 * US
    rank = found.ranks[3]
    shares = (found.diagnosis.walls.compute.typical_ns, found.diagnosis.walls.communication.typical_ns)
    assert shares == (rank.typical.walls.compute, rank.typical.walls.communication)
    assert {entry.cause for entry in found.opportunities} <= {one.cause for one in rank.causes}
