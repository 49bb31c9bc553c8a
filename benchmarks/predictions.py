"""How far replayed step times are from those of simulated programs that were really changed.

python -m benchmarks.predictions --programs 100 --into docs/accuracy.md
"""

import argparse
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from benchmarks.marks import put
from fixtures.simulation.program import Program
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.writing import write_run
from tests.replay.predictions import CHANGES, measure_step_ns
from wallscope.errors import OptionError
from wallscope.model.capture import Options
from wallscope.model.whatif import Asked, Question
from wallscope.pipeline import ask_what_if

_NAME = "predictions"
_CHANGES: Mapping[Question, Callable[[Program], Program]] = CHANGES
_HEADER = (
    "| change | pairs | median error | 95th percentile | worst | program with the worst error |"
    "\n|---|---:|---:|---:|---:|---|"
)


class Error(NamedTuple):
    """The error of one replay as a share of the changed step; `None` if `whatif` gives no answer."""

    option: str
    program: str
    share: float | None


def name_programs(count: int) -> dict[str, Program]:
    """Return the programs written by hand, and so many random ones, by name."""
    written = {story.name: story.program for story in stories()}
    return written | {f"random program {seed}": random_program(seed) for seed in range(count)}


def measure_errors(name: str, program: Program) -> list[Error]:
    """Replay each change that changes the program, and run the changed program."""
    return list(_replay_changes(name, program))


def _replay_changes(name: str, program: Program) -> Iterator[Error]:
    before = run(program)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.sqlite"
        write_run(before, path, has_events=True)
        for question, change in _CHANGES.items():
            changed = change(program)
            if changed == program:
                continue
            try:
                found = ask_what_if(path, Options(), Asked((question,), largest_error=1.0), lambda _: None)
            except OptionError:
                yield Error(question.option, name, None)
                continue
            true_ns = measure_step_ns(changed, found.device or 0, before)
            yield Error(question.option, name, abs(found.answers[0].step_ns / true_ns - 1))


def table(programs: int) -> str:
    """The errors of each change, as a table."""
    named = name_programs(programs)
    with ProcessPoolExecutor(2, get_context("spawn")) as workers:
        errors = [
            one for own in workers.map(measure_errors, *zip(*named.items(), strict=True)) for one in own
        ]
    known = [one for one in errors if one.share is not None]
    rows = [_row("all", known)]
    rows += [
        _row(f"`{option}`", [one for one in known if one.option == option]) for option in _options(known)
    ]
    counts = (
        f"{len(known):,} pairs of {len(named)} programs; in {len(errors) - len(known)} further cases"
        " `whatif` gives no answer, because the name of the change is not in the replayed steps."
    )
    return "\n".join([counts, "", _HEADER, *rows, ""])


def _options(errors: list[Error]) -> list[str]:
    return list(dict.fromkeys(one.option for one in errors))


def _row(name: str, errors: list[Error]) -> str:
    shares = [one.share or 0.0 for one in errors]
    worst = max(errors, key=lambda one: one.share or 0.0)
    spread = " | ".join(f"{share:.2%}".replace("%", " %") for share in np.percentile(shares, [50, 95, 100]))
    return f"| {name} | {len(errors):,} | {spread} | {worst.program} |"


def main() -> None:
    """Write the table into a page, or print it."""
    parser = argparse.ArgumentParser(description="Replayed step times, and those of the changed programs.")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    put(options.into, _NAME, table(options.programs))


if __name__ == "__main__":
    main()
