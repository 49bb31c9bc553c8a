"""Small exports with many of one thing take time that grows with them, not with their square."""

import resource
import subprocess
import sys

import pytest

from fixtures.export import ExportWriter
from tests.conftest import ROOT
from wallscope import kernels

LONGEST_CPU_S = 60
MOST_BYTES = 2 << 30

pytestmark = pytest.mark.skipif(not kernels.is_compiled(), reason="interpreted loops take far longer")


def launch(writer, start_ns, **where):
    kernel = {key: value for key, value in where.items() if key in {"device", "stream", "pid"}}
    call = {key: value for key, value in where.items() if key in {"thread", "pid"}}
    number = writer.call("cudaLaunchKernel", start_ns, start_ns + 100, **call)
    name = where.get("name", "gemm")
    writer.kernel(name, start_ns + 200, start_ns + 900, correlation=number, **kernel)


def some_steps(writer):
    writer.gpu()
    for step in range(10):
        writer.range("step", step * 10_000, (step + 1) * 10_000)
        launch(writer, step * 10_000 + 100)


def devices(writer, count):
    for device in range(count):
        writer.gpu(device)
        for step in range(5):
            launch(writer, step * 1_000, device=device, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL")


def ranks(writer, count):
    for device in range(count):
        writer.gpu(device)
        for step in range(5):
            launch(writer, step * 1_000, device=device, pid=1_000 + device)


def threads_of_ranges(writer, count):
    some_steps(writer)
    for thread in range(count):
        writer.range("r", thread * 500, thread * 500 + 400, thread=2_000 + thread)


def threads_of_calls(writer, count):
    some_steps(writer)
    for thread in range(count):
        launch(writer, thread * 1_000, thread=2_000 + thread, stream=8)


def threads_of_both(writer, count):
    some_steps(writer)
    for thread in range(count):
        writer.range("r", thread * 1_000, thread * 1_000 + 950, thread=2_000 + thread)
        launch(writer, thread * 1_000, thread=2_000 + thread, stream=8)


def nested_alike(writer, count):
    some_steps(writer)
    for depth in range(count):
        writer.range("r", depth, 10**9 - depth)


def nested_unlike(writer, count):
    some_steps(writer)
    for depth in range(count):
        writer.range(f"r{depth}", depth, 10**9 - depth)


def nested_with_work(writer, count):
    writer.gpu()
    for depth in range(count):
        writer.range(f"r{depth % 7}", depth * 1_000, 2_000 * count - depth * 1_000)
        launch(writer, depth * 1_000 + 1)


def streams(writer, count):
    some_steps(writer)
    for stream in range(count):
        launch(writer, stream * 1_000, stream=100 + stream)


def names(writer, count):
    some_steps(writer)
    for number in range(count):
        launch(writer, number * 1_000, name=f"kernel_{number}x")


def steps(writer, count):
    writer.gpu()
    for step in range(count):
        writer.range("step", step * 1_000, (step + 1) * 1_000)
        launch(writer, step * 1_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "count"),
    [
        (devices, 500),
        (ranks, 500),
        (threads_of_ranges, 40_000),
        (threads_of_calls, 10_000),
        (threads_of_both, 10_000),
        (nested_alike, 200_000),
        (nested_unlike, 100_000),
        (nested_with_work, 20_000),
        (streams, 10_000),
        (names, 20_000),
        (steps, 20_000),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_many_of_one_thing_take_no_square_of_time(tmp_path, write, count):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path) as writer:
        write(writer, count)

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_CPU_S, LONGEST_CPU_S))

    ran = subprocess.run(
        [sys.executable, "-m", "wallscope", "analyze", path, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=limit,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-500:]
