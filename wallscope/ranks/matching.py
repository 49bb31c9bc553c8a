"""Which collectives of different ranks are one: by communicator and sequence, else by how they end.

Where payloads name communicators, the ranks of one went through the same collectives in the same order.
Else ranks that ran one kind of operation are a group where they end together, time and again.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.ranks.pairing import Laid, Series, by_end, by_order, series_of
from wallscope.thresholds import EVEN_GROUP_NS, EVEN_GROUP_RATIO

MEETINGS = pl.Schema(
    {
        "row": pl.UInt32(),
        "meeting": pl.UInt32(),  # collectives of several ranks that are one
        "group": pl.UInt32(),  # of meetings of the same ranks
        "is_told": pl.Boolean(),  # whether a communicator told it
    }
)
"""The rows of `GATHERED` that were matched."""


def meetings(rows: pl.DataFrame) -> pl.DataFrame:
    """The meetings (`MEETINGS`) of the collectives of a job (`GATHERED`)."""
    found = [
        group.with_columns(is_told=pl.lit(alike.is_told))
        for alike in _alike(rows)
        for group in _groups(alike)
    ]
    if not found:
        return MEETINGS.to_frame()
    numbered = pl.concat([group.with_columns(group=pl.lit(number)) for number, group in enumerate(found)])
    members = rows.select("row", "member")
    return (
        numbered.join(members, on="row")
        .filter(pl.col("member").n_unique().over("group", "meeting") > 1)
        .with_columns(meeting=pl.struct("group", "meeting").rank("dense") - 1)
        .select(MEETINGS.names())
        .cast(MEETINGS)
        .sort("meeting", "row")
    )


@dataclass(frozen=True, slots=True)
class _Alike:
    """Series that may be of one group, each of another rank or stream.

    `is_told` says that payloads name the group; `participants` is its size, where known.
    """

    series: list[Series]
    is_told: bool
    participants: int | None


def _alike(rows: pl.DataFrame) -> Iterator[_Alike]:
    known = rows.filter(pl.col("communicator").is_not_null())
    for own in known.partition_by("communicator", maintain_order=True):
        yield _Alike(_series(own, ["member", "input"]), is_told=True, participants=None)
    unknown = rows.filter(pl.col("communicator").is_null())
    for own in unknown.partition_by("operation", "axis", "participants", maintain_order=True):
        size = own["participants"][0]
        yield _Alike(_series(own, ["member", "input", "stream"]), is_told=False, participants=size)


def _series(rows: pl.DataFrame, by: list[str]) -> list[Series]:
    return [series_of(own) for own in rows.partition_by(by, maintain_order=True)]


def _groups(alike: _Alike) -> Iterator[pl.DataFrame]:
    """The series put into groups, each laid beside the first of its group.

    The first that is left takes those that keep the most even distance to it: as many as the group has
    participants, or all that are about as even as the best.
    """
    left = list(range(len(alike.series)))
    while len(left) > 1:
        leader = left.pop(0)
        found = [(laid, other) for other in left if (laid := _laid(alike, leader, other)) is not None]
        found.sort(key=lambda entry: (entry[0].spread_ns, entry[1]))
        taken = {alike.series[leader].member: (leader, np.arange(len(alike.series[leader].rows)))}
        for laid, other in found:
            is_even = (
                alike.is_told or laid.spread_ns <= EVEN_GROUP_RATIO * found[0][0].spread_ns + EVEN_GROUP_NS
            )
            if (
                alike.series[other].member in taken
                or len(taken) == alike.participants
                or not (is_even or alike.participants)
            ):
                continue
            numbers = np.full(len(alike.series[other].rows), -1, np.int64)
            numbers[laid.others] = laid.places
            taken[alike.series[other].member] = (other, numbers)
        left = [place for place in left if all(place != one for one, _ in taken.values())]
        if len(taken) > 1:
            yield pl.DataFrame(
                {
                    "row": np.concatenate([alike.series[place].rows for place, _ in taken.values()]),
                    "meeting": np.concatenate([numbers for _, numbers in taken.values()]),
                },
                schema={"row": pl.UInt32, "meeting": pl.Int64},
            ).filter(pl.col("meeting") >= 0)


def _laid(alike: _Alike, leader: int, place: int) -> Laid | None:
    one, other = alike.series[leader], alike.series[place]
    if one.member == other.member:
        return None
    if one.clock != other.clock:
        return by_order(one, other, is_told=alike.is_told)
    laid = by_end(one, other, is_sized=alike.is_told or alike.participants is not None)
    if laid is None and alike.is_told:  # sessions of one host may have been told to begin at the wrong moment
        laid = by_order(one, other, is_told=False)
    return laid
