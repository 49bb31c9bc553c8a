"""Who pays, by finer or coarser names: time goes from one cause to another, and sums stay what they were."""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import polars as pl

from wallscope.model.catalogue import is_part, undivided
from wallscope.model.profile import STEP_CAUSES, STEP_OWNED, Profile

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


def moved(profile: Profile, moves: pl.DataFrame) -> Profile:
    """The profile with time under other causes; `moves` (`MOVES`) take no more than is there."""
    if moves.is_empty():
        return profile
    names = pl.concat([moves["cause"].unique(), moves["to"].unique()]).unique()
    is_touched = pl.col("cause").is_in(names.implode())
    owned, causes = (
        pl.concat([table.filter(~is_touched), change(table.filter(is_touched), moves)])
        for table, change in ((profile.owned, _owned), (profile.causes, _causes))
    )
    return replace(
        profile,
        owned=owned.sort("input", "step", "key", "cause"),
        causes=causes.sort("input", "step", "cause", "state", "absent", nulls_last=True),
    )


def undivided_profile(profile: Profile, wholes: Collection[str] | None = None) -> Profile:
    """The profile with what collectives own under one cause an axis, as one rank alone tells it.

    `wholes` are the causes that stand for all of an axis, where only some are meant.
    """
    if not any(map(is_part, profile.owned["cause"].unique())):
        return profile
    own = profile.owned.join(profile.keys.select("key", "axis"), on="key").filter(
        pl.col("axis").is_not_null()
    )
    causes = own["cause"].unique()
    whole = {cause: undivided(cause) for cause in causes if undivided(cause) != cause}
    if wholes is not None:
        whole = {cause: name for cause, name in whole.items() if name in wholes}
    parts = own.filter(pl.col("cause").is_in(list(whole)))
    moves = parts.with_columns(to=pl.col("cause").replace(whole), moved_ns=pl.col("owned_ns"))
    return moved(profile, moves.select(MOVES.names()).cast(MOVES))


def _owned(owned: pl.DataFrame, moves: pl.DataFrame) -> pl.DataFrame:
    """What each kind of operation owns; of that which blocked, moves take the first part."""
    by = ["input", "step", "key", "cause"]
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
