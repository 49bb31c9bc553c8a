"""Every command says on standard error what it wrote, and nothing of what went to standard output."""

import io
from pathlib import Path

import pytest

from tests.conftest import run_part
from tests.shipped_example import EXAMPLE
from wallscope.cli import streams

CONFIGURATION = "model:\n  tensor_model_parallel_size: 2\n"
PLAN = ("--model", "deepseek-v3", "--gpus", "256", "--hardware", "h100")
WRITTEN = {
    "analyze, files": (
        ("analyze", EXAMPLE, "--json", "a.json", "--html", "a.html", "--markdown", "a.md"),
        ("a.json", "a.html", "a.md"),
    ),
    "analyze, tables and trace": (
        ("analyze", EXAMPLE, "--csv", "csv", "--parquet", "parquet", "--perfetto", "t.pftrace"),
        ("csv", "parquet", "t.pftrace"),
    ),
    "analyze in brief": (
        ("analyze", EXAMPLE, "--brief", "--json", "a.json", "--html", "a.html"),
        ("a.json", "a.html"),
    ),
    "analyze to standard output": (("analyze", EXAMPLE, "--json", "-", "--html", "a.html"), ("a.html",)),
    "whatif": (
        ("whatif", EXAMPLE, "--hide", "communication:ep", "--json", "w.json", "--html", "w.html"),
        ("w.json", "w.html"),
    ),
    "diff": (
        (
            "diff",
            EXAMPLE,
            EXAMPLE,
            "--json",
            "d.json",
            "--markdown",
            "d.md",
            "--html",
            "d.html",
            "--junit",
            "d.xml",
        ),
        ("d.json", "d.md", "d.html", "d.xml"),
    ),
    "steps": (("steps", EXAMPLE, "--csv", "s.csv", "--json", "s.json"), ("s.csv", "s.json")),
    "steps in brief": (
        ("steps", EXAMPLE, "--brief", "--csv", "s.csv", "--json", "s.json"),
        ("s.json", "s.csv"),
    ),
    "gaps to standard output": (("gaps", EXAMPLE, "--csv", "-"), ()),
    "advise": (("advise", *PLAN, "--json", "p.json"), ("p.json",)),
    "check-config": (("check-config", "run.yaml", "--json", "c.json"), ("c.json",)),
    "convert": (("convert", EXAMPLE, "tables"), ("tables",)),
    "install-recipe": (("install-recipe", "."), ("wallscope_job",)),
}


@pytest.mark.parametrize("case", run_part(WRITTEN, name=str, of=9))
def test_each_place_is_named_in_a_line_when_it_is_there(case, wallscope, tmp_path):
    (tmp_path / "run.yaml").write_text(CONFIGURATION, encoding="utf-8")
    arguments, places = WRITTEN[case]
    ran = wallscope(*arguments)

    assert (ran.code, ran.err) == (0, "".join(f"Wrote {place}\n" for place in places))
    assert [place for place in places if not (tmp_path / place).exists()] == []


def test_a_name_cannot_give_orders_to_a_terminal(monkeypatch):
    said = io.StringIO()
    monkeypatch.setattr("sys.stderr", said)
    streams.announce_output(Path("a\x1b[31m.html"))

    assert said.getvalue() == "Wrote a\\x1b[31m.html\n"


def test_the_line_takes_the_place_of_progress_on_a_terminal(monkeypatch):
    said = io.StringIO()
    monkeypatch.setattr(said, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", said)
    said.write("reading run.sqlite")
    streams.announce_output(Path("tables"))

    assert said.getvalue() == "reading run.sqlite\r\x1b[2KWrote tables\n"
