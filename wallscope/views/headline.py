"""The headline of an answer: the wall in two words, and what part of the run it covers."""

from collections.abc import Iterator

from wallscope import units
from wallscope.model.analysis import Analysis, UnitKind
from wallscope.model.diagnosis import Scope
from wallscope.model.enums import Wall
from wallscope.ranks.job_sentences import name_leading
from wallscope.summary.diagnosis import find_scope
from wallscope.thresholds.verdict import LEAST_COVERED_SHARE
from wallscope.views.light import write_peak_share
from wallscope.views.verdict import find_dominant


def write_headline(analysis: Analysis) -> str:
    """Return the verdict in two words with what it covers, as in `host-bound on rank 3 of 16`."""
    return " ".join(filter(None, (summarize_verdict(analysis), describe_scope(analysis))))


def summarize_verdict(analysis: Analysis) -> str:
    """Return the verdict in two words."""
    wall, words = name_verdict(analysis)
    return f"{wall or ''}{words}".lower()


def name_verdict(analysis: Analysis) -> tuple[Wall | None, str]:
    """Return the wall, if it is one, and the rest of the verdict in two words."""
    dominant = find_dominant(analysis)
    if dominant == "mixed":
        return None, "No single wall"
    return (None, "Wall unknown") if dominant == "unknown" else (Wall(dominant), "-bound")


def describe_scope(analysis: Analysis) -> str:
    """Say at what share of the peak a step runs, what the verdict covers, and what holds a job up.

    It follows the two words of the verdict, and is empty where they are about all steps of all ranks, and
    none of this is known.
    """
    job = analysis.job
    is_held_up = job is not None and job.stragglers and job.leading[0].unit is not UnitKind.JOB
    held_up = f"because of {name_leading(job)}" if job is not None and is_held_up else ""
    parts = (
        _tell_peak(analysis),
        *_list_scope_parts(find_scope(analysis), analysis.anchor.window),
        held_up,
    )
    return ", ".join(filter(None, parts))


def _tell_peak(analysis: Analysis) -> str:
    """Say at what share of the peak a compute-bound step runs; empty if unknown, and of several ranks."""
    is_matched = analysis.job is not None and analysis.job.collectives.matched
    if is_matched or find_dominant(analysis) != Wall.COMPUTE:
        return ""
    return write_peak_share(analysis.ranks[analysis.diagnosis.rank_index].speed_of_light)


def covers_all_ranks(analysis: Analysis) -> bool:
    """Return whether the verdict covers all ranks of the job, so that the headline does not name any."""
    scope = find_scope(analysis)
    return scope.ranks == scope.of_ranks


def _list_scope_parts(scope: Scope, unit: str) -> Iterator[str]:
    """Say which time, ranks and files, where they are not all.

    >>> list(_list_scope_parts(Scope("start-up", 3, 1, 16, 1, 3, is_one_stage=True), "step"))
    ['before the first step', 'on rank 3 of 16 (one pipeline stage)', 'in 1 of 3 files']
    >>> list(_list_scope_parts(Scope("steps", 0, 1, 1, 1, 1, is_one_stage=False, covered_share=0.5), "step"))
    ['in 50.0 % of the capture']
    >>> list(_list_scope_parts(Scope("capture", None, 1, 4, 1, 1, is_one_stage=False), "capture"))
    ['over the whole capture', 'on 1 of 4 ranks']
    """
    if scope.time == "start-up":
        yield f"before the first {unit}"
    elif scope.covered_share is not None and scope.covered_share < LEAST_COVERED_SHARE:
        yield f"in {units.percent(scope.covered_share)} of the capture"
    elif scope.time != "steps":
        yield f"over the {'whole capture' if scope.time == 'capture' else 'selected time'}"
    if scope.ranks < scope.of_ranks:
        number = f"{scope.ranks}" if scope.rank is None else f"rank {scope.rank}"
        ranks = "" if scope.rank is not None else " ranks"
        yield f"on {number} of {scope.of_ranks}{ranks}{' (one pipeline stage)' if scope.is_one_stage else ''}"
    elif scope.is_one_stage:
        yield "on one pipeline stage"
    if scope.files < scope.of_files:
        yield f"in {scope.files} of {units.plural(scope.of_files, 'file')}"
