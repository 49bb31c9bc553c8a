"""Where results go: tables in folders that are whole or absent, and never over anything else."""

import json
from pathlib import Path

import polars as pl
import pytest

from fixtures.export import ExportWriter
from wallscope.cli.output import write_folder
from wallscope.errors import OutputError
from wallscope.model.table_columns import JOB_TABLES, TABLES
from wallscope.render import data

FORMULA = '=HYPERLINK("https://x.invalid")'


@pytest.fixture
def export(tmp_path):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path) as writer:
        for start_ns in range(0, 1_000, 100):
            writer.kernel(FORMULA, start_ns, start_ns + 50)
    return path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_both_kinds_of_folder_hold_the_same_tables_as_their_manifest_says(called, export, tmp_path):
    ran = called("analyze", export, "--csv", tmp_path / "csv", "--parquet", tmp_path / "parquet")

    assert ran.code == 0
    for table in TABLES:
        parquet = pl.read_parquet(tmp_path / "parquet" / f"{table.name}.parquet")
        csv = pl.read_csv(tmp_path / "csv" / f"{table.name}.csv", schema=table.schema)
        assert parquet.schema == table.schema
        assert csv.equals(data._guard(parquet))
    for kind in ("csv", "parquet"):
        folder = tmp_path / kind
        manifest = json.loads((folder / "manifest.json").read_text())
        assert {path.name for path in folder.iterdir()} == {
            *(f"{table.name}.{kind}" for table in TABLES),
            "manifest.json",
            "README.md",
        }
        for told in manifest["tables"]:
            read = pl.read_csv if kind == "csv" else pl.read_parquet
            rows = read(folder / told["file"])
            assert [column["name"] for column in told["columns"]] == rows.columns
            assert told["rows"] == len(rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["csv", "parquet", "run.sqlite"]


def test_a_formula_is_text_in_csv_and_itself_in_parquet(called, export, tmp_path):
    called("analyze", export, "--csv", tmp_path / "csv", "--parquet", tmp_path / "parquet")

    assert pl.read_csv(tmp_path / "csv" / "kernels.csv")["name"].to_list() == [f"'{FORMULA}"]
    assert pl.read_parquet(tmp_path / "parquet" / "kernels.parquet")["name"].to_list() == [FORMULA]


def test_letters_that_can_not_be_seen_are_spelled_in_csv_and_kept_in_parquet(called, tmp_path):
    name = "evil\x1b[31m\r\n::set-output\u202e\t\x85"
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.kernel(name, 0, 50)
    called("analyze", tmp_path / "run.sqlite", "--csv", tmp_path / "csv", "--parquet", tmp_path / "parquet")
    csv = (tmp_path / "csv" / "kernels.csv").read_text(encoding="utf-8")

    assert "evil\\x1b[31m\\r\\n::set-output\\u202e\\t\\x85" in csv
    assert csv.replace("\n", "").isprintable()
    assert pl.read_parquet(tmp_path / "parquet" / "kernels.parquet")["name"].to_list() == [name]


@pytest.mark.parametrize("option", ["--csv", "--parquet"])
def test_our_folder_is_replaced_by_the_same_bytes(called, export, tmp_path, option):
    called("analyze", export, option, tmp_path / "tables")
    first = contents(tmp_path / "tables")
    (tmp_path / "tables" / "README.md").write_text("old")
    ran = called("analyze", export, option, tmp_path / "tables")

    assert ran.code == 0
    assert contents(tmp_path / "tables") == first


def prepare(tmp_path, name):
    folder = tmp_path / "tables"
    match name:
        case "file":
            folder.write_text("a")
        case "link":
            (tmp_path / "other").mkdir()
            folder.symlink_to(tmp_path / "other")
        case "foreign":
            folder.mkdir()
            (folder / "thesis.tex").write_text("a")
        case "foreign manifest":
            folder.mkdir()
            (folder / "manifest.json").write_text('{"schema": "other"}')


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("file", "is not a folder", id="a file"),
        pytest.param("link", "is not a folder", id="a link to a folder"),
        pytest.param("foreign", "holds other files", id="foreign files"),
        pytest.param("foreign manifest", "holds other files", id="a manifest that is not ours"),
    ],
)
def test_what_is_not_ours_is_left_alone(called, export, tmp_path, name, said):
    prepare(tmp_path, name)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    ran = called("analyze", export, "--csv", tmp_path / "tables")

    assert ran.code == 2
    assert ran.err.startswith(f"wallscope: {tmp_path}/tables — {said} — ")
    assert ran.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_folder_of_ours_with_a_foreign_file_in_it_is_left_alone(called, export, tmp_path):
    called("analyze", export, "--csv", tmp_path / "tables")
    (tmp_path / "tables" / "mine.xlsx").write_text("a")
    ran = called("analyze", export, "--csv", tmp_path / "tables")

    assert ran.code == 2
    assert (tmp_path / "tables" / "mine.xlsx").read_text() == "a"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param(("--csv", "{0}/o", "--parquet", "{0}/o"), "named by --csv and by --parquet", id="one"),
        pytest.param(("--csv", "{0}/o", "--json", "{0}/o"), "named by --json and by --csv", id="file"),
        pytest.param(("--csv", "{0}"), "is an input or holds one", id="around the input"),
        pytest.param(("--csv", "{0}/o/p"), "the folder around it does not exist", id="nowhere"),
        pytest.param(("--csv", "-"), "is not a folder", id="standard output"),
        pytest.param(("--markdown", "{0}/run.sqlite"), "is an input", id="markdown over the input"),
        pytest.param(("--perfetto", "{0}/run.sqlite"), "is an input", id="trace over the input"),
        pytest.param(("--perfetto", "-"), "a trace is not text", id="trace on a terminal"),
        pytest.param(("--perfetto", "{0}/o", "--html", "{0}/o"), "named by --html and by", id="one file"),
    ],
)
def test_bad_places_are_refused_before_the_work(called, export, tmp_path, options, said):
    before = export.read_bytes()
    ran = called("analyze", export, *(option.format(tmp_path) for option in options))

    assert ran.code == 2
    assert said in ran.err
    assert export.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run.sqlite"]


def test_a_file_inside_a_folder_that_is_replaced_is_refused(called, export, tmp_path):
    (tmp_path / "o").mkdir()
    ran = called("analyze", export, "--csv", tmp_path / "o", "--json", tmp_path / "o" / "a.json")

    assert ran.code == 2
    assert "lies in the folder of --csv" in ran.err


@pytest.mark.parametrize("kind", ["a file in our folder", "another folder", "a file instead"])
def test_what_comes_while_tables_are_written_is_left_alone(called, export, tmp_path, monkeypatch, kind):
    target = tmp_path / "tables"
    if kind == "a file in our folder":
        called("analyze", export, "--csv", target)
    before = contents(target) if target.exists() else {}
    write = data.describe_columns

    def interrupted(*arguments):
        if kind != "a file instead":
            target.mkdir(exist_ok=True)
        (target if kind == "a file instead" else target / "mine.xlsx").write_text("mine")
        return write(*arguments)

    monkeypatch.setattr(data, "describe_columns", interrupted)
    ran = called("analyze", export, "--csv", target)

    assert (ran.code, ran.err.count("\n")) == (2, 1)
    if kind == "a file instead":
        assert target.read_text() == "mine"
    else:
        assert contents(target) == before | {"mine.xlsx": b"mine"}
        assert "holds other files" in ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.sqlite", "tables"]


def test_what_cannot_be_put_back_is_kept_and_named(tmp_path):
    target = tmp_path / "tables"
    target.mkdir()
    (target / "mine").write_text("mine")

    def is_ours(_):
        target.mkdir()
        (target / "other").write_text("other")
        return False

    with pytest.raises(OutputError, match=r"what was there is in .* — name another") as failed:
        write_folder(target, lambda _: None, is_ours)
    (kept,) = tmp_path.glob(".wallscope-*/former")
    assert str(kept) in str(failed.value)
    assert contents(kept) == {"mine": b"mine"}
    assert contents(target) == {"other": b"other"}


def test_a_failure_half_way_leaves_what_was_there(called, export, tmp_path, monkeypatch):
    called("analyze", export, "--csv", tmp_path / "tables")
    first = contents(tmp_path / "tables")

    def full(*_):
        raise OSError(28, "the disk is full")

    monkeypatch.setattr(data, "describe_columns", full)
    ran = called("analyze", export, "--csv", tmp_path / "tables")

    assert ran.code == 2
    assert "cannot be written: the disk is full" in ran.err
    assert contents(tmp_path / "tables") == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.sqlite", "tables"]


@pytest.fixture
def job(tmp_path):
    """Two exports of one job."""
    paths = (tmp_path / "rank0.sqlite", tmp_path / "rank1.sqlite")
    for place, path in enumerate(paths):
        with ExportWriter(path) as writer:
            for start_ns in range(0, 1_000, 100):
                writer.kernel("gemm", start_ns, start_ns + 50 + place)
    return paths


def test_a_job_has_its_markdown_and_its_tables(called, job, tmp_path):
    ran = called("analyze", *job, "--markdown", "-")

    assert ran.code == 0
    assert ran.out.startswith("### wallscope: ")
    assert "2 exports" in ran.out
    assert called("analyze", *job, "--csv", tmp_path / "o").code == 0
    told = json.loads((tmp_path / "o" / "manifest.json").read_text())["tables"]
    assert {table.name for table in JOB_TABLES} < {table["name"] for table in told}
    assert not {"slices", "gaps"} & {table["name"] for table in told}


def test_a_trace_that_fails_half_way_leaves_nothing(called, export, tmp_path, monkeypatch):
    def interrupted(*_):
        yield b"half"
        raise KeyboardInterrupt

    monkeypatch.setattr("wallscope.render.perfetto.write_trace", interrupted)
    ran = called("analyze", export, "--perfetto", tmp_path / "t.pftrace")

    assert ran.code == 130
    assert [path.name for path in tmp_path.iterdir()] == ["run.sqlite"]


def test_the_page_about_columns_is_what_a_folder_tells(request):
    page = Path(__file__).parents[2] / "docs" / "tables.md"
    written = data.describe_columns((*TABLES, *JOB_TABLES))
    if request.config.getoption("--golden"):
        page.write_text(written, encoding="utf-8")

    assert page.read_text(encoding="utf-8") == written


def test_every_column_of_a_table_is_described_once_or_in_the_shared_part():
    head, *parts = data.describe_columns((*TABLES, *JOB_TABLES)).split("\n## ")
    shared = next(part for part in parts if part.startswith("Columns of several tables"))
    for table in (*TABLES, *JOB_TABLES):
        (part,) = [part for part in parts if part.startswith(f"{table.name}\n")]
        for column in table.columns:
            row = f"| `{column.name}` | {column.kind} | {column.meaning} |"
            assert (row in part) != (row in shared), (table.name, column.name)
            assert f"`{column.name}`" in part
    assert "| column |" not in head
