"""The typical step of a side in whole nanoseconds by wall, cause and operation; which rank is compared.

Each level sums to the coarser one.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.compare.all_steps import find_warm_up
from wallscope.compare.confidence import is_typical
from wallscope.errors import ComparisonError
from wallscope.model.cause_catalogue import find_wall
from wallscope.model.comparison import RankChange
from wallscope.model.enums import Wall
from wallscope.model.profile import OPERATION_KEYS, Profile
from wallscope.records import dataclass
from wallscope.trace.intervals import apportion

_KEY = [name for name in OPERATION_KEYS.names() if name != "key"]
_AT = ["input", "step"]
_WHOLE = Fraction(1)


class Key(NamedTuple):
    """What identifies an operation (`OPERATION_KEYS`)."""

    path: str
    category: str
    name: str
    axis: str | None
    backend: str | None
    precision: str | None


@dataclass(frozen=True, slots=True)
class OperationWork:
    """What operations of one kind did in a step; bytes and exposure are `None` where unknown."""

    count: Fraction
    work_ns: Fraction
    exposed_ns: Fraction | None
    bytes: Fraction | None


@dataclass(frozen=True, slots=True)
class TypicalStep:
    """A typical step, or the mean of several; times attributed to causes sum to `step_ns` at each level."""

    step_ns: int
    walls: dict[Wall, int]
    causes: dict[str, int]
    owned: dict[tuple[str, Key], int]
    ran: dict[Key, OperationWork]


def steady_steps(profile: Profile) -> pl.DataFrame:
    """Return the steady steps in order of time, all if none is."""
    steps = profile.steps.sort("input", "start_ns")
    return steps.filter(pl.col("steady")) if steps["steady"].any() else steps


def deciding_steps(profile: Profile) -> pl.DataFrame:
    """Return the steps that decide, in order of time: the steady ones after the warm-up."""
    steps = steady_steps(profile)
    warm_up = find_warm_up(lengths_ns(steps))
    return steps if warm_up is None else steps[warm_up.left_out :]


def lengths_ns(steps: pl.DataFrame) -> npt.NDArray[np.int64]:
    """Return how long each step takes."""
    return (steps["end_ns"] - steps["start_ns"]).to_numpy()


def typical_step(
    profiles: Sequence[Profile], scale: Fraction = _WHOLE, *, of_all: bool = False
) -> TypicalStep:
    """Return the mean over runs of the mean over the ordinary steps of each, or `of_all`, times a scale."""
    owned: dict[tuple[str, Key], Fraction] = defaultdict(Fraction)
    ran: dict[Key, list[OperationWork]] = defaultdict(list)
    for profile in profiles:
        ordinary = deciding_steps(profile) if of_all else _ordinary(profile)
        part = scale / (len(ordinary) * len(profiles))
        _add_owned(owned, profile, ordinary, part)
        _add_ran(ran, profile, ordinary, part)
    return _round(owned, {key: total_work(parts) for key, parts in ran.items()})


def typical_ns(profiles: Sequence[Profile], cause: str = "") -> Fraction:
    """Return the time of the typical step, or of the causes in it that begin so: the same means, no more."""
    whole = Fraction()
    for profile in profiles:
        ordinary = _ordinary(profile)
        own = profile.owned.filter(pl.col("cause").str.starts_with(cause))
        owned_ns = int(own.join(ordinary.select(_AT), on=_AT, how="semi")["owned_ns"].sum())
        whole += Fraction(owned_ns, len(ordinary) * len(profiles))
    return whole


def _ordinary(profile: Profile) -> pl.DataFrame:
    steps = deciding_steps(profile)
    return steps.filter(pl.Series(is_typical(lengths_ns(steps))))


def _add_owned(
    owned: dict[tuple[str, Key], Fraction], profile: Profile, ordinary: pl.DataFrame, part: Fraction
) -> None:
    sums = (
        profile.owned.join(ordinary.select(_AT), on=_AT)
        .group_by("cause", "key")
        .agg(pl.col("owned_ns").sum())
        .join(profile.keys, on="key")
    )
    for cause, owned_ns, *key in sums.select("cause", "owned_ns", *_KEY).iter_rows():
        owned[cause, Key(*key)] += owned_ns * part


def _add_ran(
    ran: dict[Key, list[OperationWork]], profile: Profile, ordinary: pl.DataFrame, part: Fraction
) -> None:
    measured = ("exposed_ns", "bytes")
    known = {name: pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()) for name in measured}
    sums = (
        profile.work.join(ordinary.select(_AT), on=_AT)
        .group_by("key")
        .agg(pl.col("count", "work_ns").sum(), **known)
        .join(profile.keys, on="key")
    )
    for count, work_ns, exposed_ns, size, *key in sums.select(
        "count", "work_ns", *measured, *_KEY
    ).iter_rows():
        exposed = None if exposed_ns is None else exposed_ns * part
        ran[Key(*key)].append(
            OperationWork(count * part, work_ns * part, exposed, None if size is None else size * part)
        )


def total_work(parts: Sequence[OperationWork]) -> OperationWork:
    """Return the sums over several kinds of operations."""
    exposed = [part.exposed_ns for part in parts if part.exposed_ns is not None]
    sizes = [part.bytes for part in parts if part.bytes is not None]
    return OperationWork(
        sum((part.count for part in parts), Fraction()),
        sum((part.work_ns for part in parts), Fraction()),
        sum(exposed, Fraction()) if len(exposed) == len(parts) else None,
        sum(sizes, Fraction()) if len(sizes) == len(parts) else None,
    )


def _round(owned: Mapping[tuple[str, Key], Fraction], ran: dict[Key, OperationWork]) -> TypicalStep:
    by_cause: dict[str, Fraction] = defaultdict(Fraction)
    by_wall: dict[Wall, Fraction] = dict.fromkeys(Wall, Fraction())
    rows_of: dict[str, dict[tuple[str, Key], Fraction]] = defaultdict(dict)
    for (cause, key), time_ns in owned.items():
        rows_of[cause][cause, key] = time_ns
        by_cause[cause] += time_ns
        by_wall[find_wall(cause)] += time_ns
    step_ns = round(sum(by_wall.values(), Fraction()))
    walls = apportion(by_wall, step_ns)
    causes: dict[str, int] = {}
    for wall, wall_ns in walls.items():
        causes |= apportion({c: ns for c, ns in by_cause.items() if find_wall(c) == wall}, wall_ns)
    rows: dict[tuple[str, Key], int] = {}
    for cause, cause_ns in causes.items():
        rows |= apportion(rows_of[cause], cause_ns)
    return TypicalStep(step_ns, walls, causes, rows, ran)


RankId = tuple[str, int]
Runs = tuple[tuple[Profile, ...], ...]


@dataclass(frozen=True, slots=True)
class RankPair:
    """The compared rank, with its profiles of each run."""

    rank: RankId | None
    base: tuple[Profile, ...]
    head: tuple[Profile, ...]


def pair_ranks(base: Runs, head: Runs, wanted: int | None) -> RankPair:
    """Return the rank of both sides that analyses are about; the wanted one if any.

    Among such, and where there is none, it is the one that computes the smallest share. Every run has it.
    Sides of one rank each are compared whatever their numbers.

    Raises:
        ComparisonError: they have no rank in common, or not the wanted one.
    """
    sides = [[_by_id(run) for run in runs] for runs in (base, head)]
    common = set.intersection(*(set(run) for runs in sides for run in runs))
    if wanted is not None:
        common &= {("rank", wanted)}
        if not common:
            raise ComparisonError(
                f"--rank {wanted} — is not in every run of both sides — leave it out to see which are"
            )
    if not common:
        if all(len(run) == 1 for runs in sides for run in runs):
            return RankPair(None, *(tuple(run[0] for run in runs) for runs in (base, head)))
        raise ComparisonError("base, head — have no rank in common — give the same ranks on both sides")
    shares = {
        rank: sum(_compute_share(tuple(run[rank] for run in runs)) for runs in sides)
        for rank in sorted(common)
    }
    shown = {
        rank: sum(run[rank].header.is_representative for runs in sides for run in runs) for rank in common
    }
    chosen = min(shares, key=lambda rank: (-shown[rank], shares[rank], rank))
    return RankPair(chosen, *(tuple(run[chosen] for run in runs) for runs in sides))


def rank_changes(base: Runs, head: Runs, chosen: RankId | None) -> tuple[RankChange, ...]:
    """Return the typical steps of the other ranks that every run of both sides has."""
    sides = [[_by_id(run) for run in runs] for runs in (base, head)]
    common = set.intersection(*(set(run) for runs in sides for run in runs)) - {chosen}
    listed = []
    for rank in sorted(common) if chosen is not None else ():
        base_ns, head_ns = (round(typical_ns(tuple(run[rank] for run in runs))) for runs in sides)
        header = sides[0][0][rank].header
        listed.append(
            RankChange(header.rank, header.device, base_ns, head_ns, head_ns / base_ns if base_ns else 1.0)
        )
    return tuple(listed)


def _by_id(run: tuple[Profile, ...]) -> dict[RankId, Profile]:
    """Return the ranks of a run by number, by device where the number is not known, else by place."""
    for ids in (
        [None if profile.header.rank is None else ("rank", profile.header.rank) for profile in run],
        [None if profile.header.device is None else ("device", profile.header.device) for profile in run],
        [("place", place) for place in range(len(run))],
    ):
        known = [rank for rank in ids if rank is not None]
        if len(set(known)) == len(run):
            return dict(zip(known, run, strict=True))
    raise AssertionError


def _compute_share(profiles: tuple[Profile, ...]) -> float:
    step_ns = typical_ns(profiles)
    return float(typical_ns(profiles, f"{Wall.COMPUTE}/") / step_ns) if step_ns else 0.0
