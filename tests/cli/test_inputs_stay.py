"""No result is written over an input, a store, or half; whatever it is called and whatever interrupts it."""

import errno
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest

from fixtures.scenario import scenarios
from tests.conftest import ROOT, slow
from wallscope.cache_folder import Cache, EntryKind
from wallscope.errors import OutputError
from wallscope.files import write_chunks
from wallscope.render.markdown import escape

BASE, HEAD = "a" * 40, "b" * 40


@pytest.fixture
def recorded(answers, called, tmp_path):
    for name, commit in (("base", BASE), ("head", HEAD)):
        assert (
            called("record", answers / f"{name}.json", "--commit", commit, "--store", tmp_path / "s").code
            == 0
        )
    return tmp_path / "s"


def tree(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("named", ["option", "variable", "url", "default"])
def test_no_result_is_written_into_a_store(recorded, called, monkeypatch, tmp_path, named):
    monkeypatch.chdir(tmp_path)
    if named == "default":
        recorded.rename(tmp_path / ".wallscope")
        recorded = tmp_path / ".wallscope"
    if named == "variable":
        monkeypatch.setenv("WALLSCOPE_STORE", str(recorded))
    store = {"option": ["--store", recorded], "url": ["--store", f"file://{recorded}"]}.get(named, [])
    before = tree(recorded)
    for victim in (*before, recorded / "new.json"):
        for words in (
            ["diff", f"{BASE}..{HEAD}", *store, "--json", victim],
            ["history", "step", *store, "--csv", victim],
        ):
            ran = called(*words)
            assert (ran.code, "is an input" in ran.err) == (2, True), ran.err
    assert tree(recorded) == before


@pytest.mark.parametrize("option", ["--json", "--html", "--markdown", "--perfetto", "--csv", "--parquet"])
@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
def test_no_result_takes_the_name_of_a_log_of_an_input(called, tmp_path, option, end):
    path = tmp_path / "run.sqlite"
    next(one for one in scenarios() if one.name == "communication-partly-hidden").write(path)
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in (tmp_path, tmp_path / "link"):
        ran = called("analyze", path, option, folder / f"run.sqlite{end}")
        assert (ran.code, "is the name of a log of run.sqlite" in ran.err) == (2, True)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["link", "run.sqlite"]


def test_what_fits_a_pattern_is_an_input(answers, called, tmp_path):
    for name in ("base", "head"):
        (tmp_path / f"{name}.json").write_bytes((answers / f"{name}.json").read_bytes())
    before = tree(tmp_path)
    ran = called("analyze", tmp_path / "*.json", "--json", tmp_path / "base.json")
    assert (ran.code, "is an input" in ran.err) == (2, True)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["x" * 249, "ü" * 124, "字" * 84, "x" * 255])
def test_every_name_that_the_system_takes_is_written(tmp_path, name):
    write_chunks(tmp_path / name, [b"all"])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: b"all"}


def test_a_folder_of_tables_may_have_the_longest_name(called, tmp_path):
    path = tmp_path / "run.sqlite"
    next(one for one in scenarios() if one.name == "communication-partly-hidden").write(path)
    assert called("analyze", path, "--csv", tmp_path / ("字" * 84)).code == 0


def test_a_full_disk_is_one_line_and_leaves_what_was_there(called, monkeypatch, tmp_path):
    path = tmp_path / "run.sqlite"
    next(one for one in scenarios() if one.name == "communication-partly-hidden").write(path)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = tree(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(pl.DataFrame, "write_csv", full)
    for option in ("--parquet", "--csv"):
        ran = called("analyze", path, option, tmp_path / "tables")
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert f"cannot be written: {os.strerror(errno.ENOSPC)}" in ran.err
    assert tree(tmp_path) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.sqlite"]


INTERRUPTED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from wallscope.cli.streams import end_on_signals
from wallscope import files
from wallscope.store import Store
from wallscope.cli import output
from wallscope.cache_folder import Cache, EntryKind
end_on_signals()
count, stop, number = 0, int(sys.argv[1]), int(sys.argv[2])

def counted(function):
    def call(*arguments, **named):
        global count
        found = function(*arguments, **named)
        count += 1
        if count == stop:
            os.kill(os.getpid(), number)
        return found
    return call

for name in ("open", "fsync", "replace", "mkdir", "rename", "unlink", "fdopen", "fchmod"):
    setattr(os, name, counted(getattr(os, name)))
try:
    files.write_chunks(Path("file"), [b"new", b"er"])
    output.write_folder(Path("folder"), lambda place: (place / "a").write_text("newer"), lambda _: True)
    Store("store").storage.write("objects/ab/" + "c" * 62, b"newer")
    Cache(Path("cache")).write(EntryKind.ANSWERS, "d" * 40, b"newer")
finally:
    sys.stderr.write(str(count))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_write_leaves_all_of_the_old_or_the_new(tmp_path, number):
    script = INTERRUPTED.format(root=str(ROOT))
    stop, ended = 0, False
    while not ended:
        stop += 1
        place = tmp_path / str(stop)
        (place / "folder").mkdir(parents=True)
        (place / "file").write_bytes(b"older")
        (place / "folder" / "a").write_text("older")
        ran = subprocess.run(
            [sys.executable, "-c", script, str(stop), str(int(number))],
            cwd=place,
            capture_output=True,
            text=True,
            check=False,
        )
        ended = ran.returncode == 0
        assert ended or ran.returncode in {-number, 128 + number, 1, 130}, ran.stderr
        assert (place / "file").read_bytes() in {b"older", b"newer"}
        assert (place / "folder" / "a").read_text() in {"older", "newer"}
        folders = {"file", "folder", "a", "store", "objects", "ab", "cache", "answers"}
        left = {path.name for path in place.rglob("*")} - folders
        assert left <= {"c" * 62, "d" * 40}, (stop, left)
        if "d" * 40 in left:
            assert Cache(place / "cache").read(EntryKind.ANSWERS, "d" * 40) == b"newer"
    assert stop > 15


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(place)]
    try:
        ran = subprocess.run(mount, capture_output=True, check=False)
    except OSError:
        pytest.skip("no mount here")
    if ran.returncode:
        pytest.skip("only root mounts a small disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("option", ["--json", "--html", "--csv", "--parquet", "--perfetto"])
def test_a_small_disk_holds_all_or_what_was_there(called, tmp_path, small_disk, option):
    path = tmp_path / "run.sqlite"
    next(one for one in scenarios() if one.name == "communication-partly-hidden").write(path)
    (small_disk / "filled").write_bytes(b"x" * (128 << 10))
    ran = called("analyze", path, option, small_disk / "x")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert " — cannot be written: " in ran.err
    assert [entry.name for entry in small_disk.iterdir()] == ["filled"]


@pytest.mark.parametrize(
    "words",
    [
        ["analyze", "run.sqlite", "--no-cache", "--json", "x"],
        *slow(
            ["analyze", "run.sqlite", "--no-cache", "--perfetto", "x"],
            ["convert", "run.sqlite", "x"],
            ["convert", "run.sqlite", "x", "--to", "csv"],
            ["record", "run.sqlite", "--commit", "a" * 40, "--store", "x"],
        ),
    ],
    ids=lambda words: " ".join(words[:2] + words[-2:]),
)
def test_a_file_that_may_not_grow_is_one_line(tmp_path, words):
    next(one for one in scenarios() if one.name == "communication-partly-hidden").write(
        tmp_path / "run.sqlite"
    )
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))\n"
    ran = subprocess.run(
        [sys.executable, "-c", f"{limited}from wallscope.__main__ import main; main()", *words],
        cwd=tmp_path,
        # Python itself would cut its own compiled modules short, and fail on them later
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1), ran.stderr
    assert " — cannot be written: " in ran.stderr
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "run.sqlite"]
    assert {path.name for path in left} <= {"wallscope-store.json"}


def test_a_write_that_fails_says_so(tmp_path):
    (tmp_path / "file").write_bytes(b"older")

    def chunks():
        yield b"half"
        raise OSError(errno.EIO, "the disk failed")

    with pytest.raises(OutputError, match="cannot be written: the disk failed — "):
        write_chunks(tmp_path / "file", chunks())
    assert tree(tmp_path) == {tmp_path / "file": b"older"}


@pytest.fixture
def recipe(monkeypatch):
    for name in ("nsys_recipe", "nsys_recipe.lib", "nsys_recipe.lib.args", "nsys_recipe.log"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    package, lib = sys.modules["nsys_recipe"], sys.modules["nsys_recipe.lib"]
    package.nsys_constants = lib.nsys_path = None
    lib.recipe = ModuleType("recipe")
    lib.recipe.Recipe = object
    sys.modules["nsys_recipe.lib.args"].Option = None
    sys.modules["nsys_recipe.log"].logger = None
    spec = importlib.util.spec_from_file_location("job", ROOT / "reports/recipe/wallscope_job.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "stems",
    [
        ["a", "a", "1-a"],
        ["a", "1-a", "a"],
        ["0-a", "a", "a", "2-a"],
        ["A", "a"],
        ["x" * 245, "x" * 246],
        ["a", "b"],
    ],
)
def test_results_of_reports_have_names_of_their_own(recipe, stems):
    names = recipe.answer_names([Path(f"{place}/{stem}.nsys-rep") for place, stem in enumerate(stems)])
    assert len({name.lower() for name in names}) == len(stems)
    assert all(len(os.fsencode(name)) <= 255 for name in names)


@pytest.mark.parametrize(
    "text", ["www.evil.example", "see WWW.evil.example/x", "https://evil.example", "a@b.c"]
)
def test_nothing_in_markdown_becomes_a_link(text):
    import re

    assert re.search(r"(?i)www\.|://|@\w", escape(text)) is None
