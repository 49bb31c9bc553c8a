"""What bounds a step: the path back from its end, with the cause, the range and the name of each stretch."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.model.analysis import Walls
from wallscope.model.kinds import OperationClass, Wall
from wallscope.timeline.play import Played
from wallscope.timeline.play_back import BOUNDS, Bound, Links, played_path
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


Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Named:
    """What the operations of a stretch are called and stand for, by place, and its pieces, by row.

    Causes are places in `causes`: `nobody`, `latency` and `gap` are those of three that are always there.
    `before` is the cause of the time behind an operation, `is_open` tells that it waits for something
    unknown besides; `is_own` are compute kernels of the rank that is shown.
    """

    causes: pl.Series
    nobody: Numbers
    latency: Numbers
    gap: Numbers
    cause: Numbers
    before: Numbers
    name: pl.Series
    chain: Numbers
    computes: Flags
    is_open: Flags
    is_own: Flags
    piece_cause: Numbers
    piece_name: pl.Series
    is_call: Flags


def named(stretch: Stretch) -> Named:
    """What is played in a stretch."""
    ops = pl.DataFrame({"op": stretch.replay.ops}, schema={"op": pl.UInt32})
    known = ops.join(stretch.operations, on="op", how="left", maintain_order="left")
    name = pl.when(pl.col("text").is_not_null()).then("text").otherwise(pl.col("category").cast(pl.String))
    waiting = set(stretch.waits.order.waiting())
    is_open = [op in waiting and UNRESOLVED in stretch.waits.producers(op) for op in stretch.replay.ops]
    computes = known["class"].cast(pl.String).is_in(_COMPUTING).to_numpy()
    is_compute = known["cause"].str.starts_with("compute/").to_numpy()
    call = np.array(stretch.pieces.call, np.int64)
    waits = np.zeros(call.size, np.bool_)
    waits[[row for row, one in stretch.replay.order.awaited.items() if not one.is_releasing]] = True
    piece = pl.DataFrame({"cause": stretch.causes.cast(pl.String), "waits": waits})
    of_piece = piece.select(pl.when("waits").then(pl.lit(SYNCHRONISATION)).otherwise("cause"))[:, 0]
    called = (
        stretch.call_name.gather(pl.Series(call.clip(0), dtype=pl.UInt32)).cast(pl.String)
        if call.size
        else pl.Series("", [], pl.String)
    )
    given = [known["cause"], known["before"], of_piece]
    always = [NOBODY, LAUNCH_LATENCY, KERNEL_GAP]
    causes = pl.concat([*given, pl.Series(always)]).drop_nulls().unique().sort()
    of_op, before, of_piece = (one.fill_null(NOBODY).cast(pl.Enum(causes)) for one in given)
    nobody, latency, gap = (np.array(causes.search_sorted(one), np.int64) for one in always)
    return Named(
        causes,
        nobody,
        latency,
        gap,
        of_op.to_physical().to_numpy().astype(np.int64),
        before.to_physical().to_numpy().astype(np.int64),
        known.select(name.fill_null(""))[:, 0],
        known["stream"].to_numpy().astype(np.int64),
        computes.astype(np.bool_),
        np.array(is_open, np.bool_),
        (computes & is_compute & (known["rank_id"] == stretch.rank_id).to_numpy()).astype(np.bool_),
        of_piece.to_physical().to_numpy().astype(np.int64),
        pl.select(pl.when(pl.Series(call >= 0)).then(called).otherwise(pl.lit("")))[:, 0]
        if call.size
        else called,
        call >= 0,
    )


class PathColumns(NamedTuple):
    """Stretches of the paths of steps in columns, as `PATH` has them, in order of time.

    `bound` counts in `BOUNDS`, `cause` in `Named.causes`; `on_device` and `on_thread` tell whether `place` is
    that of an operation or a row of a piece; `led_to` is the place of an operation.
    """

    step: Numbers
    start_ns: Numbers
    end_ns: Numbers
    bound: Numbers
    cause: Numbers
    place: Numbers
    on_device: Flags
    on_thread: Flags
    led_to: Numbers
    is_slack: Flags


def path_of(stretch: Stretch, names: Named, played: Played, which: str) -> PathColumns:
    """The paths of the steps of a kind (a column of the steps) in a run."""
    places, found = stretch.replay.places, []
    steps = stretch.steps.filter(pl.col(which)).select("step", "first", "behind")
    for step, first, behind in steps.iter_rows():
        until = places[behind]
        links = played_path(stretch.replay.order, played, until, played.start_ns[places[first]])
        found.append(_told(names, step, links, until))
    found = found or [_told(names, 0, Links([], [], [], [], []), 0)]
    return PathColumns._make(np.concatenate(column) for column in zip(*found, strict=True))


def path_frame(stretch: Stretch, names: Named, path: PathColumns) -> pl.DataFrame:
    """Paths as a table (`PATH`)."""
    ops = np.array([*stretch.replay.ops, -1], np.int64)
    op, row = np.where(path.on_device, path.place, -1), np.where(path.on_thread, path.place, 0)
    name = (
        pl.when(pl.Series(path.on_device))
        .then(_at(names.name, op.clip(0)))
        .when(pl.Series(path.on_thread))
        .then(_at(names.piece_name, row))
        .otherwise(pl.lit(""))
    )
    return pl.DataFrame(
        {
            "step": path.step,
            "start_ns": path.start_ns,
            "end_ns": path.end_ns,
            "bound": _at(pl.Series(list(map(str, BOUNDS))), path.bound),
            "cause": _at(names.causes, path.cause),
            "name": pl.select(name)[:, 0] if path.step.size else pl.Series([], dtype=pl.String),
            "op": ops[op],
            "led_to": ops[path.led_to],
            "is_slack": path.is_slack,
        }
    ).cast(PATH)


def _told(names: Named, step: int, links: Links, until: int) -> PathColumns:
    """The links of the path of a step in order of time."""
    start_ns, end_ns, bound, place, following = (np.array(values, np.int64) for values in links)
    kinds = {kind: bound == number for number, kind in enumerate(BOUNDS)}
    on_device = kinds[Bound.OPERATION] | kinds[Bound.HAND_OVER] | kinds[Bound.LATENCY]
    on_thread = kinds[Bound.PIECE] | kinds[Bound.RETURN]
    op, row = np.where(on_device, place, 0), np.where(on_thread, place, 0)
    waiter = np.where(kinds[Bound.HAND_OVER], following, np.where(kinds[Bound.LATENCY], place, 0))
    is_lost = names.is_open[waiter] & (kinds[Bound.HAND_OVER] | kinds[Bound.LATENCY])
    is_lost &= end_ns - start_ns > _LONGEST_HAND_OVER_NS
    is_gap = names.computes[op] & names.computes[waiter] & (names.chain[op] == names.chain[waiter])
    led_to = np.maximum.accumulate(np.where(kinds[Bound.OPERATION], np.arange(place.size), -1))
    told: list[tuple[Flags, Numbers]] = [
        (is_lost | kinds[Bound.EARLIER], names.nobody),
        (on_thread, np.append(names.piece_cause, 0)[row]),
        (kinds[Bound.OPERATION], names.cause[op]),
        (kinds[Bound.LATENCY], names.latency),
        (is_gap, names.gap),
    ]
    columns = PathColumns(
        np.full(place.size, step, np.int64),
        start_ns,
        end_ns,
        bound,
        np.select([here for here, _ in told], [cause for _, cause in told], names.before[op]),
        place,
        on_device,
        on_thread,
        np.where(led_to >= 0, place[led_to], until),
        ~kinds[Bound.OPERATION] & ~(kinds[Bound.PIECE] & np.append(names.is_call, False)[row]),
    )
    return PathColumns._make(column[::-1] for column in columns)


def _at(texts: pl.Series, places: Numbers) -> pl.Series:
    """The text at each place; empty where there are none at all."""
    if not len(texts):
        return pl.Series("", [""], pl.String).new_from_index(0, places.size)
    return texts.gather(pl.Series(places, dtype=pl.UInt32))


def walls_of_run(names: Named, played: Played, path: PathColumns) -> dict[str, int]:
    """Time of each cause in the steps of a path: compute where any ran, else what the path was bound by.

    Compute that owns no place on the path stands together as `compute/beside`.
    """
    held = np.flatnonzero(names.is_own)
    starts, ends = np.array(played.start_ns, np.int64), np.array(played.end_ns, np.int64)
    computing = union(ordered(starts[held], ends[held]))
    order = np.argsort(path.start_ns, kind="stable")
    cause, spans = path.cause[order], Spans(path.start_ns[order], path.end_ns[order])
    is_compute = names.causes.str.starts_with("compute/").to_numpy()[cause]
    beside_ns = np.where(is_compute, 0, covered_ns(computing, spans))
    left_ns = np.zeros(len(names.causes), np.int64)
    np.add.at(left_ns, cause, spans.end_ns - spans.start_ns - beside_ns)
    there = np.unique(cause)
    of_cause = dict(zip(names.causes.gather(there).to_list(), left_ns[there].tolist(), strict=True))
    return of_cause | {"compute/beside": int(beside_ns.sum())}


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
