"""Cures of findings name flags of nsys: those about a trace get the cures of its own profiler."""

from collections.abc import Iterable
from dataclasses import replace

from wallscope.finding_texts import list_finding_words
from wallscope.model.capture import Export, Finding, Profiler


def adapt_cures(findings: Iterable[Finding], export: Export) -> tuple[Finding, ...]:
    """Return the findings about a capture, with cures for the profiler that recorded it."""
    if export.profiler != Profiler.TORCH:
        return tuple(findings)
    cures = list_finding_words("torch")
    return tuple(
        replace(finding, cure=cures[finding.code]) if finding.cure and finding.code in cures else finding
        for finding in findings
    )
