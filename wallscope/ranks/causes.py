"""What communication owns of each rank's steps, by what it did: moved bytes, or waited for whom.

What collectives own of a step is known of each kind of operation, what each waits from its meeting. They are
laid beside each other in order of time: a step is owned by those that began first, waiting before moving.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl

from wallscope.model.analysis import CauseTime, Rank
from wallscope.model.catalogue import PEER_WAIT, PIPELINE_WAIT, TRANSFER, UNSPLIT, is_part, undivided
from wallscope.model.profile import Profile
from wallscope.profile.splitting import MOVES, moved, undivided_profile
from wallscope.ranks.typical import Steps
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
    axes = whole.keys.select("key", "axis").filter(pl.col("axis").is_not_null())
    owned = (
        whole.owned.join(axes, on="key")
        .filter(pl.col("cause") == pl.format("communication/{}/" + UNSPLIT, pl.col("axis").cast(pl.String)))
        .sort("input", "key", "step")
    )
    supply = rows.filter(pl.col("key").is_not_null()).sort("input", "key", "place")
    of_key = supply.partition_by("input", "key", as_dict=True, maintain_order=True)
    steps_of = whole.steps.sort("start_ns").partition_by("input", as_dict=True, maintain_order=True)
    found = [
        _moves(own, of_key[at], steps_of[at[0],])
        for at, own in owned.partition_by("input", "key", as_dict=True, maintain_order=True).items()
        if at in of_key
    ]
    return moved(whole, pl.concat([MOVES.to_frame(), *found]))


def _moves(owned: pl.DataFrame, supply: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """What one kind of operation owns of each step, and which part of it was which (`MOVES`)."""
    own_ns = (
        steps.join(owned, on="step", how="left", maintain_order="left")["owned_ns"].fill_null(0).to_numpy()
    )
    number = {step: place for place, step in enumerate(steps["step"])}
    begins = np.array([number.get(step, 0) for step in supply["step"]], np.int64)
    parts = _parts(supply)
    given_ns = np.zeros(own_ns.size, np.int64)
    np.add.at(given_ns, begins, sum(parts.values()))
    missing_ns = np.maximum(np.maximum.accumulate(own_ns.cumsum() - given_ns.cumsum()), 0)
    taken_ns = own_ns.cumsum() - missing_ns
    found = [
        pl.DataFrame(
            {
                "input": owned["input"][0],
                "step": steps["step"],
                "key": owned["key"][0],
                "cause": owned["cause"][0],
                "to": f"{owned['cause'][0].rpartition('/')[0]}/{part}",
                "moved_ns": np.diff(upto_ns, prepend=0),
            },
            schema=MOVES,
        )
        for part, upto_ns in _until(parts, taken_ns)
    ]
    return pl.concat([MOVES.to_frame(), *found]).filter(pl.col("moved_ns") > 0)


def _parts(supply: pl.DataFrame) -> dict[str, Times]:
    """What each collective owns by what it did then, in the order in which it did."""
    waits_ns = pl.when("is_whole").then("blocking_wait_ns").otherwise(0)
    told = supply.select(
        pl.when("is_pipeline").then(0).otherwise(waits_ns).alias(PEER_WAIT),
        pl.when("is_pipeline").then(waits_ns).otherwise(0).alias(PIPELINE_WAIT),
        pl.when("is_whole").then(pl.col("blocking_ns") - waits_ns).otherwise(0).alias(TRANSFER),
        pl.when("is_whole").then(0).otherwise("blocking_ns").alias(UNSPLIT),
    )
    return {name: told[name].to_numpy() for name in told.columns}


def _until(parts: dict[str, Times], taken_ns: Times) -> Iterator[tuple[str, Times]]:
    """How much of each part lies before some points of the line on which all parts follow each other."""
    laid = np.stack(list(parts.values()), axis=1)
    line = np.concatenate(([0], laid.ravel().cumsum()))
    for place, part in enumerate(parts):
        if part in PARTS:
            alone = np.zeros_like(laid)
            alone[:, place] = laid[:, place]
            upto = np.concatenate(([0], alone.ravel().cumsum()))
            yield part, np.rint(_along(taken_ns, line, upto)).astype(np.int64)


def _along(at: Times, line: Times, upto: Times) -> Times:
    """A value that grows as fast as the line, or not at all, between its points; exact for whole numbers."""
    before = np.searchsorted(line, at, side="right") - 1
    before = np.minimum(before, line.size - 1)
    behind = np.minimum(before + 1, line.size - 1)
    grows = upto[behind] > upto[before]
    return np.asarray(upto[before] + np.where(grows, at - line[before], 0))


def split_rank(rank: Rank, profile: Profile, rows: pl.DataFrame, steps: Steps, *, is_alone: bool) -> Rank:
    """The rank with the causes that its profile has now; those of one operation own what it owned.

    What a part could win is at most what the whole could, and at most what all such parts take. `is_alone`
    says that the ceiling of the whole held waiting: where ranks were played together, it did not.
    """
    own = profile.owned.join(steps.ordinary, on=["input", "step"], how="semi")
    sums = dict(own.group_by("cause").agg(pl.col("owned_ns").sum()).sort("cause").iter_rows())
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
