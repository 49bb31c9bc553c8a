"""Decides how a program is captured: with which profiler, how that starts, and where its files go."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from wallscope.capture.nsys_program import ask_nsys
from wallscope.errors import CaptureError, OptionError
from wallscope.model.capture import Profiler
from wallscope.model.nsys_flags import InstalledNsys
from wallscope.records import dataclass
from wallscope.views.capture_help import list_recording_flags

NO_PROFILER, NO_PROGRAM = 3, 127
"""Exit codes before the program starts: the profiler is missing, or the program."""
_HOOK = Path(__file__).parent / "hook"
_SUPERVISE = Path(__file__).parent / "supervise.py"
_NVIDIA = "/proc/driver/nvidia/version"
_AMD = "/dev/kfd"
_SESSION = f"wallscope-{os.getpid()}"
_PATIENCE_S = 30
_INSTALL_NSYS = "install Nsight Systems, or capture with --profiler torch"


class Trigger(StrEnum):
    """How nsys begins: by a call of CUDA, by a range of NVTX, or by its own command."""

    CUDA = "cuda"
    NVTX = "nvtx"
    SESSION = "session"


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """What the user asks for; `None` is left to wallscope."""

    program: tuple[str, ...]
    steps: int = 5
    skip: int = 10
    unprofiled_steps: int = 3
    profiler: Profiler | None = None
    trigger: Trigger | None = None
    output: Path | None = None
    step_function: str | None = None
    delay_s: int | None = None
    duration_s: int | None = None
    trace: str | None = None
    is_per_rank: bool = False
    ends: bool = False
    is_light: bool = False
    has_shapes: bool = False

    @property
    def is_timed(self) -> bool:
        """Whether nsys captures by time, without the hook."""
        return self.duration_s is not None


@dataclass(frozen=True, slots=True)
class CapturePlan:
    """The commands and files of one capture on this host.

    `run` is in each of its records, as the folder may hold others. `scratch` holds what the parts of the
    capture exchange. `refused` are flags that the installed nsys lacks.
    """

    request: CaptureRequest
    profiler: Profiler
    trigger: Trigger | None
    folder: Path
    scratch: Path
    run: str
    host: str
    report: str
    nsys: InstalledNsys | None
    nsys_command: tuple[str, ...]
    refused: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def has_gpu(self) -> bool:
        """Whether this machine has a driver of a GPU, of NVIDIA or AMD."""
        return Path(_NVIDIA).exists() or Path(_AMD).exists()

    @property
    def log(self) -> Path:
        """What nsys says goes here."""
        return self.folder / f"nsys-{self.report}.log"

    @property
    def loaded(self) -> Path:
        """A file that is there once a Python process has loaded the hook."""
        return self.scratch / "loaded"


def plan_capture(request: CaptureRequest) -> CapturePlan:
    """Choose profiler and files, and make the folder of the capture.

    Raises:
        OptionError: options contradict each other.
        CaptureError: the program, nsys or PyTorch is missing, or nsys lacks an option that is needed.
        OSError: the folder cannot be made.
    """
    _check_options(request)
    _check_times(request)
    if shutil.which(request.program[0]) is None:
        raise CaptureError(
            f"{request.program[0]} — is not a program on the PATH — check its name", NO_PROGRAM
        )
    profiler, nsys = _choose_profiler(request)
    trigger = None if nsys is None or request.is_timed else _choose_trigger(request, nsys)
    if profiler is Profiler.TORCH and has_torch(request.program) is False:
        raise CaptureError(
            f"{request.program[0]} — has no PyTorch — name the Python of the training, or capture with nsys",
            NO_PROFILER,
        )
    host = re.sub(r"[^\w-]", "-", os.uname().nodename)
    rank = find_launched_rank()
    report = f"report-{host}" if rank is None else f"report-{host}-rank-{rank}"
    folder = (request.output or Path(time.strftime("wallscope-%Y%m%d-%H%M%S"))).resolve()
    run = f"{host}-{os.getpid()}-{time.time_ns()}"
    scratch = folder / f".run-{run}"
    scratch.mkdir(parents=True)
    command: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    if nsys is not None:
        command, refused = _write_nsys(request, nsys, trigger)
    name = "rank-{RANK}" if request.is_per_rank else report
    target = f"--output={folder}/".replace("%", "%%") + name  # nsys fills patterns in
    command = (*command, target) if command else ()
    options = {
        "run": run,
        "folder": str(folder),
        "scratch": str(scratch),
        "report": report,
        "profiler": profiler,
        "start": trigger or "torch",
        "skip": request.skip,
        "steps": request.steps,
        "after": request.unprofiled_steps,
        "end": request.ends,
        "light": request.is_light,
        "shapes": request.has_shapes,
        "nsys": None if nsys is None else nsys.path,
        "session": _SESSION,
        "began_s": time.time(),
    }
    environment = dict(os.environ)
    if not request.is_timed:
        environment = _extend_environment(request, options, scratch, command)
    return CapturePlan(
        request=request,
        profiler=profiler,
        trigger=trigger,
        folder=folder,
        scratch=scratch,
        run=run,
        host=host,
        report=report,
        nsys=nsys,
        nsys_command=() if request.is_per_rank else command,
        refused=refused,
        environment=environment,
    )


def _check_options(request: CaptureRequest) -> None:
    if request.profiler is Profiler.TORCH and (request.is_per_rank or request.trigger or request.trace):
        raise OptionError(
            "--per-rank, --start and --trace — are for nsys; PyTorch writes a trace for each rank anyway"
            " — leave them out, or capture with --profiler nsys"
        )
    if request.profiler is Profiler.NSYS and (request.is_light or request.has_shapes):
        raise OptionError("--light and --shapes — are for PyTorch's profiler — add --profiler torch")


def _check_times(request: CaptureRequest) -> None:
    if request.duration_s is None:
        if request.delay_s is not None:
            raise OptionError("--delay — says when a capture by time begins — add --duration")
        return
    others = (
        request.profiler is Profiler.TORCH,
        request.is_light,
        request.has_shapes,
        request.is_per_rank,
        request.ends,
        request.trigger is not None,
        request.step_function is not None,
    )
    if any(others):
        raise OptionError(
            "--duration — lets nsys capture by time, and no step is counted — leave out --per-rank, --start,"
            " --step-function, --end and options of PyTorch's profiler"
        )


def _choose_profiler(request: CaptureRequest) -> tuple[Profiler, InstalledNsys | None]:
    """Take nsys if it is there and a GPU of NVIDIA is, else PyTorch."""
    if request.profiler is Profiler.TORCH or request.is_light or request.has_shapes:
        return Profiler.TORCH, None
    is_asked = (
        request.profiler is Profiler.NSYS
        or request.is_per_rank
        or request.trigger is not None
        or request.duration_s is not None
    )
    if not is_asked and not Path(_NVIDIA).exists():
        return Profiler.TORCH, None
    nsys = ask_nsys()
    if nsys is None and is_asked:
        raise CaptureError(f"nsys — is not installed, or not on the PATH — {_INSTALL_NSYS}", NO_PROFILER)
    return (Profiler.TORCH, None) if nsys is None else (Profiler.NSYS, nsys)


def _choose_trigger(request: CaptureRequest, nsys: InstalledNsys) -> Trigger:
    """Take the call of CUDA where a GPU is, else a session of nsys, which needs neither CUDA nor NVTX."""
    trigger = request.trigger or (Trigger.CUDA if Path(_NVIDIA).exists() else Trigger.SESSION)
    if trigger is Trigger.SESSION and not nsys.takes("--start-later=true"):
        raise CaptureError(
            f"nsys {nsys.version} — cannot begin later by a command — use --start cuda or --start nvtx",
            NO_PROFILER,
        )
    return trigger


def _write_nsys(
    request: CaptureRequest, nsys: InstalledNsys, trigger: Trigger | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return `nsys profile` with the options that this nsys has, and those that it lacks.

    Without a trigger, nsys captures by time.
    """
    recorded = list(list_recording_flags())
    if request.trace is not None:
        recorded = [flag for flag in recorded if not flag.startswith("--trace=")]
        recorded.append(f"--trace={request.trace}")
    taken, refused = nsys.sort_flags(recorded)
    starting: tuple[str, ...]
    if trigger is None:
        starting = (f"--delay={request.delay_s or 0}", f"--duration={request.duration_s}")
    elif trigger is Trigger.SESSION:
        name = f"{_SESSION}{'-rank-{RANK}' if request.is_per_rank else ''}"
        starting = ("--start-later=true", f"--session-new={name}")
    else:
        kind = "cudaProfilerApi" if trigger is Trigger.CUDA else "nvtx"
        starting = (f"--capture-range={kind}", "--capture-range-end=stop")
    if trigger is Trigger.NVTX:
        starting += (
            "--nvtx-capture=wallscope_capture@*",
            "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
        )
    lacking = nsys.sort_flags((*starting, "--kill=none"))[1]
    if lacking:
        raise CaptureError(
            f"nsys {nsys.version} — lacks {', '.join(lacking)} — use another --start, or --profiler torch",
            NO_PROFILER,
        )
    return (nsys.path, "profile", *taken, *starting, "--kill=none"), refused


def _extend_environment(
    request: CaptureRequest, options: Mapping[str, object], scratch: Path, command: Sequence[str]
) -> dict[str, str]:
    """Return the environment of the program: the hook comes first in the path of Python."""
    found = dict(os.environ)
    found["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_HOOK), found.get("PYTHONPATH"))))
    found["WALLSCOPE_CAPTURE"] = json.dumps(options)
    found["WALLSCOPE_LOADED"] = str(scratch / "loaded")
    if request.step_function is not None:
        found["WALLSCOPE_STEP_FUNCTION"] = request.step_function
    if request.is_per_rank:
        prefix = str(scratch / "rank-{RANK}")
        log = f"{options['folder']}/nsys-rank-{{RANK}}.log"
        outer = [sys.executable, "-I", str(_SUPERVISE), "outer", prefix, log]
        found["WALLSCOPE_PER_RANK"] = json.dumps([*outer, *command, "--"])
        found["WALLSCOPE_SESSION"] = str(options["session"])
    return found


def find_launched_rank() -> int | None:
    """Return the rank of this command itself, where a launcher such as srun starts one for each rank."""
    for name, size in (
        ("RANK", "WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ):
        rank, count = os.environ.get(name, ""), os.environ.get(size, "")
        if rank.isdigit() and count.isdigit() and int(count) > 1:
            return int(rank)
    return None


def has_torch(program: Sequence[str]) -> bool | None:
    """Return whether the Python of a program has PyTorch; `None` if the command shows no Python."""
    python = _find_interpreter(program[0])
    if python is None:
        return None
    script = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    try:
        ran = subprocess.run(  # noqa: S603  # the user's Python
            [*python, "-c", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.returncode == 0 if ran.returncode in {0, 1} else None


def _find_interpreter(program: str) -> list[str] | None:
    """Return the Python that a program is, or that runs it as a script."""
    path = shutil.which(program)
    if path is None:
        return None
    if re.fullmatch(r"python[\d.]*", Path(path).name):
        return [path]
    with Path(path).open("rb") as file:
        first = file.readline(4_096).decode("utf-8", "replace").strip()
    words = first.removeprefix("#!").split() if first.startswith("#!") else []
    is_python = any(re.fullmatch(r"python[\d.]*", Path(word).name) for word in words[:2])
    return words if is_python else None
