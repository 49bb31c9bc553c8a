import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from fixtures.export import ExportWriter
from wallscope.errors import InputError
from wallscope.nsys import read_capture, read_contents
from wallscope.nsys.integrity import fingerprint


def export(path: Path, kernels: int = 200) -> Path:
    with ExportWriter(path) as writer:
        for index in range(kernels):
            writer.kernel("nvjet_tst_128x128", 1_000 * index + 1, 1_000 * index + 500)
    return path


def read(path: Path) -> None:
    read_capture(path, lambda _: None)


def database(path: Path, *statements: str) -> Path:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


def truncated(path: Path) -> None:
    size_bytes = export(path).stat().st_size
    os.truncate(path, size_bytes - 4096)


def zeroed_header(path: Path) -> None:
    content = export(path).read_bytes()
    path.write_bytes(bytes(4096) + content[4096:])


def damaged_page(path: Path) -> None:
    content = bytearray(export(path, 2_000).read_bytes())
    content[4096:8192] = b"\xff" * 4096
    path.write_bytes(content)


def hot_journal(path: Path) -> None:
    export(path)
    Path(f"{path}-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))


def waiting_log(path: Path) -> None:
    export(path)
    Path(f"{path}-wal").write_bytes(b"\x37\x7f\x06\x82" + bytes(60))


def text_for_a_time(path: Path) -> None:
    with ExportWriter(path) as writer:
        writer.kernel("nvjet_tst_128x128", 1, 2)
        writer.connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon'")


def no_start_column(path: Path) -> None:
    database(
        path,
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (begin INTEGER, end INTEGER)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2)",
    )


BAD = {
    "missing": (lambda _: None, "there is no such file"),
    "empty": (lambda path: path.touch(), "is empty"),
    "folder": (lambda path: path.mkdir(), "is an empty folder"),
    "arrow": (lambda path: path.write_bytes(b"\xff\xff\xff\xff" + bytes(200)), "is an Arrow stream"),
    "fifo": (os.mkfifo, "not a regular file"),
    "text": (lambda path: path.write_text("start,end\n1,2\n"), "is not an SQLite database"),
    "lfs": (lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"),
    "report": (
        lambda path: path.write_bytes(b"NVIDIA Tegra Profiler Report 2023"),
        "nsys export --type sqlite",
    ),
    "parquet": (lambda path: path.write_bytes(b"PAR1" + bytes(200)), "a Parquet file"),
    "short header": (
        lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(20)),
        "ends inside its header",
    ),
    "zeroed header": (zeroed_header, "the export was interrupted"),
    "truncated": (truncated, "is truncated"),
    "damaged page": (damaged_page, "is damaged"),
    "hot journal": (hot_journal, "is half-written"),
    "log": (waiting_log, "has changes waiting in"),
    "other database": (lambda path: database(path, "CREATE TABLE t (x)"), "not an Nsight Systems export"),
    "nvprof": (
        lambda path: database(path, "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (_id_, start, end)"),
        "is an nvprof profile",
    ),
    "text for a time": (text_for_a_time, "a value that is not an integer"),
    "no start column": (no_start_column, "has no column start"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_export_is_refused_with_file_fault_and_cure(kind, tmp_path):
    make, said = BAD[kind]
    path = tmp_path / "run.sqlite"
    make(path)

    with pytest.raises(InputError, match=said) as raised:
        read(path)
    assert str(raised.value).startswith(f"{path} — ")
    assert str(raised.value).count(" — ") == 2
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("suffix", [".nsys-rep", ".qdrep", ".qdstrm"])
def test_a_report_is_known_by_its_suffix_too(suffix, tmp_path):
    path = tmp_path / f"run{suffix}"
    path.write_bytes(b"\x01\x02\x03" * 50)

    with pytest.raises(InputError, match="nsys export --type sqlite"):
        read(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_refused(tmp_path):
    path = export(tmp_path / "run.sqlite")
    path.chmod(0)

    with pytest.raises(InputError, match=r"cannot be read: .* — check its permissions"):
        read(path)


def test_a_name_with_special_characters_is_opened_as_it_stands(tmp_path):
    path = export(tmp_path / "a%20b?mode=rwc#c é.sqlite")

    read(path)

    assert sorted(entry.name for entry in tmp_path.iterdir()) == [path.name]


def test_reading_leaves_file_and_folder_as_they_were(tmp_path):
    path = export(tmp_path / "run.sqlite")
    Path(f"{path}-wal").touch()  # an empty log holds nothing
    Path(f"{path}-journal").write_bytes(bytes(512))  # a finished journal of mode PERSIST
    before = {entry.name: (entry.read_bytes(), entry.stat().st_mtime_ns) for entry in tmp_path.iterdir()}

    read(path)
    read_contents(path, lambda _: None)

    after = {entry.name: (entry.read_bytes(), entry.stat().st_mtime_ns) for entry in tmp_path.iterdir()}
    assert after == before


def test_a_database_in_write_ahead_mode_is_read_without_making_a_log(tmp_path):
    path = export(tmp_path / "run.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.close()

    read(path)

    assert [entry.name for entry in tmp_path.iterdir()] == ["run.sqlite"]


def test_a_fingerprint_names_the_content_not_the_place(tmp_path):
    first = export(tmp_path / "a.sqlite", 3_000)
    second = Path(shutil.copy(first, tmp_path / "b.sqlite"))
    size_bytes = first.stat().st_size

    assert fingerprint(first, size_bytes) == fingerprint(second, size_bytes)

    database(second, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = start + 1 WHERE rowid = 1500")
    assert fingerprint(first, size_bytes) != fingerprint(second, second.stat().st_size)
