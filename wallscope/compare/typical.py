"""The typical step of a side in whole nanoseconds by wall, cause and operation; each sums to the coarser."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.model.kinds import Wall
from wallscope.model.profile import OPERATION_KEYS, Profile
from wallscope.timeline.apportioning import apportioned
from wallscope.timeline.ordinary import is_ordinary

_KEY = [name for name in OPERATION_KEYS.names() if name != "key"]
_AT = ["input", "step"]
_WHOLE = Fraction(1)


class Key(NamedTuple):
    """What an operation is told apart by (`OPERATION_KEYS`)."""

    path: str
    category: str
    name: str
    axis: str | None
    backend: str | None
    precision: str | None


@dataclass(frozen=True, slots=True)
class Ran:
    """What operations of one kind did in the typical step; bytes and exposure are `None` where unknown."""

    count: Fraction
    work_ns: Fraction
    exposed_ns: Fraction | None
    bytes: Fraction | None


@dataclass(frozen=True, slots=True)
class TypicalStep:
    """A typical step, or the mean of several; owned times sum to `step_ns` at each level."""

    step_ns: int
    walls: dict[Wall, int]
    causes: dict[str, int]
    owned: dict[tuple[str, Key], int]
    ran: dict[Key, Ran]


def wall_of(cause: str) -> Wall:
    """The wall that a cause belongs to."""
    return Wall(cause.partition("/")[0])


def deciding(profile: Profile) -> pl.DataFrame:
    """The steps that decide, in order of time: the steady ones, all if none is."""
    steps = profile.steps.sort("input", "start_ns")
    return steps.filter(pl.col("steady")) if steps["steady"].any() else steps


def lengths_ns(steps: pl.DataFrame) -> npt.NDArray[np.int64]:
    """How long each step takes."""
    return (steps["end_ns"] - steps["start_ns"]).to_numpy()


def typical_step(profiles: Sequence[Profile], scale: Fraction = _WHOLE) -> TypicalStep:
    """The mean over runs of the mean over the ordinary steps of each, times a scale."""
    owned: dict[tuple[str, Key], Fraction] = defaultdict(Fraction)
    ran: dict[Key, list[Ran]] = defaultdict(list)
    for profile in profiles:
        ordinary = _ordinary(profile)
        part = scale / (len(ordinary) * len(profiles))
        _add_owned(owned, profile, ordinary, part)
        _add_ran(ran, profile, ordinary, part)
    return _rounded(owned, {key: total(parts) for key, parts in ran.items()})


def typical_ns(profiles: Sequence[Profile], cause: str = "") -> Fraction:
    """The time of the typical step, or what the causes that begin so own of it: the same means, no more."""
    whole = Fraction()
    for profile in profiles:
        ordinary = _ordinary(profile)
        own = profile.owned.filter(pl.col("cause").str.starts_with(cause))
        owned_ns = int(own.join(ordinary.select(_AT), on=_AT, how="semi")["owned_ns"].sum())
        whole += Fraction(owned_ns, len(ordinary) * len(profiles))
    return whole


def _ordinary(profile: Profile) -> pl.DataFrame:
    steps = deciding(profile)
    return steps.filter(pl.Series(is_ordinary(lengths_ns(steps))))


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


def _add_ran(ran: dict[Key, list[Ran]], profile: Profile, ordinary: pl.DataFrame, part: Fraction) -> None:
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
            Ran(count * part, work_ns * part, exposed, None if size is None else size * part)
        )


def total(parts: Sequence[Ran]) -> Ran:
    """Several kinds of operations together."""
    exposed = [part.exposed_ns for part in parts if part.exposed_ns is not None]
    sizes = [part.bytes for part in parts if part.bytes is not None]
    return Ran(
        sum((part.count for part in parts), Fraction()),
        sum((part.work_ns for part in parts), Fraction()),
        sum(exposed, Fraction()) if len(exposed) == len(parts) else None,
        sum(sizes, Fraction()) if len(sizes) == len(parts) else None,
    )


def _rounded(owned: Mapping[tuple[str, Key], Fraction], ran: dict[Key, Ran]) -> TypicalStep:
    by_cause: dict[str, Fraction] = defaultdict(Fraction)
    by_wall: dict[Wall, Fraction] = dict.fromkeys(Wall, Fraction())
    rows_of: dict[str, dict[tuple[str, Key], Fraction]] = defaultdict(dict)
    for (cause, key), time_ns in owned.items():
        rows_of[cause][cause, key] = time_ns
        by_cause[cause] += time_ns
        by_wall[wall_of(cause)] += time_ns
    step_ns = round(sum(by_wall.values(), Fraction()))
    walls = apportioned(by_wall, step_ns)
    causes: dict[str, int] = {}
    for wall, wall_ns in walls.items():
        causes |= apportioned({c: ns for c, ns in by_cause.items() if wall_of(c) == wall}, wall_ns)
    rows: dict[tuple[str, Key], int] = {}
    for cause, cause_ns in causes.items():
        rows |= apportioned(rows_of[cause], cause_ns)
    return TypicalStep(step_ns, walls, causes, rows, ran)
