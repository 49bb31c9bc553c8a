"""Numbers for the nodes of CUDA graphs in traces without them, which is all before February 2026.

A replay runs the same operations in the same order on each stream. So the place of an operation on its stream
is a number that is the same in all replays with equal operations.
"""

import polars as pl

from wallscope.model.enums import CallRole
from wallscope.model.schemas import OPERATIONS


def number_graph_nodes(operations: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the operations with numbers of nodes for launches of graphs that have none.

    `operations` and `calls` follow `OPERATIONS` and `CALLS`.
    """
    graphs = calls.filter(pl.col("role") == CallRole.GRAPH)["call"]
    own = operations.filter(pl.col("call").is_in(graphs.cast(pl.Int32).implode()))
    own = own.filter(pl.col("graph_node").is_null().all().over("call"))
    if own.is_empty():
        return operations
    placed = (
        own.sort("call", "stream", "start_ns", "op")
        .select("op", "call", "stream", "kind", "name", place=pl.int_range(pl.len()).over("call", "stream"))
        .with_columns(graph=pl.struct("stream", "place", "kind", "name").hash().sum().over("call"))
    )
    key = ["graph", "stream", "place"]
    numbers = placed.select(key).unique(maintain_order=True).with_row_index("made", offset=1)
    made = placed.join(numbers, on=key).select("op", "made")
    return (
        operations.join(made, on="op", how="left", maintain_order="left")
        .with_columns(graph_node=pl.coalesce("graph_node", "made").cast(OPERATIONS["graph_node"]))
        .drop("made")
    )
