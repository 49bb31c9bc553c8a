"""What is looked at of a job of several exports, from the profiles of its ranks alone."""

from collections.abc import Callable

import polars as pl

from wallscope.model.analysis import Analysis
from wallscope.model.exported import TABLES, Table
from wallscope.model.exported_job import JOB_TABLES
from wallscope.model.report import Report
from wallscope.profile import unpacked
from wallscope.ranks.job import MatchedJob, match_ranks
from wallscope.ranks.tables import collective_lanes, job_table
from wallscope.walls.diagnosis import dominant_wall
from wallscope.walls.exported import ANSWER_TABLES, answer_frame


def rejoined(analysis: Analysis) -> MatchedJob:
    """What the ranks of an answer tell together, out of the profiles in it.

    Raises:
        ProfileError: one is of another version.
    """
    profiles = [
        unpacked(rank.profile, analysis.inputs[rank.input].name)
        for rank in analysis.ranks
        if rank.profile is not None
    ]
    return match_ranks(profiles, dominant_wall, analysis.capture.world_size)


def tables_of(
    analysis: Analysis, known: MatchedJob
) -> tuple[tuple[Table, ...], Callable[[str], pl.DataFrame]]:
    """The tables that tell of a job, and what makes each: of its answer, and of its ranks together."""
    of_job = {table.name for table in JOB_TABLES}

    def frame(name: str) -> pl.DataFrame:
        return job_table(known, name) if name in of_job else answer_frame(analysis, name)

    return (*(table for table in TABLES if table.name in ANSWER_TABLES), *JOB_TABLES), frame


def job_report(analysis: Analysis, known: MatchedJob) -> Report:
    """The answer about a job with how its ranks met; timelines and gaps are of one export alone."""
    return Report(analysis, (), (), lanes=collective_lanes(known))
