"""An answer is worked out once; whatever decides it makes it another one."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import wallscope.jobs.answers
import wallscope.pipeline
from fixtures.scenario import scenarios
from fixtures.simulation.program import Program
from fixtures.simulation.run import run
from fixtures.simulation.writing import write_run
from tests.conftest import slow
from tests.jobs.simulated import thread
from tests.views.claims import print_terminal
from wallscope.cache_folder import Cache
from wallscope.errors import InputError
from wallscope.jobs.answers import RenderedAnalysis, answer_key, load_or_analyze
from wallscope.model.analysis import Rank
from wallscope.model.capture import Options, Selection
from wallscope.model.diagnosis import StepFacts
from wallscope.model.enums import Axis, Reader

SCENARIO = next(scenario for scenario in scenarios() if scenario.name == "communication-partly-hidden")


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("written") / "run.sqlite"
    SCENARIO.write(path)
    return path


@pytest.fixture
def export(written, tmp_path) -> Path:
    return Path(shutil.copy2(written, tmp_path / "run.sqlite"))


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path / "kept")


@pytest.fixture
def runs(monkeypatch) -> list[str]:
    """The exports that went through the pipeline, one entry a time."""
    ran: list[str] = []
    analyze_capture = wallscope.pipeline.analyze_capture

    def counted(path, *rest, **chosen):
        ran.append(path.name)
        return analyze_capture(path, *rest, **chosen)

    monkeypatch.setattr(wallscope.pipeline, "analyze_capture", counted)
    return ran


def asked(path: Path, cache: Cache | None, *, with_page: bool = False) -> RenderedAnalysis:
    return load_or_analyze(path, Options(), lambda _: None, cache, with_page=with_page)


def test_the_second_answer_is_the_first_one_out_of_the_cache(export, cache, runs):
    first, second = asked(export, cache), asked(export, cache)

    assert second == first
    assert runs == ["run.sqlite"]


def test_the_page_is_kept_where_it_is_asked_for(export, cache, runs):
    assert asked(export, cache).page is None

    first, second = (asked(export, cache, with_page=True) for _ in range(2))

    assert first.page is not None
    assert second == first
    assert asked(export, cache).page is None
    assert len(runs) == 2
    assert {entry.kind for entry in cache.entries()} == {"answers", "pages"}


def test_without_a_cache_each_answer_is_worked_out(export, cache, runs):
    assert asked(export, None) == asked(export, cache) == asked(export, None)
    assert len(runs) == 3


def without_details(whole: Rank, bare: Rank) -> Rank:
    """A rank without profile, and without upper bounds where the other has none."""
    has_bounds = any(one.recoverable_ns is not None for one in bare.causes)
    causes = whole.causes if has_bounds else tuple(replace(one, recoverable_ns=None) for one in whole.causes)
    return replace(whole, profile=None, causes=causes)


@pytest.mark.parametrize("ranks", [1, *slow(3)])
def test_without_details_what_a_terminal_shows_is_the_same(ranks, cache, tmp_path):
    export = tmp_path / "job.sqlite"
    write_run(run(Program(tuple(thread(rank, ranks, 1.2) for rank in range(ranks)))), export)
    options, progress = Options(), lambda _: None
    whole = load_or_analyze(export, options, progress, None).analysis
    bare = load_or_analyze(export, options, progress, None, with_details=False).analysis

    assert all(rank.profile is not None for rank in whole.ranks)
    assert all(rank.profile is None for rank in bare.ranks)
    place = whole.diagnosis.rank_index
    assert bare.ranks[place] == replace(whole.ranks[place], profile=None)
    assert bare == replace(whole, ranks=tuple(map(without_details, whole.ranks, bare.ranks)))
    for is_full in (False, True):
        assert print_terminal(bare, 120, is_full=is_full) == print_terminal(whole, 120, is_full=is_full)
    for _ in range(2):
        assert load_or_analyze(export, options, progress, cache, with_details=False).analysis == bare
    assert load_or_analyze(export, options, progress, cache).analysis == whole
    assert load_or_analyze(export, options, progress, cache, with_details=False).analysis == whole


def test_a_damaged_entry_is_worked_out_anew_and_replaced(export, cache, runs):
    first = asked(export, cache)
    (entry,) = cache.entries()
    place = cache.folder / entry.kind / entry.name
    place.write_bytes(place.read_bytes()[:-9])

    assert asked(export, cache) == first
    assert asked(export, cache) == first
    assert len(runs) == 2


def test_a_cache_that_cannot_be_written_changes_nothing(export, tmp_path, runs):
    (tmp_path / "file").write_text("")

    assert asked(export, Cache(tmp_path / "file")) == asked(export, None)
    assert len(runs) == 2


def test_nothing_lies_beside_the_export(export, cache):
    asked(export, cache, with_page=True)

    assert sorted(path.name for path in export.parent.iterdir()) == ["kept", "run.sqlite"]


def test_an_export_that_changes_while_it_is_read_is_not_kept(export, cache, monkeypatch):
    analyze_capture = wallscope.pipeline.analyze_capture

    def disturbed(path, *rest, **chosen):
        found = analyze_capture(path, *rest, **chosen)
        os.utime(path, (1, 1))
        return found

    monkeypatch.setattr(wallscope.pipeline, "analyze_capture", disturbed)
    asked(export, cache)

    assert cache.entries() == ()


def test_a_log_beside_the_export_is_refused_as_before(export, cache):
    asked(export, cache)
    Path(f"{export}-wal").write_bytes(b"changes")

    with pytest.raises(InputError, match="changes waiting in"):
        asked(export, cache)


def test_what_cannot_be_analysed_is_refused_each_time(tmp_path, cache):
    (tmp_path / "run.sqlite").write_bytes(b"no database")

    for _ in range(2):
        with pytest.raises(InputError, match="is not an SQLite database"):
            asked(tmp_path / "run.sqlite", cache)
    assert cache.entries() == ()


def patched(path: Path) -> None:
    """Change a byte inside, and nothing else that the file system tells."""
    status = path.stat()
    with path.open("r+b") as stream:
        stream.seek(-5, os.SEEK_END)
        stream.write(b"!")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(patched, id="a byte of the content"),
        pytest.param(lambda path: os.utime(path, ns=(0, 1)), id="the time of change"),
        pytest.param(lambda path: Path(f"{path}-wal").touch(), id="a log beside it"),
        pytest.param(lambda path: Path(f"{path}-journal").write_bytes(b"x"), id="a journal beside it"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes() + b"\0"), id="the size"),
    ],
)
def test_a_change_of_the_export_gives_another_name(export, change: Callable[[Path], object]):
    before = answer_key(export, Options())
    change(export)

    assert answer_key(export, Options()) not in {None, before}


OPTIONS = {
    "steps": Options(step_range="iteration"),
    "rank": Options(selection=Selection(rank=1)),
    "device": Options(selection=Selection(device=1)),
    "some steps": Options(selection=Selection(steps=(1, 2))),
    "time": Options(selection=Selection(time_ns=(1, 2))),
    "a stream": Options(streams={7: Axis.EP}),
    "another axis": Options(streams={7: Axis.TP}),
    "tokens": Options(step_facts=StepFacts(tokens=7)),
    "reader": Options(reader=Reader.SQLITE),
    "nothing": Options(),
}


def test_each_option_gives_another_name(export):
    assert len({answer_key(export, options) for options in OPTIONS.values()}) == len(OPTIONS)


@pytest.mark.parametrize("option", ["kernels", "configuration"])
def test_files_of_options_count_with_their_content(export, tmp_path, option):
    file = tmp_path / "file.toml"
    options = replace(Options(), **{option: file})
    names = [answer_key(export, Options())]
    for text in ("a = 1", "a = 2"):
        file.write_text(text)
        names.append(answer_key(export, options))
    file.unlink()

    assert len({*names, None}) == 4
    assert answer_key(export, options) is None


def test_where_the_export_lies_does_not_count_and_what_it_is_called_does(export, tmp_path):
    (tmp_path / "other").mkdir()
    moved, renamed = tmp_path / "other" / "run.sqlite", tmp_path / "other" / "walk.sqlite"
    for copy in (moved, renamed):
        shutil.copy2(export, copy)

    assert answer_key(moved, Options()) == answer_key(export, Options())
    assert answer_key(renamed, Options()) != answer_key(export, Options())


def test_another_program_or_library_gives_another_name(export, monkeypatch):
    names = {answer_key(export, Options())}
    for told in ("_program", "_libraries"):
        monkeypatch.setattr(wallscope.jobs.answers, told, lambda: ["another"])
        names.add(answer_key(export, Options()))

    assert len(names) == 3


def test_the_nsys_that_exports_a_report_counts(tmp_path, monkeypatch):
    report, nsys = tmp_path / "run.nsys-rep", tmp_path / "bin" / "nsys"
    report.write_bytes(b"NVIDIA Tegra Profiler Report")
    nsys.parent.mkdir()
    monkeypatch.setenv("PATH", str(nsys.parent))
    names = [answer_key(report, Options())]
    for version in ("1", "2"):
        nsys.write_text(version)
        nsys.chmod(0o755)
        names.append(answer_key(report, Options()))

    assert len({*names, None}) == 4


def test_a_folder_counts_with_all_its_files(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    names = []
    for file, content in (("A.parquet", b"1"), ("B.parquet", b"1"), ("B.parquet", b"2")):
        (folder / file).write_bytes(content)
        names.append(answer_key(folder, Options()))
    (folder / "inside").mkdir()

    assert len({*names, None}) == 4
    assert answer_key(folder, Options()) is None


def test_what_is_no_file_has_no_name(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    assert answer_key(tmp_path / "pipe", Options()) is None
    assert answer_key(tmp_path / "absent", Options()) is None
