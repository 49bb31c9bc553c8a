"""Who pays, by finer or coarser names: time goes from one cause to another, and sums stay what they were."""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from wallscope.model.catalogue import is_part, undivided
from wallscope.model.profile import STEP_CAUSES, STEP_OWNED, Profile
from wallscope.profile.numbers import flags, rows_of
from wallscope.timeline.nesting import Rows
from wallscope.timeline.spans import distinct

MOVES: Final = pl.Schema(
    {
        "input": pl.UInt32(),
        "step": pl.UInt32(),
        "key": pl.UInt32(),
        "cause": pl.String(),
        "to": pl.String(),
        "moved_ns": pl.Int64(),
    }
)
"""Time that goes from one cause to another, in one step, of one kind of operation."""

_OF_OWNED: Final = ("input", "step", "key", "cause")


def moved(profile: Profile, moves: pl.DataFrame) -> Profile:
    """The profile with time under other causes; `moves` (`MOVES`) take no more than is there."""
    if moves.is_empty():
        return profile
    names = pl.concat([moves["cause"].unique(), moves["to"].unique()]).unique()
    is_touched = pl.col("cause").is_in(names.implode())
    causes = pl.concat(
        [profile.causes.filter(~is_touched), _causes(profile.causes.filter(is_touched), moves)]
    )
    return replace(
        profile,
        owned=_owned_with(profile, moves),
        causes=causes.sort("input", "step", "cause", "state", "absent", nulls_last=True),
    )


def _owned_with(profile: Profile, moves: pl.DataFrame) -> pl.DataFrame:
    """What is owned after moves, in order; rows of kinds of operations that moves do not touch stay."""
    owned, number = profile.owned, _numbers(profile, profile.owned)
    if (number[1:] < number[:-1]).any():
        order = np.argsort(number, kind="stable")
        owned, number = owned[order], number[order]
    _, touched = rows_of(distinct(_numbers(profile, moves)), number)
    kept = np.flatnonzero(~flags(touched, number.size))
    changed = _owned(owned[touched], moves).sort(*_OF_OWNED)
    both = owned[kept].vstack(changed).rechunk()  # rows of several chunks are gathered slowly
    return both[np.argsort(np.concatenate([number[kept], _numbers(profile, changed)]), kind="stable")]


def _numbers(profile: Profile, rows: pl.DataFrame) -> Rows:
    """A number for capture, step and key of each row, in their order."""
    in_order, own = (
        table["input"].to_numpy().astype(np.int64) << 32 | table["step"].to_numpy()
        for table in (profile.steps, rows)
    )
    found: Rows = np.searchsorted(np.sort(in_order), own) * len(profile.keys) + rows["key"].to_numpy()
    return found


def undivided_profile(profile: Profile, wholes: Collection[str] | None = None) -> Profile:
    """The profile with what collectives own under one cause an axis, as one rank alone tells it.

    `wholes` are the causes that stand for all of an axis, where only some are meant.
    """
    if not any(map(is_part, profile.causes["cause"].unique())):
        return profile
    own = on_axes(profile)
    causes = own["cause"].unique()
    whole = {cause: undivided(cause) for cause in causes if undivided(cause) != cause}
    if wholes is not None:
        whole = {cause: name for cause, name in whole.items() if name in wholes}
    parts = own.filter(pl.col("cause").is_in(list(whole)))
    moves = parts.with_columns(to=pl.col("cause").replace(whole), moved_ns=pl.col("owned_ns"))
    return moved(profile, moves.select(MOVES.names()).cast(MOVES))


def on_axes(profile: Profile) -> pl.DataFrame:
    """What operations with an axis own, with their `axis`."""
    axis = profile.keys["axis"]
    key = profile.owned["key"].to_numpy()
    own = profile.owned[np.flatnonzero(axis.is_not_null().to_numpy()[key])]
    return own.hstack([axis[own["key"]]])


def _owned(owned: pl.DataFrame, moves: pl.DataFrame) -> pl.DataFrame:
    """What each kind of operation owns; of that which blocked, moves take the first part."""
    by = list(_OF_OWNED)
    upto = (pl.col("moved_ns").cum_sum() - pl.col("moved_ns")).over(by)
    sums = moves.group_by(*by, "to").agg(pl.col("moved_ns").sum()).sort(*by, "to").with_columns(first=upto)
    taken = sums.group_by(by).agg(taken=pl.col("moved_ns").sum())
    kept = owned.join(taken, on=by, how="left").with_columns(
        pl.col("owned_ns") - pl.col("taken").fill_null(0),
        (pl.col("blocking_ns") - pl.col("taken").fill_null(0)).clip(0),
    )
    behind_ns = (pl.col("blocking_ns") - pl.col("first")).clip(0)
    fresh = sums.join(owned, on=by).with_columns(
        cause="to", owned_ns="moved_ns", blocking_ns=pl.min_horizontal("moved_ns", behind_ns)
    )
    both = [part.select(STEP_OWNED.names()) for part in (kept.filter(pl.col("owned_ns") > 0), fresh)]
    return pl.concat(both).group_by(by).agg(pl.col("owned_ns", "blocking_ns").sum()).cast(STEP_OWNED)


def _causes(causes: pl.DataFrame, moves: pl.DataFrame) -> pl.DataFrame:
    """The same of what the device did meanwhile: moves take the rows of a cause one after the other."""
    by = ["input", "step", "cause"]
    order = [*by, "state", "absent"]
    upto = (pl.col("ns").cum_sum() - pl.col("ns")).over(by)
    rows = (
        causes.sort(order, nulls_last=True)
        .with_columns(low=upto)
        .with_columns(high=pl.col("low") + pl.col("ns"))
    )
    sums = moves.group_by(*by, "to").agg(ns=pl.col("moved_ns").sum()).sort(*by, "to")
    parts = sums.with_columns(first=upto).with_columns(last=pl.col("first") + pl.col("ns")).drop("ns")
    shared = pl.min_horizontal("high", "last") - pl.max_horizontal("low", "first")
    cut = rows.join(parts, on=by).with_columns(ns=shared).filter(pl.col("ns") > 0)
    taken = cut.group_by(order).agg(taken=pl.col("ns").sum())
    left = rows.join(taken, on=order, how="left", nulls_equal=True).with_columns(
        pl.col("ns") - pl.col("taken").fill_null(0)
    )
    both = [left.filter(pl.col("ns") > 0), cut.with_columns(cause=pl.col("to"))]
    whole = pl.concat([part.select(STEP_CAUSES.names()) for part in both])
    return whole.group_by(order).agg(pl.col("ns").sum()).select(STEP_CAUSES.names()).cast(STEP_CAUSES)
