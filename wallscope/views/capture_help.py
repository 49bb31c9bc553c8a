"""How to capture so that wallscope can answer: the command of nsys and the settings of the framework."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wallscope.model.capture import Finding
from wallscope.render.foreign import visible

_MARK = "*"
_STEPS = "steps"
_RANGES = "ranges"


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
    _Flag(
        "--cuda-memory-usage=true",
        "device memory over time; costs much in programs that allocate often",
    ),
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
_SETTINGS = {
    _STEPS: ("few-steps",),
    _RANGES: ("no-steps", "unmarked-steps", "ranks-without-steps", "no-nvtx", "throughput-unknown"),
}
_OTHERWISE = (
    "clipped-ranges",
    "clocks-apart",
    "collectives-unmatched",
    "emit-nvtx",
    "gpu-unknown",
    "loss-unknown",
    "one-rank",
    "orphan-operations",
    "ranges-lost",
    "ranks-missing",
    "untimed-operations",
)
"""Findings that another capture or export cures, though no flag that is shown does."""
_CURED = {
    *_OTHERWISE,
    *(code for codes in _SETTINGS.values() for code in codes),
    *(code for flag in (*_PROFILE, _ON_LOSS, *_EXPORT) for code in flag.cures),
}
_BRIDGE = """\
profiling.use_nsys_profiler=true
profiling.profile_step_start=10
profiling.profile_step_end=20
profiling.profile_ranks=[0]
profiling.nvtx_ranges=true"""
_MEGATRON_LM = """\
--profile --profile-step-start 10 --profile-step-end 20 \\
    --profile-ranks 0 --nvtx-ranges"""
_PYTORCH = """\
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


def capture_help(name: str | None = None, findings: tuple[Finding, ...] = ()) -> RenderableType:
    """The recommended command, and with the `name` of an export what another capture of it would cure."""
    return Group(*_parts(name, findings))


def _parts(name: str | None, findings: tuple[Finding, ...]) -> Iterator[RenderableType]:
    curable = tuple(finding for finding in findings if finding.code in _CURED)
    codes = {finding.code for finding in curable}
    if name is not None:
        yield from _limits(name, curable)
    flags = (*_PROFILE, _ON_LOSS) if codes & set(_ON_LOSS.cures) else _PROFILE
    yield Text("Capture", style="bold")
    yield Text()
    yield _verbatim(_command("nsys profile", flags, "python train.py"))
    yield Text()
    yield _reasons(flags, codes)
    yield Text()
    yield Text("Several ranks: torchrun --nproc-per-node=8 --no-python nsys profile ...")
    yield Text()
    yield Text("Export", style="bold")
    yield Text()
    yield _verbatim(_command("nsys export", _EXPORT, "--output=run.sqlite run.nsys-rep"))
    yield Text()
    yield _reasons(_EXPORT, codes)
    yield Text()
    yield from _frameworks(codes)


def _limits(name: str, curable: tuple[Finding, ...]) -> Iterator[RenderableType]:
    shown = visible(name, most=60)
    if not curable:
        yield Text(f"{shown}: nothing that another capture would cure", style="bold")
    else:
        yield Text(f"{shown}: what another capture would cure", style="bold")
        table = _grid()
        for finding in curable:
            table.add_row("•", finding.message)
            if finding.code in _OTHERWISE and finding.cure:
                table.add_row("", Text(f"→ {finding.cure}", style="dim"))
        yield table
        if any(finding.code not in _OTHERWISE for finding in curable):
            yield Text(f"Below, {_MARK} marks what cures the others.", style="dim")
    yield Text()


def _command(start: str, flags: tuple[_Flag, ...], end: str) -> str:
    """One command over several lines, a flag each."""
    return " \\\n    ".join((start, *(flag.text for flag in flags), end))


def _verbatim(text: str) -> Text:
    """Text to be pasted: its lines are short, and none is cut."""
    return Text(text, overflow="fold")


def _reasons(flags: tuple[_Flag, ...], codes: set[str]) -> Table:
    table = _grid(no_wrap=True)
    for flag in flags:
        is_cure = not codes.isdisjoint(flag.cures)
        table.add_row(
            _MARK if is_cure else " ", Text(flag.text, style="bold" if is_cure else ""), flag.reason
        )
    return table


def _grid(*, no_wrap: bool = False) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=no_wrap)
    return table


def _frameworks(codes: set[str]) -> Iterator[RenderableType]:
    steps, ranges = (" " if codes.isdisjoint(_SETTINGS[what]) else _MARK for what in (_STEPS, _RANGES))
    yield Text("The program starts and stops the capture, and marks its steps", style="bold")
    yield Text(f"{steps} 10 steps after warm-up: fewer do not tell what varies from step to step.")
    yield Text(f"{ranges} Ranges around steps and phases: without them steps are guessed from kernels.")
    yield Text()
    yield Text("Megatron Bridge (steps count from 0, the end is left out, no ranks means all):")
    yield Text()
    yield _verbatim(_BRIDGE)
    yield Text()
    yield Text(
        "It marks every PyTorch operator while the capture runs, which slows the host. The launcher of"
        " NeMo-Run sets --cuda-event-trace=false unless told otherwise."
    )
    yield Text()
    yield Text("Megatron-LM (no range marks a step; --record-shapes would slow the host):")
    yield Text()
    yield _verbatim(_MEGATRON_LM)
    yield Text()
    yield Text("Transformer Engine, for either, names its phases with:")
    yield Text()
    yield _verbatim("export NVTE_NVTX_ENABLED=1")
    yield Text()
    yield Text("Plain PyTorch, without torch.autograd.profiler.emit_nvtx:")
    yield Text()
    yield _verbatim(_PYTORCH)
