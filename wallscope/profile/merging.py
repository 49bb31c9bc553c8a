"""Profiles of one rank put together: the union of the captures that they tell of."""

from dataclasses import replace
from functools import reduce

import polars as pl

from wallscope.errors import ProfileError
from wallscope.model.profile import OPERATION_KEYS, Header, Profile, ProfiledInput
from wallscope.profile.container import TABLES

_KEY = [name for name in OPERATION_KEYS.names() if name != "key"]


def merged(first: Profile, *others: Profile) -> Profile:
    """All steps of some profiles of one rank and one kind of work; associative, commutative, idempotent.

    Raises:
        ProfileError: they are of different ranks or work, or tell different things of one step.
    """
    return reduce(_merged_two, others, first)


def _merged_two(one: Profile, other: Profile) -> Profile:
    inputs = tuple(sorted({*one.header.inputs, *other.header.inputs}, key=_by_fingerprint))
    keys = pl.concat([one.keys, other.keys]).select(_KEY).unique().sort(_KEY, nulls_last=True)
    keys = keys.with_row_index("key").select(OPERATION_KEYS.names()).cast(OPERATION_KEYS)
    sides = [_renumbered(side, inputs, keys) for side in (one, other)]
    if replace(one.header, inputs=()) != replace(other.header, inputs=()):
        raise ProfileError("profiles — they are of different ranks or work — merge those of one rank alone")
    frames = {
        name: pl.concat([getattr(side, name) for side in sides]).unique().sort(pl.all(), nulls_last=True)
        for name in TABLES
        if name != "keys"
    }
    profile = Profile(
        Header(one.header.rank, one.header.device, one.header.work, inputs), keys=keys, **frames
    )
    is_twice = profile.steps.select(pl.struct("input", "step").is_duplicated().any()).item()
    if is_twice or len({entry.fingerprint for entry in inputs}) < len(inputs):
        raise ProfileError("profiles — they tell different things of one step — analyse the captures again")
    return profile


def _renumbered(profile: Profile, inputs: tuple[ProfiledInput, ...], keys: pl.DataFrame) -> Profile:
    """The profile with the places of captures and the numbers of keys of the union."""
    place = pl.Series([inputs.index(entry) for entry in profile.header.inputs], dtype=pl.UInt32)
    both = profile.keys.join(keys.rename({"key": "new"}), on=_KEY, how="left", nulls_equal=True)
    number = both.sort("key")["new"]

    def placed(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(place.gather(frame["input"]).alias("input"))

    def numbered(frame: pl.DataFrame) -> pl.DataFrame:
        return placed(frame).with_columns(number.gather(frame["key"]).alias("key"))

    return replace(
        profile,
        steps=placed(profile.steps),
        work=numbered(profile.work),
        owned=numbered(profile.owned),
        causes=placed(profile.causes),
        recoverable=placed(profile.recoverable),
        collectives=numbered(profile.collectives),
    )


def _by_fingerprint(entry: ProfiledInput) -> tuple[str, str]:
    return (entry.fingerprint, repr(entry))
