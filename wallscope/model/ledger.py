"""The ledger of a store: recommendations that commits applied, and what they realized of their bounds.

These classes are the published JSON contract of `wallscope ledger`, field by field.
"""

from typing import Final, Literal

from wallscope.model.calibration import FixCalibration
from wallscope.model.comparison import AppliedFix, Verdict
from wallscope.records import dataclass

LEDGER_SCHEMA: Final = "wallscope.ledger/1"


@dataclass(frozen=True, slots=True)
class AppliedEntry:
    """A recommendation that was applied between two recorded commits of a testbed, given in words.

    `verdict` is that of comparing both commits, and `recorded_utc_ns` is when head was recorded.
    """

    testbed: str
    base: str
    head: str
    recorded_utc_ns: int
    verdict: Verdict
    applied: AppliedFix


@dataclass(frozen=True, slots=True)
class Ledger:
    """Applied recommendations, oldest first, and the calibration of each.

    `pairs` is how many pairs of neighboring commits were compared, and `without_fixes` how many bases have no
    recommendations, as in older records.
    """

    schema: Literal["wallscope.ledger/1"]
    wallscope_version: str
    pairs: int
    without_fixes: int
    entries: tuple[AppliedEntry, ...]
    calibration: tuple[FixCalibration, ...]
