"""What tables take is known from their own contents, and tables that are far too small for it are refused."""

import resource
import shutil
import subprocess
import sys

import polars as pl
import pytest

from fixtures.export import ExportWriter
from fixtures.folders import folder_of
from tests.conftest import ROOT, slow
from wallscope.errors import InputError
from wallscope.nsys.integrity import measure_table
from wallscope.nsys.sources import _read, open_folder

FRAME = pl.DataFrame({"a": range(1_000), "b": ["text"] * 1_000, "c": [None] * 1_000})


@pytest.mark.parametrize("compression", ["zstd", "uncompressed", "lz4", "snappy", "gzip"])
def test_a_parquet_file_tells_its_rows_and_columns(tmp_path, compression):
    path = tmp_path / "t.parquet"
    FRAME.write_parquet(path, compression=compression, row_group_size=300)
    found = measure_table(path)
    assert (found.rows, set(found.of_columns)) == (1_000, {"a", "b", "c"})
    assert found.of_columns["a"] > 1_000


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_an_arrow_file_tells_its_rows_and_size(tmp_path, compression):
    path = tmp_path / "t.arrow"
    FRAME.write_ipc_stream(path, compression=compression)
    found = measure_table(path)
    assert found.rows == 1_000
    assert 8_000 <= found.unpacked_bytes < 100_000


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_what_is_damaged_is_no_crash(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    FRAME.write_parquet(path) if suffix == "parquet" else FRAME.write_ipc_stream(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), max(len(whole) // 400, 1)):
        for value in (0, 255, 127):
            path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            try:
                measure_table(path)
            except ValueError:
                continue


@pytest.fixture(scope="module", params=["parquet", "arrow"])
def folder(request, tmp_path_factory):
    place = tmp_path_factory.mktemp(request.param)
    with ExportWriter(place / "run.sqlite") as writer:
        writer.gpu()
        for step in range(5):
            number = writer.call("cudaLaunchKernel", step * 1_000, step * 1_000 + 100)
            writer.kernel("gemm", step * 1_000 + 200, step * 1_000 + 900, correlation=number)
    return folder_of(place / "run.sqlite", f".{request.param}")


def replace_table(folder, name, frame):
    suffix = next(folder.iterdir()).suffix
    path = folder / f"{name}{suffix}"
    if suffix == ".parquet":
        frame.write_parquet(path, compression="zstd")
    else:
        frame.write_ipc_stream(path, compression="zstd")
    return path


def huge_rows(folder):
    suffix = next(folder.iterdir()).suffix
    path = folder / f"CUPTI_ACTIVITY_KIND_KERNEL{suffix}"
    read = pl.read_parquet if suffix == ".parquet" else pl.read_ipc_stream
    row = read(path).head(1)
    many = pl.DataFrame([column.new_from_index(0, 20_000_000) for column in row[:, :4]])
    first = [name for name in ("start", "end") if name not in many.columns]
    return replace_table(
        folder, path.stem, many.with_columns(pl.lit(row[name][0]).alias(name) for name in first)
    )


def huge_texts(folder):
    ids = pl.Series("id", range(300_000), dtype=pl.Int64)
    text = pl.Series("value", ["x" * 50_000], dtype=pl.String).new_from_index(0, 300_000)
    return replace_table(folder, "StringIds", pl.DataFrame([ids, text]).slice(0, 60_000))


@pytest.mark.parametrize("command", ["analyze", *slow("info")])
@pytest.mark.parametrize("make", [huge_rows, *slow(huge_texts)])
def test_a_small_file_of_many_rows_or_long_texts_is_refused(folder, tmp_path, make, command):
    place = tmp_path / "tables"
    shutil.copytree(folder, place)
    path = make(place)
    assert path.stat().st_size < 4 << 20

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))

    ran = subprocess.run(
        [sys.executable, "-m", "wallscope", command, place],
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=limit,
        check=False,
    )
    if command == "info" and ran.returncode == 0:
        return  # it counts rows, and reads none of them
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1), ran.stderr[-800:]
    assert "memory" in ran.stderr


def test_a_table_that_nobody_reads_may_be_as_it_is(folder, tmp_path):
    place = tmp_path / "tables"
    shutil.copytree(folder, place)
    many = pl.DataFrame({"x": pl.Series([0]).new_from_index(0, 80_000_000)})
    replace_table(place, "GENERIC_EVENTS", many)
    tables = open_folder(place)
    assert tables.row_count("GENERIC_EVENTS") == 80_000_000
    with pytest.raises(InputError, match="tables of exports are not so compressed"):
        _read(tables.files["GENERIC_EVENTS"], ["x"])
