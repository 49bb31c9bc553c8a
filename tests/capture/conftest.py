"""Programs that train with a PyTorch of a hundred lines, captured by the command in a process of its own."""

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT
from wallscope.capture.plan import CaptureRequest, plan_capture
from wallscope.model.capture import Profiler

FAKE = Path(__file__).parent / "fake"
LOOP = """
import sys, time, torch
optimizer = torch.optim.AdamW()
for step in range({steps}):
    time.sleep({pause})
    optimizer.step(); optimizer.zero_grad()
print("done", step)
"""


@dataclass(frozen=True)
class Captured:
    """A captured program: its code and output, what wallscope said, and the records of its processes."""

    code: int
    out: bytes
    err: str
    folder: Path

    @property
    def records(self) -> list[dict]:
        files = sorted(self.folder.glob("hook-*.json"))
        return sorted((json.loads(file.read_text()) for file in files), key=lambda one: one["rank"])

    @property
    def record(self) -> dict:
        (one,) = self.records
        return one

    @property
    def said(self) -> list[str]:
        start = "wallscope: "
        return [line.removeprefix(start) for line in self.err.splitlines() if line.startswith(start)]


def environment(**more: str) -> dict[str, str]:
    found = {**os.environ, "PYTHONPATH": str(FAKE), **more}
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        if name not in more:
            found.pop(name, None)
    return found


def command(folder: Path, *options: str) -> list[str]:
    return [sys.executable, "-P", "-m", "wallscope", "capture", "--output", str(folder), *options]


@pytest.fixture
def write(tmp_path):
    """Write a program, and return its path."""

    def written(text: str, name: str = "train.py") -> str:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return str(path)

    return written


@pytest.fixture
def hooked(tmp_path, write, monkeypatch):
    """Run a program with the hook alone, as planned for PyTorch's profiler."""
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(FAKE))

    def run(text: str, **asked) -> Captured:
        program = (sys.executable, write(text))
        folder = tmp_path / "captured"
        plan = plan_capture(CaptureRequest(program, profiler=Profiler.TORCH, output=folder, **asked))
        ran = subprocess.run(
            program, env=plan.environment, cwd=tmp_path, capture_output=True, check=False, timeout=60
        )
        return Captured(ran.returncode, ran.stdout, ran.stderr.decode(), folder)

    return run


@pytest.fixture
def captured(tmp_path, write):
    """Capture a program by its text."""

    def run(text: str, *options: str, python: str = sys.executable, arguments=(), **more: str) -> Captured:
        folder = tmp_path / "captured"
        ran = subprocess.run(
            [*command(folder, *options), "--", python, write(text), *arguments],
            env={**environment(**more), "PYTHONPATH": os.pathsep.join((str(FAKE), str(ROOT)))},
            cwd=tmp_path,
            capture_output=True,
            check=False,
            timeout=120,
        )
        return Captured(ran.returncode, ran.stdout, ran.stderr.decode(), folder)

    return run
