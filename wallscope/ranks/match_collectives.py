"""Match the collectives of different ranks: by communicator and sequence, else by their ends.

If payloads name communicators, the ranks of one ran the same collectives in the same order; messages of two
ranks are those in which each names the other. Otherwise ranks
with one kind of operation are a group if they repeatedly end together. Two ranks on one clock are compared by
the ends of their collectives (`trace.collectives`). Ranks on different clocks are compared by order. Their
series are equal except for missing collectives at the ends of a capture. Except for offset and drift their
ends keep a constant distance.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Rows, as_integers, find_places, iterate_runs
from wallscope.model.enums import Axis, Collective
from wallscope.model.profile import BEFORE, INSIDE, RANK_COLLECTIVES, Profile, ProfiledInput
from wallscope.profile.step_slices import encode_pairs
from wallscope.ranks.rank_order import MeasureSpread, RankOrder, find_rank_order, sample_evenly
from wallscope.records import dataclass
from wallscope.thresholds.causes import (
    EVEN_GROUP_NS,
    EVEN_GROUP_RATIO,
    FARTHEST_SHIFT_COUNT,
    FARTHEST_UNNAMED_SHIFT_COUNT,
    FEWEST_FOR_DRIFT_COUNT,
    FEWEST_PAIRED_COUNT,
    KNOWN_GROUP_RATIO,
    KNOWN_PAIR_RATIO,
    PAIRED_ALIKE_SHARE,
    PAIRED_SPREAD_NS,
    PAIRED_SPREAD_SHARE,
    REGULAR_GROUPS_SHARE,
    REGULAR_ORDER_RATIO,
    SAME_SHIFT_NS,
    SAME_SHIFT_RATIO,
    SHIFT_SAMPLE_COUNT,
    SHORTEST_FOR_DRIFT_NS,
    SIZED_MET_SPREAD_NS,
)
from wallscope.trace.collectives import have_met, measure_spread, measure_spreads
from wallscope.trace.intervals import Times

ALL_COLLECTIVES: Final = pl.Schema(
    {
        "row": pl.UInt32(),
        "member": pl.UInt32(),  # index of the rank in the job
        "clock": pl.UInt32(),
        "session_ns": pl.Int64(),  # its start in the session
        **{name: dtype for name, dtype in RANK_COLLECTIVES.items() if name not in {*BEFORE, *INSIDE}},
    }
)
"""Rows of `RANK_COLLECTIVES` of all ranks, rank after rank; times count from the first start of a session."""


@dataclass(frozen=True, slots=True)
class AllCollectives:
    """`ALL_COLLECTIVES`, the host name of each of its clocks, and the number of captures."""

    rows: pl.DataFrame
    hostnames: tuple[str | None, ...]
    captures: int


def gather_collectives(profiles: Sequence[Profile]) -> AllCollectives:
    """Return the collectives of all ranks of a job in one table, in the order of the ranks.

    Captures of one host use one clock, from the start of their session. An export without host or start has
    its own clock. What is the same in the profiles is in memory once.
    """
    keys: dict[tuple[str, str], int] = {}
    hostnames: list[str | None] = []
    known = [entry.session_start_utc_ns for profile in profiles for entry in profile.header.inputs]
    base_ns = min((start_ns for start_ns in known if start_ns is not None), default=0)
    clocks, shifts_ns, first = list[int](), list[int](), list[int]()
    for profile in profiles:
        first.append(len(clocks))
        for entry in profile.header.inputs:
            key = _clock_key(entry)
            if key not in keys:
                keys[key] = len(keys)
                hostnames.append(entry.hostname)
            clocks.append(keys[key])
            start_ns = entry.session_start_utc_ns
            shifts_ns.append(0 if start_ns is None else start_ns - base_ns)
    frames = [_gather_collectives(profile) for profile in profiles]
    member = np.repeat(np.arange(len(profiles)), [len(own) for own in frames])
    together = pl.concat([RANK_COLLECTIVES.to_frame(), *frames])
    capture = np.array(first, np.int64)[member] + together["input"].to_numpy()
    shift_ns = pl.Series(np.array(shifts_ns, np.int64)[capture])
    rows = together.with_columns(
        pl.Series("member", member, pl.UInt32),
        pl.Series("clock", np.array(clocks, np.int64)[capture], pl.UInt32),
        pl.col("start_ns").alias("session_ns"),
        pl.col("start_ns") + shift_ns,
        pl.col("end_ns") + shift_ns,
    ).with_row_index("row")
    captures = {entry.fingerprint for profile in profiles for entry in profile.header.inputs}
    return AllCollectives(rows.select(ALL_COLLECTIVES.names()), tuple(hostnames), len(captures))


def _clock_key(entry: ProfiledInput) -> tuple[str, str]:
    if entry.hostname is None or entry.session_start_utc_ns is None:
        return "capture", entry.fingerprint
    return "host", entry.hostname


def _gather_collectives(profile: Profile) -> pl.DataFrame:
    """Return the collectives of a rank's captures in the order of their begins; no copy of what has that."""
    table = profile.collectives
    if not profile.header.inputs:
        return table.clear()
    places = encode_pairs(table, "place")
    return table if (places[1:] >= places[:-1]).all() else table[np.argsort(places, kind="stable")]


def sum_walls_until(profile: Profile) -> tuple[Times, Times]:
    """Return the time of each wall until the begins and until the ends of a rank's collectives.

    Both are int64[collectives, walls], ns, in the order of the rank's rows of `ALL_COLLECTIVES`.
    """
    table = _gather_collectives(profile)
    until_ns = table.select(pl.col(BEFORE).cum_sum().over("input")).to_numpy()
    return until_ns, until_ns + table.select(INSIDE).to_numpy()


def rows_by_member(rows: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """Return the rows of each rank that has some, by member, where they come rank after rank.

    They are in memory once.
    """
    return {member: rows[own] for member, own in iterate_runs(rows["member"].to_numpy())}


Times64 = npt.NDArray[np.float64]
Line = tuple[float, float]
"""Value at 0, and slope."""

_AT_ONCE = 256
WITHIN_STAGE = (Axis.TP, Axis.CP, Axis.EP, Axis.DP_GRADIENT, Axis.DP_PARAMETER)
"""Axes whose groups are within a stage of a pipeline."""
_OF_A_MESSAGE = 2


@dataclass(frozen=True, slots=True)
class Series:
    """Collectives of one kind of one rank, in order of their ends; `kinds` are numbers of operations."""

    member: int
    rows: Rows
    clock: int
    start_ns: Times
    end_ns: Times
    kinds: Rows


def build_series(rows: pl.DataFrame) -> Series:
    """Return the series of some rows of `ALL_COLLECTIVES`, all of one rank."""
    ordered = rows.sort("end_ns", "row")
    return Series(
        int(ordered["member"][0]),
        ordered["row"].to_numpy().astype(np.int64),
        int(ordered["clock"][0]),
        ordered["start_ns"].to_numpy(),
        ordered["end_ns"].to_numpy(),
        as_integers(ordered["operation"]),
    )


@dataclass(frozen=True, slots=True)
class Pairing:
    """Positions of the same collectives in two series, and the variation of the distance of ends, in ns."""

    places: Rows
    others: Rows
    spread_ns: float


def pair_by_end(one: Series, other: Series, *, is_sized: bool) -> Pairing | None:
    """Pair the collectives of two ranks on one clock; `None` if they share none.

    If the size of the group is known, the closest match is used, even at a larger distance.
    """
    times = (one.start_ns, one.end_ns, other.start_ns, other.end_ns)
    found = have_met(*times, SIZED_MET_SPREAD_NS) if is_sized else have_met(*times)
    return None if found is None else _pairing(one, other, *found)


def _pairing(one: Series, other: Series, places: Rows, others: Rows) -> Pairing:
    at_ns = one.end_ns[places]
    return Pairing(places, others, measure_spread(remove_drift(at_ns, other.end_ns[others] - at_ns)))


def pair_by_order(one: Series, other: Series, *, is_named: bool) -> Pairing | None:
    """Pair the collectives of two ranks on two clocks; in a known group the distance may vary."""
    if not is_named and len(one.rows) == len(other.rows):
        shift = 0
    else:
        shift = _shift(one, other, FARTHEST_SHIFT_COUNT if is_named else FARTHEST_UNNAMED_SHIFT_COUNT)
    places, others = _pair_shifted(len(one.rows), len(other.rows), shift)
    if places.size < (1 if is_named else FEWEST_PAIRED_COUNT):
        return None
    if (one.kinds[places] == other.kinds[others]).mean() < PAIRED_ALIKE_SHARE:
        return None
    paired = _pairing(one, other, places, others)
    if not is_named:
        starts = remove_drift(one.end_ns[places], other.start_ns[others] - one.start_ns[places])
        if paired.spread_ns > max(PAIRED_SPREAD_NS, PAIRED_SPREAD_SHARE * measure_spread(starts)):
            return None
    return paired


def fit_line(at_ns: Times | Times64, apart_ns: Times | Times64) -> Line:
    """Fit a straight line through most of some points, robust against outliers.

    The slope is the median over pairs of points half the series apart; 0 for few points or a short time.
    """
    order = np.argsort(at_ns, kind="stable")
    x, y = at_ns[order].astype(np.float64), apart_ns[order].astype(np.float64)
    slope = float(_slopes(x[None], y[None])[0]) if has_drift_evidence(x) else 0.0
    return float(np.median(y - slope * x)), slope


_FEWEST_ON_LINE = 4
"""Points that are not on a line for lack of others."""


def _measure_off_line(at_ns: Times, other_ns: Times) -> float:
    """Return how far the distance of a few ends on two clocks is from a line, in ns, as of many ends."""
    along = (at_ns - at_ns.mean()).astype(np.float64)
    apart_ns = (other_ns - at_ns).astype(np.float64)
    slope = float(along @ apart_ns) / max(float(along @ along), 1.0)
    freedom = math.sqrt(at_ns.size / (at_ns.size - 2))
    return freedom * measure_spread(apart_ns - slope * along)


def has_drift_evidence(at_ns: Times | Times64) -> bool:
    """Return whether there are enough points, far enough apart, to show a drift."""
    return bool(at_ns.size >= FEWEST_FOR_DRIFT_COUNT and np.ptp(at_ns) >= SHORTEST_FOR_DRIFT_NS)


def remove_drift(at_ns: Times, apart_ns: Times) -> Times64:
    """Return distances without their line, in ns."""
    begin_ns = at_ns[0] if at_ns.size else 0
    value, slope = fit_line(at_ns - begin_ns, apart_ns)
    return apart_ns - (value + slope * (at_ns - begin_ns))


def _pair_shifted(count: int, other_count: int, shift: int) -> tuple[Rows, Rows]:
    places = np.arange(max(0, -shift), min(count, other_count - shift), dtype=np.int64)
    return places, places + shift


def _shift(one: Series, other: Series, farthest: int) -> int:
    """Return how many the other series has before the first of this one.

    The shift is 0 if both series have the same length and a constant distance. Otherwise it is the one with
    the least variation of the distances of ends; among similar ones, no shift or else the smallest distance.
    """
    if (
        len(one.rows) == len(other.rows)
        and _varies(one, other, np.zeros(1, np.int64))[0][0] <= PAIRED_SPREAD_NS
    ):
        return 0
    longer = max(len(one.rows), len(other.rows))
    most = min(longer - 1, abs(len(one.rows) - len(other.rows)) + farthest)
    shifts = np.arange(-most, most + 1, dtype=np.int64)
    varied_ns, apart_ns = _varies(one, other, shifts)
    good = np.flatnonzero(varied_ns <= SAME_SHIFT_RATIO * varied_ns.min() + SAME_SHIFT_NS)
    best = np.lexsort((np.abs(shifts[good]), apart_ns[good], shifts[good] != 0))[0]
    return int(shifts[good[best]])


def _varies(one: Series, other: Series, shifts: Rows) -> tuple[Times64, Times64]:
    """Return the variation and size of the distances of ends at each shift, in ns.

    Infinite where too few remain, or their kinds differ.
    """
    first = np.maximum(0, -shifts)
    counts = np.minimum(len(one.rows), len(other.rows) - shifts) - first
    varied_ns, apart_ns = np.full(shifts.size, np.inf), np.full(shifts.size, np.inf)
    enough = np.flatnonzero((counts > 0) & (2 * counts >= min(len(one.rows), len(other.rows))))
    widths = np.minimum(counts, SHIFT_SAMPLE_COUNT)
    for width in np.unique(widths[enough]).tolist():
        alike = enough[widths[enough] == width]
        for rows in np.split(alike, range(_AT_ONCE, alike.size, _AT_ONCE)):
            places = first[rows, None] + _sample_evenly(counts[rows], width)
            others = places + shifts[rows, None]
            same = (one.kinds[places] == other.kinds[others]).mean(axis=1) >= PAIRED_ALIKE_SHARE
            at_ns = one.end_ns[places[same]]
            own_ns = other.end_ns[others[same]] - at_ns
            varied_ns[rows[same]] = measure_spreads(_remove_drifts(at_ns, own_ns))
            apart_ns[rows[same]] = np.abs(np.median(own_ns, axis=1))
    return varied_ns, apart_ns


def _sample_evenly(counts: Rows, width: int) -> Rows:
    """Return `width` numbers below each count, evenly spaced; a row for each count."""
    if width < SHIFT_SAMPLE_COUNT:
        return np.broadcast_to(np.arange(width, dtype=np.int64), (counts.size, width))
    return np.linspace(0, counts - 1, width, axis=-1).astype(np.int64)


def _remove_drifts(at_ns: Times, apart_ns: Times) -> Times64:
    """Apply `remove_drift` row by row; each is in order of time."""
    along_ns = (at_ns - at_ns[:, :1]).astype(np.float64)
    slopes = np.zeros(len(at_ns))
    drifting = np.flatnonzero([has_drift_evidence(row) for row in along_ns])
    if drifting.size:
        slopes[drifting] = _slopes(along_ns[drifting], apart_ns[drifting].astype(np.float64))
    lines = slopes[:, None] * along_ns
    values = np.median(apart_ns - lines, axis=1)
    return apart_ns - (values[:, None] + lines)


def _slopes(x: Times64, y: Times64) -> Times64:
    """Return the slope of `fit_line`, row by row; points are in order of `x`."""
    half = x.shape[1] // 2
    along = x[:, half:] - x[:, : x.shape[1] - half]
    rise = y[:, half:] - y[:, : x.shape[1] - half]
    is_apart = along > 0
    if is_apart.all():
        return np.asarray(np.median(rise / along, axis=1))
    return np.array(
        [
            np.median(rise[row, held] / along[row, held]) if held.any() else 0.0
            for row, held in enumerate(is_apart)
        ]
    )


MEETINGS = pl.Schema(
    {
        "row": pl.UInt32(),
        "meeting": pl.UInt32(),  # collectives of several ranks that are one
        "group": pl.UInt32(),  # of meetings of the same ranks
        "is_named": pl.Boolean(),  # whether payloads name the communicator
    }
)
"""The rows of `ALL_COLLECTIVES` that were matched."""


def match_meetings(rows: pl.DataFrame, numbers: Sequence[int | None]) -> pl.DataFrame:
    """Match the collectives of a job (`ALL_COLLECTIVES`) to groups that are one (`MEETINGS`).

    Unnamed messages are matched where they alone can join clocks, others on one clock (`match_messages`).

    Args:
        rows: the collectives of all ranks.
        numbers: the number of each member in the job, as far as known.
    """
    found, known = list[pl.DataFrame](), set[frozenset[int]]()
    member_of = rows["member"].to_numpy()
    candidates = sorted(_list_candidates(rows, numbers), key=lambda one: not one.is_named and one.is_message)
    orders = _find_orders(candidates, numbers)
    stages, clocks = Unions(), Unions()
    clock_of = as_integers(rows["clock"])
    all_clocks = range(int(clock_of.max(initial=0)) + 1)
    for nth, alike in enumerate(candidates):
        if alike.is_message and not alike.is_named and clocks.has_all(all_clocks):
            break
        groups = _form_groups(alike, known, _find_partners(alike, numbers, stages))
        if nth in orders:
            groups = _form_regular_groups(alike, orders[nth], numbers)
        for group in groups:
            found.append(group.with_columns(is_named=pl.lit(alike.is_named)))
            members = np.unique(member_of[group["row"].to_numpy()]).tolist()
            known.add(frozenset(members))
            clocks.add(np.unique(clock_of[group["row"].to_numpy()]).tolist())
            if alike.axis in WITHIN_STAGE:
                stages.add(members)
    return _number_groups(rows, found)


class Unions:
    """What is joined, directly or through others: ranks of one stage of a pipeline, or clocks."""

    def __init__(self) -> None:
        self._first_of: dict[int, int] = {}

    def add(self, members: Sequence[int]) -> None:
        """Add some that are joined."""
        firsts = [self.find_first(member) for member in members]
        for one in firsts:
            self._first_of[one] = min(firsts)

    def has_both(self, one: int, other: int) -> bool:
        """Return whether two are joined."""
        return self.find_first(one) == self.find_first(other)

    def has_all(self, members: Sequence[int]) -> bool:
        """Return whether all of some are joined."""
        return all(self.has_both(members[0], one) for one in members)

    def find_first(self, member: int) -> int:
        """Return the one that stands for all that are joined with it."""
        while (first := self._first_of.setdefault(member, member)) != member:
            self._first_of[member] = self._first_of[first]
            member = first
        return member


def match_messages(rows: pl.DataFrame, numbers: Sequence[int | None]) -> pl.DataFrame:
    """Match the messages that are left (`AlignedCollectives.rows`) by their ends on one clock (`MEETINGS`).

    A rank may exchange messages with several others on one stream: each round pairs series that end together,
    and the rest stays for the next.
    """
    is_tied_message = pl.col("is_tied") & (pl.col("operation") == Collective.SEND_RECV)
    tied = (
        rows.select(*_MATCHED, "meeting", "is_tied")
        .filter(is_tied_message)
        .with_columns(clock=pl.lit(0, pl.UInt32))
    )
    left = tied.filter(pl.col("meeting").is_null())
    if left.is_empty():
        return MEETINGS.to_frame()
    found, stages = list[pl.DataFrame](), Unions()
    within = pl.col("axis").is_in([str(axis) for axis in WITHIN_STAGE])
    met = rows.select("member", "axis", "meeting", "group").filter(pl.col("meeting").is_not_null() & within)
    for members in met.group_by("group").agg(pl.col("member").unique())["member"].to_list():
        stages.add(members)
    may_meet = _find_partners(_gather_messages(tied), numbers, stages)
    while not left.is_empty():
        groups = _form_groups(_gather_messages(left), frozenset(), may_meet)
        fresh = [own for group in groups if len(own := group.filter(pl.len().over("meeting") > 1))]
        if not fresh:
            break
        found += [group.with_columns(is_named=pl.lit(value=False)) for group in fresh]
        left = left.filter(~pl.col("row").is_in(pl.concat(fresh)["row"].implode()))
    return _number_groups(rows, found)


def join_meetings(rows: pl.DataFrame, meetings: pl.DataFrame) -> pl.DataFrame:
    """Return collectives with the columns of `MEETINGS`, null for those that met none; no other is copied."""
    places = find_places(rows["row"].to_numpy(), meetings["row"].to_numpy())
    at = pl.Series("at", places).replace(-1, None)
    return rows.hstack([column.gather(at) for column in meetings.drop("row")])


def add_meetings(rows: pl.DataFrame, further: pl.DataFrame) -> pl.DataFrame:
    """Return matched collectives with further meetings (`MEETINGS`) of rows that had none."""
    if further.is_empty():
        return rows
    meetings, groups = (
        as_integers(rows[name].fill_null(0)).max(initial=0) + 1 for name in ("meeting", "group")
    )
    added = further.with_columns(
        pl.col("meeting") + pl.lit(meetings, pl.UInt32), pl.col("group") + pl.lit(groups, pl.UInt32)
    )
    both = join_meetings(rows.select("row"), added).drop("row")
    return rows.with_columns(pl.coalesce(pl.col(name), both[name]).alias(name) for name in both.columns)


def _number_groups(rows: pl.DataFrame, found: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return groups of operations that are one as `MEETINGS`."""
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
class _Candidates:
    """Series that may belong to one group, each of another rank or stream.

    `is_named` means that payloads name the group; `participants` is its size, if known.
    """

    series: list[Series]
    is_named: bool
    participants: int | None
    axis: str = Axis.UNKNOWN

    @property
    def is_message(self) -> bool:
        """Whether each is from one rank to another."""
        return self.axis == Axis.PP and self.participants == _OF_A_MESSAGE

    def has_order(self, numbers: Sequence[int | None]) -> bool:
        """Return whether groups can follow from the numbers of ranks: each has one, and one series."""
        members = [own.member for own in self.series]
        known = {numbers[member] for member in members}
        is_open = not self.is_named and self.axis != Axis.PP
        return is_open and None not in known and 1 < len(known) == len(members)


def _gather_messages(rows: pl.DataFrame) -> _Candidates:
    series = _series(rows, ["member", "input", "stream"])
    return _Candidates(series, is_named=False, participants=_OF_A_MESSAGE, axis=Axis.PP)


_MATCHED = (
    "row", "member", "clock", "input", "communicator", "operation", "axis", "stream", "participants", "peer",
    "start_ns", "end_ns",
)  # fmt: skip
"""Columns of `ALL_COLLECTIVES` that decide which meet."""


def _list_candidates(rows: pl.DataFrame, numbers: Sequence[int | None]) -> Iterator[_Candidates]:
    rows = rows.select(_MATCHED)
    known = rows.filter(pl.col("communicator").is_not_null())
    for whole in known.partition_by("communicator", maintain_order=True):
        for own in _divide_by_peers(whole, numbers):
            by = ["member", "input", "stream"] if _is_on_streams(own) else ["member", "input"]
            yield _Candidates(_series(own, by), is_named=True, participants=None, axis=own["axis"][0])
    unknown = rows.filter(pl.col("communicator").is_null())
    for own in unknown.partition_by("operation", "axis", "participants", maintain_order=True):
        is_message = own["operation"][0] == Collective.SEND_RECV
        size = _OF_A_MESSAGE if is_message else own["participants"][0]
        series = _series(own, ["member", "input", "stream"])
        yield _Candidates(series, is_named=False, participants=size, axis=own["axis"][0])


def _is_on_streams(rows: pl.DataFrame) -> bool:
    """Return whether two ranks exchange messages on several streams each, with as many on those of both."""
    if rows["member"].n_unique() != _OF_A_MESSAGE or rows["peer"].null_count():
        return False
    counts = rows.group_by("member", "stream").len().group_by("member").agg(pl.col("len").sort())
    first, second = counts["len"].to_list()
    return len(first) > 1 and first == second


def _divide_by_peers(rows: pl.DataFrame, numbers: Sequence[int | None]) -> Iterator[pl.DataFrame]:
    """Yield the rows of a communicator that may meet: the messages of each two ranks, and all others.

    Ranks have the order of their numbers in a communicator. Where a rank is missing, or two do not name each
    other, nothing is known of peers.
    """
    members = rows["member"].unique().to_list()
    named = rows.filter(pl.col("peer").is_not_null())
    known = {numbers[member]: member for member in members}
    if named.is_empty() or None in known or len(known) < len(members):
        yield rows
        return
    place_of = {member: place for place, (_, member) in enumerate(sorted(known.items(), key=_first))}
    own = pl.col("member").replace_strict(place_of, return_dtype=pl.Int32)
    divided = rows.with_columns(
        lower=pl.min_horizontal(own, pl.when(pl.col("peer").is_not_null()).then("peer")),
        upper=pl.when(pl.col("peer").is_not_null()).then(pl.max_horizontal(own, "peer")),
    ).with_columns(lower=pl.when(pl.col("upper").is_not_null()).then("lower"))
    parts = divided.partition_by("lower", "upper", maintain_order=True)
    pairs = [part for part in parts if part["upper"][0] is not None]
    if any(part["member"].n_unique() != _OF_A_MESSAGE or part["upper"][0] >= len(members) for part in pairs):
        yield rows
        return
    yield from parts


_FAMILY = {Axis.DP_PARAMETER: Axis.DP_GRADIENT}
"""Axes whose collectives mostly have the same groups."""
_EXCLUDED = {Axis.DP_GRADIENT: (Axis.TP, Axis.PP), Axis.CP: (Axis.TP, Axis.PP)}
"""Axes of which a group has one rank at most in a group of these."""


def _find_orders(candidates: Sequence[_Candidates], numbers: Sequence[int | None]) -> dict[int, RankOrder]:
    """Return the order of the groups of candidates, by index, where all have one that shows.

    Kinds of one family are judged together where the groups of one are within those of the other. They are
    also judged together where one of them shows no order.
    """
    families: defaultdict[str, list[int]] = defaultdict(list)
    for nth, alike in enumerate(candidates):
        if alike.has_order(numbers):
            families[_FAMILY.get(Axis(alike.axis), Axis(alike.axis))].append(nth)
    found, of_axis = dict[int, RankOrder](), defaultdict[str, list[RankOrder]](list)
    for axis in sorted(families, key=lambda one: (one in _EXCLUDED, one)):
        apart = [order for other in _EXCLUDED.get(Axis(axis), ()) for order in of_axis[other]]
        alone = {nth: _find_order([candidates[nth]], numbers, apart) for nth in families[axis]}
        count = max((number or 0 for number in numbers), default=0) + 1
        for nth, order in alone.items():
            like = [other for other, own in alone.items() if _are_nested(order, own, count)]
            chosen = _find_order([candidates[other] for other in like], numbers, apart) or order
            if chosen is not None:
                found[nth] = chosen
                of_axis[axis].append(chosen)
    return found


def _are_nested(one: RankOrder | None, other: RankOrder | None, count: int) -> bool:
    """Return whether two orders may be one: the groups of one are within those of the other, or unknown."""
    return one is None or other is None or one.contains(other, count) or other.contains(one, count)


def _find_order(
    kinds: Sequence[_Candidates], numbers: Sequence[int | None], apart: Sequence[RankOrder]
) -> RankOrder | None:
    """Return the order of the groups of some kinds of collectives."""
    places = [{numbers[own.member]: place for place, own in enumerate(kind.series)} for kind in kinds]
    common = [number for number in places[0] if number is not None and all(number in own for own in places)]
    sizes = {kind.participants for kind in kinds}
    if len(common) < _OF_A_MESSAGE or len(sizes) > 1:
        return None

    def measure(kind: _Candidates, place_of: Mapping[int | None, int]) -> MeasureSpread:
        @cache
        def measure_spread_of(one: int, other: int) -> float:
            own, their = kind.series[place_of[one]], kind.series[place_of[other]]
            paired = _pair_members(kind, place_of[one], place_of[other])
            if paired is None:
                return math.inf
            is_short = _FEWEST_ON_LINE <= paired.places.size < FEWEST_FOR_DRIFT_COUNT
            if own.clock == their.clock or not is_short:
                return paired.spread_ns
            return _measure_off_line(own.end_ns[paired.places], their.end_ns[paired.others])

        return measure_spread_of

    measures = [measure(kind, own) for kind, own in zip(kinds, places, strict=True)]
    fewest = min(len(own.rows) for kind in kinds for own in kind.series)
    ratio = REGULAR_ORDER_RATIO if fewest >= FEWEST_FOR_DRIFT_COUNT else EVEN_GROUP_RATIO
    return find_rank_order(measures, common, apart, sizes.pop(), ratio)


def _form_regular_groups(
    alike: _Candidates, order: RankOrder, numbers: Sequence[int | None]
) -> Iterator[pl.DataFrame]:
    """Yield the groups of an order, each series paired with the first of its group, whose size is known."""
    alike = replace(alike, participants=order.size)
    place_of = {
        number: nth for nth, own in enumerate(alike.series) if (number := numbers[own.member]) is not None
    }
    for group in order.list_groups(list(place_of)):
        first, *others = (place_of[number] for number in group)
        taken = {first: np.arange(len(alike.series[first].rows))}
        for other in others:
            paired = _pair_members(alike, first, other)
            if paired is not None:
                taken[other] = np.full(len(alike.series[other].rows), -1, np.int64)
                taken[other][paired.others] = paired.places
        if len(taken) > 1:
            yield _frame_group(alike, taken)


def _first(entry: tuple[int | None, int]) -> int:
    return entry[0] or 0


def _series(rows: pl.DataFrame, by: list[str]) -> list[Series]:
    return [build_series(own) for own in rows.partition_by(by, maintain_order=True)]


_MayMeet = Callable[[int, int], bool]
"""Whether two members may have met."""


def _find_partners(alike: _Candidates, numbers: Sequence[int | None], stages: Unions) -> _MayMeet:
    """Return who may have met: of unnamed messages ranks of different stages, the next ones where that shows.

    A stage follows another at one distance of numbers, and the first may follow the last.
    """
    if alike.is_named or not alike.is_message or stages.has_all(range(len(numbers))):
        return lambda _one, _other: True
    series_of: defaultdict[int, list[int]] = defaultdict(list)
    for place, own in enumerate(alike.series):
        series_of[own.member].append(place)
    member_of = {number: member for member in series_of if (number := numbers[member]) is not None}
    if len(member_of) < len(series_of):
        return lambda one, other: not stages.has_both(one, other)
    known, count = sorted(member_of), max(member_of) + 1

    def measure(number: int, distance: int) -> float:
        """Return the least variation of the messages of a rank with those so far away."""
        member = member_of[number]
        others = [member_of.get(number + one) for one in (distance, -distance)]
        pairs = [
            (one, other)
            for place in others
            if place is not None and not stages.has_both(member, place)
            for one in series_of[member]
            for other in series_of[place]
        ]
        found = [paired.spread_ns for pair in pairs if (paired := _pair_members(alike, *pair)) is not None]
        return min(found, default=math.inf)

    sample = [known[nth] for nth in sample_evenly(len(known))]
    spreads: dict[int, list[float]] = {}
    for distance in (one for one in range(1, count // 2 + 1) if count % one == 0):
        found = [measure(number, distance) for number in sample]
        spreads[distance] = [one for one in found if math.isfinite(one)]
    most = max(map(len, spreads.values()), default=0)
    if most < FEWEST_PAIRED_COUNT:
        return lambda one, other: not stages.has_both(one, other)
    best = min(
        (one for one, own in spreads.items() if len(own) >= REGULAR_GROUPS_SHARE * most),
        key=lambda one: float(np.median(spreads[one])),
    )
    near = {best, count - best}
    return lambda one, other: (
        abs((numbers[one] or 0) - (numbers[other] or 0)) in near and not stages.has_both(one, other)
    )


def _form_groups(
    alike: _Candidates, known: AbstractSet[frozenset[int]], may_meet: _MayMeet
) -> Iterator[pl.DataFrame]:
    """Put the series into groups, each paired with the first of its group.

    The first remaining series gets those with the most constant distance to it. Their number is that of the
    group's participants, or of all that are about as constant as the best. Where the ranks of a `known` group
    are the most constant ones by far, it ends with them.
    """
    left = list(range(len(alike.series)))
    member_of = [own.member for own in alike.series]
    while len(left) > 1:
        leader = left.pop(0)
        found = [
            (paired, other)
            for other in left
            if may_meet(member_of[leader], member_of[other])
            and (paired := _pair_members(alike, leader, other)) is not None
        ]
        found.sort(key=lambda entry: (entry[0].spread_ns, entry[1]))
        found = _cut_at_known(alike, leader, found, known)
        taken = {alike.series[leader].member: (leader, np.arange(len(alike.series[leader].rows)))}
        for paired, other in found:
            is_even = (
                alike.is_named or paired.spread_ns <= EVEN_GROUP_RATIO * found[0][0].spread_ns + EVEN_GROUP_NS
            )
            if (
                alike.series[other].member in taken
                or len(taken) == alike.participants
                or not (is_even or alike.participants)
            ):
                continue
            numbers = np.full(len(alike.series[other].rows), -1, np.int64)
            numbers[paired.others] = paired.places
            taken[alike.series[other].member] = (other, numbers)
        left = [place for place in left if all(place != one for one, _ in taken.values())]
        if len(taken) > 1:
            yield _frame_group(alike, dict(taken.values()))


def _frame_group(alike: _Candidates, taken: Mapping[int, Rows]) -> pl.DataFrame:
    """Return a group of series: its rows, and which of its collectives each is; `taken` has -1 for none."""
    return pl.DataFrame(
        {
            "row": np.concatenate([alike.series[place].rows for place in taken]),
            "meeting": np.concatenate(list(taken.values())),
        },
        schema={"row": pl.UInt32, "meeting": pl.Int64},
    ).filter(pl.col("meeting") >= 0)


def _cut_at_known(
    alike: _Candidates, leader: int, found: list[tuple[Pairing, int]], known: AbstractSet[frozenset[int]]
) -> list[tuple[Pairing, int]]:
    """Return the first pairs if their ranks are a known group and the next one is far less constant.

    Two ranks are more often the most constant ones by chance, so that the next must be farther away.
    """
    if alike.is_named or alike.participants is not None:
        return found
    members = {alike.series[leader].member}
    for count, (paired, other) in enumerate(found[:-1], start=1):
        members.add(alike.series[other].member)
        ratio = KNOWN_PAIR_RATIO if count == 1 else KNOWN_GROUP_RATIO
        if found[count][0].spread_ns >= ratio * paired.spread_ns and frozenset(members) in known:
            return found[:count]
    return found


def _pair_members(alike: _Candidates, leader: int, place: int) -> Pairing | None:
    one, other = alike.series[leader], alike.series[place]
    if one.member == other.member:
        return None
    if one.clock != other.clock:
        return pair_by_order(one, other, is_named=alike.is_named)
    is_sized = alike.is_named or alike.participants not in {None, _OF_A_MESSAGE}
    paired = pair_by_end(one, other, is_sized=is_sized)
    if paired is None and alike.is_named:  # the recorded begin of a session may be wrong
        paired = pair_by_order(one, other, is_named=False)
    return paired
