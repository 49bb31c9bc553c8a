"""Which share of their bounds recommendations realized, by the applications of a ledger."""

from collections.abc import Iterable
from statistics import median

from wallscope.model.calibration import FixCalibration
from wallscope.model.comparison import is_perhaps_chance
from wallscope.model.ledger import AppliedEntry


def calibrate_fixes(entries: Iterable[AppliedEntry]) -> tuple[FixCalibration, ...]:
    """Return the calibration of each recommendation with a case, the most frequent first.

    A case is an application with a known bound and no other recommendation at the same time.
    """
    cases: dict[str, list[tuple[float, bool]]] = {}
    for entry in entries:
        if entry.applied.share is not None:
            case = entry.applied.share, is_perhaps_chance(entry.applied)
            cases.setdefault(entry.applied.id, []).append(case)
    found = []
    for name, own in cases.items():
        shares = [share for share, _ in own]
        chance = sum(is_chance for _, is_chance in own)
        found.append(FixCalibration(name, len(own), min(shares), float(median(shares)), max(shares), chance))
    return tuple(sorted(found, key=lambda one: (-one.cases, one.id)))
