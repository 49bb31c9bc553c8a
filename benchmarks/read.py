"""Reading an export, way by way: fresh processes in alternating order, and a table for the docs.

python -m benchmarks.read FILE.sqlite --into docs/performance.md
"""

import argparse
import importlib.util
import os
import random
import statistics
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks.marks import describe_rounds, put, surroundings
from benchmarks.ways import WAYS

_SCAN = "SQL: number of rows and sum of one column of each table"


@dataclass(frozen=True, slots=True)
class Run:
    """One process: seconds of its work without imports, of CPU time with them, peak memory of its tree."""

    work_s: float
    cpu_s: float
    peak_mib: float


def measured(way: str, path: Path) -> Run:
    """Run one way in a fresh process.

    Raises:
        RuntimeError: it failed.
    """
    process = subprocess.Popen(  # noqa: S603  # our own module
        [sys.executable, "-m", "benchmarks.ways", way, str(path)], stdout=subprocess.PIPE, text=True
    )
    said = process.stdout.read() if process.stdout else ""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{way} failed")
    return Run(float(said), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def compared(path: Path, rounds: int) -> dict[str, list[Run]]:
    """Runs of each way; each round has its own order."""
    ways = [way for way in WAYS if "pandas" not in way or importlib.util.find_spec("pandas")]
    shuffled = random.Random(1)  # noqa: S311  # an order, not a key
    runs: defaultdict[str, list[Run]] = defaultdict(list)
    measured(ways[0], path)  # the file is in memory from here on
    for _ in range(rounds):
        for way in shuffled.sample(ways, len(ways)):
            runs[way].append(measured(way, path))
    return {way: runs[way] for way in ways}


def table(runs: dict[str, list[Run]], path: Path) -> str:
    """The runs as a Markdown table, with what they ran on."""
    scan_s = statistics.median(run.work_s for run in runs[_SCAN])
    facts = surroundings(path, describe_rounds(len(runs[_SCAN])))
    lines = [
        facts,
        "",
        "| method | median s | minimum s | relative to row 2 | CPU s with imports | peak MiB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for way, of_way in runs.items():
        work_s = statistics.median(run.work_s for run in of_way)
        lines.append(
            f"| {way} | {work_s:.2f} | {min(run.work_s for run in of_way):.2f} | {work_s / scan_s:.1f} |"
            f" {statistics.median(run.cpu_s for run in of_way):.2f} |"
            f" {max(run.peak_mib for run in of_way):,.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and put the table into a document between its marks, or on standard output."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.read", description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--into", type=Path)
    asked = parser.parse_args()
    put(asked.into, "read", table(compared(asked.file, asked.rounds), asked.file))


if __name__ == "__main__":
    main()
