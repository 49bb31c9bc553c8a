"""Broken and hostile inputs by the thousand, and what becomes of them.

    python -m benchmarks.faults --inputs 20000 --journal build/faults.jsonl --write docs/robustness.md

Good inputs are mutated one way each (`fixtures/mutation`): exports, folders of tables, jobs, stores, JSON
answers, configurations, files of kernel rules and traces of PyTorch's profiler. The same arguments give the
same inputs. Each is judged by a process with a watchdog on its time and a bound on its memory, one of 80
also as a shell starts it. What became of one is in the journal at once: begun again with the same journal,
only the rest is tried, with `--again` also what was broken. Exit code 1 if any outcome is neither an answer
that holds nor one clear line.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TextIO

from benchmarks.inputs import Input, good_inputs, inputs
from benchmarks.judges import Judge
from benchmarks.judging import Ending, Outcome
from benchmarks.marks import put
from fixtures.mutation import MUTATIONS

_NAME = "faults"
_SHOWN_SUBJECTS = {"answer": "JSON output", "kernel rules": "kernel-name rules", "trace": "PyTorch trace"}
_SHOWN_KINDS = {
    "nulls": "NULL in the place of values",
    "text for a number": "text in the place of a number",
    "blobs": "blobs in the place of values",
    "reals": "real numbers in the place of integers",
    "moved times": "times of some rows shifted",
    "all at one moment": "all rows at one time",
    "one id for all": "few ids for all rows",
    "names that are not there": "ids of strings that do not exist",
    "rows twice": "some rows twice",
    "rows lost": "some rows missing",
    "hostile names": "names with control characters, markup or formulas",
    "names that are no text": "names that are not UTF-8",
    "odd metadata": "invalid metadata",
    "table dropped": "a table missing",
    "one table alone": "all tables but one missing",
    "table renamed": "a table with another name",
    "column dropped": "a column missing",
    "column lost": "a column missing",
    "column renamed": "a column with another name",
    "column added": "a column added",
    "column of another type": "a column of another type",
    "view for a table": "a view in the place of a table",
    "endless view": "a view with endless rows in the place of a table",
    "WITHOUT ROWID": "a table without row ids",
    "generated column": "a table with a generated column",
    "odd indexes": "unusual indexes",
    "other pages": "another page size",
    "schema changed by hand": "text of the schema changed",
    "bits flipped in a page's head": "bits flipped in the header of a page",
    "cut anywhere": "cut at any byte",
    "cut at a page": "cut at the end of a page",
    "cut at a page, header corrected": "cut at the end of a page, page count in the header corrected",
    "page of zeros": "a page of zeros",
    "page of noise": "a page of random bytes",
    "tree in a circle": "a B-tree page that points to a wrong page",
    "lying cell": "a B-tree cell with a wrong place, length or header",
    "bytes behind the end": "bytes appended",
    "bytes before the beginning": "bytes before the beginning",
    "file lost": "a file missing",
    "file emptied": "an empty file",
    "two files alike": "a file with the content of another",
    "no plain file": "a folder, pipe or link in the place of a file, or added",
    "odd file name": "a file name with special characters",
    "value replaced": "a value replaced",
    "value lost": "a value missing",
    "value moved": "a value replaced by another of the file",
    "number replaced": "a number replaced",
    "bytes of one changed": "bytes of one export changed",
    "values of one changed": "values of one export changed",
    "layout of one changed": "tables or columns of one export changed",
    "all changed alike": "the same change in all exports",
    "record under another commit": "a record copied to another commit",
    "object that is elsewhere": "a record that names a profile outside the store",
    "letters changed": "characters changed",
    "line lost": "a line missing",
    "line twice": "a line twice",
    "no Unicode": "bytes that are not UTF-8",
    "odd line put in": "an unusual line added",
    "members of other types": "JSON values of other types",
    "extreme numbers": "extreme numbers",
    "member lost": "a key of an event missing",
    "times of one trace replaced": "a member of all events of one trace replaced",
    "events lost": "some events missing",
    "category lost": "all events of a category missing",
    "events twice": "some events twice",
    "values that are no JSON": "values that are not JSON",
    "broken gzip": "damaged gzip data",
}
"""Kinds of mutations in words; the others are words already."""


@dataclass(frozen=True, slots=True)
class Tried:
    """An input, what became of it, and the CPU time that it took, where that is known."""

    one: Input
    outcome: Outcome
    cpu_seconds: float | None


def read_journal(path: Path) -> dict[Input, Tried]:
    """What was tried before; the last word on an input counts, a line that was cut is none."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            told = json.loads(line)
        except ValueError:
            continue
        one = Input(told["subject"], told["kind"], told["seed"])
        found[one] = Tried(one, Outcome(Ending(told["ending"]), told["text"]), told["cpu_seconds"])
    return found


def _write_line(journal: TextIO, tried: Tried) -> None:
    told = asdict(tried.one) | asdict(tried.outcome) | {"cpu_seconds": tried.cpu_seconds}
    journal.write(f"{json.dumps(told)}\n")
    journal.flush()


def try_all(chosen: Sequence[Input], jobs: int, journal: TextIO | None) -> list[Tried]:
    """All inputs with what became of them, each written down at once."""
    lock, waiting, found = Lock(), iter(chosen), list[Tried]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        good = good_inputs(folder)
        folders = [good[subject][0] for subject in ("job", "job of traces", "comparison")]
        members = [path for folder_of_good in folders for path in sorted(folder_of_good.iterdir())]

        def work(_: int) -> None:
            judge = Judge(members)
            while True:
                with lock:
                    one = next(waiting, None)
                if one is None:
                    break
                path = one.write(good, folder)
                told = judge.judge(path, one.subject, one.kind, one.seed)
                tried = Tried(one, told.outcome, told.cpu_seconds)
                shutil.rmtree(path.parent)
                with lock:
                    found.append(tried)
                    if journal is not None:
                        _write_line(journal, tried)
            judge.end()

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(work, range(jobs)))
    return found


def _describe(subject: str, kind: str) -> str:
    """Return the subject and the kind in words; a kind may name a part of the subject first."""
    part, _, change = kind.rpartition(": ")
    shown = _SHOWN_KINDS.get(change, change)
    names = {"object": "profile"}
    where = f", {names.get(part, part)}" if part else ""
    return f"{_SHOWN_SUBJECTS.get(subject, subject)}{where}: {shown}"


def table(found: Iterable[Tried]) -> str:
    """The table of the docs: for each kind, how many inputs ended in which way."""
    counted = Counter((tried.one.subject, tried.one.kind, tried.outcome.ending) for tried in found)
    rows = [
        (_describe(subject, kind), [counted[subject, kind, ending] for ending in Ending])
        for subject, kinds in MUTATIONS.items()
        for kind in kinds
    ]
    rows.append(("all", [sum(column) for column in zip(*(numbers for _, numbers in rows), strict=True)]))
    head = f"| input: defect | inputs | {' | '.join(ending.value for ending in Ending)} |"
    lines = [
        f"| {name} | {sum(numbers):,} | {' | '.join(f'{number:,}' for number in numbers)} |"
        for name, numbers in rows
    ]
    return "\n".join([head, "|---|---:|---:|---:|---:|", *lines, ""])


def main() -> int:
    """Print the table and each fault, or write the table into a page."""
    parser = argparse.ArgumentParser(description="What becomes of broken and hostile inputs.")
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--skip", type=int, default=0, help="inputs left out before the first")
    parser.add_argument("--subject", choices=list(MUTATIONS), help="one subject alone")
    parser.add_argument("--kind", help="one kind alone")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--journal", type=Path, help="what became of each, kept; begun again, it goes on")
    parser.add_argument("--again", action="store_true", help="try anew what the journal calls broken")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    wanted = (
        one for one in inputs() if options.kind in (None, one.kind) and options.subject in (None, one.subject)
    )
    chosen = list(islice(wanted, options.skip, options.skip + options.inputs))
    known = {} if options.journal is None else read_journal(options.journal)
    if options.again:
        known = {one: tried for one, tried in known.items() if tried.outcome.ending is not Ending.BROKEN}
    with ExitStack() as opened:
        journal = None
        if options.journal is not None:
            options.journal.parent.mkdir(parents=True, exist_ok=True)
            journal = opened.enter_context(options.journal.open("a", encoding="utf-8"))
        fresh = try_all([one for one in chosen if one not in known], options.jobs, journal)
    known |= {tried.one: tried for tried in fresh}
    found = [known[one] for one in chosen]
    faults = [tried for tried in found if tried.outcome.ending is Ending.BROKEN]
    for fault in faults:
        one = fault.one
        sys.stderr.write(f"{one.subject}: {one.kind}, seed {one.seed}: {fault.outcome.text}\n")
    put(options.write, _NAME, table(found))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
