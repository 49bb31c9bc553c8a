"""How often a cause is named in noisy programs that have it, and in near misses that only resemble it.

python -m benchmarks.causes --seeds 40 --into docs/accuracy.md
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.marks import put
from fixtures.simulation.stories_causes import CauseStory, cause_stories
from wallscope.model.capture import Options
from wallscope.pipeline import analyze

_NAME = "causes"
_HEADER = "| cause | named in programs that have it | near miss | named in the near miss |"


def is_named(name: str, seed: int, *, is_near: bool) -> bool:
    """Return whether the answer on one of the two programs of a story names the cause."""
    (story,) = (one for one in cause_stories() if one.name == name)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.sqlite"
        story.write(path, seed, is_near=is_near)
        return story.is_named(analyze(path, Options(), lambda _: None))


def count_named(story: CauseStory, seeds: Sequence[int], workers: ProcessPoolExecutor) -> tuple[int, int]:
    """Return in how many programs with the cause, and in how many near misses, it is named."""
    found = (sum(workers.map(partial(is_named, story.name, is_near=near), seeds)) for near in (False, True))
    of_programs, of_near = found
    return of_programs, of_near


def table(seeds: int) -> list[str]:
    """The stories as lines of a table."""
    lines = [f"Each row has {seeds} programs and {seeds} near misses.", "", _HEADER, "|---|---:|---|---:|"]
    with ProcessPoolExecutor(2, get_context("spawn")) as workers:
        for story in cause_stories():
            named, wrong = count_named(story, range(seeds), workers)
            lines.append(f"| {story.name} | {named} of {seeds} | {story.near_name} | {wrong} of {seeds} |")
    return [*lines, ""]


def main() -> None:
    """Write the table into a page, or print it."""
    parser = argparse.ArgumentParser(description="Causes named in noisy programs and in near misses.")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    put(options.into, _NAME, "\n".join(table(options.seeds)))


if __name__ == "__main__":
    main()
