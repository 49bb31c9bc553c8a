"""Everything that slices are told from, gathered once for a capture.

From dependencies to slices: one rank's time, each nanosecond with its wall and cause.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.attribution.causes import OperationCauses, caused, operation_causes
from wallscope.attribution.gaps import NO_SLACK, Constraints, blame_gaps, collect_constraints
from wallscope.attribution.host_causes import Drained, HostActivity, told_on_threads
from wallscope.attribution.slices import slice_windows
from wallscope.columns import Codes, filled, members, numbered
from wallscope.cores import both
from wallscope.grouping import by_rank
from wallscope.model.capture import Capture
from wallscope.model.frames import ROLE, SLICES
from wallscope.model.kinds import LINK_KINDS, Absent, Axis, CallRole, DeviceState, LinkKind
from wallscope.trace.collectives import collectives, partners
from wallscope.trace.copies import away, copy_causes
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.forward_backward import passes, recompute, with_autograd_threads
from wallscope.trace.parallel_axes import RangePaths, axes
from wallscope.trace.ranges import RangeTree

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


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that slices are told from, of the whole capture.

    Attributes:
        waits: who waits for whom.
        causes: of the operations.
        activity: ranges and waits of the threads.
        calls: `CALLS`.
        constraints: what operations and threads waited for, laid out for the blame chain.
        names_of_calls: the name of each call, by number, as an enumeration.
        projected: `PROJECTION`.
        graph: number of the graph launch of each operation, -1 outside graphs.
        recomputed: numbers of the operations that repeat forward work.
        drained: blocking calls that left each rank without work, by id of the rank.
    """

    waits: Dependencies
    causes: OperationCauses
    activity: HostActivity
    calls: pl.DataFrame
    constraints: Constraints
    names_of_calls: pl.Series
    projected: pl.DataFrame
    graph: pl.Series
    recomputed: pl.Series
    drained: Mapping[int, Drained]


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
    range_tree: RangeTree,
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
            tree=range_tree.tree,
            paths=range_tree.paths,
            path_names=range_tree.names,
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


_ABSENT = {LinkKind.OPERATION: Absent.BLOCKING} | dict.fromkeys(
    (LinkKind.HAND_OVER, LinkKind.UNRESOLVED), Absent.DEPENDENCY_STALLED
)
_ABSENT_OF_KIND = pl.Series(
    [*(_ABSENT.get(kind, Absent.LAUNCH_STARVED) for kind in LinkKind), None], dtype=SLICES["absent"]
)
_KINDS, _STATES = members(LinkKind), members(DeviceState)


def attributed(evidence: Evidence, operations: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """The slices (`SLICES`) of one rank, from its operations (`CLASSIFIED`) and windows (`WINDOWS`).

    Their causes are an enumeration of their own, in the order of the alphabet.
    """
    links = blame_gaps(operations, evidence.constraints)
    threads = np.unique(links.thread).tolist()
    rank_id = operations["rank_id"][0]
    drained = evidence.drained[rank_id]
    moments = evidence.activity.moments([one for one in threads if one >= 0], drained.threads)
    pieces = slice_windows(operations, links, windows, evidence.recomputed, moments)
    ranges, on_thread, told = told_on_threads(
        pieces.thread, pieces.start_ns, pieces.kind, evidence.activity, drained
    )
    of_op = evidence.projected["range"].to_numpy()[np.maximum(pieces.op, 0)]
    cause, texts = caused(pieces, evidence.causes, on_thread, told, evidence.graph.to_numpy())
    number, names = numbered(texts)
    cause = number[cause]
    walls = [name.split("/", 1)[0] for name in names]
    return pl.DataFrame(
        {
            "rank_id": np.full(cause.size, rank_id, np.uint32),
            "step": windows["step"].to_numpy()[pieces.window],
            "start_ns": pieces.start_ns,
            "end_ns": pieces.end_ns,
            "state": _STATES[pieces.state],
            "absent": _ABSENT_OF_KIND[pieces.kind],
            "wall": pl.Series(walls, dtype=SLICES["wall"])[cause],
            "cause": pl.Series(names, dtype=pl.Enum(names))[cause],
            "kind": _KINDS[pieces.kind],
            "gap": pieces.gap,
            "op": pieces.op.astype(np.int32),
            "next_op": pieces.next_op,
            "call": pieces.call,
            "thread": pieces.thread,
            "range": np.where(pieces.thread >= 0, ranges, np.where(pieces.op < 0, -1, of_op)).astype(
                np.int32
            ),
            "slack_ns": pl.Series(pieces.slack_ns).set(pl.Series(pieces.slack_ns == NO_SLACK), None),
        },
        schema={**SLICES, "cause": pl.Enum(names)},
    )
