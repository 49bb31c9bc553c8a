"""`wallscope demo`: what it prints and writes, what it leaves alone, and that nothing is half written."""

import os
import re
import shlex
import sys

import pytest

from tests.conftest import slow
from wallscope.demo import example

KINDS = {
    "run": ((), "demo.html", ("demo.sqlite",), ("analyze", "demo.sqlite"), "\nCOMMUNICATION-BOUND "),
    "diff": (
        ("--diff",),
        "demo-diff.html",
        ("demo-base.sqlite", "demo-head.sqlite"),
        ("diff", "demo-base.sqlite", "demo-head.sqlite"),
        "\nSLOWER: ",
    ),
    "job": (
        ("--job",),
        "demo-job.html",
        ("demo-job",),
        ("analyze", "demo-job"),
        "\n  Rank 2 is late in every step",
    ),
}
JOB_FILES = [f"rank-{rank}.sqlite" for rank in range(4)]


@pytest.fixture(scope="module")
def kept():
    """What demos said and wrote, by their kind: tests of one kind share one run."""
    return {}


@pytest.fixture
def demo(kept, wallscope, tmp_path):
    """What a demo says; what it writes lies in the folder of the test."""

    def run(kind):
        if kind not in kept:
            ran = wallscope("demo", *KINDS[kind][0])
            kept[kind] = ran, read_files(tmp_path)
        ran, files = kept[kind]
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(content)
        return ran

    return run


def read_files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("kind", ["run", *slow("diff", "job")])
def test_the_answer_and_the_page_are_those_of_the_commands_it_stands_for(kind, demo, wallscope, tmp_path):
    _, page, exports, command, verdict = KINDS[kind]
    ran = demo(kind)
    what = "example exports" if kind == "job" else "example export"
    said = "".join(f"Wrote {name} ({what})\n" for name in exports)

    assert (ran.code, ran.err) == (0, f"{said}Wrote {page}\n")
    assert {path.name for path in tmp_path.iterdir()} == {page, *exports}
    written = (tmp_path / page).read_bytes()
    again = wallscope(*command, "--html", page)
    assert (again.out, (tmp_path / page).read_bytes()) == (ran.out, written)
    assert re.search(verdict, ran.out), "the help promises another verdict"
    if kind == "job":
        assert sorted(path.name for path in (tmp_path / "demo-job").iterdir()) == JOB_FILES


def test_the_next_commands_on_the_screen_work(demo, wallscope):
    lines = demo("run").out.partition("\nNext ")[2].splitlines()
    commands = [re.split(r" {2,}", line.strip())[0] for line in lines if "wallscope " in line]
    ready = [command for command in commands if "FILE" not in command]

    assert len(ready) >= 3
    for command in ready:
        assert wallscope(*shlex.split(command)[1:]).code == 0, command


@pytest.mark.parametrize("kind", slow("run", "diff", "job"))
def test_a_second_demo_replaces_the_first_one(kind, demo, wallscope, tmp_path):
    first = demo(kind)
    before = read_files(tmp_path)

    assert wallscope("demo", *KINDS[kind][0]) == first
    assert read_files(tmp_path) == before


def test_exports_lie_next_to_the_page_that_is_named_also_without_a_browser(wallscope, tmp_path, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    (tmp_path / "out").mkdir()
    ran = wallscope("demo", "--html", "out/page.html", "--open")

    assert ran.err == (
        "Wrote out/demo.sqlite (example export)\nWrote out/page.html\n"
        "No browser was found. Open out/page.html in yours.\n"
    )
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


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="run"),
        pytest.param(("--diff",), id="diff", marks=pytest.mark.slow),
        pytest.param(("--job",), id="job", marks=pytest.mark.slow),
    ],
)
def test_a_disk_that_fails_half_way_leaves_nothing(options, wallscope, tmp_path, monkeypatch):
    def fail(_):
        raise example.sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(example, "_end_export", fail)
    ran = wallscope("demo", *options)

    assert (ran.code, ran.out) == (2, "")
    assert "cannot be written: database or disk is full" in ran.err
    assert ran.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
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


@pytest.mark.slow
def test_ranks_of_the_job_end_each_collective_together(demo, tmp_path):
    demo("job")
    ends = []
    for path in sorted((tmp_path / "demo-job").iterdir()):
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
