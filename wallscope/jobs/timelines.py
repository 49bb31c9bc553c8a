"""The steps of the ranks of a job on one clock, from what the analysis of each export kept at low detail."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from wallscope.model.profile import Profile
from wallscope.model.report import StepOverviews
from wallscope.ranks.job import MatchedJob
from wallscope.ranks.match_collectives import fit_line
from wallscope.views.step_overview import decode_overviews, order_by_places

_MOST_RANKS = 8


@dataclass(frozen=True, slots=True)
class RankClock:
    """What brings times of the session of a rank to the clock of the job: an offset, and a drift."""

    offset_ns: float
    drift: float

    def shift_ns(self, at_ns: int) -> int:
        """Return what to add to a time of the session."""
        return round(self.offset_ns + self.drift * at_ns)


def align_rank_clocks(known: MatchedJob) -> tuple[RankClock | None, ...]:
    """Return the clock of each rank, by matched collectives, else by the start of its session on one host.

    It is `None` where nothing ties the rank to the others.
    """
    of_member = known.rows_by_member()
    hosts = {profile.header.inputs[0].hostname for profile in known.profiles if profile.header.inputs}
    first_ns = _find_first_session(known.profiles)
    found: list[RankClock | None] = []
    for place, profile in enumerate(known.profiles):
        rows = of_member.get(place)
        tied = None if rows is None else rows.filter(pl.col("is_tied").fill_null(value=False))
        if tied is not None and len(tied):
            session_ns = tied["session_ns"].to_numpy()
            found.append(RankClock(*fit_line(session_ns, tied["start_ns"].to_numpy() - session_ns)))
            continue
        start_ns = _find_session(profile)
        is_one_clock = len(hosts) == 1 and None not in hosts and start_ns is not None
        found.append(RankClock(float((start_ns or 0) - first_ns), 0.0) if is_one_clock else None)
    return tuple(found)


def _find_session(profile: Profile) -> int | None:
    inputs = profile.header.inputs
    return inputs[0].session_start_utc_ns if inputs else None


def _find_first_session(profiles: Sequence[Profile]) -> int:
    known = [start_ns for profile in profiles if (start_ns := _find_session(profile)) is not None]
    return min(known, default=0)


def join_timelines(
    parts: Sequence[tuple[int, bytes | None]], known: MatchedJob, place: int
) -> StepOverviews | None:
    """Return the steps of some ranks on the clock of the job; `None` where no export kept any.

    Args:
        parts: the place of the first rank of each export, and what the export kept (`encode_overviews`).
        known: the matched job.
        place: the rank of the diagnosis; its steps come first.
    """
    read = [(first, decode_overviews(content)) for first, content in parts if content is not None]
    if not read:
        return None
    moved = [
        [frame.with_columns(pl.col("place") + first) for frame in (one.steps, one.slices, one.operations)]
        for first, one in read
    ]
    steps, slices, operations = (pl.concat(frames) for frames in zip(*moved, strict=True))
    shown = _choose_places(steps["place"].unique().to_list(), known, place)
    clocks = align_rank_clocks(known)
    shifts = [
        None if (clock := clocks[one]) is None else clock.shift_ns(start_ns)
        for one, start_ns in steps.select("place", "start_ns").iter_rows()
    ]
    steps = steps.with_columns(pl.Series("shift_ns", shifts, pl.Int64))
    return order_by_places(StepOverviews(steps, slices, operations), shown)


def _choose_places(drawn: Sequence[int], known: MatchedJob, place: int) -> list[int]:
    """Choose the rank of the diagnosis, late ranks, the critical one, those that represent groups, others."""
    job = known.job
    wanted = [place, *(one.place for one in job.stragglers), job.critical_place]
    wanted += [group.representative for group in job.groups]
    return [one for one in dict.fromkeys([*wanted, *sorted(drawn)]) if one in set(drawn)][:_MOST_RANKS]
