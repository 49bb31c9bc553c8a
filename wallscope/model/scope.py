"""What part of a run a verdict covers: which time, which ranks, which files.

A part of the published contract of `model.analysis`.
"""

from dataclasses import dataclass
from typing import Literal

CoveredTime = Literal["steps", "start-up", "capture", "selected-time"]


@dataclass(frozen=True, slots=True)
class Scope:
    """What the dominant wall is about.

    Attributes:
        time: the steps; the time before the first one (`start-up`); without steps, all that was captured or
            selected.
        rank: number of the rank, `None` if it is unknown or the verdict covers several.
        ranks: how many ranks it covers.
        of_ranks: how many ranks the job has, as far as known.
        files: how many files it covers.
        of_files: how many files were given, those that were left out included.
        is_one_stage: whether it covers one stage of a pipeline alone.
        covered_share: share of the time from the GPU's first to its last operation that the steady steps
            cover; `None` where ranges mark the steps, where the user chose them, and without steps.
    """

    time: CoveredTime
    rank: int | None
    ranks: int
    of_ranks: int
    files: int
    of_files: int
    is_one_stage: bool
    covered_share: float | None = None
