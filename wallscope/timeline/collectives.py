"""NCCL calls of the host joined to the device operations that they enqueued.

The call whose range contains the launch of an operation, on the same thread, enqueued it. The end of a
group launches what all calls since its begin ask for.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.model.capture import Capture
from wallscope.model.frames import COLLECTIVES
from wallscope.model.kinds import Backend, Collective, OperationClass
from wallscope.timeline.nesting import Rows, innermost, jumps, parents
from wallscope.timeline.spans import Times

_CALL, _GROUP_START, _GROUP_END, _GROUP_WHOLE = range(4)
_GROUPS = {"groupstart": _GROUP_START, "groupend": _GROUP_END, "api group": _GROUP_WHOLE}
_ASKED = {
    "allreduce": Collective.ALL_REDUCE,
    "allgather": Collective.ALL_GATHER,
    "reducescatter": Collective.REDUCE_SCATTER,
    "broadcast": Collective.BROADCAST,
    "bcast": Collective.BROADCAST,
    "reduce": Collective.REDUCE,
    "alltoall": Collective.ALL_TO_ALL,
    "send": Collective.SEND_RECV,
    "recv": Collective.SEND_RECV,
    "gather": Collective.SEND_RECV,
    "scatter": Collective.SEND_RECV,
}
_COUNTS_ONE_PART = ("allgather", "reducescatter", "alltoall")
_COUNTS_ONE_WAY = ("broadcast", "bcast", "reduce")
_FEWEST_PEERS, _FEWEST_MESSAGES = 3, 4
"""From here on a group is an all-to-all: rings and pipelines have two neighbours, and a message for each."""


def collectives(operations: pl.DataFrame, capture: Capture) -> pl.DataFrame:
    """What NCCL's calls tell of the operations that they enqueued (`CLASSIFIED` to `COLLECTIVES`).

    Where one call or group enqueued several operations of a kind, its bytes belong to none of them.
    Operations of CUDA graphs, and those issued before the capture, have no call.
    """
    asked = _asked(capture.collective_calls)
    launches = (
        operations.filter((pl.col("class") == OperationClass.COMMUNICATION) & (pl.col("call") >= 0))
        .select("op", "rank_id", "category", "backend", call=pl.col("call").cast(pl.UInt32))
        .join(capture.calls.select("call", "thread", at_ns="start_ns"), on="call")
    )
    if asked.is_empty() or launches.is_empty():
        return COLLECTIVES.to_frame()
    of_thread = {own["thread"][0]: own for own in launches.partition_by("thread")}
    found = [
        _paired(own, of_thread[own["thread"][0]])
        for own in asked.partition_by("thread")
        if own["thread"][0] in of_thread
    ]
    if not found:
        return COLLECTIVES.to_frame()
    members = pl.concat(found).join(_own_ranks(capture), on=["rank_id", "communicator"], how="left")
    return _facts(
        members.with_columns(
            participants=pl.coalesce("participants", "known_participants"),
            rank=pl.coalesce("rank", "known_rank"),
        )
    )


def _asked(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls that ask for work or begin or end a group, each thread's by start, the longest first.

    `asked` is the function in small letters; `mark` tells groups; one without an end contains nothing.
    """
    name = pl.col("operation").str.to_lowercase()
    marks = {**dict.fromkeys(_ASKED, _CALL), **_GROUPS}
    return (
        calls.with_columns(
            asked=name,
            mark=name.replace_strict(marks, default=None, return_dtype=pl.Int8),
            end_ns=pl.coalesce("end_ns", "start_ns"),
        )
        .drop_nulls("mark")
        .sort("thread", "start_ns", "end_ns", descending=[False, False, True], maintain_order=True)
    )


def _paired(asked: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Operations of one thread beside the calls that asked for each, a row for each pair.

    `is_sole` says that no other operation has a part in the calls.
    """
    start_ns, end_ns = asked["start_ns"].to_numpy(), asked["end_ns"].to_numpy()
    mark = asked["mark"].to_numpy()
    kept = np.flatnonzero(~_inside_a_call(start_ns, end_ns, mark == _CALL))
    unit, owner = _units(start_ns[kept], end_ns[kept], mark[kept], launches["at_ns"].to_numpy())
    members = asked[kept].with_columns(unit=pl.Series(unit)).filter(pl.col("mark") == _CALL)
    kind = pl.col("category").cast(pl.String).replace({str(Collective.ALL_TO_ALL): str(Collective.SEND_RECV)})
    own = launches.with_columns(unit=pl.Series(owner), kind=kind).filter(pl.col("unit") >= 0)
    asked_kind = {name: str(kind) for name, kind in _ASKED.items() if kind is not Collective.ALL_TO_ALL}
    is_alone = pl.len().over("unit") == 1
    is_of_kind = pl.col("kind") == pl.col("asked").replace_strict(
        asked_kind, default=str(Collective.SEND_RECV), return_dtype=pl.String
    )
    return (
        own.with_columns(is_alone=is_alone, is_sole=is_alone | (pl.len().over("unit", "kind") == 1))
        .join(members.drop("thread", "mark"), on="unit")
        .filter(pl.col("is_alone") | is_of_kind | (pl.col("backend") == Backend.PEER_COPY))
        .with_columns(is_sole=pl.col("is_alone") | (pl.col("is_sole") & is_of_kind))
        .drop("unit", "kind", "is_alone")
    )


def _inside_a_call(start_ns: Times, end_ns: Times, is_call: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Whether a row stands inside an earlier call: some calls are made of others."""
    reach_ns = np.maximum.accumulate(np.where(is_call, end_ns, np.iinfo(np.int64).min))
    inside: npt.NDArray[np.bool_] = np.append(
        False, (start_ns[1:] < reach_ns[:-1]) & (end_ns[1:] <= reach_ns[:-1])
    )
    return inside


def _units(start_ns: Times, end_ns: Times, mark: npt.NDArray[np.int8], at_ns: Times) -> tuple[Rows, Rows]:
    """The row that launches for each row of a thread, and the row around each launch; -1 without one.

    A call in whose own range something was launched stands alone, as does one outside of groups. A
    group ends where as many have ended as begun, or where something was launched.
    """
    rows = np.arange(mark.size)
    parent = parents(end_ns)
    owner = innermost(start_ns, end_ns, jumps(parent), at_ns)
    owner = np.where((owner >= 0) & (mark[owner] == _GROUP_START), -1, owner)
    launches = np.zeros(mark.size, np.bool_)
    launches[owner[owner >= 0]] = True
    depth = np.cumsum((mark == _GROUP_START).astype(np.int64) - (mark == _GROUP_END))
    depth -= min(0, int(depth.min()))  # groups that began before the capture
    closing = np.flatnonzero((mark == _GROUP_END) & ((depth == 0) | launches))
    following = np.append(closing, -1)[np.searchsorted(closing, rows)]
    around = np.where((parent >= 0) & (mark[parent] == _GROUP_WHOLE), parent, -1)
    grouped = np.where(around >= 0, around, np.where(depth > 0, following, rows))
    return np.where(launches, rows, grouped), owner


def _own_ranks(capture: Capture) -> pl.DataFrame:
    """Rank and size of each communicator for each process and device in it; null where they differ."""
    beside = capture.ranks.select("rank_id", "process", ordinal="device")
    same_device = pl.col("device").eq_missing(pl.col("ordinal")) | pl.any_horizontal(
        pl.col("device", "ordinal").is_null()
    )
    return (
        capture.communicators.join(beside, on="process")
        .filter(same_device)
        .group_by("rank_id", "communicator")
        .agg(known_participants=_only("participants"), known_rank=_only("rank"))
    )


def _only(column: str) -> pl.Expr:
    """The one value of all rows; null where there are several, or one is unknown."""
    values = pl.col(column)
    return pl.when((values.n_unique() == 1) & (values.null_count() == 0)).then(values.first())


def _facts(members: pl.DataFrame) -> pl.DataFrame:
    """One row an operation (`COLLECTIVES`) from the calls that asked for it."""
    is_sent, is_received = pl.col("asked") == "send", pl.col("asked") == "recv"
    is_message = is_sent | is_received
    is_own = (pl.col("peer") == pl.col("rank")).fill_null(value=False)
    size = pl.col("participants").cast(pl.Float64)
    factor = (
        pl.when(pl.col("asked") == "allreduce")
        .then(2 * (size - 1) / size)
        .when(pl.col("asked").is_in(_COUNTS_ONE_PART))
        .then(size - 1)
        .when(pl.col("asked").is_in(_COUNTS_ONE_WAY))
        .then(1.0)
    )
    marked = members.with_columns(
        is_sent=is_sent,
        is_received=is_received,
        is_message=is_message,
        is_own=is_own,
        what=pl.col("asked").replace_strict(_ASKED, return_dtype=COLLECTIVES["operation"]),
        bus_bytes=pl.when(is_message)
        .then(pl.when(is_own).then(0).otherwise("bytes"))
        .otherwise((pl.col("bytes") * factor).round().cast(pl.Int64)),
    )
    peer = pl.col("peer").filter(~pl.col("is_own")).drop_nulls()
    knows_itself = (pl.col("rank").is_not_null() | ~pl.col("is_message")).all()
    has_one_peer = (pl.col("peer").n_unique() == 1) & (pl.col("peer").null_count() == 0)
    whole = pl.col("is_sole").all()
    return (
        marked.group_by("op", maintain_order=True)
        .agg(
            _operation().alias("operation"),
            _only("communicator").alias("communicator"),
            _only("participants").alias("participants"),
            pl.when(pl.col("peer").count() > 0).then(peer.n_unique()).alias("peers"),
            pl.when(whole).then(_carried("bytes")).alias("bytes"),
            pl.when(whole & (knows_itself | has_one_peer)).then(_carried("bus_bytes")).alias("bus_bytes"),
            pl.col("source").first(),
        )
        .sort("op")
        .select(COLLECTIVES.names())
        .cast(COLLECTIVES)
    )


def _carried(column: str) -> pl.Expr:
    """The sum over the calls of an operation, of messages the larger of sent and received; null if one is."""
    value = pl.col(column)
    sent, received, others = (
        value.filter(which).sum()
        for which in (pl.col("is_sent"), pl.col("is_received"), ~pl.col("is_message"))
    )
    return pl.when(value.null_count() == 0).then(pl.max_horizontal(sent, received) + others)


def _operation() -> pl.Expr:
    """What the calls of an operation come to: messages to many, or also to itself, are an all-to-all."""
    sent, received = (pl.col("peer").filter(which) for which in (pl.col("is_sent"), pl.col("is_received")))
    sends, receives = pl.col("is_sent").sum(), pl.col("is_received").sum()
    knows_peers = pl.col("peer").count() > 0
    to_many = pl.max_horizontal(sent.n_unique(), received.n_unique()) >= _FEWEST_PEERS
    to_itself = pl.col("is_own").any() & ~pl.col("is_own").all()
    messages = pl.min_horizontal(sends, receives)
    exchanges = (messages > 0) & (
        (knows_peers & (to_many | to_itself)) | (~knows_peers & (messages >= _FEWEST_MESSAGES))
    )
    asked = pl.col("what")
    return (
        pl.when((asked == Collective.ALL_TO_ALL).any() | exchanges)
        .then(pl.lit(Collective.ALL_TO_ALL, COLLECTIVES["operation"]))
        .when(asked.n_unique() == 1)
        .then(asked.first())
        .otherwise(pl.lit(Collective.OTHER, COLLECTIVES["operation"]))
    )
