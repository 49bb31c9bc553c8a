"""Operations in runs: each of a run but the first waits for its thread and the one before it alone.

Nobody else waits for any of them but the last, and what they refer to lies in one leg of a thread. So it can
be summed up beforehand how long after the begin of that leg a run ends at least, and how long after the end
of what its first operation waits for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from wallscope.arrays.columns import Flags, Rows
from wallscope.timeline.nesting import led_to
from wallscope.timeline.order import Order
from wallscope.timeline.spans import Times


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of an order, in the order in which they begin.

    What is waited for is a place in `end_ns` of runs with `known_ns` behind it: ends that are the capture's.

    Attributes:
        layout: places of operations, run by run.
        position: where each operation stands there.
        head: where each run begins there.
        run: the run of each place of the layout.
        refers: the piece that each refers to, in the numbers of `Legs.leg`, as laid out.
        leg: the leg of the pieces that each run refers to.
        first: what each run waits for.
        further, further_run, further_lag: what else it waits for, run by run, with the place of the lag.
        further_count: how many of those each run has.
        meets: the collective of each run, -1 without; members of one are alone in their run.
        members: the runs of each collective.
        known_ns: ends that no run tells.
        awaited: what each piece that begins a leg waits for.
        before_leg: how many runs have begun before each of those pieces comes.
    """

    layout: Rows
    position: Rows
    head: Rows
    run: Rows
    refers: Rows
    leg: Rows
    first: list[int]
    further: list[int]
    further_run: Rows
    further_lag: Rows
    further_count: list[int]
    meets: list[int]
    members: list[list[int]]
    known_ns: list[int]
    awaited: list[Sequence[int]]
    before_leg: list[int]

    def latest(self, values: Times) -> Times:
        """Of each place of the layout the largest value from the begin of its run up to there."""
        found, within = values.copy(), np.arange(values.size) - self.head[self.run]
        held, gone = np.flatnonzero(within), 1
        while held.size:
            found[held] = np.maximum(found[held], found[held - gone])
            gone *= 2
            held = held[within[held] >= gone]
        return found


@dataclass(frozen=True, slots=True)
class _Waits:
    """Places of all operations that are waited for: by operations first, by them further, by pieces.

    `is_known` are those whose ends are the capture's: they are not played, or come later in it. `further`
    are who waits, for which place, and the place of the lag; `pieces` what pieces that begin a leg wait for.
    """

    place: Rows
    is_known: Flags
    further: Rows
    pieces: list[Sequence[int]]


def runs(order: Order) -> Runs:
    """The runs of an order."""
    first, meets = np.asarray(order.first), np.asarray(order.meets)
    begun_ns, settled_ns = np.asarray(order.begun_ns), np.asarray(order.settled_ns)
    count, waits, refers = first.size, _waits(order), referred(order)
    leg = order.legs.leg[refers]
    joins = _joins(waits, leg, meets)
    layout = np.argsort(led_to(np.where(joins, first, np.arange(count)))[:-1], kind="stable")
    is_head = ~joins[layout]
    head, run = np.flatnonzero(is_head), np.cumsum(is_head) - 1
    position = np.empty(count, np.int64)
    position[layout] = np.arange(count)
    of_operation = run[position]
    outside_ns = np.asarray(order.captured_end_ns)[count:]
    late = np.flatnonzero(waits.is_known & (waits.place < count))
    slot = np.concatenate((of_operation, head.size + np.arange(outside_ns.size)))[waits.place]
    slot[late] = head.size + outside_ns.size + np.arange(late.size)
    waiting = waits.further[:, 0]
    by_pieces = iter(slot[count + waiting.size :].tolist())
    return Runs(
        layout=layout,
        position=position,
        head=head,
        run=run,
        refers=refers[layout],
        leg=leg[layout[head]],
        first=slot[layout[head]].tolist(),
        further=slot[count : count + waiting.size].tolist(),
        further_run=of_operation[waiting],
        further_lag=waits.further[:, 2],
        further_count=np.bincount(of_operation[waiting], minlength=head.size).tolist(),
        meets=meets[layout[head]].tolist(),
        members=[of_operation[members].tolist() for members in order.members],
        known_ns=[*outside_ns.tolist(), *np.asarray(order.captured_end_ns)[waits.place[late]].tolist()],
        awaited=[list(islice(by_pieces, len(own))) for own in waits.pieces],
        before_leg=np.searchsorted(begun_ns[layout[head]], settled_ns[order.legs.waiting]).tolist(),
    )


def referred(order: Order) -> Rows:
    """The piece that each operation refers to, in the numbers of `Legs.leg`; nothing where it comes later."""
    ref, settled_ns = np.asarray(order.ref), np.asarray(order.settled_ns)
    is_later = np.append(settled_ns, 0)[np.minimum(ref, settled_ns.size)] > np.asarray(order.begun_ns)
    return np.where(is_later & (ref < settled_ns.size), order.legs.leg.size - 1, ref)


def _waits(order: Order) -> _Waits:
    first, begun_ns = np.asarray(order.first), np.asarray(order.begun_ns)
    further = [(place, *more) for place in sorted(order.more) for more in order.more[place]]
    of_others = np.array(further, np.int64).reshape(-1, 3)
    of_rows = [order.awaited.get(row) for row in order.legs.waiting.tolist()]
    pieces: list[Sequence[int]] = [() if one is None else one.places for one in of_rows]
    awaited = np.array([place for own in pieces for place in own], np.int64)
    settled_ns = np.asarray(order.settled_ns)[order.legs.waiting].repeat([len(own) for own in pieces])
    is_late = np.append(begun_ns, 0)[np.minimum(awaited, first.size)] >= settled_ns
    place = np.concatenate((first, of_others[:, 1], awaited))
    comes = (np.arange(first.size) <= first, of_others[:, 0] <= of_others[:, 1], is_late)
    return _Waits(place, np.concatenate(comes) | (place >= first.size), of_others, pieces)


def _joins(waits: _Waits, leg: Rows, meets: Rows) -> Flags:
    """Whether each operation goes on the run of what it waits for first."""
    count = leg.size
    readers = np.bincount(waits.place[~waits.is_known], minlength=count)
    before = np.where(waits.is_known[:count], 0, waits.place[:count])
    joins = ~waits.is_known[:count] & (readers[before] == 1) & (leg[before] == leg)
    joins[waits.further[:, 0]] = False
    found: Flags = joins & (meets < 0) & (meets[before] < 0)
    return found
