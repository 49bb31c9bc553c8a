"""A job of many exports: `--jobs 2`, two commands with half of the exports each, and one export alone.

python -m benchmarks.jobs FOLDER --exports 64 --kernels 10000 --into docs/performance.md
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.marks import put
from fixtures.bulk import write_bulk_job

_STEPS = 10


@dataclass(frozen=True, slots=True)
class Spent:
    """What some processes took together: seconds on the clock and of CPU, memory of the largest process."""

    wall_s: float
    cpu_s: float
    largest_mib: float


def make_exports(folder: Path, count: int, kernels: int) -> list[Path]:
    """Exports of the ranks of one job, of about so many kernels each; those that are there stay."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"rank{number:04}_of_{count}_{kernels}.sqlite" for number in range(count)]
    if not all(path.exists() for path in paths):
        with TemporaryDirectory(dir=folder) as aside:
            written = [Path(aside) / path.name for path in paths]
            write_bulk_job(written, kernels=kernels, steps=_STEPS)
            for path, one in zip(paths, written, strict=True):
                one.rename(path)
    return paths


def spent(commands: Sequence[Sequence[str]]) -> Spent:
    """Run commands side by side.

    Raises:
        RuntimeError: one failed.
    """
    began_s = time.perf_counter()
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]  # noqa: S603  # ours
    cpu_s, largest_kib = 0.0, 0
    for one in running:
        _, status, used = os.wait4(one.pid, 0)
        one.returncode = os.waitstatus_to_exitcode(status)
        cpu_s += used.ru_utime + used.ru_stime
        largest_kib = max(largest_kib, used.ru_maxrss)
    wall_s = time.perf_counter() - began_s
    if any(one.returncode for one in running):
        raise RuntimeError("an analysis failed")
    return Spent(wall_s, cpu_s, largest_kib / 1024)


def ways(paths: Sequence[Path]) -> dict[str, list[list[str]]]:
    """The commands of each way, by the name that the table gives it."""

    def analyze(some: Sequence[Path], *options: str) -> list[str]:
        return [sys.executable, "-m", "wallscope", "analyze", *map(str, some), "--no-cache", *options]

    largest = max(paths, key=lambda path: path.stat().st_size)
    return {
        "`--jobs 2`": [analyze(paths, "--jobs", "2")],
        "two separate commands, each with half of the exports": [analyze(paths[::2]), analyze(paths[1::2])],
        "one command with the largest export alone": [analyze([largest])],
    }


def table(runs: dict[str, list[Spent]], count: int) -> str:
    """The runs as a Markdown table, and what `--jobs 2` is beside the others, round by round."""
    titles = (
        "commands",
        "median time (s)",
        "shortest time (s)",
        "median CPU time (s)",
        "most memory of a process (MiB)",
    )
    lines = [f"| {' | '.join(titles)} |", "|---|---:|---:|---:|---:|"]
    for name, of_way in runs.items():
        wall_s = [run.wall_s for run in of_way]
        lines.append(
            f"| {name} | {statistics.median(wall_s):.1f} | {min(wall_s):.1f} |"
            f" {statistics.median(run.cpu_s for run in of_way):.1f} |"
            f" {max(run.largest_mib for run in of_way):,.0f} |"
        )
    jobs, two, alone = runs.values()
    walls = [both.wall_s / own.wall_s for own, both in zip(jobs, two, strict=True)]
    cpus = [both.cpu_s / own.cpu_s for own, both in zip(jobs, two, strict=True)]
    memory = max(run.largest_mib for run in jobs) / max(run.largest_mib for run in alone)
    by_clock = f"{statistics.median(walls):.2f} ({min(walls):.2f} to {max(walls):.2f} over the rounds)"
    by_cpu = f"{statistics.median(cpus):.2f} ({min(cpus):.2f} to {max(cpus):.2f})"
    told = (
        f"With {count} exports, two separate commands take {by_clock} times as long as `--jobs 2`, and"
        f" {by_cpu} times as much CPU time (medians). With `--jobs 2`, the largest process uses {memory:.2f}"
        " times as much memory as analyzing a single export."
    )
    return "\n".join((*lines, "", told)) + "\n"


def main() -> None:
    """Measure in turns, and put the table into a document between its marks, or on standard output."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jobs", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the exports are made, or were")
    for name, default in (("exports", 64), ("kernels", 10_000), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--into", type=Path)
    arguments = parser.parse_args()
    paths = make_exports(arguments.folder, arguments.exports, arguments.kernels)
    named = ways(paths)
    runs: dict[str, list[Spent]] = {name: [] for name in named}
    for number in range(arguments.rounds):
        for name in list(named)[:: 1 if number % 2 == 0 else -1]:
            runs[name].append(spent(named[name]))
            sys.stderr.write(f"{name}: {runs[name][-1]}, load {os.getloadavg()[0]:.1f}\n")
    megabytes = sum(path.stat().st_size for path in paths) / 1e6
    told = (
        f"Each export has {arguments.kernels:,} kernels, and together they take up {megabytes:,.0f} MB. The"
        f" commands ran in {arguments.rounds} rounds, in alternating order, on a machine with"
        f" {os.cpu_count()} cores. Its load average at the end was {os.getloadavg()[0]:.1f}, including the"
        " measured processes."
    )
    put(arguments.into, "jobs", f"{table(runs, len(paths))}\n{told}\n")


if __name__ == "__main__":
    main()
