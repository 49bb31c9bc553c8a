"""Kernels with unrecognized names: the evidence of ranges around their launches, and their possible class.

A kernel launched inside a call of a communication library communicates. The innermost range of the launching
thread decides. If it shows only that something communicates, as the end of a group does, the enclosing range
decides what. An all-reduce somewhere in a step proves nothing about its kernels.

Whether the others may communicate is decided once per capture: without a second rank, device or peer, they
compute, whatever their name. If almost no kernel has a known name, streams that wait for each other are
evidence too, as a communication library has its own streams.
"""

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from wallscope.columns import Flags, Rows, as_integers, encode_member
from wallscope.model.capture import Capture
from wallscope.model.enums import Backend, Collective, OperationClass, OperationKind, ProjectedBy
from wallscope.model.schemas import BACKEND, CATEGORY, CLASS
from wallscope.thresholds.verdict import NO_NAMES_SHARE
from wallscope.trace.names import TextMemo, list_unlike, place_alike
from wallscope.trace.ranges import project_ranges
from wallscope.trace.thread_timeline import mark_calls

_LIBRARY = (
    r"(?i)^\W*(?:(?:p?nccl|rccl|mscclpp|oneccl|nvshmemx?|mpi_i?)[ :._]*|torch_ucc:|_?c10d(?:_functional)?::"
    r"|symm_mem::)"
)
_DISPATCHER = r"(?i)^\W*(?:deep_?ep|hybrid[-_]?ep|nccl[-_]?ep|uccl[-_]?ep|mori|pplx)\b.*"
_OF_DISPATCHERS = (
    r"|(?i)^\w*(?:fused|deep_?ep|hybrid_?ep|nccl_?ep)_?{0}(?:backward)?$|(?i)(?:^|[.:_ ])token_{0}$"
    r"|(?i)\b{0}\b.* in hybrid-ep$"
)
_ASKED: tuple[tuple[str, Collective], ...] = (
    (rf"{_DISPATCHER}(?:notify|barrier|sync)", Collective.SYNCHRONISE),
    (rf"{_DISPATCHER}dispatch{_OF_DISPATCHERS.format('dispatch')}", Collective.DISPATCH),
    (rf"{_DISPATCHER}combine{_OF_DISPATCHERS.format('combine')}", Collective.COMBINE),
    (rf"{_LIBRARY}\w*?all_?reduce", Collective.ALL_REDUCE),
    (rf"{_LIBRARY}\w*?all_?gather", Collective.ALL_GATHER),
    (rf"{_LIBRARY}\w*?reduce_?scatter", Collective.REDUCE_SCATTER),
    (rf"{_LIBRARY}\w*?all_?to_?all", Collective.ALL_TO_ALL),
    (rf"{_LIBRARY}\w*?b(?:road)?cast", Collective.BROADCAST),
    (rf"{_LIBRARY}\w*?(?:barrier|quiet|fence)", Collective.SYNCHRONISE),
    (rf"{_LIBRARY}_?i?(?:send|recv|gather|scatter)", Collective.SEND_RECV),
    (rf"{_LIBRARY}_?reduce", Collective.REDUCE),
    (r"(?i)^\W*(?:p?nccl|rccl|mscclpp|oneccl)|^record_param_comms|(?i)^_?c10d::", Collective.OTHER),
)
"""What ranges of these names ask for, the first that matches decides; `other` leaves open what it is."""
_OTHER = encode_member(Collective.OTHER)
_BACKENDS = {r"(?i)^\W*(?:p?nccl|rccl)(?:[^_-]|$)": Backend.NCCL, r"(?i)^\W*nvshmem": Backend.NVSHMEM}
_PEERS = (
    r"(?i)^\W*(?:p?nccl|rccl|mscclpp|nvshmem|mpi_|_?c10d(?:_functional)?::|deep_?ep|hybrid[-_]?ep"
    r"|record_param_comms)"
)
_PEER_CALLS = (
    r"^(?:cu(?:da)?|hip)(?:IpcOpen(?:Mem|Event)Handle|DeviceEnablePeerAccess|CtxEnablePeerAccess|Multicast|Memcpy\w*Peer)"
    r"|^cuMemImportFromShareableHandle"
)
"""Ranges and calls that only programs of several ranks or devices make."""
_COMPUTE = encode_member(OperationClass.COMPUTE)
_COMMUNICATION = encode_member(OperationClass.COMMUNICATION)


def _match_ranges(texts: pl.Series) -> Rows:
    """Return what each text asks for, -1 for nothing; few ask for anything."""
    code = np.full(len(texts), -1, np.int64)
    rows = np.flatnonzero(texts.str.contains("|".join(f"(?:{pattern})" for pattern, _ in _ASKED)).to_numpy())
    asking = texts[rows]
    for pattern, collective in reversed(_ASKED):
        code[rows[asking.str.contains(pattern).to_numpy()]] = encode_member(collective)
    return code


_TOLD = TextMemo(_match_ranges)


def mark_unknown_kernels(operations: pl.DataFrame) -> Flags:
    """Return whether each operation (`CLASSIFIED`) is an unrecognized kernel that no range explains."""
    found: Flags = ~operations["matched"].to_numpy() & (as_integers(operations["class"]) == _COMPUTE)
    return found


def infer_communication(operations: pl.DataFrame, capture: Capture, ranges: pl.DataFrame) -> pl.DataFrame:
    """Return operations (`CLASSIFIED`, all) with unrecognized kernels classified by their launches.

    `ranges` follow `NESTED`. Such kernels stay unmatched, because their class is inferred.
    """
    unknown = np.flatnonzero(mark_unknown_kernels(operations) & (operations["call"] >= 0).to_numpy())
    texts = capture.range_names["text"]
    asked = _TOLD.of(list_unlike(capture.range_names))[place_alike(capture.range_names)]
    if not unknown.size or not (asked >= 0).any():
        return operations
    around = project_ranges(operations[unknown], capture.calls, ranges, capture.threads)
    is_own = (around["how"] == ProjectedBy.SAME_THREAD).to_numpy()
    unknown, at = unknown[is_own], around["range"].to_numpy()[is_own].astype(np.int64)
    name, parent = ranges["name"].to_numpy().astype(np.int64), ranges["parent"].to_numpy().astype(np.int64)
    telling, does = _ask_outwards(at, parent, asked[name])
    is_told = does >= 0
    if not is_told.any():
        return operations
    rows, by, does = unknown[is_told], name[telling[is_told]], does[is_told]
    libraries = {place: _find_library(texts[place]) for place in np.unique(by).tolist()}
    classes = {
        "class": pl.repeat(OperationClass.COMMUNICATION, rows.size, dtype=CLASS, eager=True),
        "category": pl.Series([str(_COLLECTIVES[one]) for one in does.tolist()], dtype=CATEGORY),
        "backend": pl.Series([libraries[one] for one in by.tolist()], dtype=BACKEND),
    }
    return operations.with_columns(
        operations[column].clone().scatter(rows.tolist(), values) for column, values in classes.items()
    )


_COLLECTIVES = tuple(Collective)


def _ask_outwards(at: Rows, parent: Rows, asked: Rows) -> tuple[Rows, Rows]:
    """Return the range that shows the kind of work inside some ranges, and the kind; -1 if unknown.

    The search continues outwards only from ranges that leave the kind open.
    """
    telling, does = at.copy(), asked[at]
    open_rows = np.flatnonzero(does == _OTHER)
    while open_rows.size:
        outer = parent[at[open_rows]]
        outer_does = np.where(outer >= 0, asked[outer], -1)
        open_rows, outer, outer_does = (one[outer_does >= 0] for one in (open_rows, outer, outer_does))
        at[open_rows] = outer
        is_telling = outer_does != _OTHER
        telling[open_rows[is_telling]], does[open_rows[is_telling]] = (
            outer[is_telling],
            outer_does[is_telling],
        )
        open_rows = open_rows[~is_telling]
    return telling, does


def _find_library(text: str) -> Backend:
    return next((one for pattern, one in _BACKENDS.items() if re.search(pattern, text)), Backend.UNKNOWN)


def find_communication_evidence(operations: pl.DataFrame, capture: Capture) -> str | None:
    """Return the evidence that kernels of a capture may communicate, `None` without any.

    Evidence are several ranks or devices: ranks of the export, the size of the job, known communication
    operations (of `CLASSIFIED`, all ranks), and calls and ranges of such programs.
    """
    return next(_list_evidence(operations, capture), None)


def _list_evidence(operations: pl.DataFrame, capture: Capture) -> Iterator[str]:
    if len(capture.ranks) > 1:
        yield f"{len(capture.ranks)} ranks in the export"
    if capture.world_size is not None and capture.world_size > 1:
        yield f"a job of {capture.world_size:,} ranks"
    if (as_integers(operations["class"]) == _COMMUNICATION).any():
        yield "kernels or copies that communicate"
    if len(capture.collective_calls) or len(capture.communicators):
        yield "calls of NCCL"
    for texts, pattern, kind in (
        (list_unlike(capture.range_names), _PEERS, "range"),
        (capture.call_names["text"], _PEER_CALLS, "call"),
    ):
        named = texts.filter(texts.str.contains(pattern))
        if not named.is_empty():
            yield f"the {kind} {named.sort()[0][:_LONGEST_NAME]}"
    if _have_streams_in_turn(operations, capture):
        yield "kernels on streams that wait for each other, none of which has a known name"


def _have_streams_in_turn(operations: pl.DataFrame, capture: Capture) -> bool:
    """Return whether streams with kernels wait for events, and almost no kernel time has a known name."""
    kernels = operations.filter(pl.col("kind") == OperationKind.KERNEL)
    lasting_ns = (kernels["end_ns"] - kernels["start_ns"]).to_numpy()
    unknown_ns = int(lasting_ns[mark_unknown_kernels(kernels)].sum())
    if unknown_ns < NO_NAMES_SHARE * max(int(lasting_ns.sum()), 1):
        return False
    return kernels["stream"].n_unique() > 1 and bool(mark_calls(capture, _STREAM_WAIT).any())


_STREAM_WAIT = "StreamWaitEvent"
_LONGEST_NAME = 60
