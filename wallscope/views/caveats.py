"""How sure a verdict is, and the limits that bear most on it."""

from collections.abc import Iterator

from wallscope import units
from wallscope.attribution.attribute import HELD_WHILE_IDLE
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.capture import Finding, Severity
from wallscope.model.diagnosis import Confidence
from wallscope.model.enums import Wall
from wallscope.model.section import Line, Span
from wallscope.render.texts import visible
from wallscope.summary.diagnosis import LOSSES
from wallscope.thresholds.verdict import DOMINANT_SHARE, SHARED_DEVICE_SHARE, SHOWN_WALL_SHARE
from wallscope.views.headline import choose_basis, find_dominant

_MOST_CAVEATS, _LONGEST_CAVEAT = 2, 200
_ANY = frozenset(Wall)
_DOUBTS: tuple[tuple[tuple[str, ...], frozenset[Wall]], ...] = (
    (
        (
            "trace-cut-off",
            "trace-events-lost",
            "records-lost",
            "no-kernels",
            "graph-mode-graphs",
            "graph-replays-missing",
            "no-api-calls",
            "filtered-export",
            "trace-filtered",
            "unattributed-time",
        ),
        _ANY,
    ),
    (("one-rank", "ranks-missing", "collectives-unmatched", "clocks-apart"), frozenset({Wall.COMMUNICATION})),
    (
        (
            "configuration-contradicted",
            "configuration-ineffective",
            "rank-contradiction",
            "export-left-out",
            "ranks-without-steps",
        ),
        _ANY,
    ),
    (("emit-nvtx", "torch-stacks", "torch-operators", "profiler-overhead"), frozenset({Wall.HOST})),
    (("no-steps", "few-steps", "inferred-steps", "unmarked-steps", "anchors-disagree"), _ANY),
    (
        (
            "unresolved-waits",
            "no-cuda-events",
            "launches-without-work",
            "orphan-operations",
            "work-before-calls",
            "unmatched-kernels",
        ),
        frozenset({*LOSSES, Wall.UNATTRIBUTED}),
    ),
)
"""Findings that weaken the headline, the most serious group first, and the walls that they concern."""


_UNKNOWING = (_DOUBTS[0][0], _DOUBTS[-1][0])
"""Findings of work or waits that the capture lacks."""


def describe_confidence(analysis: Analysis) -> str:
    """Say how sure the verdict is: unresolved waits, unattributed time, replay error, other doubts."""
    sure, check = analysis.diagnosis.confidence, analysis.replay.check if analysis.replay else None
    parts: list[str] = []
    reasons: tuple[str, ...] = ()
    if sure is not None:
        if any(one.code == "no-kernels" for one in analysis.capture.findings):
            return f"{sure.level}: {', '.join(sure.reasons)}"
        has_open_time = sure.unresolved_share > 0 or _has_open_time(analysis)
        parts += _describe_waits(analysis, sure, has_open_time=has_open_time)
        open_share = f"{units.percent(sure.unresolved_share)} unattributed"
        parts.append(open_share if has_open_time else "all time attributed")
        reasons = () if analysis.anchor.kind == "whole-trace" else sure.reasons[2:]
    refused = None if analysis.replay is None else analysis.replay.refused
    if check is not None and check.error_median is not None:
        unused = " is too large to replay fixes" if refused is not None else ""
        parts.append(f"replay error {units.percent(check.error_median)}{unused}")
    elif refused is not None:
        has_steps = analysis.anchor.kind != "whole-trace"
        parts.append(f"no replay ({refused})" if has_steps else "no replay, because no steps were found")
    level = "unknown" if sure is None else sure.level
    return f"{level}: {'; '.join((*parts, *reasons))}" if parts else level


def _describe_waits(analysis: Analysis, sure: Confidence, *, has_open_time: bool) -> Iterator[str]:
    """Say how many waits have a known reason, or how much time depends on reasons inferred from timing."""
    resolved = analysis.capture.resolved_dependency_share
    if sure.inferred_share > 0:
        yield f"{units.percent(sure.inferred_share)} of the time depends on waits inferred from timing"
    elif resolved is not None and resolved < 1:
        effect = "" if has_open_time else f", without effect on the {analysis.anchor.window}"
        yield f"{units.percent(1 - resolved)} of waits unresolved{effect}"
    elif resolved is not None:
        yield "all recorded waits resolved" if has_open_time else "all waits resolved"


def _has_open_time(analysis: Analysis) -> bool:
    """Return whether so much of the typical step is unattributed that it is shown."""
    typical = analysis.ranks[analysis.diagnosis.rank_index].typical
    return typical.walls.unattributed > SHOWN_WALL_SHARE * typical.step_ns


def list_caveats(analysis: Analysis, rank: Rank) -> list[Line]:
    """List the one or two limits that bear most on the headline."""
    lines: list[Line] = []
    is_shared = is_held_back(rank)
    if is_shared and find_dominant(analysis) != "unknown":
        held_ns = sum(one.typical_ns for one in rank.causes if one.cause == HELD_WHILE_IDLE)
        waited = f"Launched kernels waited {units.duration(held_ns)} on an idle GPU"
        lines.append((Span("• ", "warning"), f"{waited}: it is probably shared."))
    said = {"unattributed-time"} if is_shared else set()
    if any(one.code == "no-kernels" for one in analysis.capture.findings):
        said |= {"no-kernels", "no-steps"}
    doubts = [one for one in find_doubts(analysis, rank) if one.code not in said]
    for finding in doubts[: _MOST_CAVEATS - len(lines)]:
        cure = visible(f" → {finding.cure}") if finding.cure else ""
        mark = Span("• ", "bad" if finding.severity is Severity.ERROR else "warning")
        lines.append((mark, f"{shorten_message(finding)}.", Span(cure, "dim")))
    return lines


def is_held_back(rank: Rank) -> bool:
    """Return whether launched kernels wait so long on an idle GPU that it is probably shared."""
    return any(one.cause == HELD_WHILE_IDLE and one.share >= SHARED_DEVICE_SHARE for one in rank.causes)


def find_cure(analysis: Analysis) -> str:
    """Return what to do about the most serious finding that can leave a wall unknown; else empty."""
    codes = [code for group in _UNKNOWING for code in group]
    found = [one for one in analysis.capture.findings if one.cure and one.severity is Severity.ERROR]
    found += [one for code in codes for one in analysis.capture.findings if one.code == code and one.cure]
    return found[0].cure or "" if found else ""


def shorten_message(finding: Finding) -> str:
    """Return the message of a finding without its last period, a long one cut to its first sentence."""
    message = finding.message.rstrip(".")
    if len(message) <= _LONGEST_CAVEAT:
        return message
    return visible(message.partition(". ")[0], most=_LONGEST_CAVEAT)


def find_doubts(analysis: Analysis, rank: Rank) -> list[Finding]:
    """Return the findings that put the headline in doubt, or are errors, the most serious first."""
    basis, dominant, job = choose_basis(analysis, rank), find_dominant(analysis), analysis.job
    walls = {wall for wall in LOSSES if basis.share(wall) >= DOMINANT_SHARE / 2}
    walls |= {Wall(dominant)} if dominant in set(Wall) else _ANY
    walls |= {late.cause_wall for late in job.stragglers if late.cause_wall} if job is not None else set()
    places = {code: place for place, (codes, of) in enumerate(_DOUBTS) if of & walls for code in codes}

    def weigh(finding: Finding) -> int:
        return -1 if finding.severity is Severity.ERROR else places.get(finding.code, len(_DOUBTS))

    found = [
        one
        for one in analysis.capture.findings
        if weigh(one) < len(_DOUBTS) and (one.code != "unresolved-waits" or one.covers_ns)
    ]
    return sorted(found, key=weigh)
