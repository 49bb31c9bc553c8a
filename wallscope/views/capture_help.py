"""How to capture for wallscope: the nsys command, code for PyTorch's profiler, settings of the framework."""

from collections.abc import Iterator, Mapping

from wallscope.model.advice import Framework
from wallscope.model.capture import Finding
from wallscope.model.finding_codes import FindingCode
from wallscope.model.nsys_flags import InstalledNsys
from wallscope.model.section import Items, Line, Lines, Section, Span
from wallscope.records import dataclass
from wallscope.render.texts import visible

_MARK = "*"
_STEPS_CURE = (FindingCode.FEW_STEPS,)
_RANGES_CURE = (
    FindingCode.NO_STEPS,
    FindingCode.UNMARKED_STEPS,
    FindingCode.RANKS_WITHOUT_STEPS,
    FindingCode.NO_NVTX,
    FindingCode.THROUGHPUT_UNKNOWN,
)
_OTHERWISE = (
    FindingCode.CLIPPED_RANGES,
    FindingCode.CLOCKS_APART,
    FindingCode.COLLECTIVES_UNMATCHED,
    FindingCode.DEVICE_CLOCK_ALIGNED,
    FindingCode.DEVICE_CLOCK_UNKNOWN,
    FindingCode.EMIT_NVTX,
    FindingCode.GPU_UNKNOWN,
    FindingCode.LOSS_UNKNOWN,
    FindingCode.NO_KERNELS,
    FindingCode.ONE_RANK,
    FindingCode.ORPHAN_OPERATIONS,
    FindingCode.PROFILER_MESSAGES,
    FindingCode.RANGES_LOST,
    FindingCode.RANKS_MISSING,
    FindingCode.UNTIMED_OPERATIONS,
    FindingCode.MICROSECOND_TIMES,
    FindingCode.TORCH_OPERATORS,
    FindingCode.TORCH_STACKS,
    FindingCode.TRACE_CUT_OFF,
    FindingCode.TRACE_EVENTS_LOST,
    FindingCode.UNPROFILED_STEP,
    FindingCode.WORK_BEFORE_CALLS,
)
"""Findings that another capture or export cures, though no flag that is shown does."""
_MEGATRON_BRIDGE = """\
Megatron Bridge (steps count from 0, the end step is not captured, [] means all ranks):

profiling.use_nsys_profiler=true
profiling.profile_step_start=10
profiling.profile_step_end=20
profiling.profile_ranks=[{ranks}]
profiling.nvtx_ranges=true

nvtx_ranges=true puts a range around every PyTorch operator, which slows the host. \
The launcher of NeMo-Run sets --cuda-event-trace=false by default: set it to true."""
_MEGATRON_LM = """\
Megatron-LM (its ranges do not mark steps; leave out --record-shapes, which slows the host):

--profile --profile-step-start 10 --profile-step-end 20 \\
    --profile-ranks {ranks} --nvtx-ranges

Transformer Engine names its phases with:

export NVTE_NVTX_ENABLED=1"""
_PYTORCH = """\
Plain PyTorch (do not use torch.autograd.profiler.emit_nvtx, which slows the host):

for step, batch in enumerate(loader):
    if step == 10:
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
    with torch.cuda.nvtx.range(f"step_{step}"):
        train_step(batch)
    if step == 19:
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        break"""
_PYTHON = """\
Other Python programs, such as JAX and TensorFlow (pip install nvtx):

cudart = ctypes.CDLL("libcudart.so")
for step, batch in enumerate(loader):
    if step == 10:
        cudart.cudaProfilerStart()
    with nvtx.annotate(f"step_{step}"):
        train_step(batch)
    if step == 19:
        cudart.cudaDeviceSynchronize()
        cudart.cudaProfilerStop()
        break"""
_NATIVE = """\
C++ and other native programs (cuda_profiler_api.h, nvtx3/nvToolsExt.h):

for (int step = 0; step < steps; ++step) {
    if (step == 10) cudaProfilerStart();
    nvtxRangePushA("step");
    run_step(step);
    nvtxRangePop();
    if (step == 19) {
        cudaDeviceSynchronize();
        cudaProfilerStop();
    }
}

A program that cannot be changed: leave out --capture-range and --capture-range-end."""
_MEGATRON = (_MEGATRON_BRIDGE, _MEGATRON_LM)
_HOW_TO_MARK: Mapping[Framework | None, tuple[str, ...]] = {
    "megatron": _MEGATRON,
    "pytorch": (_PYTORCH,),
    "inference": (_PYTORCH,),
    "jax": (_PYTHON,),
    "tensorflow": (_PYTHON,),
    "julia": (_NATIVE,),
    "directives": (_NATIVE,),
    "cuda": (_NATIVE,),
    None: (*_MEGATRON, _PYTORCH, _PYTHON, _NATIVE),
}
_NATIVE_PROGRAMS = {"julia", "directives", "cuda"}
_RANKS_CURE = (FindingCode.ONE_RANK, FindingCode.RANKS_MISSING, FindingCode.COLLECTIVES_UNMATCHED)
_CODE = """\
import os
import torch
from torch.profiler import ProfilerActivity, profile, schedule

rank = os.environ.get("RANK", "0")
with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=5, warmup=2, active=10, repeat=1),
    on_trace_ready=lambda p: p.export_chrome_trace(f"rank-{rank}.json.gz"),
    record_shapes=False,
    profile_memory=False,
    with_stack=False,
    experimental_config=torch._C._profiler._ExperimentalConfig(
        enable_cuda_sync_events=True
    ),
) as profiler:
    for batch in loader:
        train_step(batch)
        profiler.step()"""
_REASONS = (
    ("activities", "operators on the host, and what runs on the GPU"),
    ("schedule", "ten steps after warm-up, because fewer do not show how steps vary"),
    ("profiler.step()", "marks the steps: without it they are inferred from kernels"),
    ("enable_cuda_sync_events", "records which stream waited for what; torch 2.1 or later"),
    ("record_shapes, with_stack", "off: they slow the host and inflate idle time"),
    ("profile_memory", "allocator memory over time; adds overhead per allocation"),
)
_FRAMEWORKS = """\
Megatron-LM, which writes torch_profile/rank-N.json.gz next to the TensorBoard folder:

--profile --use-pytorch-profiler --profile-step-start 10 \\
    --profile-step-end 20 --profile-ranks 0 1

Megatron Bridge writes the same:

profiling.use_pytorch_profiler=true
profiling.profile_step_start=10
profiling.profile_step_end=20
profiling.profile_ranks=[0,1]
profiling.pytorch_profiler_collect_shapes=false

Neither records synchronizations: waits are inferred from the order of calls and from times."""
_ANALYZE = """\
One rank, and all ranks of a job (each file holds its rank number):

wallscope analyze rank-0.json.gz
wallscope analyze torch_profile/"""


@dataclass(frozen=True, slots=True)
class _Flag:
    """A flag of nsys, what it is for and what it costs, and the findings that it cures."""

    text: str
    reason: str
    cures: tuple[str, ...] = ()


_OUTPUT = _Flag("--output=run_%h_%p", "one report per process, named by host and process id")
_RANGE = (
    _Flag(
        "--capture-range=cudaProfilerApi",
        "nsys records only after the program starts the capture (see below)",
        (FindingCode.RECORDS_LOST, FindingCode.LAUNCHES_WITHOUT_WORK),
    ),
    _Flag("--capture-range-end=stop", "the program stops the capture and then continues"),
)
_PROFILE = (
    _OUTPUT,
    _Flag("--force-overwrite=true", "replaces an older report of that name"),
    _Flag(
        "--trace=cuda,nvtx",
        "GPU operations, CUDA calls, and NVTX ranges including those of NCCL",
        (FindingCode.NO_DEVICE_OPERATIONS, FindingCode.NO_NVTX, FindingCode.NO_API_CALLS),
    ),
    _Flag("--sample=none", "no CPU samples, which slow the host", (FindingCode.PROFILER_OVERHEAD,)),
    _Flag("--cpuctxsw=none", "no thread switches, which slow the host", (FindingCode.PROFILER_OVERHEAD,)),
    *_RANGE,
    _Flag(
        "--cuda-graph-trace=node",
        "records kernels inside CUDA graphs; adds overhead per graph node",
        (FindingCode.GRAPH_MODE_GRAPHS, FindingCode.GRAPH_REPLAYS_MISSING),
    ),
    _Flag(
        "--cuda-event-trace=true",
        "records which stream waited for what; adds overhead per event",
        (FindingCode.NO_CUDA_EVENTS, FindingCode.UNRESOLVED_WAITS),
    ),
    _Flag("--cuda-memory-usage=true", "records device memory over time; slows programs that allocate often"),
)


_ON_LOSS = _Flag(
    "--cuda-flush-interval=100",
    "empties buffers every 100 ms before they overflow; adds overhead",
    (FindingCode.RECORDS_LOST, FindingCode.LAUNCHES_WITHOUT_WORK),
)


_EXPORT = (
    _Flag("--type=sqlite", "the format that wallscope reads", (FindingCode.FILTERED_EXPORT,)),
    _Flag(
        "--include-blobs=true",
        "adds sizes and communicators of NCCL calls; leave it out before nsys 2026.1",
        (FindingCode.PAYLOADS_NOT_EXPORTED,),
    ),
)


CURED = {
    *_OTHERWISE,
    *_STEPS_CURE,
    *_RANGES_CURE,
    *(code for flag in (*_PROFILE, _ON_LOSS, *_EXPORT) for code in flag.cures),
}


def build_capture_help(
    name: str | None = None,
    findings: tuple[Finding, ...] = (),
    framework: Framework | None = None,
    nsys: InstalledNsys | None = None,
) -> Iterator[Section]:
    """Make the recommended command, and how a program of this framework marks its steps.

    With the `name` of an export, the findings that another capture cures come first. The commands have
    the options that an installed `nsys` takes.
    """
    curable = tuple(finding for finding in findings if finding.code in CURED)
    codes = {finding.code for finding in curable}
    wants_all_ranks = not codes.isdisjoint(_RANKS_CURE)
    if name is not None:
        yield list_curable_findings(visible(name, most=60), curable)
    flags, refused = _choose_flags(codes, nsys)
    export, refused_export = _sort_flags(_EXPORT, nsys, "export")
    program = "./program" if framework in _NATIVE_PROGRAMS else "python train.py"
    yield write_lines((Span("Capture", "strong"),))
    yield write_lines(*_write_command("nsys profile", flags, program))
    yield _list_reasons(flags, codes)
    yield from _name_refused(refused, codes, nsys)
    launcher = "mpirun -n 8" if framework in _NATIVE_PROGRAMS else "torchrun --nproc-per-node=8 --no-python"
    mark = f"{_MARK} All ranks" if wants_all_ranks else "Several ranks"
    yield write_lines(f"{mark}: {launcher} nsys profile ...")
    yield write_lines((Span("Export", "strong"),))
    yield write_lines(*_write_command("nsys export", export, "--output=run.sqlite run.nsys-rep"))
    yield _list_reasons(export, codes)
    yield from _name_refused(refused_export, codes, nsys)
    steps, ranges = (" " if codes.isdisjoint(cured) else _MARK for cured in (_STEPS_CURE, _RANGES_CURE))
    yield write_lines(
        (Span("The program starts and stops the capture, and marks its steps", "strong"),),
        f"{steps} 10 steps after warm-up, because fewer do not show how steps vary.",
        f"{ranges} NVTX ranges around steps and phases: without them steps are inferred from kernels.",
    )
    for text in _HOW_TO_MARK[framework]:
        bridge, lm = ("", "0 1 2 3 4 5 6 7") if wants_all_ranks else ("0", "0")
        filled = text.replace("{ranks}", bridge if text is _MEGATRON_BRIDGE else lm)
        yield from (write_lines(*paragraph.split("\n")) for paragraph in filled.split("\n\n"))


def list_recording_flags() -> tuple[str, ...]:
    """Return the flags that say what nsys records, without those for its file and for when it begins."""
    return tuple(flag.text for flag in _PROFILE if flag not in {_OUTPUT, *_RANGE})


def _choose_flags(codes: set[str], nsys: InstalledNsys | None) -> tuple[tuple[_Flag, ...], tuple[_Flag, ...]]:
    """Return the flags that record what these findings lack, and those of them that this nsys refuses."""
    flags = (*_PROFILE, _ON_LOSS) if codes & set(_ON_LOSS.cures) else _PROFILE
    return _sort_flags(flags, nsys, "profile")


def _sort_flags(
    flags: tuple[_Flag, ...], nsys: InstalledNsys | None, command: str
) -> tuple[tuple[_Flag, ...], tuple[_Flag, ...]]:
    if nsys is None:
        return flags, ()
    taken = [nsys.takes(flag.text, command) for flag in flags]
    return (
        tuple(flag for flag, is_taken in zip(flags, taken, strict=True) if is_taken),
        tuple(flag for flag, is_taken in zip(flags, taken, strict=True) if not is_taken),
    )


def _name_refused(
    refused: tuple[_Flag, ...], codes: set[str], nsys: InstalledNsys | None
) -> Iterator[Section]:
    """Name what the installed nsys does not have; one that a finding asks for is marked."""
    if nsys is not None and refused:
        is_cure = any(not codes.isdisjoint(flag.cures) for flag in refused)
        names = ", ".join(flag.text for flag in refused)
        yield write_lines(f"{_MARK if is_cure else ' '} The installed nsys {nsys.version} lacks {names}.")


def write_capture_command(
    findings: tuple[Finding, ...], nsys: InstalledNsys | None = None
) -> tuple[str, ...]:
    """Write the commands that capture and export, with the flags that cure these findings.

    Of an installed `nsys`, they have the options that it takes.
    """
    flags, _ = _choose_flags({finding.code for finding in findings}, nsys)
    export, _ = _sort_flags(_EXPORT, nsys, "export")
    ends = (
        ("nsys profile", flags, "python train.py"),
        ("nsys export", export, "--output=run.sqlite run.nsys-rep"),
    )
    return tuple(" ".join((start, *(flag.text for flag in own), end)) for start, own, end in ends)


def write_lines(*lines: Line) -> Section:
    """Write lines as a section without a title."""
    return Section("lines", "", "", (Lines(lines),))


def list_curable_findings(name: str, curable: tuple[Finding, ...], *, has_marks: bool = True) -> Section:
    """Make the findings that another capture cures; those that no flag below cures with their cure.

    `has_marks` says that there are flags below, and marks on those that cure the others.
    """
    what = (
        "limits that a new capture would remove" if curable else "no limit that another capture would remove"
    )
    head = Lines(((Span(f"{name}: {what}", "strong"),),))
    rows: list[tuple[Line, ...]] = []
    for finding in curable:
        rows.append(("•", finding.message))
        if finding.cure and not (has_marks and finding.code not in _OTHERWISE):
            rows.append(("", (Span(f"→ {finding.cure}", "dim"),)))
    marked = [finding.code not in _OTHERWISE for finding in curable]
    which = "these limits" if all(marked) else "the limits without a remedy above"
    note = Lines((f"Flags marked {_MARK} below remove {which}.",) if has_marks and any(marked) else (), "dim")
    return Section("limits", "", "", (head, *((Items(tuple(rows)),) if rows else ()), note))


def _write_command(start: str, flags: tuple[_Flag, ...], end: str) -> list[str]:
    """Write one command over several lines, a flag each."""
    return [f"{start} \\", *(f"    {flag.text} \\" for flag in flags), f"    {end}"]


def _list_reasons(flags: tuple[_Flag, ...], codes: set[str]) -> Section:
    rows = []
    for flag in flags:
        is_cure = not codes.isdisjoint(flag.cures)
        text = Span(flag.text, "strong" if is_cure else None)
        rows.append((_MARK if is_cure else " ", (text,), flag.reason))
    return Section("reasons", "", "", (Items(tuple(rows), ("mark", "mark", "text")),))


def write_profile_code() -> tuple[str, ...]:
    """Write the code that profiles a program, a line each."""
    return tuple(_CODE.split("\n"))


def build_torch_capture_help(
    name: str | None = None,
    findings: tuple[Finding, ...] = (),
    framework: Framework | None = None,  # noqa: ARG001  # as `build_capture_help` has it
    nsys: InstalledNsys | None = None,  # noqa: ARG001  # same
) -> Iterator[Section]:
    """Make the code to profile with; first the limits of a trace of this `name` that a profile removes."""
    if name is not None:
        curable = tuple(finding for finding in findings if finding.code in CURED)
        yield list_curable_findings(visible(name, most=60), curable, has_marks=False)
    yield write_lines((Span("Profile", "strong"),))
    yield write_lines(*_CODE.split("\n"))
    rows = tuple((" ", (Span(what, None),), reason) for what, reason in _REASONS)
    yield Section("reasons", "", "", (Items(rows, ("mark", "mark", "text")),))
    yield from (write_lines(*paragraph.split("\n")) for paragraph in _FRAMEWORKS.split("\n\n"))
    yield write_lines((Span("Analyze", "strong"),))
    yield from (write_lines(*paragraph.split("\n")) for paragraph in _ANALYZE.split("\n\n"))
