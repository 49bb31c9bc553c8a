"""What a command imports before it works: `--help` answers at once."""

import os
import subprocess
import sys
from typing import Literal, get_args, get_origin

import pytest
from typer.main import get_command

from tests.conftest import ROOT
from tests.shipped_example import EXAMPLE
from wallscope.cli import app
from wallscope.model.capture import Profiler
from wallscope.model.enums import Reader

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
    """The modules that a command imports, in a process of its own."""
    script = (
        "import sys; from wallscope.cli import main\n"
        f"sys.argv = ['wallscope', *{arguments!r}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "sys.stderr.write(' '.join(sys.modules))"
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


def test_help_makes_no_class_of_a_result():
    assert [name for name in imported("--help") if name.startswith("wallscope.model.")] == []


def test_an_analysis_imports_nothing_of_other_outputs():
    others = HEAVY - {"numpy", "polars", "pydantic", "rich", "sqlite3"} | {"distributed", "fsspec"}
    found = imported("analyze", str(EXAMPLE), "--no-cache")

    assert "polars" in found
    assert found & others == set()


@pytest.mark.parametrize(
    ("command", "option", "kind"), [("analyze", "reader", Reader), ("capture-help", "profiler", Profiler)]
)
def test_choices_are_all_there_are(command, option, kind):
    declared, _ = get_args(get_command(app).commands[command].callback.__annotations__[option])
    words = [one for one in (declared, *get_args(declared)) if get_origin(one) is Literal]

    assert [get_args(one) for one in words] == [tuple(kind)]
