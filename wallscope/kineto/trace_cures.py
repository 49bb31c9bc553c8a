"""Cures of findings name flags of nsys: those about a trace get the cures of its own profiler."""

from collections.abc import Iterable
from dataclasses import replace

from wallscope.model.capture import Export, Finding, Profiler

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
_CURES = {
    "few-steps": "Profile ten steps: schedule(wait=5, warmup=2, active=10).",
    "launches-without-work": "End the profile after torch.cuda.synchronize().",
    "no-api-calls": _ASK_FOR_DEVICE,
    "no-cuda-events": _ASK_FOR_WAITS,
    "no-kernels": _ASK_FOR_DEVICE,
    "no-steps": _MARK_STEPS,
    "orphan-operations": "Begin the profile a step earlier: schedule(wait=5, warmup=2, active=10).",
    "ranks-without-steps": _MARK_STEPS,
    "unmarked-steps": _MARK_STEPS,
    "unresolved-waits": _ASK_FOR_WAITS,
}


def adapt_cures(findings: Iterable[Finding], export: Export) -> tuple[Finding, ...]:
    """Return the findings about a capture, with cures for the profiler that recorded it."""
    if export.profiler != Profiler.TORCH:
        return tuple(findings)
    return tuple(
        replace(finding, cure=_CURES[finding.code]) if finding.cure and finding.code in _CURES else finding
        for finding in findings
    )
