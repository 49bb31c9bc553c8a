"""Processes that judge inputs one after the other, with a watchdog on time and a bound on memory."""

import gc
import multiprocessing
import resource
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.judging import Ending, Outcome, judged, make_shipped_parts_once

CPU_SECONDS, MEMORY_BYTES = 60, 2 << 30
_WALL_SECONDS = 300
"""Whoever waits for nothing takes no CPU time; a loaded machine takes long over little."""
_RETIRE = 500
"""Inputs after which a process is replaced: what it takes in memory is then of few inputs."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of an input, and what CPU time it took, where that is known."""

    outcome: Outcome
    cpu_seconds: float | None


class Judge:
    """A process that judges, and is replaced when it takes too long, dies or has grown."""

    def __init__(self) -> None:
        self._process: multiprocessing.process.BaseProcess | None = None
        self._asked = 0

    def judge(self, path: Path, subject: str, turn: int) -> Judged:
        """What becomes of one input."""
        if self._process is None:
            self._begin()
        self._pipe.send((path, subject, turn))
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
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
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


def _serve(pipe: Connection) -> None:
    make_shipped_parts_once()
    gc.freeze()
    while True:
        asked = pipe.recv()
        began_s = time.process_time()
        outcome = judged(*asked)
        cpu_seconds = time.process_time() - began_s
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        pipe.send((outcome, cpu_seconds, peak_bytes))
