"""Processes that judge inputs one after the other, with a watchdog on time and a bound on memory."""

import gc
import multiprocessing
import resource
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.judging import Ending, Outcome, judged, make_shipped_parts_once

SECONDS, MEMORY_BYTES = 60, 2 << 30
_RETIRE = 500
"""Inputs after which a process is replaced: what it takes in memory is then of few inputs."""


class Judge:
    """A process that judges, and is replaced when it takes too long, dies or has grown."""

    def __init__(self) -> None:
        self._process: multiprocessing.process.BaseProcess | None = None
        self._asked = 0

    def judge(self, path: Path, subject: str, turn: int) -> Outcome:
        """What becomes of one input."""
        if self._process is None:
            self._begin()
        self._pipe.send((path, subject, turn))
        self._asked += 1
        if not self._pipe.poll(SECONDS):
            self.end()
            return Outcome(Ending.BROKEN, f"takes longer than {SECONDS} s")
        outcome: Outcome
        try:
            outcome, peak_bytes = self._pipe.recv()
        except EOFError:
            self.end()
            return Outcome(Ending.BROKEN, "the process died")
        if self._asked >= _RETIRE or peak_bytes > MEMORY_BYTES:
            self.end()
        if peak_bytes > MEMORY_BYTES:
            return Outcome(Ending.BROKEN, f"takes {peak_bytes >> 20:,} MiB")
        return outcome

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
        outcome = judged(*pipe.recv())
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        pipe.send((outcome, peak_bytes))
