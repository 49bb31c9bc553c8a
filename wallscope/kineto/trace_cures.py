"""Cures of findings name flags of nsys: those about a trace get the cures of its own profiler."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from wallscope.finding_texts import list_finding_words
from wallscope.model.advice import Framework
from wallscope.model.capture import Export, Finding, Profiler


def adapt_cures(
    findings: Iterable[Finding], export: Export, framework: Framework | None = None
) -> tuple[Finding, ...]:
    """Return the findings about a capture, with cures for the profiler that recorded it.

    Args:
        findings: those about the capture.
        export: the capture.
        framework: that of the program, `None` if unknown: it may then be Megatron.
    """
    return tuple(_adapt_cures(findings, export.profiler, framework))


def _adapt_cures(
    findings: Iterable[Finding], profiler: Profiler, framework: Framework | None
) -> Iterator[Finding]:
    is_torch, may_be_megatron = profiler == Profiler.TORCH, framework in {"megatron", None}
    own, more = list_finding_words("torch"), list_finding_words("megatron")
    for finding in findings:
        cure = finding.cure
        if cure and is_torch:
            cure = own.get(finding.code, cure)
        elif cure and may_be_megatron and finding.code in more:
            cure = f"{cure} {more[finding.code]}"
        yield finding if cure == finding.cure else replace(finding, cure=cure)
