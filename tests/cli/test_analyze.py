import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from fixtures.export import ExportWriter
from fixtures.scenario import scenarios
from wallscope import __version__, kernels
from wallscope.files import read_report


@pytest.fixture
def export(tmp_path) -> Path:
    path = tmp_path / "run.sqlite"
    next(scenario for scenario in scenarios() if scenario.name == "communication-partly-hidden").write(path)
    return path


def test_analyze_prints_the_answer_and_nothing_else(started, export):
    ran = started("analyze", export)

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("run.sqlite · GPU unknown · 1 rank · no steps found\n")
    assert "\nCOMMUNICATION-BOUND over the whole capture: " in ran.out
    assert "\n  Communication is the largest loss: 55.6 % of the 9.0 µs capture." in ran.out


def test_the_json_answer_follows_the_published_schema(wallscope, export, tmp_path):
    ran = wallscope("analyze", export, "--json", "run.json")
    found = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))

    assert (ran.code, ran.err) == (0, "Wrote run.json\n")
    jsonschema.validate(found, json.loads(read_report("analysis.schema.json")))
    assert found["schema"] == "wallscope.analysis/1"
    assert found["wallscope_version"] == __version__
    assert found["inputs"][0]["name"] == "run.sqlite"


def test_a_dash_writes_the_json_to_standard_output_alone(wallscope, export, tmp_path):
    ran = wallscope("analyze", export, "--json", "-")

    assert json.loads(ran.out)["schema"] == "wallscope.analysis/1"
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.sqlite"]


def test_info_works_without_device_operations(wallscope, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", "3.7.2") as writer:
        writer.range("step", 1, 2)
    ran = wallscope("info", "run.sqlite")

    assert (ran.code, ran.err) == (0, "")
    assert "1  NVTX ranges, marks and names  NVTX_EVENTS" in ran.out
    assert "Not captured or not exported: kernels" in ran.out


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("analyze",), id="no file"),
        pytest.param(("analyze", "run.sqlite", "--colour"), id="unknown option"),
        pytest.param(("analyse", "run.sqlite"), id="unknown command"),
        pytest.param(("analyze", "none.sqlite"), id="no such file"),
        pytest.param(("analyze", "run.sqlite", "--kernels", "none.toml"), id="no such rules"),
        pytest.param(("analyze", "run.sqlite", "--json", "nowhere/run.json"), id="no such folder"),
        pytest.param(("analyze", "run.sqlite", "--json", "run.sqlite"), id="output is the input"),
        pytest.param(("analyze", "run.sqlite", "--json", "/dev/null"), id="output is a device"),
        pytest.param(("analyze", "run.sqlite", "--json", "."), id="output is a folder"),
        pytest.param(("info", "none.sqlite"), id="info of no file"),
    ],
)
def test_bad_usage_and_input_exit_2_and_write_nothing(arguments, wallscope, export, tmp_path):
    before = export.read_bytes()

    ran = wallscope(*arguments)

    assert (ran.code, ran.out) == (2, "")
    assert "Traceback" not in ran.err
    assert ran.err.strip()
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.sqlite"]
    assert export.read_bytes() == before


def test_an_error_is_one_line_with_file_fault_and_cure(wallscope):
    assert wallscope("analyze", "none.sqlite").err == (
        "wallscope: none.sqlite — there is no such file — check the path\n"
    )


def test_an_output_that_is_a_link_is_not_followed(wallscope, export, tmp_path):
    (tmp_path / "target.json").write_text("precious")
    (tmp_path / "run.json").symlink_to("target.json")

    ran = wallscope("analyze", export, "--json", "run.json")

    assert ran.code == 2
    assert (tmp_path / "target.json").read_text() == "precious"


def test_an_old_output_is_replaced_and_keeps_its_permissions(wallscope, export, tmp_path):
    target = tmp_path / "run.json"
    target.write_text("old")
    target.chmod(0o640)

    assert wallscope("analyze", export, "--json", "run.json").code == 0

    assert json.loads(target.read_text())["schema"] == "wallscope.analysis/1"
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_failed_run_keeps_the_old_output(wallscope, tmp_path):
    (tmp_path / "run.json").write_text("old")
    (tmp_path / "run.sqlite").write_bytes(b"no database")

    assert wallscope("analyze", "run.sqlite", "--json", "run.json").code == 2
    assert (tmp_path / "run.json").read_text() == "old"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_standard_output_is_one_line_and_exit_2(export):
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "wallscope", "analyze", export],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert ran.returncode == 2
    *announced, error = ran.stderr.splitlines()
    assert error.startswith("wallscope: standard output — cannot be written: ")
    assert error.endswith(" — make room there")
    assert len(announced) == (not kernels.is_compiled())


def test_a_reader_that_goes_away_is_no_error_of_ours(export):
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(
        [sys.executable, "-m", "wallscope", "analyze", export],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)

    assert ran.returncode == 2
    assert len(ran.stderr.splitlines()) == (not kernels.is_compiled())


def test_an_interrupted_run_exits_130_and_leaves_nothing(monkeypatch, export, tmp_path):
    import wallscope.cli
    import wallscope.pipeline

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(wallscope.pipeline, "analyze_capture", interrupted)
    monkeypatch.setattr(
        sys, "argv", ["wallscope", "analyze", str(export), "--json", str(tmp_path / "run.json")]
    )
    with pytest.raises(SystemExit) as left:
        wallscope.cli.main()

    assert left.value.code == 130
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.sqlite"]


def test_the_version_is_that_of_the_package(wallscope):
    assert wallscope("--version").out == f"wallscope {__version__}\n"


def test_rules_of_the_user_change_the_answer(wallscope, export, tmp_path):
    (tmp_path / "mine.toml").write_text(
        '[[kernel]]\npattern = "nvjet"\noperation = "dispatch"\nbackend = "deep-ep"\n'
    )

    found = json.loads(wallscope("analyze", export, "--kernels", "mine.toml", "--json", "-").out)

    assert found["ranks"][0]["typical"]["budget"]["compute"] == 0
    assert found["ranks"][0]["typical"]["budget"]["exposed_communication"] == 9_000


def test_a_terminal_without_unicode_still_shows_the_answer(started, export):
    ran = started("analyze", export, PYTHONIOENCODING="ascii")

    assert ran.code == 0
    assert "Communication is the largest loss: 55.6 % of the 9.0 ?s capture." in ran.out


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("run.sqlite", "--csv", "circle"), id="a folder of results"),
        pytest.param(("run.sqlite", "--csv", "circle/tables"), id="a folder in it"),
        pytest.param(("run.sqlite", "--kernels", "circle", "--csv", "tables"), id="rules"),
        pytest.param(("run.sqlite", "circle"), id="an export of a job"),
    ],
)
@pytest.mark.usefixtures("export")
def test_a_link_that_leads_to_itself_is_refused(arguments, wallscope, tmp_path):
    (tmp_path / "circle").symlink_to("circle")

    ran = wallscope("analyze", *arguments)

    assert ran.code == 2
    assert "circle" in ran.err
    assert ran.err.count("\n") == 1
