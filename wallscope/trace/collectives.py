"""Collectives: which operations of ranks are one, and the NCCL calls that enqueued them.

No rank leaves a collective before the last one has entered it: its operations overlap, and however far
apart they start, they end close together. Operations that only look alike end as far apart as they start.
Ranks that share one clock are matched by that; nothing is guessed across clocks.

The call whose range contains the launch of an operation, on the same thread, enqueued it. The end of a
group launches what all calls since its begin ask for.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import (
    Codes,
    Flags,
    Places,
    Rows,
    as_integers,
    expand_counts,
    find_first_rows,
    iterate_by_first,
    mark_numbers,
    number_groups,
)
from wallscope.model.capture import Capture
from wallscope.model.enums import Backend, Collective, OperationClass
from wallscope.model.schemas import CATEGORY, COLLECTIVES, PARTNERS
from wallscope.records import dataclass
from wallscope.thresholds.causes import (
    FEWEST_MET_COUNT,
    LEAST_MET_SHARE,
    MET_ENDS_APART_NS,
    MET_SPREAD_NS,
    MET_SPREAD_SHARE,
    SAME_WORK_SHARE,
)
from wallscope.thresholds.steps import FEWEST_MESSAGES_COUNT, FEWEST_PEERS_COUNT
from wallscope.trace.intervals import Times
from wallscope.trace.names import mark_changes
from wallscope.trace.ranges import find_innermost, find_parents

_Stream = tuple[Rows, Times, Times]
_MOST_COMPARED_COUNT = 64
"""How many streams each is compared with: all of a machine, and of more not the square. Chosen."""
_READ = ("op", "rank_id", "stream", "name", "start_ns", "end_ns")


def find_partners(operations: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """Which communication operations (of `CLASSIFIED`, all ranks) are one collective (`PARTNERS`).

    Operations with one name on streams of two ranks (and of one communicator, if `collectives`
    (`COLLECTIVES`) has it) match if each is the other's nearest by end. The streams communicate if nine of
    ten match, overlap, and end together.
    """
    rows = np.flatnonzero((operations["class"] == OperationClass.COMMUNICATION).to_numpy())
    if not rows.size:
        return PARTNERS.to_frame()
    own = operations[*_READ][rows]
    own = own[np.lexsort((own["op"].to_numpy(), own["end_ns"].to_numpy()))]
    name = own["name"].fill_null(-1).to_numpy()
    alike = number_groups(name, _number_communicators(own["op"].to_numpy(), collectives))
    found = [pair for _, same in iterate_by_first(alike) for pair in _pairs(own[same])]
    if not found:
        return PARTNERS.to_frame()
    return _join_pairs(np.concatenate(found), own)


def _number_communicators(op: Rows, collectives: pl.DataFrame) -> Rows:
    """Return the communicator of each operation as a number, 0 if unknown."""
    if collectives.is_empty():
        return np.zeros(op.size, np.int64)
    number = collectives["communicator"].rank("dense").fill_null(0).to_numpy()
    return np.append(number, 0)[Places(collectives["op"].to_numpy()).of(op)].astype(np.int64)


def _pairs(same: pl.DataFrame) -> Iterator[Rows]:
    """Pairs of operations of one name that are one collective; two columns of numbers."""
    rank_id = same["rank_id"].to_numpy()
    of_streams = [rows for _, rows in iterate_by_first(number_groups(rank_id, same["stream"].to_numpy()))]
    columns = [same[name].to_numpy() for name in ("op", "start_ns", "end_ns")]
    sides = [(columns[0][rows], columns[1][rows], columns[2][rows]) for rows in of_streams]
    for place, one in enumerate(of_streams):
        for other in range(place + 1, min(place + 1 + _MOST_COMPARED_COUNT, len(of_streams))):
            if rank_id[one[0]] != rank_id[of_streams[other][0]]:
                matched = _match_pairs(sides[place], sides[other])
                if matched is not None:
                    yield matched


def _match_pairs(one: _Stream, other: _Stream) -> Rows | None:
    """The pairs of two ranks, `None` where they do not communicate; each with numbers, starts and ends."""
    found = have_met(one[1], one[2], other[1], other[2])
    if found is None:
        return None
    rows, others = found
    pairs = np.column_stack([one[0][rows], other[0][others]])
    return pairs.astype(np.int64)


def have_met(
    starts: Times, ends: Times, other_starts: Times, other_ends: Times, close_ns: float = MET_SPREAD_NS
) -> tuple[Rows, Rows] | None:
    """The places of operations of two ranks with one clock that are one collective; `None` if they never met.

    Both sides are in order of their ends. Where these vary by no more than `close_ns` they end together.
    """
    nearest, nearest_back = _nearest(ends, other_ends), _nearest(other_ends, ends)
    rows = np.flatnonzero(nearest_back[nearest] == np.arange(len(ends)))
    if rows.size < max(FEWEST_MET_COUNT, LEAST_MET_SHARE * min(len(ends), len(other_ends))):
        return None
    others = nearest[rows]
    own, their = starts[rows], other_starts[others]
    ends_apart_ns, starts_apart_ns = other_ends[others] - ends[rows], their - own
    overlap = np.maximum(own, their) < np.minimum(ends[rows], other_ends[others])
    if overlap.mean() < LEAST_MET_SHARE or abs(np.median(ends_apart_ns)) > MET_ENDS_APART_NS:
        return None
    if measure_spread(ends_apart_ns) > max(close_ns, MET_SPREAD_SHARE * measure_spread(starts_apart_ns)):
        return None
    return rows[overlap], others[overlap]


def measure_spread(apart_ns: Times | npt.NDArray[np.float64]) -> float:
    """How far three of four lie from the median, at most."""
    return float(measure_spreads(apart_ns))


def measure_spreads(apart_ns: Times | npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The same of each row."""
    middle_ns = np.median(apart_ns, axis=-1, keepdims=True)
    return np.asarray(np.percentile(np.abs(apart_ns - middle_ns), 75, axis=-1))


def _nearest(at_ns: Times, among_ns: Times) -> Rows:
    """The place of the nearest moment among others, which are in order."""
    right = np.searchsorted(among_ns, at_ns).clip(0, len(among_ns) - 1)
    left = (right - 1).clip(0)
    is_left = np.abs(at_ns - among_ns[left]) <= np.abs(among_ns[right] - at_ns)
    return np.where(is_left, left, right)


def _join_pairs(pairs: Rows, communication: pl.DataFrame) -> pl.DataFrame:
    """Pairs joined into collectives; a collective has an operation of each rank once, else it is left out."""
    op, place = np.unique(pairs, return_inverse=True)
    one, other = place.reshape(-1, 2).T
    first = np.arange(op.size)
    while (first[one] != first[other]).any():
        earliest = np.minimum(first[one], first[other])
        np.minimum.at(first, one, earliest)
        np.minimum.at(first, other, earliest)
        first = first[first]
    rank_id = communication["rank_id"].to_numpy()[Places(communication["op"].to_numpy()).of(op)]
    count = np.bincount(first, minlength=op.size)
    seen = find_first_rows(number_groups(first, rank_id))
    is_whole = count == np.bincount(first[seen], minlength=op.size)
    held = np.flatnonzero(is_whole[first])
    held = held[np.lexsort((op[held], first[held]))]
    return pl.DataFrame({"op": op[held], "collective": op[first[held]]}, schema=PARTNERS)


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
_COLLECTIVES = tuple(Collective)
_KIND_OF_CATEGORY = np.array(
    [
        _COLLECTIVES.index(Collective.SEND_RECV if each == Collective.ALL_TO_ALL else Collective(each))
        if each in _COLLECTIVES
        else -1
        for each in CATEGORY.categories
    ]
)
_COMMUNICATION = list(OperationClass).index(OperationClass.COMMUNICATION)
_PEER_COPY = list(Backend).index(Backend.PEER_COPY)
_COUNTS_ONE_PART = ("allgather", "reducescatter", "alltoall")
_COUNTS_ONE_WAY = ("broadcast", "bcast", "reduce")


def match_nccl_calls(operations: pl.DataFrame, capture: Capture) -> pl.DataFrame:
    """Return the data of NCCL's calls on the operations that they enqueued (`CLASSIFIED` to `COLLECTIVES`).

    Where one call or group enqueued several operations of a kind, its bytes belong to none of them.
    Operations of CUDA graphs, and those issued before the capture, have no call. They have the data of what
    NCCL traced on the device at their time, if it did.
    """
    calls, members = _split_traced_work(operations, capture)
    asked = _select_requests(calls)
    launches = _select_launches(operations, capture.calls)
    if not asked.is_empty() and launches.op.size:
        called = _pair_requests(asked, launches)
        if members.is_empty():
            members = called
        else:
            members = pl.concat([called, members.join(called, on="op", how="anti")], how="diagonal")
    if members.is_empty():
        return COLLECTIVES.to_frame()
    if capture.communicators.is_empty():
        return _combine_calls(members)
    known = members.join(_own_ranks(capture), on=["rank_id", "communicator"], how="left")
    return _combine_calls(
        known.with_columns(
            participants=pl.coalesce("participants", "known_participants"),
            rank=pl.coalesce("rank", "known_rank"),
        )
    )


def _split_traced_work(operations: pl.DataFrame, capture: Capture) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the calls, and operations with what NCCL traced of them, with columns of `_pair_requests`.

    A row with a sequence number is not a call if the process has calls of its function without one. Nor is
    it if it begins and ends with an operation of its kind, and each is the other's nearest. Messages pair
    with none: one operation has several.
    """
    calls = capture.collective_calls.with_row_index("row")
    if calls["sequence"].null_count() == len(calls):
        return capture.collective_calls, pl.DataFrame()
    calls = calls.join(capture.threads.select("thread", "process"), on="thread", maintain_order="left")
    asked = calls["operation"].str.to_lowercase()
    calls = calls.with_columns(asked=asked, kind=pl.Series(_kinds_asked(asked), dtype=pl.Int64))
    has_sequence = pl.col("sequence").is_not_null()
    has_calls = (~has_sequence).any().over("process", "operation")
    traced = calls.filter(has_sequence & pl.col("end_ns").is_not_null() & (pl.col("kind") >= 0))
    pairs = _pair_traced_work(traced, _select_own(operations, capture.ranks))
    is_paired = pl.col("row").is_in(pairs["row"].implode())
    left = calls.filter(~(has_sequence & (has_calls | is_paired)))
    found = traced.join(pairs, on="row").drop("row", "thread", "process", "kind").with_columns(is_sole=True)
    return left.select(capture.collective_calls.columns), found


def _select_own(operations: pl.DataFrame, ranks: pl.DataFrame) -> pl.DataFrame:
    """Return the communication operations with process and kind."""
    own = operations.filter(pl.col("class") == OperationClass.COMMUNICATION)
    kind = _KIND_OF_CATEGORY[as_integers(own["category"])]
    return own.select("op", "rank_id", "start_ns", "end_ns", kind=pl.Series(kind, dtype=pl.Int64)).join(
        ranks.select("rank_id", "process"), on="rank_id", maintain_order="left"
    )


def _pair_traced_work(traced: pl.DataFrame, own: pl.DataFrame) -> pl.DataFrame:
    """Return which operation each traced row is: columns `row`, `op`, `rank_id`."""
    pairs = [traced.select("row").clear().hstack(own.select("op", "rank_id").clear())]
    for (process, kind), theirs in traced.sort("start_ns").group_by("process", "kind", maintain_order=True):
        mine = own.filter(process=process, kind=kind).sort("start_ns")
        if mine.is_empty() or kind == _COLLECTIVES.index(Collective.SEND_RECV):
            continue
        (start_ns, end_ns), (traced_ns, traced_end_ns) = (
            [side[column].to_numpy() for column in ("start_ns", "end_ns")] for side in (mine, theirs)
        )
        nearest, nearest_back = _nearest(start_ns, traced_ns), _nearest(traced_ns, start_ns)
        apart_ns = np.maximum(abs(traced_ns[nearest] - start_ns), abs(traced_end_ns[nearest] - end_ns))
        is_same = (nearest_back[nearest] == np.arange(start_ns.size)) & (
            apart_ns <= SAME_WORK_SHARE * (end_ns - start_ns)
        )
        pairs.append(
            theirs["row",][nearest[is_same]].hstack(mine["op", "rank_id"].filter(pl.Series(is_same)))
        )
    return pl.concat(pairs)


@dataclass(frozen=True, slots=True)
class _Launches:
    """Communication operations whose launch is known, by thread and number; kinds as places in `Collective`.

    An all-to-all has the kind of messages. Copies between devices have any kind.
    """

    op: Rows
    rank: Rows
    thread: Rows
    at_ns: Times
    kind: Rows
    is_copy: Flags


def _select_launches(operations: pl.DataFrame, calls: pl.DataFrame) -> _Launches:
    call = operations["call"].to_numpy()
    rows = np.flatnonzero((as_integers(operations["class"]) == _COMMUNICATION) & (call >= 0))
    thread = calls["thread"][call[rows]].to_numpy()
    order = np.argsort(thread, kind="stable")
    rows = rows[order]
    kind = _KIND_OF_CATEGORY[as_integers(operations["category"][rows])]
    return _Launches(
        op=operations["op"].to_numpy()[rows],
        rank=operations["rank_id"].to_numpy()[rows],
        thread=thread[order],
        at_ns=calls["start_ns"][call[rows]].to_numpy(),
        kind=kind,
        is_copy=as_integers(operations["backend"][rows]) == _PEER_COPY,
    )


def _select_requests(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls that ask for work or begin or end a group, each thread's by start, the longest first.

    `asked` is the function in lower case; `mark` identifies groups; a call without an end contains nothing.
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


def _pair_requests(asked: pl.DataFrame, launches: _Launches) -> pl.DataFrame:
    """Return operations with the calls that enqueued each, a row per pair, with the columns of `asked`.

    `is_sole` says that no other operation has a part in the calls.
    """
    unit, owner = _units_of_threads(asked, launches)
    own = np.flatnonzero(owner >= 0)
    of_unit = owner[own]
    is_alone = np.bincount(of_unit, minlength=len(asked))[of_unit] == 1
    _, kind, like = np.unique(
        of_unit * len(Collective) + launches.kind[own], return_inverse=True, return_counts=True
    )
    is_only = is_alone | (like[kind] == 1)
    members = np.flatnonzero((unit >= 0) & (asked["mark"].to_numpy() == _CALL))
    members = members[np.argsort(unit[members], kind="stable")]
    first, last = (np.searchsorted(unit[members], of_unit, side) for side in ("left", "right"))
    pair, nth = expand_counts(last - first)
    call, row = members[first[pair] + nth], own[pair]
    is_of_kind = launches.kind[row] == _kinds_asked(asked["asked"])[call]
    is_told = np.flatnonzero(is_alone[pair] | is_of_kind | launches.is_copy[row])
    call, row, pair = call[is_told], row[is_told], pair[is_told]
    calls: pl.DataFrame = asked.drop("thread", "mark")[call]
    return calls.hstack(
        [
            pl.Series("op", launches.op[row]),
            pl.Series("rank_id", launches.rank[row]),
            pl.Series("is_sole", is_alone[pair] | (is_only[pair] & is_of_kind[is_told])),
        ]
    )


def _kinds_asked(asked: pl.Series) -> Rows:
    """The kind of operation that each function asks for; what is none of its own is made of messages."""
    kinds = {
        name: Collective.SEND_RECV if kind is Collective.ALL_TO_ALL else kind for name, kind in _ASKED.items()
    }
    return np.array([_COLLECTIVES.index(kinds[name]) if name in kinds else -1 for name in asked.to_list()])


def _units_of_threads(asked: pl.DataFrame, launches: _Launches) -> tuple[Rows, Rows]:
    """The row of `asked` that launches for each of its rows, and that around each launch; -1 without one."""
    start_ns, end_ns, mark = (asked[column].to_numpy() for column in ("start_ns", "end_ns", "mark"))
    unit, owner = np.full(len(asked), -1), np.full(launches.op.size, -1)
    thread = as_integers(asked["thread"])
    for rows in np.split(np.arange(len(asked)), np.flatnonzero(mark_changes(thread))[1:]):
        first, last = (
            int(np.searchsorted(launches.thread, thread[rows[0]], side)) for side in ("left", "right")
        )
        if first == last:
            continue
        kept = rows[~_inside_a_call(start_ns[rows], end_ns[rows], mark[rows] == _CALL)]
        own, around = _find_launch_units(start_ns[kept], end_ns[kept], mark[kept], launches.at_ns[first:last])
        unit[kept] = np.append(kept, -1)[own]
        owner[first:last] = np.append(kept, -1)[around]
    return unit, owner


def _inside_a_call(start_ns: Times, end_ns: Times, is_call: Flags) -> Flags:
    """Whether a row stands inside an earlier call: some calls are made of others."""
    reach_ns = np.maximum.accumulate(np.where(is_call, end_ns, np.iinfo(np.int64).min))
    inside: Flags = np.append(False, (start_ns[1:] < reach_ns[:-1]) & (end_ns[1:] <= reach_ns[:-1]))
    return inside


def _find_launch_units(
    start_ns: Times, end_ns: Times, mark: npt.NDArray[np.int8], at_ns: Times
) -> tuple[Rows, Codes]:
    """The row that launches for each row of a thread, and the row around each launch; -1 without one.

    A call in whose own range something was launched stands alone, as does one outside of groups. A
    group ends where as many have ended as begun, or where something was launched.
    """
    rows = np.arange(mark.size)
    parent = find_parents(end_ns)
    owner = find_innermost(start_ns, end_ns, parent, at_ns)
    owner = np.where((owner >= 0) & (mark[owner] == _GROUP_START), -1, owner)
    launches = mark_numbers(owner[owner >= 0], mark.size)
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
        .agg(known_participants=_take_only_value("participants"), known_rank=_take_only_value("rank"))
    )


def _take_only_value(column: str) -> pl.Expr:
    """The one value of all rows; null where there are several, or one is unknown."""
    values = pl.col(column)
    return pl.when((values.n_unique() == 1) & (values.null_count() == 0)).then(values.first())


def _combine_calls(members: pl.DataFrame) -> pl.DataFrame:
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
            _infer_operation().alias("operation"),
            _take_only_value("communicator").alias("communicator"),
            _take_only_value("participants").alias("participants"),
            pl.when(pl.col("peer").count() > 0).then(peer.n_unique()).alias("peers"),
            pl.when(has_one_peer & ~pl.col("is_own").any()).then(pl.col("peer").first()).alias("peer"),
            pl.when(whole).then(_sum_bytes("bytes")).alias("bytes"),
            pl.when(whole & (knows_itself | has_one_peer)).then(_sum_bytes("bus_bytes")).alias("bus_bytes"),
            pl.col("source").first(),
        )
        .sort("op")
        .select(COLLECTIVES.names())
        .cast(COLLECTIVES)
    )


def _sum_bytes(column: str) -> pl.Expr:
    """The sum over the calls of an operation, of messages the larger of sent and received; null if one is."""
    value = pl.col(column)
    sent, received, others = (
        value.filter(which).sum()
        for which in (pl.col("is_sent"), pl.col("is_received"), ~pl.col("is_message"))
    )
    return pl.when(value.null_count() == 0).then(pl.max_horizontal(sent, received) + others)


def _infer_operation() -> pl.Expr:
    """What the calls of an operation come to: messages to many, or also to itself, are an all-to-all."""
    sent, received = (pl.col("peer").filter(which) for which in (pl.col("is_sent"), pl.col("is_received")))
    sends, receives = pl.col("is_sent").sum(), pl.col("is_received").sum()
    knows_peers = pl.col("peer").count() > 0
    to_many = pl.max_horizontal(sent.n_unique(), received.n_unique()) >= FEWEST_PEERS_COUNT
    to_itself = pl.col("is_own").any() & ~pl.col("is_own").all()
    messages = pl.min_horizontal(sends, receives)
    exchanges = (messages > 0) & (
        (knows_peers & (to_many | to_itself)) | (~knows_peers & (messages >= FEWEST_MESSAGES_COUNT))
    )
    asked = pl.col("what")
    return (
        pl.when((asked == Collective.ALL_TO_ALL).any() | exchanges)
        .then(pl.lit(Collective.ALL_TO_ALL, COLLECTIVES["operation"]))
        .when(asked.n_unique() == 1)
        .then(asked.first())
        .otherwise(pl.lit(Collective.OTHER, COLLECTIVES["operation"]))
    )
