"""Broken and hostile inputs by the thousand, and what becomes of them.

    python -m benchmarks.faults --inputs 20000 --jobs 2 --write docs/robustness.md

Good inputs are mutated one way each (`fixtures/mutation`): exports, JSON answers, configurations and files of
kernel rules. The same arguments give the same inputs. Each is judged by a process with a watchdog on its time
and a bound on its memory. Exit code 1 if any outcome is neither an answer that holds nor one clear line.
"""

import argparse
import multiprocessing
import resource
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, islice
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.judging import Ending, Outcome, judged
from fixtures.mutation import MUTATIONS, mutated
from fixtures.mutation.good import CONFIGURATIONS, RULES
from fixtures.scenario import scenarios
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.writing import write_run
from wallscope.analysis import Options, analyze
from wallscope.render.document import document

SECONDS, MEMORY_BYTES = 60, 2 << 30
PROGRAMS = ((3, "3.25.0"), (5, "3.28.1"), (6, "3.24.0"))
"""Seeds of random programs, and the schema that their exports are written in."""
BEGIN, END = "<!-- faults -->", "<!-- end of faults -->"
_RETIRE = 200
"""Inputs after which a process is replaced: what it takes in memory is then of few inputs."""


@dataclass(frozen=True, slots=True)
class Input:
    """One mutated input: what it is, which good one it was, what was done to it."""

    subject: str
    kind: str
    seed: int

    def write(self, good: Mapping[str, Sequence[Path]], folder: Path) -> Path:
        """Make it, alone in a new folder."""
        chosen = good[self.subject][self.seed % len(good[self.subject])]
        path = Path(tempfile.mkdtemp(dir=folder)) / chosen.name
        mutated(chosen, path, self.subject, self.kind, self.seed)
        return path


def good_inputs(folder: Path) -> dict[str, list[Path]]:
    """The inputs that are mutated, by subject."""
    exports = [folder / f"run{number}.sqlite" for number in range(len(PROGRAMS))]
    for path, (seed, schema) in zip(exports, PROGRAMS, strict=True):
        write_run(run(random_program(seed)), path, has_os_calls=True, schema=schema)
    next(one for one in scenarios() if one.name == "dispatcher").write(folder / "small.sqlite")
    answers = [folder / "run0.json", folder / "run1.json"]
    for export, answer in zip(exports, answers, strict=False):
        answer.write_text(document(analyze(export, Options(), lambda _: None)), encoding="utf-8")
    configurations = [folder / name for name in CONFIGURATIONS]
    for path in configurations:
        path.write_text(CONFIGURATIONS[path.name], encoding="utf-8")
    (folder / "rules.toml").write_text(RULES, encoding="utf-8")
    return {
        "export": exports,
        "answer": answers,
        "configuration": configurations,
        "kernel rules": [folder / "rules.toml"],
    }


def inputs() -> Iterator[Input]:
    """Endless inputs, each kind in turn."""
    for seed in count():
        for subject, kinds in MUTATIONS.items():
            for kind in kinds:
                yield Input(subject, kind, seed)


class Judge:
    """A process that judges, and is replaced when it takes too long, dies or has grown."""

    def __init__(self) -> None:
        self._process: multiprocessing.process.BaseProcess | None = None
        self._asked = 0

    def judge(self, path: Path, subject: str) -> Outcome:
        """What becomes of one input."""
        if self._process is None:
            self._begin()
        self._pipe.send((path, subject))
        self._asked += 1
        if not self._pipe.poll(SECONDS):
            self.end()
            return Outcome(Ending.BROKEN, f"takes longer than {SECONDS} s")
        outcome: Outcome
        try:
            outcome, peak_bytes = self._pipe.recv()
        except EOFError:
            self.end()
            return Outcome(Ending.BROKEN, "the process died")
        if self._asked >= _RETIRE or peak_bytes > MEMORY_BYTES:
            self.end()
        if peak_bytes > MEMORY_BYTES:
            return Outcome(Ending.BROKEN, f"takes {peak_bytes >> 20:,} MiB")
        return outcome

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._asked = 0

    def end(self) -> None:
        """Let the process go."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None


def _serve(pipe: Connection) -> None:
    while True:
        outcome = judged(*pipe.recv())
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        pipe.send((outcome, peak_bytes))


def tried(chosen: Sequence[Input], jobs: int) -> list[tuple[Input, Outcome]]:
    """All inputs with what became of them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        good = good_inputs(folder)

        def share(number: int) -> list[tuple[Input, Outcome]]:
            judge, found = Judge(), []
            for one in chosen[number::jobs]:
                path = one.write(good, folder)
                found.append((one, judge.judge(path, one.subject)))
                shutil.rmtree(path.parent)
            judge.end()
            return found

        with ThreadPoolExecutor(jobs) as pool:
            return [pair for found in pool.map(share, range(jobs)) for pair in found]


def table(found: Sequence[tuple[Input, Outcome]]) -> str:
    """The table of the docs: for each kind, how many inputs ended in which way."""
    counted = Counter((one.subject, one.kind, outcome.ending) for one, outcome in found)
    rows = [
        (f"{subject}: {kind}", [counted[subject, kind, ending] for ending in Ending])
        for subject, kinds in MUTATIONS.items()
        for kind in kinds
    ]
    rows.append(("all", [sum(column) for column in zip(*(numbers for _, numbers in rows), strict=True)]))
    head = f"| what is wrong | inputs | {' | '.join(ending.value for ending in Ending)} |"
    lines = [
        f"| {name} | {sum(numbers):,} | {' | '.join(f'{number:,}' for number in numbers)} |"
        for name, numbers in rows
    ]
    return "\n".join([head, "|---|---:|---:|---:|---:|", *lines, ""])


def main() -> int:
    """Print the table and each fault, or write the table into a page."""
    parser = argparse.ArgumentParser(description="What becomes of broken and hostile exports.")
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--skip", type=int, default=0, help="inputs left out before the first")
    parser.add_argument("--subject", choices=list(MUTATIONS), help="one subject alone")
    parser.add_argument("--kind", help="one kind alone")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    wanted = (
        one for one in inputs() if options.kind in (None, one.kind) and options.subject in (None, one.subject)
    )
    chosen = list(islice(wanted, options.skip, options.skip + options.inputs))
    found = tried(chosen, options.jobs)
    faults = [(one, outcome) for one, outcome in found if outcome.ending is Ending.BROKEN]
    for one, outcome in faults:
        sys.stderr.write(f"{one.subject}: {one.kind}, seed {one.seed}: {outcome.text}\n")
    if options.write is None:
        sys.stdout.write(table(found))
    else:
        before, _, rest = options.write.read_text(encoding="utf-8").partition(BEGIN)
        text = f"{before}{BEGIN}\n\n{table(found)}\n{END}{rest.partition(END)[2]}"
        options.write.write_text(text, encoding="utf-8")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
