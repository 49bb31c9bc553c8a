"""The library: what a notebook shows is what the command writes; the tutorial runs."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import wallscope
from fixtures.export import ExportWriter
from wallscope.demo.example import write_example
from wallscope.errors import OutputError
from wallscope.model.enums import Wall
from wallscope.model.table_columns import TABLES
from wallscope.render.data import write_json, write_tables

HOSTILE = "<script>alert(1)</script>\u202e"
TUTORIAL = Path(__file__).resolve().parents[1] / "docs" / "notebook.md"


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    path = tmp_path_factory.mktemp("api") / f"run {HOSTILE.replace('/', '|')}.sqlite"
    with ExportWriter(path) as writer:
        for start_ns in range(0, 1_000, 100):
            writer.kernel(HOSTILE, start_ns, start_ns + 50)
    return path


@pytest.fixture(scope="module")
def result(export):
    return wallscope.analyze(export)


class Elements(HTMLParser):
    """Names of elements and attributes."""

    def __init__(self, text):
        super().__init__()
        self.found, self.attributes = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.add(tag)
        self.attributes.update(name for name, _ in attributes)


def test_frames_are_those_of_the_files(result, tmp_path):
    write_tables(tmp_path, "parquet", "run", result.frame)

    assert result.tables == tuple(table.name for table in TABLES)
    for name in result.tables:
        assert_frame_equal(result.frame(name), pl.read_parquet(tmp_path / f"{name}.parquet"))


def test_unknown_names_are_refused_with_those_that_are_known(result):
    with pytest.raises(
        wallscope.WallscopeError, match=r"kernelz — is not a table — the tables are .*kernels"
    ):
        result.frame("kernelz")
    with pytest.raises(
        wallscope.WallscopeError, match="pie — is not a figure — the figures are steps, waterfall"
    ):
        result.figure("pie")


@pytest.mark.parametrize("name", [table.name for table in TABLES])
def test_pandas_has_the_same_values(result, name):
    frame, other = result.frame(name), result.to_pandas(name)

    assert list(other.columns) == frame.columns
    told = [[None if pd.isna(value) else value for value in row] for row in other.itertuples(index=False)]
    assert told == [list(row) for row in frame.iter_rows()]
    whole = [column.name for column in frame if column.dtype.is_integer()]
    assert all("int" in str(other[column].dtype).lower() for column in whole)


def test_the_json_is_that_of_the_command(result):
    assert result.to_json() == write_json(result.analysis)
    assert json.loads(result.to_json())["diagnosis"]["verdict"] == result.verdict


def test_cards_have_no_script_no_request_and_no_foreign_markup(result, export):
    for shown in (result, wallscope.diff(export, export)):
        text = shown._repr_html_()
        elements = Elements(text)

        assert elements.found <= {"div", "span", "b", "table", "tr", "td", "th", "ol", "li"}
        assert elements.attributes <= {"style", "title"}
        assert "http" not in text
        assert "\u202e" not in text


def test_the_card_has_the_walls_of_the_answer(result):
    typical = result.analysis.ranks[0].typical
    shares = {wall: time_ns for wall, time_ns in zip(Wall, typical.walls.parts(), strict=True) if time_ns}
    bars = dict(re.findall(r'flex:(\d+);background:#\w+" title="(\w+)"', result._repr_html_()))

    assert {wall: int(time_ns) for time_ns, wall in bars.items()} == shares


def test_figures_are_those_of_plotly(result):
    for name in result.figures:
        figure = result.figure(name)
        assert type(figure).__module__.startswith("plotly.")
        assert HOSTILE not in figure.to_json()


def test_the_report_is_written_whole(result, tmp_path):
    result.to_html(tmp_path / "run.html")

    assert (tmp_path / "run.html").read_text(encoding="utf-8") == result.report
    with pytest.raises(OutputError, match="cannot be written"):
        result.to_html(tmp_path / "none" / "run.html")


def test_the_page_of_a_comparison_is_written_whole(export, tmp_path):
    compared = wallscope.diff(export, export)
    compared.to_html(tmp_path / "diff.html")

    assert (tmp_path / "diff.html").read_text(encoding="utf-8") == compared.report


def test_several_exports_are_one_job_with_the_tables_of_its_answer(tmp_path):
    for place in range(2):
        with ExportWriter(tmp_path / f"rank{place}.sqlite") as writer:
            for start_ns in range(0, 1_000, 100):
                writer.kernel("gemm", start_ns, start_ns + 50 + place)
    found = wallscope.analyze(tmp_path)

    assert repr(found) == "<wallscope.Result 2 exports: compute>"
    assert [len(found.frame(name)) for name in ("ranks", "steps")] == [2, 2]
    assert "slices" not in found.tables
    with pytest.raises(
        wallscope.WallscopeError, match="slices — is not a table of an answer — these are ranks,"
    ):
        found.frame("slices")
    found.to_html(tmp_path / "run.html")
    written = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "2 exports" in written
    assert 'id="timeline"' not in written


def test_arguments_select_as_options_do(export):
    found = wallscope.analyze(export, time_ns=(0, 400), streams={7: "ep"})

    assert found.analysis.anchor.selected_time_ns == (0, 400)
    assert found.frame("operations")["start_ns"].to_list() == [0, 100, 200, 300]


def test_importing_it_is_light():
    heavy = "{'polars', 'numpy', 'pandas', 'plotly', 'pydantic', 'rich', 'typer'}"
    code = f"import sys, wallscope; print({heavy} & set(sys.modules), sorted(dir(wallscope))[0])"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=TUTORIAL.parents[1]
    )

    assert ran.stdout == "set() ComparisonResult\n"


def test_an_unknown_name_of_the_package_is_an_error():
    with pytest.raises(AttributeError, match="has no attribute 'analyse'"):
        wallscope.analyse  # noqa: B018


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory):
    """The names that the blocks of the tutorial leave, run one after the other."""
    folder = tmp_path_factory.mktemp("tutorial")
    write_example(folder / "demo.sqlite")
    names = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL):
            exec(compile(block, str(TUTORIAL), "exec"), names)
    return names | {"folder": folder}


def test_the_tutorial_says_what_is_so(tutorial):
    result, analysis = tutorial["result"], tutorial["result"].analysis
    rank = analysis.ranks[0]

    assert tutorial["dominant"] == "communication"
    assert sum(tutorial["lost_ns"].values()) == rank.typical.walls.communication
    by_wall = {(step, wall): time_ns for step, wall, time_ns in tutorial["by_wall"].iter_rows()}
    for step in rank.steps:
        parts = zip(Wall, step.walls.parts(), strict=True)
        assert all(by_wall.get((step.index, wall), 0) == time_ns for wall, time_ns in parts)
    assert tutorial["in_host"]["lost_ns"].sum() == rank.steps[4].walls.host
    assert tutorial["ended"]["call_name"].null_count() == tutorial["ended"]["ended_by_op"].null_count()
    assert tutorial["work_ns"].sum() == tutorial["kernels"]["work_ns"].sum() > 0
    assert (tutorial["folder"] / "run.html").read_text(encoding="utf-8").endswith("</html>")
    assert tutorial["comparison"].verdict == "no-change"
    assert result._repr_html_().count("<li>") == 3
