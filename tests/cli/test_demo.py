"""`wallscope demo`: what it prints and writes, what it leaves alone, and that nothing is half written."""

import os
import re
import shlex
import sys

import pytest

from tests.conftest import run_every_third
from wallscope.demo import example

KINDS = {
    "run": ((), "demo.html", ("demo.sqlite",), ("analyze", "demo.sqlite")),
    "diff": (
        ("--diff",),
        "demo-diff.html",
        ("demo-base.sqlite", "demo-head.sqlite"),
        ("diff", "demo-base.sqlite", "demo-head.sqlite"),
    ),
    "job": (("--job",), "demo-job.html", ("demo-job",), ("analyze", "demo-job")),
}
JOB_FILES = [f"rank-{rank}.sqlite" for rank in range(4)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_and_the_page_are_those_of_the_commands_it_stands_for(kind, wallscope, tmp_path):
    options, page, exports, command = KINDS[kind]
    ran = wallscope("demo", *options)
    what = "example exports" if kind == "job" else "example export"
    said = "".join(f"Wrote {name} ({what})\n" for name in exports)

    assert (ran.code, ran.err) == (0, f"{said}Wrote {page}\n")
    assert {path.name for path in tmp_path.iterdir()} == {page, *exports}
    written = (tmp_path / page).read_bytes()
    again = wallscope(*command, "--html", page)
    assert (again.out, (tmp_path / page).read_bytes()) == (ran.out, written)


def test_the_verdicts_are_those_that_the_help_promises(wallscope, tmp_path):
    assert "\nCOMMUNICATION-BOUND " in wallscope("demo").out
    assert "\nSLOWER  " in wallscope("demo", "--diff").out
    assert re.search(r"\nRanks +Rank 2 is late on 4 of 4 steps", wallscope("demo", "--job").out)
    assert sorted(path.name for path in (tmp_path / "demo-job").iterdir()) == JOB_FILES


def test_the_next_commands_on_the_screen_work(wallscope):
    lines = wallscope("demo").out.partition("\nNext ")[2].splitlines()
    commands = [re.split(r" {2,}", line.strip())[0] for line in lines if "wallscope " in line]
    ready = [command for command in commands if "FILE" not in command]

    assert len(ready) >= 3
    for command in ready:
        assert wallscope(*shlex.split(command)[1:]).code == 0, command


@pytest.mark.parametrize("kind", run_every_third(KINDS, 0, name=str))
def test_a_second_demo_replaces_the_first_one(kind, wallscope, tmp_path):
    options = KINDS[kind][0]
    first = wallscope("demo", *options)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    assert wallscope("demo", *options) == first
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_exports_lie_next_to_the_page_that_is_named(wallscope, tmp_path):
    (tmp_path / "out").mkdir()
    ran = wallscope("demo", "--html", "out/page.html")

    assert ran.err == "Wrote out/demo.sqlite (example export)\nWrote out/page.html\n"
    assert "wallscope analyze out/demo.sqlite" in ran.out


REFUSED = {
    "a capture of that name": ((), "demo.sqlite", "is not an example export"),
    "a page of that name": ((), "demo.html", "is not a page of wallscope"),
    "a base of that name": (("--diff",), "demo-base.sqlite", "is not an example export"),
    "a head of that name": (("--diff",), "demo-head.sqlite", "is not an example export"),
    "another file in the folder": (("--job",), "demo-job/rank-0.sqlite", "holds other files"),
    "a stranger in the folder": (("--job",), "demo-job/notes.txt", "holds other files"),
    "a file for the folder": (("--job",), "demo-job", "is not a folder"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_files_of_others_stay_and_nothing_is_written(case, wallscope, tmp_path):
    options, name, said = REFUSED[case]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"SQLite format 3\0" + bytes(200))
    ran = wallscope("demo", *options)

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert said in ran.err
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == [path]
    assert path.read_bytes() == b"SQLite format 3\0" + bytes(200)


BAD = {
    "both kinds": ("--diff", "--job"),
    "an absent folder": ("--html", "absent/page.html"),
    "an absent folder, job": ("--job", "--html", "absent/page.html"),
    "a folder": ("--html", "."),
    "the export itself": ("--html", "demo.sqlite"),
    "no page to open": ("--open", "--html", "-"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_is_one_line_and_writes_nothing(case, wallscope, tmp_path):
    ran = wallscope("demo", *BAD[case])

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [(), ("--diff",), ("--job",)], ids=["run", "diff", "job"])
def test_a_disk_that_fails_half_way_leaves_nothing(options, wallscope, tmp_path, monkeypatch):
    def fail(_):
        raise example.sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(example, "_end_export", fail)
    ran = wallscope("demo", *options)

    assert (ran.code, ran.out) == (2, "")
    assert "cannot be written: database or disk is full" in ran.err
    assert ran.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_page_goes_to_standard_output_with_a_dash(wallscope, tmp_path):
    ran = wallscope("demo", "--html", "-")

    assert (ran.code, ran.err) == (0, "Wrote demo.sqlite (example export)\n")
    assert "<!DOCTYPE html>" in ran.out[:20]
    assert [path.name for path in tmp_path.iterdir()] == ["demo.sqlite"]


@pytest.mark.skipif(os.name == "nt", reason="the browser is a shell script")
def test_open_shows_the_page_in_the_browser(started, tmp_path):
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > "{tmp_path}/opened"\n', encoding="utf-8")
    browser.chmod(0o700)
    ran = started("demo", "--open", BROWSER=f"{browser} %s")

    assert (ran.code, ran.err.splitlines()[-1]) == (0, "Wrote demo.html")
    assert (tmp_path / "opened").read_text(encoding="utf-8") == (tmp_path / "demo.html").as_uri()


def test_without_a_browser_the_page_is_named(wallscope, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    ran = wallscope("demo", "--open")

    assert (ran.code, ran.err.splitlines()[-1]) == (0, "No browser was found. Open demo.html in yours.")


def test_ranks_of_the_job_end_each_collective_together(tmp_path):
    paths = {tmp_path / f"{setup.rank}.sqlite": setup for setup in example.JOB}
    example.write_ranks(paths)
    ends = []
    for path in paths:
        with example.sqlite3.connect(path) as connection:
            rows = connection.execute(
                'SELECT kernel."end" FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel'
                " JOIN StringIds AS string ON string.id = kernel.demangledName"
                " WHERE string.value LIKE 'nccl%' ORDER BY kernel.rowid"
            ).fetchall()
        connection.close()
        ends.append(rows)

    assert len(ends[0]) > 100
    assert all(one == ends[0] for one in ends)


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"", False), (b"SQLite format 3\0" + bytes(200), False), (b"wsde" * 50, False)],
    ids=["empty", "another database", "no database"],
)
def test_other_files_are_no_examples(content, expected, tmp_path):
    (tmp_path / "x").write_bytes(content)

    assert example.is_example(tmp_path / "x") is expected
    assert not example.is_example(tmp_path / "absent")
    assert not example.is_example(tmp_path)


def test_help_imports_no_generator(wallscope):
    sys.modules.pop("wallscope.demo.example", None)

    assert wallscope("demo", "--help").code == 0
    assert "wallscope.demo.example" not in sys.modules
