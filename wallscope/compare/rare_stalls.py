"""Rare stalls that one side has or has more of: they change the mean of all steps, not the typical step."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import polars as pl

from wallscope.compare.explanations import SLOW_STEPS
from wallscope.compare.typical_steps import deciding_steps, lengths_ns
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.comparison import Explanation
from wallscope.model.enums import Wall
from wallscope.model.profile import Profile
from wallscope.thresholds.steps import RARE_STALL_SHARE
from wallscope.trace.step_variation import find_stall_period, measure_rare_excess, select_longest
from wallscope.units import duration, percent

_AT = ["input", "step"]
_WORK = f"{Wall.COMPUTE}/"


@dataclass(frozen=True, slots=True)
class _Stalls:
    """What a cause takes on few steps of the runs of a side.

    `step_ns` is the time beyond its median as a mean over all steps, `share` the same as a share of all time.
    """

    step_ns: Fraction
    share: float
    stalled_count: int
    step_count: int
    period: int | None


@dataclass(frozen=True, slots=True)
class _RunStalls:
    """The same of one run, in ns."""

    total_ns: int
    stalled_count: int
    period: int | None


def add_rare_stalls(
    explanations: Sequence[Explanation], base: Sequence[Profile], head: Sequence[Profile]
) -> tuple[Explanation, ...]:
    """Return explanations with those by rare stalls.

    They replace the number of slow steps if they explain most of the change that slow steps make.
    """
    stalls = _explain_stalls(base, head)
    stalled_ns = abs(sum(one.delta_ns or 0 for one in stalls))
    kept = [one for one in explanations if one.code != SLOW_STEPS or 2 * stalled_ns < abs(one.delta_ns or 0)]
    return (*kept, *stalls)


def _explain_stalls(base: Sequence[Profile], head: Sequence[Profile]) -> tuple[Explanation, ...]:
    """Return the causes whose rare stalls differ by a material share of all time of base, the largest first.

    Steps that also compute more are other work and not stalled.
    """
    ours, theirs = _measure(base), _measure(head)
    none = _Stalls(Fraction(), 0.0, 0, sum(len(deciding_steps(one)) for one in base), None)
    lengths = [lengths_ns(deciding_steps(profile)) for profile in base]
    least_ns = RARE_STALL_SHARE * sum(int(own.sum()) for own in lengths) / max(sum(map(len, lengths)), 1)
    found = []
    for cause in sorted({*ours, *theirs}):
        before, after = ours.get(cause, none), theirs.get(cause, none)
        delta_ns = after.step_ns - before.step_ns
        if abs(delta_ns) >= least_ns:
            found.append(_explain(cause, before, after, round(delta_ns)))
    return tuple(sorted(found, key=lambda one: -abs(one.delta_ns or 0)))


def _explain(cause: str, base: _Stalls, head: _Stalls, delta_ns: int) -> Explanation:
    is_more = delta_ns > 0
    text = (
        f"Rare stalls for {describe_cause(cause)}: {_describe(base)} in base, {_describe(head)} in head."
        f" The mean step has {duration(abs(delta_ns))} {'more' if is_more else 'less'} of them"
    )
    return Explanation(f"rare-stalls-{'more' if is_more else 'fewer'}", text, delta_ns, (cause,))


def _describe(side: _Stalls) -> str:
    if not side.stalled_count:
        return "none"
    often = "" if side.period is None else f", every {side.period} steps"
    return f"{side.stalled_count} of {side.step_count} steps ({percent(side.share)} of all time{often})"


def _measure(profiles: Sequence[Profile]) -> dict[str, _Stalls]:
    """Return the rare stalls of each cause over all steps that decide, each run by its own medians."""
    stalls: dict[str, list[_RunStalls]] = {}
    all_ns = count = 0
    for profile in profiles:
        steps = deciding_steps(profile)
        all_ns, count = all_ns + int(lengths_ns(steps).sum()), count + len(steps)
        for cause, own in _measure_run(profile, steps).items():
            stalls.setdefault(cause, []).append(own)
    found = {}
    for cause, runs in stalls.items():
        total_ns, stalled = sum(run.total_ns for run in runs), sum(run.stalled_count for run in runs)
        periods = {run.period for run in runs}
        period = periods.pop() if len(periods) == 1 else None
        found[cause] = _Stalls(Fraction(total_ns, count), total_ns / all_ns, stalled, count, period)
    return found


def _measure_run(profile: Profile, steps: pl.DataFrame) -> dict[str, _RunStalls]:
    length_ns, number = lengths_ns(steps), steps["step"].to_numpy().astype(np.int64)
    sums = profile.owned.group_by("cause", *_AT).agg(pl.col("owned_ns").sum())
    excess_of = {}
    for (cause,), own in sorted(sums.partition_by("cause", as_dict=True, include_key=False).items()):
        time_ns = steps.join(own, on=_AT, how="left", maintain_order="left")["owned_ns"].fill_null(0)
        excess_ns = measure_rare_excess(time_ns.to_numpy(), length_ns)
        if excess_ns.any():
            excess_of[str(cause)] = excess_ns
    works_more = np.zeros(len(steps), np.bool_)
    for cause, excess_ns in excess_of.items():
        works_more |= cause.startswith(_WORK) & (excess_ns > 0)
    found = {}
    for cause, excess_ns in excess_of.items():
        rows = np.flatnonzero(np.where(works_more, 0, excess_ns))
        if rows.size and not cause.startswith(_WORK):
            period = find_stall_period(number[select_longest(excess_ns, rows)])
            found[cause] = _RunStalls(int(excess_ns[rows].sum()), rows.size, period)
    return found
