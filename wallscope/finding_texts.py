"""Make findings from `advice/notes/findings.toml`, which has severity, text and what to do of each."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from wallscope.files import read_toml
from wallscope.model.advice import Framework
from wallscope.model.capture import Export, Finding, Profiler, Severity
from wallscope.model.finding_codes import FindingCode


def make_finding(
    code: FindingCode,
    variant: str = "",
    *,
    severity: Severity | None = None,
    cure: str | None = None,
    covers_ns: int | None = None,
    **places: object,
) -> Finding:
    """Make a finding from its text.

    Args:
        code: of the finding.
        variant: which of several texts (`finding.says`).
        severity: where the text does not declare it.
        cure: what to do, where the text does not declare it.
        covers_ns: the time concerned.
        places: what stands in the places of the text and of what to do.

    >>> make_finding(FindingCode.EXPORT_LEFT_OUT, name="a.sqlite", why="it is empty").message
    'a.sqlite is left out: it is empty.'
    """
    text = list_finding_texts()[code][variant]
    lead, rest = (text.get(key, "").format_map(places).strip() for key in ("lead", "text"))
    return Finding(
        code,
        Severity(text["severity"]) if severity is None else severity,
        f"{lead} {rest}".strip(),
        text["do"].format_map(places) if cure is None and "do" in text else cure,
        covers_ns,
        lead,
    )


@cache
def list_finding_texts() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Return severity, text and what to do of each finding, by code and variant."""
    tables = read_toml("advice/notes/findings.toml")["finding"]
    return {
        table["code"]: {**({"": table} if "text" in table else {}), **table.get("says", {})}
        for table in tables
    }


@cache
def list_finding_words(key: str) -> Mapping[str, str]:
    """Return the words that findings have under another key of the table, by code.

    >>> list_finding_words("unknown")["few-steps"]
    'how much steps vary'
    """
    tables = read_toml("advice/notes/findings.toml")["finding"]
    return {table["code"]: table[key] for table in tables if key in table}


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
