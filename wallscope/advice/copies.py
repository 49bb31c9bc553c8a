"""Measurements of the copies of a rank, for the conditions of fixes."""

from wallscope.model.analysis import Rank
from wallscope.model.enums import CopyDirection
from wallscope.thresholds.verdict import PAGEABLE_SHARE

_MIGRATIONS = (
    CopyDirection.MIGRATION_TO_DEVICE,
    CopyDirection.MIGRATION_TO_HOST,
    CopyDirection.MIGRATION_BETWEEN_DEVICES,
)


def list_pageable_directions(rank: Rank) -> tuple[str, ...]:
    """Return the directions with bulk copies and a large share of the bytes from or to pageable memory."""
    moved: dict[str, int] = {}
    pageable: dict[str, int] = {}
    for entry in rank.memory.copies:
        direction = str(entry.direction)
        moved[direction] = moved.get(direction, 0) + entry.bytes
        if entry.pinned is False and entry.bulk_bandwidth_bytes_per_s is not None:
            pageable[direction] = pageable.get(direction, 0) + entry.bytes
    return tuple(one for one, own in pageable.items() if own >= PAGEABLE_SHARE * moved[one])


def divide_copies_in(rank: Rank) -> float | None:
    """Return the time of host-to-device copies as a ratio to the compute work."""
    copied = [one for one in rank.memory.copies if one.direction == CopyDirection.HOST_TO_DEVICE]
    work_ns = sum(entry.work_ns for entry in rank.compute)
    return sum(one.work_ns for one in copied) / work_ns if work_ns else None


def sum_migrations(rank: Rank) -> tuple[float, float]:
    """Return the shares of the step with page migrations: exposed ones, and those under other work.

    A kernel waits for the pages that migrate under it, so its own time then contains that of the migration.
    """
    own = [one for one in rank.memory.copies if one.direction in _MIGRATIONS]
    step_ns = max(rank.typical.step_ns, 1)
    exposed_ns, work_ns = sum(one.exposed_ns for one in own), sum(one.work_ns for one in own)
    return exposed_ns / step_ns, (work_ns - exposed_ns) / step_ns
