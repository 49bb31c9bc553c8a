"""Processes that judge inputs one after the other, with a watchdog on time and a bound on memory.

Most of them use one thread, and analyze each file of a job or a comparison once; each eighth does neither.
"""

import gc
import multiprocessing
import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from unittest import mock

from benchmarks.judging import (
    Ending,
    Outcome,
    analyze_once,
    is_alone,
    judged,
    judged_both_ways,
    make_shipped_parts_once,
)
from wallscope.process_tuning import POLARS_THREADS

CPU_SECONDS, MEMORY_BYTES = 60, 2 << 30
_WALL_SECONDS = 900
"""Whoever waits for nothing takes no CPU time; a loaded machine takes long over little."""
_RETIRE = 1_000
"""Inputs after which a process is replaced: what it takes in memory is then of few inputs."""
_PLAIN_OF = 8
_BEGUN, _BEGINNING = count(1), Lock()


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of an input, and what CPU time it took, where that is known."""

    outcome: Outcome
    cpu_seconds: float | None


class Judge:
    """A process that judges, and is replaced when it takes too long, dies or has grown."""

    def __init__(self, good: Sequence[Path]) -> None:
        self._good = good
        self._process: multiprocessing.process.BaseProcess | None = None
        self._asked = 0

    def judge(self, path: Path, subject: str, kind: str, turn: int) -> Judged:
        """What becomes of one input."""
        if self._process is None:
            self._begin()
        self._pipe.send((path, subject, turn, is_alone(subject, kind, turn)))
        self._asked += 1
        if not self._pipe.poll(_WALL_SECONDS):
            self.end()
            return Judged(Outcome(Ending.BROKEN, f"not done after {_WALL_SECONDS} s"), None)
        judgement: tuple[Outcome, float, int]
        try:
            judgement = self._pipe.recv()
        except EOFError:
            self.end()
            return Judged(Outcome(Ending.BROKEN, "the process died"), None)
        outcome, cpu_seconds, peak_bytes = judgement
        if self._asked >= _RETIRE or peak_bytes > MEMORY_BYTES:
            self.end()
        if peak_bytes > MEMORY_BYTES:
            outcome = Outcome(Ending.BROKEN, f"takes {peak_bytes >> 20:,} MiB")
        if cpu_seconds > CPU_SECONDS:
            outcome = Outcome(Ending.BROKEN, f"takes {cpu_seconds:.0f} s of CPU time")
        return Judged(outcome, cpu_seconds)

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        with _BEGINNING:
            is_plain = next(_BEGUN) % _PLAIN_OF == 0
            self._process = context.Process(
                target=_serve, args=(theirs, () if is_plain else self._good), daemon=True
            )
            with mock.patch.dict(os.environ, {} if is_plain else {POLARS_THREADS: "1"}):
                self._process.start()
        theirs.close()
        self._asked = 0

    def end(self) -> None:
        """Let the process go."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None


def _serve(pipe: Connection, good: Sequence[Path]) -> None:
    make_shipped_parts_once()
    analyze_once(good)
    gc.freeze()
    while True:
        path, subject, turn, alone = pipe.recv()
        began_s, _ = _taken()
        outcome = (judged_both_ways if alone else judged)(path, subject, turn)
        ended_s, peak_bytes = _taken()
        pipe.send((outcome, ended_s - began_s, peak_bytes))


def _taken() -> tuple[float, int]:
    """The CPU seconds of this process and its ended children, and the most bytes that one of them held."""
    both = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both), max(one.ru_maxrss for one in both) * 1024
