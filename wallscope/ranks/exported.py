"""What ranks tell together as tables (`model.exported_job`) and as tracks of a trace."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from wallscope.model.exported_job import JOB_TABLES
from wallscope.model.kinds import Wall
from wallscope.model.trace import TRACED, Track
from wallscope.ranks.job import Together
from wallscope.timeline.spans import Times

_SCHEMAS = {table.name: table.schema for table in JOB_TABLES}


def job_frame(known: Together, name: str) -> pl.DataFrame:
    """One of `JOB_TABLES`, with the columns and types of its declaration."""
    found = _FRAMES[name](known)
    return found.select(_SCHEMAS[name].names()).cast(_SCHEMAS[name])


def _rows(name: str, nouns: Iterator[Any]) -> pl.DataFrame:
    schema = _SCHEMAS[name]
    told = [{column: _told(getattr(noun, column, None)) for column in schema} for noun in nouns]
    return pl.DataFrame(told, schema=schema)


def _told(value: Any) -> Any:
    return str(value) if isinstance(value, str) else value


def _groups(known: Together) -> pl.DataFrame:
    found = _rows("rank_groups", iter(known.job.groups))
    return found.with_columns(
        group=pl.int_range(pl.len()),
        count=pl.Series([len(group.places) for group in known.job.groups], dtype=pl.Int64),
    )


def _clocks(known: Together) -> pl.DataFrame:
    counts = [len(host.ranks) for host in known.job.clock.hosts]
    found = [(host.hostname, count, host.offset_ns, host.drift_ppm, host.matched)
             for host, count in zip(known.job.clock.hosts, counts, strict=True)]  # fmt: skip
    return pl.DataFrame(found, schema=_SCHEMAS["clocks"], orient="row")


def _meetings(known: Together) -> pl.DataFrame:
    ranks = pl.DataFrame(
        {
            "member": range(len(known.profiles)),
            "rank": [profile.header.rank for profile in known.profiles],
        },
        schema={"member": pl.UInt32, "rank": pl.Int32},
    )
    return (
        known.rows.sort("start_ns", "row")
        .join(ranks, on="member", how="left", maintain_order="left")
        .with_columns(
            place="member",
            session_ns="told_ns",
            communicator=pl.col("communicator").map_batches(_spelled, return_dtype=pl.String),
        )
    )


def _spelled(codes: pl.Series) -> pl.Series:
    distinct = codes.drop_nulls().unique()
    return codes.replace_strict(
        distinct, [f"{code:x}" for code in distinct], default=None, return_dtype=pl.String
    )


_FRAMES: Mapping[str, Callable[[Together], pl.DataFrame]] = {
    "waits": lambda known: _rows("waits", iter(known.job.members)),
    "late_ranks": lambda known: _rows("late_ranks", iter(known.job.stragglers)),
    "rank_groups": _groups,
    "clocks": _clocks,
    "meetings": _meetings,
}


def tracks(known: Together) -> tuple[Track, ...]:
    """A process a rank, with its steps and its collectives, on one clock.

    Ranks that nothing ties to the others are left out: their times mean nothing beside the others'.
    """
    found: list[Track] = []
    for member, rows in sorted(known.rows_of().items()):
        if not rows["is_tied"].all():
            continue
        place = len(found)
        found.append(Track(known.job.members[member].name, None, pid=member + 1))
        found.append(Track("steps", place, slices=_steps(known, member, rows)))
        found.append(Track("collectives", place, slices=_met(known, rows), nesting="nested"))
    return tuple(found)


def earliest_ns(found: Sequence[Track]) -> int:
    """The first begin of some tracks."""
    starts = [track.slices["start_ns"].min() for track in found if track.slices is not None]
    return min((start for start in starts if isinstance(start, int)), default=0)


def _met(known: Together, rows: pl.DataFrame) -> pl.DataFrame:
    """The collectives of a rank, and inside each that was matched what it waited and when bytes moved."""
    last = known.rows.filter("is_last").select("meeting", last="member")
    names = pl.Series([one.name for one in known.job.members])
    own = rows.join(last, on="meeting", how="left", maintain_order="left").with_columns(
        name=pl.when(pl.col("axis") == "unknown")
        .then(pl.col("operation").cast(pl.String))
        .otherwise(pl.format("{} {}", "axis", "operation")),
        joined=pl.col("end_ns") - pl.col("transfer_ns"),
    )
    matched = own.filter("is_whole")
    waited = matched.filter(pl.col("wait_ns") > 0).with_columns(
        name=pl.lit("waits for ") + names.gather(matched.filter(pl.col("wait_ns") > 0)["last"]),
        end_ns="joined",
    )
    moving = matched.with_columns(name=pl.lit("bytes move"), start_ns="joined")
    whole = [part.select("start_ns", "end_ns", "name", "bytes", "step") for part in (own, waited, moving)]
    return (
        pl.concat(whole)
        .with_columns(
            category=pl.lit("communication"),
            flows_out=pl.lit(None, pl.List(pl.UInt64)),
            flow_in=pl.lit(None, pl.UInt64),
            step=pl.col("step").cast(pl.Int64),
        )
        .select(*TRACED.names(), "bytes", "step")
        .sort("start_ns", "end_ns", "name", descending=[False, True, False])
    )


def _steps(known: Together, member: int, rows: pl.DataFrame) -> pl.DataFrame:
    """The steps of a rank, laid on the clock of its collectives."""
    steps = known.profiles[member].steps
    walls = [pl.col(f"{wall}_wall_ns").alias(f"{wall} ns") for wall in Wall]
    both = [_on_one_clock(steps[name].to_numpy(), rows) for name in ("start_ns", "end_ns")]
    told = steps.with_columns(
        pl.Series("start_ns", both[0]),
        pl.Series("end_ns", both[1]),
        *walls,
        name=pl.format("step {}", "step"),
        category=pl.when("steady").then(None).otherwise(pl.lit("does not count")),
        flows_out=pl.lit(None, pl.List(pl.UInt64)),
        flow_in=pl.lit(None, pl.UInt64),
    )
    return told.select(*TRACED.names(), *(f"{wall} ns" for wall in Wall)).sort("start_ns")


def _on_one_clock(at_ns: Times, rows: pl.DataFrame) -> Times:
    told = rows.sort("told_ns").unique("told_ns", maintain_order=True)
    told_ns = told["told_ns"].to_numpy()
    shift_ns = told["start_ns"].to_numpy() - told_ns
    moved: Times = np.rint(at_ns + np.interp(at_ns, told_ns, shift_ns)).astype(np.int64)
    return moved
