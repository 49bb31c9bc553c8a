"""Everything that slices are told from, gathered once for a capture."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.arrays.columns import Codes, filled
from wallscope.arrays.groups import by_rank
from wallscope.cores import both
from wallscope.model.capture import Capture
from wallscope.model.frames import ROLE
from wallscope.model.kinds import LINK_KINDS, Axis, CallRole, LinkKind
from wallscope.timeline.axes import RangePaths, axes
from wallscope.timeline.collectives import collectives
from wallscope.timeline.copies import away, copy_causes
from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.partners import partners
from wallscope.timeline.passes import passes, with_autograd_threads
from wallscope.timeline.recompute import recompute
from wallscope.walls.attribution import Evidence
from wallscope.walls.causes import operation_causes
from wallscope.walls.drained import Drained
from wallscope.walls.gaps import collect_constraints
from wallscope.walls.host import HostActivity
from wallscope.walls.phases import Phases

_OF_ROLE = {
    CallRole.LAUNCH: LinkKind.LAUNCH_CALL,
    CallRole.GRAPH: LinkKind.LAUNCH_CALL,
    CallRole.ALLOC: LinkKind.ALLOCATION,
    CallRole.SYNC: LinkKind.SYNCHRONISATION,
}


@dataclass(frozen=True, slots=True)
class OperationFacts:
    """What is known of operations beyond their class.

    `AXES`, `COLLECTIVES`, `PARTNERS`, `COPY_CAUSES`, `RECOMPUTE`.
    """

    axes: pl.DataFrame
    collectives: pl.DataFrame
    partners: pl.DataFrame
    copies: pl.DataFrame
    recomputed: pl.DataFrame


def operation_facts(
    operations: pl.DataFrame,
    windows: pl.DataFrame,
    capture: Capture,
    around: RangePaths,
    streams: Mapping[int, Axis],
) -> OperationFacts:
    """What is known of operations (`CLASSIFIED`, `WINDOWS`); `streams` is the user's map of axes."""

    def told_by_calls() -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        asked = collectives(operations, capture)
        return asked, axes(operations, capture, asked, around, streams), partners(operations, asked)

    def told_by_ranges() -> tuple[pl.DataFrame, pl.DataFrame]:
        of_passes = with_autograd_threads(
            passes(around.projected, around.tree, around.paths, around.names),
            capture.operations,
            capture.calls,
            capture.threads,
        )
        again = recompute(operations, windows, capture.names, of_passes)
        return copy_causes(capture.operations, capture.copies, of_passes), again

    (copies, recomputed), (asked, named, between) = both(told_by_ranges, told_by_calls)
    return OperationFacts(
        axes=named, collectives=asked, partners=between, copies=copies, recomputed=recomputed
    )


def evidence(  # noqa: PLR0913, PLR0917  # all that was found out before
    operations: pl.DataFrame,
    capture: Capture,
    waits: Dependencies,
    facts: OperationFacts,
    phases: Phases,
    projected: pl.DataFrame,
) -> Evidence:
    """What slices are told from; `operations` are the `CLASSIFIED` ones of the selected ranks."""
    again = facts.recomputed["op"]
    names_of_calls = _names_of_calls(capture)
    of_ranks = by_rank(operations)
    is_node = capture.operations["graph_node"].is_not_null().to_numpy()
    causes, drained = both(
        lambda: operation_causes(operations, len(capture.operations), facts.axes, facts.copies, again),
        lambda: {rank_id: Drained(own, waits, names_of_calls) for rank_id, own in of_ranks.items()},
    )
    return Evidence(
        waits=waits,
        causes=causes,
        activity=HostActivity(
            tree=phases.tree,
            paths=phases.paths,
            path_names=phases.names,
            events=capture.host_events,
            event_names=capture.host_names,
            calls=capture.calls,
            process=capture.threads["process"],
            away={rank_id: away(own, capture.copies, facts.copies) for rank_id, own in of_ranks.items()},
        ),
        calls=capture.calls,
        constraints=collect_constraints(waits, _kinds_of_calls(capture.calls)),
        names_of_calls=names_of_calls,
        projected=projected,
        graph=pl.Series(np.where(is_node, capture.operations["call"].to_numpy(), -1)),
        recomputed=again,
        drained=drained,
    )


def _names_of_calls(capture: Capture) -> pl.Series:
    """The name of each call, by number; there are millions of calls and dozens of names."""
    names = capture.call_names["text"]
    return names.cast(pl.Enum(names)).gather(capture.calls["name"])


def _kinds_of_calls(calls: pl.DataFrame) -> Codes:
    """What each call is as a link, by number; calls that block are told by what they wait for."""
    of_role = [_OF_ROLE.get(CallRole(role), LinkKind.OTHER_CALL) for role in ROLE.categories]
    places = np.array([LINK_KINDS.index(kind) for kind in of_role], np.int8)
    return places[filled(calls["role"])]
