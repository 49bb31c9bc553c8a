"""Jobs of 32 to 1,024 ranks: CPU time of each export, and CPU time and memory of what joins the ranks.

    python -m benchmarks.large_jobs build/large_jobs --ranks 32 128 512 1024 --into docs/performance.md

Jobs come from `fixtures.planted_exports.large_job`; all that is planted must be named, and nothing else.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from benchmarks.culprits import CLOSE_SHARE
from benchmarks.jobs import Spent, spent
from benchmarks.marks import put
from fixtures.bulk import write_bulk_job
from fixtures.planted_exports import Spoiled, large_job, write_answers, write_exports
from fixtures.planted_jobs import Fault, PlantedJob

_TENSOR, _STAGES, _SMALL_STAGES, _SMALL = 2, 8, 2, 64
"""How a job is divided; one of fewer ranks than `_SMALL` has two stages."""
Named = tuple[str, tuple[int, ...]]
"""A unit and its ranks."""
_EXPORTS, _REAL_EXPORTS, _REAL_KERNELS, _STEPS = 4, 2, 1_000_000, 20


@dataclass(frozen=True, slots=True)
class Measured:
    """What a job of some ranks takes, and how many of its planted causes and their amounts are right."""

    ranks: int
    export_s: float
    joined: Spent
    page_bytes: int
    planted: int
    named: int
    accused: int
    close: int


def plant_job(ranks: int) -> tuple[PlantedJob, Spoiled]:
    """Return the job of so many ranks, and what is wrong with its exports."""
    pipeline = _STAGES if ranks >= _SMALL else _SMALL_STAGES
    return large_job(pipeline, ranks // (_TENSOR * pipeline), _STEPS)


def make_job(folder: Path, ranks: int) -> None:
    """Write the answers of a job, a few of its exports, and what is planted."""
    planted, spoiled = plant_job(ranks)
    shutil.rmtree(folder, ignore_errors=True)
    kept = [rank for rank in range(ranks) if rank not in spoiled.ranks][:_EXPORTS]
    for _ in write_exports(folder / "exports", planted, spoiled, kept):
        pass
    for _ in write_answers(folder / "answers", planted, spoiled):
        pass
    truth = [_name_fault(fault, spoiled) for fault in planted.faults]
    (folder / "truth.json").write_text(json.dumps(truth), encoding="utf-8")


def _name_fault(fault: Fault, spoiled: Spoiled) -> Named:
    """Return what is to be named: a unit, and those of its ranks that are there."""
    return fault.unit, tuple(rank for rank in fault.places if rank not in spoiled.ranks)


def measure_gains(folder: Path, ranks: int, order: Sequence[Named]) -> list[float]:
    """Return what each planted unit saves, in ns, as the job is played without it and those before it.

    They are kept in the folder: each takes half as long as to make the job.
    """
    kept = folder / "gains.json"
    if kept.exists():
        asked, gains_ns = json.loads(kept.read_text(encoding="utf-8"))
        if asked == json.loads(json.dumps(order)):
            return list(gains_ns)
    planted, spoiled = plant_job(ranks)
    faults = {_name_fault(fault, spoiled): fault for fault in planted.faults}
    left, step_ns, found = planted.faults, planted.measure_step_ns(planted.ranks), list[float]()
    for name in order:
        left = tuple(fault for fault in left if fault is not faults[name])
        without_ns = planted.measure_step_ns(planted.play(left))
        found.append(step_ns - without_ns)
        step_ns = without_ns
    kept.write_text(json.dumps([order, found]), encoding="utf-8")
    return found


def analyze(paths: Sequence[Path], *options: str) -> Spent:
    """Analyze exports or answers of a job."""
    command = [sys.executable, "-m", "wallscope", "analyze", *map(str, paths), "--no-cache", "--keep-going"]
    return spent([[*command, *options]])


def measure_job(folder: Path, ranks: int) -> Measured:
    """Make a job in a process of its own unless it is there, and measure exports and what joins the ranks."""
    if not (folder / "truth.json").exists():
        subprocess.run(  # noqa: S603  # ours
            [sys.executable, "-m", "benchmarks.large_jobs", str(folder), "--make", "--ranks", str(ranks)],
            check=True,
        )
    exports = analyze(sorted((folder / "exports").iterdir()))
    answer, page = folder / "job.json", folder / "job.html"
    answers = sorted((folder / "answers").iterdir())
    joined = analyze(answers, "--json", str(answer), "--html", str(page))
    found = json.loads(answer.read_text(encoding="utf-8"))
    numbers = [rank["rank"] for rank in found["ranks"]]
    saved_ns: dict[Named, int] = {
        (one["unit"], tuple(numbers[place] for place in one["places"])): one["saved_ns"]
        for one in found["job"]["stragglers"]
    }
    listed = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    truth = {(unit, tuple(places)) for unit, places in listed}
    right = [name for name in saved_ns if name in truth]
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:  # what this one takes counts for its commands
        gains_ns = apart.submit(measure_gains, folder, ranks, right).result()
    return Measured(
        ranks,
        exports.cpu_s / _EXPORTS,
        joined,
        page.stat().st_size,
        len(truth),
        len(right),
        len(saved_ns) - len(right),
        sum(abs(saved_ns[name] - ns) <= CLOSE_SHARE * ns for name, ns in zip(right, gains_ns, strict=True)),
    )


def tabulate(measured: Sequence[Measured], alone: Spent, real: Spent | None) -> str:
    """Return the table, and what follows for a job of real size."""
    titles = (
        "ranks",
        "CPU s for an export",
        "CPU s to join the ranks",
        "for each rank (ms)",
        "memory (MiB)",
        "for each rank (MiB)",
        "page (KB)",
        "planted causes named",
        "innocent units named",
        "amounts within 10 %",
    )
    lines = [f"| {' | '.join(titles)} |", "|" + "---:|" * len(titles)]
    for one in measured:
        more_mib = (one.joined.largest_mib - alone.largest_mib) / one.ranks
        each_ms = 1_000 * (one.joined.cpu_s - alone.cpu_s) / one.ranks
        cells = (
            f"{one.ranks:,}",
            f"{one.export_s:.2f}",
            f"{one.joined.cpu_s:.1f}",
            f"{each_ms:.0f}",
            f"{one.joined.largest_mib:,.0f}",
            f"{more_mib:.2f}",
            f"{one.page_bytes / 1e3:,.0f}",
            f"{one.named} of {one.planted}",
            f"{one.accused}",
            f"{one.close} of {one.named}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    load = f"{os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
    told = (
        "The columns for each rank are beyond what one answer alone takes:"
        f" {alone.cpu_s:.1f} s of CPU time and {alone.largest_mib:,.0f} MiB. Load average at the end: {load}."
    )
    if real is None:
        return "\n".join(lines) + f"\n\n{told}\n"
    each_s, last = real.cpu_s / _REAL_EXPORTS, measured[-1]
    hours = (last.ranks * each_s + last.joined.cpu_s) / 3_600
    size = f"{_REAL_EXPORTS} ranks of {_REAL_KERNELS:,} kernels"
    told += (
        f"\n\nExports of real size, {size}, take {each_s:.1f} s of CPU time for each rank, and"
        f" {real.largest_mib:,.0f} MiB at most. An extrapolation, not a measurement: {last.ranks:,} such"
        f" exports take {hours:.1f} hours of CPU time, divided among workers."
    )
    return "\n".join(lines) + f"\n\n{told}\n"


def measure_real(folder: Path) -> Spent:
    """Measure the analysis of a few exports of a million kernels each."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"run_rank{number}.sqlite" for number in range(_REAL_EXPORTS)]
    write_bulk_job(paths, kernels=_REAL_KERNELS, steps=_STEPS)
    return analyze(paths)


def main() -> None:
    """Measure jobs of some sizes, and put the table into a document or on standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, nargs="+", default=[32, 128, 512, 1_024])
    parser.add_argument("--make", action="store_true", help="only write the files of one job")
    parser.add_argument("--real", action="store_true", help="also exports of a million kernels")
    parser.add_argument("--into", type=Path)
    given = parser.parse_args()
    if given.make:
        make_job(given.folder, given.ranks[0])
        return
    measured = []
    for ranks in given.ranks:
        measured.append(measure_job(given.folder / str(ranks), ranks))
        sys.stderr.write(f"{measured[-1]}\n")
    (first, *_) = sorted((given.folder / str(given.ranks[0]) / "answers").glob("*.json"))
    real = measure_real(given.folder / "real") if given.real else None
    put(given.into, "large-jobs", tabulate(measured, analyze([first]), real))


if __name__ == "__main__":
    main()
