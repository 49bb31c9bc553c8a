"""A change while questions are put into it, one after the other."""

from collections.abc import Iterable
from itertools import pairwise

from wallscope.timeline.play import Change
from wallscope.timeline.stretch import Stretch


class Draft:
    """What questions change in a stretch; a second one scales what the first has left."""

    def __init__(self, stretch: Stretch) -> None:
        self.stretch = stretch
        self._pieces: dict[int, int] = {}
        self._operations: dict[int, int] = {}
        self._unblocked: set[int] = set()
        self._waits: dict[int, tuple[int, ...]] = {}
        self._latency = self._hand_over = self._return = 1.0
        self.changed_operations: set[int] = set()
        self.changed_pieces: set[int] = set()

    def change(self) -> Change:
        """All that was asked for."""
        return Change(
            self._pieces,
            self._operations,
            frozenset(self._unblocked),
            self._latency,
            self._hand_over,
            self._return,
            self._waits,
        )

    def scale_operations(self, ops: Iterable[int], share: float) -> None:
        """Let operations take a share of their time."""
        order, places = self.stretch.replay.order, self.stretch.replay.places
        for op in ops:
            if op in places:
                now_ns = self._operations.get(op, order.operation_ns[places[op]])
                self._operations[op] = round(now_ns * share)
                self.changed_operations.add(op)

    def set_operations(self, lengths_ns: Iterable[tuple[int, int]]) -> None:
        """Let operations take other times."""
        places = self.stretch.replay.places
        own = {op: length_ns for op, length_ns in lengths_ns if op in places}
        self._operations |= own
        self.changed_operations |= own.keys()

    def scale_pieces(self, rows: Iterable[int], share: float) -> None:
        """Let pieces of threads take a share of their time, behind the thread that they wait for."""
        order = self.stretch.replay.order
        after_ns = order.slack.after_ns
        for row in rows:
            whole_ns = min(after_ns.get(row, order.piece_ns[row]), order.piece_ns[row])
            self._pieces[row] = round(self._pieces.get(row, whole_ns) * share)
            self.changed_pieces.add(row)

    def set_piece(self, row: int, length_ns: int) -> None:
        """Let a piece take another time."""
        self._pieces[row] = length_ns
        self.changed_pieces.add(row)

    def unblock(self, calls: Iterable[int]) -> None:
        """Let blocking calls wait for nothing."""
        self._unblocked |= set(calls)

    def scale_lags(self, *, latency: float = 1.0, hand_over: float = 1.0, back: float = 1.0) -> None:
        """Let all lags of a kind take a share of their time."""
        self._latency *= latency
        self._hand_over *= hand_over
        self._return *= back

    def producers(self, op: int) -> tuple[int, ...]:
        """What an operation waits for now."""
        return self._waits.get(op) or tuple(self.stretch.replay.producers(op))

    def wait(self, op: int, producers: Iterable[int]) -> None:
        """Let an operation wait for these alone."""
        self._waits[op] = tuple(dict.fromkeys(producers))
        self.changed_operations.add(op)


def rows_of_calls(stretch: Stretch, calls: Iterable[int]) -> list[int]:
    """The pieces that lie in some calls."""
    wanted = set(calls)
    return [row for row, call in enumerate(stretch.pieces.call) if call in wanted]


def thinking_before(stretch: Stretch, calls: set[int]) -> list[int]:
    """Time outside calls right before pieces of some calls, where another of them came right before."""
    found = []
    for rows in stretch.pieces.rows_of.values():
        owners = [stretch.pieces.call[row] for row in rows]
        since: list[int] | None = None
        for row, call in zip(rows, owners, strict=True):
            if call in calls:
                found += since or []
                since = []
            elif call < 0 and since is not None:
                since.append(row)
            elif call >= 0:
                since = None
    return found


def followers(stretch: Stretch, ops: set[int]) -> dict[int, list[int]]:
    """The operations that wait for some, by number, each with which of those."""
    found: dict[int, list[int]] = {}
    for op in stretch.replay.ops:
        for producer in stretch.replay.producers(op):
            if producer in ops:
                found.setdefault(op, []).append(producer)
    return found


def next_in_stream(stretch: Stretch) -> dict[int, int]:
    """The operation behind each in its stream."""
    found: dict[int, int] = {}
    for own in stretch.operations.sort("start_ns", "op").partition_by("stream"):
        found |= dict(pairwise(own["op"].to_list()))
    return found
