"""What wallscope makes of one input that may be broken: an answer that holds, a refusal, or a fault of ours.

The commands are run as a user runs them, in this process. An answer holds if every step's budget and walls
add up to its length, the JSON is JSON, and reading by pages and by SQLite give the same; a comparison with
itself finds no change. A refusal is exit code 2 and one line that names the file and says what to do. In both
cases the file and its folder are as they were.
"""

import hashlib
import io
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest import mock

from wallscope.cli import main


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


def judged(path: Path, subject: str) -> Outcome:
    """What becomes of one input, which must lie in a folder of its own; `subject` is one of `SUBJECTS`."""
    before = _folder(path)
    with tempfile.TemporaryDirectory() as aside:
        try:
            line = SUBJECTS[subject](path, Path(aside))
        except BrokenError as error:
            return Outcome(Ending.BROKEN, str(error))
    if _folder(path) != before:
        return Outcome(Ending.BROKEN, "the input or its folder was changed")
    return Outcome(Ending.REFUSED, line) if line else Outcome(Ending.ANSWERED)


def _folder(path: Path) -> Mapping[str, str]:
    return {one.name: hashlib.blake2b(one.read_bytes()).hexdigest() for one in path.parent.iterdir()}


def _command(path: Path, *arguments: str | Path) -> _Ran:
    """Run a command; the line of a refusal is empty where it answered.

    Raises:
        BrokenError: it neither answers nor refuses in one line.
    """
    out, err = io.StringIO(), io.StringIO()
    argv = ["wallscope", *map(str, arguments)]
    with mock.patch.object(sys, "argv", argv), redirect_stdout(out), redirect_stderr(err):
        code = _code()
    said = err.getvalue().strip()
    if code not in {0, 1, 2}:
        raise BrokenError(f"exit code {code}: {said}")
    is_line = "\n" not in said and said.count(" — ") > 1 and path.name in said
    if code == 2 and not is_line:  # the exit code of bad input
        raise BrokenError(f"refused without a clear line: {said}")
    return _Ran(code, said if code == 2 else "")


def _code() -> int:
    try:
        main()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 0
    raise BrokenError("the command came back without an exit code")


def _export(path: Path, aside: Path) -> str:
    """Analysed by both readers, with each output."""
    by_pages, by_sqlite = aside / "pages.json", aside / "sqlite.json"
    ran = _command(path, "analyze", path, "--json", by_pages, "--html", aside / "page.html")
    plain = _command(path, "analyze", path, "--json", by_sqlite, "--reader", "sqlite")
    if ran.code != plain.code:
        raise BrokenError(f"readers differ: pages {ran.line or 'answers'} — sqlite {plain.line or 'answers'}")
    if ran.line:
        return ran.line
    _check_sums(_read(by_pages))
    if by_pages.read_bytes() != by_sqlite.read_bytes():
        raise BrokenError("pages and sqlite give different answers")
    return ""


def _answer(path: Path, aside: Path) -> str:
    """Compared with itself, and recorded."""
    ran = _command(path, "diff", path, path, "--json", aside / "diff.json", "--markdown", aside / "diff.md")
    recorded = _command(path, "record", path, "--commit", "a" * 40, "--store", aside / "store")
    if not ran.line:
        found = _read(aside / "diff.json")
        changes = [change["delta_ns"] for change in (found["deltas"] or {}).get("walls", ())]
        if any(changes) or found["verdict"] in {"regression", "improvement"}:
            raise BrokenError(f"a comparison with itself finds {found['verdict']}, {changes}")
    return ran.line or recorded.line


def _configuration(path: Path, aside: Path) -> str:
    ran = _command(path, "check-config", path, "--json", aside / "check.json")
    if not ran.line:
        _read(aside / "check.json")
    return ran.line


def _rules(path: Path, aside: Path) -> str:
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


SUBJECTS: Mapping[str, Callable[[Path, Path], str]] = {
    "export": _export,
    "answer": _answer,
    "configuration": _configuration,
    "kernel rules": _rules,
}
"""What an input is, and what is done with it; the line of a refusal comes back, empty for an answer."""
