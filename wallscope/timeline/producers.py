"""What operations wait for beside the one before each in its stream, as pairs."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from wallscope.arrays.columns import Flags, Rows
from wallscope.arrays.lookup import flags
from wallscope.timeline.spans import Numbers, numbers


@dataclass(frozen=True, slots=True)
class Pairs:
    """Who waits and for whom, by the first, then as found; who is paired with itself waits for no other."""

    op: Rows
    producer: Rows


@dataclass(frozen=True, slots=True)
class _Ready:
    """The pairs, also to be looked up one by one, and which operations are in them."""

    pairs: Pairs
    ops: Numbers
    producers: Numbers
    waits: bytes


class Producers:
    """Pairs that are found bit by bit and then asked for; `count` is that of all operations.

    >>> found = Producers(9)
    >>> found.add([7, 3, 7, 4], [5, 2, 1, 4])
    >>> sorted(found.of(7)), found.of(4), found.of(8), np.flatnonzero(found.is_waiting()).tolist()
    ([1, 5], set(), set(), [3, 4, 7])
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._parts: list[Rows] = []
        self._ready: _Ready | None = None

    def add(self, ops: Rows | list[int], producers: Rows | list[int]) -> None:
        """Let each of some operations wait for another; for itself: for nobody that is known."""
        self._parts.append(np.array([ops, producers], np.int64))
        self._ready = None

    def pairs(self) -> Pairs:
        """All pairs, some perhaps twice."""
        return self._held().pairs

    def of(self, op: int) -> set[int]:
        """What an operation waits for."""
        held = self._held()
        if not held.waits[op]:
            return set()
        first, behind = bisect_left(held.ops, op), bisect_right(held.ops, op)
        return {producer for producer in held.producers[first:behind] if producer != op}

    def is_waiting(self) -> Flags:
        """Whether each operation is the first of a pair."""
        return np.frombuffer(self._held().waits, np.bool_)

    def _held(self) -> _Ready:
        if self._ready is None:
            found = np.concatenate([np.empty((2, 0), np.int64), *self._parts], axis=1)
            op, producer = found[:, np.argsort(found[0], kind="stable")]
            waits = flags(op, self._count).tobytes()
            self._parts = [np.array([op, producer])]
            self._ready = _Ready(Pairs(op, producer), numbers(op), numbers(producer), waits)
        return self._ready
