"""What is played again of ranks: which of them together, which steps, and what their threads were in."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.model.kinds import CallRole, LinkKind
from wallscope.timeline.call_spans import CallSpans
from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.replay import Pieces
from wallscope.timeline.spans import Spans, Times
from wallscope.timeline.stream_order import Tail
from wallscope.walls.attribution import Evidence
from wallscope.walls.drained import Drained
from wallscope.walls.host import on_threads

MOST_OPERATIONS = 12_000
_RELEASES = r"^cuda(Free|FreeArray|FreeHost|HostUnregister)$|^cuMem(Free|FreeHost|HostUnregister)(_v2)?$"
_NO_PIECES = pl.Schema(
    {"thread": pl.Int32(), "start_ns": pl.Int64(), "end_ns": pl.Int64(), "call": pl.Int32()}
)
_OF_ROLE = {
    CallRole.LAUNCH: "host/launch-call",
    CallRole.GRAPH: "host/launch-call",
    CallRole.ALLOC: "memory/allocator",
    CallRole.SYNC: "host/synchronisation",
}


@dataclass(frozen=True, slots=True)
class RankWindows:
    """A rank with its operations (`CLASSIFIED`), its windows (`STEPS`, in order), and typical ones."""

    rank_id: int
    operations: pl.DataFrame
    windows: pl.DataFrame
    typical: pl.DataFrame


def connected(ranks: Sequence[RankWindows], partners: pl.DataFrame) -> list[list[RankWindows]]:
    """Ranks that communicate with each other, perhaps through others."""
    groups = [[rank] for rank in ranks]
    rank_of = pl.concat([rank.operations.select("op", "rank_id") for rank in ranks])
    joined = partners.join(rank_of, on="op").group_by("collective").agg(pl.col("rank_id").unique().sort())
    for members in joined["rank_id"].unique().to_list():
        touched = [group for group in groups if any(rank.rank_id in members for rank in group)]
        rest = [group for group in groups if group not in touched]
        groups = [*rest, [rank for group in touched for rank in group]]
    return groups


def neighbouring(rank: RankWindows, most: int = MOST_OPERATIONS) -> pl.DataFrame:
    """Neighbouring windows that are played quickly: all typical ones, or from the most ordinary one on.

    One more stands before the first of them: what the host does ahead of it is played too.
    """
    windows, typical, operations = rank.windows, rank.typical, rank.operations
    steps = windows["step"].to_list()
    bounds = np.append(windows["start_ns"].to_numpy(), windows["end_ns"][-1])
    held = np.searchsorted(operations["start_ns"].to_numpy(), bounds)
    first, last = steps.index(typical["step"][0]), steps.index(typical["step"][-1])
    if held[last + 1] - held[max(first - 1, 0)] > most:
        length_ns = (typical["end_ns"] - typical["start_ns"]).to_numpy()
        first = steps.index(typical["step"][int(np.abs(length_ns - length_ns.mean()).argmin())])
    before = max(first - 1, 0)
    quick = int(np.searchsorted(held[before:] - held[before], most, side="right")) - 1 + before
    return windows[before : max(min(last + 1, quick), first + 1)]


def releasing(evidence: Evidence, called: pl.Series) -> dict[int, Tail]:
    """Calls that wait for an idle device to give memory back, and the last work before each."""
    waits, names = evidence.waits, evidence.names_of_calls
    calls = called.filter(called >= 0).unique().sort().cast(pl.UInt32)
    own = names.gather(calls).cast(pl.String)
    distinct = own.unique()
    found = calls.filter(own.is_in(distinct.filter(distinct.str.contains(_RELEASES)).implode())).to_list()
    tails: dict[int, Tail] = {}
    for call in found:
        streams = waits.order.process(int(evidence.activity.process[waits.call_thread[call]]))
        at_ns = waits.call_start_ns[call]
        tails[call] = waits.order.latest(op for one in streams for op in waits.order.tail(one, at_ns))
    return tails


def issuing(
    operations: pl.DataFrame, drained: Sequence[Drained], waits: Dependencies
) -> list[tuple[Drained, list[int]]]:
    """The threads that issue operations, each with the first rank that it issues to."""
    taken: set[int] = set()
    found = []
    for own in drained:
        call = operations.filter(pl.col("rank_id") == own.rank_id)["call"].to_numpy()
        threads = set(waits.calls.thread[call].tolist()) - {-1} - taken
        taken |= threads
        found.append((own, sorted(threads)))
    return found


def pieces_between(
    evidence: Evidence, threads_of: Sequence[tuple[Drained, list[int]]], begin_ns: int, until_ns: int
) -> pl.DataFrame:
    """What threads were in during a stretch (`PIECES`), thread by thread in order of time."""
    return pl.concat(
        _pieces_of_rank(evidence, drained, threads, begin_ns, until_ns) for drained, threads in threads_of
    )


def listed(pieces: pl.DataFrame, evidence: Evidence) -> Pieces:
    """The pieces (`PIECES`, by end) as a replay takes them."""
    process = dict(enumerate(evidence.activity.process.to_list()))
    return Pieces(process, *(pieces[name].to_list() for name in ("thread", "start_ns", "end_ns", "call")))


def _pieces_of_rank(
    evidence: Evidence, drained: Drained, threads: list[int], begin_ns: int, until_ns: int
) -> pl.DataFrame:
    """Pieces of the threads of a rank by end: thread, start_ns, end_ns, call (-1 outside calls) and cause."""
    moments = evidence.activity.moments(threads, drained.threads)
    of_threads = [
        _pieces_of_thread(evidence.waits.spans[thread], moments[thread], begin_ns, until_ns)
        for thread in threads
    ]
    found = [
        own.with_columns(thread=pl.lit(thread, pl.Int32))
        for thread, own in zip(threads, of_threads, strict=True)
    ]
    frame = pl.concat([_NO_PIECES.to_frame(), *(own.select(_NO_PIECES.names()) for own in found)])
    is_outside = pl.col("call") < 0
    kind = pl.when(is_outside).then(pl.lit(LinkKind.OUTSIDE_CALLS)).otherwise(pl.lit(LinkKind.OTHER_CALL))
    _, told = on_threads(frame.with_columns(kind=kind.cast(pl.Enum(LinkKind))), evidence.activity, drained)
    role = evidence.calls["role"].gather(pl.Series(frame["call"].to_numpy().clip(0), dtype=pl.UInt32))
    of_role = role.cast(pl.String).replace_strict(_OF_ROLE, default="host/other-call", return_dtype=pl.String)
    return _joined(frame.with_columns(cause=pl.select(pl.coalesce(told, of_role)).to_series()))


def _pieces_of_thread(spans: CallSpans, moments: Times, begin_ns: int, until_ns: int) -> pl.DataFrame:
    """Calls of a thread in a stretch, and the time between them cut at some moments."""
    starts, ends = np.asarray(spans.start_ns), np.asarray(spans.end_ns)
    held = slice(
        int(np.searchsorted(ends, begin_ns, side="right")),
        int(np.searchsorted(starts, until_ns, side="right")),
    )
    inside_ns, left_ns = np.maximum(starts[held], begin_ns), ends[held]
    before = Spans(np.concatenate(([begin_ns], left_ns))[:-1], inside_ns)
    is_between = before.end_ns > before.start_ns
    start_ns, end_ns = before.start_ns[is_between], before.end_ns[is_between]
    cuts = moments[np.searchsorted(moments, begin_ns, "right") : np.searchsorted(moments, until_ns, "right")]
    row = np.searchsorted(start_ns, cuts, side="left") - 1  # the one that begins before
    cuts = cuts[(row >= 0) & (cuts < np.append(end_ns, 0)[row])]
    calls = np.asarray(spans.call)[held]
    return pl.DataFrame(
        {
            "start_ns": np.concatenate((np.sort(np.concatenate((start_ns, cuts))), inside_ns)),
            "end_ns": np.concatenate((np.sort(np.concatenate((end_ns, cuts))), left_ns)),
            "call": np.concatenate((np.full(start_ns.size + cuts.size, -1), calls)),
        },
        schema={"start_ns": pl.Int64, "end_ns": pl.Int64, "call": pl.Int32},
    )


def _joined(pieces: pl.DataFrame) -> pl.DataFrame:
    """Neighbouring pieces outside calls that have one cause, as one: what cut them told nothing."""
    return (
        pieces.sort("thread", "start_ns", "end_ns", maintain_order=True)
        .with_columns(run=pl.struct("thread", "call", "cause").rle_id())
        .group_by("run", maintain_order=True)
        .agg(pl.col("thread", "call", "cause").first(), pl.col("start_ns").min(), pl.col("end_ns").max())
        .select(pieces.columns)
    )
