"""Replay a job from the profiles of its ranks: what a step becomes if one unit works like its peers.

Each rank is a chain of its own time between the begins and ends of its communication: compute, and the rest.
It waits where communication was on its critical path. A meeting ends when its transfer, the shortest stay of
a participant, has passed since the last participant came. Unchanged, the replay gives the measured times.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from wallscope.columns import Flags, Rows, as_integers
from wallscope.kernels import job_replay, views
from wallscope.model.enums import Wall
from wallscope.model.profile import Profile
from wallscope.ranks.match_collectives import AT, OUT
from wallscope.ranks.wait_split import StepSums
from wallscope.records import dataclass
from wallscope.thresholds.causes import CULPRIT_SHARE, MOST_REPLAYED_STEPS_COUNT, QUEUED_STAY_NS
from wallscope.trace.intervals import Times

PASS, _BEGIN, _AWAIT = 0, 1, 2
"""What events are; a step begins with a pass, and the last one ends the window."""
_COMPUTE, _COMMUNICATION = (list(Wall).index(wall) for wall in (Wall.COMPUTE, Wall.COMMUNICATION))
_WALLS = [f"{wall}_wall_ns" for wall in Wall]


@dataclass(frozen=True, slots=True)
class OwnTimes:
    """What a change of a job changes: int64 ns of each event, without waiting, and of each meeting."""

    compute_ns: Times
    rest_ns: Times
    transfer_ns: Times


@dataclass(frozen=True, slots=True)
class JobGraph:
    """A window of steps of all ranks; arrays as `kernels.job_replay.replay_ranks` takes them.

    Attributes:
        first_step: number of its first step.
        steps: how many steps each rank has in it.
        own: what is measured.
        segment: int64[events]; a part of a rank's steps ends with each step, and with each begin of a stay of
            a kind that the program waits for.
        segment_ptr: int64[ranks + 1]; the first segment of each rank.
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
    stay_meeting: Rows
    exit_ns: Times
    alone_ns: Times
    member_ptr: Rows
    member: Rows
    segment: Rows
    segment_ptr: Rows
    program: tuple[bytes, ...]
    meeting_group: Rows
    meeting_kind: Rows
    meeting_bytes: Rows

    def measure_step_ns(self, own: OwnTimes) -> float | None:
        """Return the mean step, in ns, from the last rank that begins to the last that ends, with such times.

        It is `None` if ranks wait for each other in a circle, as they do where stays were matched in error.
        """
        ranks, meetings = self.event_ptr.size - 1, self.member_ptr.size - 1
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
                self.stay_meeting,
                self.exit_ns,
                self.alone_ns,
                self.member_ptr,
                self.member,
                own.transfer_ns,
                at_ns,
                np.full(meetings, np.iinfo(np.int64).min // 2, np.int64),
                np.zeros(self.stay_rank.size, np.int64),
                *(np.zeros(size, np.int64) for size in (ranks, ranks, meetings, ranks)),
            )
        )
        if done < self.kind.size:
            return None
        last = self.event_ptr[1:] - 1
        return float((at_ns[last] + self.lag_ns[last]).max() - self.begin_ns.max()) / self.steps

    def shows_begins(self, step_ns: float) -> bool:
        """Return whether the window shows why ranks begin late: a step before, or about one begin of all."""
        return self.steps > 1 or float(np.ptp(self.begin_ns)) < CULPRIT_SHARE * step_ns

    def sum_steps(self, places: Sequence[int], times_ns: Times) -> Times:
        """Return times of events of some ranks summed by step, int64[steps]."""
        sums = np.zeros(self.steps, np.int64)
        for place in places:
            span = slice(self.event_ptr[place], self.event_ptr[place + 1])
            steps = np.flatnonzero(self.kind[span] == PASS)[:-1]
            sums += np.add.reduceat(times_ns[span][1:], steps)
        return sums

    def sum_meetings(self, times_ns: Times) -> Times:
        """Return times of meetings summed by the step in which the last participant begins, int64."""
        begins = np.flatnonzero(self.kind == _BEGIN)
        passed = np.cumsum(self.kind == PASS)
        ranks = np.searchsorted(self.event_ptr, begins, side="right") - 1
        before = np.concatenate(([0], passed))[self.event_ptr[ranks]]
        step = np.zeros(times_ns.size, np.int64)
        meeting = self.stay_meeting[self.event_stay[begins]]
        np.maximum.at(step, meeting, np.minimum(passed[begins] - before, self.steps) - 1)
        sums = np.zeros(self.steps, np.int64)
        np.add.at(sums, step, times_ns)
        return sums

    def sum_segments(self, times_ns: Times) -> Times:
        """Return times of events summed by segment, int64[segments]."""
        sums = np.zeros(int(self.segment_ptr[-1]), np.int64)
        np.add.at(sums, self.segment, times_ns)
        return sums


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
    rows = rows.with_columns(is_awaited=(pl.col("blocking_ns") > 0).mean().over(_KIND) >= _AWAITED_SHARE)
    ranks = [_read_rank(rows, member, profile, window) for member, profile in enumerate(profiles)]
    stays = pl.concat([rank.stays for rank in ranks])
    if stays.is_empty():
        return None
    first_stay = np.concatenate(([0], np.cumsum([len(rank.stays) for rank in ranks])))
    event_stay = np.concatenate(
        [np.where(rank.stay >= 0, rank.stay + at, -1) for rank, at in zip(ranks, first_stay, strict=False)]
    )
    before = np.concatenate(
        [np.where((own := _find_before(rank.stays)) >= 0, own + at, -1)
         for rank, at in zip(ranks, first_stay, strict=False)]
    )  # fmt: skip
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
    segments = [rank.segment.max(initial=-1) + 1 for rank in ranks]
    segment_ptr = np.concatenate(([0], np.cumsum(segments)))
    return JobGraph(
        first_step=window[0],
        steps=window[1] - window[0] + 1,
        own=OwnTimes(
            np.concatenate([rank.compute_ns for rank in ranks]),
            np.concatenate([rank.rest_ns for rank in ranks]),
            transfer_ns,
        ),
        event_ptr=np.concatenate(([0], np.cumsum([rank.kind.size for rank in ranks]))),
        kind=np.concatenate([rank.kind for rank in ranks]),
        event_stay=event_stay,
        lag_ns=np.concatenate([rank.lag_ns for rank in ranks]),
        begin_ns=np.array([rank.begin_ns for rank in ranks], np.int64),
        stay_rank=stays["member"].to_numpy().astype(np.int64),
        stay_before=before,
        stay_meeting=meeting,
        exit_ns=exit_ns,
        alone_ns=np.where(leaves_early, residence_ns, -1),
        member_ptr=np.concatenate(([0], np.cumsum(np.bincount(meeting, minlength=count)))),
        member=np.argsort(meeting, kind="stable"),
        segment=np.concatenate(
            [np.maximum(rank.segment, 0) + at for rank, at in zip(ranks, segment_ptr, strict=False)]
        ),
        segment_ptr=segment_ptr,
        program=tuple(rank.program for rank in ranks),
        meeting_group=meetings.group,
        meeting_kind=meetings.kind,
        meeting_bytes=meetings.sent_bytes,
    )


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
class _RankChain:
    """The events of a rank, and its stays: rows of `MatchedJob.rows`; `stay` and `segment` are its own."""

    stays: pl.DataFrame
    begin_ns: int
    kind: Rows
    stay: Rows
    compute_ns: Times
    rest_ns: Times
    lag_ns: Times
    segment: Rows
    program: bytes


def _read_rank(rows: pl.DataFrame, member: int, profile: Profile, window: tuple[int, int]) -> _RankChain:
    """Return the chain of a rank in the steps from the first to the last of a window."""
    steps = profile.steps.filter((pl.col("input") == 0) & (pl.col("step") <= window[1])).sort("start_ns")
    own = rows.filter((pl.col("member") == member) & (pl.col("input") == 0)).sort("start_ns", "row")
    until = np.concatenate(
        (np.zeros((1, len(_WALLS)), np.int64), steps.select(_WALLS).to_numpy().cumsum(axis=0))
    )
    first = int((steps["step"] < window[0]).sum())
    bound_ns = np.append(steps["start_ns"].to_numpy()[first:], steps["end_ns"].to_numpy()[-1])
    session_ns, shift_ns = own["session_ns"].to_numpy(), (own["start_ns"] - own["session_ns"]).to_numpy()
    inside = (session_ns >= bound_ns[0]) & (session_ns < bound_ns[-1])
    stays = own.filter(pl.Series(inside))
    start_ns = session_ns[inside]
    end_ns = start_ns + stays["residence_ns"].to_numpy()
    is_awaited = (stays["blocking_ns"].to_numpy() > 0) & (end_ns <= bound_ns[-1])
    awaited = np.flatnonzero(is_awaited)
    at_ns = np.concatenate((bound_ns, start_ns, end_ns[awaited]))
    kind = np.repeat((PASS, _BEGIN, _AWAIT), (bound_ns.size, start_ns.size, awaited.size))
    stay = np.concatenate((np.full(bound_ns.size, -1), np.arange(start_ns.size), awaited))
    walls = np.concatenate(
        (until[first:], stays.select(AT).to_numpy(), stays.select(OUT).to_numpy()[awaited])
    )
    order = np.lexsort((_TURN[kind], at_ns))
    at_ns, kind, stay, walls = at_ns[order], kind[order], stay[order], walls[order]
    if session_ns.size:  # on the clock of the job, in the order of the rank's own
        at_ns = at_ns + np.rint(np.interp(at_ns, session_ns, shift_ns)).astype(np.int64)
    spent_ns = np.maximum(np.diff(walls, axis=0, prepend=walls[:1]), 0)
    passed_ns = np.diff(at_ns, prepend=at_ns[:1])
    opened = -(kind == _AWAIT).astype(np.int64)
    opened[kind == _BEGIN] = is_awaited[stay[kind == _BEGIN]]
    waits = np.concatenate(([0], opened.cumsum()[:-1])) > 0
    waited_ns = np.where(waits, np.minimum(spent_ns[:, _COMMUNICATION], passed_ns), 0)
    compute_ns = np.minimum(spent_ns[:, _COMPUTE], passed_ns - waited_ns)
    is_queued = (kind == _BEGIN) & _mark_queued(stays)[np.maximum(stay, 0)]
    ends = kind == PASS
    ends[kind == _BEGIN] = stays["is_awaited"].to_numpy()[stay[kind == _BEGIN]]
    is_step = kind == PASS
    codes = [as_integers(stays[name]).astype(np.int64) for name in ("operation", "axis")]
    what = (codes[0] * _KINDS + codes[1])[stay[ends & ~is_step]]
    program = np.full(int(ends.sum()), -1, np.int64)
    program[~is_step[ends]] = what
    return _RankChain(
        stays=stays,
        begin_ns=int(at_ns[0]),
        kind=kind.astype(np.int64),
        stay=stay.astype(np.int64),
        compute_ns=compute_ns,
        rest_ns=passed_ns - waited_ns - compute_ns,
        lag_ns=np.where(is_queued, 0, _sum_since(waited_ns, kind == _AWAIT)),
        segment=np.concatenate(([0], ends.cumsum()[:-1])) - 1,
        program=program.tobytes(),
    )


_KIND, _AWAITED_SHARE = ("operation", "axis", "stream"), 0.5
"""Operations of a kind that the program mostly waits for come at one place of it; others float around it."""
_TURN = np.array([1, 2, 0])
"""Of what happens at once: an end before a step, and that before a begin."""
_KINDS = 1_000


def _sum_since(times_ns: Times, is_reset: Flags) -> Times:
    """Return the sum of times up to each one since the last reset before it; 0 at a reset, int64 ns."""
    sums = times_ns.cumsum()
    base = np.maximum.accumulate(np.where(is_reset, sums, 0))
    return sums - base


def _mark_queued(stays: pl.DataFrame) -> Flags:
    """Return whether a stay begins as soon as the one before on its stream ends: it was launched earlier."""
    since_ns = pl.col("start_ns") - pl.col("end_ns").shift().over("stream")
    is_queued = stays.select((since_ns.abs() <= QUEUED_STAY_NS).fill_null(value=False)).to_series().to_numpy()
    return is_queued if is_queued.size else np.zeros(1, np.bool_)


def _find_before(stays: pl.DataFrame) -> Rows:
    """Return the stay before each of a rank on its stream that had ended, -1 without one."""
    numbered = stays.select("stream", "start_ns", "end_ns").with_row_index("at")
    before = pl.col("at").shift().over("stream")
    ended = pl.col("end_ns").shift().over("stream") <= pl.col("start_ns")
    return numbered.select(pl.when(ended).then(before).cast(pl.Int64).fill_null(-1)).to_series().to_numpy()


@dataclass(frozen=True, slots=True)
class _Meetings:
    meeting: Rows
    group: Rows
    kind: Rows
    sent_bytes: Rows


def _number_meetings(stays: pl.DataFrame) -> _Meetings:
    """Return meeting of each stay, group and kind of each meeting; one that lacks a stay is none."""
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
        bytes=pl.col("bytes").max().fill_null(0),
    ).sort("number").with_columns(pl.col("kind").rank("dense").cast(pl.Int64))  # fmt: skip
    return _Meetings(
        numbered["number"].to_numpy(),
        kinds["group"].to_numpy(),
        kinds["kind"].to_numpy(),
        kinds["bytes"].to_numpy(),
    )
