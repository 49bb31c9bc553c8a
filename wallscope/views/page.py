"""The answer as one HTML file: the first screen, and the sections in the order of the questions."""

from typing import Any

from wallscope import units
from wallscope.model.advice import Fix, select_first_fixes
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.diagnosis import Dominant
from wallscope.model.enums import Wall
from wallscope.model.report import Report
from wallscope.model.section import Section
from wallscope.render.offline import offline
from wallscope.render.timeline_pack import Pack, pack
from wallscope.views.phrases import (
    count_exports,
    describe_capture,
    describe_steps,
    describe_throughput,
    explain_choice,
    name_rank,
)
from wallscope.views.sections.depth import build_walls_in_depth
from wallscope.views.sections.findings import build_limits, build_methods, sort_findings
from wallscope.views.sections.fixes import count_preconditions, describe_answer, describe_replay
from wallscope.views.sections.job import build_clocks, build_job, build_survey
from wallscope.views.sections.path import build_path
from wallscope.views.sections.steps import build_phases, build_steps
from wallscope.views.sections.timeline import build_timeline
from wallscope.views.sections.walls import build_bar_part, build_causes, build_ranks, tabulate_walls

_MOST_OPPORTUNITIES = 4
_MOST_FIXES = 3
_MOST_LIMITS = 3


def page(report: Report) -> str:
    """The whole page."""
    packed = pack(report.timelines)
    analysis = report.analysis
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    name = analysis.inputs[0].name if len(analysis.inputs) == 1 else count_exports(analysis)
    return offline(
        "page.html.j2",
        f"{name}: {_first_sentence(_leading(analysis))}",
        _sections(report, rank, packed),
        packed.base64,
        analysis=analysis,
        first=_first_screen(analysis, rank),
    )


def _sections(report: Report, rank: Rank, packed: Pack) -> tuple[Section | None, ...]:
    analysis = report.analysis
    return (
        build_steps(analysis, rank, report.timelines),
        build_ranks(analysis),
        build_job(report),
        build_survey(analysis),
        build_clocks(analysis),
        build_causes(analysis, rank),
        build_path(report, rank),
        build_timeline(report, packed.notes) if report.timelines else None,
        *build_walls_in_depth(analysis, rank),
        build_phases(analysis, rank),
        build_limits(analysis.capture.findings),
        build_methods(analysis, rank),
    )


def _first_screen(analysis: Analysis, rank: Rank) -> dict[str, Any]:
    """What is wrong and what to do."""
    export, diagnosis = analysis.inputs[0], analysis.diagnosis
    lead, _, rest = _leading(analysis).partition(". ")
    told = [", ".join(describe_steps(analysis.anchor, rank))]
    if len(analysis.ranks) > 1:
        told.append(f"{name_rank(rank)}, {explain_choice(analysis)}, of {len(analysis.ranks)} ranks")
    speaking = "" if _leading(analysis) == diagnosis.verdict else diagnosis.verdict
    told += describe_throughput(diagnosis.throughput)
    graded = sort_findings(analysis.capture.findings)
    step_ns, typical = rank.typical.step_ns, rank.typical.walls
    shares = [(wall, getattr(typical, wall) / step_ns if step_ns else 0.0) for wall in Wall]
    fixes = _in_order(analysis.fixes or ())
    return {
        "headline": describe_capture(analysis, 0),
        "captured": units.utc(export.session_start_utc_ns),
        "lead": f"{lead.rstrip('.')}.",
        "rest": rest,
        "speaking": f"{_capital(name_rank(rank))}: {speaking}" if speaking else "",
        "told": told,
        "whole": analysis.anchor.typical,
        "unit": analysis.anchor.window,
        "step": units.milliseconds(rank.typical.step_ns),
        "bar": [build_bar_part(wall, share, units.percent(share)) for wall, share in shares],
        "walls": tabulate_walls(analysis, rank),
        "wall_is": _wall_is(diagnosis.dominant_wall),
        "pressure": diagnosis.memory_pressure,
        "opportunities": analysis.opportunities[:_MOST_OPPORTUNITIES],
        "more_opportunities": max(len(analysis.opportunities) - _MOST_OPPORTUNITIES, 0),
        "fixes": fixes[:_MOST_FIXES],
        "more_fixes": fixes[_MOST_FIXES:],
        "replay": "" if analysis.replay is None else describe_replay(analysis.replay),
        "findings": tuple(graded[:_MOST_LIMITS]),
        "more_findings": max(len(graded) - _MOST_LIMITS, 0),
    }


def _leading(analysis: Analysis) -> str:
    """What is said first: of ranks that were matched what they tell together, else what one tells."""
    job = analysis.job
    return job.verdict if job is not None and job.collectives.matched else analysis.diagnosis.verdict


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _in_order(found: tuple[Fix, ...]) -> tuple[dict[str, Any], ...]:
    """All fixes, those of the first screen first."""
    first = select_first_fixes(found)
    shown = {fix.id for fix in first}
    return tuple(map(_fix, (*first, *(fix for fix in found if fix.id not in shown))))


def _fix(fix: Fix) -> dict[str, Any]:
    """A fix with its settings a system, and how its preconditions stand."""
    systems = dict.fromkeys(setting.system for setting in fix.settings)
    return {
        "fix": fix,
        "settings": [
            (system, [one.write() for one in fix.settings if one.system == system]) for system in systems
        ],
        "unknown": [needed for needed in fix.preconditions if needed.status == "unknown"],
        "unmet": [needed for needed in fix.preconditions if needed.status == "unmet"],
        "checked": count_preconditions(fix),
        "replayed": "" if fix.replay is None else describe_answer(fix.replay),
        "asked": "" if fix.replay is None else " ".join(one.option for one in fix.replay.questions),
    }


def _wall_is(dominant: Dominant) -> str:
    """Why the wall need not be what takes most of the step; empty where none is named."""
    if dominant in {"mixed", "unknown"}:
        return ""
    if dominant == "compute":
        return "No loss beside compute is large enough to be the wall."
    return "Compute is what the step is for; the wall is the largest loss beside it."


def _first_sentence(verdict: str) -> str:
    return verdict.partition(". ")[0]
