"""Recognize records whose time cannot be: profilers write some that they could not time, or time wrongly."""

from collections.abc import Iterable

import numpy as np

from wallscope.columns import Flags
from wallscope.records import dataclass
from wallscope.thresholds.causes import (
    CALLS_LEAD_NS,
    LATEST_RECORD_NS,
    LONGEST_RECORD_NS,
    LONGEST_SUM_NS,
    SURPLUS_NS,
)
from wallscope.trace.intervals import Times
from wallscope.units import plural


@dataclass(frozen=True, slots=True)
class RecordTimes:
    """Starts and ends of records of one kind, on the clock of the file; int64, ns."""

    start_ns: Times
    end_ns: Times


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How many records were left out: without a time, reversed, or when none of the capture can have run."""

    timeless: int = 0
    reversed: int = 0
    impossible: int = 0

    def __add__(self, other: "LeftOut") -> "LeftOut":
        """Return the sums."""
        return LeftOut(
            self.timeless + other.timeless,
            self.reversed + other.reversed,
            self.impossible + other.impossible,
        )

    @property
    def count(self) -> int:
        """All of them."""
        return self.timeless + self.reversed + self.impossible

    def describe(self, what: str) -> str:
        """Return what is wrong with the records as a part of a sentence, `what` names one.

        >>> LeftOut(timeless=1, reversed=3).describe("row")
        '1 row without a time, 3 rows that end before they start'
        """
        faults = (
            (self.timeless, "without a time"),
            (self.reversed, "that {verb} before {pronoun}"),
            (self.impossible, "outside of the capture"),
        )
        return ", ".join(
            f"{plural(count, what)} {fault}".format(
                verb="ends" if count == 1 else "end", pronoun="it starts" if count == 1 else "they start"
            )
            for count, fault in faults
            if count
        )


def count_time_faults(times: RecordTimes, is_kept: Flags) -> LeftOut:
    """Return how many records are not kept, for which reason."""
    timeless = int((~is_kept & (times.start_ns == 0) & (times.end_ns == 0)).sum())
    reversed_ = int((~is_kept & (times.end_ns < times.start_ns)).sum())
    return LeftOut(timeless, reversed_, int(is_kept.size - is_kept.sum()) - timeless - reversed_)


@dataclass(frozen=True, slots=True)
class Extent:
    """Between what records of a kind may run; `first_ns` is the first start but 0."""

    first_ns: int
    last_ns: int = LATEST_RECORD_NS + LONGEST_RECORD_NS


def find_extent(
    own: Iterable[RecordTimes], others: Iterable[RecordTimes], end_ns: int | None = None
) -> Extent:
    """Return the extent of records, such as those of devices, by all starts, and the ends of others.

    An end that is wrong can't prove itself: of devices the ends of calls count, of calls those of devices.

    Args:
        own: the records.
        others: those of other kinds.
        end_ns: the end of the capture, `None` if unknown.
    """
    witnesses = [_select_usable(times) for times in others]
    starts = [times.start_ns for times in (*map(_select_usable, own), *witnesses) if times.start_ns.size]
    if not starts:
        return Extent(0)
    first_ns, last_ns = min(int(one.min()) for one in starts), max(int(one.max()) for one in starts)
    ends = [int(times.end_ns.max()) for times in witnesses if times.end_ns.size]
    if end_ns is not None:
        ends.append(end_ns)
    return (
        Extent(first_ns, max(last_ns, *ends) + max(last_ns - first_ns, SURPLUS_NS))
        if ends
        else Extent(first_ns)
    )


def _select_usable(times: RecordTimes) -> RecordTimes:
    start_ns, end_ns = times.start_ns, times.end_ns
    if not start_ns.size or (start_ns.min() > 0 and max(start_ns.max(), end_ns.max()) < LATEST_RECORD_NS):
        return times
    is_usable = (start_ns != 0) & (np.abs(start_ns) < LATEST_RECORD_NS) & (end_ns < LATEST_RECORD_NS)
    return RecordTimes(start_ns[is_usable], end_ns[is_usable])


def mark_possible(times: RecordTimes, extent: Extent, lead_ns: int = CALLS_LEAD_NS) -> Flags:
    """Return which records may have run when they say.

    A start of 0 is possible only where the times of the capture begin there. Where the lengths of all could
    not be summed in 64 bits, the longest are impossible.

    Args:
        times: of the records.
        extent: between what they may run.
        lead_ns: how long before the first one a record at 0 may start.

    >>> times = RecordTimes(np.array([0, 9, 5, 5]) * 10**6, np.array([30, 7, 8, 10**12]) * 10**6)
    >>> mark_possible(times, Extent(5 * 10**6, 10**10)).tolist()
    [False, False, True, False]
    """
    start_ns, end_ns = times.start_ns, times.end_ns
    length_ns = end_ns - start_ns
    longest_ns = min(LONGEST_RECORD_NS, LONGEST_SUM_NS // max(start_ns.size, 1))
    is_usual = (
        start_ns.size > 0 and start_ns.min() > 0 and end_ns.max() <= min(extent.last_ns, LATEST_RECORD_NS)
    )
    if is_usual and length_ns.min() >= 0 and length_ns.max() < longest_ns:
        return np.ones(start_ns.size, np.bool_)
    is_possible: Flags = (length_ns >= 0) & (end_ns <= extent.last_ns)
    is_possible &= (np.abs(start_ns) < LATEST_RECORD_NS) & (length_ns < LONGEST_RECORD_NS)
    if extent.first_ns > 0:
        is_possible &= (start_ns != 0) | ((end_ns != 0) & (extent.first_ns <= lead_ns))
    if length_ns[is_possible].sum(dtype=np.float64) > LONGEST_SUM_NS:
        is_possible &= length_ns < longest_ns
    return is_possible
