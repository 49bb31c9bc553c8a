"""Host time for which an unprofiled step has no room is that of the profiler."""

import pytest

from fixtures.simulation.names import GEMM
from fixtures.simulation.program import HostThread, Launch, Program, SyncDevice, Work, stepped
from fixtures.simulation.run import run
from fixtures.simulation.writing import write_run
from wallscope.model.capture import Options
from wallscope.model.diagnosis import StepFacts
from wallscope.pipeline import analyze

MS = 1_000_000
PROFILER = "unattributed/profiler"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Steps of 10 ms of host time, then 10 ms of compute."""
    step = [Work(10 * MS), *([Launch(GEMM, 2 * MS)] * 5), SyncDevice()]
    played = run(Program(((HostThread("main", stepped(8, lambda _: step)),),)))
    found = tmp_path_factory.mktemp("run") / "run.sqlite"
    write_run(played, found)
    return found


def ask(path, unprofiled_ns):
    found = analyze(path, Options(step_facts=StepFacts(unprofiled_step_ns=unprofiled_ns)), lambda _: None)
    causes = {one.cause: one.typical_ns for one in found.ranks[0].causes}
    codes = {one.code: one.message for one in found.capture.findings}
    return found, causes, codes.get("unprofiled-step")


@pytest.mark.parametrize(
    ("unprofiled_ms", "host_ms", "wall"), [(10.5, 0.5, "compute"), (14, 4, "host"), (18, 8, "host")]
)
def test_host_time_is_what_the_unprofiled_step_leaves_room_for(path, unprofiled_ms, host_ms, wall):
    found, causes, said = ask(path, round(unprofiled_ms * MS))
    walls = found.ranks[0].typical.walls

    assert walls.host == pytest.approx(host_ms * MS, abs=0.1 * MS)
    assert causes[PROFILER] == walls.unattributed == pytest.approx((10 - host_ms) * MS, abs=0.1 * MS)
    assert sum(walls.parts()) == found.ranks[0].typical.step_ns
    assert found.diagnosis.dominant_wall == wall
    assert found.diagnosis.confidence.level != "high"
    assert "Without the profiler, 10.0 ms" in said


@pytest.mark.parametrize("unprofiled_ms", [None, 20.1, 40])
def test_a_step_that_is_no_longer_in_the_capture_has_nothing_of_it(path, unprofiled_ms):
    _, causes, said = ask(path, None if unprofiled_ms is None else round(unprofiled_ms * MS))

    assert PROFILER not in causes
    assert said is None


def test_a_step_shorter_than_its_compute_is_not_used(path):
    found, causes, said = ask(path, 5 * MS)

    assert PROFILER not in causes
    assert found.diagnosis.dominant_wall == "host"
    assert "shorter than the 10.0 ms" in said


def test_no_bound_wins_more_than_the_host_time_that_is_left(path):
    found, _, _ = ask(path, round(10.5 * MS))
    host = [one for one in found.opportunities if one.cause.startswith("host/")]
    fixes = [fix for fix in found.fixes if all(cause.startswith("host/") for cause in fix.causes)]

    assert fixes
    for one in (*host, *fixes):
        assert (one.recoverable_ns or 0) <= 0.6 * MS
