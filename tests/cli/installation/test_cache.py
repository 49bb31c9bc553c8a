"""The cache as users meet it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import wallscope.pipeline
from fixtures.scenario import scenarios


@pytest.fixture
def export(tmp_path) -> Path:
    path = tmp_path / "run.sqlite"
    next(scenario for scenario in scenarios() if scenario.name == "communication-partly-hidden").write(path)
    return path


@pytest.fixture
def forbidden(monkeypatch):
    """From when it is called, nothing may be worked out."""

    def refuse(*_, **__):
        raise AssertionError("the pipeline ran")

    return lambda: monkeypatch.setattr(wallscope.pipeline, "analyze_capture", refuse)


def results(called, export: Path, folder: Path) -> list[str]:
    folder.mkdir()
    targets = [folder / name for name in ("run.json", "run.html")]
    ran = called("analyze", export, "--json", targets[0], "--html", targets[1], "--fail-on", "host>99%")

    assert (ran.code, ran.err) == (0, "".join(f"Wrote {target}\n" for target in targets))
    return [ran.out, *(target.read_text(encoding="utf-8") for target in targets)]


def test_all_results_are_the_same_cold_and_out_of_the_cache(called, export, tmp_path, forbidden):
    cold = results(called, export, tmp_path / "cold")
    forbidden()

    assert results(called, export, tmp_path / "kept") == cold


def test_what_analyze_kept_with_its_json_serves_diff_record_and_capture_help(
    called, export, tmp_path, forbidden
):
    commands = (
        ("diff", export, export),
        ("record", export, "--commit", "c0ffee12", "--store", tmp_path / "store"),
        ("capture-help", export),
    )
    cold = [called(*command, "--no-cache") for command in commands]
    called("analyze", export, "--json", tmp_path / "run.json")
    forbidden()

    assert [called(*command) for command in commands] == cold
    assert [ran.code for ran in cold] == [0, 0, 0]


def test_what_analyze_kept_without_files_serves_itself_and_capture_help(called, export, tmp_path, forbidden):
    commands = (("analyze", export), ("analyze", export, "--full"), ("capture-help", export))
    cold = [called(*command, "--no-cache") for command in commands]
    called("analyze", export)
    forbidden()

    assert [called(*command) for command in commands] == cold
    assert called("analyze", export, "--json", tmp_path / "run.json").code == 70


def test_no_cache_neither_reads_nor_keeps(called, export, own_cache, forbidden):
    assert called("analyze", export, "--no-cache").code == 0
    assert not own_cache.exists()

    called("analyze", export)
    forbidden()

    assert called("analyze", export, "--no-cache").code == 70


def test_a_cache_that_cannot_be_is_told_with_verbose_alone(called, export, monkeypatch, caplog):
    monkeypatch.setenv("WALLSCOPE_CACHE_DIR", os.devnull)
    caplog.set_level("INFO", logger="wallscope.cache_folder")
    ran = called("analyze", export)

    assert (ran.code, ran.err) == (0, "")
    assert "going on without the cache /dev/null" in caplog.text


def test_the_cache_says_where_and_how_much_and_can_be_cleared(called, export, own_cache):
    called("analyze", export, "--html", export.parent / "run.html")
    lines = called("cache").out.splitlines()
    sizes = {
        kind: sum(path.stat().st_size for path in (own_cache / kind).iterdir())
        for kind in ("answers", "pages")
    }

    assert lines[0] == str(own_cache)
    assert [line.split()[:3] for line in lines[1:6]] == [
        ["answers", "1", "file,"],
        ["outlines", "0", "files,"],
        ["pages", "1", "file,"],
        ["timelines", "0", "files,"],
        ["exports", "0", "files,"],
    ]
    assert min(sizes.values()) > 10_000
    assert lines[6] == "  limit      4.0 GiB, least recently used first"
    assert called("cache", "--clear").out.startswith("2 files, ")
    assert called("cache").out.splitlines()[1] == "  answers    0 files, 0 B"


def test_a_size_that_is_none_is_one_line(called, export, monkeypatch):
    monkeypatch.setenv("WALLSCOPE_CACHE_SIZE", "much")
    ran = called("analyze", export)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "wallscope: WALLSCOPE_CACHE_SIZE=much — is not a size — write WALLSCOPE_CACHE_SIZE=4G\n"


def test_a_kept_answer_is_printed_without_tables_and_validation(called, export, own_cache):
    called("analyze", export)
    program = (
        "import sys; from wallscope.cli import app; app(['analyze', sys.argv[1]], standalone_mode=False);"
        " sys.stderr.write(' '.join({'polars', 'pydantic', 'plotly'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(export)],
        env={**os.environ, "WALLSCOPE_CACHE_DIR": str(own_cache)},
        capture_output=True,
        check=True,
    )

    assert done.stdout
    assert done.stderr == b""
