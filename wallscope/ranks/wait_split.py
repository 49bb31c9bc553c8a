"""Split collectives into waits for late peers and transfer, and sum the steps of ranks.

The transfer of a meeting is the shortest time that one of its participants stays in it, whatever the clocks
show; what others stay longer is waiting. The part of an operation on its rank's blame chain is
assumed to be its tail, because a chain walks backwards from the end of the operation.

The time of collectives in a step is known per kind of operation, the wait of each from its match. Both are
combined in order of time: a step gets the operations that began first, waiting before transfer.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl

from wallscope.columns import Rows, iterate_runs, match_rows, sum_by_group
from wallscope.model.analysis import CauseTime, PipelineStage, Rank
from wallscope.model.cause_catalogue import (
    COMMUNICATION_UNRESOLVED,
    MEMORY_UNRESOLVED,
    PEER_WAIT,
    PIPELINE_WAIT,
    TRANSFER,
    UNRECOGNIZED,
    UNSPLIT,
    drop_detail,
    is_part,
)
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import Axis, Wall
from wallscope.model.profile import Profile
from wallscope.profile.step_slices import encode_pairs
from wallscope.profile.time_moves import MOVES, join_split_causes, move_time, on_axes
from wallscope.ranks.match_collectives import WITHIN_STAGE, rows_by_member
from wallscope.records import dataclass
from wallscope.thresholds.causes import EARLY_RECEIVER_NS
from wallscope.thresholds.verdict import MATERIAL_SHARE
from wallscope.trace.intervals import Times, apportion
from wallscope.trace.steps import is_ordinary

_WALLS = [f"{wall}_wall_ns" for wall in Wall]
_COMPUTE, _BEFORE = f"{Wall.COMPUTE}_wall_ns", f"before_{Wall.COMPUTE}_ns"
_OPEN = ("unattributed/", COMMUNICATION_UNRESOLVED, MEMORY_UNRESOLVED, UNRECOGNIZED)


@dataclass(frozen=True, slots=True)
class StepSums:
    """The steps of a rank (`input`, `step`): `deciding` are the steady ones, or all if none is steady.

    `ordinary` are the deciding steps that make its typical step; `length_ns` and `walls` (a column per wall)
    are those of the deciding ones.
    """

    deciding: pl.DataFrame
    ordinary: pl.DataFrame
    length_ns: np.ndarray
    walls: np.ndarray
    steady: int

    @property
    def median_ns(self) -> int | None:
        """The median length, `None` without a steady step."""
        return round(float(np.median(self.length_ns))) if self.steady else None

    def mean_ns(self, rows: pl.DataFrame, column: str) -> int:
        """Return the sum of a column over rows with `input` and `step` in the typical step."""
        return self.mean(int(rows[column][rows_in_steps(self.ordinary, rows)].sum()))

    def mean(self, total: int) -> int:
        """Return a sum over the ordinary steps as its mean in the typical step."""
        return round(Fraction(total, max(len(self.ordinary), 1)))

    def open_ns(self, profile: Profile) -> Times:
        """Return unattributed time in deciding steps, int64 ns: a row per step, columns of `_OPEN`."""
        place, row = locate_steps(self.deciding, profile.causes)
        cause, ns = profile.causes["cause"][row], profile.causes["ns"][row].to_numpy()
        are_open = [cause.str.starts_with(begin).to_numpy() for begin in _OPEN]
        return np.stack([sum_by_group(place[own], ns[own], len(self.deciding)) for own in are_open], axis=1)

    def typical_walls(self, profile: Profile) -> Walls:
        """Return the mean walls of the ordinary steps."""
        own = profile.steps[rows_in_steps(self.ordinary, profile.steps)]
        return Walls(*(round(Fraction(int(own[name].sum()), max(len(own), 1))) for name in _WALLS))


def select_steps(profile: Profile) -> StepSums:
    """Return the steps of a profile that count."""
    steady = profile.steps.filter("steady")
    counts = profile.steps if steady.is_empty() else steady
    length_ns = (counts["end_ns"] - counts["start_ns"]).to_numpy()
    ordinary = counts if steady.is_empty() else counts.filter(pl.Series(is_ordinary(length_ns)))
    return StepSums(
        counts.select("input", "step"),
        ordinary.select("input", "step"),
        length_ns,
        counts.select(_WALLS).to_numpy(),
        len(steady),
    )


def rows_in_steps(steps: pl.DataFrame, rows: pl.DataFrame) -> Rows:
    """Return the indices of the rows with `input` and `step` among some steps, int64."""
    return locate_steps(steps, rows)[1]


def locate_steps(steps: pl.DataFrame, rows: pl.DataFrame) -> tuple[Rows, Rows]:
    """Return the index of the step of each row among some steps, and the index of that row, int64."""
    return match_rows(encode_pairs(steps, "step"), encode_pairs(rows, "step"))


_NS = pl.Int64()
SPLIT = pl.Schema(
    {
        "row": pl.UInt32(),
        "is_whole": pl.Boolean(),  # all participants are present, as far as known
        "joined_ns": _NS,  # when the last participant began
        "is_last": pl.Boolean(),
        "is_pipeline": pl.Boolean(),
        "residence_ns": _NS,
        "wait_ns": _NS,
        "transfer_ns": _NS,
        "blocking_wait_ns": _NS,
    }
)
"""Columns added to each row of a meeting; null if participants are missing."""


def split_waits(rows: pl.DataFrame) -> pl.DataFrame:
    """Return aligned collectives (`clocks.AlignedCollectives.rows`) with the columns of `SPLIT`.

    Operations of one match that never ran at the same time were matched in error, or their clocks are wrong.
    They are not split.
    """
    joined = pl.col("start_ns").max().over("meeting")
    meets = joined < pl.col("end_ns").min().over("meeting") + _tolerance()
    has_all = (pl.col("participants").is_null() | (pl.col("participants") <= pl.len())).all()
    is_whole = (
        pl.col("meeting").is_not_null()
        & pl.col("is_tied").all().over("meeting")
        & meets
        & has_all.over("meeting")
    )
    last = pl.col("row").filter(pl.col("start_ns") == pl.col("start_ns").max()).first().over("meeting")
    return (
        rows.with_columns(
            is_whole=is_whole.fill_null(value=False),
            is_pipeline=pl.col("axis") == Axis.PP,
            residence_ns=pl.col("end_ns") - pl.col("start_ns"),
        )
        .with_columns(
            joined_ns=pl.when("is_whole").then(joined),
            is_last=pl.when("is_whole").then(pl.col("row") == last),
        )
        .with_columns(transfer_ns=pl.when("is_whole").then(pl.col("residence_ns").min().over("meeting")))
        .with_columns(wait_ns=pl.col("residence_ns") - pl.col("transfer_ns"))
        .with_columns(
            blocking_wait_ns=(pl.col("blocking_ns") - pl.col("transfer_ns")).clip(0, pl.col("blocking_ns"))
        )
    )


def _tolerance() -> pl.Expr:
    """Return a tolerance: a sender may end shortly before a receiver's clock shows the begin."""
    return pl.lit(EARLY_RECEIVER_NS, _NS)


PARTS = (PEER_WAIT, PIPELINE_WAIT, TRANSFER)


def split_profile(profile: Profile, rows: pl.DataFrame) -> Profile:
    """Return the profile with the time of collectives split by its `rows` (`split_waits`), as far as matched.

    Without matches there is one cause per axis.
    """
    whole = join_split_causes(profile)
    if rows.is_empty() or not rows["is_whole"].any():
        return whole
    steps = whole.steps[np.lexsort([whole.steps[name].to_numpy() for name in ("start_ns", "input")])]
    owned = on_axes(whole).filter(
        pl.col("cause") == pl.format("communication/{}/" + UNSPLIT, pl.col("axis").cast(pl.String))
    )
    at, row = locate_steps(steps, owned)
    owned, at = _by_kind(owned[row], at, at)
    supply, begins = _supply(rows, steps)
    supplied, part_ns = dict(iterate_runs(encode_pairs(supply, "key"))), _split_into_parts(supply)
    own_ns = owned["owned_ns"].to_numpy()
    moved_ns = np.zeros((len(owned), len(PARTS)), np.int64)
    for kind, mine in iterate_runs(encode_pairs(owned, "key")):
        if kind in supplied:
            parts = part_ns[supplied[kind]]
            moved_ns[mine] = _divide_among_steps(at[mine], own_ns[mine], begins[supplied[kind]], parts)
    return move_time(whole, _moves(owned, moved_ns))


def _by_kind(rows: pl.DataFrame, at: Rows, within: Rows) -> tuple[pl.DataFrame, Rows]:
    """Return rows and their steps, sorted by kind of operation of a capture, then by `within`."""
    order = np.lexsort([within, encode_pairs(rows, "key")])
    return rows[order], at[order]


def _supply(rows: pl.DataFrame, steps: pl.DataFrame) -> tuple[pl.DataFrame, Rows]:
    """Return the collectives of each kind, and the index of the step in which each begins."""
    source = steps["input"].to_numpy()
    keyed = rows.filter(
        pl.col("key").is_not_null() & pl.col("input").is_in(pl.Series(np.unique(source)).implode())
    )
    at = np.searchsorted(source, keyed["input"].to_numpy())  # operations that began before all steps
    place, row = locate_steps(steps, keyed)
    at[row] = place
    return _by_kind(keyed, at, keyed["place"].to_numpy())


def _moves(owned: pl.DataFrame, moved_ns: Times) -> pl.DataFrame:
    """Return the time of each of `PARTS` in each row (`MOVES`)."""
    part, row = np.nonzero(moved_ns.T > 0)
    own = owned[row]
    to = pl.Series("to", PARTS, dtype=pl.String)[part]
    moves = own.select(
        "input",
        "step",
        "key",
        "cause",
        pl.format("communication/{}/{}", pl.col("axis").cast(pl.String), to).alias("to"),
        pl.Series("moved_ns", moved_ns[row, part]),
    )
    return moves.cast(MOVES)


def _divide_among_steps(at: Times, own_ns: Times, begins: Times, part_ns: Times) -> Times:
    """Return the time of one kind of operation in steps, int64 ns: a row per step, a column per part.

    Args:
        at: indices of the steps, int64, in order.
        own_ns: its time in each of these steps, int64 ns.
        begins: index of the step in which each operation begins, int64.
        part_ns: time of each operation by part (`_split_into_parts`), int64 ns.
    """
    order = np.argsort(begins, kind="stable")
    supplied_ns = np.concatenate(([0], part_ns.sum(axis=1)[order].cumsum()))
    supplied_ns = supplied_ns[np.searchsorted(begins[order], at, side="right")]
    missing_ns = np.maximum(np.maximum.accumulate(own_ns.cumsum() - supplied_ns), 0)
    until_ns = _accumulate_parts(part_ns, own_ns.cumsum() - missing_ns)
    return np.diff(until_ns, axis=0, prepend=0)


def _split_into_parts(supply: pl.DataFrame) -> Times:
    """Return the time of each collective by part, int64 ns: columns `PARTS` and unmatched time."""
    is_whole, is_pipeline = supply["is_whole"].to_numpy(), supply["is_pipeline"].to_numpy()
    blocking_ns = supply["blocking_ns"].to_numpy()
    waits_ns = np.where(is_whole, supply["blocking_wait_ns"].fill_null(0).to_numpy(), 0)
    moving_ns = np.where(is_whole, blocking_ns - waits_ns, 0)
    unknown_ns = np.where(is_whole, 0, blocking_ns)
    return np.stack(
        [np.where(is_pipeline, 0, waits_ns), np.where(is_pipeline, waits_ns, 0), moving_ns, unknown_ns],
        axis=1,
    )


def _accumulate_parts(part_ns: Times, taken_ns: Times) -> Times:
    """Return the time of each of `PARTS` before given points, with all parts joined end to end."""
    line = np.concatenate(([0], part_ns.ravel().cumsum()))
    before = np.searchsorted(line, taken_ns, side="right") - 1
    found = []
    for place in range(len(PARTS)):
        alone = np.zeros_like(part_ns)
        alone[:, place] = part_ns[:, place]
        upto = np.concatenate(([0], alone.ravel().cumsum()))
        grows = np.append(np.diff(upto) > 0, False)
        found.append(upto[before] + np.where(grows[before], taken_ns - line[before], 0))
    return np.stack(found, axis=1)


def split_rank(rank: Rank, profile: Profile, rows: pl.DataFrame, steps: StepSums, *, is_alone: bool) -> Rank:
    """Return the rank with the causes of its profile; the parts of one operation sum to its time.

    The gain of a part is at most that of the whole, and at most the time of all such parts. `is_alone` means
    that the ceiling of the whole includes waiting; if ranks were replayed together, it does not.
    """
    own = profile.causes[rows_in_steps(steps.ordinary, profile.causes)]
    sums = dict(own.group_by("cause").agg(pl.col("ns").sum()).sort("cause").iter_rows())
    bounds = _mean_times_by_cause(rows, steps)
    step_ns = max(rank.typical.step_ns, 1)
    listed: list[CauseTime] = []
    for whole in _join_parts(rank.causes):
        parts_ns = _split_cause(whole, sums)
        is_split = any(map(is_part, parts_ns))
        listed += [
            CauseTime(
                cause=cause,
                wall=whole.wall,
                typical_ns=ns,
                share=ns / step_ns if is_split else whole.share,
                recoverable_ns=_limit_recoverable(whole.recoverable_ns, cause, bounds, is_alone=is_alone),
                unresolved_ns=whole.unresolved_ns,
            )
            for cause, ns in parts_ns.items()
        ]
    return replace(rank, causes=tuple(sorted(listed, key=lambda cause: (-cause.typical_ns, cause.cause))))


def _join_parts(causes: Sequence[CauseTime]) -> list[CauseTime]:
    """Join parts of one operation into one cause, with the gain of its best part."""
    found: dict[str, list[CauseTime]] = {}
    for cause in causes:
        found.setdefault(drop_detail(cause.cause), []).append(cause)
    return [
        CauseTime(
            cause=name,
            wall=parts[0].wall,
            typical_ns=sum(one.typical_ns for one in parts),
            share=sum(one.share for one in parts),
            recoverable_ns=max(
                (one.recoverable_ns for one in parts if one.recoverable_ns is not None), default=None
            ),
            unresolved_ns=parts[0].unresolved_ns,
        )
        for name, parts in found.items()
    ]


def _split_cause(whole: CauseTime, sums: dict[str, int]) -> dict[str, int]:
    """Return the time of the parts of a cause in the typical step, by their time in all such steps."""
    parts = {cause: ns for cause, ns in sums.items() if drop_detail(cause) == whole.cause}
    if not any(map(is_part, parts)):
        return {whole.cause: whole.typical_ns}
    total = sum(parts.values())
    return apportion(
        {cause: Fraction(ns * whole.typical_ns, total) for cause, ns in parts.items()}, whole.typical_ns
    )


def _mean_times_by_cause(rows: pl.DataFrame, steps: StepSums) -> dict[str, int]:
    """Return the duration of collectives in the typical step by cause, in ns, critical or not."""
    whole = rows.select("input", "step", "axis", "wait_ns", "transfer_ns", "is_pipeline", "is_whole").filter(
        "is_whole"
    )
    found = {}
    for axis, own in whole.group_by(pl.col("axis").cast(pl.String)):
        waiting = PIPELINE_WAIT if own["is_pipeline"].any() else PEER_WAIT
        for part, column in ((waiting, "wait_ns"), (TRANSFER, "transfer_ns")):
            found[f"communication/{axis[0]}/{part}"] = steps.mean_ns(own, column)
    return found


def _limit_recoverable(
    won_ns: int | None, cause: str, bounds: dict[str, int], *, is_alone: bool
) -> int | None:
    """Return the gain of a part of a cause with a gain, of the whole where it has no parts."""
    if not is_part(cause):
        return won_ns
    if won_ns is None or not (is_alone or cause.endswith(TRANSFER)):
        return None
    return min(won_ns, bounds.get(cause, won_ns))


_OF_MESSAGES = (
    "member", "input", "place", "step", "meeting", "joined_ns", "start_ns", "end_ns", "session_ns",
    "is_pipeline", "is_whole",
)  # fmt: skip


def find_stages(rows: pl.DataFrame, profiles: Sequence[Profile]) -> dict[int, int]:
    """Return the stage of each member that sends to or receives from another, from 0.

    The first stage of a pipeline is the end that first computes in a step: the other one receives before.
    What ranks that share a layer mostly do decides, as one of them may compute something else before. The
    others follow by neighbors, in a ring as the first messages go round.
    """
    messages = rows.select(_OF_MESSAGES).filter(
        pl.col("is_pipeline") & pl.col("is_whole") & pl.col("step").is_not_null()
    )
    if messages.is_empty():
        return {}
    middle = messages.group_by("member").agg(pl.col("step").unique().sort())
    at = middle.select("member", step=pl.col("step").list.get(pl.col("step").list.len() // 2))
    begins_ns = _find_begins_ns(rows, messages, profiles)
    neighbors: defaultdict[int, dict[int, None]] = defaultdict(
        dict
    )  # each in the order of their first messages
    pairs = messages.join(at, on=["member", "step"], how="semi").sort("joined_ns", "meeting")
    for members in pairs.group_by("meeting", maintain_order=True).agg("member")["member"].to_list():
        for one in members:
            neighbors[one] |= dict.fromkeys(other for other in members if other != one)
    found: dict[int, int] = {}
    for first in sorted(
        neighbors, key=lambda member: (len(neighbors[member]) > 1, begins_ns[member], member)
    ):
        if first in found:
            continue
        found[first] = 0
        waiting = deque([first])
        while waiting:
            one = waiting.popleft()
            following = [other for other in neighbors[one] if other not in found]
            for other in following[:1] if one == first else following:
                found[other] = found[one] + 1
                waiting.append(other)
    return _agree_on_stages(rows, found)


def _find_begins_ns(
    rows: pl.DataFrame, messages: pl.DataFrame, profiles: Sequence[Profile]
) -> dict[int, float]:
    """Return when each member that exchanges messages first computes: the median of those it works with."""
    own_ns = {
        member: _find_first_compute_ns(own, profiles[member])
        for member, own in rows_by_member(messages).items()
    }
    begins_ns = dict(own_ns)
    for members in _list_within_stages(rows):
        known = [own_ns[member] for member in members if member in own_ns]
        begins_ns |= {member: float(np.median(known)) for member in members if member in own_ns}
    return begins_ns


def _list_within_stages(rows: pl.DataFrame) -> list[list[int]]:
    """Return ranks that reduce gradients together, or share a layer: they are in one stage."""
    within = rows.select("group", "member", "axis", "is_whole").filter(
        pl.col("is_whole") & pl.col("axis").is_in([str(axis) for axis in WITHIN_STAGE])
    )
    groups = within.group_by("group").agg(pl.col("member").unique().sort())["member"].to_list()
    return sorted(groups, key=lambda members: (len(members), members))


def _agree_on_stages(rows: pl.DataFrame, found: dict[int, int]) -> dict[int, int]:
    """Return the stages, where ranks of one stage that disagree, or lack it, have that of most of them."""
    agreed = dict(found)
    for members in _list_within_stages(rows):
        counts = Counter(found[member] for member in members if member in found)
        most = counts.most_common(2)
        if most and (len(most) == 1 or most[0][1] > most[1][1]):
            agreed |= dict.fromkeys(members, most[0][0])
    return agreed


def _find_first_compute_ns(own: pl.DataFrame, profile: Profile) -> float:
    """Return when a member first computes in the middle step, on the clock of the job, in ns.

    That is the begin of the step, or the end of its first message if almost no compute runs before.
    """
    steps = profile.steps.sort("input", "start_ns").with_columns(
        until=pl.col(_COMPUTE).cum_sum().over("input") - pl.col(_COMPUTE)
    )
    step = steps[len(steps) // 2].row(0, named=True)
    shift_ns = float(np.median((own["start_ns"] - own["session_ns"]).to_numpy()))
    first = (
        own.filter((pl.col("input") == step["input"]) & (pl.col("step") == step["step"]))
        .sort("start_ns")
        .head(1)
    )
    if len(first):
        before = (pl.col("input") == step["input"]) & (pl.col("place") <= first["place"][0])
        computed_ns = int(profile.collectives.select("input", "place", _BEFORE).filter(before)[_BEFORE].sum())
        if computed_ns - step["until"] < MATERIAL_SHARE * step[_COMPUTE]:
            return float(first["end_ns"][0])
    return float(step["start_ns"]) + shift_ns


def summarize_pipeline(
    rows: pl.DataFrame, stage_of: dict[int, int], profiles: Sequence[Profile], steps: Sequence[StepSums]
) -> tuple[PipelineStage, ...]:
    """Return the compute of each stage and the pipeline wait of its chains, means of its ranks."""
    known = rows.select("member", "input", "step", "blocking_wait_ns", "is_pipeline", "is_whole")
    waits = rows_by_member(known.filter(pl.col("is_pipeline") & pl.col("is_whole")))
    listed = []
    for stage in sorted(set(stage_of.values())):
        members = tuple(sorted(member for member, own in stage_of.items() if own == stage))
        bubble = [
            steps[member].mean_ns(waits[member], "blocking_wait_ns") if member in waits else 0
            for member in members
        ]
        walls = [steps[member].typical_walls(profiles[member]) for member in members]
        step_ns = sum(sum(own.parts()) for own in walls)
        listed.append(
            PipelineStage(
                stage=stage,
                places=members,
                compute_ns=round(sum(own.compute for own in walls) / len(members)),
                bubble_ns=round(sum(bubble) / len(members)),
                bubble_share=sum(bubble) / step_ns if step_ns else 0.0,
            )
        )
    return tuple(listed)
