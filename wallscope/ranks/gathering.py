"""The collectives of all ranks of a job in one frame, on the clocks of their hosts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from wallscope.model.profile import BEFORE, INSIDE, RANK_COLLECTIVES, Profile, ProfiledInput

GATHERED: Final = pl.Schema(
    {
        "row": pl.UInt32(),
        "member": pl.UInt32(),  # place of the rank in the job
        "clock": pl.UInt32(),
        **{name: dtype for name, dtype in RANK_COLLECTIVES.items() if name not in {*BEFORE, *INSIDE}},
        **{f"at_{name.removeprefix('before_')}": pl.Int64() for name in BEFORE},  # owned until its begin
        **{f"out_{name.removeprefix('before_')}": pl.Int64() for name in BEFORE},  # owned until its end
    }
)
"""Rows of `RANK_COLLECTIVES` of all ranks; times count from the first start of a session."""

AT = tuple(name for name in GATHERED.names() if name.startswith("at_"))
OUT = tuple(name for name in GATHERED.names() if name.startswith("out_"))


@dataclass(frozen=True, slots=True)
class Gathered:
    """`GATHERED`, the host name of each clock that it counts by, and how many captures it is of."""

    rows: pl.DataFrame
    hostnames: tuple[str | None, ...]
    captures: int


def gathered(profiles: Sequence[Profile]) -> Gathered:
    """The collectives of the ranks of a job, in their order.

    Captures of one host count by one clock, from the start of their session on; where an export does not
    tell host or start it has a clock of its own.
    """
    keys: dict[tuple[str, str], int] = {}
    hostnames: list[str | None] = []
    known = [entry.session_start_utc_ns for profile in profiles for entry in profile.header.inputs]
    base_ns = min((start_ns for start_ns in known if start_ns is not None), default=0)
    frames = []
    for member, profile in enumerate(profiles):
        clocks, shifts = [], []
        for entry in profile.header.inputs:
            key = _clock_key(entry)
            if key not in keys:
                keys[key] = len(keys)
                hostnames.append(entry.hostname)
            clocks.append(keys[key])
            start_ns = entry.session_start_utc_ns
            shifts.append(0 if start_ns is None else start_ns - base_ns)
        frames.append(_placed(profile.collectives, member, clocks, shifts))
    together = pl.concat([GATHERED.to_frame().drop("row"), *frames])
    captures = {entry.fingerprint for profile in profiles for entry in profile.header.inputs}
    return Gathered(together.with_row_index("row").cast(GATHERED), tuple(hostnames), len(captures))


def _clock_key(entry: ProfiledInput) -> tuple[str, str]:
    if entry.hostname is None or entry.session_start_utc_ns is None:
        return "capture", entry.fingerprint
    return "host", entry.hostname


def _placed(table: pl.DataFrame, member: int, clocks: list[int], shifts: list[int]) -> pl.DataFrame:
    """A rank's collectives on its clock, with what each wall owned until the begin and the end of each."""
    if not clocks:
        return GATHERED.to_frame().drop("row")
    of_input = table["input"]
    shift_ns = pl.Series("shift", shifts, dtype=pl.Int64).gather(of_input)
    walls = [pl.col(before).cum_sum().over("input").alias(at) for before, at in zip(BEFORE, AT, strict=True)]
    return (
        table.sort("input", "place")
        .with_columns(
            pl.lit(member, pl.UInt32).alias("member"),
            pl.Series("clock", clocks, dtype=pl.UInt32).gather(of_input).alias("clock"),
            pl.col("start_ns") + shift_ns,
            pl.col("end_ns") + shift_ns,
            *walls,
        )
        .with_columns(
            (pl.col(at) + pl.col(inside)).alias(out) for at, inside, out in zip(AT, INSIDE, OUT, strict=True)
        )
        .select(name for name in GATHERED.names() if name != "row")
    )
