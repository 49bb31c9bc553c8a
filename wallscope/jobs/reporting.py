"""What is looked at of a job of several exports, from the profiles of its ranks alone."""

from wallscope.analysis import dominant
from wallscope.model.analysis import Analysis
from wallscope.model.report import Report
from wallscope.profile import unpacked
from wallscope.ranks import Together, lanes, together


def rejoined(analysis: Analysis) -> Together:
    """What the ranks of an answer tell together, out of the profiles in it.

    Raises:
        ProfileError: one is of another version.
    """
    profiles = [
        unpacked(rank.profile, analysis.inputs[rank.input].name)
        for rank in analysis.ranks
        if rank.profile is not None
    ]
    return together(profiles, dominant, analysis.capture.world_size)


def job_report(analysis: Analysis) -> Report:
    """The answer about a job with how its ranks met; timelines and gaps are of one export alone.

    Raises:
        ProfileError: a profile is of another version.
    """
    return Report(analysis, (), (), lanes(rejoined(analysis)))
