"""The critical path of a step with cause, range and name, its parts, and the slack of operations."""

from typing import NamedTuple

import numpy as np
import polars as pl

from wallscope.columns import (
    Flags,
    Rows,
    as_integers,
    as_texts,
    encode_column,
    mark_numbers,
    sum_by_group,
    take_or,
)
from wallscope.model.cause_catalogue import UNATTRIBUTED_UNRESOLVED
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import Wall
from wallscope.model.whatif import CriticalPath, OperationSlack, PathPart, PathSegment
from wallscope.records import dataclass
from wallscope.replay.changes import KERNEL_GAP, LAUNCH_LATENCY, SYNCHRONISATION, find_waiting_segments
from wallscope.replay.simulate import (
    BOUNDS,
    Bound,
    CriticalLinks,
    CriticalPaths,
    SimulatedRun,
    find_latest_ends,
)
from wallscope.replay.windows import SimulatedSteps
from wallscope.thresholds.causes import ONE_WALL_OF_PART_SHARE
from wallscope.thresholds.steps import LONGEST_DEPENDENCY_LATENCY_NS
from wallscope.trace.intervals import Spans, covered_ns, order_spans, union
from wallscope.trace.kernel_classes import is_compute
from wallscope.trace.streams import UNRESOLVED

NOBODY = UNATTRIBUTED_UNRESOLVED

PATH = pl.Schema(
    {
        "step": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "bound": pl.Enum(Bound),
        "cause": pl.String(),
        "name": pl.String(),  # of the operation or the call; empty outside calls
        "op": pl.Int64(),  # -1 on a thread
        "led_to": pl.Int64(),  # the operation at which the path continues after it
        "is_slack": pl.Boolean(),  # latencies, and time outside calls
    }
)
"""Segments of the paths of steps, in order of time; those of a step tile it."""


@dataclass(frozen=True, slots=True)
class NamedPath:
    """Names of the operations of a window, by index, and of its host segments, by row.

    Causes are indices in `causes`. `nobody`, `latency` and `gap` are the indices of three that always exist.
    `before` is the cause of the time after an operation. `is_open` means that it also has an unknown
    dependency. `is_own` are compute kernels of the shown rank. Names of host segments are indices in `calls`,
    the last of which is empty for time outside calls. `are_compute` refers to `causes`.
    """

    causes: list[str]
    nobody: int
    latency: int
    gap: int
    cause: Rows
    before: Rows
    name: pl.Series
    chain: Rows
    computes: Flags
    is_open: Flags
    is_own: Flags
    segment_cause: Rows
    segment_name: Rows
    calls: pl.Series
    is_call: Flags
    are_compute: Flags


def name_path(window: SimulatedSteps) -> NamedPath:
    """Return the names of what is replayed in a window."""
    known = window.replayed
    shown_name = pl.coalesce("text", pl.col("category").cast(pl.String), pl.lit(""))
    are_computing = is_compute(as_integers(known["class"]))
    given = [encode_column(known["cause"]), encode_column(known["before"]), encode_column(window.causes)]
    always = [NOBODY, LAUNCH_LATENCY, KERNEL_GAP, SYNCHRONISATION]
    causes = sorted({*always, *(cause for _, texts in given for cause in texts)})
    nobody, latency, gap, waiting = map(causes.index, always)
    cause, before, of_segment = (
        np.array([*map(causes.index, texts), nobody], np.int64)[number] for number, texts in given
    )
    of_segment[find_waiting_segments(window)] = waiting
    call = np.asarray(window.segments.call)
    calls = as_texts(window.call_name)
    is_shown = are_computing & (known["rank_id"] == window.rank_id).to_numpy()
    are_compute = np.array([one.startswith("compute/") for one in causes])
    return NamedPath(
        causes,
        nobody,
        latency,
        gap,
        cause,
        before,
        known.select(shown_name)[:, 0],
        known["stream"].to_numpy().astype(np.int64),
        are_computing,
        _are_open(window),
        is_shown & are_compute[cause],
        of_segment,
        take_or(as_integers(window.call_name), call, len(calls)),
        pl.concat([calls, pl.Series([""])]),
        call >= 0,
        are_compute,
    )


def _are_open(window: SimulatedSteps) -> Flags:
    """Return whether each operation also has an unknown dependency, by index."""
    place, producer = window.waits.pairs(window.graph.op)
    return mark_numbers(place[producer == UNRESOLVED], window.graph.op.size)


class PathColumns(NamedTuple):
    """Segments of the paths of steps in columns, as in `PATH`, in order of time.

    `bound` is an index in `BOUNDS`, `cause` in `NamedPath.causes`. `on_device` and `on_thread` show whether
    `place` is the index of an operation or the row of a segment. `led_to` is the index of an operation.
    """

    step: Rows
    start_ns: Rows
    end_ns: Rows
    bound: Rows
    cause: Rows
    place: Rows
    on_device: Flags
    on_thread: Flags
    led_to: Rows
    is_slack: Flags


def trace_path(window: SimulatedSteps, names: NamedPath, run: SimulatedRun) -> PathColumns:
    """Return the paths of the typical steps in a run."""
    steps, found = window.steps["step"].to_numpy()[window.steps["typical"].to_numpy()], []
    paths = CriticalPaths(run, window.graph)
    for step, (first, until) in zip(steps.tolist(), window.edges("typical").tolist(), strict=True):
        links = paths.to(until, int(run.start_ns[first]))
        found.append(_describe_links(names, step, links, until))
    found = found or [
        _describe_links(names, 0, CriticalLinks(*[np.empty(0, np.int64)] * len(CriticalLinks._fields)), 0)
    ]
    return PathColumns._make(np.concatenate(column) for column in zip(*found, strict=True))


def trace_single_path(
    window: SimulatedSteps, names: NamedPath, run: SimulatedRun, step: int, begin_ns: int
) -> PathColumns:
    """Return the path of the only step of a rank: from its begin to the end of its last operation or segment.

    Args:
        window: the window.
        names: the names of its content.
        run: a run.
        step: the number of the step.
        begin_ns: its begin.
    """
    own = np.flatnonzero((window.replayed["rank_id"] == window.rank_id).to_numpy())
    last = int(own[run.end_ns[own].argmax()])
    columns = _describe_links(names, step, CriticalPaths(run, window.graph).to(last, begin_ns), last)
    end_ns, left_ns = int(run.end_ns[last]), run.left_ns[: window.graph.role.size]
    threads = np.unique(np.asarray(window.segments.thread)[window.graph.issuer[own]])
    held = np.flatnonzero(np.isin(np.asarray(window.segments.thread), threads))
    row = int(held[left_ns[held].argmax()])
    rest = [(end_ns, int(run.start_ns[last]), Bound.OPERATION, int(names.cause[last]), last)]
    if left_ns[row] > end_ns:
        rest.append((int(left_ns[row]), end_ns, Bound.PIECE, int(names.segment_cause[row]), row))
    for until_ns, since_ns, bound, cause, place in rest:
        is_op = bound is Bound.OPERATION
        link = (
            step,
            since_ns,
            until_ns,
            BOUNDS.index(bound),
            cause,
            place,
            is_op,
            not is_op,
            last,
            not is_op,
        )
        columns = PathColumns._make(np.append(column, one) for column, one in zip(columns, link, strict=True))
    return columns


def build_path_frame(window: SimulatedSteps, names: NamedPath, path: PathColumns) -> pl.DataFrame:
    """Return paths as a table (`PATH`)."""
    ops = np.append(window.graph.op, -1)
    of_segment = np.append(names.segment_name, 0)[np.where(path.on_thread, path.place, -1)]
    outside = len(names.name) + len(names.calls) - 1
    name = np.where(path.on_thread, len(names.name) + of_segment, outside)
    name[path.on_device] = path.place[path.on_device]
    return pl.DataFrame(
        {
            "step": path.step,
            "start_ns": path.start_ns,
            "end_ns": path.end_ns,
            "bound": pl.Series(BOUNDS, dtype=PATH["bound"])[path.bound],
            "cause": pl.Series(names.causes)[path.cause],
            "name": pl.concat([names.name, names.calls])[name],
            "op": ops[np.where(path.on_device, path.place, -1)],
            "led_to": ops[path.led_to],
            "is_slack": path.is_slack,
        },
        schema=PATH,
    )


def _describe_links(names: NamedPath, step: int, links: CriticalLinks, until: int) -> PathColumns:
    """Yield the links of the path of a step in order of time."""
    start_ns, end_ns, bound, place, following = links
    kinds = {kind: bound == number for number, kind in enumerate(BOUNDS)}
    on_device = kinds[Bound.OPERATION] | kinds[Bound.HAND_OVER] | kinds[Bound.LATENCY]
    on_thread = kinds[Bound.PIECE] | kinds[Bound.RETURN]
    op, row = np.where(on_device, place, 0), np.where(on_thread, place, 0)
    waiter = np.where(kinds[Bound.HAND_OVER], following, np.where(kinds[Bound.LATENCY], place, 0))
    is_lost = names.is_open[waiter] & (kinds[Bound.HAND_OVER] | kinds[Bound.LATENCY])
    is_lost &= end_ns - start_ns > LONGEST_DEPENDENCY_LATENCY_NS
    is_gap = names.computes[op] & names.computes[waiter] & (names.chain[op] == names.chain[waiter])
    led_to = np.maximum.accumulate(np.where(kinds[Bound.OPERATION], np.arange(place.size), -1))
    cases: list[tuple[Flags, Rows | int]] = [
        (is_lost | kinds[Bound.EARLIER], names.nobody),
        (on_thread, np.append(names.segment_cause, 0)[row]),
        (kinds[Bound.OPERATION], names.cause[op]),
        (kinds[Bound.LATENCY], names.latency),
        (is_gap, names.gap),
    ]
    columns = PathColumns(
        np.full(place.size, step, np.int64),
        start_ns,
        end_ns,
        bound,
        np.select([here for here, _ in cases], [cause for _, cause in cases], names.before[op]),
        place,
        on_device,
        on_thread,
        np.where(led_to >= 0, place[led_to], until),
        ~kinds[Bound.OPERATION] & ~(kinds[Bound.PIECE] & np.append(names.is_call, False)[row]),
    )
    return PathColumns._make(column[::-1] for column in columns)


def measure_busy(run: SimulatedRun, places: Rows) -> Spans:
    """Return when any of the operations with some indices ran in a run."""
    return union(order_spans(run.start_ns[places], run.end_ns[places]))


def sum_walls_of_run(names: NamedPath, run: SimulatedRun, path: PathColumns) -> dict[str, int]:
    """Return the time of each cause in the steps of a path: compute where any ran, else the path's cause.

    Compute that is not on the path itself is combined as `compute/beside`.
    """
    computing = measure_busy(run, np.flatnonzero(names.is_own))
    order = np.argsort(path.start_ns, kind="stable")
    cause, spans = path.cause[order], Spans(path.start_ns[order], path.end_ns[order])
    beside_ns = np.where(names.are_compute[cause], 0, covered_ns(computing, spans))
    left_ns = sum_by_group(cause, spans.end_ns - spans.start_ns - beside_ns, len(names.causes))
    of_cause = {names.causes[one]: int(left_ns[one]) for one in np.flatnonzero(np.bincount(cause)).tolist()}
    return of_cause | {"compute/beside": int(beside_ns.sum())}


def sum_path_walls(of_cause: dict[str, int], step_ns: int) -> Walls:
    """Return the walls of one step, from the causes of several; they sum to it."""
    time_ns = dict.fromkeys(map(str, Wall), 0)
    for cause, ns in of_cause.items():
        time_ns[cause.split("/")[0]] += ns
    edges = np.cumsum([0, *time_ns.values()])
    rounded = [round(edge * step_ns / max(edges[-1], 1)) for edge in edges.tolist()]
    parts = dict(zip(time_ns, np.diff(rounded).tolist(), strict=True))
    return Walls(**parts)


def find_next_path_wall(of_cause: dict[str, int]) -> tuple[Wall, str]:
    """Return the largest loss wall if it is a tenth of the time, else compute; and its largest cause."""
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


_MOST_PARTS, _MOST_SEGMENTS, _MOST_SLACK = 24, 12, 24
_LEAST_SHARE = 0.001
_FOR_EVER_NS = 2**60
_AT_ONCE_NS = 1_000


def divide_path(  # noqa: PLR0913, PLR0917  # a path with all that names it
    window: SimulatedSteps,
    names: NamedPath,
    run: SimulatedRun,
    path: pl.DataFrame,
    texts: pl.Series,
    steps: pl.DataFrame,
) -> CriticalPath:
    """Return the path (`PATH`) of some steps; `texts` are written paths of ranges by number."""
    ranges = window.operations.select(pl.col("op").cast(pl.Int64).alias("led_to"), "path")
    joined = path.join(ranges, on="led_to", how="left", maintain_order="left")
    written = (
        texts.gather(joined["path"].fill_null(0))
        if len(texts)
        else pl.Series([""]).new_from_index(0, len(joined))
    )
    links = joined.with_columns(
        range=pl.when(pl.col("path").is_null()).then(pl.lit("")).otherwise(written),
        time_ns=pl.col("end_ns") - pl.col("start_ns"),
        wall=pl.col("cause").str.split("/").list.first(),
    )
    count = len(steps)
    length_ns = (steps["end_ns"] - steps["start_ns"]).to_numpy()
    shown = int(np.abs(length_ns - length_ns.mean()).argmin())
    step = int(steps["step"][shown])
    whole = round(int(links["time_ns"].sum()) / count)
    return CriticalPath(
        step_ns=whole,
        walls=_list_largest_parts(links, pl.col("wall"), count, whole),
        causes=_list_largest_parts(links, pl.col("cause"), count, whole),
        ranges=_list_largest_parts(links, pl.col("range"), count, whole),
        operations=_list_largest_parts(links, pl.col("name"), count, whole),
        shown_step=step,
        segments=_segments(links.filter(pl.col("step") == step)),
        slack=_slack(window, names, run, count),
    )


def _list_largest_parts(links: pl.DataFrame, by: pl.Expr, steps: int, whole: int) -> tuple[PathPart, ...]:
    """Return the largest parts of a step and the rest, which sum to it."""
    of_wall = links.group_by("wall", name=by).agg(pl.col("time_ns").sum(), stretches=pl.len())
    is_of_one = pl.col("time_ns").max() >= ONE_WALL_OF_PART_SHARE * pl.col("time_ns").sum()
    parts = (
        of_wall.sort("time_ns", "wall", descending=[True, False])
        .group_by("name", maintain_order=True)
        .agg(
            pl.col("time_ns", "stretches").sum(),
            wall=pl.when(is_of_one).then(pl.col("wall").first()),
        )
        .sort("time_ns", "name", descending=[True, False])
    )
    is_large = (pl.col("time_ns") >= _LEAST_SHARE * whole * steps) & (pl.int_range(pl.len()) < _MOST_PARTS)
    large, small = parts.filter(is_large), parts.filter(~is_large)
    rows = list(large.select("name", "wall", "time_ns", "stretches").iter_rows())
    if len(small):
        rows.append(("rest", None, int(small["time_ns"].sum()), int(small["stretches"].sum())))
    edges = [round(edge / steps) for edge in np.cumsum([0, *(row[2] for row in rows)]).tolist()]
    return tuple(
        PathPart(
            name,
            None if wall is None else Wall(wall),
            edges[row + 1] - edges[row],
            (edges[row + 1] - edges[row]) / max(whole, 1),
            stretches / steps,
        )
        for row, (name, wall, _, stretches) in enumerate(rows)
    )


def _segments(links: pl.DataFrame) -> tuple[PathSegment, ...]:
    """Return the longest segments of one path with one cause and one name."""
    runs = (
        links.sort("start_ns")
        .with_columns(run=pl.struct("cause", "name", "range").rle_id())
        .group_by("run", maintain_order=True)
        .agg(pl.col("start_ns").first(), pl.col("time_ns").sum(), pl.col("cause", "name", "range").first())
        .sort("time_ns", "start_ns", descending=[True, False])
        .head(_MOST_SEGMENTS)
        .sort("start_ns")
    )
    return tuple(
        PathSegment(at_ns, time_ns, cause, name, path or None)
        for at_ns, time_ns, cause, name, path in runs.select(
            "start_ns", "time_ns", "cause", "name", "range"
        ).iter_rows()
    )


def _slack(
    window: SimulatedSteps, names: NamedPath, run: SimulatedRun, count: int
) -> tuple[OperationSlack, ...]:
    """Return how much longer operations of a name could take, those that are least often critical first."""
    starts, ends = run.start_ns, run.end_ns
    own = (window.replayed["rank_id"] == window.rank_id).to_numpy()
    rows: list[pl.DataFrame] = []
    name, cause = names.name, pl.Series(names.causes)[names.cause]
    for first, until in window.edges("typical").tolist():
        late_ns = find_latest_ends(run, until)
        begin_ns, end_ns = starts[first], starts[until]
        held = np.flatnonzero((starts >= begin_ns) & (starts < end_ns) & own)
        free_ns = np.where(late_ns[held] > _FOR_EVER_NS, end_ns, late_ns[held]) - ends[held]
        rows.append(
            pl.DataFrame(
                {
                    "name": name.gather(held),
                    "cause": cause.gather(held),
                    "time_ns": ends[held] - starts[held],
                    "slack_ns": np.maximum(free_ns, 0),
                }
            )
        )
    if not rows:
        return ()
    table = (
        pl.concat(rows)
        .group_by("name", "cause")
        .agg(
            count=pl.len() / count,
            work_ns=pl.col("time_ns").sum(),
            duration_ns=pl.col("time_ns").median().round().cast(pl.Int64),
            typical_ns=pl.col("slack_ns").median().round().cast(pl.Int64),
            least_ns=pl.col("slack_ns").min(),
            binding=(pl.col("slack_ns") < _AT_ONCE_NS).sum() / count,
        )
        .sort("work_ns", "name", "cause", descending=[True, False, False])
        .head(_MOST_SLACK)
    )
    return tuple(
        OperationSlack(*row)
        for row in table.select(
            "name", "cause", "count", "duration_ns", "typical_ns", "least_ns", "binding"
        ).iter_rows()
    )
