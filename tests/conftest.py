"""What the tests share: hypothesis profiles, golden files, real exports, the command line."""

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import hypothesis
import pytest

from wallscope import kernels
from wallscope.process_tuning import tune_process

ROOT = Path(__file__).resolve().parent.parent
if (ROOT / "build/kernels/tested").is_dir():  # compiled with bounds checks; commands run the fast ones
    kernels.__path__.insert(0, str(ROOT / "build/kernels/tested"))
ANSWERS = "WALLSCOPE_TESTS_ANSWERS"
"""Variable of the environment: the folder of answers that the workers of a run share."""
TRACES = ROOT.parent / "shared" / "traces"

hypothesis.settings.register_profile("default", max_examples=10, deadline=None)
hypothesis.settings.register_profile("ci", max_examples=1_000, deadline=None)
hypothesis.settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="rewrite the golden files")


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder of answers that all workers share; workers get it from the environment."""
    if ANSWERS not in os.environ:
        folder = tempfile.mkdtemp(prefix="wallscope-answers-")
        os.environ[ANSWERS] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        config.add_cleanup(lambda: os.environ.pop(ANSWERS))


LONGEST = (
    "test_stalls.py",
    "test_page_browser.py",
    "test_demo.py",
    "test_analyzed_job.py",
    "test_server.py",
    "test_action.py",
    "test_no_contradiction.py",
    "test_streams.py",
    "test_compare.py",
    "test_programs_analysed.py",
    "test_doc_blocks.py",
)
"""Files whose tests take longest: begun last, they would keep one worker busy while the others wait."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


if "PYTEST_XDIST_WORKER" in os.environ:  # workers take all cores already; before polars is imported
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    tune_process()
os.environ["WALLSCOPE_CACHE_DIR"] = os.devnull  # no folder: nothing is kept before a test has its own
os.environ["WALLSCOPE_NSYS"] = ""  # none: a test that wants one has its own
for _variable in ("GITHUB_EVENT_NAME", "CI_PIPELINE_SOURCE"):  # tests say themselves what job they run in
    os.environ.pop(_variable, None)


def run_part(inputs, always=(), name=lambda path: path.stem, *, part=0, of=3):
    """Parameters of a law over captures or stories: a part of them in `make test`, all in `make test-all`.

    The name of an input decides in which of the parts it is (`of` a third or less). Laws about answers
    take the same part, as each answer takes longer than the laws about it. Laws that read files take others.
    """
    return [
        pytest.param(
            one,
            id=name(one),
            marks=() if crc32(name(one).encode()) % of == part or name(one) in always else pytest.mark.slow,
        )
        for one in inputs
    ]


def slow(*values):
    """Parameters of `make test-all` alone."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder for each test, made by what keeps something: never the user's or another test's."""
    folder = tmp_path_factory.getbasetemp() / "caches" / os.urandom(8).hex()
    monkeypatch.setenv("WALLSCOPE_CACHE_DIR", str(folder))
    return folder


@dataclass(frozen=True)
class Ran:
    """What a command left: exit code, standard output and error."""

    code: int
    out: str
    err: str


def _without_announcement(err: str) -> str:
    """Standard error without the line that says that the loops are not compiled, where they are not."""
    lines = err.splitlines(keepends=True)
    is_first = not kernels.is_compiled() and lines and "compiled loops are missing" in lines[0]
    return "".join(lines[1:]) if is_first else err


@pytest.fixture
def started(tmp_path: Path) -> Callable[..., Ran]:
    """Run the command line as a process of its own, in an empty folder: for what a process alone can show."""

    def run(*arguments: str | Path, columns: int = 80, **environment: str) -> Ran:
        completed = subprocess.run(
            [sys.executable, "-m", "wallscope", *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(columns), **environment},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        return Ran(completed.returncode, completed.stdout, _without_announcement(completed.stderr))

    return run


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run the command line in this process, many times faster than in one of its own."""
    import wallscope.cli

    def run(*arguments: str | Path, columns: int = 80) -> Ran:
        logger = logging.getLogger()
        handlers, level = [*logger.handlers], logger.level
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "argv", ["wallscope", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            wallscope.cli.main()
        logger.handlers[:], logger.level = handlers, level  # --verbose adds to them
        said = capsys.readouterr()
        return Ran(left.value.code or 0, said.out, _without_announcement(said.err))

    return run


@pytest.fixture
def wallscope(called: Callable[..., Ran], started: Callable[..., Ran], tmp_path: Path) -> Callable[..., Ran]:
    """Run the command line in an empty folder; as a process of its own where it gets another environment."""

    def run(*arguments: str | Path, columns: int = 80, **environment: str) -> Ran:
        if environment:
            return started(*arguments, columns=columns, **environment)
        with contextlib.chdir(tmp_path):
            return called(*arguments, columns=columns)

    return run


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with `<test folder>/golden/<name>`; `--golden` rewrites it."""

    def compare(name: str, text: str) -> None:
        path = request.path.parent / "golden" / name
        if request.config.getoption("--golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")

        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def traces() -> Path:
    """The folder of real exports."""
    if not TRACES.is_dir():
        pytest.skip("no real exports here: ../shared/traces is absent")
    return TRACES
