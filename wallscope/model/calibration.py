"""Which share of its bound a recommendation realized in the records of a project."""

from wallscope.records import dataclass


@dataclass(frozen=True, slots=True)
class FixCalibration:
    """Which share of its bound a recommendation realized in the cases of a store.

    `cases` are its applications that no other one was mixed with and whose bound was known. `low` and `high`
    are the smallest and the largest share, `median` the middle one. In `perhaps_chance` of the cases the 95 %
    interval of the gain holds none, or is unknown.
    """

    id: str
    cases: int
    low: float
    median: float
    high: float
    perhaps_chance: int = 0
