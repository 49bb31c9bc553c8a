"""What the tests of the server share: a root with files, and a call of each tool."""

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.shipped_example import EXAMPLE

CONFIG = "model:\n  tensor_model_parallel_size: 3\n  num_attention_heads: 8\n"
CALLS = {
    "analyze": {"files": ["run.sqlite"]},
    "time_breakdown": {"files": ["run.sqlite"]},
    "recommendations": {"files": ["run.sqlite"]},
    "gaps": {"file": "run.sqlite"},
    "whatif": {"file": "run.sqlite"},
    "compare": {"base": "run.sqlite", "head": "again.sqlite"},
    "explain": {"word": "ep-overlap"},
    "check_config": {"file": "run.yaml"},
    "capture_help": {"file": "run.sqlite"},
}


def run_apart(function, *arguments):
    """Run a coroutine in a thread of its own: a browser of another test may run a loop in this one."""
    import anyio  # comes with the SDK, without which nothing here runs

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(anyio.run, function, *arguments).result()


@pytest.fixture
def folder(tmp_path):
    """A root with the example, an export without device operations, a broken file and a configuration."""
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy(EXAMPLE, root / "run.sqlite")
    shutil.copy(EXAMPLE, root / "again.sqlite")
    (root / "broken.sqlite").write_bytes(b"SQLite format 3\x00" + bytes(200))
    (root / "run.yaml").write_text(CONFIG, encoding="utf-8")
    return root


NSYS = """#!{python}
import os, shutil, sys, time
from pathlib import Path
made = Path(sys.argv[sys.argv.index("-o") + 1])
{does}
"""


@pytest.fixture
def install_nsys(tmp_path, monkeypatch):
    """Install a program called nsys; `made` is the path that it is to write."""

    def install(does):
        program = tmp_path / "bin" / "nsys"
        program.parent.mkdir()
        program.write_text(NSYS.format(python=sys.executable, does=does))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")

    return install
