"""The critical path of the typical step in parts, its longest stretches, and the slack of what is off it."""

import numpy as np
import polars as pl

from wallscope.model.kinds import Wall
from wallscope.model.whatif import CriticalPath, OperationSlack, PathPart, PathSegment
from wallscope.timeline.critical_path import latest_ends_ns
from wallscope.timeline.simulate import Run
from wallscope.timeline.stretch import Stretch
from wallscope.whatif.path import Named

_MOST_PARTS, _MOST_SEGMENTS, _MOST_SLACK = 24, 12, 24
_LEAST_SHARE = 0.001
_FOR_EVER_NS = 2**60
_AT_ONCE_NS = 1_000


def composition(
    stretch: Stretch, names: Named, run: Run, path: pl.DataFrame, texts: pl.Series
) -> CriticalPath:
    """The path (`PATH`) of the typical steps; `texts` are written paths of ranges by number."""
    steps = stretch.steps.filter(pl.col("typical"))
    ranges = stretch.operations.select(pl.col("op").cast(pl.Int64).alias("led_to"), "path")
    joined = path.join(ranges, on="led_to", how="left", maintain_order="left")
    written = (
        texts.gather(joined["path"].fill_null(0))
        if len(texts)
        else pl.Series([""]).new_from_index(0, len(joined))
    )
    told = joined.with_columns(
        range=pl.when(pl.col("path").is_null()).then(pl.lit("")).otherwise(written),
        time_ns=pl.col("end_ns") - pl.col("start_ns"),
        wall=pl.col("cause").str.split("/").list.first(),
    )
    count = len(steps)
    length_ns = (steps["end_ns"] - steps["start_ns"]).to_numpy()
    shown = int(np.abs(length_ns - length_ns.mean()).argmin())
    step = int(steps["step"][shown])
    whole = round(int(told["time_ns"].sum()) / count)
    return CriticalPath(
        step_ns=whole,
        walls=_parts(told, pl.col("wall"), count, whole),
        causes=_parts(told, pl.col("cause"), count, whole),
        ranges=_parts(told, pl.col("range"), count, whole),
        operations=_parts(told, pl.col("name"), count, whole),
        shown_step=step,
        segments=_segments(told.filter(pl.col("step") == step)),
        slack=_slack(stretch, names, run, count),
    )


def _parts(told: pl.DataFrame, by: pl.Expr, steps: int, whole: int) -> tuple[PathPart, ...]:
    """The largest parts of a step and the rest, which sum to it."""
    parts = (
        told.group_by(name=by)
        .agg(
            pl.col("time_ns").sum(),
            stretches=pl.len(),
            wall=pl.when(pl.col("wall").n_unique() == 1).then(pl.col("wall").first()),
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


def _segments(told: pl.DataFrame) -> tuple[PathSegment, ...]:
    """The longest stretches of one path with one cause and one name."""
    runs = (
        told.sort("start_ns")
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


def _slack(stretch: Stretch, names: Named, run: Run, count: int) -> tuple[OperationSlack, ...]:
    """How much longer operations of a name could take, those that bind least often and take most first."""
    starts, ends = run.start_ns, run.end_ns
    own = (stretch.played["rank_id"] == stretch.rank_id).to_numpy()
    rows: list[pl.DataFrame] = []
    name, cause = names.name, pl.Series(names.causes)[names.cause]
    for first, until in stretch.edges("typical").tolist():
        late_ns = latest_ends_ns(run, until)
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
