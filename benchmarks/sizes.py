"""How `analyze` grows with the size of an export, and what a second processor gains.

python -m benchmarks.sizes build/sizes --into docs/performance.md
"""

import argparse
import statistics
import sys
from functools import partial
from pathlib import Path

from benchmarks.commands import Run, Way, compared
from benchmarks.marks import describe_rounds, put, surroundings
from fixtures.bulk import write_bulk

_KERNELS = (100_000, 1_000_000, 5_000_000)
_RANKS, _STEPS = 8, 20
_PARTS = 1_000_000


def list_ways(folder: Path) -> dict[str, Way]:
    """The commands by size and processors; exports that are not in the folder yet are generated."""
    found = {}
    for kernels in _KERNELS:
        path = folder / f"bulk_{kernels}.sqlite"
        if not path.exists():
            write_bulk(path, kernels=kernels, ranks=_RANKS, steps=_STEPS)
        command = (sys.executable, "-m", "wallscope", "analyze", str(path), "--no-cache")
        for processors in (1, 2):
            found[f"{kernels / _PARTS:g} | {processors}"] = Way(command, partial(_use_threads, processors))
    return found


def _use_threads(count: int) -> dict[str, str]:
    return {"POLARS_MAX_THREADS": str(count)}


def table(runs: dict[str, list[Run]]) -> str:
    """The medians as a Markdown table."""
    lines = [
        "| million kernels | threads | median s | median CPU s | peak PSS MiB |",
        "|---:|---:|---:|---:|---:|",
    ]
    for name, own in runs.items():
        wall_s, cpu_s = (statistics.median(getattr(run, of) for run in own) for of in ("wall_s", "cpu_s"))
        lines.append(f"| {name} | {wall_s:.2f} | {cpu_s:.2f} | {max(run.pss_mib for run in own):,.0f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and put the table into a document between its marks, or on standard output."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sizes", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--into", type=Path)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    ways = list_ways(asked.folder)
    runs = compared(ways, asked.rounds)
    largest = asked.folder / f"bulk_{_KERNELS[-1]}.sqlite"
    put(asked.into, "sizes", f"{surroundings(largest, describe_rounds(asked.rounds))}\n\n{table(runs)}")


if __name__ == "__main__":
    main()
