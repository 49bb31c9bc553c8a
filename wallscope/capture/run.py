"""Runs a planned capture: starts the program, follows its records, and finds the reports it leaves."""

import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from wallscope.capture.plan import CapturePlan
from wallscope.capture.record import CaptureRecord, read_records
from wallscope.capture.supervise import Supervised, forward_signals, start_program
from wallscope.model.capture import Profiler
from wallscope.units import plural

_POLL_S = 0.1
_SETTLED_S = 1.0
_REPORT_S = 60.0
"""How long nsys may take to write its report after the program ended."""
_END_S = 30.0
_HANGS_S = 120.0
_TRACES, _REPORTS, _RAW = ".json.gz", ".nsys-rep", ".qdstrm"


@dataclass(slots=True)
class CaptureRun:
    """A capture that is going on. `say` takes lines for the user."""

    plan: CapturePlan
    say: Callable[[str], None]
    started: Supervised
    records: tuple[CaptureRecord, ...] = ()
    _sizes: dict[Path, tuple[int, float]] = field(default_factory=dict)
    _phase: str = "warm-up"
    _phase_s: float = field(default_factory=time.monotonic)
    _over_s: float | None = None
    _is_slow_said: bool = False

    def follow(self) -> int | None:
        """Read what the program has recorded by now, and return its exit code if it ended."""
        code = self.started.poll()
        self.records = tuple(
            one for one in read_records(self.plan.folder, host="*") if one.run == self.plan.run
        )
        self._say_phase()
        self._end_when_asked()
        return code

    def _say_phase(self) -> None:
        """Say what the slowest process does, when that changes."""
        phases = [one.phase for one in self.records]
        phase = next((one for one in ("warm-up", "capture", "after", "over") if one in phases), "warm-up")
        now = time.monotonic()
        if phase != self._phase:
            self._phase, self._phase_s, self._is_slow_said = phase, now, False
            steps = plural(self.plan.request.steps, "step")
            if phase == "capture":
                self.say(f"recording {steps} after {plural(max(one.steps for one in self.records), 'step')}")
            elif phase == "after" and not any(one.errors for one in self.records):
                after = plural(self.plan.request.unprofiled_steps, "step")
                recorded = plural(min(one.captured_steps for one in self.records), "step")
                self.say(f"recorded {recorded}; timing {after} without the profiler")
        elif phase == "capture" and not self._is_slow_said and now - self._phase_s > self._expect_s():
            self._is_slow_said = True
            hint = "" if self.plan.profiler is Profiler.TORCH else "; if it hangs, try --trace cuda-sw,nvtx"
            self.say(f"the capture takes {now - self._phase_s:.0f} s by now, longer than expected{hint}")

    def _expect_s(self) -> float:
        """Return how long the capture may take: twenty times what its steps took before, and two minutes."""
        slowest = max((ns for one in self.records for ns in one.before_ns), default=0) / 1e9
        return _HANGS_S + 20 * slowest * (self.plan.request.steps + 2)

    def _end_when_asked(self) -> None:
        """With --end, end what is left of the program half a minute after all ranks left it."""
        if self.plan.request.ends and self.records and all(one.is_complete for one in self.records):
            now = time.monotonic()
            self._over_s = self._over_s or now
            if now - self._over_s > _END_S:
                import signal  # noqa: PLC0415  # rarely

                self.say("the program goes on 30 s after --end; it is sent SIGTERM")
                self.started.send(signal.SIGTERM)
                self._over_s = now

    def find_reports(self) -> tuple[Path, ...]:
        """Return the reports or traces of this host that are complete."""
        return tuple(path for path in self._list_reports(self.records) if self._is_settled(path))

    def _list_reports(self, records: Iterable[CaptureRecord]) -> list[Path]:
        end = _TRACES if self.plan.profiler is Profiler.TORCH else _REPORTS
        names = self._name_reports(records)
        return [path for name in sorted(names) if (path := self.plan.folder / f"{name}{end}").is_file()]

    def _name_reports(self, records: Iterable[CaptureRecord]) -> set[str]:
        """Return the names of the reports that the profiler has begun; a capture by time has one."""
        if self.plan.request.is_timed:
            return {self.plan.report}
        return {one.report for one in records if one.has_capture}

    def _is_settled(self, path: Path) -> bool:
        """Whether a file has not grown for a second: nsys writes its report while the program goes on."""
        if self.plan.profiler is Profiler.TORCH:
            return True  # it got its name when it was complete
        size, now = path.stat().st_size, time.monotonic()
        known = self._sizes.get(path)
        if known is None or known[0] != size:
            self._sizes[path] = (size, now)
            return False
        return size > 0 and now - known[1] >= _SETTLED_S

    @property
    def is_captured(self) -> bool:
        """Whether all processes of this host have measured all, and their reports are complete."""
        if self.plan.request.is_timed:
            return len(self.find_reports()) == 1
        ranks = {one.environment.get("LOCAL_WORLD_SIZE", "1") for one in self.records}
        wanted = max((int(one) for one in ranks if one.isdigit()), default=1)
        if len(self.records) < wanted or not all(one.is_complete for one in self.records):
            return False
        names = self._name_reports(self.records)
        return bool(names) and len(self.find_reports()) == len(names)

    def wait_for_reports(self) -> tuple[Path, ...]:
        """Return the reports after the program ended; nsys may still write them."""
        names = self._name_reports(self.records)
        if self.plan.profiler is Profiler.TORCH or not names:
            return self.find_reports()
        deadline = time.monotonic() + _REPORT_S
        while time.monotonic() < deadline:
            reports = self.find_reports()
            is_gone = self.started.process.poll() is not None
            if len(reports) == len(names) or (is_gone and not self._list_reports(self.records)):
                return reports
            time.sleep(_POLL_S)
        return self.find_reports()

    def remove_scratch(self) -> None:
        """Remove the files that the parts of the capture exchanged."""
        shutil.rmtree(self.plan.scratch, ignore_errors=True)

    def explain_outcome(self, code: int, reports: tuple[Path, ...]) -> list[str]:
        """Return what there is to say after the end: why there is no capture, or what it lacks."""
        records = self.records
        if not records:
            is_explained = code or (self.plan.request.is_timed and reports)
            return [] if is_explained else [self._explain_absence()]
        errors = sorted({error for one in records for error in one.errors})
        if errors:
            return [f"the program could not start or stop the capture: {error}" for error in errors]
        most = max(one.steps for one in records)
        if all(one.phase == "warm-up" for one in records):
            skip = plural(self.plan.request.skip, "step")
            early = f"the program ended after {plural(most, 'step')}, before the {skip} of warm-up"
            return [f"{early}: --skip {max(most // 3, 1)}"]
        if any(one.phase == "capture" for one in records):
            return ["the program ended in the capture before it could be stopped: what was captured is lost"]
        if not any(one.captured_steps for one in records):
            return [f"the program ended after {plural(most, 'step')}, before a step was captured whole"]
        lines = []
        asked = self.plan.request.steps
        cut_short = [one for one in records if one.is_early and one.captured_steps < asked]
        if cut_short:
            captured = min(one.captured_steps for one in cut_short)
            lines.append(f"the capture ended early: {captured} of {plural(self.plan.request.steps, 'step')}")
        if not reports:
            lines.append(self._explain_no_report())
        return [*lines, *sorted({note for one in records for note in one.notes})]

    def _explain_absence(self) -> str:
        """Return why no process has a record; of a capture by time, why it has no report."""
        if self.plan.request.is_timed:
            return self._explain_no_report()
        if not self.plan.loaded.exists():
            return (
                "no process loaded the hook that counts steps: Python -I, -E or -S, sudo and containers"
                " leave it out"
            )
        return (
            "no step was seen: the program called no optimizer of PyTorch, and no other step that is known."
            " Name its step: --step-function MODULE:FUNCTION"
        )

    def _explain_no_report(self) -> str:
        name = "nsys-rank-*.log" if self.plan.request.is_per_rank else self.plan.log.name
        see = f"see {self.plan.folder / name}"
        if any(self.plan.folder.glob(f"*{_RAW}")):
            return f"nsys wrote a {_RAW} file, which its importer did not convert: {see}"
        if self.plan.request.is_timed:
            return f"nsys wrote no report: the program may have ended before the capture began, {see}"
        return f"the program started and stopped the capture, and nsys wrote no report: {see}"


def start_capture(plan: CapturePlan, say: Callable[[str], None]) -> CaptureRun:
    """Start the program as planned; signals that this process is sent go to it.

    Raises:
        OSError: the program cannot be started.
    """
    started = start_program(
        plan.request.program,
        dict(plan.environment),
        plan.nsys_command,
        str(plan.scratch / "program"),
        plan.log if plan.nsys_command else None,
    )
    forward_signals(started)
    return CaptureRun(plan, say, started)


def wait_a_moment() -> None:
    """Wait until there may be something new."""
    time.sleep(_POLL_S)
