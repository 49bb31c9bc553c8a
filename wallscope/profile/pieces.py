"""What operations and slices take of the steps of a rank, in numbers."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.arrays.columns import Flags, Rows, coded, filled
from wallscope.arrays.groups import combined, spread
from wallscope.arrays.lookup import at_places
from wallscope.model.kinds import Absent, LinkKind
from wallscope.profile.describing import HOST, Described
from wallscope.profile.kinds import CATEGORY, NAME, PATH
from wallscope.timeline.spans import Spans, Times, covered_ns, ordered, union


@dataclass(frozen=True, slots=True)
class Pieces:
    """Operations cut at the borders of steps: a row for each step that one touches.

    `step` is the place of the step, `row` that of the operation in its frame; `exposed_ns` is beside what
    computes, 0 of what computes itself.
    """

    step: Rows
    row: Rows
    begins: Flags
    work_ns: Times
    exposed_ns: Times


@dataclass(frozen=True, slots=True)
class Owned:
    """Slices: the place of the step, the kind of who owns each, and the places of the enumerations.

    `causes` are all causes in order, `cause` is the place there.
    """

    step: Rows
    kind: Rows
    causes: pl.Series
    cause: Rows
    state: Rows
    absent: Rows
    wall: Rows
    ns: Times
    blocking_ns: Times


def pieces(operations: pl.DataFrame, windows: pl.DataFrame, computes: Flags) -> Pieces:
    """Operations cut at the borders of the windows, which are in order of time."""
    bounds = Spans(windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy())
    start_ns, end_ns = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    first = np.searchsorted(bounds.end_ns, start_ns, side="right")
    behind = np.searchsorted(bounds.start_ns, np.maximum(end_ns, start_ns + 1), side="left")
    parts = np.maximum(behind - first, 0)
    row, nth = spread(parts)
    window = first[row] + nth
    cut = Spans(
        np.maximum(start_ns[row], bounds.start_ns[window]), np.minimum(end_ns[row], bounds.end_ns[window])
    )
    busy = union(ordered(start_ns[computes], end_ns[computes]))
    beside = np.flatnonzero(~computes[row])
    work_ns = cut.end_ns - cut.start_ns
    exposed_ns = np.zeros(row.size, np.int64)
    others = Spans(cut.start_ns[beside], cut.end_ns[beside])
    exposed_ns[beside] = work_ns[beside] - covered_ns(busy, others)
    step = windows["step"].to_numpy()
    number = np.searchsorted(np.sort(step), step)
    return Pieces(number[window], row, start_ns[row] >= bounds.start_ns[window], work_ns, exposed_ns)


def owned(
    slices: pl.DataFrame, steps: Rows, kind_of: Rows, first: int, described: Described
) -> tuple[Owned, Rows]:
    """The slices, and the kinds of time on threads, numbered after those of operations: by call and range.

    `kind_of` is the kind of each operation of the rank, which are numbered without a gap from `first` on;
    the last kind is that of operations of other ranks, of which nothing is said.
    """
    cause, causes = coded(slices["cause"])
    step, op, around, call, start_ns, end_ns = (
        slices[name].to_numpy() for name in ("step", "op", "range", "call", "start_ns", "end_ns")
    )
    said, nothing = described.said, described.said.fixed[""]
    on_thread = np.flatnonzero(op < 0)
    path = at_places(said.ranges, around[on_thread], nothing)
    name = at_places(described.called, call[on_thread], len(said.calls))
    called = np.append(said.calls, nothing)[name]
    (path, called), thread_kind = combined((len(said.texts), len(said.texts)), path, called)
    on_threads = np.tile(said.ends(), (path.size + 1, 1))
    on_threads[:-1, PATH], on_threads[:-1, NAME] = path, called
    on_threads[:-1, CATEGORY] = said.fixed[HOST]
    behind = kind_of.max(initial=-1) + 1
    is_own = (op >= first) & (op < first + kind_of.size)
    kind = at_places(kind_of, np.where(is_own, op - first, -1), behind + path.size)
    kind[on_thread] = behind + thread_kind
    length_ns = end_ns - start_ns
    binds = (slices["kind"] == LinkKind.OPERATION).fill_null(value=False).to_numpy()
    paying = Owned(
        step=np.searchsorted(steps, step),
        kind=kind,
        causes=pl.Series(causes, dtype=pl.String),
        cause=cause,
        state=filled(slices["state"]),
        absent=filled(slices["absent"], len(Absent)),
        wall=filled(slices["wall"]),
        ns=length_ns,
        blocking_ns=np.where(binds, length_ns, 0),
    )
    return paying, on_threads
