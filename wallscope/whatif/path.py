"""What bounds a step: the path back from its end, with the cause, the range and the name of each stretch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.model.analysis import Walls
from wallscope.model.kinds import OperationClass, Wall
from wallscope.timeline.play import Played
from wallscope.timeline.play_back import Bound, Link, played_path
from wallscope.timeline.spans import Spans, covered_ns, ordered, union
from wallscope.timeline.stream_order import UNRESOLVED
from wallscope.timeline.stretch import Stretch

KERNEL_GAP, LAUNCH_LATENCY, SYNCHRONISATION = (
    "compute/kernel-gap",
    "host/launch-latency",
    "host/synchronisation",
)
NOBODY = "unattributed/unresolved"
_LONGEST_HAND_OVER_NS = 20_000
_COMPUTING = [str(OperationClass.COMPUTE), str(OperationClass.OPAQUE_GRAPH)]

PATH = pl.Schema(
    {
        "step": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "bound": pl.Enum(Bound),
        "cause": pl.String(),
        "name": pl.String(),  # of the operation or the call; empty outside calls
        "op": pl.Int64(),  # -1 on a thread
        "led_to": pl.Int64(),  # the operation at which the path goes on behind it
        "is_slack": pl.Boolean(),  # lags, and time outside calls
    }
)
"""Stretches of the paths of steps, in order of time; those of a step tile it."""


@dataclass(frozen=True, slots=True)
class Named:
    """What operations are called and stand for, by place, and what pieces are, by row."""

    cause: list[str]
    before: list[str]
    chain: list[int]
    computes: list[bool]
    name: list[str]
    unresolved: list[bool]


def named(stretch: Stretch) -> Named:
    """What the operations of a stretch are."""
    ops = pl.DataFrame({"op": stretch.replay.ops}, schema={"op": pl.UInt32})
    known = ops.join(stretch.operations, on="op", how="left", maintain_order="left")
    is_kernel = pl.col("text").is_not_null()
    name = pl.when(is_kernel).then("text").otherwise(pl.col("category").cast(pl.String))
    waiting = set(stretch.waits.order.waiting())
    return Named(
        known["cause"].to_list(),
        known["before"].to_list(),
        known["stream"].to_list(),
        known["class"].cast(pl.String).is_in(_COMPUTING).to_list(),
        known.select(name.fill_null(""))[:, 0].to_list(),
        [op in waiting and UNRESOLVED in stretch.waits.producers(op) for op in stretch.replay.ops],
    )


def paths(stretch: Stretch, names: Named, played: Played, which: str) -> pl.DataFrame:
    """The paths (`PATH`) of the steps of a kind (a column of the steps) in a run."""
    places, found = stretch.replay.places, [PATH.to_frame()]
    for step, first, behind in (
        stretch.steps.filter(pl.col(which)).select("step", "first", "behind").iter_rows()
    ):
        until = places[behind]
        links = played_path(stretch.replay.order, played, until, played.start_ns[places[first]])
        rows = list(_rows(stretch, names, links, step, until))
        found.append(pl.DataFrame(rows[::-1], schema=PATH, orient="row"))
    return pl.concat(found)


def _rows(
    stretch: Stretch, names: Named, links: Sequence[Link], step: int, until: int
) -> Iterator[tuple[int, int, int, str, str, str, int, int, bool]]:
    """The rows of a path, latest first."""
    pieces, ops, count = stretch.pieces, stretch.replay.ops, len(stretch.replay.ops)
    led_to = until
    for start_ns, end_ns, bound, place, next_place in links:
        name, op = "", -1
        is_slack = True
        match bound:
            case Bound.OPERATION:
                cause, name, op, is_slack = names.cause[place], names.name[place], ops[place], False
                led_to = place
            case Bound.HAND_OVER:
                is_open = names.unresolved[next_place] and end_ns - start_ns > _LONGEST_HAND_OVER_NS
                cause = NOBODY if is_open else _hand_over(names, place, next_place)
                name, op = names.name[place], ops[place]
            case Bound.LATENCY:
                is_open = names.unresolved[place] and end_ns - start_ns > _LONGEST_HAND_OVER_NS
                cause = NOBODY if is_open else LAUNCH_LATENCY
                name, op = names.name[place], ops[place]
            case Bound.PIECE:
                call = pieces.call[place]
                is_slack = call < 0
                cause, name = _of_piece(stretch, place), "" if is_slack else stretch.call_name[call]
            case Bound.RETURN:
                cause, name = _of_piece(stretch, place), stretch.call_name[pieces.call[place]]
            case Bound.EARLIER:
                cause = NOBODY
        following = ops[led_to] if led_to < count else -1
        yield step, start_ns, end_ns, str(bound), cause, name, op, following, is_slack


def _of_piece(stretch: Stretch, row: int) -> str:
    """The cause of a piece: that of a call that waited is the wait, whoever made it."""
    awaited = stretch.replay.order.awaited.get(row)
    return stretch.causes[row] if awaited is None or awaited.is_releasing else SYNCHRONISATION


def _hand_over(names: Named, place: int, next_place: int) -> str:
    both = names.computes[place] and names.computes[next_place]
    return KERNEL_GAP if both and names.chain[place] == names.chain[next_place] else names.before[place]


def walls_of_run(stretch: Stretch, names: Named, played: Played, path: pl.DataFrame) -> dict[str, int]:
    """Time of each cause in the steps of a path: compute where any ran, else what the path was bound by.

    Compute that owns no place on the path stands together as `compute/beside`.
    """
    computes = [
        place
        for place, (is_computing, cause) in enumerate(zip(names.computes, names.cause, strict=True))
        if is_computing and cause.startswith("compute/")
    ]
    own = stretch.operations.filter(pl.col("rank_id") == stretch.rank_id)["op"]
    is_own = np.isin(np.array(stretch.replay.ops, np.int64)[computes], own.to_numpy())
    held = np.array(computes, np.int64)[is_own]
    starts, ends = np.array(played.start_ns, np.int64), np.array(played.end_ns, np.int64)
    computing = union(ordered(starts[held], ends[held]))
    in_order = path.sort("start_ns")
    spans = Spans(in_order["start_ns"].to_numpy(), in_order["end_ns"].to_numpy())
    beside = covered_ns(computing, spans)
    is_compute = in_order["cause"].str.starts_with("compute/")
    told = in_order.select(
        "cause", time_ns=pl.col("end_ns") - pl.col("start_ns"), beside_ns=pl.Series(beside)
    ).with_columns(beside_ns=pl.when(is_compute).then(0).otherwise("beside_ns"))
    of_cause = dict(
        told.group_by("cause")
        .agg(left_ns=(pl.col("time_ns") - pl.col("beside_ns")).sum())
        .sort("cause")
        .iter_rows()
    )
    return of_cause | {"compute/beside": int(told["beside_ns"].sum())}


def walls(of_cause: dict[str, int], step_ns: int) -> Walls:
    """The walls of one step, from the causes of several; they sum to it."""
    time_ns = dict.fromkeys(map(str, Wall), 0)
    for cause, ns in of_cause.items():
        time_ns[cause.split("/")[0]] += ns
    edges = np.cumsum([0, *time_ns.values()])
    rounded = [round(edge * step_ns / max(edges[-1], 1)) for edge in edges.tolist()]
    parts = dict(zip(time_ns, np.diff(rounded).tolist(), strict=True))
    return Walls(**parts)


def next_wall(of_cause: dict[str, int]) -> tuple[Wall, str]:
    """The largest loss wall if it is a tenth of the time, else compute; and its largest cause."""
    total = sum(of_cause.values())
    of_wall: dict[str, int] = {}
    for cause, ns in of_cause.items():
        of_wall[cause.split("/")[0]] = of_wall.get(cause.split("/")[0], 0) + ns
    losses = {str(wall): of_wall.get(str(wall), 0) for wall in (Wall.MEMORY, Wall.COMMUNICATION, Wall.HOST)}
    largest = max(losses, key=lambda wall: losses[wall])
    wall = Wall(largest) if losses[largest] >= total / 10 else Wall.COMPUTE
    own = {cause: ns for cause, ns in of_cause.items() if cause.startswith(f"{wall}/")}
    named_causes = {cause: ns for cause, ns in own.items() if cause != "compute/beside"} or own
    cause = max(sorted(named_causes), key=lambda one: named_causes[one], default=f"{wall}/other")
    return wall, cause
