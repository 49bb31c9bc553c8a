"""Blocking calls behind which the device had nothing to do: whoever refills the queue then is late."""

import numpy as np
import polars as pl

from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.nesting import Rows
from wallscope.timeline.spans import Times
from wallscope.timeline.stream_order import UNRESOLVED


class Drained:
    """Blocking calls of one rank that waited until the device had nothing left to do.

    Args:
        operations: `OPERATIONS` of the rank.
        waits: who waits for whom.
        names: name of each call, by number.
    """

    def __init__(self, operations: pl.DataFrame, waits: Dependencies, names: pl.Series) -> None:
        op = operations["op"].to_numpy()
        issued_ns, end_ns = waits.order.issued_ns[op], operations["end_ns"].to_numpy()
        order = np.argsort(issued_ns, kind="stable")
        self._issued_ns, self._busy_until_ns = issued_ns[order], np.maximum.accumulate(end_ns[order])
        issuing = np.unique(operations.filter(pl.col("call") >= 0)["call"].to_numpy())
        self._issuing = issuing[~np.isin(issuing, list(waits.blocking))]
        self._waits, self._names = waits, names
        self.rank_id = int(operations["rank_id"][0])
        self.threads = np.unique(waits.calls.thread[issuing]).tolist()
        own = set(self.threads)
        self._blocking = [call for call in waits.blocking if waits.call_thread[call] in own]
        self._draining = np.array([call for call in self._blocking if self._drains(call)], np.int64)

    def by_call(self, thread: int, at_ns: Times) -> list[str]:
        """The call that had left the device without work at each moment of a thread, empty where none had.

        Between such a call and the next launch nothing else is to blame.
        """
        draining, issuing = (
            calls[self._waits.calls.thread[calls] == thread] if calls.size else calls
            for calls in (self._draining, self._issuing)
        )
        if draining.size == 0:
            return [""] * at_ns.size
        ends = np.sort(self._waits.calls.end_ns[draining])
        in_order = draining[np.argsort(self._waits.calls.end_ns[draining], kind="stable")]
        launches = np.sort(self._waits.calls.start_ns[issuing])
        place = np.searchsorted(ends, at_ns, side="right") - 1
        launched = np.searchsorted(launches, at_ns, side="left") - 1
        last_ns = np.where(launched >= 0, np.append(launches, 0)[launched], np.iinfo(np.int64).min)
        holds = (place >= 0) & (last_ns < ends[place])
        return [
            self._names[int(in_order[row])] if is_held else ""
            for row, is_held in zip(place.tolist(), holds.tolist(), strict=True)
        ]

    def draining(self) -> Rows:
        """Numbers of the blocking calls on the rank's threads that left the device without work."""
        return self._draining

    def blocking(self, name: str) -> list[int]:
        """The blocking calls of a name on the rank's threads, those that drain nothing too."""
        return [call for call in self._blocking if self._names[call] == name]

    def _drains(self, call: int) -> bool:
        waits = self._waits
        start_ns, end_ns = waits.call_start_ns[call], waits.call_end_ns[call]
        if not any(op != UNRESOLVED and waits.end_ns[op] > start_ns for op in waits.blocking[call]):
            return False
        count = int(np.searchsorted(self._issued_ns, end_ns, side="left"))
        return bool(count and self._busy_until_ns[count - 1] <= end_ns)
