"""A capture of any profiler, known by content: an export of Nsight Systems, or a trace of PyTorch's.

Cures of findings name flags of nsys, so findings about a trace get those of its profiler.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from wallscope.kineto.trace_bytes import is_torch_trace, refuse_other_gzip
from wallscope.model.capture import Capture, Contents, Export, Finding, Profiler, Progress
from wallscope.model.enums import Reader
from wallscope.model.finding_codes import FindingCode
from wallscope.nsys import read_capture, read_contents

_ASK_FOR_WAITS = (
    "Profile with enable_cuda_sync_events=True (torch 2.1 or later): wallscope capture-help --profiler torch."
)
_MARK_STEPS = (
    "Profile several steps and call prof.step() after each, which marks it, or name a range:"
    " --step-range REGEX."
)
_ASK_FOR_DEVICE = (
    "Profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] while the GPU trains."
)
_CURES: dict[str, str] = {
    FindingCode.FEW_STEPS: "Profile ten steps: schedule(wait=5, warmup=2, active=10).",
    FindingCode.LAUNCHES_WITHOUT_WORK: "End the profile after torch.cuda.synchronize().",
    FindingCode.NO_API_CALLS: _ASK_FOR_DEVICE,
    FindingCode.NO_CUDA_EVENTS: _ASK_FOR_WAITS,
    FindingCode.NO_KERNELS: _ASK_FOR_DEVICE,
    FindingCode.NO_STEPS: _MARK_STEPS,
    FindingCode.ORPHAN_OPERATIONS: "Begin the profile a step earlier: schedule(wait=5, warmup=2, active=10).",
    FindingCode.RANKS_WITHOUT_STEPS: _MARK_STEPS,
    FindingCode.UNMARKED_STEPS: _MARK_STEPS,
    FindingCode.UNRESOLVED_WAITS: _ASK_FOR_WAITS,
}


def read_any_capture(
    path: Path, progress: Progress, reader: Reader = Reader.PAGES, *, with_python: bool = False
) -> Capture:
    """Return the device operations of an export or a trace, and what limits the claims made from them.

    The reader is for exports alone, functions of Python are in traces alone.

    Raises:
        InputError: the file is neither, or cannot be read.
        NothingToAnalyzeError: it holds no device operation.
    """
    if is_torch_trace(path):
        from wallscope.kineto.load_trace import read_trace_capture  # noqa: PLC0415  # most captures are exports

        return read_trace_capture(path, progress, with_python=with_python)
    refuse_other_gzip(path)
    return read_capture(path, progress, reader)


def read_any_contents(path: Path, progress: Progress) -> Contents:
    """Return versions, machine, tables or events with their numbers, and limits of an export or a trace.

    Raises:
        InputError: the file is neither, or cannot be read.
    """
    if is_torch_trace(path):
        from wallscope.kineto.load_trace import read_trace_contents  # noqa: PLC0415  # most captures are exports

        return read_trace_contents(path, progress)
    refuse_other_gzip(path)
    return read_contents(path, progress)


def adapt_cures(findings: Iterable[Finding], export: Export) -> tuple[Finding, ...]:
    """Return the findings about a capture, with cures for the profiler that recorded it."""
    if export.profiler != Profiler.TORCH:
        return tuple(findings)
    return tuple(
        replace(finding, cure=_CURES[finding.code]) if finding.cure and finding.code in _CURES else finding
        for finding in findings
    )
