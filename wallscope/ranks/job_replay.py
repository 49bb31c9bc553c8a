"""Replay a job from the profiles of its ranks: what a step becomes if one unit works like its peers.

Each rank is a chain of its own time between the begins and ends of its communication: compute, and the rest.
It waits where communication was on its critical path. A meeting ends when its transfer, the shortest stay of
a participant, has passed since the last participant came. Unchanged, the replay gives the measured times.
If ranks are missing, the others do not wait for them as far as that leaves the step as it is.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import polars as pl

from wallscope.columns import Codes, Rows, sum_by_group
from wallscope.kernels import job_replay, views
from wallscope.model.profile import Profile
from wallscope.ranks.match_collectives import rows_by_member
from wallscope.ranks.rank_chains import BEGIN, RankChain, place_launches, read_chain
from wallscope.ranks.wait_split import StepSums
from wallscope.records import dataclass
from wallscope.thresholds.causes import CULPRIT_SHARE, MOST_REPLAYED_STEPS_COUNT
from wallscope.trace.intervals import Times

_KIND, _AWAITED_SHARE = ("operation", "axis", "stream"), 0.5
"""Operations of a kind that the program mostly waits for come at one place of it; others float around it."""
Part = Literal["compute_ns", "rest_ns", "transfer_ns"]


@dataclass(frozen=True, slots=True)
class OwnTimes:
    """What a change of a job changes: int64 ns of each event, without waiting, and of each meeting."""

    compute_ns: Times
    rest_ns: Times
    transfer_ns: Times

    def times_of(self, part: Part) -> Times:
        """Return one of the three, by name."""
        match part:
            case "compute_ns":
                return self.compute_ns
            case "rest_ns":
                return self.rest_ns
            case "transfer_ns":
                return self.transfer_ns

    def change(self, part: Part, at: Rows, times_ns: Times) -> "OwnTimes":
        """Return the times with others at some places of one part."""
        changed = self.times_of(part).copy()
        changed[at] = times_ns
        return OwnTimes(
            changed if part == "compute_ns" else self.compute_ns,
            changed if part == "rest_ns" else self.rest_ns,
            changed if part == "transfer_ns" else self.transfer_ns,
        )


@dataclass(frozen=True, slots=True)
class JobGraph:
    """A window of steps of all ranks; arrays as `kernels.job_replay.replay_ranks` takes them.

    Attributes:
        first_step: number of its first step.
        steps: how many steps each rank has in it.
        own: what is measured.
        event_step: int64[events]; the step that each is part of, from 0.
        meeting_step: int64[meetings]; the step in which the last participant begins, from 0.
        segment: int64[events]; a part of a rank's steps ends with each step, and with each begin of a stay of
            a kind that the program waits for.
        segment_ptr: int64[ranks + 1]; the first segment of each rank.
        segment_shape: int64[segments]; mostly equal only where the events of a segment are the same in turn.
        program: for each rank what its segments end with; ranks with one program can be compared.
        meeting_group: int64[meetings]; the group of ranks that meet, -1 for a stay that is alone.
        meeting_kind: int64[meetings]; equal where operation, axis, size and count of hosts are.
        meeting_bytes: int64[meetings]; the most that a participant says, 0 if unknown.
    """

    first_step: int
    steps: int
    own: OwnTimes
    event_ptr: Rows
    kind: Rows
    event_stay: Rows
    lag_ns: Times
    begin_ns: Times
    stay_rank: Rows
    stay_before: Rows
    gap_ns: Times
    stay_meeting: Rows
    exit_ns: Times
    alone_ns: Times
    member_ptr: Rows
    member: Rows
    event_step: Rows
    meeting_step: Rows
    segment: Rows
    segment_ptr: Rows
    segment_shape: Rows
    program: tuple[bytes, ...]
    meeting_group: Rows
    meeting_kind: Rows
    meeting_bytes: Rows

    def measure_step_ns(self, own: OwnTimes) -> float | None:
        """Return the mean step, in ns, from the last rank that begins to the last that ends, with such times.

        It is `None` if ranks wait for each other in a circle, as they do where stays were matched in error.
        """
        ranks, meetings, stays = self.event_ptr.size - 1, self.member_ptr.size - 1, self.stay_rank.size
        at_ns = np.zeros(self.kind.size, np.int64)
        at_ns[self.event_ptr[:-1]] = self.begin_ns
        done = job_replay.replay_ranks(
            *views(
                self.event_ptr,
                self.kind,
                self.event_stay,
                own.compute_ns + own.rest_ns,
                self.lag_ns,
                self.stay_rank,
                self.stay_before,
                self.gap_ns,
                self.stay_meeting,
                self.exit_ns,
                self.alone_ns,
                self.member_ptr,
                self.member,
                own.transfer_ns,
                at_ns,
                *(np.full(size, np.iinfo(np.int64).min // 2, np.int64) for size in (meetings, stays, stays)),
                *(np.zeros(size, np.int64) for size in (stays, stays, ranks, ranks, meetings, ranks)),
            )
        )
        if done < self.kind.size:
            return None
        last = self.event_ptr[1:] - 1
        return float((at_ns[last] + self.lag_ns[last]).max() - self.begin_ns.max()) / self.steps

    def shows_begins(self, step_ns: float) -> bool:
        """Return whether the window shows why ranks begin late: a step before, or about one begin of all."""
        return self.steps > 1 or float(np.ptp(self.begin_ns)) < CULPRIT_SHARE * step_ns

    def sum_steps(self, part: Part, at: Rows, times_ns: Times) -> Times:
        """Return times of some events, or meetings, summed by step, int64[steps]."""
        step = self.meeting_step if part == "transfer_ns" else self.event_step
        return sum_by_group(step[at], times_ns, self.steps)

    def sum_segments(self, times_ns: Times) -> Times:
        """Return times of events summed by segment, int64[segments]."""
        return sum_by_group(self.segment, times_ns, int(self.segment_ptr[-1]))


def build_job_graph(
    rows: pl.DataFrame, profiles: Sequence[Profile], steps: Sequence[StepSums]
) -> JobGraph | None:
    """Return the graph of the steps that all ranks have; `None` without any.

    Args:
        rows: the split collectives of all ranks on one clock (`MatchedJob.rows`).
        profiles: of the ranks.
        steps: the deciding steps of each rank.
    """
    window = _find_window(profiles, steps)
    if window is None:
        return None
    if any(_lacks_window(profile, window) for profile in profiles):
        return None
    is_of_program = (pl.col("blocking_ns") > 0).mean().over(_KIND) >= _AWAITED_SHARE
    marked = rows.with_columns(is_of_program=is_of_program)
    own, nothing = rows_by_member(marked), marked.clear()
    chains = _join_chains(
        place_launches(
            [read_chain(own.get(member, nothing), one, window) for member, one in enumerate(profiles)]
        )
    )
    stays = chains.stays
    if stays.is_empty():
        return None
    meetings = _number_meetings(stays)
    meeting, count = meetings.meeting, int(meetings.meeting.max()) + 1
    start_ns, end_ns = stays["start_ns"].to_numpy(), stays["end_ns"].to_numpy()
    residence_ns = end_ns - start_ns
    came_ns = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(came_ns, meeting, start_ns)
    transfer_ns = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(transfer_ns, meeting, residence_ns)
    exit_ns = end_ns - came_ns[meeting] - transfer_ns[meeting]
    leaves_early = end_ns < came_ns[meeting]
    is_begin = chains.kind == BEGIN
    meeting_step = np.zeros(count, np.int64)
    np.maximum.at(meeting_step, meeting[chains.event_stay[is_begin]], chains.event_step[is_begin])
    graph = JobGraph(
        first_step=window[0],
        steps=window[1] - window[0] + 1,
        own=OwnTimes(chains.compute_ns, chains.rest_ns, transfer_ns),
        event_ptr=chains.event_ptr,
        kind=chains.kind,
        event_stay=chains.event_stay,
        lag_ns=chains.lag_ns,
        begin_ns=chains.begin_ns,
        stay_rank=stays["member"].to_numpy().astype(np.int64),
        stay_before=chains.stay_before,
        gap_ns=chains.gap_ns,
        stay_meeting=meeting,
        exit_ns=exit_ns,
        alone_ns=np.where(leaves_early, residence_ns, -1),
        member_ptr=np.concatenate(([0], np.cumsum(np.bincount(meeting, minlength=count)))),
        member=np.argsort(meeting, kind="stable"),
        event_step=chains.event_step,
        meeting_step=meeting_step,
        segment=chains.segment,
        segment_ptr=chains.segment_ptr,
        segment_shape=chains.segment_shape,
        program=chains.program,
        meeting_group=meetings.group,
        meeting_kind=meetings.kind,
        meeting_bytes=meetings.sent_bytes,
    )
    return _free_alone(graph, meetings.like)


@dataclass(frozen=True, slots=True)
class _JoinedChains:
    """The chains of all ranks one after the other, as in `JobGraph`, and their stays."""

    stays: pl.DataFrame
    event_ptr: Rows
    kind: Rows
    event_stay: Rows
    compute_ns: Times
    rest_ns: Times
    lag_ns: Times
    begin_ns: Times
    stay_before: Rows
    gap_ns: Times
    event_step: Rows
    segment: Rows
    segment_ptr: Rows
    segment_shape: Rows
    program: tuple[bytes, ...]


def _join_chains(ranks: Sequence[RankChain]) -> _JoinedChains:
    first_stay = _count_up([len(rank.stays) for rank in ranks])
    segment_ptr = _count_up([rank.segments for rank in ranks])
    before, gap_ns = zip(*(rank.find_before() for rank in ranks), strict=True)
    return _JoinedChains(
        stays=pl.concat([rank.stays for rank in ranks]),
        event_ptr=_count_up([rank.kind.size for rank in ranks]),
        kind=np.concatenate([rank.kind for rank in ranks], dtype=np.int64),
        event_stay=_join_rows([rank.stay for rank in ranks], first_stay),
        compute_ns=np.concatenate([rank.compute_ns for rank in ranks]),
        rest_ns=np.concatenate([rank.rest_ns for rank in ranks]),
        lag_ns=np.concatenate([rank.lag_ns for rank in ranks]),
        begin_ns=np.array([rank.begin_ns for rank in ranks], np.int64),
        stay_before=_join_rows(before, first_stay),
        gap_ns=np.concatenate(gap_ns),
        event_step=np.concatenate([rank.number_steps() for rank in ranks]),
        segment=_join_rows([rank.number_segments() for rank in ranks], segment_ptr),
        segment_ptr=segment_ptr,
        segment_shape=np.concatenate([rank.mix_segments() for rank in ranks]),
        program=tuple(rank.program for rank in ranks),
    )


def _count_up(sizes: Sequence[int]) -> Rows:
    """Return where each of some parts begins, and then the end of the last, int64."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def _join_rows(parts: Sequence[Codes], first: Rows) -> Rows:
    """Return the rows in all of those in each part, -1 where that is none, int64."""
    joined = np.concatenate(parts, dtype=np.int64)
    added = np.repeat(first[:-1], [part.size for part in parts])
    return np.where(joined >= 0, joined + added, -1)


def _free_alone(graph: JobGraph, like: Rows) -> JobGraph:
    """Return the graph in which ranks wait for no rank that is missing, where the step stays about the same.

    Stays that are alone then take what like meetings transfer: their measured waiting would hide what a
    repair gains. Where the step becomes shorter, missing ranks may hold the job up: it stays.

    Args:
        graph: of the measured times.
        like: int64[meetings]; equal where operation, axis and bytes are.
    """
    transfer_ns = graph.own.transfer_ns
    is_met = graph.meeting_group >= 0
    usual = pl.DataFrame({"like": like, "ns": np.where(is_met, transfer_ns, -1)}).select(
        pl.col("ns").replace(-1, None).median().over("like")
    ).to_series().fill_null(np.inf).to_numpy()  # fmt: skip
    at = np.flatnonzero(~is_met & (transfer_ns > usual))
    if not at.size:
        return graph
    freed = replace(graph, own=graph.own.change("transfer_ns", at, np.rint(usual[at]).astype(np.int64)))
    before_ns, after_ns = graph.measure_step_ns(graph.own), freed.measure_step_ns(freed.own)
    if before_ns is None or after_ns is None or before_ns - after_ns >= CULPRIT_SHARE * before_ns:
        return graph
    return freed


def _find_window(profiles: Sequence[Profile], steps: Sequence[StepSums]) -> tuple[int, int] | None:
    """Return the first and last of the steps that decide for all ranks; of many the first ones.

    The last step of a capture ends otherwise than the others, where the next does not begin: it is left out.
    """
    own = [one.deciding.filter(pl.col("input") == 0)["step"] for one in steps]
    if any(numbers.is_empty() for numbers in own):
        return None
    first = max(int(numbers.to_numpy().min()) for numbers in own)
    last = min(int(numbers.to_numpy().max()) for numbers in own)
    if last > first and any(last == profile.steps["step"].max() for profile in profiles):
        last -= 1
    return (first, min(last, first + MOST_REPLAYED_STEPS_COUNT - 1)) if last >= first else None


def _lacks_window(profile: Profile, window: tuple[int, int]) -> bool:
    """Return whether a profile lacks steps of a window, as if its deciding steps come from other captures."""
    own = profile.steps.filter((pl.col("input") == 0) & pl.col("step").is_between(*window))
    return len(own) != window[1] - window[0] + 1


@dataclass(frozen=True, slots=True)
class _Meetings:
    meeting: Rows
    group: Rows
    kind: Rows
    like: Rows
    sent_bytes: Rows


def _number_meetings(stays: pl.DataFrame) -> _Meetings:
    """Return meeting of each stay, group and kind of each meeting; one that lacks a stay is none.

    Meetings are `like` others of their operation, axis and bytes, also where stays are lacking.
    """
    sized = stays.select(
        "row", "meeting", "group", "operation", "axis", "bytes", "clock", "is_whole",
        size=pl.len().over("meeting"),
    )  # fmt: skip
    met = pl.col("is_whole") & (pl.col("size") > 1)
    numbered = sized.with_columns(
        own=pl.when(met).then(pl.col("meeting").cast(pl.Int64)).otherwise(-1 - pl.col("row").cast(pl.Int64)),
        hosts=pl.col("clock").n_unique().over("meeting"),
        is_met=met,
    ).with_columns(number=pl.col("own").rank("dense").cast(pl.Int64) - 1)
    kinds = numbered.group_by("number").agg(
        pl.when(pl.col("is_met").first()).then(pl.col("group").first()).cast(pl.Int64).fill_null(-1).alias("group"),
        kind=pl.struct(
            pl.col("operation").first(),
            pl.col("axis").first(),
            pl.col("size").first(),
            pl.col("hosts").first(),
        ),
        like=pl.struct(
            pl.col("operation").first(),
            pl.col("axis").first(),
            pl.col("bytes").max(),
        ),
        bytes=pl.col("bytes").max().fill_null(0),
    ).sort("number").with_columns(pl.col("kind", "like").rank("dense").cast(pl.Int64))  # fmt: skip
    return _Meetings(
        numbered["number"].to_numpy(),
        kinds["group"].to_numpy(),
        kinds["kind"].to_numpy(),
        kinds["like"].to_numpy(),
        kinds["bytes"].to_numpy(),
    )
