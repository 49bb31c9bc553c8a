"""The steps of a rank made ready to be played with changes, together with the ranks it communicates with."""

from collections.abc import Collection, Sequence

import numpy as np
import polars as pl

from wallscope.errors import NothingToAnalyzeError
from wallscope.model.frames import STEPS
from wallscope.timeline.replay_graph import ReplayGraph, build_graph
from wallscope.timeline.stretch import Stretch
from wallscope.walls.attribution import Evidence
from wallscope.walls.phases import Phases
from wallscope.walls.stretches import (
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

NO_ISSUER = "no call is in the export that issued the operations of its steps"
MOST_PLAYED = 160_000
_PLAYED = pl.Schema(
    {
        **STEPS,
        "typical": pl.Boolean(),
        "checked": pl.Boolean(),
        "first": pl.Int64(),
        "behind": pl.Int64(),
    }
)


def playable(  # noqa: PLR0913, PLR0917  # these make a stretch together
    evidence: Evidence,
    ranks: Sequence[RankWindows],
    partners: pl.DataFrame,
    phases: Phases,
    kernel_names: pl.DataFrame,
    place: int,
    most: int = MOST_PLAYED,
) -> Stretch:
    """The steps of one of the ranks, by its place; `partners` (`PARTNERS`) are collectives between ranks.

    Neighbouring steps from the first typical one on, as many as hold at most so many operations, but one at
    least; one more stands before.

    Raises:
        NothingToAnalyzeError: nothing is known of the calls that issued them.
    """
    shown = ranks[place]
    together = next(group for group in connected(ranks, partners) if shown in group)
    chosen = neighbouring(shown, most // len(together))
    begin_ns, until_ns = _issued(chosen, together)
    waits = evidence.waits
    own = issued_between(together, waits, begin_ns, until_ns)
    if not (own["call"].to_numpy() >= 0).any():
        raise NothingToAnalyzeError(f"{NO_ISSUER} — capture with --trace=cuda, from before the steps on")
    there = np.unique(own["rank_id"].to_numpy()).tolist()
    drained = [evidence.drained[rank.rank_id] for rank in together if rank.rank_id in there]
    pieces, causes = pieces_between(evidence, issuing(own, drained, waits), begin_ns, until_ns)
    given_back = releasing(evidence, np.asarray(pieces.call))
    graph = build_graph(own, waits, pieces, given_back, partners)
    return Stretch(
        graph=graph,
        waits=waits,
        pieces=pieces,
        causes=causes,
        operations=_described(own, evidence, phases, kernel_names),
        steps=_steps(chosen, shown, own, graph),
        call_name=evidence.names_of_calls,
        call_role=evidence.calls["role"],
        releasing=given_back,
        ranges=phases.tree,
        paths=phases.paths,
        rank_id=shown.rank_id,
    )


def _issued(chosen: pl.DataFrame, together: Sequence[RankWindows]) -> tuple[int, int]:
    """The host's time for some windows, and for those of other ranks at the same time of the devices."""
    begin_ns, end_ns = chosen["start_ns"][0], chosen["end_ns"][-1]
    held = [chosen, *(held_between(rank, begin_ns, end_ns) for rank in together)]
    return (
        min(int(one["issue_start_ns"].to_numpy().min()) for one in held if len(one)),
        max(int(one["issue_end_ns"].to_numpy().max()) for one in held if len(one)),
    )


def held_operations(rank: RankWindows, most: int) -> int:
    """How many operations of a rank are played where there should be at most so many."""
    chosen = neighbouring(rank, most)
    starts_ns = rank.operations["start_ns"].to_numpy()
    begin, end = np.searchsorted(starts_ns, (chosen["start_ns"][0], chosen["end_ns"][-1]))
    return int(end - begin)


def waiting_most(ranks: Sequence[RankWindows], unmarked: Collection[int]) -> int:
    """The place of the rank that computes for the smallest share of its typical step, the first of equals.

    `unmarked` places count only where there are no others.
    """

    def computed_share(place: int) -> float:
        typical = ranks[place].typical
        whole_ns = (typical["end_ns"] - typical["start_ns"]).to_numpy().sum()
        return float(typical["compute_ns"].to_numpy().sum() / max(int(whole_ns), 1))

    marked = [place for place in range(len(ranks)) if place not in unmarked]
    return min(marked or range(len(ranks)), key=computed_share)


def _described(
    own: pl.DataFrame, evidence: Evidence, phases: Phases, kernel_names: pl.DataFrame
) -> pl.DataFrame:
    """The operations with their causes, their names, and the range and path of each."""
    op = own["op"].to_numpy()
    inside = evidence.projected["range"].to_numpy()[op]
    of_path = pl.Series("path", phases.path_of_range[inside])
    return own.hstack(
        [
            evidence.causes.cause[op].alias("cause"),
            evidence.causes.before[op].alias("before"),
            pl.Series("range", inside, pl.Int32),
            of_path.set(of_path < 0, None).cast(phases.tree.schema["path"]),
        ]
    ).join(kernel_names, on="name", how="left", maintain_order="left")


def _steps(chosen: pl.DataFrame, shown: RankWindows, own: pl.DataFrame, graph: ReplayGraph) -> pl.DataFrame:
    """The windows whose both ends are played."""
    bounds_ns = np.column_stack([chosen["start_ns"].to_numpy(), chosen["end_ns"].to_numpy()])
    edges = beginning(own, shown.rank_id, bounds_ns.ravel())
    edges = np.where(graph.positions(edges) >= 0, edges, -1).reshape(-1, 2)
    typical = pl.Series(np.isin(chosen["step"].to_numpy(), shown.typical["step"].to_numpy()))
    checked = chosen["steady"] if shown.windows["steady"].any() else typical
    told = chosen.hstack(
        [typical.alias("typical"), checked.alias("checked"), *map(pl.Series, ("first", "behind"), edges.T)]
    )
    return told[_PLAYED.names()][np.flatnonzero((edges >= 0).all(axis=1))]
