"""Operators of the backward pass, the forward operator of each, and forward operators that run again.

PyTorch numbers the operators that run while it records gradients. The backward operator has the number of
its forward operator (`Sequence number`). It also has PyTorch's own number of the forward thread
(`Fwd thread id`), which is 0 for forward operators. Of forward operators with one number, the latest recorded
it, as in `profiler_kineto.cpp`. Where these arguments are absent, the flows between the two (`fwdbwd`) are
used.

The backward pass does not record gradients. A numbered forward operator inside a backward one is therefore
recomputed work, unless it has a backward operator of its own: then gradients of gradients may be computed.
"""

import polars as pl

from wallscope.model.schemas import AUTOGRAD_RANGES

_OPERATOR = 1  # the domain of operators


def find_autograd_ranges(rows: pl.DataFrame, flows: pl.DataFrame, start_ns: int) -> pl.DataFrame:
    """Return the operators of the backward pass (`AUTOGRAD_RANGES`).

    Args:
        rows: ranges with `domain`, `range`, `thread`, `process`, times, `sequence` and `forward_thread`.
        flows: begin and end of flows with `process`, `thread`, `start`, `link` and `is_backward`.
        start_ns: when the session begins, on the clock of the file.
    """
    operators = rows.filter(pl.col("domain") == _OPERATOR)
    is_backward = pl.col("forward_thread").fill_null(0) > 0
    by_number = _link_by_number(operators, is_backward)
    by_flow = _link_by_flow(operators, flows, start_ns).join(by_number, on="range", how="anti")
    links = pl.concat([by_number, by_flow])
    backward = operators.filter(is_backward | pl.col("range").is_in(by_flow["range"].implode()))
    replayed = _find_replayed(operators.filter(~is_backward), backward)
    replayed = replayed.join(links, left_on="range", right_on="forward", how="anti")
    return (
        pl.concat(
            [
                backward.select("range").join(links, on="range", how="left").with_columns(is_replay=False),
                replayed.select("range", is_replay=True),
            ],
            how="diagonal",
        )
        .sort("range")
        .select(AUTOGRAD_RANGES.names())
        .cast(AUTOGRAD_RANGES)
    )


def _link_by_number(operators: pl.DataFrame, is_backward: pl.Expr) -> pl.DataFrame:
    numbered = operators.filter(pl.col("sequence") >= 0)
    forward = (
        numbered.filter(~is_backward)
        .sort("start_ns")
        .unique(["process", "thread", "sequence"], keep="last", maintain_order=True)
        .select("process", "sequence", "thread", forward="range", began_ns="start_ns")
    )
    pairs = (
        numbered.filter(is_backward)
        .select("range", "process", "start_ns", "sequence", thread_of="forward_thread")
        .join(forward, on=["process", "sequence"])
        .filter(pl.col("began_ns") < pl.col("start_ns"))
    )
    usual = (  # the thread of the operating system of each number, by most pairs
        pairs.group_by("process", "thread_of", "thread")
        .len()
        .sort("len", "thread", descending=[True, False])
        .unique(["process", "thread_of"], keep="first", maintain_order=True)
    )
    return pairs.join(usual, on=["process", "thread_of", "thread"], how="semi").select("range", "forward")


def _link_by_flow(operators: pl.DataFrame, flows: pl.DataFrame, start_ns: int) -> pl.DataFrame:
    """Return links of operators that begin where a flow does; of several, the innermost of each side."""
    ends = (
        flows.drop_nulls("thread")
        .select("process", "link", "is_backward", "thread", start_ns=pl.col("start") - start_ns)
        .join(operators.select("range", "thread", "start_ns"), on=["thread", "start_ns"])
        .sort("range")
        .unique(["process", "link", "is_backward"], keep="last", maintain_order=True)
    )
    backward = ends.filter(pl.col("is_backward")).select("process", "link", "range")
    forward = ends.filter(~pl.col("is_backward")).select("process", "link", forward="range")
    return (
        backward.join(forward, on=["process", "link"]).select("range", "forward").unique("range", keep="any")
    )


def _find_replayed(forward: pl.DataFrame, backward: pl.DataFrame) -> pl.DataFrame:
    """Return the numbered operators that begin inside a backward operator of their thread."""
    around = (
        backward.select("thread", began_ns="start_ns", until_ns="end_ns")
        .sort("began_ns")
        .with_columns(pl.col("until_ns").cum_max().over("thread"))
    )
    return (
        forward.filter(pl.col("sequence") >= 0)
        .select("range", "thread", "start_ns", "end_ns")
        .sort("start_ns")
        .join_asof(around, left_on="start_ns", right_on="began_ns", by="thread", check_sortedness=False)
        .filter(pl.col("end_ns") <= pl.col("until_ns"))
    )
