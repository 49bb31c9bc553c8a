"""What the step could win at most: a stretch of steps played again without one cause.

A cause may own little of the chain and yet hold everything up, or own much of it with the next
constraint close behind; playing the dependencies again without it heeds both.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from threading import Lock

import numpy as np
import polars as pl

from wallscope.arrays.columns import Rows, coded
from wallscope.cores import Once
from wallscope.timeline.replay_graph import ReplayGraph, build_graph
from wallscope.timeline.simulate import simulate
from wallscope.timeline.spans import Times
from wallscope.walls.attribution import Evidence
from wallscope.walls.host import DRAINED, FRAMEWORK
from wallscope.walls.stretches import (
    MOST_OPERATIONS,
    RankWindows,
    beginning,
    connected,
    held_between,
    issued_between,
    issuing,
    neighbouring,
    pieces_between,
    releasing,
)
from wallscope.whatif.draft import Draft

_LARGEST_ERROR = 0.02
_RECOMPUTE, _ALLOCATOR = "memory/recompute", "memory/allocator"
_HAND_OVER = {"compute/kernel-gap", "compute/hand-over"}


class Ceilings:
    """What the typical step of one rank takes without a cause; ranks that communicate are played together.

    The lengths of the unchanged steps, as captured and as played, in ns; `None` where they can't be played.
    """

    def __init__(self, stretch: "Once[_Stretch]", rank_id: int) -> None:
        self.stretch, self._rank_id = stretch, rank_id

    @property
    def step_count(self) -> int:
        """How many steps of the typical one are played."""
        return self.stretch().step_count(self._rank_id)

    @property
    def error(self) -> float | None:
        """How far the stretch played unchanged is from the capture, as a share; `None` if it can't be."""
        actual_ns, played_ns = self.stretch().actual_ns(self._rank_id), self._played_ns(frozenset())
        if played_ns is None or not actual_ns:
            return None
        return abs(played_ns - actual_ns) / actual_ns

    def recoverable_ns(self, causes: Collection[str]) -> int | None:
        """How much shorter the typical step gets without some causes; `None` where that can't be told."""
        unchanged_ns, error = self._played_ns(frozenset()), self.error
        if unchanged_ns is None or error is None or error > _LARGEST_ERROR:
            return None
        changed_ns = self._played_ns(frozenset(causes))
        return None if changed_ns is None else max(round(unchanged_ns - changed_ns), 0)

    def _played_ns(self, causes: frozenset[str]) -> float | None:
        return self.stretch().played_ns(self._rank_id, causes)


def ceilings(
    evidence: Evidence, ranks: Sequence[RankWindows], partners: pl.DataFrame
) -> tuple[Ceilings, ...]:
    """The ceilings of each rank; `partners` (`PARTNERS`) are the collectives between them."""
    groups = [together for group in connected(ranks, partners) for together in _alongside(group)]
    stretch_of: dict[int, Once[_Stretch]] = {}
    for together in groups:
        stretch = Once(partial(_Stretch, evidence, together, partners))
        stretch_of |= {rank.rank_id: stretch for rank, _ in together}
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
        own = held_between(rank, begin_ns, until_ns)
        if set(own["step"].to_list()).isdisjoint(rank.typical["step"].to_list()):
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
        waits = evidence.waits
        self._drained = [evidence.drained[rank.rank_id] for rank, _ in ranks]
        begin_ns = min(stretch["issue_start_ns"][0] for _, stretch in ranks)
        until_ns = max(stretch["issue_end_ns"][-1] for _, stretch in ranks)
        own = issued_between([rank for rank, _ in ranks], waits, begin_ns, until_ns)
        self._pieces, causes = pieces_between(
            evidence, issuing(own, self._drained, waits), begin_ns, until_ns
        )
        self._cause_of, self._names = coded(causes)
        self._releasing = releasing(evidence, np.asarray(self._pieces.call))
        self._blocking = self._pieces.inside(waits.blocking)
        self._graph = build_graph(own, waits, self._pieces, self._releasing, partners)
        self._op, self._call = own["op"].to_numpy(), own["call"].to_numpy()
        self._cause_of_op, self._names_of_op = evidence.causes.causes[self._op], evidence.causes.texts
        self._steps = {rank.rank_id: _first_operations(stretch, rank, own) for rank, stretch in ranks}
        self._captured_ns = np.asarray(waits.start_ns)
        self._lock = Lock()
        self._played: dict[frozenset[str], dict[int, float | None]] = {}

    def step_count(self, rank_id: int) -> int:
        """How many steps of a rank's typical one are played."""
        return len(self._steps[rank_id])

    def actual_ns(self, rank_id: int) -> float | None:
        """Mean length of those steps in the capture."""
        return _mean_length(self._captured_ns[self._steps[rank_id]])

    def played_ns(self, rank_id: int, causes: frozenset[str]) -> float | None:
        """Mean length of those steps played without some causes; `None` where they can't be played."""
        with self._lock:  # ranks that are told beside each other ask for the same
            if causes not in self._played:
                self._played[causes] = self._lengths(self._without(causes) if causes else self._graph)
            return self._played[causes][rank_id]

    def _lengths(self, graph: ReplayGraph) -> dict[int, float | None]:
        """The mean length of the steps of each rank in a run."""
        edges = graph.positions(np.concatenate(list(self._steps.values())).ravel())
        begun_ns = np.full(edges.size, -1, np.int64)
        begun_ns[edges >= 0] = simulate(graph).start_ns[edges[edges >= 0]]
        found, done = {}, 0
        for rank_id, steps in self._steps.items():
            own = slice(done, done := done + steps.size)
            is_played = (edges[own] >= 0).all()
            found[rank_id] = _mean_length(begun_ns[own].reshape(-1, 2)) if is_played else None
        return found

    def _without(self, causes: Collection[str]) -> ReplayGraph:
        is_gone = np.array([*(cause in causes for cause in self._names_of_op), False])
        names = [cause.removeprefix(f"{DRAINED}/") for cause in causes if cause.startswith(DRAINED)]
        unblocked = {call for name in names for drained in self._drained for call in drained.blocking(name)}
        unmade = set(unblocked)
        if _RECOMPUTE in causes:  # work that is not done again is not launched again
            again = np.array([*(cause == _RECOMPUTE for cause in self._names_of_op), False])
            unmade |= set(self._call[again[self._cause_of_op]].tolist()) - {-1}
        if _ALLOCATOR in causes:
            unblocked |= self._releasing.keys()
        goes = np.array([_goes_with(causes, cause) for cause in self._names], np.bool_)
        takes_none = goes[self._cause_of]
        takes_none[self._blocking] = False
        takes_none[self._pieces.inside(unmade)] = True
        draft = Draft(self._graph)
        draft.scale_segments(np.flatnonzero(takes_none), 0)
        draft.scale_operations(self._op[is_gone[self._cause_of_op]], 0)
        draft.unblock(unblocked)
        draft.scale_lags(
            latency=float("host/launch-latency" not in causes),
            dependency=float(not _HAND_OVER & set(causes)),
            back=float("host/synchronisation" not in causes),
        )
        return draft.graph()


def _goes_with(causes: Collection[str], cause: str) -> bool:
    """Whether pieces of a cause take no time without some causes; who refills a queue is the framework."""
    return FRAMEWORK in causes if cause.startswith(DRAINED) else cause in causes


def _first_operations(stretch: pl.DataFrame, rank: RankWindows, operations: pl.DataFrame) -> Rows:
    """The operations at which each typical window of a rank and the one behind it begin, in two columns."""
    is_typical = np.isin(stretch["step"].to_numpy(), rank.typical["step"].to_numpy())
    bounds_ns = np.column_stack([stretch["start_ns"].to_numpy(), stretch["end_ns"].to_numpy()])[is_typical]
    found = beginning(operations, rank.rank_id, bounds_ns.ravel()).reshape(-1, 2)
    return found[(found >= 0).all(axis=1)]


def _mean_length(bounds_ns: Times) -> float | None:
    """The mean length of steps that begin and end at moments, in two columns; `None` of none."""
    return int((bounds_ns[:, 1] - bounds_ns[:, 0]).sum()) / len(bounds_ns) if len(bounds_ns) else None
