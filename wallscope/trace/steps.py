"""Which windows count as steady, and why the others do not.

The stream of a rank that carries most compute: steps are cut where it begins their work.

Which steps are of ordinary length: those that make the typical step.

The windows of each rank: from the first compute kernel of a step to the first of the next.

Ranges on the host end before their work does, so windows are cut on the device: window i begins with
the first compute kernel or opaque graph that was issued inside anchor range i, on the stream that
carries most compute. Windows tile the capture from the first step on; the last ends with the rank's
last operation.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from wallscope.columns import Rows, filled
from wallscope.cores import side_by_side
from wallscope.errors import StepRangeError
from wallscope.grouping import by_rank, runs
from wallscope.model.analysis import AnchorKind, AnchorUnit
from wallscope.model.frames import STEPS
from wallscope.model.selection import FOREVER_NS
from wallscope.thresholds import (
    FEWEST_BETWEEN_UPDATES_COUNT,
    FEWEST_UPDATES_COUNT,
    SHORTEST_GRAPH_UNIT_COUNT,
    SHORTEST_UNIT_COUNT,
)
from wallscope.trace.main_stream import MainStream, first_rows, main_stream
from wallscope.trace.repeat_unit import Period, period
from wallscope.trace.steadiness import Host, judged
from wallscope.trace.step_markers import named_anchors, that_may_mark

_WHOLE: Final = "whole-trace"
NO_STEP = "the whole capture, not a step"


@dataclass(frozen=True, slots=True)
class Division:
    """How a capture was divided: kind of anchor, unit, name of the anchor, windows (`STEPS`).

    `kind`, `name`, `steps` and `check` speak of the busiest rank, the one with most kernels: `steps` is how
    many windows it has, `check` how many the kernel sequence gives it beside another anchor, if it gives
    any. `unmarked` are the ids of the ranks that lack the anchor: all they did is one window.
    """

    kind: AnchorKind
    unit: AnchorUnit
    name: str | None
    windows: pl.DataFrame
    busiest: MainStream
    steps: int
    check: int | None
    unmarked: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Cut:
    """Rows of each rank's main stream at which windows begin, and by what."""

    kind: AnchorKind
    unit: AnchorUnit
    name: str | None
    rows: dict[int, Rows]


def divided(
    operations: pl.DataFrame, ranks: pl.DataFrame, host: Host, ranges: pl.DataFrame, pattern: str | None
) -> Division:
    """Windows of all ranks, by the first kind of anchor that gives the busiest rank two windows or more.

    A rank that lacks this anchor, and all ranks where there is none, have one window: all they did. The
    user's own pattern may find a single step, and ranges of other names in another rank.

    Args:
        operations: `CLASSIFIED`.
        ranks: `RANKS`.
        host: calls and threads.
        ranges: `NESTED` with the columns `process`, `text` and `folded`.
        pattern: the user's pattern for the ranges that are steps; `None` looks for known ones.

    Raises:
        StepRangeError: the ranges that the pattern finds issued no work.
    """
    of_ranks = by_rank(operations)
    mains = side_by_side(
        lambda rank: main_stream(of_ranks[rank[0]], rank[1], host), ranks["rank_id", "process"].iter_rows()
    )
    busiest = max(mains, key=lambda main: (len(main.rows), -main.rank_id))
    unit = _repeating(busiest)
    cut = next(
        (found for found in _by_ranges(mains, busiest, ranges, pattern) if _is_enough(found, busiest)), None
    )
    if cut is None and pattern is not None:
        raise StepRangeError(
            f"--step-range {pattern!r} — its ranges issued no work of the main stream — name ranges around"
            " kernel launches"
        )
    if cut is None:
        nothing_found = _Cut(_WHOLE, "window", None, {})
        unmarked = _unmarked(mains, busiest, unit)
        cut = next((found for found in unmarked if _is_enough(found, busiest)), nothing_found)
    nothing = np.empty(0, np.int64)
    windows = {
        main.rank_id: _windows(main, cut.rows.get(main.rank_id, nothing), of_ranks[main.rank_id], host)
        for main in mains
    }
    check = None if unit is None or cut.kind in {_WHOLE, "kernel-sequence"} else len(unit.starts)
    lacking = {main.rank_id for main in mains if not cut.rows.get(main.rank_id, nothing).size}
    return Division(
        kind=cut.kind,
        unit=cut.unit,
        name=cut.name,
        windows=pl.concat([STEPS.to_frame(), *windows.values()]),
        busiest=busiest,
        steps=len(windows[busiest.rank_id]),
        check=check,
        unmarked=frozenset() if cut.kind == _WHOLE else frozenset(lacking),
    )


def _is_enough(cut: _Cut, busiest: MainStream) -> bool:
    return len(cut.rows[busiest.rank_id]) >= (1 if cut.kind == "user" else 2)


def _by_ranges(
    mains: Sequence[MainStream], busiest: MainStream, ranges: pl.DataFrame, pattern: str | None
) -> Iterator[_Cut]:
    """Cuts by the anchors of the busiest rank, each with what the others have of that name.

    What the user's pattern finds needs no like name; ranges of several names are called by the pattern.
    """
    ranges = that_may_mark(ranges, pattern)
    rows = dict(runs(filled(ranges["process"])))  # threads are numbered process by process
    of_process = {main.process: ranges[rows.get(main.process, slice(0))] for main in mains}
    for chosen in named_anchors(of_process[busiest.process], pattern):
        begins, names = {}, {chosen.name}
        for main in mains:
            same = (
                own
                for own in named_anchors(of_process[main.process], pattern)
                if pattern is not None or own.name == chosen.name
            )
            own = chosen if main.process == busiest.process else next(same, None)
            if own is not None:
                begins[main.rank_id] = first_rows(main, own)
                names.add(own.name)
        yield _Cut(chosen.kind, "step", chosen.name if len(names) == 1 else pattern, begins)


def _unmarked(mains: Sequence[MainStream], busiest: MainStream, unit: Period | None) -> Iterator[_Cut]:
    """Cuts without ranges; `unit` is that of the busiest rank."""
    yield _by_optimizer(mains)
    if unit is not None:
        yield _by_sequence(mains, busiest, unit)


def _by_optimizer(mains: Sequence[MainStream]) -> _Cut:
    """Steps that begin behind a burst of optimizer kernels."""
    return _Cut("optimizer", "step", None, {main.rank_id: _behind_updates(main) for main in mains})


def _behind_updates(main: MainStream) -> Rows:
    """Row behind each burst: several optimizer kernels, with many others before the next ones."""
    updates = np.flatnonzero(main.rows["updates"].to_numpy())
    if updates.size == 0:
        return updates
    ends = np.append(np.flatnonzero(np.diff(updates) > FEWEST_BETWEEN_UPDATES_COUNT), updates.size - 1)
    kernels = np.diff(ends, prepend=-1)
    behind: Rows = updates[ends[kernels >= FEWEST_UPDATES_COUNT]] + 1
    return np.extract(behind < len(main.rows), behind)


def _by_sequence(mains: Sequence[MainStream], busiest: MainStream, unit: Period) -> _Cut:
    """Steps or windows that begin where the unit of the busiest rank does, and those of the others."""
    units = side_by_side(lambda main: unit if main is busiest else _repeating(main), mains)
    is_step = unit.is_layered or busiest.has_graphs
    rows = {main.rank_id: own.starts for main, own in zip(mains, units, strict=True) if own is not None}
    return _Cut("kernel-sequence", "step" if is_step else "window", None, rows)


def _repeating(main: MainStream) -> Period | None:
    """The unit of the kernel sequence of the main stream."""
    start_ns, end_ns = main.rows["start_ns"].to_numpy(), main.rows["end_ns"].to_numpy()
    if start_ns.size == 0:
        return None
    gap_ns = np.concatenate(([0], np.maximum(start_ns[1:] - end_ns[:-1], 0)))
    shortest = SHORTEST_GRAPH_UNIT_COUNT if main.has_graphs else SHORTEST_UNIT_COUNT
    return period(main.rows["symbol"].to_numpy(), gap_ns, shortest)


def _windows(main: MainStream, rows: Rows, own: pl.DataFrame, host: Host) -> pl.DataFrame:
    if rows.size == 0:
        whole = own.select(
            "rank_id", pl.lit(0, pl.UInt32).alias("step"), pl.col("start_ns").min(), end_ns=main.last_ns
        )
        window = whole.head(1).with_columns(
            issue_start_ns=-FOREVER_NS,
            issue_end_ns=FOREVER_NS,
            steady=pl.lit(False),
            reason=pl.lit(NO_STEP),
        )
        return window.select(STEPS.names()).cast(STEPS)
    start_ns = np.sort(main.rows["start_ns"].to_numpy()[rows])
    issue_ns = main.rows["issue_ns"].to_numpy()[rows]
    hosted = pl.DataFrame(
        {
            "rank_id": np.full(rows.size, main.rank_id, np.uint32),
            "step": np.arange(rows.size, dtype=np.uint32),
            "start_ns": start_ns,
            "end_ns": np.append(start_ns[1:], main.last_ns),
            "issue_start_ns": issue_ns,
            "issue_end_ns": np.append(issue_ns[1:], FOREVER_NS),
        },
        schema={name: STEPS[name] for name in STEPS.names()[:6]},
    )
    return judged(hosted, main.process, host)
