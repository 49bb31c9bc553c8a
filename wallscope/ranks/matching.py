"""Which collectives of different ranks are one: by communicator and sequence, else by how they end.

Where payloads name communicators, the ranks of one went through the same collectives in the same order.
Else ranks that ran one kind of operation are a group where they end together, time and again.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from wallscope.ranks.pairing import Indices, Series, by_end, by_order, series_of

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
        group.with_columns(is_told=pl.lit(is_told))
        for alike, is_told in _alike(rows)
        for group in _groups(alike, is_told=is_told)
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


def _alike(rows: pl.DataFrame) -> Iterator[tuple[list[Series], bool]]:
    """Series that may be of one group, each of another rank or stream, and whether payloads say so."""
    known = rows.filter(pl.col("communicator").is_not_null())
    for own in known.partition_by("communicator", maintain_order=True):
        yield _series(own, ["member", "input"]), True
    unknown = rows.filter(pl.col("communicator").is_null())
    for own in unknown.partition_by("operation", "axis", "participants", maintain_order=True):
        yield _series(own, ["member", "input", "stream"]), False


def _series(rows: pl.DataFrame, by: list[str]) -> list[Series]:
    return [series_of(own) for own in rows.partition_by(by, maintain_order=True)]


def _groups(alike: list[Series], *, is_told: bool) -> Iterator[pl.DataFrame]:
    """The series put into groups, each laid beside the first of its group."""
    groups: list[list[tuple[Series, Indices]]] = []
    for series in alike:
        for group in groups:
            leader, _ = group[0]
            paired = _paired(leader, series, is_told=is_told)
            if paired is not None:
                places, others = paired
                numbers = np.full(len(series.rows), -1, np.int64)
                numbers[others] = places
                group.append((series, numbers))
                break
        else:
            groups.append([(series, np.arange(len(series.rows), dtype=np.int64))])
    for group in groups:
        if len(group) > 1:
            yield pl.DataFrame(
                {
                    "row": np.concatenate([series.rows for series, _ in group]),
                    "meeting": np.concatenate([numbers for _, numbers in group]),
                },
                schema={"row": pl.UInt32, "meeting": pl.Int64},
            ).filter(pl.col("meeting") >= 0)


def _paired(one: Series, other: Series, *, is_told: bool) -> tuple[Indices, Indices] | None:
    if one.clock != other.clock:
        return by_order(one, other, is_told=is_told)
    paired = by_end(one, other)
    if paired is None and is_told:  # sessions of one host may have been told to begin at the wrong moment
        paired = by_order(one, other, is_told=False)
    return paired
