"""What communication owns of each rank's steps, by what it did: moved bytes, or waited for whom.

What collectives own of a step is known of each kind of operation, what each waits from its meeting. They are
laid beside each other in order of time: a step is owned by those that began first, waiting before moving.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl

from wallscope.arrays.columns import Rows
from wallscope.arrays.groups import runs
from wallscope.model.analysis import CauseTime, Rank
from wallscope.model.catalogue import PEER_WAIT, PIPELINE_WAIT, TRANSFER, UNSPLIT, is_part, undivided
from wallscope.model.profile import Profile
from wallscope.profile.codes import codes
from wallscope.profile.splitting import MOVES, moved, on_axes, undivided_profile
from wallscope.ranks.typical import Steps, among, places
from wallscope.timeline.apportioning import apportioned
from wallscope.timeline.spans import Times

PARTS = (PEER_WAIT, PIPELINE_WAIT, TRANSFER)


def split_profile(profile: Profile, rows: pl.DataFrame) -> Profile:
    """The profile with what collectives own split as far as they were; `rows` are its own (`waits.split`).

    Where nothing was matched it stays one cause an axis.
    """
    whole = undivided_profile(profile)
    if rows.is_empty() or not rows["is_whole"].any():
        return whole
    steps = whole.steps[np.lexsort([whole.steps[name].to_numpy() for name in ("start_ns", "input")])]
    owned = on_axes(whole).filter(
        pl.col("cause") == pl.format("communication/{}/" + UNSPLIT, pl.col("axis").cast(pl.String))
    )
    at, row = places(steps, owned)
    owned, at = _by_kind(owned[row], at, at)
    supply, begins = _supply(rows, steps)
    given, laid = dict(runs(codes(supply, "key"))), _parts(supply)
    own_ns = owned["owned_ns"].to_numpy()
    moved_ns = np.zeros((len(owned), len(PARTS)), np.int64)
    for kind, mine in runs(codes(owned, "key")):
        if kind in given:
            parts = laid[given[kind]]
            moved_ns[mine] = _shares(at[mine], own_ns[mine], begins[given[kind]], parts)
    return moved(whole, _moves(owned, moved_ns))


def _by_kind(rows: pl.DataFrame, at: Rows, within: Rows) -> tuple[pl.DataFrame, Rows]:
    """Rows and their steps, those of each kind of operation of a capture together, in an order there."""
    order = np.lexsort([within, codes(rows, "key")])
    return rows[order], at[order]


def _supply(rows: pl.DataFrame, steps: pl.DataFrame) -> tuple[pl.DataFrame, Rows]:
    """The collectives of each kind, and the place of the step that each begins in."""
    source = steps["input"].to_numpy()
    keyed = rows.filter(
        pl.col("key").is_not_null() & pl.col("input").is_in(pl.Series(np.unique(source)).implode())
    )
    at = np.searchsorted(source, keyed["input"].to_numpy())  # what began before all steps
    place, row = places(steps, keyed)
    at[row] = place
    return _by_kind(keyed, at, keyed["place"].to_numpy())


def _moves(owned: pl.DataFrame, moved_ns: Times) -> pl.DataFrame:
    """What goes to each of `PARTS` of each row (`MOVES`)."""
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


def _shares(at: Times, own_ns: Times, begins: Times, laid: Times) -> Times:
    """What one kind of operation owns of some steps by `PARTS`: a row a step, a column a part.

    Args:
        at: the places of the steps, in order.
        own_ns: what it owns of each.
        begins: the place of the step that each operation begins in.
        laid: what each owns by what it did (`_parts`).
    """
    order = np.argsort(begins, kind="stable")
    given_ns = np.concatenate(([0], laid.sum(axis=1)[order].cumsum()))
    given_ns = given_ns[np.searchsorted(begins[order], at, side="right")]
    missing_ns = np.maximum(np.maximum.accumulate(own_ns.cumsum() - given_ns), 0)
    until_ns = _until(laid, own_ns.cumsum() - missing_ns)
    return np.diff(until_ns, axis=0, prepend=0)


def _parts(supply: pl.DataFrame) -> Times:
    """What each collective owns by what it did then, in that order: `PARTS`, and what was not matched."""
    is_whole, is_pipeline = supply["is_whole"].to_numpy(), supply["is_pipeline"].to_numpy()
    blocking_ns = supply["blocking_ns"].to_numpy()
    waits_ns = np.where(is_whole, supply["blocking_wait_ns"].fill_null(0).to_numpy(), 0)
    moving_ns = np.where(is_whole, blocking_ns - waits_ns, 0)
    unknown_ns = np.where(is_whole, 0, blocking_ns)
    return np.stack(
        [np.where(is_pipeline, 0, waits_ns), np.where(is_pipeline, waits_ns, 0), moving_ns, unknown_ns],
        axis=1,
    )


def _until(laid: Times, taken_ns: Times) -> Times:
    """How much of each of `PARTS` lies before some points of the line on which all follow each other."""
    line = np.concatenate(([0], laid.ravel().cumsum()))
    before = np.searchsorted(line, taken_ns, side="right") - 1
    found = []
    for place in range(len(PARTS)):
        alone = np.zeros_like(laid)
        alone[:, place] = laid[:, place]
        upto = np.concatenate(([0], alone.ravel().cumsum()))
        grows = np.append(np.diff(upto) > 0, False)
        found.append(upto[before] + np.where(grows[before], taken_ns - line[before], 0))
    return np.stack(found, axis=1)


def split_rank(rank: Rank, profile: Profile, rows: pl.DataFrame, steps: Steps, *, is_alone: bool) -> Rank:
    """The rank with the causes that its profile has now; those of one operation own what it owned.

    What a part could win is at most what the whole could, and at most what all such parts take. `is_alone`
    says that the ceiling of the whole held waiting: where ranks were played together, it did not.
    """
    own = profile.causes[among(steps.ordinary, profile.causes)]
    sums = dict(own.group_by("cause").agg(pl.col("ns").sum()).sort("cause").iter_rows())
    bounds = _bounds(rows, steps)
    listed = [
        replace(part, recoverable_ns=_recoverable(part, bounds, is_alone=is_alone))
        if is_part(part.cause)
        else part
        for whole in _undivided(rank.causes)
        for part in _divided(whole, sums, max(rank.typical.step_ns, 1))
    ]
    return replace(rank, causes=tuple(sorted(listed, key=lambda cause: (-cause.typical_ns, cause.cause))))


def _undivided(causes: Sequence[CauseTime]) -> list[CauseTime]:
    """The causes with parts of one operation together; the whole could win what the best part could."""
    found: dict[str, CauseTime] = {}
    for cause in causes:
        name = undivided(cause.cause)
        known = found.get(name)
        if known is None:
            found[name] = replace(cause, cause=name)
            continue
        won = [one.recoverable_ns for one in (known, cause) if one.recoverable_ns is not None]
        found[name] = replace(
            known,
            typical_ns=known.typical_ns + cause.typical_ns,
            share=known.share + cause.share,
            recoverable_ns=max(won, default=None),
        )
    return list(found.values())


def _divided(whole: CauseTime, sums: dict[str, int], step_ns: int) -> list[CauseTime]:
    """A cause of the typical step as its parts, by what these own of all such steps."""
    parts = {cause: ns for cause, ns in sums.items() if undivided(cause) == whole.cause}
    if not any(map(is_part, parts)):
        return [whole]
    total = sum(parts.values())
    typical = apportioned(
        {cause: Fraction(ns * whole.typical_ns, total) for cause, ns in parts.items()}, whole.typical_ns
    )
    return [replace(whole, cause=cause, typical_ns=ns, share=ns / step_ns) for cause, ns in typical.items()]


def _bounds(rows: pl.DataFrame, steps: Steps) -> dict[str, int]:
    """What collectives last in the typical step by cause, whether they block or not."""
    whole = rows.filter("is_whole")
    found = {}
    for axis, own in whole.group_by(pl.col("axis").cast(pl.String)):
        waiting = PIPELINE_WAIT if own["is_pipeline"].any() else PEER_WAIT
        for part, column in ((waiting, "wait_ns"), (TRANSFER, "transfer_ns")):
            found[f"communication/{axis[0]}/{part}"] = steps.mean_ns(own, column)
    return found


def _recoverable(part: CauseTime, bounds: dict[str, int], *, is_alone: bool) -> int | None:
    if part.recoverable_ns is None or not (is_alone or part.cause.endswith(TRANSFER)):
        return None
    return min(part.recoverable_ns, bounds.get(part.cause, part.recoverable_ns))
