"""What commands write for an input, by kind; without what depends on the machine."""

import contextlib
import gc
import json
import os
import re
import sys
import tempfile
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

EMBEDDED = re.compile(r'"schema": "(wallscope\.profile[^"]*)",\s*"data": "([A-Za-z0-9+/=]+)"')
TIMELINES = re.compile(r'(<script[^>]* id="timelines">)([^<]*)(</script>)')
SCRIPT_DIGEST = re.compile(r"'sha256-[A-Za-z0-9+/=]+'")
Files = dict[str, bytes]


@dataclass
class Given:
    """An input: the folder in which commands run, what they are given there, a folder for results."""

    name: str
    folder: Path
    files: tuple[str, ...]
    results: Path
    count: int = 0
    known: dict[str, Files] = field(default_factory=dict)

    def run(self, *arguments: str, results: Iterable[str] = ()) -> Files:
        """Run one command; `OUT` in its arguments is an empty folder, `results` lie there or are absent.

        Returns:
            What the command printed, as `said`, and the results; of a folder, each file.
        """
        out = self.results / str(self.count)
        self.count += 1
        out.mkdir(parents=True)
        wanted = [argument.replace("OUT", str(out)) for argument in arguments]
        made = {"said": self._normal(ran(wanted, self.folder).encode(), out)}
        for result in results:
            place = out / result
            made |= {str(file.relative_to(out)): self._content(file, out) for file in files_of(place)}
        return made

    def answer(self) -> Files:
        """The outputs of the answer, without its tables."""
        if "answer" not in self.known:
            pages = ("--json", "OUT/answer.json", "--markdown", "OUT/answer.md", "--html", "OUT/answer.html")
            self.known["answer"] = self.run(
                "analyze", *self.files, "--no-cache", *pages,
                results=("answer.json", "answer.md", "answer.html"),
            )  # fmt: skip
        return self.known["answer"]

    @property
    def answer_file(self) -> Path:
        """The answer as JSON, as it was written; of the first command that ran."""
        assert self.answer()
        return self.results / "0" / "answer.json"

    def parts(self) -> Files:
        """The outputs that are made from more than the answer."""
        if "parts" not in self.known:
            self.known["parts"] = self.run(
                "analyze", *self.files, "--no-cache",
                "--json", "OUT/answer.json", "--csv", "OUT/csv", "--perfetto", "OUT/trace",
                results=("answer.json", "csv", "trace"),
            )  # fmt: skip
        return self.known["parts"]

    def _content(self, file: Path, out: Path) -> bytes:
        raw = file.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            return zlib.decompress(raw, wbits=31)
        return self._normal(raw, out)

    def _normal(self, raw: bytes, out: Path) -> bytes:
        text = raw.decode("utf-8", "surrogateescape")
        for folder, name in ((out, "OUT"), (self.results, "OUT"), (self.folder, "IN")):
            text = text.replace(str(folder), name)
        text = EMBEDDED.sub(lambda found: f'"schema": "{found[1]}", "data": {inflated(found[2])}', text)
        text = TIMELINES.sub(lambda found: f"{found[1]}{inflated(found[2])}{found[3]}", text)
        return SCRIPT_DIGEST.sub("", text).encode("utf-8", "surrogateescape")


def inflated(base64: str) -> str:
    return zlib.decompress(b64decode(base64)).decode("utf-8", "backslashreplace")


def files_of(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(file for file in place.rglob("*") if file.is_file())
    return [place] if place.exists() else []


def ran(arguments: list[str], folder: Path) -> str:
    """Run the command line in this process; its exit code, standard output and standard error."""
    from wallscope.__main__ import main

    argv = sys.argv
    code: object = 0
    sys.argv = ["wallscope", *arguments]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        try:
            with contextlib.chdir(folder), redirected(1, out), redirected(2, error):
                main()
        except SystemExit as left:
            code = left.code or 0
        finally:
            sys.argv = argv
            gc.unfreeze()
        said, complained = (file.seek(0) or file.read().decode() for file in (out, error))
    return f"exit code {code}\n{said}--- standard error\n{complained}"


@contextlib.contextmanager
def redirected(descriptor: int, file: IO[bytes]) -> Iterator[None]:
    """Send a file descriptor into a file: the command line writes to descriptors, not to `sys.stdout`."""
    kept = os.dup(descriptor)
    os.dup2(file.fileno(), descriptor)
    try:
        yield
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)


def chosen(made: Files, *names: str) -> Files:
    """Outputs by name; a name of a folder stands for all of its files."""
    return {file: content for file, content in made.items() if file.split("/")[0] in names}


def table(command: str, *options: str) -> Callable[[Given], Files]:
    return lambda given: given.run(
        command, *given.files, *options, "--json", "OUT/rows.json", "--csv", "OUT/rows.csv",
        results=("rows.json", "rows.csv"),
    )  # fmt: skip


def moments(given: Given) -> Files:
    """The state at moments of the session: a third into the first and the last step of the first rank."""
    rows = given.run("steps", *given.files, "--json", "OUT/steps.json", results=("steps.json",))
    steps = json.loads(rows.get("steps.json", b"[]")) or [{"start_ns": 0, "end_ns": 3}]
    made = {}
    for name, step in (("first", steps[0]), ("last", steps[-1])):
        at_ns = step["start_ns"] + (step["end_ns"] - step["start_ns"]) // 3
        made[name] = given.run("at", *given.files, f"{at_ns}ns")["said"]
    return made


def questions(given: Given) -> Files:
    """Steps played again: the usual questions, and some named ones with a sweep."""
    results = ("answers.json", "answers.html")
    outputs = ("--json", "OUT/answers.json", "--html", "OUT/answers.html", "--accept-error", "1000")
    usual = given.run("whatif", *given.files, *outputs, results=results)
    asked = ("--scale", "compute=0.5", "--without", "synchronisation", "--hide", "communication")
    sweep = ("--sweep", "launch=0,0.5,2", "--no-interference")
    named = given.run("whatif", *given.files, *asked, *sweep, *outputs, results=results)
    return {
        f"{way}-{name}": made[name] for way, made in (("usual", usual), ("named", named)) for name in made
    }


def compared(given: Given) -> Files:
    """The answer compared with itself, or the two sides of a comparison."""
    is_pair = len(given.files) == 2 and given.name.startswith("diff/")
    sides = given.files if is_pair else (str(given.answer_file), str(given.answer_file))
    results = ("diff.json", "diff.md", "diff.html")
    outputs = [part for name in results for part in (f"--{KIND_OF[name[5:]]}", f"OUT/{name}")]
    return given.run("diff", *sides, "--no-cache", "--override", *outputs, results=results)


KIND_OF = {"json": "json", "md": "markdown", "html": "html"}
KINDS: dict[str, Callable[[Given], Files]] = {
    "json": lambda given: chosen(given.answer(), "answer.json"),
    "text": lambda given: chosen(given.answer(), "said"),
    "markdown": lambda given: chosen(given.answer(), "answer.md"),
    "html": lambda given: chosen(given.answer(), "answer.html"),
    "csv": lambda given: chosen(given.parts(), "csv", "said", "answer.json"),
    "perfetto": lambda given: chosen(given.parts(), "trace"),
    "diff": compared,
    "info": lambda given: given.run("info", *given.files),
    "steps": table("steps"),
    "kernels": table("kernels"),
    "ranges": table("ranges"),
    "gaps": table("gaps", "--top", "50"),
    "at": moments,
    "whatif": questions,
}
