"""Order inside CUDA graphs that were traced by node, and between graphs and what surrounds them.

Exports hold no edges. The branches of a launch begin after what its stream was given before it, and
what follows in that stream waits for all of them; edges between branches are inferred where an
operation begins right after the end of the same node of another branch in most replays.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.arrays.columns import Rows, filled, place
from wallscope.arrays.groups import grouped
from wallscope.model.kinds import CallRole
from wallscope.thresholds import FEWEST_REPLAYS_COUNT, GRAPH_EDGE_NS, GRAPH_EDGE_SHARE
from wallscope.timeline.stream_order import StreamOrder, Tail


@dataclass(frozen=True, slots=True)
class Branches:
    """The first and last operation of each branch of a launch, those of the launching stream first."""

    heads: tuple[int, ...]
    tails: tuple[int, ...]


class GraphLaunches:
    """The launches of graphs of several branches that were traced by node.

    Args:
        operations: `OPERATIONS`.
        calls: `CALLS`.
    """

    def __init__(self, operations: pl.DataFrame, calls: pl.DataFrame) -> None:
        self._launches = _launches(operations, calls)
        self._branches = [_branches(own) for own in self._launches]

    def together(self) -> dict[int, Tail]:
        """The tails of the other branches, by the last operation that a launch runs in its own stream."""
        return {branches.tails[0]: branches.tails[1:] for branches in self._branches}

    def order(self, order: StreamOrder) -> None:
        """Let the operations of the launches wait for each other, and what follows wait for all branches."""
        follower = np.full(order.before.size, -1, np.int64)
        held = np.flatnonzero(order.before >= 0)
        follower[order.before[held]] = held
        pairs: list[tuple[int, int]] = []
        for branches in self._branches:
            before, behind = int(order.before[branches.heads[0]]), int(follower[branches.tails[0]])
            pairs += [(head, before if before >= 0 else head) for head in branches.heads[1:]]
            pairs += [(behind, tail) for tail in branches.tails[1:] if behind >= 0]
        order.follow([*pairs, *_joins(self._launches)])


def _launches(operations: pl.DataFrame, calls: pl.DataFrame) -> list[pl.DataFrame]:
    """The nodes of each launch of a graph that runs in several streams, in order of start."""
    node = operations["graph_node"]
    if node.null_count() == len(node):
        return []
    call, stream = operations["call"].to_numpy(), operations["stream"].to_numpy()
    rows = np.flatnonzero(node.is_not_null().to_numpy() & (call >= 0))
    rows = rows[(filled(calls["role"]) == place(CallRole.GRAPH))[call[rows]]]
    launches = sorted((rows[own] for _, own in grouped(call[rows])), key=_first)
    return [operations[own] for own in launches if (stream[own] != stream[own[0]]).any()]


def _branches(launch: pl.DataFrame) -> Branches:
    op = launch["op"].to_numpy()
    branches = sorted((rows for _, rows in grouped(launch["stream"].to_numpy())), key=_first)
    return Branches(
        tuple(int(op[branch[0]]) for branch in branches), tuple(int(op[branch[-1]]) for branch in branches)
    )


def _first(rows: Rows) -> int:
    return int(rows[0])


def _joins(launches: list[pl.DataFrame]) -> list[tuple[int, int]]:
    """Operations of graphs with one of another branch that ended right before them, replay after replay."""
    found: list[tuple[int, int, tuple[int, int]]] = []
    replays: Counter[int] = Counter()
    for own in launches:
        by_end = own.sort("end_ns")
        ends = by_end["end_ns"].to_numpy()
        latest = np.searchsorted(ends, own["start_ns"].to_numpy(), side="right") - 1
        nodes, streams, ops = (by_end[name].to_list() for name in ("graph_node", "stream", "op"))
        for row, at in zip(
            own.select("op", "graph_node", "stream", "start_ns").iter_rows(), latest, strict=True
        ):
            op, node, stream, start_ns = row
            replays[node] += 1
            for other in range(int(at), -1, -1):
                if start_ns - ends[other] > GRAPH_EDGE_NS:
                    break
                if streams[other] != stream:
                    found.append((op, ops[other], (nodes[other], node)))
                    break
    pairs = Counter(pair for _, _, pair in found)
    return [
        (op, producer)
        for op, producer, pair in found
        if replays[pair[1]] >= FEWEST_REPLAYS_COUNT and pairs[pair] >= GRAPH_EDGE_SHARE * replays[pair[1]]
    ]
