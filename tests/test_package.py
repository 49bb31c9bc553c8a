"""What ships: every query and report is inside the wheel, and reads the same from there."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module", params=["plain", pytest.param("compiled", marks=pytest.mark.slow)])
def wheel(request, tmp_path_factory) -> Path:
    """A wheel; compiling it takes most of the time, and is what `make` and the release do too."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT],
        env=os.environ | ({"WALLSCOPE_PLAIN": "1"} if request.param == "plain" else {}),
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.parametrize("folder", ["queries", "reports"])
def test_the_wheel_holds_every_shipped_file(folder, wheel):
    with zipfile.ZipFile(wheel) as archive:
        shipped = {
            name.removeprefix(f"wallscope/{folder}/"): archive.read(name)
            for name in archive.namelist()
            if name.startswith(f"wallscope/{folder}/")
        }

    assert shipped == {
        path.relative_to(ROOT / folder).as_posix(): path.read_bytes()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_building_again_gives_the_same_bytes(kind, tmp_path):
    for time in ("first", "second"):
        command = [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", tmp_path / time]
        subprocess.run([*command, ROOT], check=True, capture_output=True)
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / time).iterdir()} for time in ("first", "second")
    )

    assert len(first) == 1
    assert first == second


def test_the_wheel_holds_nothing_of_tests_and_fixtures(wheel):
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}

    assert tops == {"wallscope", next(top for top in tops if top.endswith(".dist-info"))}


def test_an_installed_wheel_reads_its_own_queries(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    asked = (
        "import wallscope.files as s; print(s.__file__);"
        "print(len(s.read_query('names')), len(s.read_report('analysis.schema.json')))"
    )

    ran = subprocess.run(
        [sys.executable, "-c", asked],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )

    where, lengths = ran.stdout.splitlines()
    assert Path(where).is_relative_to(tmp_path)
    names, schema = (ROOT / "queries" / "names.sql", ROOT / "reports" / "analysis.schema.json")
    assert lengths == f"{len(names.read_text(encoding='utf-8'))} {len(schema.read_text(encoding='utf-8'))}"


def test_an_installed_wheel_generates_its_own_example(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    folder = tmp_path / "empty"
    folder.mkdir()

    ran = subprocess.run(
        [sys.executable, "-m", "wallscope", "demo"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.startswith("demo.sqlite · H100 80GB HBM3 · 8 steady steps\n")
    assert ran.stderr.endswith("Wrote demo.html\n")
    assert {path.name for path in folder.iterdir()} == {"demo.sqlite", "demo.html"}


def test_the_project_names_no_registry_host():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert all("@" not in entry and "://" not in entry for entry in project["project"]["dependencies"])


def test_each_dependency_has_one_floor_and_no_ceiling():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    floors = defaultdict(set)
    for entry in (entry for group in groups for entry in group):
        name, mark, floor = entry.partition(">=")
        floors[name.lower()].add((mark, floor))

    assert {
        name: found
        for name, found in floors.items()
        if len(found) > 1 or not all(re.fullmatch(r"\d+(\.\d+)*", floor) for _, floor in found)
    } == {}
