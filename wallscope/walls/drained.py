"""Blocking calls behind which the device had nothing to do: whoever refills the queue then is late."""

import numpy as np
import polars as pl

from wallscope.arrays.columns import Flags, Rows
from wallscope.arrays.lookup import are_among
from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.spans import BEFORE_ALL, Times, distinct
from wallscope.timeline.stream_order import UNRESOLVED


class Drained:
    """Blocking calls of one rank that waited until the device had nothing left to do.

    Args:
        operations: `OPERATIONS` of the rank.
        waits: who waits for whom.
        names: name of each call, by number.
    """

    def __init__(self, operations: pl.DataFrame, waits: Dependencies, names: pl.Series) -> None:
        call = operations["call"].to_numpy()
        issuing = distinct(call[call >= 0])
        blocking = waits.blocking
        self._issuing = issuing[~are_among(issuing, blocking)]
        self._waits, self._names = waits, names
        self._known: dict[int, tuple[Rows, Times, Times]] = {}
        self.rank_id = int(operations["rank_id"][0])
        own = np.flatnonzero(np.bincount(waits.calls.thread[issuing]))
        self.threads: list[int] = own.tolist()
        self._blocking = blocking[np.isin(waits.calls.thread[blocking], own)]
        self._draining = self._blocking[self._drains(operations)]

    def by_call(self, thread: int, at_ns: Times) -> Rows:
        """The call that had left the device without work at each moment of a thread, -1 where none had.

        Between such a call and the next launch nothing else is to blame.
        """
        in_order, ends, launches = self._of_thread(thread)
        if in_order.size == 0:
            return np.full(at_ns.size, -1)
        place = np.searchsorted(ends, at_ns, side="right") - 1
        launched = np.searchsorted(launches, at_ns, side="left") - 1
        last_ns = np.where(launched >= 0, np.append(launches, 0)[launched], np.iinfo(np.int64).min)
        return np.where((place >= 0) & (last_ns < ends[place]), in_order[place], -1)

    def _of_thread(self, thread: int) -> tuple[Rows, Times, Times]:
        """The draining calls of a thread in order of their ends, the ends, and when it launched work."""
        if thread not in self._known:
            draining, issuing = (
                calls[self._waits.calls.thread[calls] == thread] if self._draining.size else calls[:0]
                for calls in (self._draining, self._issuing)
            )
            in_order = draining[np.argsort(self._waits.calls.end_ns[draining], kind="stable")]
            launches = np.sort(self._waits.calls.start_ns[issuing])
            self._known[thread] = in_order, self._waits.calls.end_ns[in_order], launches
        return self._known[thread]

    def names(self, calls: Rows) -> list[str]:
        """The names of some calls."""
        return self._names[calls].to_list() if calls.size else []

    def draining(self) -> Rows:
        """Numbers of the blocking calls on the rank's threads that left the device without work."""
        return self._draining

    def blocking(self, name: str) -> list[int]:
        """The blocking calls of a name on the rank's threads, those that drain nothing too."""
        names = self.names(self._blocking)
        return [call for call, own in zip(self._blocking.tolist(), names, strict=True) if own == name]

    def _drains(self, operations: pl.DataFrame) -> Flags:
        """Whether what each blocking call waited for ended in it, and the device had nothing else to do."""
        waits = self._waits
        issued_ns = waits.issued_ns[operations["op"].to_numpy()]
        order = np.argsort(issued_ns, kind="stable")
        busy_until_ns = np.maximum.accumulate(operations["end_ns"].to_numpy()[order])
        row, op = waits.awaited.of_rows(waits.blocked[self._blocking])
        done_ns = np.full(self._blocking.size, BEFORE_ALL)
        np.maximum.at(done_ns, row, np.where(op == UNRESOLVED, BEFORE_ALL, waits.end_ns[op]))
        start_ns, end_ns = waits.calls.start_ns[self._blocking], waits.calls.end_ns[self._blocking]
        count = np.searchsorted(issued_ns[order], end_ns, side="left")
        busy_until_ns = np.append(busy_until_ns, 0)[count - 1]
        found: Flags = (done_ns > start_ns) & (count > 0)
        return found & (busy_until_ns <= end_ns)
