import os
import shutil
import sys
from pathlib import Path

import pytest

from fixtures.export import ExportWriter
from wallscope.errors import InputError
from wallscope.nsys import read_capture, read_contents
from wallscope.nsys.sources import resolve_export

REPORT = b"NVIDIA Tegra Profiler Report 2026@2@1\n" + bytes(5_000)
PROGRAM = """#!{python}
import shutil, sys
from pathlib import Path
*options, report = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(" ".join(options[:-1] + [report]) + "\\n")
prepared, made = Path({prepared!r}), Path(options[-1])
{does}
"""
COPIES = "shutil.copyfile(prepared, made)"


class Machine:
    """A folder with a report, an export of it, a cache, and perhaps a program called nsys."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.prepared = root / "prepared.sqlite"
        with ExportWriter(self.prepared) as writer:
            writer.kernel("nvjet", 1, 2)
        (root / "runs").mkdir()
        self.report = root / "runs" / "run.nsys-rep"
        self.report.write_bytes(REPORT)
        self.exports = root / "a cache" / "wallscope" / "exports"
        self.log = root / "log"

    def install(self, does: str = COPIES) -> None:
        program = self.root / "bin" / "nsys"
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            PROGRAM.format(python=sys.executable, log=str(self.log), prepared=str(self.prepared), does=does)
        )
        program.chmod(0o755)

    def runs(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def kept(self) -> list[str]:
        return sorted(entry.name for entry in self.exports.iterdir())


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Machine:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    monkeypatch.delenv("WALLSCOPE_CACHE_DIR")
    return Machine(tmp_path)


def test_a_report_reads_as_its_export_under_its_own_name(machine):
    machine.install()
    said: list[str] = []

    found = read_capture(machine.report, said.append)
    expected = read_capture(machine.prepared, lambda _: None)

    assert found.export.name == "run.nsys-rep"
    assert found.export.size_bytes == len(REPORT)
    assert found.operations.rows() == expected.operations.rows()
    assert (
        read_contents(machine.report, lambda _: None).tables
        == read_contents(machine.prepared, lambda _: None).tables
    )


def test_nsys_is_told_to_export_aside_and_quietly(machine):
    machine.install()
    said: list[str] = []

    kept = resolve_export(machine.report, said.append)

    assert machine.runs() == [f"export -q true -t sqlite -f true -o {machine.report}"]
    assert said == ["exporting run.nsys-rep with nsys"]
    assert kept.parent == machine.exports
    assert kept.read_bytes() == machine.prepared.read_bytes()
    assert [entry.name for entry in machine.report.parent.iterdir()] == ["run.nsys-rep"]


def test_the_cache_is_the_users_alone_and_holds_whole_exports_alone(machine):
    machine.install()
    machine.exports.mkdir(parents=True, mode=0o755)

    resolve_export(machine.report, lambda _: None)

    assert machine.exports.stat().st_mode & 0o777 == 0o700
    assert [Path(name).suffix for name in machine.kept()] == [".sqlite"]


def test_a_report_is_exported_once(machine):
    machine.install()
    first = resolve_export(machine.report, lambda _: None)
    copy = Path(shutil.copy(machine.report, machine.root / "copy.nsys-rep"))

    assert resolve_export(machine.report, lambda _: None) == first
    assert resolve_export(copy, lambda _: None) == first
    assert len(machine.runs()) == 1

    copy.write_bytes(REPORT + b"more")
    assert resolve_export(copy, lambda _: None) != first
    assert len(machine.runs()) == 2


def test_a_kept_export_that_was_damaged_is_made_again(machine):
    machine.install()
    kept = resolve_export(machine.report, lambda _: None)
    os.truncate(kept, kept.stat().st_size - 4_096)

    assert resolve_export(machine.report, lambda _: None).read_bytes() == machine.prepared.read_bytes()
    assert len(machine.runs()) == 2


@pytest.mark.parametrize("name", ["a b.nsys-rep", "-o.nsys-rep", "$(touch x);'y\".qdrep", "run.QDREP"])
def test_a_name_of_any_letters_reaches_nsys_as_it_stands(name, machine, monkeypatch):
    machine.install()
    monkeypatch.chdir(machine.report.parent)
    machine.report.rename(name)

    resolve_export(Path(name), lambda _: None)

    assert machine.runs() == [f"export -q true -t sqlite -f true -o {machine.report.with_name(name)}"]


SAYS = "sys.stderr.write({!r}); sys.exit(1)"
FAILURES = {
    "newer report": (
        SAYS.format("\nExportation error: made by version (2026.2), newer than yours.\nPlease update.\n"),
        "Exportation error: made by version (2026.2), newer than yours",
    ),
    "paths": (
        SAYS.format("Cannot open '/home/jo doe/x y', C:\\Users\\jo or ~/z: no"),
        "Cannot open <path>, <path> or <path>: no",
    ),
    "path of the report": ('sys.exit(f"{report}: no")', "<path>: no"),
    "path of the cache": ('sys.exit(f"{made}: no")', "<path>: no"),
    "no text": (
        'sys.stderr.buffer.write(b"\\x1b[31mbad\\xff\\n"); sys.exit(3)',
        "?[31mbad\ufffd",
    ),
    "long": ('sys.stderr.write("e" * 10_000); sys.exit(1)', "e" * 199 + "…"),
    "silent": ("sys.exit(7)", "it wrote no complete export and ended with code 7"),
    "no export": ("", "it wrote no complete export and ended with code 0"),
    "rubbish": ('made.write_text("x" * 200)', "it wrote no complete export and ended with code 0"),
    "half an export": (
        "made.write_bytes(prepared.read_bytes()[:8192])",
        "it wrote no complete export and ended with code 0",
    ),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_what_nsys_cannot_export_is_refused_with_its_own_words(kind, machine):
    does, said = FAILURES[kind]
    machine.install(does)

    with pytest.raises(InputError) as raised:
        read_capture(machine.report, lambda _: None)

    assert str(raised.value) == (
        f"{machine.report} — nsys cannot export it: {said} — export it with the nsys that captured it:"
        " nsys export --type sqlite"
    )
    assert machine.kept() == []


def test_an_nsys_that_does_not_start_is_said(machine):
    machine.install()
    (machine.root / "bin" / "nsys").write_bytes(b"\x00\x01")

    with pytest.raises(InputError, match=r"cannot be exported aside: .* — export it: nsys export"):
        resolve_export(machine.report, lambda _: None)


def test_a_cache_that_cannot_be_made_is_said(machine):
    machine.install()
    (machine.root / "a cache").touch()

    with pytest.raises(InputError, match=r"cannot be exported aside: .* — export it: nsys export"):
        resolve_export(machine.report, lambda _: None)


def test_without_nsys_a_report_is_told_how_to_become_an_export(machine):
    assert resolve_export(machine.report, lambda _: None) == machine.report
    with pytest.raises(InputError, match="export it first: nsys export --type sqlite"):
        read_capture(machine.report, lambda _: None)
    assert not (machine.root / "a cache").exists()


def test_what_is_no_report_never_reaches_nsys(machine):
    machine.install()
    sqlite = machine.prepared.rename(machine.root / "odd.nsys-rep")
    empty = machine.root / "empty.nsys-rep"
    empty.touch()
    pipe = machine.root / "pipe.nsys-rep"
    os.mkfifo(pipe)

    for path in (sqlite, empty, pipe, machine.root, machine.root / "missing.nsys-rep"):
        assert resolve_export(path, lambda _: None) == path
    assert machine.runs() == []


def test_the_real_nsys_exports_a_real_report(traces, tmp_path, monkeypatch):
    report = traces / "own_cap_nsys2023.nsys-rep"
    if shutil.which("nsys") is None or not report.is_file():
        pytest.skip("no nsys on the PATH, or own_cap_nsys2023.nsys-rep is absent")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = sorted(traces.iterdir())

    try:
        found = read_contents(report, lambda _: None)
    except InputError as error:
        if "Version number is invalid" not in str(error):
            raise
        pytest.skip("the nsys on the PATH is older than the report")
    expected = read_contents(traces / "own_cap_nsys2023_export2023.sqlite", lambda _: None)

    assert found.export.name == report.name
    assert found.export.session_start_utc_ns == expected.export.session_start_utc_ns
    assert [(entry.table, entry.row_count) for entry in found.tables if entry.table == "NVTX_EVENTS"] == [
        (entry.table, entry.row_count) for entry in expected.tables if entry.table == "NVTX_EVENTS"
    ]
    assert sorted(traces.iterdir()) == before
