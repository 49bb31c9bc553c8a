"""The one real pair of exports with two ranks each: who waits, and why, is said."""

from functools import cache

import pytest

from wallscope.model.capture import Options
from wallscope.pipeline import analyze


@cache
def answered(path):
    return analyze(path, Options(), lambda _: None)


@pytest.mark.parametrize(
    ("name", "waiting", "times_ms", "wall"),
    [
        pytest.param("nsysai_mfu_before", 0, (11.4, 17.2), "compute", id="before"),
        pytest.param("nsysai_mfu_after", 1, (18.2, 23.8), "host", id="after"),
    ],
)
def test_waiting_for_the_peer_is_told_from_moving_bytes(traces, name, waiting, times_ms, wall):
    job = answered(traces / f"{name}.sqlite").job
    waits_ms, of_ms = times_ms
    waiter, other = job.members[waiting], job.members[1 - waiting]

    assert round(waiter.all_wait_ns / 1e6, 1) == waits_ms
    assert round(waiter.all_residence_ns / 1e6, 1) == of_ms
    assert job.critical_place == other.place
    assert job.critical_wall == wall
    said = f"spends {of_ms} ms in collectives, including {waits_ms} ms of waiting for peers"
    assert said in job.verdict
    late = max(job.stragglers, key=lambda one: one.saved_ns)
    assert other.place in late.places
    assert late.cause_wall == "host"
    assert job.collectives.unmatched == 2
    assert (job.clock.method, len(job.groups)) == ("one-clock", 1)


def test_parts_of_a_residence_add_up(traces):
    for name in ("nsysai_mfu_before", "nsysai_mfu_after"):
        for one in answered(traces / f"{name}.sqlite").job.members:
            parts = one.transfer_ns + one.peer_wait_ns + one.pipeline_wait_ns + one.unsplit_ns
            assert abs(parts - one.residence_ns) <= 2


def test_the_diagnosis_speaks_of_the_critical_rank(traces):
    for name in ("nsysai_mfu_before", "nsysai_mfu_after"):
        found = answered(traces / f"{name}.sqlite")
        assert found.diagnosis.rank_index == found.job.critical_place
