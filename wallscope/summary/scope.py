"""Find what part of a run the verdict covers."""

import numpy as np

from wallscope.model.analysis import Analysis, Anchor, Rank
from wallscope.model.enums import Axis
from wallscope.model.finding_codes import FindingCode
from wallscope.model.scope import CoveredTime, Scope
from wallscope.summary.diagnosis import Decision, decide_wall, find_overall_wall
from wallscope.trace.intervals import Times


def find_scope(analysis: Analysis) -> Scope:
    """Return what the dominant wall is about: which time, which ranks, which files."""
    rank, job = analysis.ranks[analysis.diagnosis.rank_index], analysis.job
    is_matched = job is not None and job.collectives.matched > 0
    supplied = len(analysis.ranks)
    left_out = sum(one.code == FindingCode.EXPORT_LEFT_OUT for one in analysis.capture.findings)
    ranks = supplied if is_matched else 1
    return Scope(
        time=_find_time(analysis, rank, is_matched=is_matched),
        rank=rank.rank if ranks == 1 else None,
        ranks=ranks,
        of_ranks=max(analysis.capture.world_size or 1, supplied),
        files=len(analysis.inputs) if is_matched else 1,
        of_files=len(analysis.inputs) + left_out,
        is_one_stage=ranks == 1 and any(one.axis is Axis.PP for one in rank.communication.operations),
        covered_share=measure_covered_share(rank, analysis.anchor),
    )


def measure_covered_share(rank: Rank, anchor: Anchor) -> float | None:
    """Return the share of the time from first to last operation that the steady steps cover.

    `None` where ranges mark the steps, where the user selected time or steps, and without steady steps.
    """
    is_chosen = anchor.selected_time_ns is not None or anchor.selected_steps is not None
    steady_ns = sum(step.end_ns - step.start_ns for step in rank.steps if step.steady)
    if anchor.is_marked or is_chosen or not steady_ns:
        return None
    return steady_ns / (sum(step.end_ns - step.start_ns for step in rank.steps) + rank.outside_ns)


def _find_time(analysis: Analysis, rank: Rank, *, is_matched: bool) -> CoveredTime:
    """Return the time that the verdict is about: that before the steps if they alone have another wall."""
    if analysis.anchor.kind == "whole-trace":
        return "capture" if analysis.anchor.selected_time_ns is None else "selected-time"
    dominant = analysis.diagnosis.dominant_wall
    if is_matched or rank.whole_walls is None or find_overall_wall(rank) != dominant:
        return "steps"
    of_steps = decide_steady_steps(rank)
    return "steps" if of_steps is not None and of_steps.dominant == dominant else "start-up"


def decide_steady_steps(rank: Rank) -> Decision | None:
    """Return what decides the wall of the steady steps alone; `None` without any."""
    walls = list_steady_walls(rank)
    return decide_wall(walls, np.zeros((len(walls), 3), np.int64)) if len(walls) else None


def list_steady_walls(rank: Rank) -> Times:
    """Return ns of each wall in each steady step, columns in the order of `Wall`."""
    return np.array([step.walls.parts() for step in rank.steps if step.steady], dtype=np.int64)
