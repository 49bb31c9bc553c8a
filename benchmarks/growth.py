"""How time grows with one thing: CPU time of whole commands with so many, and with twice as many.

python -m benchmarks.growth --into docs/robustness.md
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.marks import put
from fixtures.export import ExportWriter
from fixtures.many import CONFIGURATIONS, EXPORTS, TRACES, Fill, kernels, write_export

_NAME, _INPUTS = "growth", "../fixtures/many.py"
_WALLSCOPE = (sys.executable, "-m", "wallscope")
_LONGEST_S = 1_800
_LEAST_S = 0.5  # less has no ratio
_SHOWN = {
    "devices": "devices of one process",
    "processes": "processes with a device each",
    "processes_of_a_device": "processes on one device",
    "threads_of_ranges": "threads with NVTX ranges only",
    "threads_of_calls": "threads with CUDA calls only",
    "threads_of_both": "threads with NVTX ranges and CUDA calls",
    "nested_alike": "nested ranges with one name",
    "nested_unlike": "nested ranges with different names",
    "ranges_in_a_row": "consecutive ranges with different names",
    "torch_nested": "nested operators of a PyTorch trace",
    "torch_threads": "threads of a PyTorch trace",
}
Command = Callable[[int], list[str | Path]]


@dataclass(frozen=True, slots=True)
class Grown:
    """A thing, how many, what a command took for so many and for twice as many, beyond what none takes."""

    name: str
    count: int
    once_s: float
    twice_s: float

    @property
    def ratio(self) -> float:
        """How many times the time is; 2 is in proportion."""
        return self.twice_s / max(self.once_s, 1e-9)


def cpu_s(words: Sequence[str | Path], folder: Path) -> float:
    """CPU time of a command; infinite where it did not end well.

    Raises:
        RuntimeError: it ended as it must not.
    """
    before = os.times()
    try:
        ran = subprocess.run(  # noqa: S603  # of this checkout
            [*_WALLSCOPE, *map(str, words)], cwd=folder, capture_output=True, timeout=_LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        return float("inf")
    after = os.times()
    if ran.returncode not in {0, 2}:
        raise RuntimeError(f"{words[0]}: {ran.returncode}: {ran.stderr[-300:].decode(errors='replace')}")
    return after.children_user + after.children_system - before.children_user - before.children_system


def _analyze_job(folder: Path, count: int) -> list[str | Path]:
    """A job of many exports."""
    place = folder / f"job{count}"
    place.mkdir()
    for number in range(count):
        with ExportWriter(place / f"rank{number}.sqlite") as writer:
            writer.environment(RANK=str(number), WORLD_SIZE=str(count))
            kernels(writer, 20)
    return ["analyze", place, "--no-cache"]


def _list_store(folder: Path, count: int) -> list[str | Path]:
    """A store of many records."""
    place = folder / f"store{count}"
    export = write_export(folder / "one.sqlite", kernels, 20)
    answer = folder / "one.json"
    cpu_s(["analyze", export, "--no-cache", "--json", answer], folder)
    cpu_s(["record", answer, "--commit", "a" * 40, "--store", place], folder)
    (record,) = (place / "records").glob("*/*.json")
    for number in range(count):
        commit = f"{number:040x}"
        other = place / "records" / commit / record.name
        other.parent.mkdir()
        text = record.read_text(encoding="utf-8").replace("a" * 40, commit)
        other.write_text(text, encoding="utf-8")
    shutil.rmtree(place / "records" / ("a" * 40))
    return ["history", "step", "--store", place]


def _commands(folder: Path) -> Iterator[tuple[str, int, Command]]:
    """Each thing by name, so many of it, and the command on an input with a count of it."""
    for fill, count in EXPORTS.items():
        yield fill.__name__, count, partial(_analyze_export, folder, fill)
    for write, count in TRACES.items():
        yield write.__name__, count, partial(_ask, "analyze", folder / "x.json", write)
    for write, count in CONFIGURATIONS.items():
        yield write.__name__, count, partial(_ask, "check-config", folder / "x.yaml", write)
    yield "exports_of_a_job", 50, partial(_analyze_job, folder)
    yield "records_of_a_store", 1_000, partial(_list_store, folder)


def _analyze_export(folder: Path, fill: Fill, count: int) -> list[str | Path]:
    return ["analyze", write_export(folder / "x.sqlite", fill, count), "--no-cache"]


def _ask(command: str, path: Path, write: Callable[[Path, int], Path], count: int) -> list[str | Path]:
    return [command, write(path, count), *(["--no-cache"] if command == "analyze" else [])]


def measure(only: Sequence[str]) -> Iterator[Grown]:
    """Measure each thing, or those named."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for thing, count, command in _commands(folder):
            if only and thing not in only:
                continue
            least_s = cpu_s(command(1), folder)
            once_s, twice_s = (
                max(0.0, cpu_s(command(many), folder) - least_s) for many in (count, 2 * count)
            )
            yield Grown(thing, count, once_s, twice_s)


def main() -> None:
    """Write the table into a page, or print it row by row."""
    parser = argparse.ArgumentParser(description="How time grows with one thing.")
    parser.add_argument("things", nargs="*")
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    lines = [
        "| kind of object | number | CPU time | CPU time for twice the number | ratio |",
        "|---|---:|---:|---:|---:|",
    ]
    few_count = 0
    for grown in measure(options.things):
        name = f"{_SHOWN.get(grown.name, grown.name.replace('_', ' '))} | {grown.count:,}"
        sys.stderr.write(f"{name}: {grown.once_s:.2f} s, {grown.twice_s:.2f} s\n")
        if grown.twice_s < _LEAST_S:
            few_count += 1
        else:
            lines.append(f"| {name} | {grown.once_s:.1f} s | {grown.twice_s:.1f} s | {grown.ratio:.1f} |")
    if few_count:
        lines += [
            "",
            (
                f"For {few_count} other kinds of objects, twice the number takes less than {_LEAST_S} s"
                f" ([inputs and numbers]({_INPUTS}))."
            ),
        ]
    put(options.into, _NAME, "\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
