"""The steps of a rank as a chain: its own time between begins of its communication and the ends it awaits.

What is launched while the operation before on its stream still runs begins when that ends, however much
earlier the program came to it. Where it stands in the program is then taken from other steps, or from other
ranks of the program.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from wallscope.columns import Codes, Flags, Rows, as_integers
from wallscope.model.enums import Wall
from wallscope.model.profile import Profile
from wallscope.ranks.match_collectives import sum_walls_until
from wallscope.records import dataclass
from wallscope.thresholds.causes import QUEUED_STAY_NS
from wallscope.trace.intervals import Times

PASS, BEGIN, AWAIT = 0, 1, 2
"""What events are; a step begins with a pass, and the last one ends the window."""
_COMPUTE, _COMMUNICATION = (list(Wall).index(wall) for wall in (Wall.COMPUTE, Wall.COMMUNICATION))
_WALLS = [f"{wall}_wall_ns" for wall in Wall]
STAY = (
    "row", "member", "clock", "meeting", "group", "is_whole", "operation", "axis", "stream", "bytes",
    "start_ns", "end_ns",
)  # fmt: skip
"""Columns of a stay in the graph of a job."""
_OF_CHAIN = ("input", "session_ns", "residence_ns", "blocking_ns", "is_of_program")


@dataclass(frozen=True)
class RankChain:
    """The events of a rank in a window of steps, and its stays: rows of `MatchedJob.rows`, `STAY`.

    Attributes:
        kind: int8[events]; `PASS`, `BEGIN` or `AWAIT`.
        stay: int32[events]; the row of `stays` of the latter two, -1 otherwise.
        what: int32[events]; equal where operation and axis of the stay are, -1 without one.
        compute_ns, rest_ns: int64[events]; the rank's own time before each event, without waiting.
        lag_ns: int64[events]; how long the rank already waits for a stay when another begins.
        is_end: bool[events]; whether a segment ends: with each step, and with each begin of a kind of stay
            that the program waits for.
        is_queued: bool[events]; whether a stay begins because the one before on its stream ends.
    """

    stays: pl.DataFrame
    begin_ns: int
    kind: Codes
    stay: Codes
    what: Codes
    compute_ns: Times
    rest_ns: Times
    lag_ns: Times
    is_end: Flags
    is_queued: Flags

    def number_segments(self) -> Rows:
        """Return the segment of each event, int64[events]."""
        numbers: Rows = np.maximum(self.is_end.cumsum() - self.is_end - 1, 0)
        return numbers

    def number_steps(self) -> Rows:
        """Return the step of each event, from 0; a pass belongs to the step that it ends, int64[events]."""
        is_pass = self.kind == PASS
        step: Rows = np.clip(is_pass.cumsum() - is_pass - 1, 0, int(is_pass.sum()) - 2)
        return step

    @property
    def segments(self) -> int:
        """How many segments it has."""
        return max(int(self.is_end.sum()) - 1, 1)

    @property
    def program(self) -> bytes:
        """What its segments end with; ranks with one program can be compared."""
        return self.what[self.is_end].tobytes()

    def mix_segments(self) -> Rows:
        """Return a number for each segment that differs where its events, or their order, do."""
        what = np.where(self.stay >= 0, self.what * 3 + self.kind, self.kind).astype(np.uint64)
        segment = self.number_segments()
        place = (np.arange(segment.size) - np.searchsorted(segment, segment) + 1).astype(np.uint64)
        mixed = (what + np.uint64(1)) * (place * np.uint64(_FACTOR) | np.uint64(1))
        sums = np.zeros(self.segments, np.uint64)
        np.add.at(sums, segment, mixed)
        return sums.view(np.int64)

    def find_before(self) -> tuple[Rows, Times]:
        """Return the stay before each on its stream that had ended, -1 without one, and ns since its end.

        The time is that of queued ones, 0 for others.
        """
        numbered = self.stays.select("stream", "start_ns", "end_ns").with_row_index("at")
        since_ns = pl.col("start_ns") - pl.col("end_ns").shift().over("stream")
        before = pl.when(since_ns >= 0).then(pl.col("at").shift().over("stream")).cast(pl.Int64)
        gap_ns = pl.when(since_ns.is_between(0, QUEUED_STAY_NS)).then(since_ns)
        found = numbered.select(before=before.fill_null(-1), gap=gap_ns.fill_null(0))
        return found["before"].to_numpy(), found["gap"].to_numpy()


def read_chain(rows: pl.DataFrame, profile: Profile, window: tuple[int, int]) -> RankChain:
    """Return the chain of a rank in the steps from the first to the last of a window.

    Args:
        rows: all of its split collectives on the clock of the job, with `is_of_program`: whether a program
            mostly waits for those of the kind.
        profile: of the rank.
        window: its first and last step.
    """
    steps = profile.steps.filter((pl.col("input") == 0) & (pl.col("step") <= window[1])).sort("start_ns")
    until_ns, out_ns = sum_walls_until(profile)
    own = (
        rows.select(*STAY, *_OF_CHAIN)
        .with_row_index("at")
        .filter(pl.col("input") == 0)
        .sort("start_ns", "row")
    )
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
    kind = np.repeat((PASS, BEGIN, AWAIT), (bound_ns.size, start_ns.size, awaited.size))
    stay = np.concatenate((np.full(bound_ns.size, -1), np.arange(start_ns.size), awaited))
    at = stays["at"].to_numpy()
    walls = np.concatenate((until[first:], until_ns[at], out_ns[at[awaited]]))
    codes = [
        np.append(as_integers(stays[name]).astype(np.int64), 0) for name in ("operation", "axis", "stream")
    ]
    named = codes[0] * _KINDS + codes[1]
    order = np.lexsort((codes[2][stay], named[stay], _TURN[kind], at_ns))
    at_ns, kind, stay, walls = at_ns[order], kind[order], stay[order], walls[order]
    if session_ns.size:  # on the clock of the job, in the order of the rank's own
        at_ns = at_ns + np.rint(np.interp(at_ns, session_ns, shift_ns)).astype(np.int64)
    spent_ns = np.maximum(np.diff(walls, axis=0, prepend=walls[:1]), 0)
    passed_ns = np.diff(at_ns, prepend=at_ns[:1])
    opened = -(kind == AWAIT).astype(np.int64)
    opened[kind == BEGIN] = is_awaited[stay[kind == BEGIN]]
    waits = np.concatenate(([0], opened.cumsum()[:-1])) > 0
    waited_ns = np.where(waits, np.minimum(spent_ns[:, _COMMUNICATION], passed_ns), 0)
    compute_ns = np.minimum(spent_ns[:, _COMPUTE], passed_ns - waited_ns)
    is_queued = (kind == BEGIN) & _mark_queued(stays)[np.maximum(stay, 0)]
    is_end = kind == PASS
    is_end[kind == BEGIN] = stays["is_of_program"].to_numpy()[stay[kind == BEGIN]]
    return RankChain(
        stays=stays.select(STAY),
        begin_ns=int(at_ns[0]),
        kind=kind.astype(np.int8),
        stay=stay.astype(np.int32),
        what=np.where(stay >= 0, named[stay], -1).astype(np.int32),
        compute_ns=compute_ns,
        rest_ns=passed_ns - waited_ns - compute_ns,
        lag_ns=np.where(is_queued, 0, _sum_since(waited_ns, kind == AWAIT)),
        is_end=is_end,
        is_queued=is_queued,
    )


_TURN = np.array([1, 2, 0])
"""Of what happens at once: an end before a step, and that before a begin."""
_KINDS = 1_000
_FACTOR = 6_364_136_223_846_793_005
"""Of a linear congruential generator, from Knuth's MMIX."""


def place_launches(chains: Sequence[RankChain]) -> list[RankChain]:
    """Return the chains of ranks with queued stays where the program came to them, as far as that shows.

    It shows where the same stay of the step did not queue, in other steps or on ranks of the same program.
    """
    programs = {
        program: number for number, program in enumerate(dict.fromkeys(one.program for one in chains))
    }
    placed = [
        _locate_begins(one).with_columns(rank=pl.lit(rank), program=pl.lit(programs[one.program]))
        for rank, one in enumerate(chains)
    ]
    listed = pl.concat(placed)
    by = ("program", "what", "stream", "count", "nth")
    usual = listed.filter(~pl.col("is_queued")).group_by(by).agg(
        usual=pl.col("place").quantile(0.5, "lower")
    )  # fmt: skip
    queued = listed.filter("is_queued").join(usual, on=by).filter(pl.col("usual") < pl.col("place"))
    moved = {int(own["rank"][0]): own for own in queued.partition_by("rank", maintain_order=True)}
    return [one if rank not in moved else _move_events(one, moved[rank]) for rank, one in enumerate(chains)]


def _locate_begins(chain: RankChain) -> pl.DataFrame:
    """Return the begins of stays that end no segment: which of the step each is, and where it is in the step.

    `place` is twice the number of its segment in the step, plus which share of that is over.
    """
    at = np.flatnonzero((chain.kind == BEGIN) & ~chain.is_end)
    first, until_ns = _find_segments(chain)
    number = chain.number_segments()
    segment, step = number[at], chain.number_steps()[at]
    begin_ns, length_ns = until_ns[first[segment]], np.diff(until_ns[first])[segment]
    share = np.divide(until_ns[at] - begin_ns, length_ns, out=np.zeros(at.size), where=length_ns > 0)
    own = pl.DataFrame({
        "event": at,
        "what": chain.what[at],
        "stream": chain.stays["stream"].to_numpy()[chain.stay[at]].astype(np.int64),
        "step": step,
        "first": number[np.flatnonzero(chain.kind == PASS)[step] + 1],
        "is_queued": chain.is_queued[at],
    }, schema_overrides={"event": pl.Int64}).with_columns(place=pl.Series(2 * segment + share))  # fmt: skip
    each = ("step", "what", "stream")
    return own.with_columns(
        place=pl.col("place") - 2 * pl.col("first"),
        count=pl.len().over(each),
        nth=pl.int_range(pl.len()).over(each),
    )


def _find_segments(chain: RankChain) -> tuple[Rows, Times]:
    """Return the event that each segment begins with, and then the last one; own time until each event."""
    begins = np.flatnonzero(chain.is_end)
    until_ns: Times = (chain.compute_ns + chain.rest_ns).cumsum()
    return begins, until_ns


def _move_events(chain: RankChain, moved: pl.DataFrame) -> RankChain:
    """Return the chain with some events at other places of their steps (`usual`, as in `_locate_begins`)."""
    first, until_ns = _find_segments(chain)
    own_ns = chain.compute_ns + chain.rest_ns
    at, place = moved["event"].to_numpy(), moved["usual"].to_numpy()
    number = (place // 2).astype(np.int64)
    segment = np.minimum(number + moved["first"].to_numpy(), chain.number_segments()[at])
    begin, end = first[segment], first[segment + 1]
    begin_ns, length_ns = until_ns[begin], until_ns[end] - until_ns[begin]
    to_ns = begin_ns + np.rint((place - 2 * number) * length_ns).astype(np.int64)
    before = np.clip(np.searchsorted(until_ns, to_ns), begin + 1, np.minimum(end, at))
    compute_until_ns = chain.compute_ns.cumsum()
    since_ns = np.minimum(to_ns, until_ns[before]) - until_ns[before - 1]
    turn = 2 * np.arange(own_ns.size)
    turn[at] = 2 * before - 1
    until_ns[at] = until_ns[before - 1] + since_ns
    compute_until_ns[at] = compute_until_ns[before - 1] + chain.compute_ns[before] * since_ns // np.maximum(
        own_ns[before], 1
    )
    order = np.lexsort((until_ns, turn))
    compute_ns = np.diff(compute_until_ns[order], prepend=0)
    return replace(
        chain,
        kind=chain.kind[order],
        stay=chain.stay[order],
        what=chain.what[order],
        compute_ns=compute_ns,
        rest_ns=np.diff(until_ns[order], prepend=0) - compute_ns,
        lag_ns=chain.lag_ns[order],
        is_end=chain.is_end[order],
        is_queued=chain.is_queued[order],
    )


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
