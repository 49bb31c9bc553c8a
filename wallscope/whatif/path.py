"""What bounds a step: the path back from its end, with the cause, the range and the name of each stretch."""

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Named:
    """What the operations of a stretch are called and stand for, by place, and its pieces, by row.

    `before` is the cause of the time behind an operation, `is_open` tells that it waits for something
    unknown besides; `is_own` are compute kernels of the rank that is shown.
    """

    cause: pl.Series
    before: pl.Series
    name: pl.Series
    chain: npt.NDArray[np.int64]
    computes: npt.NDArray[np.bool_]
    is_open: npt.NDArray[np.bool_]
    is_own: npt.NDArray[np.bool_]
    piece_cause: pl.Series
    piece_name: pl.Series
    is_call: npt.NDArray[np.bool_]


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
    piece = pl.DataFrame({"cause": stretch.causes, "waits": waits}, schema_overrides={"cause": pl.String})
    called = (
        stretch.call_name.gather(pl.Series(call.clip(0), dtype=pl.UInt32))
        if call.size
        else pl.Series("", [], pl.String)
    )
    return Named(
        known["cause"],
        known["before"],
        known.select(name.fill_null(""))[:, 0],
        known["stream"].to_numpy().astype(np.int64),
        computes.astype(np.bool_),
        np.array(is_open, np.bool_),
        (computes & is_compute & (known["rank_id"] == stretch.rank_id).to_numpy()).astype(np.bool_),
        piece.select(pl.when("waits").then(pl.lit(SYNCHRONISATION)).otherwise("cause"))[:, 0],
        pl.select(pl.when(pl.Series(call >= 0)).then(called).otherwise(pl.lit("")))[:, 0]
        if call.size
        else called,
        call >= 0,
    )


def paths(stretch: Stretch, names: Named, played: Played, which: str) -> pl.DataFrame:
    """The paths (`PATH`) of the steps of a kind (a column of the steps) in a run."""
    places, found = stretch.replay.places, [PATH.to_frame()]
    steps = stretch.steps.filter(pl.col(which)).select("step", "first", "behind")
    for step, first, behind in steps.iter_rows():
        until = places[behind]
        links = played_path(stretch.replay.order, played, until, played.start_ns[places[first]])
        found.append(_told(stretch, names, links, until).with_columns(step=pl.lit(step, pl.UInt32)))
    return pl.concat([one.select(PATH.names()).cast(PATH) for one in found])


def _told(stretch: Stretch, names: Named, links: Links, until: int) -> pl.DataFrame:
    """The links of a path in order of time, without the step."""
    columns = {name: np.array(values, np.int64) for name, values in links._asdict().items()}
    start_ns, end_ns, bound, place, following = columns.values()
    kinds = {kind: bound == number for number, kind in enumerate(BOUNDS)}
    on_device = kinds[Bound.OPERATION] | kinds[Bound.HAND_OVER] | kinds[Bound.LATENCY]
    on_thread = kinds[Bound.PIECE] | kinds[Bound.RETURN]
    op, row = np.where(on_device, place, 0), np.where(on_thread, place, 0)
    waiter = np.where(kinds[Bound.HAND_OVER], following, np.where(kinds[Bound.LATENCY], place, 0))
    is_lost = names.is_open[waiter] & (kinds[Bound.HAND_OVER] | kinds[Bound.LATENCY])
    is_lost &= end_ns - start_ns > _LONGEST_HAND_OVER_NS
    both = names.computes[op] & names.computes[waiter] & (names.chain[op] == names.chain[waiter])
    led_to = np.where(kinds[Bound.OPERATION], np.arange(place.size), -1)
    led_to = np.maximum.accumulate(led_to)
    led_to = np.where(led_to >= 0, place[led_to], until)
    ops = np.array(stretch.replay.ops, np.int64)
    gathered = pl.DataFrame(
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "bound": pl.Series(bound).replace_strict(
                list(range(len(BOUNDS))), list(map(str, BOUNDS)), return_dtype=pl.Enum(Bound)
            ),
            "of_op": _at(names.cause, op),
            "behind_op": _at(names.before, op),
            "of_piece": _at(names.piece_cause, row),
            "name_of_op": _at(names.name, op),
            "name_of_piece": _at(names.piece_name, row),
            "is_device": on_device,
            "is_thread": on_thread,
            "is_lost": is_lost | kinds[Bound.EARLIER],
            "is_gap": both,
            "op": np.where(on_device, ops[op], -1),
            "led_to": ops[led_to],
            "is_slack": ~kinds[Bound.OPERATION]
            & ~(kinds[Bound.PIECE] & np.append(names.is_call, False)[row]),
        }
    )
    cause = (
        pl.when("is_lost")
        .then(pl.lit(NOBODY))
        .when("is_thread")
        .then("of_piece")
        .when(pl.col("bound") == str(Bound.OPERATION))
        .then("of_op")
        .when(pl.col("bound") == str(Bound.LATENCY))
        .then(pl.lit(LAUNCH_LATENCY))
        .otherwise(pl.when("is_gap").then(pl.lit(KERNEL_GAP)).otherwise("behind_op"))
    )
    name = (
        pl.when("is_device").then("name_of_op").when("is_thread").then("name_of_piece").otherwise(pl.lit(""))
    )
    return gathered.with_columns(cause=cause, name=name).reverse()


def _at(texts: pl.Series, places: npt.NDArray[np.int64]) -> pl.Series:
    """The text at each place; empty where there are none at all."""
    if not len(texts):
        return pl.Series("", [""], pl.String).new_from_index(0, places.size)
    return texts.gather(pl.Series(places, dtype=pl.UInt32))


def walls_of_run(names: Named, played: Played, path: pl.DataFrame) -> dict[str, int]:
    """Time of each cause in the steps of a path: compute where any ran, else what the path was bound by.

    Compute that owns no place on the path stands together as `compute/beside`.
    """
    held = np.flatnonzero(names.is_own)
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
