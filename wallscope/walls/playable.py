"""The steps of a rank made ready to be played with changes, together with the ranks it communicates with."""

from collections.abc import Collection, Sequence

import polars as pl

from wallscope.errors import NothingToAnalyzeError
from wallscope.model.frames import STEPS
from wallscope.timeline.replay import Replay
from wallscope.timeline.stretch import Stretch
from wallscope.walls.attribution import Evidence
from wallscope.walls.phases import Phases
from wallscope.walls.stretches import (
    RankWindows,
    connected,
    issuing,
    listed,
    neighbouring,
    pieces_between,
    releasing,
)

NO_ISSUER = "no call is in the export that issued the operations of its steps"
MOST_PLAYED = 160_000
_COMPUTING = ("compute", "opaque_graph")
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
    everyone = pl.concat([rank.operations for rank in together])
    issued_ns = waits.calls.start_ns[everyone["call"].to_numpy()]
    own = everyone.filter(pl.Series((issued_ns >= begin_ns) & (issued_ns <= until_ns)))
    if (own["call"] < 0).all():
        raise NothingToAnalyzeError(f"{NO_ISSUER} — capture with --trace=cuda, from before the steps on")
    drained = [evidence.drained[rank.rank_id] for rank in together]
    held = [one for one in drained if own.filter(pl.col("rank_id") == one.rank_id).height]
    found = pieces_between(evidence, issuing(own, held, waits), begin_ns, until_ns)
    found = found.sort("end_ns", "start_ns", maintain_order=True)
    pieces, given_back = listed(found, evidence), releasing(evidence, found["call"])
    replay = Replay(own, waits, pieces, given_back, partners)
    return Stretch(
        replay=replay,
        waits=waits,
        pieces=pieces,
        causes=found["cause"].to_list(),
        operations=_described(own, evidence, phases, kernel_names),
        steps=_steps(chosen, shown, own, replay),
        call_name=evidence.names_of_calls.cast(pl.String),
        call_role=evidence.calls["role"],
        releasing=given_back,
        ranges=phases.tree,
        paths=phases.paths,
        rank_id=shown.rank_id,
    )


def _issued(chosen: pl.DataFrame, together: Sequence[RankWindows]) -> tuple[int, int]:
    """The host's time for some windows, and for those of other ranks at the same time of the devices."""
    middle_ns = pl.col("start_ns") + (pl.col("end_ns") - pl.col("start_ns")) // 2
    is_alongside = middle_ns.is_between(chosen["start_ns"][0], chosen["end_ns"][-1])
    held = [chosen, *(rank.windows.filter(is_alongside) for rank in together)]
    issued = pl.concat([one.select("issue_start_ns", "issue_end_ns") for one in held]).to_numpy()
    return int(issued[:, 0].min()), int(issued[:, 1].max())


def held_operations(rank: RankWindows, most: int) -> int:
    """How many operations of a rank are played where there should be at most so many."""
    chosen = neighbouring(rank, most)
    begin_ns, end_ns = chosen["start_ns"][0], chosen["end_ns"][-1]
    is_held = pl.col("start_ns").is_between(begin_ns, end_ns, closed="left")
    return int(rank.operations.select(is_held.sum()).item())


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
    op = own["op"]
    inside = evidence.projected["range"].gather(op)
    paths = phases.tree.select(pl.col("range").cast(pl.Int32), "path")
    paths = paths.filter(pl.col("range").is_in(inside.unique().implode()))
    return (
        own.with_columns(
            cause=evidence.causes.cause.gather(op), before=evidence.causes.before.gather(op), range=inside
        )
        .join(paths, on="range", how="left", maintain_order="left")
        .join(kernel_names, on="name", how="left", maintain_order="left")
    )


def _steps(chosen: pl.DataFrame, shown: RankWindows, own: pl.DataFrame, replay: Replay) -> pl.DataFrame:
    """The windows whose both ends are played."""
    begun = own.filter(
        (pl.col("rank_id") == shown.rank_id) & pl.col("class").cast(pl.String).is_in(_COMPUTING)
    ).unique("start_ns", keep="first", maintain_order=True)
    at = {start_ns: op for start_ns, op in begun.select("start_ns", "op").iter_rows() if op in replay.places}
    typical = pl.col("step").is_in(shown.typical["step"].implode())
    checked = pl.col("steady") if shown.windows["steady"].any() else typical
    rows = [
        {**row, "first": at[row["start_ns"]], "behind": at[row["end_ns"]]}
        for row in chosen.with_columns(typical=typical, checked=checked).iter_rows(named=True)
        if row["start_ns"] in at and row["end_ns"] in at
    ]
    return pl.DataFrame(
        [{name: row[name] for name in _PLAYED.names()} for row in rows], schema=_PLAYED, orient="row"
    )
