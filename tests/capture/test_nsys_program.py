"""The installed nsys says which options it takes; commands have these alone."""

import io
import os
import re
import stat
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tests.conftest import ROOT
from wallscope.capture.nsys_program import NSYS_VARIABLE, ask_nsys, find_nsys
from wallscope.model.capture import Finding, Severity
from wallscope.model.finding_codes import FindingCode
from wallscope.model.nsys_flags import parse_options
from wallscope.render.terminal import render_sections
from wallscope.views.capture_help import build_capture_help, list_recording_flags, write_capture_command

HELP = """
usage: nsys profile [<args>] [application] [<application args>]

\t-c, --capture-range=

\t   Possible values are none, cudaProfilerApi, nvtx, hotkey.
\t   Default is none.

\t--capture-range-end=

\t   Possible values are 'none', 'stop', 'stop-shutdown', 'repeat[:N]' or 'repeat-shutdown:N'.

\t--cuda-graph-trace=<granularity>[:<launch origin>]

\t   Set the granularity and launch origin for CUDA graph trace.

\t   Possible values for <granularity> are 'graph' or 'node'.

\t--cpuctxsw=

\t   Possible values are 'process-tree', 'system-wide', or 'none'.

\t-f, --force-overwrite=

\t   Possible values are 'true' or 'false'.

\t-o, --output=

\t   Output report filename.

\t-p, --nvtx-capture=

\t   Possible values are: `range@domain' to specify both range and domain.

\t-s, --sample=

\t   Possible values are 'process-tree', 'system-wide' or 'none'.

\t-t, --trace=

\t   Possible values are 'cuda', 'nvtx', 'osrt',
\t   'python-gil' or 'none'.
\t   Select the API(s) to trace.
"""
EXPORT_HELP = "\n\t-t, --type=\n\n\t   Possible formats are: arrow sqlite hdf text json.\n"
STORED = ROOT.parent / "shared" / "capture" / "nsys-profile-help-2024.2.3.txt"


def install(folder: Path, text: str = HELP, name: str = "nsys") -> Path:
    """A program that prints what nsys prints about itself."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "profile.txt").write_text(text)
    (folder / "export.txt").write_text(EXPORT_HELP)
    program = folder / name
    program.write_text(
        f"#!{sys.executable} -IS\nimport sys, pathlib\n"
        "if sys.argv[1:] == ['--version']: print('NVIDIA Nsight Systems version 2024.2.3.38-2423v0')\n"
        "else: sys.stdout.write((pathlib.Path(__file__).parent / (sys.argv[1] + '.txt')).read_text())\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


@pytest.fixture
def nsys(tmp_path, monkeypatch):
    monkeypatch.setenv(NSYS_VARIABLE, str(install(tmp_path / "bin")))
    return ask_nsys()


def test_options_and_values_are_those_of_the_help(nsys):
    assert nsys.version == "2024.2.3.38"
    taken, refused = nsys.sort_flags(
        (
            *("--output=a b", "--trace=cuda,nvtx", "--trace=cuda,python-gil", "--cuda-graph-trace=node"),
            *("--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--nvtx-capture=step@*"),
            *("--trace=cuda-sw,nvtx", "--trace=python", "--cuda-event-trace=true", "--force-overwrite=maybe"),
        )
    )
    assert len(taken) == 7
    assert refused == (
        "--trace=cuda-sw,nvtx",
        "--trace=python",
        "--cuda-event-trace=true",
        "--force-overwrite=maybe",
    )
    assert nsys.takes("--type=sqlite", "export")
    assert not nsys.takes("--include-blobs=true", "export")


def drawn(sections) -> str:
    page = io.StringIO()
    Console(file=page, width=120, markup=False, highlight=False).print(render_sections(sections))
    return "\n".join(line.rstrip() for line in page.getvalue().split("\n"))


def test_the_printed_command_has_no_option_that_the_installed_nsys_refuses(nsys):
    text = drawn(build_capture_help(nsys=nsys))

    command = re.findall(r"^    (--\S+) \\$", text, re.MULTILINE)
    assert "--trace=cuda,nvtx" in command
    assert all(nsys.takes(flag) or nsys.takes(flag, "export") for flag in command)
    assert "The installed nsys 2024.2.3.38 lacks --cuda-event-trace=true, --cuda-memory-usage=true." in text
    assert "The installed nsys 2024.2.3.38 lacks --include-blobs=true." in text
    assert not any("--cuda-event-trace" in line for line in write_capture_command((), nsys))


def test_a_missing_option_that_an_export_needs_is_marked(nsys):
    finding = Finding(FindingCode.NO_CUDA_EVENTS, Severity.WARNING, "It is so.", "Capture otherwise.")

    assert "* The installed nsys" in drawn(build_capture_help("run.sqlite", (finding,), None, nsys))


def test_without_nsys_all_options_are_shown():
    assert ask_nsys() is None
    assert "--cuda-event-trace=true" in " ".join(write_capture_command(()))


def test_the_newest_of_several_is_found(tmp_path, monkeypatch):
    monkeypatch.delenv(NSYS_VARIABLE)
    monkeypatch.setenv("PATH", os.devnull)
    for version in ("2024.2.3", "2024.10.1", "2023.4.4"):
        install(tmp_path / "opt" / version / "bin")
    monkeypatch.setattr("wallscope.capture.nsys_program._PLACES", (f"{tmp_path}/opt/*/bin/nsys",))

    assert find_nsys() == tmp_path / "opt/2024.10.1/bin/nsys"


def test_a_program_that_prints_no_help_is_no_nsys(tmp_path, monkeypatch):
    monkeypatch.setenv(NSYS_VARIABLE, str(install(tmp_path, "")))

    assert ask_nsys() is None


def test_the_help_of_a_real_version_is_understood():
    if not STORED.exists():
        pytest.skip(f"needs {STORED.name}")
    options = parse_options(STORED.read_text())

    assert all(options.values())
    assert {"--trace", "--nvtx-domain-", "--start-later", "--ib-switch-metrics-device"} <= set(options)
    assert [flag for flag in list_recording_flags() if flag.partition("=")[0] not in options] == [
        "--cuda-event-trace=true"
    ]
