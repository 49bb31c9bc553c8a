"""What communication owns, told alike on both sides: one that does not tell waiting from moving decides."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from wallscope.errors import ComparisonError
from wallscope.model.catalogue import UNSPLIT, is_part, undivided
from wallscope.model.comparison import Mismatch
from wallscope.model.profile import Profile
from wallscope.profile.splitting import undivided_profile
from wallscope.thresholds import UNTOLD_PART_SHARE

_TOLD, _NOT_TOLD = "told from moving", "not told from moving"

Profiles = tuple[Profile, ...]


@dataclass(frozen=True, slots=True)
class Alike:
    """The profiles of both sides with the same parts told, and which side did not tell some."""

    base: Profiles
    head: Profiles
    mismatches: tuple[Mismatch, ...]


def alike(base: Profiles, head: Profiles, gated: Sequence[str]) -> Alike:
    """Both sides with the communication of an axis as one where a side leaves over 5 % of it undivided.

    So it is where a gate asks for it as one.

    Raises:
        ComparisonError: a gate asks for a part that a side does not tell.
    """
    shares = [_left_shares(side) for side in (base, head)]
    divided = {name for side in shares for name, left in side.items() if left < 1}
    untold = {name for name in divided for side in shares if side.get(name, 0.0) > UNTOLD_PART_SHARE}
    for name in gated:
        if is_part(name) and undivided(name) in untold:
            raise ComparisonError(
                f"--fail-on {name} — a side does not tell waiting from moving — gate {undivided(name)}, or"
                " give the exports of all ranks on both sides"
            )
    whole = untold | (divided & set(gated))
    if not whole:
        return Alike(base, head, ())
    told = [
        _NOT_TOLD if any(side.get(name, 0.0) > UNTOLD_PART_SHARE for name in untold) else _TOLD
        for side in shares
    ]
    found = (Mismatch("waiting for peers", told[0], told[1], "note"),) if untold else ()
    ours, theirs = (tuple(undivided_profile(one, whole) for one in side) for side in (base, head))
    return Alike(ours, theirs, found)


def _left_shares(profiles: Iterable[Profile]) -> dict[str, float]:
    """The share of the communication of each axis, named as one, that is not divided into parts."""
    sums: dict[str, int] = defaultdict(int)
    left: dict[str, int] = defaultdict(int)
    for profile in profiles:
        own = profile.causes.filter(pl.col("cause").str.starts_with("communication/"))
        for cause, ns in own.group_by("cause").agg(pl.col("ns").sum()).iter_rows():
            if is_part(cause) or cause.endswith(f"/{UNSPLIT}"):
                sums[undivided(cause)] += ns
                left[undivided(cause)] += ns if not is_part(cause) else 0
    return {name: left[name] / ns for name, ns in sums.items() if ns}
