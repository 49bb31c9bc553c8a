"""The tables of a profile from the slices of a rank and its operations."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.arrays.columns import Flags, Rows, filled
from wallscope.arrays.groups import combined, distinct_rows, summed
from wallscope.arrays.lookup import flags, rows_of
from wallscope.model.frames import BUDGET_PARTS
from wallscope.model.kinds import Axis, Wall
from wallscope.model.profile import (
    PROFILE_STEPS,
    STEP_CAUSES,
    STEP_OWNED,
    STEP_WORK,
    Communicators,
    Header,
    Profile,
)
from wallscope.profile.collectives import rank_collectives
from wallscope.profile.describing import OTHERS, Described
from wallscope.profile.kinds import ABSENTS, NAME, PATH, STATES, Said, spelled
from wallscope.profile.pieces import Owned, Pieces, owned, pieces
from wallscope.timeline.computing import computes
from wallscope.timeline.spans import Times

_MOST_ROWS, _FEWEST_KEYS = 60_000, 100


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a profile that one capture fills."""

    steps: pl.DataFrame
    keys: pl.DataFrame
    work: pl.DataFrame
    owned: pl.DataFrame
    causes: pl.DataFrame
    communicators: tuple[Communicators, ...]
    collectives: pl.DataFrame

    def profile(self, header: Header, recoverable: pl.DataFrame) -> Profile:
        """The profile, with what only the whole answer knows."""
        return Profile(
            header, self.steps, self.keys, self.work, self.owned, self.causes, recoverable, self.collectives
        )


def tables(
    operations: pl.DataFrame, windows: pl.DataFrame, slices: pl.DataFrame, described: Described
) -> Tables:
    """The tables of one rank from its `CLASSIFIED` operations, windows (`STEPS`, `BUDGETS`) and `SLICES`.

    Of a rank with very many kinds of operations the smallest are one, named `other operations`, per category.
    """
    windows = windows[np.argsort(windows["start_ns"].to_numpy(), kind="stable")]
    steps = np.sort(windows["step"].to_numpy())
    op = operations["op"].to_numpy()
    kinds, kind_of = described.kinds(operations)
    are_computing = computes(filled(operations["class"]))
    taken = pieces(operations, windows, are_computing)
    paying, on_threads = owned(slices, steps, kind_of, int(op[0]), described)
    keys, key_of = _keys(
        np.concatenate([kinds, on_threads]),
        np.concatenate([kind_of[taken.row], paying.kind]),
        np.concatenate([taken.work_ns, paying.ns]),
        max(_MOST_ROWS // max(len(windows), 1), _FEWEST_KEYS),
        described.said,
    )
    return Tables(
        steps=_steps(windows, paying),
        keys=spelled(keys, described.said),
        work=_work(taken, key_of[kind_of], are_computing, _bytes(operations, described.counted), steps),
        owned=_paid(paying, key_of[paying.kind], steps),
        causes=_causes(paying, steps),
        communicators=_communicators(op, described),
        collectives=rank_collectives(
            operations, key_of[kind_of], windows, slices, described.axes, described.counted
        ),
    )


def _keys(kinds: Rows, paid: Rows, paid_ns: Times, most: int, said: Said) -> tuple[Rows, Rows]:
    """The kinds that are in a step, at most so many and the others of them as one, and the key of each kind.

    Args:
        kinds: all kinds; of one that is in no step the key is -1.
        paid: the kinds of what is in steps.
        paid_ns: how long that is.
        most: how many keys there may be.
        said: what is said of operations.
    """
    rows, key_of = distinct_rows(kinds)
    is_paid = flags(key_of[paid], len(rows))
    if is_paid.sum() > most:
        sizes_ns = summed(key_of[paid], paid_ns, len(rows))
        rows, row = distinct_rows(_others(rows, is_paid, sizes_ns, most, said))
        key_of = row[key_of]
        is_paid = flags(key_of[paid], len(rows))
    number = np.where(is_paid, np.cumsum(is_paid) - 1, -1)
    return rows[is_paid], number[key_of]


def _others(rows: Rows, is_paid: Flags, sizes_ns: Times, most: int, said: Said) -> Rows:
    """The kinds with all but the largest under one name a category, in no range."""
    nothing_first = np.where(rows == said.ends(), -1, rows)
    order = np.lexsort((*nothing_first.T[::-1], -sizes_ns))
    rest = np.ones(len(rows), np.bool_)
    rest[order[is_paid[order]][:most]] = False
    found = rows.copy()
    found[rest, PATH], found[rest, NAME] = said.fixed[""], said.fixed[OTHERS]
    return found


def _bytes(operations: pl.DataFrame, counted: pl.DataFrame) -> tuple[Times, Flags]:
    """The bytes of each operation, as its record or a call tells, and whether they are known."""
    told, calls = operations["bytes"], counted["op", "bytes"].drop_nulls()
    known, nbytes = told.is_not_null().to_numpy().copy(), told.fill_null(0).to_numpy().copy()
    row, held = rows_of(operations["op"].to_numpy(), calls["op"].to_numpy())
    fresh = ~known[row]
    row, held = row[fresh], held[fresh]
    nbytes[row], known[row] = calls["bytes"].to_numpy()[held], True
    return nbytes, known


def _work(
    pieces: Pieces, keys: Rows, are_computing: Flags, told: tuple[Times, Flags], steps: Rows
) -> pl.DataFrame:
    """What ran in each step, of operations with a key each."""
    nbytes, is_known = told
    many = int(keys.max(initial=0)) + 1
    (step, key), group = combined((steps.size, many), pieces.step, keys[pieces.row])
    beginning = group[pieces.begins]
    begun = pieces.row[pieces.begins]
    is_computing = flags(group[are_computing[pieces.row]], step.size)
    is_open = flags(beginning[~is_known[begun]], step.size)
    return _table(
        STEP_WORK,
        step=steps[step],
        key=key,
        count=np.bincount(beginning, minlength=step.size),
        work_ns=summed(group, pieces.work_ns, step.size),
        exposed_ns=_unless(is_computing, summed(group, pieces.exposed_ns, step.size)),
        bytes=_unless(is_open, summed(beginning, nbytes[begun], step.size)),
    )


def _paid(owned: Owned, keys: Rows, steps: Rows) -> pl.DataFrame:
    """Who pays for each step; each slice has a key."""
    many = int(keys.max(initial=0)) + 1
    sizes = (steps.size, many, len(owned.causes))
    (step, key, cause), group = combined(sizes, owned.step, keys, owned.cause)
    return _table(
        STEP_OWNED,
        step=steps[step],
        key=key,
        cause=owned.causes[cause],
        owned_ns=summed(group, owned.ns, step.size),
        blocking_ns=summed(group, owned.blocking_ns, step.size),
    )


def _causes(owned: Owned, steps: Rows) -> pl.DataFrame:
    """The causes of each step by what the device did."""
    sizes = (steps.size, len(owned.causes), len(STATES), len(ABSENTS))
    columns = (owned.step, owned.cause, owned.state, owned.absent)
    (step, cause, state, absent), group = combined(sizes, *columns)
    return _table(
        STEP_CAUSES,
        step=steps[step],
        cause=owned.causes[cause],
        state=STATES[state],
        absent=ABSENTS[absent],
        ns=summed(group, owned.ns, step.size),
    )


def _steps(windows: pl.DataFrame, owned: Owned) -> pl.DataFrame:
    """The steps with what each wall owns; of one that takes no time none owns a slice."""
    in_order = windows[np.argsort(windows["step"].to_numpy(), kind="stable")]
    walls = summed(owned.step * len(Wall) + owned.wall, owned.ns, len(windows) * len(Wall))
    return _table(
        PROFILE_STEPS,
        **{
            name: in_order[name] for name in ("step", "start_ns", "end_ns", "steady", "reason", *BUDGET_PARTS)
        },
        **{f"{wall}_wall_ns": walls[column :: len(Wall)] for column, wall in enumerate(Wall)},
    )


def _communicators(op: Rows, described: Described) -> tuple[Communicators, ...]:
    _, held = rows_of(op, described.sized["op"].to_numpy())
    own = described.sized[held]
    sizes = defaultdict(set)
    for axis, participants in zip(own["axis"], own["participants"], strict=True):
        sizes[axis].add(participants)
    return tuple(Communicators(Axis(axis), tuple(sorted(sizes[axis]))) for axis in sorted(sizes))


def _unless(is_unknown: Flags, values: Times) -> pl.Series:
    return pl.Series(values).set(pl.Series(is_unknown), None)


def _table(schema: pl.Schema, **columns: pl.Series | Times) -> pl.DataFrame:
    """A table of one capture, which has place 0."""
    rows = len(columns["step"])
    return pl.DataFrame({"input": np.zeros(rows, np.uint32), **columns}, schema=schema)
