"""Profiles in which time is moved from cause to cause, so that sums stay."""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from wallscope.columns import (
    Rows,
    are_among,
    as_integers,
    combine_codes,
    expand_counts,
    match_rows,
    sum_by_group,
)
from wallscope.model.cause_catalogue import drop_detail, is_part
from wallscope.model.enums import Absent
from wallscope.model.profile import STEP_CAUSES, STEP_OWNED, Profile
from wallscope.profile.step_slices import ABSENTS, STATES, decode_pairs, encode_pairs
from wallscope.records import dataclass
from wallscope.trace.intervals import Times, number_spans

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


@dataclass(frozen=True, slots=True)
class _Moves:
    """Time that goes from causes of places to others, once each and in order; `first_ns` goes before it.

    `place` and `cause` are numbers, `to` that of the other cause.
    """

    place: Rows
    cause: Rows
    to: Rows
    ns: Times
    first_ns: Times


def move_time(profile: Profile, moves: pl.DataFrame) -> Profile:
    """Return the profile with time under other causes; `moves` (`MOVES`) take no more than is there."""
    if moves.is_empty():
        return profile
    tables = (profile.owned, profile.causes, moves)
    steps = number_spans(np.concatenate([encode_pairs(table, "step") for table in tables]))
    columns = [profile.causes["cause"], *(moves[name] for name in ("cause", "to"))]
    causes = pl.Series(
        "cause", sorted(set().union(*(column.unique() for column in columns))), dtype=pl.String
    )
    return replace(
        profile,
        owned=_move_attributed_time(profile.owned, moves, steps, len(profile.keys), causes),
        causes=_move_causes(profile.causes, moves, steps, causes),
    )


def _index_causes(causes: pl.Series, columns: pl.Series) -> Rows:
    """Return the places of causes among all."""
    return as_integers(columns.cast(pl.Enum(causes))).astype(np.int64)


def _sum_moves(sizes: tuple[int, int, int], place: Rows, moves: pl.DataFrame, causes: pl.Series) -> _Moves:
    (place, cause, to), group = combine_codes(
        sizes, place, _index_causes(causes, moves["cause"]), _index_causes(causes, moves["to"])
    )
    ns = sum_by_group(group, moves["moved_ns"].to_numpy(), place.size)
    return _Moves(place, cause, to, ns, _time_before(place * causes.len() + cause, ns))


def _time_before(number: Rows, ns: Times) -> Times:
    """Return what rows of the same number, which are together, have before each."""
    upto: Times = np.cumsum(ns) - ns
    return upto - upto[np.searchsorted(number, number)]


def join_split_causes(profile: Profile, wholes: Collection[str] | None = None) -> Profile:
    """Return the profile with the time of collectives under one cause an axis, as of one rank alone.

    `wholes` are the causes that stand for all of an axis, where only some are meant.
    """
    if not any(map(is_part, profile.causes["cause"].unique())):
        return profile
    own = on_axes(profile)
    causes = own["cause"].unique()
    whole = {cause: drop_detail(cause) for cause in causes if drop_detail(cause) != cause}
    if wholes is not None:
        whole = {cause: name for cause, name in whole.items() if name in wholes}
    parts = own.filter(pl.col("cause").is_in(list(whole)))
    moves = parts.with_columns(to=pl.col("cause").replace(whole), moved_ns=pl.col("owned_ns"))
    return move_time(profile, moves.select(MOVES.names()).cast(MOVES))


def on_axes(profile: Profile) -> pl.DataFrame:
    """Return what operations with an axis own, with their `axis`."""
    axis = profile.keys["axis"]
    key = profile.owned["key"].to_numpy()
    own = profile.owned[np.flatnonzero(axis.is_not_null().to_numpy()[key])]
    return own.hstack([axis[own["key"]]])


def _move_attributed_time(
    owned: pl.DataFrame, moves: pl.DataFrame, steps: Rows, keys: int, causes: pl.Series
) -> pl.DataFrame:
    """Apply moves to attributed time, in order; kinds of operations without moves stay."""
    number, moving = (
        np.searchsorted(steps, encode_pairs(rows, "step")) * keys + rows["key"].to_numpy()
        for rows in (owned, moves)
    )
    if (number[1:] < number[:-1]).any():
        order = np.argsort(number, kind="stable")
        owned, number = owned[order], number[order]
    sizes = (steps.size * keys, len(causes), len(causes))
    is_touched = are_among(number, moving)
    touched, kept = np.flatnonzero(is_touched), np.flatnonzero(~is_touched)
    place, cause, own_ns, blocking_ns = _apply_moves(
        number[touched], owned[touched], _sum_moves(sizes, moving, moves, causes), causes
    )
    step, key = np.divmod(place, keys)
    changed = pl.DataFrame(
        {
            **decode_pairs(steps[step], "step"),
            "key": key,
            "cause": causes[cause],
            "owned_ns": own_ns,
            "blocking_ns": blocking_ns,
        },
        schema=STEP_OWNED,
    )
    both = owned[kept].vstack(changed).rechunk()  # rows of several chunks are gathered slowly
    return both[np.argsort(np.concatenate([number[kept], place]), kind="stable")]


def _apply_moves(
    place: Rows, owned: pl.DataFrame, moves: _Moves, causes: pl.Series
) -> tuple[Rows, Rows, Times, Times]:
    """Return index, cause, attributed and blocking time after moves, which take the first blocking part."""
    cause = _index_causes(causes, owned["cause"])
    own_ns, blocking_ns = (owned[name].to_numpy() for name in ("owned_ns", "blocking_ns"))
    own, wanted = place * len(causes) + cause, moves.place * len(causes) + moves.cause
    row, held = match_rows(own, wanted)
    taken_ns = sum_by_group(row, moves.ns[held], own.size)
    left = np.flatnonzero(own_ns > taken_ns)
    behind_ns = np.maximum(blocking_ns[row] - moves.first_ns[held], 0)
    (place, cause), group = combine_codes(
        (int(place.max(initial=0)) + 1, len(causes)),
        np.concatenate([place[left], moves.place[held]]),
        np.concatenate([cause[left], moves.to[held]]),
    )
    both_ns = (
        np.concatenate([(own_ns - taken_ns)[left], moves.ns[held]]),
        np.concatenate([np.maximum(blocking_ns - taken_ns, 0)[left], np.minimum(moves.ns[held], behind_ns)]),
    )
    own_ns, blocking_ns = (sum_by_group(group, ns, place.size) for ns in both_ns)
    return place, cause, own_ns, blocking_ns


def _move_causes(
    causes_of: pl.DataFrame, moves: pl.DataFrame, steps: Rows, causes: pl.Series
) -> pl.DataFrame:
    """Apply moves to what the device did meanwhile: they take the rows of a cause one after the other."""
    step, cause = (
        np.searchsorted(steps, encode_pairs(causes_of, "step")),
        _index_causes(causes, causes_of["cause"]),
    )
    state, absent = as_integers(causes_of["state"]), as_integers(causes_of["absent"], len(Absent))
    ns = causes_of["ns"].to_numpy()
    order = np.lexsort((absent, state, cause, step))
    step, cause, state, absent, ns = (column[order] for column in (step, cause, state, absent, ns))
    number = step * len(causes) + cause
    low_ns = _time_before(number, ns)
    sizes = (steps.size, len(causes), len(causes))
    parts = _sum_moves(sizes, np.searchsorted(steps, encode_pairs(moves, "step")), moves, causes)
    wanted = parts.place * len(causes) + parts.cause
    first = np.searchsorted(number, wanted)
    counts = np.searchsorted(number, wanted, side="right") - first
    part, nth = expand_counts(counts)
    row = first[part] + nth
    shared_ns = np.minimum(low_ns[row] + ns[row], parts.first_ns[part] + parts.ns[part]) - np.maximum(
        low_ns[row], parts.first_ns[part]
    )
    held = np.flatnonzero(shared_ns > 0)
    part, row, shared_ns = part[held], row[held], shared_ns[held]
    left_ns = ns - sum_by_group(row, shared_ns, ns.size)
    left = np.flatnonzero(left_ns > 0)
    (step, cause, state, absent), group = combine_codes(
        (steps.size, len(causes), len(STATES), len(ABSENTS)),
        np.concatenate([step[left], step[row]]),
        np.concatenate([cause[left], parts.to[part]]),
        np.concatenate([state[left], state[row]]),
        np.concatenate([absent[left], absent[row]]),
    )
    return pl.DataFrame(
        {
            **decode_pairs(steps[step], "step"),
            "cause": causes[cause],
            "state": STATES[state],
            "absent": ABSENTS[absent],
            "ns": sum_by_group(group, np.concatenate([left_ns[left], shared_ns]), step.size),
        },
        schema=STEP_CAUSES,
    )
