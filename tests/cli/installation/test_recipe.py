"""The recipe for `nsys recipe`: what is installed, what is left alone, and that it runs."""

import ast
import json
import logging
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from fixtures.scenario import scenarios

ROOT = Path(__file__).resolve().parents[3]
WALLSCOPE = f"env PYTHONPATH={ROOT} {sys.executable} -m wallscope"


@pytest.fixture
def recipes(tmp_path):
    folder = tmp_path / "recipes"
    folder.mkdir()
    return folder


@pytest.fixture
def installed(recipes, called):
    ran = called("install-recipe", recipes)

    assert ran.code == 0
    assert f"NSYS_RECIPE_PATH={recipes} nsys recipe wallscope_job" in ran.out
    return recipes / "wallscope_job"


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """An export that can be analysed, and one that cannot."""
    folder = tmp_path_factory.mktemp("exports")
    next(one for one in scenarios() if one.name == "communication-partly-hidden").write(folder / "run.sqlite")
    (folder / "cut.sqlite").write_bytes((folder / "run.sqlite").read_bytes()[:5_000])
    return folder


def test_it_is_laid_out_as_nsys_wants_it(installed):
    metadata = json.loads((installed / "metadata.json").read_text())

    assert sorted(path.name for path in installed.iterdir()) == [
        "command.json",
        "metadata.json",
        "wallscope_job.py",
    ]
    assert metadata["module_name"] == "wallscope_job"
    assert {"display_name", "description"} <= metadata.keys()
    assert json.loads((installed / "command.json").read_text()) == [sys.executable, "-m", "wallscope"]


def test_the_python_of_nsys_can_read_it(installed):
    ast.parse((installed / "wallscope_job.py").read_text(encoding="utf-8"), feature_version=(3, 6))


def test_it_is_written_over_itself_even_after_it_ran(installed, called):
    (installed / "__pycache__").mkdir()
    (installed / "__pycache__" / "wallscope_job.cpython-311.pyc").write_text("")
    (installed / "wallscope_job.py").write_text("an earlier version")

    assert called("install-recipe", installed.parent).code == 0
    assert "WallscopeJob" in (installed / "wallscope_job.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "content"),
    [("notes.txt", "mine"), ("metadata.json", '{"module_name": "other"}'), ("metadata.json", "[]")],
    ids=["another file", "another recipe", "no recipe"],
)
def test_what_is_not_ours_stays(recipes, called, name, content):
    place = recipes / "wallscope_job"
    place.mkdir()
    (place / name).write_text(content)
    ran = called("install-recipe", recipes)

    assert ran.code == 2
    assert ran.err == f"wallscope: {place} — holds other files — name a new or an empty folder\n"
    assert [path.read_text() for path in place.iterdir()] == [content]


@pytest.mark.parametrize("name", ["notes.txt", "notes/wallscope_job.cpython-311.pyc"])
def test_what_is_not_compiled_stays_among_what_is(installed, called, name):
    path = installed / "__pycache__" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    ran = called("install-recipe", installed.parent)

    assert (ran.code, path.read_text()) == (2, "mine")
    assert "holds other files" in ran.err


def test_the_folder_has_to_be_there(tmp_path, called):
    ran = called("install-recipe", tmp_path / "absent")

    assert ran.code == 2
    assert "does not exist — create it first" in ran.err


class BaseOfNsys:
    """As much of the base class of nsys's recipes as this one uses."""

    def __init__(self, told):
        self._parsed_args = told
        self._analysis_dict = {}
        self._output_files = {}

    def run(self, context):
        self._analysis_dict["Mode"] = context.mode

    def get_output_dir(self):
        return str(self._parsed_args.output)

    def add_output_file(self, name, kind):
        self._output_files[name] = kind
        return str(Path(self.get_output_dir()) / name)

    def create_analysis_file(self):
        Path(self.add_output_file("job.nsys-analysis", "")).write_text(json.dumps(self._analysis_dict))


@pytest.fixture
def run_recipe(installed, monkeypatch, tmp_path):
    """Run the recipe in place of nsys: one report after the other."""
    modules = {
        "nsys_recipe": SimpleNamespace(nsys_constants=SimpleNamespace(NSYS_EXE_NAME="nsys")),
        "nsys_recipe.lib": SimpleNamespace(
            nsys_path=SimpleNamespace(find_installed_file=lambda name: f"/absent/{name}"),
            recipe=SimpleNamespace(Recipe=BaseOfNsys),
        ),
        "nsys_recipe.lib.args": SimpleNamespace(Option=None),
        "nsys_recipe.log": SimpleNamespace(logger=logging.getLogger("nsys")),
    }
    for name, held in modules.items():
        module = ModuleType(name)
        vars(module).update(vars(held))
        monkeypatch.setitem(sys.modules, name, module)
    one_by_one = SimpleNamespace(
        mode="none",
        map=lambda function, commands, **told: [function(command, **told) for command in commands],
        wait=lambda found: found,
    )

    def run(*paths, options=""):
        output = tmp_path / "out"
        output.mkdir()
        told = SimpleNamespace(
            input=None, exports=list(map(str, paths)), output=output, options=options, wallscope=WALLSCOPE
        )
        runpy.run_path(str(installed / "wallscope_job.py"))["WallscopeJob"](told).run(one_by_one)
        return output

    return run


def test_it_joins_what_can_be_analysed_and_says_what_cannot(run_recipe, exports, caplog):
    output = run_recipe(exports / "run.sqlite", exports / "cut.sqlite", options="--time 0-1")
    answer = json.loads((output / "job.json").read_text())
    (said,) = caplog.messages

    assert said.startswith(f"wallscope: {exports / 'cut.sqlite'} — ")
    assert [path.name for path in (output / "ranks").iterdir()] == ["run.json"]
    assert [entry["name"] for entry in answer["inputs"]] == ["run.sqlite"]
    assert answer["anchor"]["selected_time_ns"] == [0, 10**9]
    assert "cut.json is left out" in answer["job"]["verdict"]
    assert {path.name for path in output.iterdir() if path.is_file()} == {
        "job.json",
        "job.md",
        "job.html",
        "job.nsys-analysis",
    }


def test_without_any_answer_it_ends_with_a_line_for_each(run_recipe, exports, caplog):
    with pytest.raises(SystemExit) as left:
        run_recipe(exports / "cut.sqlite")

    assert left.value.code == 1
    assert len(caplog.messages) == 2
    assert caplog.messages[-1] == "no report could be analysed"


def nsys_that_runs_recipes(folder):
    """The nsys on the path, if the Python beside it has what recipes need."""
    found = shutil.which("nsys")
    if found is None:
        pytest.skip("no nsys here: install Nsight Systems to run the recipe for real")
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    environment["NSYS_RECIPE_PATH"] = str(folder)

    def run(*arguments, cwd):
        return subprocess.run(
            [found, "recipe", "wallscope_job", *map(str, arguments)],
            cwd=cwd,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # nsys hands its recipes' complaints to standard output
            text=True,
            timeout=300,
            check=False,
        )

    asked = run("--help", cwd=folder)
    if asked.returncode:
        pytest.skip(f"this nsys runs no recipes: {asked.stdout.strip()[:200]}")
    return run


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["concurrent", "dask-futures"])
def test_nsys_runs_it_on_a_report_and_an_export(installed, exports, traces, tmp_path, mode):
    nsys = nsys_that_runs_recipes(installed.parent)
    report = traces / "own_cap_nsys2023.nsys-rep"
    ran = nsys(
        "--input",
        report,
        "--exports",
        exports / "run.sqlite",
        *("--wallscope", WALLSCOPE, "--mode", mode, "--output", "out"),
        cwd=tmp_path,
    )
    answer = json.loads((tmp_path / "out" / "job.json").read_text())

    assert ran.returncode == 0
    assert ran.stdout.count("ERROR: ") == 1
    assert f"ERROR: wallscope: {report} — contains no CUDA activity" in ran.stdout
    assert "is the largest loss: " in ran.stdout
    assert [entry["name"] for entry in answer["inputs"]] == ["run.sqlite"]
    told = json.loads((tmp_path / "out" / "out.nsys-analysis").read_text())
    assert told["Outputs"] == {"job.json": "JSON", "job.md": "Markdown", "job.html": "HTML"}
    assert told["Mode"] == mode


@pytest.mark.slow
def test_nsys_says_in_lines_that_a_report_holds_nothing(installed, traces, tmp_path):
    nsys = nsys_that_runs_recipes(installed.parent)
    ran = nsys("--input", traces / "own_cap_nsys2023.nsys-rep", "--wallscope", WALLSCOPE, cwd=tmp_path)

    assert ran.returncode == 1
    assert ran.stdout.splitlines()[1:] == ["ERROR: no report could be analysed"]
    assert not list(tmp_path.glob("wallscope_job*"))
