"""The command: the program stays as it is, and what happened is said in one line each."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.capture.conftest import FAKE, LOOP, command, environment
from tests.capture.test_record import CONTENT
from tests.conftest import ROOT
from wallscope.capture.plan import CaptureRequest, find_launched_rank, plan_capture
from wallscope.capture.run import CaptureRun
from wallscope.model.capture import Profiler
from wallscope.views.host_page import NO_GPU_WORK


def loop(steps: int = 30, pause: float = 0.004) -> str:
    return LOOP.format(steps=steps, pause=pause)


def test_a_program_gets_its_verdict_and_keeps_its_output(captured, tmp_path):
    found = captured(loop(), "--html", str(tmp_path / "run.html"))

    assert found.code == 0
    assert found.out == b"done 29\n"
    first, second, *_ = found.said
    assert first.startswith("captures 5 steps after 10 steps of warm-up with PyTorch's profiler;")
    assert first.endswith("then the program runs on, --end would end it")
    assert second == "files go to captured"
    assert re.search(r"(?m)^rank-0.json.gz · H100 80GB HBM3", found.err)
    assert "BOUND" in found.err
    assert f"Wrote {tmp_path / 'run.html'}" in found.err
    assert sorted(path.name for path in found.folder.iterdir()) == [
        next(path.name for path in found.folder.glob("hook-*-rank-0-*.json")),
        "rank-0.json.gz",
    ]


@pytest.mark.skipif(
    Path("/proc/driver/nvidia/version").exists() or Path("/dev/kfd").exists(), reason="a GPU is here"
)
def test_a_program_of_the_cpu_gets_a_page_without_a_verdict(captured, tmp_path):
    page = tmp_path / "run.html"
    found = captured(loop(), "--html", str(page), FAKE_CPU="1")

    assert found.code == 0
    assert NO_GPU_WORK in found.said
    assert "BOUND" not in found.err
    assert "Step times on the host" in page.read_text()


@pytest.mark.parametrize("code", [0, 7])
def test_exit_codes_are_returned(captured, code):
    found = captured(f"import sys, torch\nprint('out'); print('err', file=sys.stderr); sys.exit({code})\n")

    assert (found.code, found.out) == (code, b"out\n")
    assert "\nerr\n" in found.err


def test_a_crash_is_shown_and_its_capture_is_kept(captured):
    found = captured(loop().replace("optimizer.step();", "1 / (14 - step); optimizer.step();"))

    assert found.code == 1
    assert "ZeroDivisionError: division by zero" in found.err
    assert found.record["is_early"]
    assert "the capture ended early: 2 of 5 steps" in found.said
    assert "rank-0.json.gz · H100" in found.err


def test_a_program_that_ends_in_the_warm_up_gets_a_smaller_skip(captured):
    found = captured(loop(6))

    assert found.code == 0
    assert found.said[-1] == "the program ended after 6 steps, before the 10 steps of warm-up: --skip 2"


def test_a_program_without_a_step_gets_the_option_that_names_it(captured):
    assert captured("import torch\n").said[-1] == (
        "no step was seen: the program called no optimizer of PyTorch, and no other step that is known."
        " Name its step: --step-function MODULE:FUNCTION"
    )


def test_a_program_that_fails_by_itself_gets_no_advice_on_steps(captured):
    found = captured("import torch, sys\nsys.exit(3)\n")

    assert found.code == 3
    assert found.said[-1].startswith("the program ended with exit code 3 after ")


def test_a_program_that_leaves_the_hook_out_is_named(tmp_path, write):
    folder = tmp_path / "captured"
    ran = subprocess.run(
        [*command(folder), "--", sys.executable, "-I", write("print(1)")],
        env={**environment(), "PYTHONPATH": os.pathsep.join((str(FAKE), str(ROOT)))},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0
    assert "no process loaded the hook that counts steps: Python -I, -E or -S" in ran.stderr


def run_command(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "wallscope", "capture", *words],
        env={**environment(**more), "PYTHONPATH": more.get("PYTHONPATH", str(ROOT))},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (("--", "no-such-program-anywhere"), 127, "no-such-program-anywhere — is not a program on the PATH"),
        (("--profiler", "nsys", "--", sys.executable), 3, "nsys — is not installed, or not on the PATH"),
        (
            ("--profiler", "torch", "--", sys.executable),
            3,
            "has no PyTorch — name the Python of the training",
        ),
        (
            ("--profiler", "torch", "--per-rank", "--", sys.executable),
            2,
            "--per-rank, --start and --trace — are for",
        ),
        (
            ("--profiler", "nsys", "--light", "--", sys.executable),
            2,
            "--light and --shapes — are for PyTorch's",
        ),
        (("--delay", "3", "--", sys.executable), 2, "--delay — says when a capture by time begins"),
        (
            ("--duration", "3", "--start", "nvtx", "--", sys.executable),
            2,
            "--duration — lets nsys capture by time",
        ),
        (("--html", "-", "--", sys.executable), 2, "--html - — standard output is that of the program"),
        ((), 2, "is missing"),
    ],
)
def test_what_cannot_be_captured_is_one_line_before_the_start(words, code, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = run_command(*words)

    assert ran.returncode == code
    assert line in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert ran.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def started(tmp_path, write):
    """Start a captured program in a session of its own; it has printed a line when this returns."""
    running: list[subprocess.Popen[str]] = []

    def start(text: str, *options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*command(tmp_path / "captured", *options), "--", sys.executable, write(text)],
            env={**environment(), "PYTHONPATH": os.pathsep.join((str(FAKE), str(ROOT)))},
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        running.append(process)
        assert process.stdout.readline() == "start\n"
        return process

    yield start
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


WAITING = """
import os, signal, sys, time, torch
optimizer = torch.optim.SGD()
{prepare}
try:
    for step in range(2_000):
        optimizer.step()
        if step == 13: print("start", flush=True)
        time.sleep(0.002 if step < 14 else 0.05)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
"""


def test_ctrl_c_goes_to_the_program_and_the_verdict_is_shown(started):
    process = started(WAITING.format(prepare=""), "--steps", "1000")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (130, "interrupted\n")
    assert re.search(r"the capture ended early: \d+ of 1,000 steps", err)
    assert "rank-0.json.gz · H100" in err


@pytest.mark.parametrize(
    ("number", "prepare", "code", "out"),
    [
        (signal.SIGTERM, "", -signal.SIGTERM, ""),
        (
            signal.SIGUSR1,
            "signal.signal(signal.SIGUSR1, lambda *_: (print('got it', flush=True), os._exit(5)))",
            5,
            "got it\n",
        ),
    ],
)
def test_a_signal_goes_to_the_program_and_its_end_is_returned(started, number, prepare, code, out):
    process = started(WAITING.format(prepare=prepare))
    process.send_signal(number)
    found, _ = process.communicate(timeout=60)

    assert (process.returncode, found) == (code, out)


def test_the_verdict_comes_while_the_program_runs(started):
    process = started(
        """
        import sys, time, torch
        optimizer = torch.optim.SGD()
        for step in range(30): optimizer.step(); time.sleep(0.002)
        print("start", flush=True)
        sys.stdin.read()
        """
    )
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "BOUND" in line:
            break

    assert process.poll() is None
    out, rest = process.communicate(timeout=60)  # closes its input
    assert (process.returncode, out) == (0, "")
    assert "the program ended with exit code 0" in rest


def test_end_leaves_the_program_after_the_capture(captured):
    began = time.monotonic()
    found = captured(loop(100_000, 0.002), "--end")

    assert found.code == 0
    assert found.out == b""
    assert found.record["steps"] == 21
    assert "then --end ends the program" in found.said[0]
    assert time.monotonic() - began < 60


def test_a_launched_rank_names_its_report(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert find_launched_rank() is None
    monkeypatch.setenv("SLURM_NTASKS", "8")
    assert find_launched_rank() == 3


class Endless:
    """A program that does not end."""

    def poll(self) -> None:
        return None


def test_a_capture_that_takes_too_long_gets_another_way_to_try(tmp_path, write, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(FAKE))
    plan = plan_capture(
        CaptureRequest((sys.executable, write("")), profiler=Profiler.TORCH, output=tmp_path / "captured")
    )
    said: list[str] = []
    run = CaptureRun(replace(plan, profiler=Profiler.NSYS), said.append, Endless())
    record = {**CONTENT, "run": plan.run, "phase": "capture", "steps": 10}
    (plan.folder / "hook-node-rank-0-1.json").write_text(json.dumps(record))

    run.follow()
    assert said == ["recording 5 steps after 10 steps"]
    clock = time.monotonic() + 500
    monkeypatch.setattr("wallscope.capture.run.time.monotonic", lambda: clock)
    run.follow()
    run.follow()
    assert len(said) == 2
    assert re.fullmatch(
        r"the capture takes 500 s by now, longer than expected; if it hangs, try --trace cuda-sw,nvtx",
        said[1],
    )
