"""What the step could win at most: a stretch of steps played again without one cause.

A cause may own little of the chain and yet hold everything up, or own much of it with the next
constraint close behind; playing the dependencies again without it heeds both.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from wallscope.cores import side_by_side
from wallscope.model.kinds import OperationClass
from wallscope.timeline.play import Change
from wallscope.timeline.replay import Replay
from wallscope.walls.attribution import Evidence
from wallscope.walls.host import DRAINED, FRAMEWORK
from wallscope.walls.pieces import shortened
from wallscope.walls.stretches import (
    MOST_OPERATIONS,
    RankWindows,
    connected,
    issuing,
    listed,
    neighbouring,
    pieces_between,
    releasing,
)

_LARGEST_ERROR = 0.02
_COMPUTING = [str(OperationClass.COMPUTE), str(OperationClass.OPAQUE_GRAPH)]
_RECOMPUTE, _ALLOCATOR = "memory/recompute", "memory/allocator"
_HAND_OVER = {"compute/kernel-gap", "compute/hand-over"}


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
    groups = [together for group in connected(ranks, partners) for together in _alongside(group)]
    stretches = side_by_side(lambda together: _Stretch(evidence, together, partners), groups)
    stretch_of = {
        rank.rank_id: stretch
        for together, stretch in zip(groups, stretches, strict=True)
        for rank, _ in together
    }
    return tuple(Ceilings(stretch_of[rank.rank_id], rank.rank_id) for rank in ranks)


def _alongside(ranks: Sequence[RankWindows]) -> Iterator[list[tuple[RankWindows, pl.DataFrame]]]:
    """Ranks with the windows that are played: those at the time of the stretch of the busiest rank.

    A rank of whose typical windows none lies there is played alone.
    """
    busiest = max(ranks, key=lambda rank: len(rank.operations))
    chosen = neighbouring(busiest, MOST_OPERATIONS // len(ranks))
    begin_ns, until_ns = chosen["start_ns"][0], chosen["end_ns"][-1]
    together = []
    for rank in ranks:
        middle_ns = pl.col("start_ns") + (pl.col("end_ns") - pl.col("start_ns")) // 2
        own = rank.windows.filter(middle_ns.is_between(begin_ns, until_ns))
        if own.join(rank.typical, on="step", how="semi").is_empty():
            yield [(rank, neighbouring(rank))]
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
        whole = pieces_between(evidence, issuing(self._own, self._drained, waits), begin_ns, until_ns)
        self._releasing = releasing(evidence, whole["call"])
        pieces = shortened(whole, self._own, evidence, self._releasing.keys())
        self._rows_of = _rows_by(pieces["cause"])
        self._call_of = pieces["call"].to_numpy()
        self._blocking_rows = frozenset(self._rows_in(waits.blocking))
        self._replay = Replay(self._own, waits, listed(pieces, evidence), self._releasing, partners)
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
