import os
from dataclasses import fields, replace
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fixtures.export import SCHEMAS, ExportWriter, global_pid
from fixtures.folders import folder_of, write_table
from tests.conftest import run_part, slow
from wallscope.errors import InputError
from wallscope.model.capture import Capture, Export
from wallscope.nsys import read_capture, read_contents
from wallscope.nsys.integrity import content_size_bytes, fingerprint
from wallscope.nsys.sources import open_folder
from wallscope.nsys.tables import Wanted

FORMATS = (".parquet", ".arrow")
REAL = (
    "a40_cutlass",
    "fuser_h200",
    "t4_streams",
    "mpi_v100_4rank",
    "nsysai_h100_2gpu_1s",
    "tf_2020_report23",
)


def write(path: Path, schema: str = "3.25.0", *, lazy: bool = True) -> Path:
    """Two processes, one of them on a host with a high id, which SQLite spells with negative numbers."""
    with ExportWriter(path, schema, lazy=lazy, time_shift_ns=1_000_000) as writer:
        writer.gpu()
        writer.machine("node1", 1_700_000_000_000_000_000)
        writer.environment(WORLD_SIZE="2")
        writer.row("ANALYSIS_DETAILS", duration=90_000)
        writer.row("ThreadNames", nameId=writer.string("pt_autograd_0"), globalTid=global_pid(1_000) + 1_000)
        for index in range(5):
            at = 10_000 * index
            writer.range(f"step {index}", at, at + 9_000)
            launch = writer.call("cudaLaunchKernel_v7000", at + 100, at + 200)
            writer.kernel("nvjet_tst_128x128", at + 1_000, at + 5_000, correlation=launch)
            writer.kernel("ncclDevKernel_AllReduce_x(y)", at + 4_000, at + 8_000, stream=9, graph_node=7)
            writer.kernel("far", at + 1, at + 2, gridX=5)
            writer.copy("host-to-device", at + 8_500, at + 9_000, 100)
            writer.fill(at + 8_900, at + 9_500, 10)
        writer.connection.execute(
            "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = ? WHERE gridX = 5",
            (global_pid(4_711, host=0xFE),),
        )
    return path


def capture(path: Path) -> Capture:
    return read_capture(path, lambda _: None)


def placeless(export: Export) -> Export:
    return replace(export, name="run", fingerprint="", size_bytes=0)


def assert_same_capture(found: Capture, expected: Capture) -> None:
    assert placeless(found.export) == placeless(expected.export)
    for field in fields(Capture):
        one, other = getattr(found, field.name), getattr(expected, field.name)
        if isinstance(one, pl.DataFrame):
            assert_frame_equal(one, other)
        elif field.name != "export":
            assert one == other, field.name


@pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "all tables"])
@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("schema", [SCHEMAS[0], *slow(*SCHEMAS[1:-1]), SCHEMAS[-1]])
def test_a_folder_gives_the_capture_that_the_sqlite_export_gives(schema, suffix, lazy, tmp_path):
    export = write(tmp_path / "run.sqlite", schema, lazy=lazy)

    assert_same_capture(capture(folder_of(export, suffix, rows_a_batch=2)), capture(export))


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_folder_gives_the_contents_that_the_sqlite_export_gives(schema, suffix, tmp_path):
    export = write(tmp_path / "run.sqlite", schema, lazy=False)

    found, expected = (
        read_contents(folder_of(export, suffix), lambda _: None),
        read_contents(export, lambda _: None),
    )

    assert replace(found, export=placeless(found.export)) == replace(
        expected, export=placeless(expected.export)
    )


@pytest.mark.parametrize(
    "table",
    run_part(
        [(name, suffix) for name in REAL for suffix in FORMATS],
        {"t4_streams.parquet"},
        name="".join,
    ),
)
def test_real_exports_read_the_same_from_a_folder(table, traces, tmp_path):
    name, suffix = table
    export = traces / f"{name}.sqlite"
    if not export.is_file():
        pytest.skip(f"no real export here: {export.name} is absent")
    link = tmp_path / "run.sqlite"
    link.symlink_to(export)

    assert_same_capture(capture(folder_of(link, suffix)), capture(export))


@pytest.mark.parametrize("suffix", FORMATS)
def test_folders_that_nsys_wrote_hold_what_its_sqlite_export_holds(suffix, traces):
    """But META_DATA_CAPTURE, which nsys 2023.4 writes into .sqlite alone."""
    folder, export = (traces / f"own_cap_nsys2023{end}" for end in (f"{suffix}dir", "_export2023.sqlite"))
    if not folder.is_dir() or not export.is_file():
        pytest.skip(f"no real export here: {folder.name} is absent")

    found, expected = read_contents(folder, lambda _: None), read_contents(export, lambda _: None)

    assert (len(expected.traced) > 0, found.traced) == (True, ())
    assert found.other_tables == expected.other_tables - 1
    assert replace(found, export=placeless(found.export)) == replace(
        expected, export=placeless(expected.export), traced=(), other_tables=found.other_tables
    )


@pytest.mark.parametrize("command", ["analyze", "info"])
def test_a_command_says_the_same_of_a_folder(command, wallscope, tmp_path):
    export = write(tmp_path / "run.sqlite")
    folder = folder_of(export, ".parquet").relative_to(tmp_path)  # longer paths break lines elsewhere

    ran, expected = wallscope(command, folder), wallscope(command, export.name)

    assert (ran.code, ran.err) == (0, "")
    said = ran.out.replace(folder.name, export.name)
    assert said.splitlines()[1:] == expected.out.splitlines()[1:]  # the first line has the size


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    ("values", "kind", "read"),
    [
        pytest.param([1, None, 2**64 - 1], pl.UInt64, [1, None, -1], id="unsigned"),
        pytest.param([1, None], pl.Int32, [1, None], id="32 bits"),
        pytest.param([True, None, False], pl.Boolean, [1, None, 0], id="yes and no"),
        pytest.param([0.5, None], pl.Float64, [0.5, None], id="fractions"),
        pytest.param(["a", None, "a"], pl.String, ["a", None, "a"], id="text"),
        pytest.param(["a", None, "a"], pl.Categorical, ["a", None, "a"], id="a dictionary of text"),
        pytest.param([None, None], pl.Null, [None, None], id="nothing"),
    ],
)
def test_queries_see_the_values_that_sqlite_would_hold(values, kind, read, suffix, tmp_path):
    write_table(pl.DataFrame({"value": pl.Series(values, dtype=kind)}), tmp_path / f"StringIds{suffix}")

    found = open_folder(tmp_path).select("SELECT string.value FROM StringIds AS string", ())

    assert found == [(value,) for value in read]


@pytest.mark.parametrize("suffix", FORMATS)
def test_rows_are_counted_and_keep_their_order(suffix, tmp_path):
    frame = pl.DataFrame({"start": range(10), "text": [f"t{index}" for index in range(10)]})
    write_table(frame, tmp_path / f"NVTX_EVENTS{suffix}", rows_a_batch=3)
    write_table(frame.clear(), tmp_path / f"OSRT_API{suffix}")

    tables = open_folder(tmp_path)

    assert tables.columns == {"NVTX_EVENTS": ("start", "text"), "OSRT_API": ("start", "text")}
    assert [tables.row_count(table) for table in tables.columns] == [10, 0]
    assert [tables.has_rows(table) for table in tables.columns] == [True, False]
    wanted = Wanted("NVTX_EVENTS", ["start"], ["text"])
    assert_frame_equal(tables.read_frame(wanted, lambda _: None), frame)
    some = replace(wanted, keys=pl.DataFrame({"start": [7, 2, 99]}))
    assert tables.read_frame(some, lambda _: None).rows() == [(2, "t2"), (7, "t7")]
    assert tables.select("SELECT COUNT(*) FROM NVTX_EVENTS", ()) == [(10,)]


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("name", ["a*b?[1]", "rank=1", "~", "%20#é"])
def test_a_folder_with_a_special_name_is_read_as_it_stands(name, suffix, tmp_path, monkeypatch):
    folder = folder_of(write(tmp_path / "run.sqlite"), suffix).rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    before = {entry.name: (entry.read_bytes(), entry.stat().st_mtime_ns) for entry in folder.iterdir()}

    assert capture(Path(name)).export.name == name
    assert {
        entry.name: (entry.read_bytes(), entry.stat().st_mtime_ns) for entry in folder.iterdir()
    } == before


def truncated(folder: Path) -> None:
    file = next(folder.glob("CUPTI_ACTIVITY_KIND_KERNEL.*"))
    os.truncate(file, file.stat().st_size - 9)


def damaged(folder: Path) -> None:
    file = next(folder.glob("CUPTI_ACTIVITY_KIND_KERNEL.*"))
    content = file.read_bytes()
    file.write_bytes(content[:8] + b"\xff" * (len(content) - 16) + content[-8:])


def without_tables(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    (folder / "notes.txt").write_text("x")


def foreign(folder: Path) -> None:
    suffix = next(folder.iterdir()).suffix
    without_tables(folder)
    write_table(pl.DataFrame({"x": [1]}), folder / f"sales{suffix}")


def replaced_by(content: bytes):
    return lambda folder: next(folder.glob("StringIds.*")).write_bytes(content)


def pipe(folder: Path) -> None:
    file = next(folder.glob("StringIds.*"))
    file.unlink()
    os.mkfifo(file)


def mixed(folder: Path) -> None:
    for suffix in FORMATS:
        write_table(pl.DataFrame({"x": [1]}), folder / f"OSRT_API{suffix}")


def fractions_for_times(folder: Path) -> None:
    file = next(folder.glob("CUPTI_ACTIVITY_KIND_KERNEL.*"))
    rows = pl.read_parquet(file) if file.suffix == ".parquet" else pl.read_ipc_stream(file)
    write_table(rows.with_columns(pl.col("start") + 0.5), file)


def text_that_is_no_utf_8(folder: Path) -> None:
    file = next(folder.glob("StringIds.*"))
    frame = pl.DataFrame({"id": [1], "value": ["a text of some length: ABCDEFGH"]})
    if file.suffix == ".parquet":
        frame.write_parquet(file, compression="uncompressed", statistics=False)
    else:
        frame.write_ipc_stream(file, compat_level=pl.CompatLevel.oldest())
    file.write_bytes(file.read_bytes().replace(b"ABCDEFGH", b"\xff" * 8))


BAD = {
    "no UTF-8": (
        text_that_is_no_utf_8,
        "StringIds.* text that is not UTF-8 — .* export the report as one file",
    ),
    "no table": (without_tables, "is a folder without a table of Nsight Systems"),
    "tables of others": (foreign, "is not an Nsight Systems export"),
    "truncated": (truncated, "is truncated"),
    "damaged": (damaged, "is damaged inside"),
    "emptied": (replaced_by(b""), "is empty"),
    "lfs": (replaced_by(b"version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"),
    "text": (replaced_by(b"id,value\n"), "is not (a Parquet file|an Arrow stream)"),
    "pipe": (pipe, "is not a regular file"),
    "both formats": (mixed, "both .parquet and .arrow"),
    "other exports": (
        lambda folder: (folder / "a.sqlite").touch(),
        "with 1 whole export, .* name one of them",
    ),
    "reports": (lambda folder: (folder / "a.nsys-rep").touch(), "with 1 whole export"),
    "fractions for times": (fractions_for_times, "column start has a value that is not an integer"),
}


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_folder_is_refused_with_place_fault_and_cure(kind, suffix, tmp_path):
    folder = folder_of(write(tmp_path / "run.sqlite"), suffix)
    change, said = BAD[kind]
    change(folder)

    with pytest.raises(InputError, match=said) as raised:
        capture(folder)
    assert str(raised.value).startswith(str(folder))
    assert str(raised.value).count(" — ") == 2
    assert "\n" not in str(raised.value)


def test_a_fingerprint_of_a_folder_names_its_tables_and_their_content(tmp_path):
    folder = folder_of(write(tmp_path / "run.sqlite"), ".parquet")
    size_bytes = content_size_bytes(folder)
    first = fingerprint(folder, size_bytes)

    moved = folder.rename(tmp_path / "moved")
    (moved / "notes.txt").write_text("of no account")
    assert (content_size_bytes(moved), fingerprint(moved, size_bytes)) == (size_bytes, first)
    assert size_bytes == sum(file.stat().st_size for file in moved.glob("*.parquet"))

    renamed = (moved / "PROFILER_OVERHEAD.parquet", moved / "ThreadNames.parquet")
    renamed[1].rename(renamed[0])
    assert fingerprint(moved, size_bytes) != first
    renamed[0].rename(renamed[1])
    assert fingerprint(moved, size_bytes) == first

    content = bytearray(renamed[1].read_bytes())
    content[len(content) // 2] ^= 1
    renamed[1].write_bytes(content)
    assert fingerprint(moved, size_bytes) != first
