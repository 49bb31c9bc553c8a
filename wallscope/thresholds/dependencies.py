"""Limits of who waits for whom: links between operations, waits of the host."""

from typing import Final

AGREEING_RECORDS_SHARE: Final = 0.5
"""Waits that must show the same offset of record numbers, for numbers to resolve waits. Chosen."""
EXPLAINED_TOLERANCE_NS: Final = 2_000
"""Work may end so much after what waited for it began, and still explain it: clock and rounding. Chosen."""
LONGEST_DEPENDENCY_LATENCY_NS: Final = 20_000
"""From the end of what was waited for to the start of what waited, at most. Chosen."""
LONGEST_UNEXPLAINED_LATENCY_NS: Final = 50_000
"""The same where nothing says that more was waited for: what takes longer is unresolved. Chosen."""
INFERRED_CLOSE_NS: Final = 10_000
"""What began within this after an operation of another stream ended may have waited for it. Chosen."""
INFERRED_CANDIDATES_COUNT: Final = 4
"""Operations that ended last before, which are looked at for that. Chosen, to bound the time."""
FEWEST_INFERRED_COUNT: Final = 3
"""Times that a pair of streams must show it, where no call says that a stream waits. Chosen."""
INFERRED_SHARE: Final = 0.5
"""And the share of the operations of that name and stream that nothing else explains. Chosen: most."""
FULL_QUEUE_COUNT: Final = 950
"""Launches of a stream that are pending when its queue is full, at least. Measured: 1,001 to 1,022."""
SHORTEST_HELD_CALL_NS: Final = 50_000
"""Of calls that a full queue or a lock may have held. Chosen; launches mostly take 3 to 15 us."""
LOCK_RETURN_NS: Final = 20_000
"""Two calls return together if no more lies between. Chosen: the way out of the driver."""
LOCKED_WORK_NS: Final = 100_000
"""A call that waited for a lock returns within this after its holder: it does its own work first. Measured:
50 to 80 us where a copy of 332 MB waits for one of 4 bytes (NERSC's vision transformer)."""
LOCKED_SHARE: Final = 0.8
"""Share of a call that another call must have overlapped, to have blocked it. Chosen: nearly all."""
LOCKED_LENGTH_RATIO: Final = 3
"""Length of a call by that of undisturbed ones with the same purpose, to have waited for a lock. Chosen."""
USUAL_CALLS_SHARE: Final = 0.25
"""Quantile of their lengths that is undisturbed: locks hold few calls. Chosen."""
FEWEST_USUAL_CALLS_COUNT: Final = 8
"""Calls with a purpose, to know their usual length. Chosen."""
LOCK_CANDIDATES_COUNT: Final = 8
"""Calls that returned last, which are looked at for that. Chosen, to bound the time."""
FEWEST_QUERIES_COUNT: Final = 3
"""Queries in a row that are a wait. Chosen: one or two only look."""
QUERIES_APART_NS: Final = 20_000
"""Time between two of them, at most. Chosen."""
FEWEST_SPINS_COUNT: Final = 5
"""Times that a thread must go on right after a kernel of its own ends, to have spun for it. Chosen."""
SPINS_SHARE: Final = 0.8
"""And the share of the runs of that kernel. Chosen: nearly all."""
TAIL_OPERATIONS_COUNT: Final = 6
"""Operations kept of those that a stream has to be through with, the latest-ending. Chosen, to bound sets."""
PRODUCER_TOLERANCE_NS: Final = 2_000
"""The same for work that is known to be waited for, in a blame chain. Chosen."""
LONGEST_CHAIN_COUNT: Final = 100_000
"""Operations that the blame chain of a gap passes; the rest is unresolved. Chosen, to bound the time."""
EXPLAINED_CLOSE_RATIO: Final = 4
"""A wait is explained by work that ended within this many usual dependency latencies. Chosen."""
EXPLAINED_CLOSE_NS: Final = 4_000
"""Within this it is explained in any case. Chosen."""
FEWEST_EXPLAINED_COUNT: Final = 3
"""Waits that another stream must explain, for records to be taken as made there. Chosen."""
EXPLAINED_CANDIDATES_COUNT: Final = 4
"""Streams that are tried for a kind of record. Chosen."""
EXPLAINED_LOOKED_BACK_COUNT: Final = 64
"""Earlier uses of streams by the thread that candidates are taken from. Chosen, to bound the time."""
EXPLAINED_ROUNDS_COUNT: Final = 3
"""Times that the order is built again from what the last round resolved. Chosen."""
GRAPH_EDGE_NS: Final = 5_000
"""A node that begins within this after another ended may depend on it. Chosen."""
GRAPH_EDGE_SHARE: Final = 0.9
"""Replays in which it must do so, for the edge to be taken as real. Chosen."""
FEWEST_REPLAYS_COUNT: Final = 2
"""Minimum number of replays to infer edges. By definition: one does not repeat."""
REPLAY_CLOCKS_APART_NS: Final = 20_000
"""A host segment that ends this little before its dependency is replayed after it. Chosen: clocks differ."""
BLOCKING_COPY_LATE_NS: Final = 50_000
"""A copy that is through when its call returns may end so much later on the device's clock. Chosen."""
BLOCKING_COPY_INSIDE_SHARE: Final = 0.5
"""Of a copy from pageable memory, before its call returned, for the call to be held by it. Chosen."""
FEWEST_PEERS_COUNT: Final = 3
"""Peers from which a group of NCCL messages is an all-to-all. Rings and pipelines have two neighbors."""
FEWEST_MESSAGES_COUNT: Final = 4
"""The same in messages, if peers are unknown: a ring sends and receives one per neighbor."""
