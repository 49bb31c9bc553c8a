"""Stages of an analysis on one processor, each beside the least that its work was measured to take.

python -m benchmarks.stages FILE.sqlite --into docs/performance.md
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.marks import put, surroundings
from benchmarks.ways import WAYS
from wallscope.kineto.any_capture import read_any_capture
from wallscope.model.capture import Capture, Options
from wallscope.pipeline import analyze_capture

_IMPORTS = "start of Python, imports"
_STAGES = {
    "reading": "reading the tables",
    "naming": "reading the tables",
    "nesting": "order, dependencies and steps",
    "finding": "order, dependencies and steps",
    "classifying": "purpose of each operation",
    "attributing": "attribution, summaries and matching of all ranks",
    "replaying": "replays of fixes",
}
_LEAST = {
    _IMPORTS: "importing numpy, polars and typer alone",
    "reading the tables": "SQLite counts the rows of each table and adds up one column",
    "order, dependencies and steps": "numpy sorts operations by stream and start, and looks up their calls",
    "attribution, summaries and matching of all ranks": "numpy finds when the GPU of each rank is busy",
}


def time_stages(path: Path) -> dict[str, float]:
    """CPU seconds of each stage of an analysis in this process, from its start on."""
    spent_s: defaultdict[str, float] = defaultdict(float)
    stage, began_s = _IMPORTS, 0.0

    def note(what: str) -> None:
        nonlocal stage, began_s
        now_s = time.process_time()
        spent_s[stage] += now_s - began_s
        stage, began_s = _STAGES[what.split(maxsplit=1)[0]], now_s

    analyze_capture(path, Options(), note, with_details=False)
    note("replaying")
    return dict(spent_s)


def time_least(path: Path) -> dict[str, float]:
    """CPU seconds of the least that was found for each stage, by other means than those of an analysis."""
    imported = [sys.executable, "-c", "import numpy, polars, typer, time; print(time.process_time())"]
    imports_s = float(subprocess.run(imported, capture_output=True, text=True, check=True).stdout)  # noqa: S603  # ours
    scan = WAYS["SQL: number of rows and sum of one column of each table"](path)
    capture = read_any_capture(path, lambda _: None)
    works = (scan, lambda: _order_and_look_up(capture), lambda: _find_busy(capture))
    found = [imports_s]
    for work in works:
        began_s = time.process_time()
        work()
        found.append(time.process_time() - began_s)
    return dict(zip(_LEAST, found, strict=True))


def _order_and_look_up(capture: Capture) -> object:
    """Order operations by stream and start, and look up the time of the call of each."""
    own = capture.operations.filter(pl.col("call") >= 0)
    order = np.lexsort((own["start_ns"].to_numpy(), own["stream"].to_numpy()))
    correlation = capture.calls["correlation"].fill_null(0).to_numpy()
    by_id = np.zeros(int(correlation.max()) + 1, np.int32)
    by_id[correlation] = np.arange(correlation.size, dtype=np.int32)
    issuing = by_id[correlation[own["call"].to_numpy()[order]]]
    return capture.calls["start_ns"].to_numpy()[issuing]


def _find_busy(capture: Capture) -> list[int]:
    """The time in ns in which the GPU of each rank is busy."""
    rank, start_ns, end_ns = (
        capture.operations[name].to_numpy() for name in ("rank_id", "start_ns", "end_ns")
    )
    found = []
    for one in np.unique(rank):
        own = rank == one
        order = np.argsort(start_ns[own])
        begins_ns, ends_ns = start_ns[own][order], np.maximum.accumulate(end_ns[own][order])
        gaps_ns = np.maximum(begins_ns[1:] - ends_ns[:-1], 0)
        found.append(int(ends_ns[-1] - begins_ns[0] - gaps_ns.sum()))
    return found


def measured(path: Path, what: str) -> dict[str, float]:
    """Run one of the two in a fresh process on one processor.

    Raises:
        CalledProcessError: it failed.
    """
    command = [sys.executable, "-m", "benchmarks.stages", str(path), "--only", what]
    alone = os.environ | {"POLARS_MAX_THREADS": "1"}
    ran = subprocess.run(command, env=alone, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603  # ours
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def table(path: Path, rounds: int) -> str:
    """The stages as a Markdown table: medians of all rounds."""
    runs = [(measured(path, "stages"), measured(path, "least")) for _ in range(rounds)]
    spent, least = (
        {name: statistics.median(run[which][name] for run in runs) for name in runs[0][which]}
        for which in (0, 1)
    )
    lines = ["| stage | CPU s | least measured, CPU s | least: what was measured |", "|---|---:|---:|---|"]
    for name, stage_s in (*spent.items(), ("all", sum(spent.values()))):
        least_s = sum(least.values()) if name == "all" else least.get(name)
        shown = "" if least_s is None else f"{least_s:.2f}"
        lines.append(f"| {name} | {stage_s:.2f} | {shown} | {_LEAST.get(name, '')} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and put the table into a document between its marks, or on standard output."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stages", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", choices=("stages", "least"))
    parser.add_argument("--name", default="stages", help="which marks of the document")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--into", type=Path)
    asked = parser.parse_args()
    if asked.only is not None:
        time_one = {"stages": time_stages, "least": time_least}[asked.only]
        sys.stdout.write(json.dumps(time_one(asked.file)))
        return
    facts = surroundings(asked.file, f"Each median is of {asked.rounds} new processes with one thread.")
    put(asked.into, asked.name, f"{facts}\n\n{table(asked.file, asked.rounds)}")


if __name__ == "__main__":
    main()
