"""What the step could win at most: a stretch of steps played again without one cause.

A cause may own little of the chain and yet hold everything up, or own much of it with the next
constraint close behind; playing the dependencies again without it heeds both.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.model.kinds import CallRole, LinkKind, OperationClass
from wallscope.timeline.call_spans import CallSpans
from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.play import Change
from wallscope.timeline.replay import Pieces, Replay
from wallscope.timeline.spans import Spans, Times
from wallscope.timeline.stream_order import Tail
from wallscope.walls.attribution import Evidence
from wallscope.walls.drained import Drained
from wallscope.walls.host import DRAINED, FRAMEWORK, on_threads
from wallscope.walls.pieces import shortened

_MOST_OPERATIONS = 12_000
_LARGEST_ERROR = 0.02
_COMPUTING = [str(OperationClass.COMPUTE), str(OperationClass.OPAQUE_GRAPH)]
_RELEASES = r"^cuda(Free|FreeArray|FreeHost|HostUnregister)$|^cuMem(Free|FreeHost|HostUnregister)(_v2)?$"
_NO_PIECES = pl.Schema(
    {"thread": pl.Int32(), "start_ns": pl.Int64(), "end_ns": pl.Int64(), "call": pl.Int32()}
)
_RECOMPUTE, _ALLOCATOR = "memory/recompute", "memory/allocator"
_HAND_OVER = {"compute/kernel-gap", "compute/hand-over"}
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


class Ceilings:
    """What the typical step of one rank takes without a cause; ranks that communicate are played together.

    The lengths of the unchanged steps, as captured and as played, in ns; `None` where they can't be played.
    """

    def __init__(self, stretch: "_Stretch", rank_id: int) -> None:
        self._stretch, self._rank_id = stretch, rank_id
        self._actual_ns = stretch.actual_ns(rank_id)
        self._played_ns = stretch.played_ns(rank_id, frozenset())

    @property
    def step_count(self) -> int:
        """How many steps of the typical one are played."""
        return self._stretch.step_count(self._rank_id)

    @property
    def error(self) -> float | None:
        """How far the stretch played unchanged is from the capture, as a share; `None` if it can't be."""
        if self._played_ns is None or not self._actual_ns:
            return None
        return abs(self._played_ns - self._actual_ns) / self._actual_ns

    def recoverable_ns(self, causes: Collection[str]) -> int | None:
        """How much shorter the typical step gets without some causes; `None` where that can't be told."""
        if self.error is None or self.error > _LARGEST_ERROR or self._played_ns is None:
            return None
        changed_ns = self._stretch.played_ns(self._rank_id, frozenset(causes))
        return None if changed_ns is None else max(round(self._played_ns - changed_ns), 0)


def ceilings(
    evidence: Evidence, ranks: Sequence[RankWindows], partners: pl.DataFrame
) -> tuple[Ceilings, ...]:
    """The ceilings of each rank; `partners` (`PARTNERS`) are the collectives between them."""
    stretch_of: dict[int, _Stretch] = {}
    for connected in _connected(ranks, partners):
        for together in _alongside(connected):
            stretch = _Stretch(evidence, together, partners)
            stretch_of |= {rank.rank_id: stretch for rank, _ in together}
    return tuple(Ceilings(stretch_of[rank.rank_id], rank.rank_id) for rank in ranks)


def _connected(ranks: Sequence[RankWindows], partners: pl.DataFrame) -> list[list[RankWindows]]:
    """Ranks that communicate with each other, perhaps through others."""
    groups = [[rank] for rank in ranks]
    rank_of = pl.concat([rank.operations.select("op", "rank_id") for rank in ranks])
    joined = partners.join(rank_of, on="op").group_by("collective").agg(pl.col("rank_id").unique().sort())
    for members in joined["rank_id"].unique().to_list():
        touched = [group for group in groups if any(rank.rank_id in members for rank in group)]
        rest = [group for group in groups if group not in touched]
        groups = [*rest, [rank for group in touched for rank in group]]
    return groups


def _alongside(ranks: Sequence[RankWindows]) -> Iterator[list[tuple[RankWindows, pl.DataFrame]]]:
    """Ranks with the windows that are played: those at the time of the stretch of the busiest rank.

    A rank of whose typical windows none lies there is played alone.
    """
    busiest = max(ranks, key=lambda rank: len(rank.operations))
    chosen = _stretch(busiest, _MOST_OPERATIONS // len(ranks))
    begin_ns, until_ns = chosen["start_ns"][0], chosen["end_ns"][-1]
    together = []
    for rank in ranks:
        middle_ns = pl.col("start_ns") + (pl.col("end_ns") - pl.col("start_ns")) // 2
        own = rank.windows.filter(middle_ns.is_between(begin_ns, until_ns))
        if own.join(rank.typical, on="step", how="semi").is_empty():
            yield [(rank, _stretch(rank))]
        else:
            together.append((rank, own))
    yield together


class _Stretch:
    """A stretch of steps of some ranks, played with and without causes."""

    def __init__(
        self,
        evidence: Evidence,
        ranks: Sequence[tuple[RankWindows, pl.DataFrame]],
        partners: pl.DataFrame,
    ) -> None:
        self._evidence = evidence
        self._drained = [evidence.drained[rank.rank_id] for rank, _ in ranks]
        waits = evidence.waits
        begin_ns = min(stretch["issue_start_ns"][0] for _, stretch in ranks)
        until_ns = max(stretch["issue_end_ns"][-1] for _, stretch in ranks)
        operations = pl.concat([rank.operations for rank, _ in ranks])
        issued_ns = waits.calls.start_ns[operations["call"].to_numpy()]
        self._own = operations.filter(pl.Series((issued_ns >= begin_ns) & (issued_ns <= until_ns)))
        whole = _pieces(evidence, _threads_of(self._own, self._drained, waits), begin_ns, until_ns)
        self._releasing = _releasing(evidence, whole["call"])
        pieces = shortened(whole, self._own, evidence, self._releasing.keys())
        self._rows_of = _rows_by(pieces["cause"])
        self._call_of = pieces["call"].to_numpy()
        self._blocking_rows = frozenset(self._rows_in(waits.blocking))
        self._replay = Replay(self._own, waits, _listed(pieces, evidence), self._releasing, partners)
        self._steps = {
            rank.rank_id: _first_operations(
                stretch, rank.typical, self._own.filter(pl.col("rank_id") == rank.rank_id)
            )
            for rank, stretch in ranks
        }
        self._started = {frozenset[str](): self._replay.run(Change())}

    def step_count(self, rank_id: int) -> int:
        """How many steps of a rank's typical one are played."""
        return len(self._steps[rank_id])

    def actual_ns(self, rank_id: int) -> float | None:
        """Mean length of those steps in the capture."""
        return self._length(rank_id, self._evidence.waits.start_ns)

    def played_ns(self, rank_id: int, causes: frozenset[str]) -> float | None:
        """Mean length of those steps played without some causes; `None` where they can't be played."""
        if causes not in self._started:
            self._started[causes] = self._replay.run(self._without(causes))
        started = self._started[causes]
        if any(op not in started for pair in self._steps[rank_id] for op in pair):
            return None
        return self._length(rank_id, started)

    def _length(self, rank_id: int, started: Mapping[int, int] | Sequence[int]) -> float | None:
        steps = self._steps[rank_id]
        return (
            sum(started[behind] - started[first] for first, behind in steps) / len(steps) if steps else None
        )

    def _without(self, causes: Collection[str]) -> Change:
        of_operation = self._evidence.causes.cause.gather(self._own["op"])
        removed = self._own.filter(of_operation.is_in(list(causes)))
        names = [cause.removeprefix(f"{DRAINED}/") for cause in causes if cause.startswith(DRAINED)]
        unblocked = {call for name in names for drained in self._drained for call in drained.blocking(name)}
        unmade = set(unblocked)
        if _RECOMPUTE in causes:  # work that is not done again is not launched again
            unmade |= set(self._own.filter(of_operation == _RECOMPUTE)["call"]) - {-1}
        if _ALLOCATOR in causes:
            unblocked |= self._releasing.keys()
        rows = {row for cause, own in self._rows_of.items() if _goes_with(causes, cause) for row in own}
        rows -= self._blocking_rows
        rows |= set(self._rows_in(unmade))
        return Change(
            pieces=dict.fromkeys(rows, 0),
            operations=dict.fromkeys(removed["op"].to_list(), 0),
            unblocked=frozenset(unblocked),
            launch_latency=float("host/launch-latency" not in causes),
            hand_over=float(not _HAND_OVER & set(causes)),
            return_latency=float("host/synchronisation" not in causes),
        )

    def _rows_in(self, calls: Collection[int]) -> list[int]:
        """The pieces inside some calls."""
        found: list[int] = np.flatnonzero(np.isin(self._call_of, np.fromiter(calls, np.int64))).tolist()
        return found


def _goes_with(causes: Collection[str], cause: str) -> bool:
    """Whether pieces of a cause take no time without some causes; who refills a queue is the framework."""
    return FRAMEWORK in causes if cause.startswith(DRAINED) else cause in causes


def _rows_by(causes: pl.Series) -> dict[str, list[int]]:
    """The rows of each cause."""
    rows = causes.to_frame("cause").with_row_index("row").group_by("cause", maintain_order=True).agg("row")
    return dict(rows.iter_rows())


def _stretch(rank: RankWindows, most: int = _MOST_OPERATIONS) -> pl.DataFrame:
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


def _first_operations(
    stretch: pl.DataFrame, typical: pl.DataFrame, operations: pl.DataFrame
) -> list[tuple[int, int]]:
    """The operations at which each typical window and the one behind it begin."""
    begun = operations.filter(pl.col("class").is_in(_COMPUTING)).unique(
        "start_ns", keep="first", maintain_order=True
    )
    at = dict(begun.select("start_ns", "op").iter_rows())
    is_typical = pl.col("step").is_in(typical["step"].implode())
    bounds = stretch.filter(is_typical).select("start_ns", "end_ns").iter_rows()
    return [(at[start_ns], at[end_ns]) for start_ns, end_ns in bounds if start_ns in at and end_ns in at]


def _releasing(evidence: Evidence, called: pl.Series) -> dict[int, Tail]:
    """Calls that wait for an idle device to give memory back, and the last work before each."""
    waits, names = evidence.waits, evidence.names_of_calls
    calls = called.filter(called >= 0).unique().sort().cast(pl.UInt32)
    found = calls.filter(names.gather(calls).str.contains(_RELEASES)).to_list()
    tails: dict[int, Tail] = {}
    for call in found:
        streams = waits.order.process(int(evidence.activity.process[waits.call_thread[call]]))
        at_ns = waits.call_start_ns[call]
        tails[call] = waits.order.latest(op for one in streams for op in waits.order.tail(one, at_ns))
    return tails


def _threads_of(
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


def _pieces(
    evidence: Evidence, threads_of: Sequence[tuple[Drained, list[int]]], begin_ns: int, until_ns: int
) -> pl.DataFrame:
    """What threads were in during a stretch (`PIECES`), thread by thread in order of time."""
    return pl.concat(
        _pieces_of_rank(evidence, drained, threads, begin_ns, until_ns) for drained, threads in threads_of
    )


def _listed(pieces: pl.DataFrame, evidence: Evidence) -> Pieces:
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
