"""Under nsys the program keeps its streams, signals and exit code, and each way to start it works."""

import json
import os
import signal
import stat
import subprocess
import sys

import pytest

from fixtures.export import ExportWriter
from tests.capture.conftest import FAKE, LOOP, Captured, command, environment
from tests.conftest import ROOT
from tests.shipped_example import EXAMPLE
from wallscope.capture.nsys_program import NSYS_VARIABLE
from wallscope.views.host_page import NO_GPU_WORK

RANKS = """
import os, subprocess, sys
ranks = [
    subprocess.Popen(
        [sys.executable, *sys.argv[1:]], env={**os.environ, "RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    )
    for rank in range(2)
]
codes = [one.wait() for one in ranks]
sys.exit(max(codes))
"""


@pytest.fixture
def nsys_environment(tmp_path):
    """An environment with the fake nsys, and a fake GPU."""
    nsys = tmp_path / "bin/nsys"
    nsys.parent.mkdir()
    text = (FAKE / "fake_nsys.py").read_text()
    nsys.write_text(f"#!{sys.executable} -IS\n{text}")
    nsys.chmod(nsys.stat().st_mode | stat.S_IXUSR)
    sessions = tmp_path / "sessions"
    sessions.mkdir()

    return {
        **environment(),
        NSYS_VARIABLE: str(nsys),
        "FAKE_NSYS": str(sessions),
        "FAKE_EXPORT": os.devnull,  # the analysis refuses it at once
        "FAKE_CUDA_CALLS": str(tmp_path / "cuda"),
        "PYTHONPATH": os.pathsep.join((str(FAKE), str(ROOT))),
    }


@pytest.fixture
def under_nsys(tmp_path, write, nsys_environment):
    """Capture a program with the fake nsys."""

    def run(text: str, *options: str, launcher=(), **more: str) -> Captured:
        folder = tmp_path / "captured"
        ran = subprocess.run(
            [*command(folder, *options), "--", sys.executable, *launcher, write(text)],
            env={**nsys_environment, **more},
            cwd=tmp_path,
            capture_output=True,
            check=False,
            timeout=120,
        )
        return Captured(ran.returncode, ran.stdout, ran.stderr.decode(), folder)

    return run


def loop(steps: int = 30, pause: float = 0.002) -> str:
    return LOOP.format(steps=steps, pause=pause)


def cuda_calls(found: Captured) -> list[str]:
    return (found.folder.parent / "cuda").read_text().splitlines()


def test_cuda_starts_nsys_and_ranges_mark_the_steps(under_nsys):
    found = under_nsys(loop(), "--start", "cuda", FAKE_EXPORT=str(EXAMPLE))

    assert (found.code, found.out) == (0, b"done 29\n")
    calls = [call for call in cuda_calls(found) if call != "pop"]
    assert calls == [
        *("synchronize", "synchronize", "push wallscope", "start", "push wallscope_guard"),
        *(f"push wallscope_step_{step}" for step in range(11, 16)),
        *("push wallscope_guard", "synchronize", "stop", "synchronize", "synchronize"),
    ]
    assert "COMMUNICATION-BOUND" in found.err  # the export that this nsys always makes
    assert found.record["marks"] == "torch.cuda.nvtx"
    assert "Generated" not in found.err
    assert "Generated" in (found.folder / f"nsys-{found.record['report']}.log").read_text()


def test_a_session_starts_and_stops_nsys_once(under_nsys, tmp_path):
    found = under_nsys(loop(), "--start", "session")

    assert (found.code, found.out) == (0, b"done 29\n")
    assert (tmp_path / "sessions/calls").read_text() == "start\nstop\n"
    assert "this nsys lacks --cuda-graph-trace=node" in found.err
    assert found.record["errors"] == []


def test_a_range_starts_nsys(under_nsys):
    found = under_nsys(loop(), "--start", "nvtx")

    calls = cuda_calls(found)
    assert calls.index("push wallscope_capture") < calls.index("push wallscope_guard")
    assert calls.count("pop") == sum(call.startswith("push") for call in calls)


def test_a_capture_by_time_needs_no_step_and_no_hook(under_nsys, tmp_path):
    program = "import os\nprint(os.environ.get('WALLSCOPE_CAPTURE'))\n"
    found = under_nsys(program, "--delay", "3", "--duration", "2", FAKE_EXPORT=str(EXAMPLE))

    assert (found.code, found.out) == (0, b"None\n")
    assert found.said[0].startswith("captures 2 s after 3 s with nsys")
    assert "COMMUNICATION-BOUND" in found.err
    assert "step was seen" not in found.err
    flags = json.loads((tmp_path / "sessions/profile").read_text())
    assert {"--delay=3", "--duration=2", "--kill=none"} <= set(flags)
    assert not [flag for flag in flags if flag.startswith(("--capture-range", "--start-later"))]


def test_a_program_that_ends_before_the_capture_by_time_is_said(under_nsys):
    found = under_nsys("print('out')", "--delay", "3", "--duration", "2", FAKE_NSYS_REPORT="0")

    assert found.code == 0
    assert "the program may have ended before the capture began" in found.said[-1]


def test_without_work_of_a_gpu_one_line_says_so_and_the_page_has_what_there_is(under_nsys, tmp_path):
    with ExportWriter(tmp_path / "host.sqlite") as writer:
        writer.range("wallscope_step_11", 0, 5_000_000)
    page = tmp_path / "run.html"
    runs_on = "import time; time.sleep(12)\n"  # so long after a verdict that it would be shown again
    found = under_nsys(
        loop() + runs_on, "--start", "session", "--html", str(page), FAKE_EXPORT=str(tmp_path / "host.sqlite")
    )

    assert (found.code, found.out) == (0, b"done 29\n")
    assert found.said.count(NO_GPU_WORK) == 1
    text = page.read_text()
    assert "No GPU worked in this capture" in text
    assert "NVTX ranges, marks and names" in text
    assert "off, before" in text


@pytest.mark.parametrize("start", ["cuda", "session"])
def test_the_exit_code_is_that_of_the_program(under_nsys, start):
    found = under_nsys(loop() + "sys.exit(7)\n", "--start", start)

    assert (found.code, found.out) == (7, b"done 29\n")


def test_a_deadly_signal_of_the_program_ends_the_command(under_nsys):
    found = under_nsys(
        loop() + "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n", "--start", "session"
    )

    assert found.code == -15
    assert "the program ended with signal SIGTERM" in found.err


def test_the_streams_are_those_of_the_command(under_nsys):
    found = under_nsys(
        "import os, sys, torch\n"
        "print(sorted(int(one) for one in os.listdir('/proc/self/fd'))[:4]); sys.stderr.write('err\\n')\n",
        *("--start", "session"),
    )

    assert found.out == b"[0, 1, 2, 3]\n"
    assert "\nerr\n" in found.err


def test_a_start_that_cuda_refuses_is_the_side_of_the_program(under_nsys):
    found = under_nsys(loop(), "--start", "cuda", FAKE_CUDA_CODE="35", FAKE_NSYS_REPORT="0")

    assert (found.code, found.out) == (0, b"done 29\n")
    line = "the program could not start or stop the capture: RuntimeError: cudaProfilerStart returned"
    assert f"{line} the CUDA error 35" in found.said


def test_a_session_that_fails_is_said(under_nsys):
    found = under_nsys(loop(), "--start", "session", FAKE_NSYS_FAILS="start")

    assert found.code == 0
    assert any("nsys start ended with code 1: There is no session" in line for line in found.said)


def test_a_missing_report_is_the_side_of_nsys(under_nsys):
    found = under_nsys(loop(), "--start", "cuda", FAKE_NSYS_REPORT="0")

    assert found.code == 0
    assert any(
        "started and stopped the capture, and nsys wrote no report: see" in line for line in found.said
    )


@pytest.mark.parametrize("start", ["session", "cuda"])
def test_each_rank_has_its_report(under_nsys, write, start):
    launcher = write(RANKS, "launch.py")
    found = under_nsys(loop() + "sys.exit(4)\n", "--per-rank", "--start", start, launcher=(launcher,))

    assert found.code == 4
    assert found.out == b"done 29\ndone 29\n"
    assert [(one["rank"], one["report"], one["captured_steps"]) for one in found.records] == [
        (0, "rank-0", 5),
        (1, "rank-1", 5),
    ]
    assert {path.name for path in found.folder.glob("*.nsys-rep")} == {"rank-0.nsys-rep", "rank-1.nsys-rep"}


def test_one_report_has_all_ranks_of_a_node(under_nsys, write):
    launcher = write(RANKS, "launch.py")
    found = under_nsys(loop(), "--start", "session", launcher=(launcher,))

    assert found.code == 0
    assert len({one["report"] for one in found.records}) == 1
    assert len(found.records) == 2
    assert (found.folder.parent / "sessions/calls").read_text() == "start\nstop\n"


def test_a_task_of_a_launcher_names_its_report_and_leaves_the_verdict_to_the_first(under_nsys):
    found = under_nsys(loop(), "--start", "session", SLURM_PROCID="3", SLURM_NTASKS="8")

    assert found.record["report"].endswith("-rank-3")
    assert found.record["rank"] == 3
    assert "all ranks together: wallscope analyze captured" in found.said
    assert "BOUND" not in found.err


def test_ctrl_c_reaches_the_program_and_not_nsys(tmp_path, write, nsys_environment):
    text = """
import sys, time, torch
optimizer = torch.optim.SGD()
try:
    for step in range(2_000):
        optimizer.step()
        if step == 13: print("start", flush=True)
        time.sleep(0.002 if step < 14 else 0.05)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
"""
    words = [*command(tmp_path / "captured", "--start", "session", "--steps", "1000"), "--", sys.executable]
    with subprocess.Popen(
        [*words, write(text)],
        env=nsys_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as process:
        assert process.stdout.readline() == "start\n"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (130, "interrupted\n")
    assert (tmp_path / "sessions/calls").read_text() == "start\nstop\n"
    assert "the capture ended early" in err
