"""What the tests of the server share: a root with files, a call of each tool, a worker without a process."""

import json
import math
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
    shutil.copy2(EXAMPLE, root / "run.sqlite")  # its time too, by which answers are found in the cache
    shutil.copy2(EXAMPLE, root / "again.sqlite")
    (root / "broken.sqlite").write_bytes(b"SQLite format 3\x00" + bytes(200))
    (root / "run.yaml").write_text(CONFIG, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def in_process(monkeypatch, shared_cache):
    """Answer calls in this process, with one cache, many times faster than in a worker of its own."""
    import anyio
    from anyio.streams.buffered import BufferedByteReceiveStream

    from wallscope.agents import server
    from wallscope.agents.worker import answer_call

    async def run_worker(call, context):
        lines, received = anyio.create_memory_object_stream[bytes](math.inf)
        written = []
        spelled = json.loads(json.dumps(call))
        await anyio.to_thread.run_sync(answer_call, spelled, lambda **line: written.append(json.dumps(line)))
        for line in written:
            lines.send_nowait(f"{line}\n".encode("ascii"))
        lines.close()
        with received:
            return await server._read_answer(BufferedByteReceiveStream(received), context)

    monkeypatch.setattr(server, "_run_worker", run_worker)
    monkeypatch.setenv("WALLSCOPE_CACHE_DIR", str(shared_cache))


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
