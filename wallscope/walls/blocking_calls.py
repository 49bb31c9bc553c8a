"""Blocking calls that left a rank without work in its typical step: which, how often, where, at what cost."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

import numpy as np
import polars as pl

from wallscope.arrays.columns import Rows
from wallscope.arrays.groups import runs
from wallscope.model.host import BlockingCall, RepeatedUnit
from wallscope.timeline.call_spans import are_outer
from wallscope.timeline.paths import path_texts
from wallscope.timeline.spans import Times, inside
from wallscope.walls.attribution import Evidence
from wallscope.walls.drained import Drained
from wallscope.walls.host import DRAINED, HostActivity
from wallscope.walls.totals import Sums
from wallscope.walls.typical import TypicalWork


def blocking_calls(
    drained: Drained, sums: Sums, work: TypicalWork, evidence: Evidence
) -> tuple[BlockingCall, ...]:
    """The calls of each name, those behind which most time was lost first.

    `sums` are those of the slices of the steps of `work`. A call whose time is lost in a step may have
    ended before it.
    """
    made = _in_steps(drained, work, evidence)
    prefix = f"{DRAINED}/"
    drained_ns, waited_ns = Counter[str](), Counter[str]()
    for (_, cause), time_ns in sums.of_causes().items():
        if cause.startswith(prefix):
            drained_ns[cause.removeprefix(prefix)] += time_ns
    for text, time_ns in zip(made.texts, made.waited_ns.tolist(), strict=True):
        waited_ns[text] += time_ns
    counts = Counter(made.texts)
    units = dict(_units(made, work, evidence.activity))
    paths = _commonest_paths(made, evidence.activity)
    found = []
    for text in sorted({*drained_ns, *counts}, key=lambda text: (-drained_ns[text], -waited_ns[text], text)):
        unit, per_unit = units.get(text, (None, None))
        found.append(
            BlockingCall(
                name=text,
                count=counts[text] / work.steps.start_ns.size,
                unit=unit,
                per_unit=per_unit,
                waited_ns=work.mean(waited_ns[text]),
                drained_ns=work.mean(drained_ns[text]),
                path=paths.get(text),
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Made:
    """Blocking calls: the name of each, how long it waited, and the innermost range (-1: none)."""

    texts: list[str]
    waited_ns: Times
    range: Rows


def _in_steps(drained: Drained, work: TypicalWork, evidence: Evidence) -> _Made:
    """The calls that end in the steps.

    Of a runtime call and the driver call inside it the outer one counts.
    """
    calls = drained.draining()
    times = evidence.waits.calls
    start_ns, end_ns, thread = times.start_ns[calls], times.end_ns[calls], times.thread[calls]
    order = np.lexsort((-end_ns, start_ns, thread))
    calls, start_ns, end_ns, thread = calls[order], start_ns[order], end_ns[order], thread[order]
    is_outer = np.concatenate([np.empty(0, np.bool_), *(are_outer(end_ns[own]) for _, own in runs(thread))])
    rows = np.flatnonzero(is_outer & inside(work.steps, end_ns))
    return _Made(
        texts=drained.names(calls[rows]),
        waited_ns=end_ns[rows] - start_ns[rows],
        range=_ranges(thread[rows], start_ns[rows], evidence.activity),
    )


def _ranges(thread: Rows, at_ns: Rows, activity: HostActivity) -> Rows:
    """The innermost range at moments of threads; of a thread without one, that of who waits for it."""
    found = np.full(thread.size, -1, np.int64)
    for one, rows in runs(thread):
        found[rows] = activity.open_range(one, at_ns[rows])
    return found


def _commonest_paths(made: _Made, activity: HostActivity) -> dict[str, str]:
    """The path that most calls of a name stand in, of equal ones the first."""
    rows = np.flatnonzero(made.range >= 0)
    if rows.size == 0:
        return {}
    paths = activity.tree["path"].to_numpy()[made.range[rows]]
    counts = Counter((made.texts[row], path) for row, path in zip(rows.tolist(), paths.tolist(), strict=True))
    commonest: dict[str, int] = {}
    for text, path in sorted(counts, key=lambda key: (key[0], -counts[key], key[1])):
        commonest.setdefault(text, path)
    written = path_texts(activity.paths, activity.path_names, pl.Series(commonest.values(), dtype=pl.UInt32))
    return dict(zip(commonest, written, strict=True))


def _units(
    made: _Made, work: TypicalWork, activity: HostActivity
) -> Iterator[tuple[str, tuple[RepeatedUnit, float]]]:
    """Each name half of whose calls lie in units, with the unit and the calls in one of them.

    Layers come before microbatches. Of units of several names the one that holds most of the calls counts;
    it has to repeat inside a step, and every other one has to hold a call.
    """
    tree, label_of_path = activity.tree, activity.paths["name"].to_numpy()
    in_range = np.flatnonzero(made.range >= 0)
    told: set[str] = set()
    for unit in reversed(get_args(RepeatedUnit) if in_range.size else ()):
        outer = activity.outermost_units[unit]
        instances = np.flatnonzero(outer == np.arange(outer.size))
        begun = instances[inside(work.issued, tree["start_ns"].to_numpy()[instances])]
        path_of_range = tree["path"].to_numpy()
        counts = np.bincount(label_of_path[path_of_range[begun]], minlength=len(activity.path_names))
        rows = in_range[outer[made.range[in_range]] >= 0]
        labels = label_of_path[path_of_range[outer[made.range[rows]]]]  # in the order of their texts
        held: dict[str, Counter[int]] = {}
        for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
            held.setdefault(made.texts[row], Counter())[label] += 1
        for text, of_units in held.items():
            label, count = max(of_units.items(), key=lambda one: (one[1], one[0]))
            instances_of_it = int(counts[label])
            repeats = work.steps.start_ns.size < instances_of_it <= 2 * count
            if repeats and 2 * count >= made.texts.count(text) and text not in told:
                told.add(text)
                yield text, (unit, count / instances_of_it)
