"""Whole commands, from the start of the process to its end: wallscope and, where installed, its peers.

python -m benchmarks.commands FILE.sqlite --into docs/performance.md
"""

import argparse
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.marks import describe_rounds, put, surroundings

_EVERY_S = 0.05
_STAGE = re.compile(r"^ *(\d+) ms  ([^:]*?)(?::.*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Run:
    """One process with its children: seconds on the clock and of CPU, the largest sum of their PSS."""

    wall_s: float
    cpu_s: float
    pss_mib: float


@dataclass(frozen=True, slots=True)
class Way:
    """A command and where it runs; `prepare` comes before each, unmeasured, and hands in its environment."""

    arguments: tuple[str, ...]
    prepare: Callable[[], dict[str, str]] = dict
    folder: Path | None = None


def tree_pss_kib(pid: int) -> int:
    """Proportional memory of a process and its descendants now; those that just ended count nothing."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return 0
    own = re.search(r"^Pss: +(\d+)", rollup, re.MULTILINE)
    return (int(own[1]) if own else 0) + sum(tree_pss_kib(int(child)) for child in children)


def measured(way: Way) -> Run:
    """Run a command in a fresh process.

    Raises:
        RuntimeError: it failed.
    """
    environment = {**os.environ, **way.prepare()}
    peak_kib, ended = [0], threading.Event()

    def watch(pid: int) -> None:
        while not ended.wait(_EVERY_S):
            peak_kib[0] = max(peak_kib[0], tree_pss_kib(pid))

    began_s = time.perf_counter()
    with subprocess.Popen(  # noqa: S603  # ours, or a peer's
        way.arguments, env=environment, cwd=way.folder, stdout=subprocess.DEVNULL
    ) as process:
        watcher = threading.Thread(target=watch, args=(process.pid,))
        watcher.start()
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began_s
        process.returncode = os.waitstatus_to_exitcode(status)
        ended.set()
        watcher.join()
    if process.returncode:
        raise RuntimeError(f"{' '.join(way.arguments)} failed")
    return Run(wall_s, used.ru_utime + used.ru_stime, max(peak_kib[0], used.ru_maxrss) / 1024)


def ways(path: Path, folder: Path) -> dict[str, Way]:
    """The commands by the name that the table gives them; peers that are not installed are left out."""
    wallscope = (sys.executable, "-m", "wallscope")
    outputs = ("--json", str(folder / "run.json"), "--html", str(folder / "run.html"))
    analyze = (*wallscope, "analyze", str(path))
    kept = {"WALLSCOPE_CACHE_DIR": str(folder / "kept")}

    def empty() -> dict[str, str]:
        shutil.rmtree(folder / "empty", ignore_errors=True)
        return {"WALLSCOPE_CACHE_DIR": str(folder / "empty")}

    def filled() -> dict[str, str]:
        if not (folder / "kept").exists():
            subprocess.run((*analyze, *outputs), env=os.environ | kept, stdout=subprocess.DEVNULL, check=True)  # noqa: S603
        return kept

    found = {
        "python -c 'import typer'": Way((sys.executable, "-c", "import typer")),
        "wallscope --help": Way((*wallscope, "--help")),
        "analyze --no-cache": Way((*analyze, "--no-cache")),
        "analyze, empty cache": Way(analyze, empty),
        "analyze --json --html, empty cache": Way((*analyze, *outputs), empty),
        "analyze, cached": Way(analyze, filled),
        "analyze --json --html, cached": Way((*analyze, *outputs), filled),
        "diff with itself, cached": Way((*wallscope, "diff", str(path), str(path)), filled),
    }
    return found | _peers(path, folder)


def _peers(path: Path, folder: Path) -> dict[str, Way]:
    """Peers write beside what they read, so they get a copy of their own."""
    found: dict[str, Way] = {}
    for program, reports in (("nsys", ("cuda_gpu_kern_sum", "nvtx_kern_sum")), ("nsys-ai", ("diagnose",))):
        place = shutil.which(program)
        if place is None:
            continue
        own = folder / program / path.name
        own.parent.mkdir()
        shutil.copyfile(path, own)
        if program == "nsys":
            for report in reports:
                found[f"nsys stats --report {report}"] = Way(
                    (place, "stats", "--report", report, "--force-overwrite", "true", str(own)),
                    folder=own.parent,
                )
            continue

        def bare(own: Path = own) -> dict[str, str]:
            for beside in own.parent.iterdir():
                if beside != own:
                    shutil.rmtree(beside) if beside.is_dir() else beside.unlink()
            return {}

        found["nsys-ai diagnose, no cache"] = Way((place, "diagnose", str(own)), bare, own.parent)
        found["nsys-ai diagnose, its cache"] = Way((place, "diagnose", str(own)), folder=own.parent)
    return found


def compared(named: dict[str, Way], rounds: int) -> dict[str, list[Run]]:
    """Runs of each command; each round has its own order, but what needs a peer's cache follows it."""
    shuffled = random.Random(1)  # noqa: S311  # an order, not a key
    runs: defaultdict[str, list[Run]] = defaultdict(list)
    for _ in range(rounds):
        for name in shuffled.sample(list(named), len(named)):
            if name.endswith("its cache"):
                continue
            runs[name].append(measured(named[name]))
            warm = name.replace("no cache", "its cache")
            if warm != name and warm in named:
                runs[warm].append(measured(named[warm]))
    return {name: runs[name] for name in named}


def table(runs: dict[str, list[Run]]) -> str:
    """The runs as a Markdown table."""
    lines = [
        "| command | median s | minimum s | median CPU s | peak PSS MiB |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, of_way in runs.items():
        wall_s = [run.wall_s for run in of_way]
        cpu_s = statistics.median(run.cpu_s for run in of_way)
        lines.append(
            f"| `{name}` | {statistics.median(wall_s):.2f} | {min(wall_s):.2f} | {cpu_s:.2f} |"
            f" {max(run.pss_mib for run in of_way):,.0f} |"
        )
    return "\n".join(lines) + "\n"


def stages(path: Path) -> str:
    """Where one analysis without the cache spends its time, as `--verbose` tells, as a Markdown table."""
    command = (sys.executable, "-m", "wallscope", "analyze", str(path), "--no-cache", "--verbose")
    began_s = time.perf_counter()
    ran = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  # ours
    wall_ms = round((time.perf_counter() - began_s) * 1000)
    told = [(int(at), what) for at, what in _STAGE.findall(ran.stderr)]
    ends = [at for at, _ in told[1:]] + [wall_ms]
    spent_ms: defaultdict[str, int] = defaultdict(int)
    spent_ms["start of Python, imports"] = told[0][0]
    for (at, what), end in zip(told, ends, strict=True):
        spent_ms[what] += end - at
    lines = ["| stage | s | share |", "|---|---:|---:|"]
    lines += [
        f"| {what} | {time_ms / 1000:.2f} | {100 * time_ms / wall_ms:.0f} % |"
        for what, time_ms in spent_ms.items()
        if time_ms >= 10
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and put the tables into a document between their marks, or on standard output."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.commands", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--name", default="commands", help="which marks of the document")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--into", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = compared(ways(asked.file, Path(folder)), asked.rounds)
    facts = surroundings(asked.file, describe_rounds(asked.rounds))
    put(asked.into, asked.name, f"{facts}\n\n{table(runs)}\nOne run, stage by stage:\n\n{stages(asked.file)}")


if __name__ == "__main__":
    main()
