"""Which share of their bounds recommendations realized, by the applications of a ledger."""

from collections.abc import Iterable
from statistics import median

from wallscope.model.calibration import FixCalibration
from wallscope.model.ledger import AppliedEntry


def calibrate_fixes(entries: Iterable[AppliedEntry]) -> tuple[FixCalibration, ...]:
    """Return the calibration of each recommendation with a case, the most frequent first.

    A case is an application with a known bound and no other recommendation at the same time.
    """
    shares: dict[str, list[float]] = {}
    for entry in entries:
        if entry.applied.share is not None:
            shares.setdefault(entry.applied.id, []).append(entry.applied.share)
    found = [
        FixCalibration(name, len(own), min(own), float(median(own)), max(own)) for name, own in shares.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.cases, one.id)))
