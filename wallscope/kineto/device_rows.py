"""Rows of the device: operations, numbers in CUDA graphs, occupancy, collectives, FLOPs of kernels.

Names of copies contain direction and memory: `Memcpy HtoD (Pageable -> Device)`. Copies between devices
have neither device nor context: both come from other rows.

**CUDA graphs.** Traces before February 2026 have no numbers for the nodes. A replay runs the same
operations in the same order on each stream. So the position of an operation on its stream is a number that
is the same in all replays with equal operations.

**Collectives** have arguments that PyTorch adds to NCCL's kernels. Sizes are elements of `dtype`, of this
rank. Lists of ranks are cut after thirty, but the groups of `distributedInfo` are complete. Kernels of
several calls at once have no arguments, or those of one of them.

**FLOPs** of an operator are done by the kernels that calls inside it issue, on its thread. `External id`
names the operator in some versions and another event in others, so times decide.
"""

from hashlib import blake2b

import msgspec
import numpy as np
import polars as pl

from wallscope.columns import Rows, keep_within
from wallscope.kineto.event_tables import TraceTables
from wallscope.kineto.host_rows import ROUNDING_NS
from wallscope.kineto.trace_identity import JobFacts, join_thread_ids, parse_ranks
from wallscope.model.enums import (
    CallRole,
    ComputeCategory,
    CopyDirection,
    MemoryKind,
    OperationKind,
    Precision,
)
from wallscope.model.schemas import (
    COLLECTIVE_CALLS,
    COMMUNICATORS,
    DIRECTION,
    KERNEL_FLOPS,
    KERNEL_OCCUPANCY,
    KIND,
    MEMORY,
    OPERATIONS,
    CollectiveSource,
)
from wallscope.nsys.calls import Calls
from wallscope.nsys.operations import DeviceWork
from wallscope.trace.kernel_classes import classify_kernels, load_kernel_rules
from wallscope.trace.operator_flops import (
    BACKWARD_OF,
    FLOP_FORMULAS,
    count_bytes,
    count_flops,
    count_model_flops,
    read_precision,
)
from wallscope.trace.operator_kernels import find_operator_kernels

_MOST_DEVICES = 65_535
_MOST_BYTES = 2**48
_MOST_THREADS = _MOST_REGISTERS = 65_535
_MOST_SHARED_BYTES = 2**26
_DIRECTIONS = {
    "HtoD": CopyDirection.HOST_TO_DEVICE,
    "HtoA": CopyDirection.HOST_TO_DEVICE,
    "DtoH": CopyDirection.DEVICE_TO_HOST,
    "AtoH": CopyDirection.DEVICE_TO_HOST,
    "DtoD": CopyDirection.DEVICE_TO_DEVICE,
    "AtoA": CopyDirection.DEVICE_TO_DEVICE,
    "AtoD": CopyDirection.DEVICE_TO_DEVICE,
    "DtoA": CopyDirection.DEVICE_TO_DEVICE,
    "HtoH": CopyDirection.HOST_TO_HOST,
    "PtoP": CopyDirection.PEER,
}
_MEMORIES = {
    "Pageable": MemoryKind.PAGEABLE,
    "Pinned": MemoryKind.PINNED,
    "Device": MemoryKind.DEVICE,
    "Array": MemoryKind.ARRAY,
    "Managed": MemoryKind.MANAGED,
    "Device Static": MemoryKind.DEVICE_STATIC,
    "Managed Static": MemoryKind.MANAGED_STATIC,
}
_PERCENT = 100
_COPY = r"^Memcpy (\w+)"
_ENDS = r"\(([\w ]+) -> ([\w ]+)\)", r"\(([\w ]+)\)"
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
_MULTIPLYING = (ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM)
_GRADIENTS = (1, 2)  # of the input or the weight, or of both
_LEAST_SHOWN_WARPS = 0.16
"""Half a percent of the warps of the smallest multiprocessors, which have 32: fewer are rounded to 0."""


def build_device_rows(tables: TraceTables) -> pl.DataFrame:
    """Return device operations, in the order of the file by kind, with columns as in Nsight's raw rows.

    `text` is the index of the name in the texts of the trace; the process is not known yet.
    """
    texts = pl.Series("name", tables.texts, dtype=pl.String)
    copies, fills = (
        tables.frames[name].with_columns(name=texts.gather(tables.frames[name]["text"]))
        for name in ("copies", "fills")
    )
    kernels = tables.frames["kernels"]
    rows = pl.concat(
        [
            kernels.select(
                *_where(),
                kind=pl.lit(OperationKind.KERNEL, KIND),
                text="text",
                blocks=keep_within(pl.col("grid"), 0, 2**62),
                threads=keep_within(pl.col("block"), 0, _MOST_THREADS).cast(pl.UInt16),
                registers=keep_within(pl.col("registers"), 0, _MOST_REGISTERS).cast(pl.UInt16),
                shared_bytes=keep_within(pl.col("shared_bytes"), 0, _MOST_SHARED_BYTES).cast(pl.UInt32),
            ),
            copies.select(
                *_where(pl.coalesce("device", "in_device", "from_device", "pid")),
                kind=pl.lit(OperationKind.COPY, KIND),
                bytes=keep_within(pl.col("bytes"), 0, _MOST_BYTES),
                direction=_decode_words(pl.col("name").str.extract(_COPY), _DIRECTIONS, DIRECTION),
                source=_decode_words(pl.col("name").str.extract(_ENDS[0], 1), _MEMORIES, MEMORY),
                destination=_decode_words(pl.col("name").str.extract(_ENDS[0], 2), _MEMORIES, MEMORY),
            ),
            fills.select(
                *_where(),
                kind=pl.lit(OperationKind.FILL, KIND),
                bytes=keep_within(pl.col("bytes"), 0, _MOST_BYTES),
                direction=pl.lit(CopyDirection.FILL, DIRECTION),
                destination=_decode_words(pl.col("name").str.extract(_ENDS[1]), _MEMORIES, MEMORY),
            ),
        ],
        how="diagonal",
    )
    usual = pl.col("contextId").drop_nulls().mode().min()
    return rows.with_columns(
        contextId=pl.coalesce("contextId", usual.over("deviceId"), usual, pl.lit(0, pl.Int64))
    ).with_row_index("row")


def build_kernel_occupancy(tables: TraceTables, raw_place: pl.Series) -> pl.DataFrame:
    """Return the occupancy that the trace has of kernels (`KERNEL_OCCUPANCY`).

    `raw_place` is the place of each operation in `build_device_rows`, in which kernels are first. An
    occupancy of 0 means that the profiler could not compute it, unless the grid has almost no warps.
    """
    kernels = tables.frames["kernels"]
    is_known = (pl.col("occupancy") > 0) | (pl.col("warps_per_sm") < _LEAST_SHOWN_WARPS)
    known = kernels.select(
        place=pl.int_range(pl.len(), dtype=pl.UInt32),
        blocks_per_sm=pl.when(pl.col("blocks_per_sm") > 0).then("blocks_per_sm"),
        achieved=pl.when(is_known & (pl.col("occupancy") <= _PERCENT)).then(pl.col("occupancy") / _PERCENT),
    ).filter(pl.col("blocks_per_sm").is_not_null())
    ops = pl.DataFrame({"place": raw_place.cast(pl.UInt32)}).with_row_index("op")
    found = ops.join(known, on="place", maintain_order="left")
    return found.select(KERNEL_OCCUPANCY.names()).cast(KERNEL_OCCUPANCY)


def _where(device: pl.Expr | None = None) -> list[pl.Expr]:
    """Return times, identity and correlation; the device is in the process column of host rows."""
    place = pl.coalesce("device", "pid") if device is None else device
    node = pl.col("graph_node")
    return [
        pl.col("start"),
        pl.col("end"),
        pl.when(place.is_between(0, _MOST_DEVICES)).then(place).alias("deviceId"),
        pl.col("context").alias("contextId"),
        pl.coalesce("stream", "tid").alias("streamId"),
        pl.col("correlation").alias("correlationId"),
        pl.when(node > 0).then(node).alias("graph_node"),
    ]


def _decode_words(
    spelled: pl.Expr, meanings: dict[str, CopyDirection] | dict[str, MemoryKind], to: pl.Enum
) -> pl.Expr:
    """Return the meaning of a word, `unknown` for others."""
    return spelled.replace_strict(
        {word: str(meaning) for word, meaning in meanings.items()}, default="unknown", return_dtype=to
    )


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


def build_collective_calls(
    kernels: pl.DataFrame, processes: pl.Series, made: Calls, job: JobFacts
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the NCCL calls and the ranks of communicators (`COLLECTIVE_CALLS`, `COMMUNICATORS`).

    A call is the launch of a kernel with a named collective; `processes` has the process of each kernel.
    """
    rows = kernels.with_columns(processes.alias("process"), correlationId="correlation")
    rows = rows.with_columns(made.find_issuing(rows["process"], rows["correlationId"])).filter(
        pl.col("collective").is_not_null() & (pl.col("call") >= 0)
    )
    size = pl.col("group_size")
    rows = rows.with_columns(
        operation=_express_function(),
        group_size=pl.when(size.is_between(1, _MOST_RANKS)).then(size),
        **_number_groups(rows, job),
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
    moved = _express_bytes()
    collectives = (
        rows.select(
            "operation",
            "communicator",
            bytes=pl.when(moved.is_between(0, _MOST_BYTES)).then(moved),
            participants="group_size",
            peer=_express_peer(),
            rank="own_rank",
            sequence=pl.lit(None),
            source=pl.lit(CollectiveSource.JSON, COLLECTIVE_CALLS["source"]),
        )
        .hstack(calls)
        .sort("thread", "start_ns", maintain_order=True)
    )
    return collectives.select(COLLECTIVE_CALLS.names()).cast(COLLECTIVE_CALLS), members


def _express_function() -> pl.Expr:
    name = pl.col("collective").str.to_lowercase()
    function = pl.lit(None, pl.String)
    for meaning, pattern in reversed(_FUNCTIONS):
        function = pl.when(name.str.contains(pattern)).then(pl.lit(meaning)).otherwise(function)
    return function


def _express_bytes() -> pl.Expr:
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


def _express_peer() -> pl.Expr:
    peer = (
        pl.when(pl.col("operation") == "send")
        .then(pl.col("destination_rank"))
        .when(pl.col("operation") == "recv")
        .then(pl.col("source_rank"))
    )
    return pl.when(peer.is_between(0, _MOST_RANKS)).then(peer)


def _number_groups(rows: pl.DataFrame, job: JobFacts) -> dict[str, pl.Series]:
    """Return the communicator of each row, and the number of this rank in it."""
    names = rows.select(name=pl.coalesce("group_name", "old_group_name"), listed="group_ranks")
    known: dict[tuple[str | None, str | None], tuple[int | None, int | None]] = {}
    for name, listed in names.unique().iter_rows():
        ranks = parse_ranks(listed)
        if ranks is None and name is not None:
            ranks = job.groups.get(name)
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


def build_kernel_flops(
    tables: TraceTables, numbered: pl.DataFrame, work: DeviceWork, made: Calls, start_ns: int
) -> pl.DataFrame:
    """Return the kernels of operators with known FLOPs (`KERNEL_FLOPS`).

    Of nested operators with known FLOPs the outermost counts. `numbered` are the threads of the trace.
    """
    operators = _count_operators(tables, numbered, start_ns)
    if operators.is_empty():
        return KERNEL_FLOPS.to_frame()
    kernels = work.operations.filter((pl.col("kind") == OperationKind.KERNEL) & (pl.col("call") >= 0))
    issued = kernels.select("op", "call", "name").hstack(
        made.calls[kernels["call"].to_numpy()].select("thread", called_ns="start_ns")
    )
    issued = issued.sort("called_ns", maintain_order=True)
    operators = _count_gradients(operators, issued, work.names)
    return find_operator_kernels(issued, operators)


def _count_operators(tables: TraceTables, numbered: pl.DataFrame, start_ns: int) -> pl.DataFrame:
    """Return the operators with `thread`, times, `name`, `sequence`, `flops` and `model_flops`.

    FLOPs and `precision` are null where they are unknown.

    `until_ns` is the latest end: whole microseconds are rounded down.
    """
    rows = join_thread_ids(tables.frames["multiplications"], numbered).drop_nulls("thread")
    keys = rows.select("text", "shapes", "types", "values")
    known = {key: _count_operator_flops(tables.texts[key[0]], *key[1:]) for key in keys.unique().iter_rows()}
    counted = [known[key] for key in keys.iter_rows()]
    late_ns = ROUNDING_NS if tables.is_coarse else 0
    return rows.select(
        pl.col("thread").cast(pl.UInt32),
        "process",
        "sequence",
        name=pl.Series([tables.texts[text] for text in rows["text"].to_list()], dtype=pl.String),
        start_ns=pl.col("start") - start_ns,
        end_ns=pl.col("end") - start_ns,
        until_ns=pl.col("end") - start_ns + late_ns,
        flops=pl.Series([one[0] for one in counted], dtype=pl.Int64),
        model_flops=pl.Series([one[1] for one in counted], dtype=pl.Int64),
        precision=pl.Series([one[2] for one in counted], dtype=KERNEL_FLOPS["precision"]),
        moved_bytes=pl.Series([one[3] for one in counted], dtype=pl.Int64),
    ).sort("thread", "start_ns", -pl.col("end_ns"), maintain_order=True)


def _count_operator_flops(
    name: str, shapes: str | None, types: str | None, values: str | None
) -> tuple[int | None, int | None, Precision | None, int | None]:
    """Return the FLOPs that run, those that a model needs, the precision of the arguments, and bytes."""
    if name not in FLOP_FORMULAS:
        return None, None, None, None
    arguments = [
        None if spelled is None else msgspec.json.decode(spelled) for spelled in (shapes, types, values)
    ]
    return (
        count_flops(name, *arguments),
        count_model_flops(name, *arguments),
        read_precision(name, arguments[1]),
        count_bytes(name, *arguments[:2]),
    )


def _count_gradients(operators: pl.DataFrame, issued: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Return the operators with FLOPs of those that record only gradients.

    Each gradient takes as much as the forward operator with the same sequence number. The kernels that
    multiply show whether there are one or two for each multiplication.
    """
    is_asked = pl.col("name").is_in(list(BACKWARD_OF)) & pl.col("flops").is_null()
    if operators.filter(is_asked).is_empty():
        return operators
    kinds = classify_kernels(names, load_kernel_rules(None))
    multiplying = kinds.filter(pl.col("category").is_in(list(map(str, _MULTIPLYING))))["name"]
    called = issued.filter(pl.col("name").is_in(multiplying.implode()))
    operators = operators.with_columns(kernels=_count_kernels_inside(operators, called))
    key = ["process", "sequence", "forward"]
    forward = (
        operators.select("process", "sequence", forward="name", done="flops", first="kernels")
        .filter(pl.col("sequence") >= 0, pl.col("first") > 0)
        .unique(key, keep="none")
    )
    gradients = pl.col("kernels") // pl.col("first")
    is_whole = (pl.col("kernels") % pl.col("first") == 0) & gradients.is_in(_GRADIENTS)
    return (
        operators.with_columns(forward=pl.col("name").replace_strict(BACKWARD_OF, default=None))
        .join(forward, on=key, how="left", maintain_order="left")
        .with_columns(
            pl.when(is_asked & is_whole).then(pl.col("done") * gradients).otherwise(each).alias(each)
            for each in ("flops", "model_flops")
        )
    )  # fmt: skip


def _count_kernels_inside(operators: pl.DataFrame, called: pl.DataFrame) -> Rows:
    """Return how many kernels were issued inside each operator, on its thread."""
    found = np.zeros(len(operators), np.int64)
    thread = operators["thread"].to_numpy()
    start_ns, until_ns = operators["start_ns"].to_numpy(), operators["until_ns"].to_numpy()
    for number, own in called.partition_by("thread", as_dict=True).items():
        at_ns = np.sort(own["called_ns"].to_numpy())
        rows = np.flatnonzero(thread == number[0])
        found[rows] = np.searchsorted(at_ns, until_ns[rows]) - np.searchsorted(at_ns, start_ns[rows])
    return found
