"""Exports behind URLs: the same answer as of files, fetched one at a time and removed; errors in a line."""

import os
import shutil
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest

from tests.jobs.simulated import RANKS
from wallscope.cache_folder import Cache
from wallscope.errors import InputError
from wallscope.jobs import inputs
from wallscope.jobs.inputs import Url, fetch_source, find_exports, is_many, parse_source
from wallscope.jobs.merge import run_job
from wallscope.model.capture import Options
from wallscope.render.data import write_json


def silent(_):
    pass


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """Where copies go: a folder of the test's own."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def memory(job_folder):
    """The job in memory."""
    system = fsspec.filesystem("memory")
    for path in job_folder.iterdir():
        system.pipe_file(f"/runs/{path.name}", path.read_bytes())
    yield system
    system.store.clear()


@pytest.fixture(scope="module")
def expected(job_folder):
    return write_json(run_job(find_exports([job_folder]), Options(), silent).analysis)


@pytest.mark.parametrize("named", ["memory://runs", "memory://runs/", "memory://runs/run_rank*.sqlite"])
def test_folders_and_patterns_of_urls_stand_for_their_exports(memory, named):
    memory.pipe_file("/runs/notes.txt", b"")

    assert is_many([Url(named)])
    assert [str(url) for url in find_exports([Url(named)])] == [
        f"memory://runs/run_rank{rank}.sqlite" for rank in range(RANKS)
    ]


@pytest.mark.usefixtures("memory")
def test_a_job_behind_urls_has_the_same_bytes_and_leaves_nothing(expected, scratch):
    sizes = []

    def watched(_):
        sizes.append(len(list(scratch.iterdir())))

    found = run_job(find_exports([Url("memory://runs")]), Options(), watched).analysis

    assert write_json(found) == expected
    assert list(scratch.iterdir()) == []
    assert max(sizes) == 0


@pytest.mark.slow
def test_processes_fetch_for_themselves(job_folder, expected):
    found = run_job(
        find_exports([Url(f"simplecache::file://{job_folder}")]), Options(), silent, jobs=2
    ).analysis

    assert write_json(found) == expected


def test_what_is_done_is_not_fetched_again(memory, expected, tmp_path, monkeypatch):
    cache = Cache(tmp_path / "kept")
    exports = find_exports([Url("memory://runs")])
    run_job(exports[:3], Options(), silent, cache=cache)
    copied = []
    get_file = type(memory).get_file

    def noted(system, path, *rest):
        copied.append(Path(path).name)
        return get_file(system, path, *rest)

    monkeypatch.setattr(type(memory), "get_file", noted)
    found = run_job(exports, Options(), silent, cache=cache).analysis

    assert copied == ["run_rank3.sqlite"]
    assert write_json(found) == expected


def test_another_content_is_fetched_again(memory):
    before = inputs.url_version(Url("memory://runs/run_rank0.sqlite"))
    memory.pipe_file("/runs/run_rank0.sqlite", b"x")

    assert inputs.url_version(Url("memory://runs/run_rank0.sqlite")) != before


@pytest.mark.usefixtures("memory")
def test_the_command_line_and_the_api_take_urls(called, expected, tmp_path):
    import wallscope

    ran = called("analyze", "memory://runs/run_rank0.sqlite", "--html", tmp_path / "page.html")
    job = called("analyze", "memory://runs/*.sqlite", "--json", tmp_path / "job.json")

    assert (ran.code, job.code) == (0, 0)
    assert "run_rank0.sqlite" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (tmp_path / "job.json").read_text() == expected
    assert wallscope.analyze("memory://runs/run_rank0.sqlite").analysis.inputs[0].name == "run_rank0.sqlite"


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("memory://runs/absent.sqlite", "cannot be read: it is not there — check the URL"),
        ("memory://absent/", "cannot be listed: it is not there — check the URL"),
        ("memory://runs/*.none", "matches no file — check the pattern"),
        ("nowhere://runs/a.sqlite", "cannot be read: "),
        ("s3x::", "cannot be listed"),
    ],
)
@pytest.mark.usefixtures("memory")
def test_what_cannot_be_fetched_is_said_in_a_line(named, said):
    with pytest.raises(InputError, match=rf"^{named.replace('*', '.')} — {said}") as told:
        run_job(find_exports([Url(named)]), Options(), silent)
    assert "\n" not in str(told.value)


def test_an_error_that_only_names_the_url_is_told_by_what_it_came_of(memory, monkeypatch):
    def refused(*_, **__):
        raise FileNotFoundError("memory://runs/a.sqlite") from ConnectionError("the door is shut")

    monkeypatch.setattr(type(memory), "info", refused)
    with pytest.raises(InputError, match=r"cannot be read: the door is shut — check the URL"):
        run_job([Url("memory://runs/a.sqlite")], Options(), silent)


def test_what_is_wrong_with_a_copy_is_said_of_its_url(memory, scratch):
    memory.pipe_file("/runs/cut.sqlite", memory.cat_file("/runs/run_rank0.sqlite")[:9_000])
    with pytest.raises(InputError, match=r"^memory://runs/cut.sqlite — is truncated: ") as told:
        run_job([Url("memory://runs/cut.sqlite")], Options(), silent)

    assert str(scratch) not in str(told.value)


@pytest.mark.usefixtures("memory")
def test_what_has_no_room_is_refused_before_it_is_fetched(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    with (
        pytest.raises(InputError, match=r"takes .* as long as it is read, 10 B are left .* or set TMPDIR"),
        fetch_source(Url("memory://runs/run_rank0.sqlite")),
    ):
        pass


@pytest.mark.usefixtures("memory")
def test_what_a_killed_process_left_is_removed_and_what_is_held_stays(scratch):
    left, mine = scratch / "wallscope-fetched-left_old", scratch / "wallscope-fetched-by-me"
    for folder in (left, mine):
        folder.mkdir()
        (folder / "run.sqlite").touch()
    with fetch_source(Url("memory://runs/run_rank0.sqlite")) as held:
        for folder in (left, mine, held.parent):
            os.utime(folder, (time.time() - 3_600,) * 2)
        with fetch_source(Url("memory://runs/run_rank1.sqlite")):
            assert held.exists()
            assert not left.exists()
            assert (mine / "run.sqlite").exists()


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("https://me:secret@host/a/run.sqlite?sig=secret", "https://host/a/run.sqlite"),
        ("s3://bucket/run.sqlite", "s3://bucket/run.sqlite"),
    ],
)
def test_secrets_of_a_url_are_not_shown(named, shown):
    assert str(Url(named)) == shown
    assert Url(named).name == "run.sqlite"


def test_local_urls_are_paths():
    assert parse_source("file:///a/b.sqlite") == Path("/a/b.sqlite")
    assert parse_source("a/b.sqlite") == Path("a/b.sqlite")
