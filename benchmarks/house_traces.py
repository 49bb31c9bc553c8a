"""Which functions and lines of the package run when a capture is analyzed, for `benchmarks.house`.

python -m benchmarks.house_traces modules|returns|media [CAPTURE]
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import TraceFunction

ROOT = Path(__file__).resolve().parent.parent
_PACKAGE = str(ROOT / "wallscope")
_EXAMPLE = ROOT / "build" / "moe_step.sqlite"
_MEDIA = {
    "terminal": ("--full",),
    "markdown": ("--markdown", "OUT/answer.md"),
    "page": ("--html", "OUT/answer.html"),
    "csv": ("--csv", "OUT/csv"),
    "perfetto": ("--perfetto", "OUT/trace"),
}
_FOLLOWED = ("build_answer", "summarize_ranks")
_EVENTS_COUNT = 400


def _analyze(capture: Path, options: tuple[str, ...]) -> None:
    """Run the command in this process, without what it prints."""
    from wallscope.__main__ import main  # noqa: PLC0415  # traced too

    with tempfile.TemporaryDirectory() as folder:
        sys.argv = ["wallscope", "analyze", str(capture), "--no-cache", *options]
        sys.argv = [one.replace("OUT", folder) for one in sys.argv]
        with contextlib.suppress(SystemExit):
            main()


def _list_calls(capture: Path) -> list[CodeType]:
    """Return the functions of the package in the order of their calls, without bodies of modules."""
    found: list[CodeType] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_PACKAGE) and code.co_name != "<module>":
            found.append(code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        _analyze(capture, ())
    finally:
        sys.setprofile(None)
    return found


def count_modules(capture: Path) -> str:
    """Return the number of modules in which a function ran."""
    return str(len({code.co_filename for code in _list_calls(capture)}))


def count_returns(capture: Path) -> str:
    """Return how often a reader returns to a file already left, for each function that is followed."""
    calls = _list_calls(capture)
    names = [code.co_name for code in calls]
    return " and ".join(
        str(count_returns_to_files([code.co_filename for code in calls[names.index(name) :][:_EVENTS_COUNT]]))
        for name in _FOLLOWED
        if name in names
    )


def count_returns_to_files(files: list[str]) -> int:
    """Count entries of a file that was left before.

    >>> count_returns_to_files(["a", "a", "b", "a", "b", "c"])
    2
    """
    left: set[str] = set()
    count = 0
    for before, file in pairwise(files):
        if file != before:
            left.add(before)
            count += file in left
    return count


def count_lines_of_one_medium(capture: Path) -> str:
    """Return how many lines of views and render run for one of five media only, and for any."""
    counts: Counter[str] = Counter()
    for medium in _MEDIA:
        words = (sys.executable, "-m", "benchmarks.house_traces", f"lines-{medium}", str(capture))
        lines = subprocess.run(words, check=True, capture_output=True, text=True, cwd=ROOT).stdout  # noqa: S603
        counts.update(lines.split())
    return f"{sum(count == 1 for count in counts.values()):,} of {len(counts):,}"


def list_lines(capture: Path, medium: str) -> str:
    """Return the lines of functions of views and render that ran, by file."""
    folders = tuple(f"{_PACKAGE}/{name}/" for name in ("views", "render"))
    found: set[str] = set()

    def note_line(frame: FrameType, event: str, _: object) -> "TraceFunction":
        if event == "line":
            found.add(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return note_line

    def note_call(frame: FrameType, _: str, __: object) -> "TraceFunction | None":
        code = frame.f_code
        is_wanted = code.co_filename.startswith(folders) and code.co_name != "<module>"
        return note_line if is_wanted else None

    sys.settrace(note_call)
    try:
        _analyze(capture, _MEDIA[medium])
    finally:
        sys.settrace(None)
    return "\n".join(sorted(found))


def main() -> None:
    """Print one count."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the command prints
    what, capture = sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else _EXAMPLE
    if what.startswith("lines-"):
        said = list_lines(capture, what.removeprefix("lines-"))
    else:
        kinds = {"modules": count_modules, "returns": count_returns, "media": count_lines_of_one_medium}
        said = kinds[what](capture)
    with answer:
        answer.write(f"{said}\n")


if __name__ == "__main__":
    main()
