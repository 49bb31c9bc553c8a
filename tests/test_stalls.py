"""Small inputs with many of one thing take time that grows with them, not with their square."""

import resource
import subprocess
import sys

import pytest

from fixtures import many
from tests.conftest import ROOT
from wallscope import kernels

LONGEST_CPU_S = 60

pytestmark = pytest.mark.skipif(not kernels.is_compiled(), reason="interpreted loops take far longer")

LARGE = {
    many.devices: 500,
    many.processes: 500,
    many.threads_of_ranges: 40_000,
    many.threads_of_calls: 10_000,
    many.threads_of_both: 10_000,
    many.nested_alike: 200_000,
    many.nested_unlike: 100_000,
    many.nested_with_work: 20_000,
    many.streams: 10_000,
    many.names: 20_000,
    many.steps: 20_000,
}
"""What once took the square of its number, with as many as docs/robustness.md promises."""


def run_within_a_minute(*words):
    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_CPU_S, LONGEST_CPU_S))

    ran = subprocess.run(
        [sys.executable, "-m", "wallscope", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=limit,
        check=False,
    )
    assert ran.returncode in {0, 2}, ran.stderr[-500:]
    assert ran.returncode == 0 or ran.stderr.count("\n") == 1
    return ran


@pytest.mark.slow
@pytest.mark.parametrize("fill", many.EXPORTS, ids=lambda fill: fill.__name__)
def test_many_of_one_thing_take_no_square_of_time(tmp_path, fill):
    path = many.write_export(tmp_path / "run.sqlite", fill, LARGE.get(fill, many.EXPORTS[fill]))
    assert run_within_a_minute("analyze", path, "--no-cache").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("write", many.TRACES, ids=lambda write: write.__name__)
def test_nor_do_they_in_a_trace(tmp_path, write):
    path = write(tmp_path / "run.json", many.TRACES[write])
    assert run_within_a_minute("analyze", path, "--no-cache").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("write", many.CONFIGURATIONS, ids=lambda write: write.__name__)
def test_nor_do_they_in_a_configuration(tmp_path, write):
    run_within_a_minute("check-config", write(tmp_path / "run.yaml", 5 * many.CONFIGURATIONS[write]))
