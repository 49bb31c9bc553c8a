"""Every code block of README and docs/ runs, or quotes what a command prints, or says why it cannot run."""

import contextlib
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import typer.main
import yaml

from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.torch_writing import write_torch_run
from tests.conftest import run_part
from tests.doc_blocks import (
    KINDS,
    PAGES,
    ROOT,
    find_blocks,
    list_commands,
    not_run,
    quote_outputs,
    split_command,
)
from tests.jobs.simulated import write_job
from tests.logs_written import write_megatron
from wallscope.cli import FAILED, app
from wallscope.demo import example
from wallscope.trace.kernel_classes import load_kernel_rules

DEMO = ("demo.sqlite", "demo-base.sqlite", "demo-head.sqlite")
"""What `wallscope demo` writes itself where a page runs it."""
ELSEWHERE = {"notebook.md": "tests/test_api.py", "many-ranks.md": "tests/jobs/test_merge.py"}
"""Pages with Python that another test runs from top to bottom."""
CONFIGURATION = """\
model:
  tensor_model_parallel_size: 2
  expert_model_parallel_size: 8
  moe_token_dispatcher_type: alltoall
"""


def page_of(path):
    return path.read_text(encoding="utf-8")


def pages_with(kind):
    return [path for path in PAGES if any(block.kind == kind for block in find_blocks(page_of(path)))]


def blocks_of(*kinds):
    return [
        pytest.param(block, id=f"{path.name}-{number}")
        for path in PAGES
        for number, block in enumerate(find_blocks(page_of(path)))
        if block.kind in kinds
    ]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """The files that the pages name: an export, two to compare, a job, a trace, a configuration."""
    folder = tmp_path_factory.mktemp("inputs")
    example.write_example(folder / "run.sqlite")
    example.write_example(folder / "head.sqlite", example.SLOWER_COUNTS_READ_NS)
    for name in ("base.sqlite", "moe_step.sqlite", *DEMO):
        source = "head.sqlite" if name == "demo-head.sqlite" else "run.sqlite"
        (folder / name).write_bytes((folder / source).read_bytes())
    write_job(folder / "runs")
    write_torch_run(run(stories()[0].program), folder / "trace.json.gz")
    (folder / "run.yaml").write_text(CONFIGURATION, encoding="utf-8")
    (folder / "run.log").write_text("\n".join(write_megatron([45.0] * 9)), encoding="utf-8")
    return folder


def run_program(command, folder):
    """Run one of the few other programs that pages use, in a process of its own."""
    name, *rest = command.split()
    assert name in {"mkdir", "cp"}, f"no test runs: {command}"
    subprocess.run([name, *rest], cwd=folder, check=True)
    return ""


@pytest.fixture
def shell(inputs, called, tmp_path, monkeypatch):
    """Run a command of a page in this process, in a folder of the files that pages name.

    The pages share a cache, as the commands of a user do.
    """
    monkeypatch.setenv("WALLSCOPE_CACHE_DIR", str(inputs.parent / f"{inputs.name}-cache"))
    for path in inputs.iterdir():
        (tmp_path / path.name).symlink_to(path)

    def enter(command):
        if not command.startswith("wallscope "):
            return run_program(command, tmp_path)
        if command.startswith("wallscope demo"):
            for name in DEMO:
                (tmp_path / name).unlink(missing_ok=True)  # a link to the file of all pages
        arguments, shown = split_command(command)
        with contextlib.chdir(tmp_path):
            ran = called(*arguments)
        is_gate_failed = ran.code == FAILED and " failed: " in ran.err  # which a page may show
        assert ran.code == 0 or is_gate_failed, f"{command}\n{ran.err}"
        if into := re.search(r" > (\S+)$", command):
            enter.save(into[1], ran.out)
        lines = [line.rstrip() for line in ran.out.splitlines()][:shown]
        return "\n".join(lines).strip("\n")

    def save(name, body):
        (tmp_path / name).unlink(missing_ok=True)  # a link to the file of all pages
        (tmp_path / name).write_text(body, encoding="utf-8")

    enter.save = save
    return enter


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_block_says_what_it_is(path):
    assert [block.body for block in find_blocks(page_of(path)) if block.kind not in KINDS] == []


@pytest.mark.parametrize(
    "path",
    pages_with("console"),
    ids=lambda path: path.name,
)
def test_outputs_are_what_the_commands_print(path, shell, request):
    for block in find_blocks(page_of(path)):
        if block.title:
            shell.save(block.title, block.body)
    quoted = quote_outputs(page_of(path), shell)
    if request.config.getoption("--golden"):
        path.write_text(quoted, encoding="utf-8")

    assert page_of(path) == quoted


@pytest.mark.parametrize("path", run_part(pages_with("sh"), {"README"}, of=27))
def test_commands_run(path, shell):
    for block in find_blocks(page_of(path)):
        if block.title:
            shell.save(block.title, block.body)
        for command in list_commands(block) if block.kind == "sh" else ():
            if not_run(command) is None:
                shell(command)


def test_tests_that_reasons_name_exist():
    text = (ROOT / "tests" / "doc_blocks.toml").read_text(encoding="utf-8")
    named = re.findall(r"tests/[\w/]+\.py", text)

    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def list_shown_commands():
    found = {
        command
        for path in PAGES
        for block in find_blocks(page_of(path))
        if block.kind == "sh"
        for command in list_commands(block)
    }
    return sorted(command for command in found if command.startswith("wallscope "))


@pytest.mark.parametrize("command", list_shown_commands())
def test_commands_have_arguments_that_exist(command):
    """Also of those that cannot run here."""
    group = typer.main.get_command(app)
    arguments, _ = split_command(command)
    context = group.make_context("wallscope", arguments)
    name, chosen, rest = group.resolve_command(context, [*context._protected_args, *context.args])

    assert chosen.make_context(name, rest, parent=context).params


@pytest.mark.parametrize("block", blocks_of("toml", "yaml", "json"))
def test_files_are_valid(block, tmp_path):
    parsed = {"toml": tomllib.loads, "yaml": yaml.safe_load, "json": json.loads}[block.kind](block.body)
    assert parsed
    if "kernel" in parsed:
        (tmp_path / "kernels.toml").write_text(block.body, encoding="utf-8")
        assert load_kernel_rules(tmp_path / "kernels.toml")


def test_python_is_on_pages_that_another_test_runs():
    assert {path.name for path in pages_with("python")} == set(ELSEWHERE)
    for page, test in ELSEWHERE.items():
        assert f'"{page}"' in (ROOT / test).read_text(encoding="utf-8")
