"""What a command imports before it works: `--help` answers at once."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

HEAVY = {
    "anyio",
    "jinja2",
    "mcp",
    "numpy",
    "pandas",
    "plotly",
    "polars",
    "pydantic",
    "rich",
    "sqlite3",
    "yaml",
}


def imported(*arguments: str) -> set[str]:
    """The packages that a command imports, in a process of its own."""
    script = (
        "import sys; from wallscope.cli import main\n"
        f"sys.argv = ['wallscope', *{arguments!r}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "sys.stderr.write(' '.join({name.partition('.')[0] for name in sys.modules}))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(ran.stderr.split())


def test_help_imports_nothing_heavy():
    assert imported("--help") & (HEAVY | {"decimal", "json", "logging", "tempfile"}) == set()


@pytest.mark.parametrize("command", ["analyze", "diff", "cache", "mcp"])
def test_help_of_a_command_imports_nothing_heavy_but_what_typer_does(command):
    assert imported(command, "--help") & HEAVY <= {"pydantic"}
