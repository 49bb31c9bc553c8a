"""What wallscope makes of one input that may be broken: an answer that holds, a refusal, or a fault of ours.

The commands are run as a user runs them, in this process. An answer holds if every step's budget and walls
add up to its length, the JSON is JSON, and reading by pages and by SQLite give the same rows; a comparison
with itself finds no change; what is published is harmless (`benchmarks.published`). A refusal is exit code 2
and one line that names the file and says what to do. In both cases the input and its folder are as they were.

Few inputs are judged by processes of their own too, as a shell starts them, with their begin and end. Both
must end alike.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import typer.main

from benchmarks.published import HarmfulError, check_csv, check_markdown, check_page, check_text, check_trace
from wallscope import pipeline
from wallscope.cli import main
from wallscope.errors import WallscopeError
from wallscope.kineto import any_capture
from wallscope.model.capture import Capture, Options, Progress
from wallscope.model.enums import Reader
from wallscope.nsys import read_capture
from wallscope.process_tuning import POLARS_THREADS
from wallscope.render import html

_ALONE_OF = 80
"""One of so many inputs has processes of its own too, which take a second each."""
_LATEST = 2
"""The members of a job."""
_LEFT_OUT = "wallscope: record left out: "
"""Begins a note on standard error, before an answer or a refusal."""
BASE, HEAD = "a" * 40, "b" * 40
"""The commits that a store is given."""


class Ending(StrEnum):
    """How it ended."""

    ANSWERED = "answered"
    REFUSED = "refused"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended; the line of the refusal, or the fault."""

    ending: Ending
    text: str = ""


class BrokenError(Exception):
    """An answer or a refusal is not what it must be."""


@dataclass(frozen=True, slots=True)
class _Ran:
    code: int
    line: str


def judged(path: Path, subject: str, turn: int, *, alone: bool = False) -> Outcome:
    """What becomes of one input, which must lie in a folder of its own; `subject` is one of `SUBJECTS`.

    `turn` says by its remainder which outputs are made beside JSON, where all would take long. `alone` has
    each command run by a process of its own.
    """
    before = _contents(path)
    run = _run_process if alone else _run_here
    with tempfile.TemporaryDirectory() as aside, mock.patch(f"{__name__}._run_here", run):
        try:
            line = SUBJECTS[subject](path, Path(aside), turn)
        except (BrokenError, HarmfulError) as error:
            return Outcome(Ending.BROKEN, str(error))
    if _contents(path) != before:
        return Outcome(Ending.BROKEN, "the input or its folder was changed")
    return Outcome(Ending.REFUSED, line) if line else Outcome(Ending.ANSWERED)


def judged_both_ways(path: Path, subject: str, turn: int) -> Outcome:
    """What becomes of one input in this process and in processes of its own, which must be the same."""
    here = judged(path, subject, turn)
    apart = judged(path, subject, turn, alone=True)
    if (here.ending, _cause_and_cure(here)) == (apart.ending, _cause_and_cure(apart)):
        return apart
    return Outcome(
        Ending.BROKEN,
        f"in one process {here.ending}: {here.text}; in processes of its own {apart.ending}: {apart.text}",
    )


def _cause_and_cure(outcome: Outcome) -> str:
    """Return the line without the name of its file, which may be temporary."""
    return outcome.text.partition(" — ")[2]


def is_alone(subject: str, kind: str, seed: int) -> bool:
    """Whether an input is one of the few that get processes of their own too; always the same ones."""
    return zlib.crc32(f"{subject} {kind} {seed}".encode()) % _ALONE_OF == 0


def make_shipped_parts_once() -> None:
    """Compile templates and build the commands once for all inputs of this process: none changes them."""
    html._make_environment = cache(html._make_environment)  # noqa: SLF001  # a fresh process does it anew
    typer.main.get_command = cache(typer.main.get_command)


def analyze_once(good: Sequence[Path]) -> None:
    """Analyze each file that has the name and the content of one of these once in this process.

    It is the member of a job or a comparison that the mutation left as it was. What was analyzed last is kept
    too: a job is analyzed strictly and leniently, and its members are the same.
    """
    known = {_name_and_content(path) for path in good}
    found: dict[object, pipeline.AnalyzedCapture] = {}
    latest: dict[object, pipeline.AnalyzedCapture] = {}
    analyze = pipeline.analyze_capture

    def look_up(path: Path, options: Options, progress: Progress, **how: bool) -> pipeline.AnalyzedCapture:
        one = _name_and_content(path)
        key = (one, repr(options), repr(sorted(how.items())))  # options hold what has no hash
        kept = found if one in known else latest
        if key not in kept:
            kept[key] = analyze(path, options, progress, **how)
        while len(latest) > _LATEST:
            del latest[next(iter(latest))]
        return kept[key]

    pipeline.analyze_capture = look_up


def _name_and_content(path: Path) -> tuple[object, ...]:
    """Return the name of an input and the content of all files of it, one or those of a folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    held = [(one.name, one.read_bytes()) for one in files if one.is_file()]
    return path.name, *((name, hashlib.blake2b(content).digest()) for name, content in held)


def _contents(path: Path) -> Mapping[str, str]:
    """What lies beside and below the input: a digest of each file, the kind of anything else."""
    return {
        str(one): hashlib.blake2b(one.read_bytes()).hexdigest() if one.is_file() else str(one.lstat().st_mode)
        for one in sorted(path.parent.rglob("*"))
    }


def _command(path: Path, *arguments: str | Path) -> _Ran:
    """Run a command; the line of a refusal is empty where it answered.

    Raises:
        BrokenError: it neither answers nor refuses in one line.
        HarmfulError: what it prints holds letters that a terminal obeys.
    """
    code, out, err = _run_here([str(argument) for argument in arguments])
    notes = [line for line in err.splitlines() if not line.startswith(_LEFT_OUT)]
    said = "\n".join(notes).strip()
    if code not in {0, 1, 2}:
        raise BrokenError(f"exit code {code}: {said}")
    check_text(out, "standard output")
    check_text(err.strip(), "standard error")
    named = (path.name, "base", "head") if path.is_dir() else (path.name,)  # sides have names of their own
    is_line = "\n" not in said and said.count(" — ") > 1 and any(name in said for name in named)
    if code == 2 and not is_line:  # the exit code of bad input
        raise BrokenError(f"refused without a clear line: {said}")
    return _Ran(code, said if code == 2 else "")


def _run_here(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run a command in this process; its exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["wallscope", *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = _code()
    return code, out.getvalue(), err.getvalue()


def _run_process(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run a command as a shell does; the exit code is negative where a signal ended it."""
    shell = {name: value for name, value in os.environ.items() if name != POLARS_THREADS}
    argv = [sys.executable, "-m", "wallscope", *arguments]
    ran = subprocess.run(argv, capture_output=True, env=shell, check=False)  # noqa: S603  # our own program
    return ran.returncode, ran.stdout.decode("utf-8", "strict"), ran.stderr.decode("utf-8", "strict")


def _code() -> int:
    try:
        main()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 0
    raise BrokenError("the command came back without an exit code")


def _export(path: Path, aside: Path, turn: int) -> str:
    """Analysed and read by both readers, with JSON and now and then other outputs."""
    others: tuple[str | Path, ...] = (
        ("--html", aside / "page.html", "--markdown", aside / "page.md"),
        ("--perfetto", aside / "trace.pftrace"),
        ("--csv", aside / "tables", "--parquet", aside / "more tables"),
        (),
        (),
    )[turn % 5]
    readers = _BothReaders()
    with mock.patch.object(any_capture, "read_capture", readers.read):
        ran = _command(path, "analyze", path, "--no-cache", "--json", aside / "answer.json", *others)
    if readers.difference:
        raise BrokenError(readers.difference)
    if not ran.line:
        answer = _read(aside / "answer.json")
        _check_sums(answer)
        _check_published(aside, answer)
    return ran.line


class _BothReaders:
    """Reads by pages and by SQLite in the place of the one reader, and says how they differ."""

    def __init__(self) -> None:
        self.difference = ""

    def read(self, path: Path, progress: Progress, _: Reader) -> Capture:
        by_sqlite: Capture | WallscopeError
        try:
            by_sqlite = read_capture(path, progress, Reader.SQLITE)
        except WallscopeError as error:
            by_sqlite = error
        try:
            by_pages = read_capture(path, progress, Reader.PAGES)
        except WallscopeError as error:
            if isinstance(by_sqlite, Capture):
                self.difference = f"only reading by pages refuses: {error}"
            raise
        if isinstance(by_sqlite, WallscopeError):
            self.difference = f"only reading by SQLite refuses: {by_sqlite}"
        else:
            unlike = [one.name for one in fields(Capture) if not _same(by_pages, by_sqlite, one.name)]
            self.difference = f"readers differ in {', '.join(unlike)}" if unlike else ""
        return by_pages


def _same(one: Capture, other: Capture, part: str) -> bool:
    ours, theirs = getattr(one, part), getattr(other, part)
    return bool(ours.equals(theirs) if isinstance(ours, pl.DataFrame) else ours == theirs)


def _check_published(aside: Path, answer: Mapping[str, Any]) -> None:
    checks = {"page.html": check_page, "page.md": check_markdown, "tables": check_csv}
    for name, check in checks.items():
        if (aside / name).exists():
            check(aside / name)
    if (aside / "trace.pftrace").exists():
        check_trace(aside / "trace.pftrace", answer)


def _table_folder(path: Path, aside: Path, _: int) -> str:
    """Analysed as a folder of tables, or as a trace."""
    ran = _command(path, "analyze", path, "--no-cache", "--json", aside / "answer.json")
    if not ran.line:
        _check_sums(_read(aside / "answer.json"))
    return ran.line


def _job(path: Path, aside: Path, _: int) -> str:
    """Analysed together; then without those that cannot be."""
    strict, lenient = aside / "strict.json", aside / "lenient.json"
    ran = _command(path, "analyze", path, "--no-cache", "--json", strict)
    kept = _command(path, "analyze", path, "--no-cache", "--keep-going", "--json", lenient)
    for made in (strict, lenient):
        if made.exists():
            _check_sums(_read(made))
    if not ran.line and (kept.line or strict.read_bytes() != lenient.read_bytes()):
        raise BrokenError("leaving out what cannot be analysed changes what can")
    return ran.line


def _store(path: Path, aside: Path, _: int) -> str:
    """Listed and compared; a copy is recorded into and swept, by an answer that lies beside the folder."""
    listed = _command(path, "history", "step", "--store", path, "--json", aside / "history.json")
    if not listed.line:
        _read(aside / "history.json")
    compared = _command(path, "diff", f"{BASE}..{HEAD}", "--store", path, "--json", aside / "diff.json")
    if not compared.line:
        _read(aside / "diff.json")
    copy = aside / path.name
    shutil.copytree(path, copy, symlinks=True, ignore=_no_plain_files)
    answer = path.parent.parent / "run0.json"
    recorded = _command(path, "record", answer, "--commit", "c" * 40, "--store", copy, "--keep", "1")
    return listed.line or compared.line or recorded.line


def _no_plain_files(folder: str, names: list[str]) -> list[str]:
    """What no copy can be made of."""
    paths = {name: os.path.join(folder, name) for name in names}  # noqa: PTH118  # as shutil asks
    return [
        name
        for name, path in paths.items()
        if not (os.path.islink(path) or os.path.isfile(path) or os.path.isdir(path))  # noqa: PTH112, PTH113, PTH114
    ]


def _answer(path: Path, aside: Path, _: int) -> str:
    """Compared with itself, and recorded."""
    ran = _command(path, "diff", path, path, "--json", aside / "diff.json", "--markdown", aside / "diff.md")
    recorded = _command(path, "record", path, "--commit", BASE, "--store", aside / "store")
    if not ran.line:
        found = _read(aside / "diff.json")
        check_markdown(aside / "diff.md")
        changes = [change["delta_ns"] for change in (found["deltas"] or {}).get("walls", ())]
        if any(changes) or found["verdict"] in {"regression", "improvement"}:
            raise BrokenError(f"a comparison with itself finds {found['verdict']}, {changes}")
    return ran.line or recorded.line


def _comparison(path: Path, aside: Path, _: int) -> str:
    """One file against the other."""
    sides = (path / "base.sqlite", path / "head.sqlite")
    ran = _command(path, "diff", *sides, "--no-cache", "--json", aside / "diff.json")
    if not ran.line:
        _read(aside / "diff.json")
    return ran.line


def _configuration(path: Path, aside: Path, _: int) -> str:
    """Checked, and given to an analysis of a small export, which lies beside the folder of the input."""
    ran = _command(path, "check-config", path, "--json", aside / "check.json")
    if not ran.line:
        _read(aside / "check.json")
    small = path.parent.parent / "small.sqlite"
    used = _command(path, "analyze", small, "--no-cache", "--config", path, "--json", aside / "answer.json")
    if not used.line:
        _check_sums(_read(aside / "answer.json"))
    return ran.line or used.line


def _gates(path: Path, aside: Path, _: int) -> str:
    """Held against two answers, which lie beside the folder of the input."""
    sides = [path.parent.parent / name for name in ("run0.json", "run0.json")]
    return _command(path, "diff", *sides, "--gates", path, "--json", aside / "diff.json").line


def _scheduler(path: Path, _: Path, __: int) -> str:
    """Asked for a job of two exports; nobody listens at any address."""
    exports = [path.parent.parent / name for name in ("run0.sqlite", "run1.sqlite")]
    return _command(path, "analyze", *exports, "--no-cache", "--dask", path).line


def _rules(path: Path, aside: Path, _: int) -> str:
    """Applied to a small export, which lies beside the folder of the input."""
    small = path.parent.parent / "small.sqlite"
    return _command(path, "kernels", small, "--kernels", path, "--json", aside / "kernels.json").line


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except ValueError as error:
        raise BrokenError(f"{path.name} is no JSON: {error}") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _check_sums(answer: Mapping[str, Any]) -> None:
    for rank in answer["ranks"]:
        for step in rank["steps"]:
            length_ns = step["end_ns"] - step["start_ns"]
            sums = [sum(step[part].values()) for part in ("budget", "walls") if step[part] is not None]
            if length_ns < 0 or any(each != length_ns for each in sums):
                raise BrokenError(f"step {step['index']} of rank {rank['rank']} does not add up: {step}")


SUBJECTS: Mapping[str, Callable[[Path, Path, int], str]] = {
    "export": _export,
    "table folder": _table_folder,
    "job": _job,
    "job of traces": _job,
    "comparison": _comparison,
    "store": _store,
    "answer": _answer,
    "configuration": _configuration,
    "kernel rules": _rules,
    "gates": _gates,
    "scheduler file": _scheduler,
    "trace": _table_folder,
}
"""What an input is, and what is done with it; the line of a refusal comes back, empty for an answer."""
