"""Starts, marks and stops: nsys in three ways, the profiler of PyTorch, or nothing."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Callable

_now = time.perf_counter_ns


class StepProfiler:
    """What all share: when they begin and end, and what that takes."""

    lead = 1
    """Steps between the start and the first captured one: the queue of the GPU is empty at first."""
    tail = 1
    """Steps between the last that is captured whole and the stop: the first rank to stop ends it for all."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.durations_ns: dict[str, int] = {}
        self.began_epoch_ns: int | None = None
        self.ended_epoch_ns: int | None = None
        self.marks = ""

    def start(self) -> None:
        """Begin to record."""
        self.began_epoch_ns = time.time_ns()

    def mark_step(self, done: int, is_captured: bool) -> None:
        """Mark where one step ends and the next begins."""

    def stop(self) -> None:
        """End what is recorded."""
        self.drain("stop")
        self.ended_epoch_ns = time.time_ns()

    def name_report(self) -> str:
        """Return the name, without its end, of the report or trace that this process is in."""
        return str(self.options["report"])

    def drain(self, what: str) -> None:
        """Wait for the work of the GPU: what the host clock measures between two such waits is exact."""
        torch: Any = sys.modules.get("torch")
        cuda = getattr(torch, "cuda", None)
        if cuda is not None and cuda.is_available() and cuda.is_initialized():
            with self.measure("drain " + what):
                cuda.synchronize()

    def measure(self, what: str) -> _Timed:
        """Measure a block."""
        return _Timed(self.durations_ns, what)


class _Timed:
    def __init__(self, into: dict[str, int], what: str) -> None:
        self._into, self._what, self._began = into, what, 0

    def __enter__(self) -> None:
        self._began = _now()

    def __exit__(self, *_: object) -> None:
        self._into[self._what] = _now() - self._began


class Nsys(StepProfiler):
    """Nsight Systems, which runs around the program; ranges of NVTX mark the steps."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self._push: Callable[[str], object] | None = None
        self._pop: Callable[[], object] | None = None
        self._is_open = False

    def name_report(self) -> str:
        """Return the name, without its end, of the report that this process is in."""
        return os.environ.get("WALLSCOPE_REPORT") or super().name_report()

    def start(self) -> None:
        """Find NVTX, and begin to record."""
        super().start()
        self._find_marks()
        with self.measure("start"):
            self._start()

    def _find_marks(self) -> None:
        found = find_nvtx()
        if found is not None:
            self.marks, self._push, self._pop = found

    def mark_step(self, done: int, is_captured: bool) -> None:
        """Close the range of a step and open the next; steps at the edges are guards."""
        if self._push is not None and self._pop is not None:
            if self._is_open:
                self._pop()
            self._push("wallscope_step_%d" % done if is_captured else "wallscope_guard")
            self._is_open = True

    def stop(self) -> None:
        """Close the last range, and end what is recorded."""
        if self._is_open and self._pop is not None:
            self._pop()
            self._is_open = False
        super().stop()
        with self.measure("stop"):
            self._stop()

    def _start(self) -> None:
        call_cuda_profiler("cudaProfilerStart")

    def _stop(self) -> None:
        call_cuda_profiler("cudaProfilerStop")


class NsysByRange(Nsys):
    """Started by the range `wallscope_capture`."""

    def _start(self) -> None:
        if self._push is None or self._pop is None:
            raise RuntimeError(
                "NVTX is needed to start nsys: neither torch.cuda.nvtx nor the package nvtx works"
            )
        self._push("wallscope_capture")

    def _stop(self) -> None:
        if self._pop is not None:
            self._pop()


class NsysBySession(Nsys):
    """Started by nsys itself, through the process of a node that comes first."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self._is_first = False

    def _start(self) -> None:
        rank = os.environ.get("WALLSCOPE_REPORT", "node")
        started = os.path.join(self.options["scratch"], "started-" + rank)
        try:
            os.close(os.open(started, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        self._is_first = True
        self._control("start")

    def _stop(self) -> None:
        if self._is_first:
            self._control("stop")

    def _control(self, verb: str) -> None:
        import subprocess

        session = os.environ.get("WALLSCOPE_SESSION") or self.options["session"]
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("NSYS_", "QUADD_", "NVTX_INJECTION", "CUDA_INJECTION"))
            and name not in ("LD_PRELOAD", "WALLSCOPE_CAPTURE")
        }
        ran = subprocess.run(
            [self.options["nsys"], verb, "--session=" + session],
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if ran.returncode:
            said = " ".join(ran.stdout.decode("utf-8", "replace").split())[-300:]
            raise RuntimeError("nsys %s ended with code %d: %s" % (verb, ran.returncode, said))


class Torch(StepProfiler):
    """The profiler of PyTorch: one trace for each rank, whose `ProfilerStep#n` mark the steps."""

    lead = 2  # its own warm-up, which it records and throws away
    tail = 0

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self._profile: Any = None
        self._path = ""

    def name_report(self) -> str:
        """Return the name, without its end, of the trace of this process."""
        return os.path.basename(self._path)[: -len(_TRACE)] if self._path else "rank-%d" % find_rank()

    def start(self) -> None:
        """Begin two steps early: the profiler of PyTorch needs them."""
        super().start()
        from torch.profiler import ProfilerActivity, profile, schedule

        torch: Any = sys.modules["torch"]
        has_gpu = torch.cuda.is_available()
        activities = [] if self.options["light"] and has_gpu else [ProfilerActivity.CPU]
        if has_gpu:
            activities.append(ProfilerActivity.CUDA)
        extra: dict[str, Any] = {}
        try:
            from torch._C._profiler import _ExperimentalConfig

            extra["experimental_config"] = _ExperimentalConfig(enable_cuda_sync_events=True)
        except (ImportError, TypeError):
            pass  # before PyTorch 2.1
        with self.measure("start"):
            self._profile = profile(
                activities=activities,
                schedule=schedule(wait=0, warmup=self.lead, active=self.options["steps"], repeat=1),
                on_trace_ready=self._export,
                record_shapes=self.options["shapes"],
                **extra,
            )
            self._profile.start()
        self.marks = "ProfilerStep"
        self._is_begun = False

    def mark_step(self, done: int, is_captured: bool) -> None:
        """Let the profiler mark the next step; the first was marked when it began."""
        if self._is_begun:
            self._profile.step()
        self._is_begun = True

    def stop(self) -> None:
        """End the last step, which writes the trace."""
        super().stop()
        profile, self._profile = self._profile, None
        with self.measure("stop"):
            profile.stop()

    def _export(self, profile: Any) -> None:
        folder, rank = self.options["folder"], find_rank()
        path = os.path.join(folder, "rank-%d%s" % (rank, _TRACE))
        if os.path.exists(path) and os.stat(path).st_mtime >= self.options["began_s"]:
            path = os.path.join(folder, "rank-%d-%d%s" % (rank, os.getpid(), _TRACE))
        part = os.path.join(self.options["scratch"], "part-%d%s" % (os.getpid(), _TRACE))
        with self.measure("export"):
            profile.export_chrome_trace(part)
            os.replace(part, path)
        self._path = path


_TRACE = ".json.gz"
_KINDS: dict[str, type[StepProfiler]] = {
    "torch": Torch,
    "cuda": Nsys,
    "nvtx": NsysByRange,
    "session": NsysBySession,
}


def make_profiler(options: dict[str, Any]) -> StepProfiler:
    """Return what starts and stops as the options say."""
    return _KINDS[options["start"]](options)


def find_rank() -> int:
    """Return the rank of this process: that of its process group, else of its launcher, else 0."""
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank())
    except (AttributeError, RuntimeError, ValueError):
        pass
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def find_nvtx() -> tuple[str, Callable[[str], object], Callable[[], object]] | None:
    """Return where NVTX comes from, and what opens and closes a range."""
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        try:
            nvtx = torch.cuda.nvtx
            nvtx.range_push("wallscope")
            nvtx.range_pop()
        except (AttributeError, RuntimeError):
            pass
        else:
            return "torch.cuda.nvtx", nvtx.range_push, nvtx.range_pop
    try:
        import nvtx as package
    except ImportError:
        return None
    return "package nvtx", lambda text: package.push_range(message=text), package.pop_range


def call_cuda_profiler(name: str) -> None:
    """Call `cudaProfilerStart` or `cudaProfilerStop`, of PyTorch's CUDA or of the one that is loaded.

    Raises:
        RuntimeError: there is none, or it returns an error.
    """
    torch: Any = sys.modules.get("torch")
    if torch is not None and getattr(getattr(torch, "version", None), "cuda", None):
        code = int(getattr(torch.cuda.cudart(), name)())
    else:
        code = int(getattr(_load_cudart(), name)())
    if code:
        raise RuntimeError("%s returned the CUDA error %d" % (name, code))


def _load_cudart() -> Any:
    import ctypes
    import glob

    places = [
        one
        for entry in sys.path
        for one in glob.glob(os.path.join(entry, "nvidia", "*", "lib", "libcudart.so.*"))
    ]
    for place in ["libcudart.so", "libcudart.so.13", "libcudart.so.12", *places]:
        try:
            return ctypes.CDLL(place)
        except OSError:
            continue
    raise RuntimeError("libcudart.so is needed to start nsys, and is not found")
