"""How often pairs of runs, few records, numbers of further runs and bisections hold, with published seeds.

    python -m benchmarks.further_runs --pairs 4000 --write docs/diff.md

Runs differ by a known noise and by nothing else; their own steps leave little open.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log, log1p, sqrt
from pathlib import Path

import numpy as np

from benchmarks.diff_tables import Rate, Setting
from benchmarks.marks import put
from benchmarks.noise_laws import Floats
from wallscope.compare.change_points import bisect_times
from wallscope.compare.compare import decide_verdict
from wallscope.compare.confidence import normal_quantile
from wallscope.compare.run_noise import (
    Assumed,
    Difference,
    Recorded,
    Runs,
    count_runs_to_decide,
    measure_difference,
    measure_pairs,
)
from wallscope.compare.wall_deltas import STEP, assume_noise
from wallscope.model.profile import Noise
from wallscope.thresholds.verdict import CONFIDENCE_SHARE, MARGIN_NS, MARGIN_SHARE

SEED = 20_261_125
STEPS, STEP_NS, RUN_NOISE = 20, 100_000_000, 0.01
MARGIN = log1p(MARGIN_SHARE)
_NO_RECORDS = Recorded(np.zeros(1), np.zeros(1))


def draw_side(
    random: np.random.Generator,
    shape: tuple[int, int],
    noise: float,
    off: Floats | float = 0.0,
    error: float = 1e-4,
) -> Runs:
    """Draw runs of one side (pairs, runs) that differ by so much, and all are off by what is given.

    `error` is what the steps of a run leave open of its mean; it is part of what runs differ by.
    """
    mean = (noise * random.standard_normal(shape) + off)[..., None]
    return Runs(mean, np.full_like(mean, error), np.full(shape, STEPS - 1.0), np.full(shape, float(STEPS)))


def tabulate_pairs(count: int) -> Iterator[str]:
    """Compare runs in pairs, and the same runs singly, on a machine that drifts."""
    yield (
        "| pairs | drift between pairs | coverage | false verdict | +5 % found |"
        " +5 % found without `--paired` |"
    )
    yield "|---:|---:|---:|---:|---:|---:|"
    for runs in (2, 3, 5, 8):
        for drift in (0.0, 0.03):
            random = np.random.default_rng([SEED, runs, round(1000 * drift)])
            off = drift * random.standard_normal((count, runs))
            base, head = (draw_side(random, (count, runs), RUN_NOISE, off) for _ in range(2))
            assumed = Assumed(assume_noise([STEP]))
            paired = measure_pairs(base, head, assumed)
            singly = measure_difference(base, head, _NO_RECORDS, assumed)
            held = (np.abs(paired.change) <= paired.half()).astype(np.float64)
            cells = [
                _write(held[:, 0]),
                _write(_is_slower(paired, 0.0)),
                _write(_is_slower(paired, log(1.05))),
                _write(_is_slower(singly, log(1.05))),
            ]
            yield f"| {runs} | {100 * drift:.0f} % | {' | '.join(cells)} |"


def _is_slower(found: Difference, more: float) -> Floats:
    change = found.change[:, 0] + more
    return (change > np.maximum(found.half()[:, 0], MARGIN)).astype(np.float64)


SPREADS, RECORDED_RUNS = (0.003, 0.01, 0.03, 0.1), (2, 3, 4, 5, 8)
STEPS_ERROR = 0.001


def tabulate_recorded(count: int) -> Iterator[str]:
    """Compare one run a side, with the noise that few runs of one commit recorded."""
    yield (
        "| runs differ by | recorded runs | coverage | false verdict | decided |"
        " median half width | if the noise were known |"
    )
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    for spread in SPREADS:
        for runs in RECORDED_RUNS:
            random = np.random.default_rng([SEED, runs, round(1000 * spread)])
            base, head, records = (
                draw_side(random, (count, one), spread, error=STEPS_ERROR) for one in (1, 1, runs)
            )
            known = Recorded(*records.spread_between(), float(STEPS))
            found = measure_difference(base, head, known, Assumed(assume_noise([STEP])))
            half, change = found.half()[:, 0], found.change[:, 0]
            is_changed = np.abs(change) > np.maximum(half, MARGIN)
            is_decided = is_changed | (np.abs(change) + half < MARGIN)
            cells = [
                f"{100 * spread:g} %",
                str(runs),
                _write((np.abs(change) <= half).astype(np.float64)),
                _write(is_changed.astype(np.float64)),
                f"{100 * is_decided.mean():.0f} %",
                f"±{100 * float(np.median(half)):.1f} %",
                f"±{100 * normal_quantile((1 + CONFIDENCE_SHARE) / 2) * spread * sqrt(2):.1f} %",
            ]
            yield f"| {' | '.join(cells)} |"


def tabulate_further(count: int) -> Iterator[str]:
    """Count how often the stated number of runs decides, if the change is as large as it was measured."""
    yield "| runs per side | true change | a number is stated | median number | the number decides |"
    yield "|---|---:|---:|---:|---:|"
    for setting in (Setting(1), Setting(1, is_recorded=True), Setting(2, is_recorded=True), Setting(3)):
        for change in (0.0, 0.03):
            random = np.random.default_rng([SEED, setting.runs, setting.is_recorded, round(1000 * change)])
            found = [_decide_further(random, setting, log1p(change)) for _ in range(count)]
            stated = [one for one in found if one is not None]
            decided = _write([float(one.is_decided) for one in stated])
            middle = f"{np.median([one.runs for one in stated]):.0f}"
            share = _write([float(one is not None) for one in found])
            yield f"| {setting} | {100 * change:.0f} % | {share} | {middle} | {decided} |"


@dataclass(frozen=True, slots=True)
class _Further:
    """How many runs a side were said to decide, and whether as many do."""

    runs: int
    is_decided: bool


_RECORDED_RUNS = 10


def _decide_further(random: np.random.Generator, setting: Setting, change: float) -> _Further | None:
    known = _NO_RECORDS
    if setting.is_recorded:
        other = draw_side(random, (1, _RECORDED_RUNS), RUN_NOISE, 0.0)
        known = Recorded(*other.spread_between(), float(STEPS))
    first = _compare(random, setting.runs, change, known)
    seen = float(first.change[0, 0])
    if _is_decided(first):
        return None
    own = Difference(**{name: getattr(first, name)[0] for name in Difference.__dataclass_fields__})
    runs = count_runs_to_decide(own, float(known.freedom.flat[0]), setting.runs, seen, MARGIN)
    if runs is None:
        return None
    return _Further(runs, _is_decided(_compare(random, runs, seen, known)))


def _compare(random: np.random.Generator, runs: int, change: float, known: Recorded) -> Difference:
    base, head = (draw_side(random, (1, runs), RUN_NOISE, off) for off in (0.0, change))
    return measure_difference(base, head, known, Assumed(assume_noise([STEP])))


def _is_decided(found: Difference) -> bool:
    half = float(found.half()[0, 0])
    verdict = decide_verdict(float(found.change[0, 0]), half, STEP_NS, MARGIN, MARGIN_NS)
    return verdict != "inconclusive"


COMMITS, MOST_RECORDS = 33, 20


def tabulate_bisections(count: int) -> Iterator[str]:
    """Record what `bisect` proposes, one run each, until one commit is left."""
    yield (
        "| change | runs of GOOD and BAD | stated range contains the commit | one commit left |"
        " it is the right commit | further runs |"
    )
    yield "|---:|---:|---:|---:|---:|---:|"
    for change in (0.03, 0.05, 0.1):
        for ends in (1, 3):
            random = np.random.default_rng([SEED, ends, round(1000 * change)])
            found = [_bisect(random, change, ends) for _ in range(count)]
            held = [float(one) for run in found for one in run.held]
            left = [run for run in found if run.is_left]
            cells = [
                f"+{100 * change:.0f} %",
                str(ends),
                _write(held, count),
                _write([float(run.is_left) for run in found]),
                _write([float(run.held[-1]) for run in left]),
                f"{np.median([len(run.held) - 1 for run in left]):.0f}",
            ]
            yield f"| {' | '.join(cells)} |"


@dataclass(frozen=True, slots=True)
class _Bisected:
    """Whether the stated range held the commit after each record, and whether one commit was left."""

    held: tuple[bool, ...]
    is_left: bool


def _bisect(random: np.random.Generator, change: float, ends: int) -> _Bisected:
    place = int(random.integers(1, COMMITS))
    level = np.where(np.arange(COMMITS) >= place, 1 + change, 1.0)
    sums, runs = np.zeros(COMMITS), np.zeros(COMMITS)
    deviation = RUN_NOISE * float(np.sqrt(random.chisquare(_RECORDED_RUNS - 1) / (_RECORDED_RUNS - 1)))
    noise = Noise(deviation, _RECORDED_RUNS - 1.0)
    held: list[bool] = []
    wanted = [0, COMMITS - 1] * ends
    while len(held) <= MOST_RECORDS:
        for at in wanted:
            sums[at] += STEP_NS * level[at] * (1 + RUN_NOISE * random.standard_normal())
            runs[at] += 1
        times = np.where(runs > 0, sums / np.maximum(runs, 1), np.nan)
        found = bisect_times(times, runs, noise)
        held.append(found.first <= place <= found.last)
        if found.proposed is None:
            return _Bisected(tuple(held), is_left=True)
        wanted = [found.proposed]
    return _Bisected(tuple(held), is_left=False)


def _write(shares: Sequence[float] | Floats, count: int | None = None) -> str:
    """Write a share with its 95 % interval; `count` is how many of them are independent."""
    share = float(np.mean(shares))
    low, high = Rate("", (0, 0), Setting(1), "", 0.0, "", share, count or len(shares), is_known=True).interval
    return f"{100 * share:.1f} % ({100 * low:.1f} … {100 * high:.1f})"


_INTRODUCTION = (
    "Each row has {count:,} comparisons ({fewer:,} for further runs and bisections). Runs differ by"
    " {noise:.0f} % if nothing else is stated. Brackets contain 95 % intervals."
)


def tabulate(count: int) -> str:
    """Return the tables of the docs."""
    return "\n".join(
        [
            _INTRODUCTION.format(count=count, fewer=count // 4, noise=100 * RUN_NOISE),
            "",
            *tabulate_pairs(count),
            "",
            *tabulate_recorded(count),
            "",
            *tabulate_further(count // 4),
            "",
            *tabulate_bisections(count // 4),
            "",
        ]
    )


def main() -> None:
    """Print the tables, or write them into a page."""
    parser = argparse.ArgumentParser(description="How often pairs, further runs and bisections hold.")
    parser.add_argument("--pairs", type=int, default=4_000)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    found = tabulate(options.pairs)
    put(options.write, "further runs", found)


if __name__ == "__main__":
    main()
