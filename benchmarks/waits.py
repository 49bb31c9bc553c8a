"""How often waits that no row names are found in noisy programs, and named in near misses.

python -m benchmarks.waits --seeds 40 --into docs/accuracy.md
python -m benchmarks.waits --seeds 4 --only "lock while" --failures failures.txt
"""

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from benchmarks.marks import put
from fixtures.simulation.less_rows import list_removals, rename_kernels
from fixtures.simulation.stories_inferred import wait_stories
from fixtures.simulation.wait_story import WaitAnswer, change_rows, judge_waits

_NAME = "waits"
_HEADER = (
    "| wait | found | near miss | named in the near miss | another wall: all rows | less rows"
    " |\n|---|---:|---|---:|---:|---:|"
)


class Judged(NamedTuple):
    """An answer about one program of a story; `missing` is empty where it has all rows."""

    story: str
    seed: int
    is_near: bool
    missing: str
    answer: WaitAnswer

    @property
    def is_failure(self) -> bool:
        """Whether the answer is not what a story asks for."""
        answer = self.answer
        if self.missing:
            return answer.is_surely_wrong
        return answer.is_wrong or (answer.is_named if self.is_near else not answer.is_found)

    def __str__(self) -> str:
        answer = self.answer
        return (
            f"{self.story} | {'near miss' if self.is_near else 'program'} {self.seed}"
            f"{f' without {self.missing}' if self.missing else ''}: told {answer.told:.3f},"
            f" true {answer.true:.3f}; {answer.dominant} ({answer.level}) for {answer.true_dominant}"
        )


def judge_story(name: str, seed: int, has_less: bool) -> list[Judged]:  # noqa: FBT001  # mapped over lists
    """Judge the two programs of a story for a seed; with less rows too, without one kind after the other."""
    return list(_judge_programs(name, seed, has_less=has_less))


def _judge_programs(name: str, seed: int, *, has_less: bool) -> Iterator[Judged]:
    (story,) = (one for one in wait_stories() if one.name == name)
    for is_near in (False, True):
        is_cause = story.is_named if is_near else story.stands_for
        with TemporaryDirectory() as folder:
            whole, less = Path(folder) / "run.sqlite", Path(folder) / "less.sqlite"
            played = story.write(whole, seed, is_near=is_near)
            yield Judged(name, seed, is_near, "", judge_waits(whole, played, is_cause))
            for missing, statements in [*list_removals(whole), rename_kernels()] * has_less:
                shutil.copy(whole, less)
                change_rows(less, statements)
                yield Judged(name, seed, is_near, missing, judge_waits(less, played, is_cause))


def judge_stories(seeds: int, less_seeds: int, only: str, jobs: int) -> list[Judged]:
    """Judge all stories whose name holds `only`, some seeds of each with less rows too."""
    names = [one.name for one in wait_stories() if only in one.name]
    programs = [(name, seed, seed < less_seeds) for name in names for seed in range(seeds)]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as workers:
        return [one for found in workers.map(judge_story, *zip(*programs, strict=True)) for one in found]


def table(judged: Sequence[Judged], seeds: int) -> str:
    """The stories as a table."""
    wrong = np.percentile([one.answer.wrong for one in judged if not one.missing], [95, 100]).tolist()
    shares = " and ".join(f"{share:.2%}".replace("%", " %") for share in wrong)
    counted = f"Each row has {seeds} programs and {seeds} near misses."
    lines = [f"{counted} A wrong wall has {shares} of a step (95th percentile and worst).", "", _HEADER]
    for story in wait_stories():
        own = [one for one in judged if one.story == story.name]
        if own:
            lines.append(f"| {story.name} | {_row(own, story.near_name)} |")
    lines.append(f"| all | {_row(judged, '')} |")
    return "\n".join([*lines, ""])


def _row(judged: Sequence[Judged], near_name: str) -> str:
    def count(answers: Sequence[Judged], is_so: Callable[[WaitAnswer], bool]) -> str:
        return f"{sum(is_so(one.answer) for one in answers)} of {len(answers)}"

    whole = [one for one in judged if not one.missing]
    return " | ".join(
        (
            count([one for one in whole if not one.is_near], lambda answer: answer.is_found),
            near_name,
            count([one for one in whole if one.is_near], lambda answer: answer.is_named),
            count(whole, lambda answer: answer.is_wrong),
            count([one for one in judged if one.missing], lambda answer: answer.is_surely_wrong),
        )
    )


def main() -> None:
    """Write the table into a page, or print it, and list what fails."""
    parser = argparse.ArgumentParser(description="Waits that no row names, in programs and near misses.")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--less-seeds", type=int, default=4, help="programs of a story with less rows too")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--into", type=Path)
    parser.add_argument("--failures", type=Path, help="write a line for each answer that is not right")
    options = parser.parse_args()
    judged = judge_stories(options.seeds, options.less_seeds, options.only, options.jobs)
    put(options.into, _NAME, table(judged, options.seeds))
    if options.failures is not None:
        failures = [f"{one}\n" for one in judged if one.is_failure]
        options.failures.write_text("".join(failures), encoding="utf-8")
        sys.stderr.write(f"{len(failures)} of {len(judged)} answers are not right\n")


if __name__ == "__main__":
    main()
