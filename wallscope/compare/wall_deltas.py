"""How walls, causes and communication by axis changed, each with its interval; which changes are significant.

Each interval covers one wall or cause. Of thirty intervals, one or two exclude 0 by chance. The procedure of
Benjamini and Hochberg (1995) therefore decides which changes are significant, for all causes together.
Without a change, it calls any of them significant in at most 5 % of comparisons.

Operations and axes get theirs in the same way. The times of each run come from its profile, step by step.
What runs differ by is taken from these runs, from records of the cause or wall that an operation belongs
to, or from the assumption about it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Flags
from wallscope.compare.confidence import Floats, spread_of_all_steps, spread_of_steps
from wallscope.compare.grades import Measured, StepClaim, grade_part
from wallscope.compare.run_noise import (
    Assumed,
    Difference,
    Runs,
    measure_difference,
    measure_pairs,
    pool_records,
    stack_runs,
)
from wallscope.compare.typical_steps import (
    Key,
    OperationWork,
    TypicalStep,
    deciding_steps,
    lengths_ns,
    total_work,
)
from wallscope.model.cause_catalogue import find_wall
from wallscope.model.comparison import (
    CauseDelta,
    CommunicationChange,
    NoiseSource,
    OperationChange,
    OperationDelta,
    WallDelta,
)
from wallscope.model.enums import Axis, Grade, Wall
from wallscope.model.profile import OPERATION_KEYS, Profile, RecordedNoise
from wallscope.records import dataclass
from wallscope.thresholds.noise import (
    ASSUMED_NOISE_RATIO,
    ASSUMED_OFF_SHARE,
    ENOUGH_STEPS_OF_RUN_COUNT,
    FEWEST_DEGREES_OF_NOISE_COUNT,
)
from wallscope.thresholds.verdict import CONFIDENCE_SHARE, SURE_CHANCE_SHARE

STEP = "step"


def name_columns(causes: Sequence[str]) -> list[str]:
    """Return the names of the columns of noise: the step, the walls, the causes."""
    return [STEP, *map(str, Wall), *causes]


def assume_noise(
    names: Sequence[str], distance: float = 0.0, steps: int = ENOUGH_STEPS_OF_RUN_COUNT
) -> Floats:
    """Return what is assumed of the noise of each column where too little is known, relative.

    `distance` is that between levels of steps: runs at either level differ by as much. `steps` is how many
    the shortest run has.
    """
    off_share = ASSUMED_OFF_SHARE * sqrt(max(ENOUGH_STEPS_OF_RUN_COUNT / max(steps, 1), 1.0))
    close, least = {STEP, str(Wall.COMPUTE)}, max(off_share / sqrt(3), distance / 2)
    return np.array(
        [least if name.partition("/")[0] in close else max(ASSUMED_NOISE_RATIO, least) for name in names]
    )


def find_significant(chance: Floats, share: float = 1 - CONFIDENCE_SHARE) -> Flags:
    """Return which of several tests are significant together, at so large a share of false discoveries.

    >>> find_significant(np.array([0.04, 0.001, 0.5])).tolist()
    [False, True, False]
    """
    order = np.argsort(chance, kind="stable")
    limits = share * np.arange(1, chance.size + 1) / max(chance.size, 1)
    below = np.flatnonzero(chance[order] <= limits)
    found = np.zeros(chance.size, np.bool_)
    found[order[: below[-1] + 1 if below.size else 0]] = True
    return found


def find_sure(difference: Difference) -> Flags:
    """Return which columns changed surely: the step by itself, walls and the others each among themselves.

    Noise of few degrees of freedom is small by chance for many columns at once, and makes nothing sure.
    """
    chance, walls = difference.chance(), 1 + len(Wall)
    groups = (chance[:1], chance[1:walls], chance[walls:])
    found = np.concatenate([find_significant(group, SURE_CHANCE_SHARE) for group in groups])
    sure: Flags = found & (difference.noise_freedom >= FEWEST_DEGREES_OF_NOISE_COUNT)
    return sure


class _Column(NamedTuple):
    """The interval, significance and noise of one column; nothing of one capture, which equals itself."""

    half: float | None = None
    steps_half: float | None = None
    is_significant: bool = False
    noise: float | None = None
    source: NoiseSource | None = None
    is_sure: bool = False

    def grade(self, delta_ns: int, step: StepClaim) -> Grade | None:
        """Return how certain its change is."""
        if self.half is None or not delta_ns:
            return None
        found = Measured(delta_ns, self.half, self.is_significant, self.is_sure, self.source == "assumed")
        return grade_part(found, step)


def _bound_delta(delta_ns: int, half: float | None) -> tuple[int | None, int | None]:
    """Return the interval around a change, without ends where it is unknown."""
    if half is None:
        return 0, 0
    return (delta_ns - round(half), delta_ns + round(half)) if np.isfinite(half) else (None, None)


def compare_walls(
    base: TypicalStep,
    head: TypicalStep,
    difference: Difference | None,
    causes: Sequence[str],
    step: StepClaim,
) -> tuple[tuple[WallDelta, ...], tuple[CauseDelta, ...]]:
    """Return how all walls changed, and the causes that did; `difference` is `None` for one capture."""
    count = len(Wall) + len(causes)
    columns = [_Column()] * count if difference is None else _list_columns(difference, step.most_runs)
    walls, listed = [], []
    for wall, column in zip(Wall, columns, strict=False):
        base_ns, head_ns = base.walls[wall], head.walls[wall]
        delta_ns = head_ns - base_ns
        walls.append(
            WallDelta(
                wall,
                base_ns,
                head_ns,
                delta_ns,
                *_bound_delta(delta_ns, column.half),
                *(_bound_delta(delta_ns, column.steps_half) if step.most_runs == 1 else (None, None)),
                significant=column.is_significant and delta_ns != 0,
                run_noise=column.noise,
                run_noise_source=column.source,
                grade=column.grade(delta_ns, step),
            )
        )
    for cause, column in zip(causes, columns[len(Wall) :], strict=True):
        base_ns, head_ns = base.causes.get(cause, 0), head.causes.get(cause, 0)
        if delta_ns := head_ns - base_ns:
            listed.append(
                CauseDelta(
                    find_wall(cause),
                    cause,
                    base_ns,
                    head_ns,
                    delta_ns,
                    *_bound_delta(delta_ns, column.half),
                    significant=column.is_significant,
                    run_noise=column.noise,
                    run_noise_source=column.source,
                    grade=column.grade(delta_ns, step),
                )
            )
    return tuple(walls), tuple(sorted(listed, key=lambda row: (-abs(row.delta_ns), row.cause)))


def _list_columns(difference: Difference, most_runs: int) -> list[_Column]:
    """Return the columns of walls and causes; the first of the difference is that of the step."""
    chance = difference.chance()[1:]
    measured: NoiseSource = "runs" if most_runs > 1 else "recorded"
    columns = zip(
        difference.half()[1:].tolist(),
        difference.steps_half()[1:].tolist(),
        [*find_significant(chance[: len(Wall)]).tolist(), *find_significant(chance[len(Wall) :]).tolist()],
        difference.noise[1:].tolist(),
        ["assumed" if assumed else measured for assumed in difference.is_assumed[1:].tolist()],
        find_sure(difference)[1:].tolist(),
        strict=True,
    )
    return [_Column(*column) for column in columns]


Row = TypeVar("Row", OperationDelta, OperationChange, CommunicationChange)
Part = tuple[str, Key]
"""A cause, and an operation that time is attributed to by it."""


_KEY = [name for name in OPERATION_KEYS.names() if name != "key"]


@dataclass(frozen=True, slots=True)
class TracedRow(Generic[Row]):
    """A row of a comparison and the parts of both sides that it adds up; `name` is whose noise it has."""

    row: Row
    name: str
    parts: frozenset[Part]


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """The runs of both sides and what is known of others.

    Attributes:
        base: profiles of one side, one for each run.
        head: profiles of the other side.
        scales: what times of each side are multiplied by.
        known: what records of each side know of other runs.
        steps: of the shortest run.
        distance: between levels of steps, as a logarithm.
        short: standard deviation of what runs as short as that one are off by.
        bias: how much longer the warm-up may make one side, as a logarithm.
        is_paired: whether the runs of both sides belong together in their order.
        of_all: whether the mean of all steps is compared, not the typical step.
    """

    base: Sequence[Profile]
    head: Sequence[Profile]
    scales: tuple[float, float]
    known: tuple[RecordedNoise | None, ...]
    steps: int
    distance: float
    short: float
    bias: float
    is_paired: bool
    of_all: bool = False

    def measure(self, names: Sequence[str], base: Runs, head: Runs) -> Difference:
        """Measure how sure the difference of columns of these names is."""
        assumed = Assumed(assume_noise(names, self.distance, self.steps), self.short, self.bias)
        if self.is_paired:
            return measure_pairs(base, head, assumed, self.scales)
        return measure_difference(base, head, pool_records(self.known, names), assumed, self.scales)

    def add_intervals(self, traced: Sequence[TracedRow[Row]], step: StepClaim) -> tuple[Row, ...]:
        """Return the rows with the interval and grade of each, and whether it is significant among all."""
        if not traced:
            return ()
        names = [STEP, *(one.name for one in traced)]
        columns_of: dict[Part, list[int]] = defaultdict(list)
        for column, one in enumerate(traced):
            for part in one.parts:
                columns_of[part].append(column)
        base, head = (
            _measure_runs(profiles, columns_of, len(traced), of_all=self.of_all)
            for profiles in (self.base, self.head)
        )
        found = self.measure(names, base, head)
        chance = found.chance()[1:]
        is_measured = found.noise_freedom[1:] >= FEWEST_DEGREES_OF_NOISE_COUNT
        columns = zip(
            found.half()[1:].tolist(),
            find_significant(chance).tolist(),
            (find_significant(chance, SURE_CHANCE_SHARE) & is_measured).tolist(),
            found.is_assumed[1:].tolist(),
            strict=True,
        )
        rows = []
        for one, (half, is_significant, is_sure, is_assumed) in zip(traced, columns, strict=True):
            delta_ns = one.row.delta_ns
            low, high = _bound_delta(delta_ns, half)
            claim = Measured(delta_ns, half, is_significant, is_sure, is_assumed)
            rows.append(
                replace(
                    one.row,
                    low_ns=low,
                    high_ns=high,
                    significant=is_significant and delta_ns != 0,
                    grade=grade_part(claim, step) if delta_ns else None,
                )
            )
        return tuple(rows)


def _measure_runs(
    profiles: Sequence[Profile], columns_of: dict[Part, list[int]], count: int, *, of_all: bool
) -> Runs:
    measure = spread_of_all_steps if of_all else spread_of_steps
    steps = [deciding_steps(profile) for profile in profiles]
    spreads = [
        measure(lengths_ns(chosen), _tabulate_step_walls_of_side(profile, chosen, columns_of, count))
        for profile, chosen in zip(profiles, steps, strict=True)
    ]
    return stack_runs(spreads, [len(chosen) for chosen in steps])


def _tabulate_step_walls_of_side(
    profile: Profile, steps: pl.DataFrame, columns_of: dict[Part, list[int]], count: int
) -> npt.NDArray[np.int64]:
    """Return the time of each column in each step, int64 ns; one row for each step."""
    key_of = {Key(*values): key for key, *values in profile.keys.select("key", *_KEY).iter_rows()}
    pairs = [
        (cause, key_of[key], column)
        for (cause, key), columns in columns_of.items()
        if key in key_of
        for column in columns
    ]
    found = np.zeros((len(steps), count), np.int64)
    wanted = pl.DataFrame(
        pairs, schema={"cause": pl.String, "key": pl.UInt32, "column": pl.Int64}, orient="row"
    )
    rows = steps.select("input", "step").with_row_index("row")
    sums = (
        profile.owned.join(rows, on=["input", "step"])
        .join(wanted, on=["cause", "key"])
        .group_by("row", "column")
        .agg(pl.col("owned_ns").sum())
    )
    found[sums["row"].to_numpy(), sums["column"].to_numpy()] = sums["owned_ns"].to_numpy()
    return found


def communication_changes(base: TypicalStep, head: TypicalStep) -> tuple[TracedRow[CommunicationChange], ...]:
    """Return a row an axis that either side has, in the order of the axes."""
    found = []
    for axis in Axis:
        if _list_work_of_axis(base, axis) or _list_work_of_axis(head, axis):
            prefix = f"communication/{axis}/"
            owned = frozenset(part for part in (*base.owned, *head.owned) if part[0].startswith(prefix))
            found.append(TracedRow(_change_of(axis, base, head), str(Wall.COMMUNICATION), owned))
    return tuple(found)


def _list_work_of_axis(step: TypicalStep, axis: Axis) -> list[OperationWork]:
    return [ran for key, ran in step.ran.items() if key.axis == axis]


def _change_of(axis: Axis, base: TypicalStep, head: TypicalStep) -> CommunicationChange:
    ours, theirs = total_work(_list_work_of_axis(base, axis)), total_work(_list_work_of_axis(head, axis))
    waits = [_sum_causes_of_side(step, f"communication/{axis}/peer-wait") for step in (base, head)]
    owned = [_sum_causes_of_side(step, f"communication/{axis}/") for step in (base, head)]
    return CommunicationChange(
        axis=axis,
        base_count=float(ours.count),
        head_count=float(theirs.count),
        base_bytes=None if ours.bytes is None else round(ours.bytes),
        head_bytes=None if theirs.bytes is None else round(theirs.bytes),
        base_work_ns=round(ours.work_ns),
        head_work_ns=round(theirs.work_ns),
        base_exposed_ns=round(ours.exposed_ns or 0),
        head_exposed_ns=round(theirs.exposed_ns or 0),
        base_hidden_share=_hidden(ours),
        head_hidden_share=_hidden(theirs),
        peer_wait_delta_ns=waits[1] - waits[0],
        delta_ns=owned[1] - owned[0],
    )


def _hidden(ran: OperationWork) -> float | None:
    if not ran.work_ns or ran.exposed_ns is None:
        return None
    return float(1 - ran.exposed_ns / ran.work_ns)


def _sum_causes_of_side(step: TypicalStep, prefix: str) -> int:
    return sum(ns for cause, ns in step.causes.items() if cause.startswith(prefix))
