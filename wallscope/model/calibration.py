"""Which share of its bound a recommendation realized in the records of a project."""

from wallscope.records import dataclass


@dataclass(frozen=True, slots=True)
class FixCalibration:
    """What share of its bound a recommendation realized in the cases in a store.

    `cases` counts applications of it alone whose bound was known. `low` and `high` are the smallest and
    largest share, `median` the middle one. In `perhaps_chance` of the cases, the 95 % interval of the gain
    contains zero or is unknown.
    """

    id: str
    cases: int
    low: float
    median: float
    high: float
    perhaps_chance: int = 0
