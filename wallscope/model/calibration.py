"""Which share of its bound a recommendation realized in the records of a project."""

from wallscope.records import dataclass


@dataclass(frozen=True, slots=True)
class FixCalibration:
    """Which share of its bound a recommendation realized in the cases of a store.

    `cases` are its applications that no other one was mixed with and whose bound was known. `low` and `high`
    are the smallest and the largest share, `median` the middle one.
    """

    id: str
    cases: int
    low: float
    median: float
    high: float
