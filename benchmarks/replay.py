"""Questions to a replay: how long each takes once the export is read and its dependencies are resolved.

python -m benchmarks.replay FILE.sqlite --into docs/performance.md
"""

import argparse
import statistics
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.marks import put, surroundings
from wallscope.attribution.prepared import list_rank_windows
from wallscope.model.capture import Options
from wallscope.model.whatif import Question
from wallscope.preparation import prepare
from wallscope.replay.engine import Engine, WindowReplay
from wallscope.replay.windows import SimulatedSteps, select_replay_window
from wallscope.trace.collectives import find_partners

QUESTIONS = (
    Question("scale", "communication", 0.0),
    Question("scale", "think", 0.0),
    Question("scale", "category:gemm", 0.5),
    Question("without", "synchronisation"),
    Question("graph", "*"),
    Question("hide", "communication"),
)
_TAX, _STEP_NS = 1.1, 100_000_000


def load_window(path: Path, most: int) -> SimulatedSteps:
    """The steps of the first rank, as many as hold so many operations."""
    prepared = prepare(path, Options(), lambda _: None)
    parts, facts, evidence = prepared.trace, prepared.facts, prepared.evidence
    between = find_partners(parts.operations, facts.collectives)
    return select_replay_window(
        evidence, list_rank_windows(parts), between, parts.range_tree, parts.capture.names, 0, most
    )


def timed(window: SimulatedSteps, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds by the clock and of CPU of each question, with its path and walls, and of what comes before."""
    spent_s: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for _ in range(rounds):
        began = _now_s()
        player = WindowReplay(window, _STEP_NS, Engine(window, lambda _: _TAX))
        player.measure_ns(())
        spent_s["no change"].append(_since(began))
        for question in QUESTIONS:
            began = _now_s()
            player.answer((question,))
            spent_s[f"`{question.option}`"].append(_since(began))
    return dict(spent_s)


def _now_s() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(began: tuple[float, float]) -> tuple[float, float]:
    wall_s, cpu_s = _now_s()
    return wall_s - began[0], cpu_s - began[1]


def table(spent_s: dict[str, list[tuple[float, float]]]) -> str:
    """The questions as a Markdown table."""
    lines = ["| question | median s | maximum s | median CPU s |", "|---|---:|---:|---:|"]
    for name, own in spent_s.items():
        wall_s, cpu_s = zip(*own, strict=True)
        median_s = statistics.median(wall_s)
        lines.append(f"| {name} | {median_s:.2f} | {max(wall_s):.2f} | {statistics.median(cpu_s):.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and put the table into a document between its marks, or on standard output."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.replay", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--operations", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--into", type=Path)
    asked = parser.parse_args()
    window = load_window(asked.file, asked.operations)
    spent_s = timed(window, asked.rounds)
    counts = (
        f"{window.graph.op.size:,} operations and {len(window.segments.call):,} host intervals (CUDA calls,"
        " and the times between them)"
    )
    shown = surroundings(asked.file, f"Each question was replayed {asked.rounds} times.")
    put(asked.into, "replay", f"{shown}\n\nThe replay had {counts}.\n\n{table(spent_s)}")


if __name__ == "__main__":
    main()
