"""Reading traces of PyTorch's profiler: a parser alone, the capture and the whole answer, in turn.

python -m benchmarks.traces TRACE.json.gz --into docs/performance.md

A long trace is made of copies of the given one, one after the other, until it has a gigabyte.
"""

import argparse
import gzip
import itertools
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import msgspec

from benchmarks.marks import put
from wallscope.kineto import trace_events
from wallscope.kineto.event_decoding import Event, decode_events
from wallscope.kineto.load_trace import read_trace_capture
from wallscope.kineto.trace_bytes import TraceBytes

_LONG_BYTES = 1_000_000_000
_NUMBER = re.compile(rb'"(ts|correlation|External id|id)": (\d+)')
_APART = 10_000_000
"""Between the times of copies, in microseconds, and between their ids."""
_PARSERS: dict[str, Any] = {
    "msgspec, `args` of events not decoded": list[Event],
    "msgspec, only the `args` that wallscope reads": None,
    "msgspec, all of each event, into dictionaries": list[dict[str, Any]],
}
_CAPTURE, _ANSWER = "wallscope, only reading the trace", "wallscope analyze --no-cache"
WAYS = (*_PARSERS, _CAPTURE, _ANSWER)


@dataclass(frozen=True, slots=True)
class Run:
    """One process: seconds of its work without imports, except for a command, and its peak memory."""

    cpu_s: float
    wall_s: float
    peak_mib: float


def repeat_trace(content: bytes, into: Path) -> None:
    """Write copies of a trace with whole microseconds, each later than the one before and with other ids."""
    begin = content.index(b"[", content.index(b'"traceEvents"')) + 1
    end = content.rindex(b"]")
    events = content[begin:end]
    with into.open("wb") as stream:
        stream.write(content[:begin])
        for copy in itertools.count():
            stream.write(_NUMBER.sub(partial(_shift, copy * _APART), events))
            if stream.tell() >= _LONG_BYTES:
                break
            stream.write(b",")
        stream.write(content[end:])


def _shift(by: int, found: re.Match[bytes]) -> bytes:
    return b'"%s": %d' % (found[1], int(found[2]) + by)


def run_way(way: str, path: Path) -> None:
    """Read a trace in one way, and write CPU seconds, seconds and peak memory on standard output."""
    before_s, began_s = _spent_s(), time.perf_counter()
    if way == _ANSWER:
        program = Path(sys.executable).with_name("wallscope")
        subprocess.run([program, "analyze", "--no-cache", path], check=True, stdout=subprocess.DEVNULL)  # noqa: S603  # our own program
    elif way == _CAPTURE:
        read_trace_capture(path, lambda _: None)
    else:
        kind = _PARSERS[way]
        decode = msgspec.json.Decoder(kind).decode if kind else decode_events
        with path.open("rb") as stream, patch.object(trace_events, "decode_events", decode):
            for _ in trace_events.iterate_events(TraceBytes(stream), trace_events.FileFacts()):
                pass
    used_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss if way == _ANSWER else _own_peak_kib()
    sys.stdout.write(f"{_spent_s() - before_s} {time.perf_counter() - began_s} {used_kib / 1024}")


def _own_peak_kib() -> int:
    """Return the peak of this program; `getrusage` has that of the process before it began the program."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0])


def _spent_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(path: Path, rounds: int) -> dict[str, list[Run]]:
    """Return runs of each way, in turn, each in a fresh process."""
    runs: defaultdict[str, list[Run]] = defaultdict(list)
    for _ in range(rounds):
        for way in WAYS:
            done = subprocess.run(  # noqa: S603  # our own module
                [sys.executable, "-m", "benchmarks.traces", str(path), "--way", way],
                check=True,
                capture_output=True,
                text=True,
            )
            runs[way].append(Run(*map(float, done.stdout.split())))
    return runs


def tabulate(short: dict[str, list[Run]], long: dict[str, list[Run]], sizes_mb: tuple[float, float]) -> str:
    """Return the runs as a Markdown table: the least CPU time, the median, and how often the first way's."""
    rounds = len(long[WAYS[0]])
    first_mb, second_mb = sizes_mb
    lines = [
        (
            f"{rounds} rounds, each with one run per row; {os.cpu_count()} cores, load average"
            f" {os.getloadavg()[0]:.0f} at the end."
        ),
        (
            "CPU seconds are the minimum, and the median in brackets."
            " The last three columns are for the large trace."
        ),
        "",
        (
            f"| method | {first_mb:,.0f} MB: CPU s | {second_mb:,.0f} MB: CPU s | relative to row 1"
            " | elapsed s | peak MiB |"
        ),
        "|---|---:|---:|---:|---:|---:|",
    ]
    base_s = min(run.cpu_s for run in long[WAYS[0]])
    for way in WAYS:
        best_s = min(run.cpu_s for run in long[way])
        lines.append(
            f"| {way} | {_spell(short[way])} | {_spell(long[way])} | {best_s / base_s:.1f} |"
            f" {min(run.wall_s for run in long[way]):.1f} | {max(run.peak_mib for run in long[way]):,.0f} |"
        )
    return "\n".join(lines) + "\n"


def _spell(runs: list[Run]) -> str:
    seconds = [run.cpu_s for run in runs]
    return f"{min(seconds):.2f} ({statistics.median(seconds):.2f})"


def main() -> None:
    """Measure, and put the table into a document between its marks, or on standard output."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.traces", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("trace", type=Path, help="a trace with whole microseconds")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--into", type=Path)
    parser.add_argument("--way", choices=WAYS, help="run one way, once")
    asked = parser.parse_args()
    if asked.way:
        run_way(asked.way, asked.trace)
        return
    with TemporaryDirectory(dir="build") as folder:
        short, long = Path(folder, "short.json"), Path(folder, "long.json")
        content = asked.trace.read_bytes()
        content = gzip.decompress(content) if asked.trace.suffix == ".gz" else content
        short.write_bytes(content)
        repeat_trace(content, long)
        sizes_mb = (short.stat().st_size / 1e6, long.stat().st_size / 1e6)
        text = tabulate(measure(short, asked.rounds), measure(long, asked.rounds), sizes_mb)
    put(asked.into, "traces", text)


if __name__ == "__main__":
    main()
