"""Jobs with planted lateness: the late rank and its cause are named, and nobody where none is late."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.simulated_ranks import MS, US, Host, Meet, Work, played, profiles
from tests.conftest import slow
from wallscope.ranks.clocks import _residuals
from wallscope.ranks.job import _unite_parts, _waiting_order, match_ranks
from wallscope.summary.diagnosis import decide_wall

STEPS, LAYERS = 10, 4


def judged(ranks, hosts=None, **told):
    known = match_ranks(
        profiles(ranks, hosts, **told), lambda walls, unknown: decide_wall(walls, unknown).dominant
    )
    return known.job


def layer(group, *, slow=1.0, tokens=1.0, extra=(), jitter=0.0):
    """Attention, experts and an exchange before and behind them."""
    exchange = Meet(group, 60 * US, "ep", "all-to-all", sent=round((1 << 24) * tokens))
    return [
        Work(400 * US * slow + jitter, "compute/attention", "flash"),
        Work(300 * US * slow, "compute/gemm", "dense", 4),
        *extra,
        exchange,
        Work(500 * US * slow * tokens, "compute/grouped-gemm", "experts", 2),
        exchange,
    ]


def plain(size, changed=None, jitter_ns=0.0, seed=3, steps=STEPS):
    """Steps of ranks that all meet; `changed(rank, step)` tells what is different there."""
    rng = np.random.default_rng(seed)
    group = tuple(range(size))
    return played(
        [
            [
                [
                    item
                    for _ in range(LAYERS)
                    for item in layer(
                        group,
                        jitter=abs(rng.normal(0, jitter_ns)),
                        **(changed(rank, step) if changed else {}),
                    )
                ]
                for step in range(steps)
            ]
            for rank in range(size)
        ]
    )


def beside(us, cause, name=""):
    """Something else that a rank does."""
    return {"extra": (Work(us * US, cause, name),)}


PLANTED = {
    "slower clocks": ({"slow": 1.08}, "compute", "slower-kernels", None),
    "more tokens": ({"tokens": 1.25}, "compute", "more-tokens", "compute/grouped-gemm"),
    "framework": (beside(100, "host/framework"), "host", "host", "host/framework"),
    "data loading": (beside(90, "host/data-loading"), "host", "host", "host/data-loading"),
    "allocator": (beside(80, "memory/allocator"), "memory", "memory", "memory/allocator"),
    "other work": (beside(200, "compute/gemm", "head"), "compute", "other-work", "compute/gemm"),
}


@pytest.mark.parametrize("size", [2, *slow(4, 16)])
@pytest.mark.parametrize("planted", PLANTED)
def test_the_late_rank_and_its_cause_are_named(size, planted):
    change, wall, reason, cause = PLANTED[planted]
    late = size // 2
    job = judged(plain(size, lambda rank, _: change if rank == late else {}, jitter_ns=5 * US))

    assert [(one.rank, one.late_steps) for one in job.stragglers] == [
        (late, job.stragglers[0].replayed_steps)
    ]
    (found,) = job.stragglers
    assert (found.cause_wall, found.reason) == (wall, reason)
    assert cause in {None, found.cause}
    assert job.critical_rank == late


@pytest.mark.parametrize("size", [4, *slow(2, 16)])
@pytest.mark.parametrize("jitter_us", [0, 5, 40])
def test_no_rank_is_late_in_a_balanced_job(size, jitter_us):
    job = judged(plain(size, jitter_ns=jitter_us * US))

    assert job.stragglers == ()
    assert job.verdict.startswith("Nothing holds the job up")


@pytest.mark.parametrize("size", [4, 8])
def test_ranks_that_take_turns_are_not_always_late(size):
    stall = beside(300, "host/garbage-collection")
    job = judged(plain(size, lambda rank, step: stall if step % size == rank else {}, steps=2 * size))

    (found,) = job.stragglers
    assert (found.unit, found.rank) == ("job", None)
    assert (found.places, found.cause) == (tuple(range(size)), "host/garbage-collection")
    assert found.saved_ns == pytest.approx(300 * US * LAYERS, rel=0.05)


def nodes(size, offset_ms, drift_ppm):
    half = size // 2
    return [Host("node-0")] * half + [Host("node-1", round(offset_ms * MS), drift_ppm)] * (size - half)


@pytest.mark.parametrize("has_communicators", [True, False], ids=["payloads", "no payloads"])
@pytest.mark.parametrize(
    ("offset_ms", "drift_ppm"),
    [
        pytest.param(*one, id=str(one), marks=() if one in {(0, 0), (-50, 20)} else pytest.mark.slow)
        for one in [(0, 0), (50, 0), (-50, 20), (3.7, -20), (0.02, 5)]
    ],
)
def test_clocks_of_two_nodes_are_laid_on_each_other(offset_ms, drift_ppm, has_communicators):
    slow = {"slow": 1.08}
    ranks = plain(8, lambda rank, _: slow if rank == 6 else {}, jitter_ns=5 * US, steps=30)
    job = judged(ranks, nodes(8, offset_ms, drift_ppm), has_communicators=has_communicators)
    apart_ns, drifts = {}, {}
    for host in job.clock.hosts:
        apart_ns[host.hostname], drifts[host.hostname] = host.offset_ns, host.drift_ppm
    found_ns = apart_ns["node-1"] - apart_ns["node-0"]

    assert job.clock.method == "collective-ends"
    assert abs(found_ns - offset_ms * MS) < 5 * US + abs(drift_ppm) * 1e-6 * 60 * MS
    assert drifts["node-1"] - drifts["node-0"] == pytest.approx(drift_ppm, abs=2)
    assert job.collectives.unmatched == 0
    assert [one.rank for one in job.stragglers] == [6]
    assert job.stragglers[0].reason == "slower-kernels"
    assert max(-job.clock.residual_p05_ns, job.clock.residual_p95_ns) < 10 * US


def test_ranks_of_one_host_whose_clocks_differ_by_a_number_each_are_laid_on_each_other():
    apart_ns = (0, 300 * US, -120 * US, 40 * US)
    slow = {"slow": 1.08}
    ranks = plain(4, lambda rank, _: slow if rank == 3 else {})
    job = judged(ranks, [Host("node-0", own) for own in apart_ns])

    assert max(-job.clock.residual_p05_ns, job.clock.residual_p95_ns) < 10 * US
    assert [(one.rank, one.reason) for one in job.stragglers] == [(3, "slower-kernels")]


def pipeline(micro_batches, stages, replicas, changed):
    """Forward only: each stage works and hands on; its replicas reduce gradients at the end of the step."""

    def rank(number):
        stage, replica = number % stages, number // stages
        before = (number - 1, number) if stage else None
        behind = (number, number + 1) if stage < stages - 1 else None
        group = tuple(stage + stages * other for other in range(replicas))
        own = changed(stage, replica)

        def step():
            for _ in range(micro_batches):
                if before:
                    yield Meet(before, 20 * US, "pp", "send-recv")
                yield Work(500 * US * own.get("slow", 1.0), "compute/gemm", "dense")
                yield from own.get("extra", ())
                if behind:
                    yield Meet(behind, 20 * US, "pp", "send-recv")
            if replicas > 1:
                yield Meet(group, 200 * US)

        return [list(step()) for _ in range(STEPS)]

    return played([rank(number) for number in range(stages * replicas)])


def test_waiting_for_the_stage_before_is_no_lateness():
    job = judged(pipeline(4, 4, 1, lambda *_: {}))

    assert job.stragglers == ()
    assert [stage.places for stage in job.pipeline] == [(0,), (1,), (2,), (3,)]
    assert all(one.peer_wait_ns == 0 for one in job.members)
    assert job.pipeline[3].bubble_ns > 0


@pytest.mark.parametrize("has_peers", [False, True], ids=["pairs", "one communicator"])
def test_stages_are_told_from_the_messages_of_neighbors(has_peers):
    """Against what was planted: the rank is the stage, also where all share one communicator."""
    job = judged(pipeline(4, 4, 1, lambda *_: {}), has_peers=has_peers)

    assert [member.stage for member in job.members] == [0, 1, 2, 3]
    assert (job.collectives.matched, job.collectives.unmatched) == (3 * 4 * STEPS, 0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"slow": 1.3}, "slower-kernels"),
        (beside(200, "compute/gemm", "vocabulary"), "other-work"),
    ],
    ids=["slower", "other work"],
)
def test_a_stage_that_has_more_to_do_is_named(change, reason):
    job = judged(pipeline(8, 4, 1, lambda stage, _: change if stage == 2 else {}))

    assert [(one.rank, one.reason) for one in job.stragglers] == [(2, reason)]


def test_a_slow_replica_of_a_stage_is_named_among_its_peers():
    def slow(stage, replica):
        return {"slow": 1.1} if (stage, replica) == (1, 2) else {}

    job = judged(pipeline(4, 2, 4, slow))

    assert job.stragglers[0].rank == 2 * 2 + 1
    assert job.stragglers[0].reason == "slower-kernels"
    assert all(one.stage == one.place % 2 for one in job.members)


def test_ranks_of_different_work_are_different_groups():
    extra = beside(300, "compute/gemm", "vocabulary")
    job = judged(pipeline(4, 2, 2, lambda stage, _: extra if stage else {}))

    assert [group.ranks for group in job.groups] == [(0, 2), (1, 3)]


def test_parts_add_up_and_no_rank_waits_for_itself():
    job = judged(plain(4, lambda rank, _: {"slow": 1.2} if rank == 1 else {}))

    for one in job.members:
        parts = one.transfer_ns + one.peer_wait_ns + one.pipeline_wait_ns + one.unsplit_ns
        assert abs(parts - one.residence_ns) <= 2
    assert job.members[1].peer_wait_ns < 0.01 * job.members[0].peer_wait_ns
    assert job.dominant_wall == "compute"


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(0, 9), st.booleans(), st.booleans()),
        max_size=6,
    )
)
def test_a_moment_in_several_collectives_counts_once(operations):
    """Against a count of every ns: the first of peer wait, pipeline wait, transfer and unsplit time."""
    rows = [
        (start, start + length, min(wait, length), whole, pipeline)
        for start, length, wait, whole, pipeline in operations
    ]
    counted = [0, 0, 0, 0]
    for at in range(30):
        running = [row for row in rows if row[0] <= at < row[1]]
        states = [
            (int(pipeline) if at < start + wait else 2) if whole else 3
            for start, _, wait, whole, pipeline in running
        ]
        if states:
            counted[min(states)] += 1
    names = ("start_ns", "end_ns", "wait_ns", "is_whole", "is_pipeline")
    types = (pl.Int64, pl.Int64, pl.Int64, pl.Boolean, pl.Boolean)
    frame = pl.DataFrame(rows, schema=dict(zip(names, types, strict=True)), orient="row")

    assert list(_unite_parts(frame)) == counted


def test_of_ranks_whose_chains_wait_alike_the_one_that_waits_least_represents_them():
    (member, *_) = judged(plain(2)).members
    alike = replace(member, blocking_peer_wait_ns=0, peer_wait_ns=5)
    by_all_waiting = replace(alike, peer_wait_ns=1)

    assert min((alike, by_all_waiting), key=_waiting_order) is by_all_waiting


def test_the_slowest_stage_represents_a_pipeline():
    extra = beside(300, "compute/gemm", "vocabulary")
    job = judged(pipeline(4, 2, 2, lambda stage, _: extra if stage else {}))

    assert job.critical_rank in {1, 3}


def test_a_capture_that_lacks_the_first_collectives_is_laid_beside_the_others():
    ranks = plain(4, jitter_ns=20 * US)
    told = profiles(ranks, nodes(4, 30, 10))
    told[3] = replace(told[3], collectives=told[3].collectives.slice(5))
    job = match_ranks(told, lambda walls, unknown: decide_wall(walls, unknown).dominant).job

    assert job.collectives.unmatched == 0
    assert job.collectives.partial == 5
    assert job.stragglers == ()


@pytest.mark.parametrize("has_communicators", [True, False], ids=["payloads", "no payloads"])
def test_groups_inside_nodes_and_across_them_are_told_apart(has_communicators):
    rng = np.random.default_rng(5)

    def rank(number):
        node = tuple(range(number // 4 * 4, number // 4 * 4 + 4))
        across = tuple(range(number % 4, 16, 4))
        slow = 1.05 if number == 9 else 1.0
        layer = (Meet(node, 30 * US, "tp"), Meet(across, 300 * US))

        def step():
            for _ in range(4):
                yield Work(200 * US * slow + abs(rng.normal(0, 3 * US)))
                yield layer[0]
            yield layer[1]

        return [list(step()) for _ in range(STEPS)]

    hosts = [Host(f"node-{number // 4}", number // 4 * 7 * MS, number // 4 * 3.0) for number in range(16)]
    job = judged(played([rank(number) for number in range(16)]), hosts, has_communicators=has_communicators)

    assert (job.collectives.matched, job.collectives.partial, job.collectives.unmatched) == (200, 0, 0)
    if has_communicators:  # groups that always end together are told apart by name alone
        assert [(one.rank, one.reason) for one in job.stragglers] == [(9, "slower-kernels")]
    assert {(kind.axis, kind.participants) for kind in job.collectives.kinds} == {
        ("tp", 4),
        ("dp-gradient", 4),
    }


def test_meetings_of_one_rank_tell_nothing_of_clocks():
    alone = pl.DataFrame({"meeting": [0, 1], "operation": ["all-reduce"] * 2, "end_ns": [5, 9]})

    assert _residuals(alone) == (None, None)
