"""Collectives by the arguments that PyTorch adds to NCCL's kernels, and the groups of the job.

Sizes are elements of `dtype`, of this rank. Lists of ranks are cut after thirty, but the groups of
`distributedInfo` are complete. Kernels of several calls at once have no arguments, or those of one of them.
"""

from hashlib import blake2b

import polars as pl

from wallscope.kineto.trace_identity import JobFacts, parse_ranks
from wallscope.model.schemas import COLLECTIVE_CALLS, COMMUNICATORS, CollectiveSource
from wallscope.nsys.calls import Calls

_MOST_BYTES = 1 << 48
_MOST_RANKS = 1 << 24
_ELEMENT_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool"), 1),
    **dict.fromkeys(("Float8_e4m3fn", "Float8_e5m2", "Float8_e4m3fnuz", "Float8_e5m2fnuz"), 1),
    **dict.fromkeys(("Half", "BFloat16", "Short"), 2),
    **dict.fromkeys(("Float", "Int"), 4),
    **dict.fromkeys(("Double", "Long"), 8),
}
_FUNCTIONS = (
    ("reducescatter", r"^_?reduce_?scatter"),
    ("allgather", r"^_?all_?gather"),
    ("allreduce", r"^_?all_?reduce"),
    ("alltoall", r"^_?all_?to_?all"),
    ("broadcast", r"^_?broadcast"),
    ("reduce", r"^_?reduce"),
    ("send", r"^_?i?send"),
    ("recv", r"^_?i?recv"),
    ("gather", r"^_?gather"),
    ("scatter", r"^_?scatter"),
)
"""NCCL's function by PyTorch's name of a collective; a barrier moves nothing and has none."""


def build_collective_calls(
    kernels: pl.DataFrame, processes: pl.Series, made: Calls, job: JobFacts
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the NCCL calls and the ranks of communicators (`COLLECTIVE_CALLS`, `COMMUNICATORS`).

    A call is the launch of a kernel with a named collective; `processes` has the process of each kernel.
    """
    rows = kernels.with_columns(processes.alias("process"), correlationId="correlation")
    rows = rows.with_columns(made.find_issuing(rows)).filter(
        pl.col("collective").is_not_null() & (pl.col("call") >= 0)
    )
    size = pl.col("group_size")
    rows = rows.with_columns(
        operation=_function(),
        group_size=pl.when(size.is_between(1, _MOST_RANKS)).then(size),
        **_group(rows, job),
    ).drop_nulls("operation")
    if rows.is_empty():
        return COLLECTIVE_CALLS.to_frame(), COMMUNICATORS.to_frame()
    members = (
        rows.select(
            "process", "communicator", rank="own_rank", participants="group_size", device=pl.lit(None)
        )
        .filter(pl.all_horizontal(pl.col("process", "communicator", "rank", "participants").is_not_null()))
        .unique()
        .sort("process", "communicator", "rank", "participants")
        .select(COMMUNICATORS.names())
        .cast(COMMUNICATORS)
    )
    calls = made.calls[rows["call"].to_numpy()].select("thread", "start_ns", "end_ns")
    moved = _bytes()
    told = (
        rows.select(
            "operation",
            "communicator",
            bytes=pl.when(moved.is_between(0, _MOST_BYTES)).then(moved),
            participants="group_size",
            peer=_peer(),
            rank="own_rank",
            source=pl.lit(CollectiveSource.JSON, COLLECTIVE_CALLS["source"]),
        )
        .hstack(calls)
        .sort("thread", "start_ns", maintain_order=True)
    )
    return told.select(COLLECTIVE_CALLS.names()).cast(COLLECTIVE_CALLS), members


def _function() -> pl.Expr:
    name = pl.col("collective").str.to_lowercase()
    function = pl.lit(None, pl.String)
    for meaning, pattern in reversed(_FUNCTIONS):
        function = pl.when(name.str.contains(pattern)).then(pl.lit(meaning)).otherwise(function)
    return function


def _bytes() -> pl.Expr:
    """Return bytes as NCCL counts them: for AllGather, ReduceScatter and AllToAll one rank's part."""
    width = pl.col("dtype").replace_strict(_ELEMENT_BYTES, default=None, return_dtype=pl.Int64)
    sent = pl.coalesce("sent_count", "old_sent_count")
    received = pl.coalesce("received_count", "old_received_count")
    larger = pl.max_horizontal(sent, received)
    elements = (
        pl.when(pl.col("operation") == "reducescatter")
        .then(received)
        .when(pl.col("operation").is_in(["allgather", "allreduce", "reduce"]))
        .then(sent)
        .otherwise(larger)
    )
    parts = pl.when(pl.col("operation") == "alltoall").then(pl.max_horizontal("group_size", 1)).otherwise(1)
    return elements * width // parts


def _peer() -> pl.Expr:
    peer = (
        pl.when(pl.col("operation") == "send")
        .then(pl.col("destination_rank"))
        .when(pl.col("operation") == "recv")
        .then(pl.col("source_rank"))
    )
    return pl.when(peer.is_between(0, _MOST_RANKS)).then(peer)


def _group(rows: pl.DataFrame, job: JobFacts) -> dict[str, pl.Series]:
    """Return the communicator of each row, and the number of this rank in it."""
    names = rows.select(name=pl.coalesce("group_name", "old_group_name"), listed="group_ranks")
    known: dict[tuple[str | None, str | None], tuple[int | None, int | None]] = {}
    for name, listed in names.unique().iter_rows():
        ranks = parse_ranks(listed)
        if ranks is None and name in job.groups:
            ranks = job.groups[name].ranks
        spelled = listed if ranks is None else ",".join(map(str, ranks))
        place = ranks.index(job.rank) if ranks is not None and job.rank in ranks else None
        is_known = name is not None or spelled is not None
        known[name, listed] = _hash_group(name, spelled) if is_known else None, place
    found = [known[row] for row in names.iter_rows()]
    return {
        "communicator": pl.Series("communicator", [number for number, _ in found], dtype=pl.UInt64),
        "own_rank": pl.Series("own_rank", [place for _, place in found], dtype=pl.Int64),
    }


def _hash_group(name: str | None, ranks: str | None) -> int:
    """Return a number that all ranks of a group share."""
    return int.from_bytes(blake2b(f"{name}|{ranks}".encode(), digest_size=8).digest(), "big")
