"""Start-up is a cause of captures without steps alone, and needs a call that a program makes once."""

import pytest

from fixtures.simulation.names import GEMM
from fixtures.simulation.program import (
    Allocate,
    Call,
    Copy,
    HostThread,
    Launch,
    Pop,
    Program,
    Push,
    SyncDevice,
    Work,
)
from fixtures.simulation.run import run
from fixtures.simulation.writing import write_run
from wallscope.model.capture import Options
from wallscope.pipeline import analyze

MS = 1_000_000
COPY = Copy("host-to-device", 1_000_000, 100_000)
ONCE = {
    "a stream is created": Call("cudaStreamCreateWithFlags", MS),
    "a module is loaded": Call("cuModuleLoadData", 2 * MS),
    "memory is allocated": Allocate(MS),
}


def ask(tmp_path, *actions):
    path = tmp_path / "run.sqlite"
    write_run(run(Program(((HostThread("main", actions),),))), path)
    found = analyze(path, Options(), lambda _: None)
    return found, {one.cause: one.typical_ns for one in found.ranks[0].causes}


@pytest.mark.parametrize("once", ONCE)
def test_the_host_starts_up_until_the_first_kernel(once, tmp_path):
    found, causes = ask(
        tmp_path, COPY, Work(5 * MS), ONCE[once], Work(5 * MS), Launch(GEMM, 3 * MS), SyncDevice()
    )

    assert found.anchor.kind == "whole-trace"
    assert causes["host/start-up"] == pytest.approx(11 * MS, abs=1.2 * MS)
    assert "memory/allocator" not in causes


def test_time_before_the_first_kernel_is_no_start_up_without_such_a_call(tmp_path):
    _, causes = ask(tmp_path, COPY, Work(10 * MS), Launch(GEMM, 3 * MS), SyncDevice())

    assert "host/start-up" not in causes
    assert causes["host/framework"] == pytest.approx(10 * MS, abs=0.2 * MS)


def test_a_module_that_is_loaded_later_is_start_up_alone(tmp_path):
    launch, load = Launch(GEMM, 3 * MS), ONCE["a module is loaded"]
    _, causes = ask(tmp_path, launch, SyncDevice(), Work(4 * MS), load, launch, SyncDevice())

    assert causes["host/start-up"] == pytest.approx(2 * MS, abs=0.1 * MS)


def test_a_marked_step_has_no_start_up(tmp_path):
    step = [
        Push("training_step_1"),
        COPY,
        ONCE["a stream is created"],
        Launch(GEMM, 3 * MS),
        SyncDevice(),
        Pop(),
    ]
    _, causes = ask(tmp_path, *step * 4)

    assert "host/start-up" not in causes
