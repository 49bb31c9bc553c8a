"""Turn a job into tables (`model.table_columns`) and tracks of a trace, and list collectives of one step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from wallscope.model.enums import Wall
from wallscope.model.report import MEETING_LANES, TRACED, Track
from wallscope.model.table_columns import JOB_TABLES
from wallscope.ranks.job import MatchedJob
from wallscope.trace.intervals import Times

_SCHEMAS = {table.name: table.schema for table in JOB_TABLES}


def job_table(known: MatchedJob, name: str) -> pl.DataFrame:
    """Return one of `JOB_TABLES`, with the columns and types of its declaration."""
    found = _FRAMES[name](known)
    return found.select(_SCHEMAS[name].names()).cast(_SCHEMAS[name])


def _tabulate_models(name: str, models: Iterator[Any]) -> pl.DataFrame:
    schema = _SCHEMAS[name]
    rows = [{column: _plain(getattr(model, column, None)) for column in schema} for model in models]
    return pl.DataFrame(rows, schema=schema)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, str) else value


def _groups(known: MatchedJob) -> pl.DataFrame:
    found = _tabulate_models("rank_groups", iter(known.job.groups))
    return found.with_columns(
        group=pl.int_range(pl.len()),
        count=pl.Series([len(group.places) for group in known.job.groups], dtype=pl.Int64),
    )


def _clocks(known: MatchedJob) -> pl.DataFrame:
    counts = [len(host.ranks) for host in known.job.clock.hosts]
    found = [(host.hostname, count, host.offset_ns, host.drift_ppm, host.matched)
             for host, count in zip(known.job.clock.hosts, counts, strict=True)]  # fmt: skip
    return pl.DataFrame(found, schema=_SCHEMAS["clocks"], orient="row")


def _meetings(known: MatchedJob) -> pl.DataFrame:
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
            communicator=pl.col("communicator").map_batches(_spell_codes, return_dtype=pl.String),
        )
    )


def _spell_codes(codes: pl.Series) -> pl.Series:
    distinct = codes.drop_nulls().unique()
    return codes.replace_strict(
        distinct, [f"{code:x}" for code in distinct], default=None, return_dtype=pl.String
    )


_FRAMES: Mapping[str, Callable[[MatchedJob], pl.DataFrame]] = {
    "waits": lambda known: _tabulate_models("waits", iter(known.job.members)),
    "late_units": lambda known: _tabulate_models("late_units", iter(known.job.stragglers)),
    "rank_groups": _groups,
    "clocks": _clocks,
    "meetings": _meetings,
}


def job_tracks(known: MatchedJob) -> tuple[Track, ...]:
    """Return a process per rank, with its steps and its collectives, on one clock.

    Ranks whose clock is not aligned with the others are excluded: their times cannot be compared.
    """
    found: list[Track] = []
    for member, rows in sorted(known.rows_by_member().items()):
        if not rows["is_tied"].all():
            continue
        place = len(found)
        found.append(Track(known.job.members[member].name, None, pid=member + 1))
        found.append(Track("steps", place, slices=_build_step_track(known, member, rows)))
        found.append(Track("collectives", place, slices=_collective_slices(known, rows), nesting="nested"))
    return tuple(found)


def earliest_ns(found: Sequence[Track]) -> int:
    """Return the first begin of some tracks, in ns."""
    starts = [track.slices["start_ns"].min() for track in found if track.slices is not None]
    return min((start for start in starts if isinstance(start, int)), default=0)


def _collective_slices(known: MatchedJob, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the collectives of a rank, and inside each matched one its waiting and its transfer."""
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


def _build_step_track(known: MatchedJob, member: int, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the steps of a rank on the clock of its collectives."""
    steps = known.profiles[member].steps
    walls = [pl.col(f"{wall}_wall_ns").alias(f"{wall} ns") for wall in Wall]
    both = [_on_one_clock(steps[name].to_numpy(), rows) for name in ("start_ns", "end_ns")]
    rows = steps.with_columns(
        pl.Series("start_ns", both[0]),
        pl.Series("end_ns", both[1]),
        *walls,
        name=pl.format("step {}", "step"),
        category=pl.when("steady").then(None).otherwise(pl.lit("does not count")),
        flows_out=pl.lit(None, pl.List(pl.UInt64)),
        flow_in=pl.lit(None, pl.UInt64),
    )
    return rows.select(*TRACED.names(), *(f"{wall} ns" for wall in Wall)).sort("start_ns")


def _on_one_clock(at_ns: Times, rows: pl.DataFrame) -> Times:
    known = rows.sort("session_ns").unique("session_ns", maintain_order=True)
    session_ns = known["session_ns"].to_numpy()
    shift_ns = known["start_ns"].to_numpy() - session_ns
    moved: Times = np.rint(at_ns + np.interp(at_ns, session_ns, shift_ns)).astype(np.int64)
    return moved


_OF_LANES = (
    "meeting", "member", "input", "step", "start_ns", "end_ns", "wait_ns", "is_last", "is_whole",
)  # fmt: skip
_MOST_RANKS, _MOST_ROWS = 24, 2_400
_OF_A_KIND = 6


def collective_lanes(known: MatchedJob) -> pl.DataFrame:
    """Return the collectives of some ranks (`MEETING_LANES`) in a step of one; empty if none was matched.

    The step is a typical late one of the worst late rank, else an ordinary one of the critical rank. The
    ranks are late ranks, representatives of groups, and their peers.
    """
    whole = known.rows.select(_OF_LANES).filter("is_whole")
    if whole.is_empty():
        return MEETING_LANES.to_frame()
    stragglers = known.job.stragglers
    place = stragglers[0].place if stragglers else known.job.critical_place
    chosen = _list_step_collectives(known, whole, place)
    met = whole.filter(pl.col("meeting").is_in(chosen["meeting"].implode()))
    begin_ns, until_ns = met.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    shown = _choose_members(known, place, met["member"].unique().to_list())
    rows = known.rows.filter(
        pl.col("member").is_in(shown)
        & (pl.col("start_ns") <= until_ns)
        & (pl.col("end_ns") >= begin_ns)
        & pl.col("is_tied").fill_null(value=False)
    ).sort("start_ns", "row")
    last = whole.filter("is_last").select("meeting", last="member")
    met = rows.select(pl.col("meeting").unique())
    counts = known.rows.select("meeting").join(met, on="meeting").group_by("meeting").agg(ranks=pl.len())
    return (
        rows.head(_MOST_ROWS)
        .join(last, on="meeting", how="left", maintain_order="left")
        .join(counts, on="meeting", how="left", maintain_order="left")
        .with_columns(pl.col("start_ns", "end_ns") - begin_ns)
        .select(MEETING_LANES.names())
        .cast(MEETING_LANES)
    )


def _list_step_collectives(known: MatchedJob, whole: pl.DataFrame, place: int) -> pl.DataFrame:
    """Return the collectives of a rank in the step that represents its lateness."""
    own = whole.filter((pl.col("member") == place) & pl.col("step").is_not_null())
    if own.is_empty():
        return whole.sort("start_ns").head(1)
    steps = known.steps[place].deciding
    sums = (
        whole.filter(pl.col("meeting").is_in(own.filter("is_last")["meeting"].implode()) & ~pl.col("is_last"))
        .group_by("meeting")
        .agg(waited=pl.col("wait_ns").median())
    )
    late = own.join(sums, on="meeting", how="left").group_by("input", "step").agg(pl.col("waited").sum())
    by_step = late.join(steps, on=["input", "step"]).sort("input", "step")
    if by_step.is_empty():
        by_step = late.sort("input", "step")
    waited = by_step["waited"].fill_null(0).to_numpy()
    is_late = waited > 0
    known_ns = [one.saved_ns for one in known.job.stragglers if one.place == place]
    usual = float(known_ns[0] if known_ns else np.median(waited[is_late]) if is_late.any() else 0.0)
    nearest = int(np.abs(np.where(is_late | ~is_late.any(), waited, np.inf) - usual).argmin())
    return own.join(by_step[nearest : nearest + 1].select("input", "step"), on=["input", "step"])


def _choose_members(known: MatchedJob, place: int, met: Sequence[int]) -> list[int]:
    late = [one.place for one in known.job.stragglers[:_OF_A_KIND]]
    representatives = [group.representative for group in known.job.groups[:_OF_A_KIND]]
    wanted = [place, *late, known.job.critical_place, *representatives, *sorted(met), *range(known.job.ranks)]
    return sorted(list(dict.fromkeys(wanted))[:_MOST_RANKS])
