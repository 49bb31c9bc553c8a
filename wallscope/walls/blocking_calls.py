"""Blocking calls that left a rank without work in its typical step: which, how often, where, at what cost."""

from collections.abc import Iterator
from typing import get_args

import numpy as np
import polars as pl

from wallscope.model.host import BlockingCall, RepeatedUnit
from wallscope.timeline.inheritance import of_the_one_that_waits
from wallscope.timeline.nesting import Rows
from wallscope.timeline.paths import path_texts
from wallscope.timeline.spans import inside
from wallscope.walls.attribution import Evidence
from wallscope.walls.drained import Drained
from wallscope.walls.host import DRAINED, HostActivity
from wallscope.walls.typical import TypicalWork


def blocking_calls(
    drained: Drained, slices: pl.DataFrame, work: TypicalWork, evidence: Evidence
) -> tuple[BlockingCall, ...]:
    """The calls of each name, those behind which most time was lost first.

    `slices` (`SLICES`) are those of the steps of `work`. A call whose time is lost in a step may have
    ended before it.
    """
    made = _in_steps(drained, work, evidence)
    owned = (
        slices.filter(pl.col("cause").str.starts_with(f"{DRAINED}/"))
        .group_by(text=pl.col("cause").str.strip_prefix(f"{DRAINED}/"))
        .agg(drained_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    )
    totals = (
        made.group_by("text")
        .agg(pl.len(), waited_ns=pl.col("waited_ns").sum())
        .join(owned, on="text", how="full", coalesce=True)
        .fill_null(0)
        .sort("drained_ns", "waited_ns", "text", descending=[True, True, False])
    )
    units = dict(_units(made, work, evidence.activity))
    paths = _commonest_paths(made, evidence.activity)
    found = []
    for text, count, waited_ns, drained_ns in totals.iter_rows():
        unit, per_unit = units.get(text, (None, None))
        found.append(
            BlockingCall(
                name=text,
                count=count / work.steps.start_ns.size,
                unit=unit,
                per_unit=per_unit,
                waited_ns=work.mean(waited_ns),
                drained_ns=work.mean(drained_ns),
                path=paths.get(text),
            )
        )
    return tuple(found)


def _in_steps(drained: Drained, work: TypicalWork, evidence: Evidence) -> pl.DataFrame:
    """The calls that end in the steps: `thread`, `text`, `waited_ns` and the innermost `range` (-1: none).

    Of a runtime call and the driver call inside it the outer one counts.
    """
    calls = drained.draining()
    times = evidence.waits.calls
    start_ns, end_ns, thread = times.start_ns[calls], times.end_ns[calls], times.thread[calls]
    order = np.lexsort((-end_ns, start_ns, thread))
    calls, start_ns, end_ns, thread = calls[order], start_ns[order], end_ns[order], thread[order]
    is_outer = np.ones(calls.size, np.bool_)
    last = 0
    for row in range(1, calls.size):
        is_outer[row] = thread[row] != thread[last] or end_ns[row] > end_ns[last]
        last = row if is_outer[row] else last
    rows = np.flatnonzero(is_outer & inside(work.steps, end_ns))
    return pl.DataFrame(
        {
            "thread": thread[rows],
            "text": evidence.names_of_calls.gather(calls[rows]).cast(pl.String),
            "waited_ns": end_ns[rows] - start_ns[rows],
            "range": _ranges(thread[rows], start_ns[rows], evidence.activity),
        },
        schema={"thread": pl.Int64, "text": pl.String, "waited_ns": pl.Int64, "range": pl.Int64},
    )


def _ranges(thread: Rows, at_ns: Rows, activity: HostActivity) -> Rows:
    """The innermost range at moments of threads; of a thread without one, that of who waits for it."""
    found = np.full(thread.size, -1, np.int64)
    for one in np.unique(thread).tolist():
        rows = np.flatnonzero(thread == one)
        if one in activity.holders:
            found[rows] = activity.holders[one].open_range(at_ns[rows])
        alone = rows[found[rows] < 0]
        found[alone] = of_the_one_that_waits(activity.others(one), at_ns[alone])
    return found


def _commonest_paths(made: pl.DataFrame, activity: HostActivity) -> dict[str, str]:
    """The path that most calls of a name stand in, of equal ones the first."""
    path_of_range = activity.tree.select(pl.col("range").cast(pl.Int64), "path")
    commonest = (
        made.join(path_of_range, on="range")
        .group_by("text", "path")
        .agg(pl.len())
        .sort("text", "len", "path", descending=[False, True, False])
        .unique("text", keep="first", maintain_order=True)
    )
    written = path_texts(activity.paths, activity.path_names, commonest["path"])
    return dict(zip(commonest["text"], written, strict=True))


def _units(
    made: pl.DataFrame, work: TypicalWork, activity: HostActivity
) -> Iterator[tuple[str, tuple[RepeatedUnit, float]]]:
    """Each name half of whose calls lie in units, with the unit and the calls in one of them.

    Layers come before microbatches. Of units of several names the one that holds most of the calls counts;
    it has to repeat inside a step, and every other one has to hold a call.
    """
    tree = activity.tree
    begins = inside(work.issued, tree["start_ns"].to_numpy())
    told: set[str] = set()
    for unit in reversed(get_args(RepeatedUnit)):
        outer = activity.outermost_units[unit]
        names = tree["folded"].gather(outer.clip(0))
        is_counted = pl.Series(begins & (outer == np.arange(outer.size)), dtype=pl.Boolean)
        counts = dict(names.filter(is_counted).value_counts().iter_rows())
        held = made.filter(pl.col("range") >= 0)
        held = held.filter(pl.Series(outer[held["range"].to_numpy()] >= 0, dtype=pl.Boolean))
        named = held.with_columns(unit=names.gather(held["range"]))
        for (text,), own in named.partition_by("text", as_dict=True, maintain_order=True).items():
            name, count = own.group_by("unit").len().sort("len", "unit").row(-1)
            all_of_name = int((made["text"] == text).sum())
            instances = counts.get(name, 0)
            repeats = work.steps.start_ns.size < instances <= 2 * count
            if repeats and 2 * count >= all_of_name and text not in told:
                told.add(text)
                yield text, (unit, count / instances)
