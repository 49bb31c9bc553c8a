"""How to capture so that wallscope can answer: the command of nsys and the settings of the framework."""

from collections.abc import Iterator
from dataclasses import dataclass

from wallscope.model.capture import Finding
from wallscope.model.section import Items, Line, Lines, Section, Span
from wallscope.render.texts import visible

_MARK = "*"


@dataclass(frozen=True, slots=True)
class _Flag:
    """A flag of nsys, what it is for and what it costs, and the findings that it cures."""

    text: str
    reason: str
    cures: tuple[str, ...] = ()


_PROFILE = (
    _Flag("--output=run_%h_%p", "a report for each process, named by host and process id"),
    _Flag("--force-overwrite=true", "an older report of that name is replaced"),
    _Flag(
        "--trace=cuda,nvtx",
        "device operations, CUDA calls, and NVTX ranges, those of NCCL included",
        ("no-device-operations", "no-nvtx", "no-api-calls"),
    ),
    _Flag("--sample=none", "no CPU samples: the host is slowed less", ("profiler-overhead",)),
    _Flag("--cpuctxsw=none", "no thread switches: the same", ("profiler-overhead",)),
    _Flag(
        "--capture-range=cudaProfilerApi",
        "the program starts the capture, see below; where it does not, nothing is captured",
        ("records-lost", "launches-without-work"),
    ),
    _Flag("--capture-range-end=stop", "the program stops it too, and runs on"),
    _Flag(
        "--cuda-graph-trace=node",
        "the kernels inside CUDA graphs; costs overhead at every node of a graph",
        ("graph-mode-graphs", "graph-replays-missing"),
    ),
    _Flag(
        "--cuda-event-trace=true",
        "which stream waited for what; costs overhead at every event",
        ("no-cuda-events", "unresolved-waits"),
    ),
    _Flag("--cuda-memory-usage=true", "device memory over time; costs much in programs that allocate often"),
)
_ON_LOSS = _Flag(
    "--cuda-flush-interval=100",
    "buffers are emptied every 100 ms before they run over; costs overhead at each",
    ("records-lost", "launches-without-work"),
)
_EXPORT = (
    _Flag("--type=sqlite", "the export that wallscope reads", ("filtered-export",)),
    _Flag(
        "--include-blobs=true",
        "sizes and groups of NCCL calls; leave it out before nsys 2026.1",
        ("payloads-not-exported",),
    ),
)
_STEPS_CURE = ("few-steps",)
_RANGES_CURE = ("no-steps", "unmarked-steps", "ranks-without-steps", "no-nvtx", "throughput-unknown")
_OTHERWISE = (
    "clipped-ranges",
    "clocks-apart",
    "collectives-unmatched",
    "emit-nvtx",
    "gpu-unknown",
    "loss-unknown",
    "no-kernels",
    "one-rank",
    "orphan-operations",
    "ranges-lost",
    "ranks-missing",
    "untimed-operations",
    "microsecond-times",
    "torch-operators",
    "torch-stacks",
    "trace-cut-off",
    "trace-events-lost",
    "work-before-calls",
)
"""Findings that another capture or export cures, though no flag that is shown does."""
CURED = {
    *_OTHERWISE,
    *_STEPS_CURE,
    *_RANGES_CURE,
    *(code for flag in (*_PROFILE, _ON_LOSS, *_EXPORT) for code in flag.cures),
}
_FRAMEWORKS = """\
Megatron Bridge (steps count from 0, the end is left out, no ranks means all):

profiling.use_nsys_profiler=true
profiling.profile_step_start=10
profiling.profile_step_end=20
profiling.profile_ranks=[0]
profiling.nvtx_ranges=true

It marks every PyTorch operator while the capture runs, which slows the host. \
The launcher of NeMo-Run sets --cuda-event-trace=false unless told otherwise.

Megatron-LM (no range marks a step; --record-shapes would slow the host):

--profile --profile-step-start 10 --profile-step-end 20 \\
    --profile-ranks 0 --nvtx-ranges

Transformer Engine, for either, names its phases with:

export NVTE_NVTX_ENABLED=1

Plain PyTorch, without torch.autograd.profiler.emit_nvtx:

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


def build_capture_help(name: str | None = None, findings: tuple[Finding, ...] = ()) -> Iterator[Section]:
    """Make the recommended command; with the `name` of an export what another capture of it cures first."""
    curable = tuple(finding for finding in findings if finding.code in CURED)
    codes = {finding.code for finding in curable}
    if name is not None:
        yield list_curable_findings(visible(name, most=60), curable)
    flags = (*_PROFILE, _ON_LOSS) if codes & set(_ON_LOSS.cures) else _PROFILE
    yield write_lines((Span("Capture", "strong"),))
    yield write_lines(*_write_command("nsys profile", flags, "python train.py"))
    yield _list_reasons(flags, codes)
    yield write_lines("Several ranks: torchrun --nproc-per-node=8 --no-python nsys profile ...")
    yield write_lines((Span("Export", "strong"),))
    yield write_lines(*_write_command("nsys export", _EXPORT, "--output=run.sqlite run.nsys-rep"))
    yield _list_reasons(_EXPORT, codes)
    steps, ranges = (" " if codes.isdisjoint(cured) else _MARK for cured in (_STEPS_CURE, _RANGES_CURE))
    yield write_lines(
        (Span("The program starts and stops the capture, and marks its steps", "strong"),),
        f"{steps} 10 steps after warm-up: fewer do not tell what varies from step to step.",
        f"{ranges} Ranges around steps and phases: without them steps are guessed from kernels.",
    )
    yield from (write_lines(*paragraph.split("\n")) for paragraph in _FRAMEWORKS.split("\n\n"))


def write_capture_command(findings: tuple[Finding, ...]) -> tuple[str, ...]:
    """Write the commands that capture and export, with the flags that cure these findings."""
    lost = set(_ON_LOSS.cures) & {finding.code for finding in findings}
    flags = (*_PROFILE, _ON_LOSS) if lost else _PROFILE
    ends = (
        ("nsys profile", flags, "python train.py"),
        ("nsys export", _EXPORT, "--output=run.sqlite run.nsys-rep"),
    )
    return tuple(" ".join((start, *(flag.text for flag in own), end)) for start, own, end in ends)


def write_lines(*lines: Line) -> Section:
    """Write lines as a section without a title."""
    return Section("lines", "", "", (Lines(lines),))


def list_curable_findings(name: str, curable: tuple[Finding, ...], *, has_marks: bool = True) -> Section:
    """Make the findings that another capture would cure; those that no flag below cures with their cure.

    `has_marks` says that there are flags below, and marks on those that cure the others.
    """
    what = "what another capture would cure" if curable else "nothing that another capture would cure"
    head = Lines(((Span(f"{name}: {what}", "strong"),),))
    rows: list[tuple[Line, ...]] = []
    for finding in curable:
        rows.append(("•", finding.message))
        if finding.cure and not (has_marks and finding.code not in _OTHERWISE):
            rows.append(("", (Span(f"→ {finding.cure}", "dim"),)))
    is_marked = has_marks and any(finding.code not in _OTHERWISE for finding in curable)
    note = Lines((f"Below, {_MARK} marks what cures the others.",) if is_marked else (), "dim")
    return Section("limits", "", "", (head, *((Items(tuple(rows)),) if rows else ()), note))


def _write_command(start: str, flags: tuple[_Flag, ...], end: str) -> list[str]:
    """Write one command over several lines, a flag each."""
    return " \\\n    ".join((start, *(flag.text for flag in flags), end)).split("\n")


def _list_reasons(flags: tuple[_Flag, ...], codes: set[str]) -> Section:
    rows = []
    for flag in flags:
        is_cure = not codes.isdisjoint(flag.cures)
        text = Span(flag.text, "strong" if is_cure else None)
        rows.append((_MARK if is_cure else " ", (text,), flag.reason))
    return Section("reasons", "", "", (Items(tuple(rows), ("mark", "mark", "text")),))
