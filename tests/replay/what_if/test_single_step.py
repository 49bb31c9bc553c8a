"""The only marked step of a capture: what its causes cost, from the begin of its mark to its end."""

import sqlite3
from contextlib import closing

import pytest

from fixtures.simulation.program import HostThread, Program, SyncDevice, Work, stepped
from fixtures.simulation.run import run
from fixtures.simulation.story import US, gemm
from fixtures.simulation.writing import write_run
from wallscope.model.capture import Options
from wallscope.pipeline import analyze


@pytest.mark.parametrize("wait_us", [0, 300])
@pytest.mark.parametrize("work_us", [600, 2_000])
def test_a_cause_of_the_only_step_has_a_bound(work_us, wait_us, tmp_path):
    """The host works before the first kernel, and again after a synchronization."""
    work = (Work(work_us * US), *(gemm(100) for _ in range(10)), SyncDevice(), Work(wait_us * US), gemm(100))
    write_run(run(Program(((HostThread("python", stepped(1, lambda _: work)),),))), tmp_path / "run.sqlite")
    found = analyze(tmp_path / "run.sqlite", Options(), lambda _: None)
    bounds = {one.cause: one.recoverable_ns for one in found.opportunities}
    (step,) = found.ranks[0].steps

    assert step.steady
    assert bounds["host/framework"] == pytest.approx(work_us * US, abs=5 * US)
    if wait_us:
        drained = bounds["host/queue-drained/cudaDeviceSynchronize"]
        assert drained == pytest.approx(wait_us * US, abs=20 * US)
    for recoverable_ns in bounds.values():
        assert recoverable_ns <= step.end_ns - step.start_ns - 11 * 100 * US


def test_without_launch_calls_the_only_step_has_no_bound(tmp_path):
    work = (Work(600 * US), *(gemm(100) for _ in range(10)))
    path = tmp_path / "run.sqlite"
    write_run(run(Program(((HostThread("python", stepped(1, lambda _: work)),),))), path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME")
    found = analyze(path, Options(), lambda _: None)

    assert all(one.recoverable_ns is None for one in found.opportunities)
