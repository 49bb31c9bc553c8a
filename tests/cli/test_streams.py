"""Exit codes and standard streams: 1 is a gate alone, missing, full and closed streams included."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT, slow
from wallscope.cli.streams import break_orders

COMMAND = f"'{sys.executable}' -m wallscope"
full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")


@pytest.fixture
def shell(tmp_path):
    def run(line, **environment):
        return subprocess.run(
            ["bash", "-c", line.replace("wallscope", COMMAND)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.mark.parametrize("wrong", ["absent.sqlite", pytest.param("--no-such-option", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "closed",
    [*slow("2>&-", ">&-", ">&- 2>&-"), "<&- >&- 2>&-", pytest.param("2>/dev/full", marks=full)],
)
def test_what_is_absent_is_2_whatever_is_closed(shell, closed, wrong):
    assert shell(f"wallscope info {wrong} {closed}").returncode == 2


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        pytest.param("wallscope --help >&-", {0}, id="nothing to write to"),
        pytest.param("wallscope --help >/dev/full", {2}, id="full", marks=full),
        pytest.param("wallscope --help >/dev/full 2>&1", {2}, id="both full", marks=full),
        pytest.param("set -o pipefail; wallscope --help | true", {0, 2}, id="no reader"),
    ],
)
def test_a_stream_that_takes_nothing_is_neither_a_gate_nor_a_defect(shell, line, codes):
    ran = shell(line)
    assert ran.returncode in codes
    assert "Traceback" not in ran.stderr


@full
@pytest.mark.parametrize(
    "streams",
    [("> /dev/full", ">&- 2>&-"), *slow(("> /dev/full", ">&-", "2>&-", "2> /dev/full", ">&- 2>&-"))],
    ids=["few", "all"],
)
def test_a_run_is_recorded_and_a_gate_fails_whatever_becomes_of_the_lines(shell, answers, tmp_path, streams):
    for name, commit in (("base", "a" * 40), ("head", "b" * 40)):
        ran = shell(f"wallscope record {answers}/{name}.json --commit {commit} --store s > /dev/full")
        assert ran.returncode == 2
        assert ran.stderr.startswith("wallscope: standard output — cannot be written: ")
    assert len(list(tmp_path.glob("s/records/*/*.json"))) == 2
    diff = f"wallscope diff {'a' * 40} {'b' * 40} --store s --fail-on 'step>3%'"
    for stream in streams:
        assert shell(f"{diff} {stream}").returncode == 1
    assert shell(f"set -o pipefail; {diff} | true").returncode == 1


def test_a_result_does_not_take_the_place_of_a_stream_that_is_closed(shell, answers, tmp_path):
    ran = shell(f"wallscope diff {answers}/base.json {answers}/head.json --json out.json >&- 2>&-")
    assert ran.returncode == 0
    assert json.loads((tmp_path / "out.json").read_text())["schema"]


def test_an_installation_that_is_broken_is_no_gate(shell, tmp_path):
    (tmp_path / "typer.py").write_text("raise RuntimeError('broken')")
    ran = shell("wallscope info x", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert ran.returncode == 70
    assert "RuntimeError: broken" in ran.stderr


def test_a_pipe_that_breaks_in_a_library_is_no_gate(called, monkeypatch):
    import wallscope.pipeline

    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(wallscope.pipeline, "analyze_capture", broken)
    stdout, stderr = sys.stdout, sys.stderr
    try:
        assert called("analyze", "run.sqlite").code == 2
    finally:
        sys.stdout, sys.stderr = stdout, stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_what_is_asked_to_end_leaves_nothing_behind(tmp_path, number, code):
    script = (
        f"import signal; signal.signal({int(number)}, signal.SIG_DFL)  # nohup ignores it\n"
        "import sys, os, time, wallscope.files as files\n"
        "from pathlib import Path\n"
        "from wallscope.cli import main as _\n"
        "import wallscope.cli\n"
        "def slow():\n"
        "    yield b'half'\n"
        "    print('writing', flush=True)\n"
        "    time.sleep(60)\n"
        "wallscope.cli.main = lambda: files.write_chunks(Path('out.json'), slow())\n"
        "from wallscope.__main__ import main\n"
        "main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(timeout=30) == code
    process.stdout.close()
    assert list(tmp_path.iterdir()) == []


ORDERS = (
    "::error::x",
    "  ::set-output name=a::b",
    "\u3000::warning::x",
    "\x1b[1m::notice::x",
    "a ##[error]x",
    "##vso[task.setvariable variable=PATH]x",
    "##teamcity[message text='x']",
    "section_start:1:x",
    "travis_fold:start:x",
    "--- group",
    "a\n::stop-commands::x",
)


@pytest.mark.parametrize("text", ORDERS)
def test_no_runner_obeys_what_is_broken_up(text):
    broken = break_orders(text)
    assert broken.replace("\u200b", "") == text
    for line in broken.splitlines():
        plain = line.replace("\x1b[1m", "").strip()
        assert not plain.startswith(("::", "---"))
        for order in ("##[", "##vso[", "##teamcity[", "section_start:", "travis_fold:"):
            assert order not in line


@pytest.mark.parametrize("text", ORDERS)
def test_json_says_the_same_without_orders(text):
    broken = break_orders(json.dumps({"name": text}))
    assert json.loads(broken) == {"name": text}
    assert not any(order in broken for order in ("##[", "##vso[", "##teamcity[", "section_start:"))


HOSTILE = "::error::x ##[error]y ##vso[task.complete]z"
PRINTING = (
    "wallscope analyze run.sqlite --no-cache",
    "wallscope kernels run.sqlite --csv -",
    "wallscope kernels run.sqlite --json -",
    'wallscope info "$(cat args)"',
    'wallscope "$(cat args)"',
    'wallscope analyze run.sqlite --rank "$(cat args)"',
)
OTHER_RUNNERS = ("TF_BUILD", "TEAMCITY_VERSION", "GITLAB_CI", "CI")


@pytest.mark.parametrize(
    ("runner", "lines"),
    [
        pytest.param("GITHUB_ACTIONS", PRINTING[::3], id="GITHUB_ACTIONS"),
        *(pytest.param(name, PRINTING[3:4], id=name) for name in OTHER_RUNNERS[::3]),
        *(
            pytest.param(name, PRINTING, marks=pytest.mark.slow, id=f"{name}-all")
            for name in ("GITHUB_ACTIONS", *OTHER_RUNNERS)
        ),
    ],
)
def test_names_and_arguments_give_a_runner_no_orders(shell, tmp_path, runner, lines):
    from fixtures.export import ExportWriter

    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.gpu()
        for step in range(4):
            start = step * 100_000
            writer.range("step", start, start + 90_000)
            number = writer.call("cudaLaunchKernel", start + 1_000, start + 2_000)
            writer.kernel(HOSTILE, start + 3_000, start + 80_000, correlation=number)
    (tmp_path / "args").write_text(HOSTILE)
    found = [shell(line, **{runner: "true"}) for line in lines]
    said = "".join(ran.stdout + ran.stderr for ran in found)
    assert "error" in said
    assert not any(order in said for order in ("##[", "##vso["))
    assert not any(line.strip().startswith("::") for line in said.splitlines())


def test_a_file_that_no_runner_reads_has_the_very_letters(shell, tmp_path):
    from fixtures.export import ExportWriter

    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.gpu()
        number = writer.call("cudaLaunchKernel", 1_000, 2_000)
        writer.kernel("a##[error]", 3_000, 80_000, correlation=number)
    shell("wallscope kernels run.sqlite --csv - > kernels.csv", GITHUB_ACTIONS="true")
    assert "a##[error]" in (tmp_path / "kernels.csv").read_text()
