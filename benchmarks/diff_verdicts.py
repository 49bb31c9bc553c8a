"""How often `wallscope diff` is wrong: simulated pairs of captures, with published seeds.

    python -m benchmarks.diff_verdicts --pairs 250 --jobs 2 --cells build/diff_cells.csv --write docs/diff.md

Both sides of each pair are drawn from the same law, and runs differ by a known share: the step as a whole,
or communication and host alone. What the comparison claims is counted: whether intervals hold no change,
whether the step is called slower, whether gates fail, whether any cause is called changed. The same arguments
give the same table.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import repeat
from math import log, log1p, sqrt
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt

from benchmarks.diff_tables import (
    SETTINGS,
    WRONG,
    Rate,
    Setting,
    choose_again,
    merge_rates,
    read_cells,
    summarize,
    tabulate_again,
    tabulate_power,
    write_cells,
    write_steps,
)
from benchmarks.marks import put
from benchmarks.noise_laws import ALL_LAWS, CAUSES, LAWS, STEP_NS, WALLS, Floats, draw_runs
from benchmarks.noise_laws import Noise as Law
from wallscope.compare.all_steps import (
    AllSteps,
    WarmUp,
    compare_all_steps,
    fit_warm_up,
    measure_all_steps,
    measure_bias,
    measure_slow_chance,
)
from wallscope.compare.confidence import Spread, log_first, measure_windows, spread_of_steps, typical_means
from wallscope.compare.run_noise import Assumed, Difference, Recorded, Runs, measure_difference, stack_runs
from wallscope.compare.step_levels import (
    RunLevels,
    SharedLevels,
    find_levels,
    find_shared_levels,
    measure_distance,
)
from wallscope.compare.wall_deltas import assume_noise, find_significant
from wallscope.model.profile import Noise
from wallscope.thresholds.noise import (
    ASSUMED_NOISE_RATIO,
    ASSUMED_OFF_SHARE,
    ENOUGH_STEPS_OF_RUN_COUNT,
    FEWEST_DEGREES_OF_NOISE_COUNT,
)
from wallscope.thresholds.verdict import SLOW_STEP_RATIO

SEED = 20_261_123
STEPS = (6, 7, 10, 20, 100)
STEPS_OF_CLAIMS = (6, 20, 100)
STEPS_OF_ALL = (10, 20, 100)
UNEQUAL_STEPS = (10, 100)
OFFSETS = (0.0, 0.01, 0.05, 0.10, 0.20)
WHOLE, EVENLY, PARTS = "the step", "the step, evenly", "communication and host"
RECORDED_RUNS = 10
MARGIN = log(1.02)
NAMES = ("step", *WALLS, *CAUSES)
ASSUMED = assume_noise(NAMES)
FIRST_CAUSE = 1 + len(WALLS)
WARMING = next(number for number, law in enumerate(LAWS) if law.name.startswith("warm-up"))
_STEP_SHARE = sqrt(0.25**2 + 0.12**2)
"""By which the step varies where communication and host do, of a law without stalls."""


_RESTING_STEPS = 20  # as long as two levels last in the mean
_FEW = 3  # runs a side, up to which errors by steps are measured


@dataclass(frozen=True, slots=True)
class _Library:
    """What a comparison knows of runs that differ by their steps alone."""

    mean: Floats
    error: Floats
    freedom: Floats
    levels: list[RunLevels]
    warm_ups: list[WarmUp]
    steps: Floats
    """How many of a run are compared."""
    length_ns: list[Floats]
    """Of each of these steps."""
    every: list[AllSteps]


def _measure(law: Law, random: np.random.Generator, runs: int, steps: int, needs: "_Needs") -> _Library:
    means, spreads, levels, warm_ups, lengths, every = [], [], [], [], [], []
    for done in range(0, runs, _BATCH):
        kept = []
        for run in np.round(draw_runs(law, random, min(_BATCH, runs - done), steps)).astype(np.int64):
            warm_up = fit_warm_up(run[:, 0])
            warm_ups.append(warm_up)
            kept.append(run[warm_up.left_out :])
        lengths += [run[:, 0].astype(np.float64) for run in kept]
        if not needs.errors:
            means.append(_average(kept))
            continue
        spreads += [spread_of_steps(run[:, 0], run[:, 1:]) for run in kept]
        levels += [find_levels(run[:, 0]) for run in kept]
        every += [measure_all_steps(run[:, 0]) for run in kept if needs.every]
    counts = np.array([one.size for one in lengths], np.float64)
    if not needs.errors:
        mean = log_first(np.concatenate(means))
        error, levels = np.full_like(mean, 1e-12), [RunLevels((), 0.0)] * runs
        return _Library(mean, error, np.ones(runs), levels, warm_ups, counts, lengths, every)
    found = stack_runs(spreads, counts.astype(int).tolist())
    return _Library(found.mean, found.error, found.freedom, levels, warm_ups, counts, lengths, every)


def _average(runs: Sequence[npt.NDArray[np.int64]]) -> Floats:
    """Return the typical step of each run; runs of equal length at once."""
    found = np.empty((len(runs), len(NAMES)))
    counts = np.array([len(run) for run in runs])
    for count in np.unique(counts):
        own = np.flatnonzero(counts == count)
        found[own] = typical_means(np.stack([runs[place] for place in own.tolist()]).astype(np.float64))
    return found


_BATCH = 500


@dataclass(frozen=True, slots=True)
class _Needs:
    """What is measured of runs: errors by their steps, and all steps."""

    errors: bool
    every: bool


_Chosen = Sequence[tuple[_Library, tuple[int, int]]]
"""Runs of each side, and how many pairs and runs a side are taken of them."""


def _lack(library: _Library, wall: str | None) -> _Library:
    """Return runs without a wall; the step keeps its length."""
    if wall is None:
        return library
    own = np.array([name == wall for name in NAMES])
    return replace(library, mean=np.where(own, 0.0, library.mean), error=np.where(own, 1e-12, library.error))


def vary_runs(
    library: _Library, shape: tuple[int, int], varies: str, offset: float, random: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """Return mean, error and freedom of runs whose times differ; the shape is pairs, runs."""
    count = shape[0] * shape[1]
    mean, error = (part[:count].reshape(*shape, -1).copy() for part in (library.mean, library.error))
    factor = np.ones_like(mean)
    if varies in {WHOLE, EVENLY}:
        drawn = random.standard_normal(shape) if varies == WHOLE else random.uniform(-1, 1, shape)
        factor[...] = np.exp(offset * drawn)[..., None]
        mean[..., 0] += np.log(factor[..., 0])
    else:
        for name in _PARTS:
            own = [place for place, one in enumerate(NAMES) if one == name]
            factor[..., own] = np.exp(offset * random.standard_normal(shape))[..., None]
        more = (mean * (factor - 1))[..., 1:FIRST_CAUSE].sum(axis=-1)
        mean[..., 0] = np.log(np.exp(mean[..., 0]) + more)
    mean[..., 1:] *= factor[..., 1:]
    error[..., 1:] *= factor[..., 1:]
    return mean, error, library.freedom[:count].reshape(shape)


def _assume(chosen: _Chosen, runs: Sequence[Runs]) -> Assumed:
    pairs = chosen[0][1][0]
    shared = [SharedLevels()] * pairs
    if sum(count for _, (_, count) in chosen) - 2 < FEWEST_DEGREES_OF_NOISE_COUNT:
        lengths = [_shift_lengths(side, own) for side, own in zip(chosen, runs, strict=True)]
        shared = [find_shared_levels(*pair) for pair in zip(*lengths, strict=True)]
    short, bias, noise = [], [], []
    for pair in range(pairs):
        own = [(one, slice(pair * count, (pair + 1) * count)) for one, (_, count) in chosen]
        steps = int(min(one.steps[place].min() for one, place in own))
        levels = [run for one, place in own for run in one.levels[place]]
        distance = measure_distance(levels, shared[pair], steps)
        windows = (measure_windows(run, steps) for one, place in own for run in one.length_ns[place])
        short.append(max(distance / 2, *windows))
        bias.append(measure_bias(*(one.warm_ups[place] for one, place in own)))
        noise.append(_assume_of(distance, steps))
    return Assumed(np.stack(noise), np.array(short), np.array(bias))


@lru_cache(maxsize=4_096)
def _assume_of(distance: float, steps: int) -> Floats:
    return assume_noise(NAMES, distance, steps)


def _shift_lengths(side: tuple[_Library, tuple[int, int]], runs: Runs) -> list[list[Floats]]:
    """Return the lengths of steps of the runs of each pair, with what these runs are off by."""
    library, (pairs, count) = side
    off = np.exp(runs.mean[..., 0] - library.mean[: pairs * count, 0].reshape(pairs, count))
    return [
        [library.length_ns[pair * count + run] * off[pair, run] for run in range(count)]
        for pair in range(pairs)
    ]


def _name_of(what: str) -> str:
    """Return the column that a rate is about."""
    name = what.rpartition(" ")[2].partition(">")[0]
    return name if name in NAMES else "step"


def _may_rest(law: Law, steps: int) -> bool:
    """Whether a run of so many steps may stay at one level, and levels are further apart than is assumed."""
    assumed = float(assume_noise(NAMES[:1], steps=steps)[0])
    return steps <= _RESTING_STEPS and law.distance / 2 > assumed


def _is_as_assumed(varies: str, offset: float, name: str) -> bool:
    """Whether runs differ by as much as is assumed of a column, and not by less."""
    is_near = name.partition("/")[0] in _NEAR
    return (
        is_near if varies == EVENLY else varies == PARTS and offset == ASSUMED_NOISE_RATIO and name in _PARTS
    )


_NEAR = {"step", "compute"}
_PARTS = ("communication", "host")


def _is_known(setting: Setting, varies: str, offset: float, name: str) -> bool:
    if setting.is_measured:
        return True
    if varies == EVENLY:
        return True
    if varies == WHOLE:
        return offset <= float(ASSUMED[NAMES.index(name)]) * 1.01
    own = offset * (_STEP_SHARE if name == "step" else float(name in _PARTS))
    return own <= float(ASSUMED[NAMES.index(name)]) * 1.01


Cell = tuple[Setting, str, float]
CELLS: tuple[Cell, ...] = tuple(
    (setting, varies, offset)
    for setting in SETTINGS
    for varies, offset in [
        *((WHOLE, one) for one in OFFSETS),
        (EVENLY, ASSUMED_OFF_SHARE),
        *((PARTS, one) for one in OFFSETS[2:]),
    ]
)


def count_claims(
    number: int, steps: tuple[int, int], pairs: int, cells: Sequence[Cell] = CELLS, seed: int = SEED
) -> list[Rate]:
    """Return all rates of cells of a law, by its number, and numbers of steps of base and head."""
    law = ALL_LAWS[number]
    random = np.random.default_rng([seed, crc32(f"{law.name}/{steps}".encode())])
    shown = [[setting.sides[side] for setting, _, _ in cells] for side in range(2)]
    few = [max((runs for runs in side if runs <= _FEW), default=0) for side in shown]
    of_all = any(max(setting.sides) <= _FEW and (varies, off) in _OF_ALL for setting, varies, off in cells)
    needs = _Needs(errors=True, every=of_all and set(steps) <= set(STEPS_OF_ALL))
    without = _Needs(errors=False, every=False)
    libraries = [
        [
            _measure(law, random, count * pairs, steps[side], need)
            for count, need in ((few[side], needs), (max(shown[side]), without))
            if count and (need.errors or count > _FEW)
        ]
        for side in range(2)
    ]
    libraries[0] = [_lack(one, law.missing) for one in libraries[0]]
    truth = np.where([name == law.missing for name in NAMES], libraries[1][-1].mean.mean(axis=0), 0.0)
    records = (
        _measure(law, random, RECORDED_RUNS * pairs, steps[1], without)
        if any(setting.is_recorded for setting, _, _ in cells)
        else None
    )
    found: list[Rate] = []
    shorter = sqrt(max(ENOUGH_STEPS_OF_RUN_COUNT / min(steps), 1.0))
    for setting, varies, nominal in cells:
        known, offset = _NOTHING, nominal * (shorter if varies == EVENLY else 1.0)
        if setting.is_recorded and records is not None:
            runs = vary_runs(records, (pairs, RECORDED_RUNS), varies, offset, random)
            recorded = records.steps[: pairs * RECORDED_RUNS].reshape(pairs, -1)
            known = Recorded(*Runs(*runs, recorded).spread_between(), float(recorded.mean()))
        chosen = [
            (own[0] if count <= _FEW else own[-1], (pairs, count))
            for own, count in zip(libraries, setting.sides, strict=True)
        ]
        sides = [_draw_side(library, shape, varies, offset, random) for library, shape in chosen]
        assumed = _assume(chosen, sides)
        difference = measure_difference(sides[0], sides[1], known, assumed)
        shares = [*_count(difference, truth, with_claims=steps[0] in STEPS_OF_CLAIMS and varies == WHOLE)]
        if needs.every and max(setting.sides) <= _FEW and (varies, nominal) in _OF_ALL:
            shares.extend(_count_all_steps(chosen, sides, difference, assumed))
        for of, share in shares:
            name = _name_of(of)
            found.append(
                Rate(
                    law.name,
                    steps,
                    setting,
                    varies,
                    nominal,
                    of,
                    share,
                    pairs,
                    _is_known(setting, varies, nominal, name),
                    _may_rest(law, min(steps)),
                    _is_as_assumed(varies, nominal, name),
                )
            )
    return found


_NOTHING = Recorded(np.zeros(len(NAMES)), np.zeros(len(NAMES)))


def _draw_side(
    library: _Library, shape: tuple[int, int], varies: str, offset: float, random: np.random.Generator
) -> Runs:
    count = shape[0] * shape[1]
    return Runs(
        *vary_runs(library, shape, varies, offset, random), library.steps[:count].reshape(shape).copy()
    )


def _count(difference: Difference, truth: Floats, *, with_claims: bool) -> Iterator[tuple[str, float]]:
    half, change = difference.half(), difference.change
    held = (np.abs(change - truth) <= half).mean(axis=0)
    for place, name in enumerate(NAMES[:FIRST_CAUSE]):
        yield f"interval of {name}", float(held[place])
    for wall in WALLS:
        own = [place for place in range(FIRST_CAUSE, len(NAMES)) if NAMES[place] == wall]
        yield f"interval of causes of {wall}", float(held[own].mean())
    is_slower = change[:, 0] > np.maximum(half[:, 0], MARGIN)
    yield "false verdict on the step", float(is_slower.mean())
    is_sure = change > half
    yield "false gate step>3%", float((is_sure[:, 0] & (change[:, 0] > log1p(0.03))).mean())
    for wall, limit_ns in (("communication", 0.05 * STEP_NS), ("host", 2e6)):
        place = NAMES.index(wall)
        past = is_sure[:, place] & (change[:, place] > limit_ns)
        yield f"false gate {wall}>{'5%' if wall == 'communication' else '2ms'}", float(past.mean())
    if with_claims:
        chance = difference.chance()[:, FIRST_CAUSE:][:, truth[FIRST_CAUSE:] == 0]
        claimed = np.mean([bool(find_significant(row).any()) for row in chance])
        yield "false claim of any cause of compute", float(claimed)


_OF_ALL = {(WHOLE, 0.0), (WHOLE, 0.01)}


def _count_all_steps(
    chosen: _Chosen, sides: Sequence[Runs], noise: Difference, assumed: Assumed
) -> Iterator[tuple[str, float]]:
    """Count gates on all steps that fail."""
    pairs = chosen[0][1][0]
    factor = [
        runs.mean[..., 0] - one.mean[: shape[0] * shape[1], 0].reshape(shape)
        for runs, (one, shape) in zip(sides, chosen, strict=True)
    ]
    shifted = [_shift_lengths(side, runs) for side, runs in zip(chosen, sides, strict=True)]
    failed = {"mean>3%": 0, "p90>5%": 0, "slow-steps>2": 0}
    for pair in range(pairs):
        own = [slice(pair * count, (pair + 1) * count) for _, (_, count) in chosen]
        runs = [
            [_shift(every, by) for every, by in zip(one.every[place], part[pair].tolist(), strict=True)]
            for (one, _), part, place in zip(chosen, factor, own, strict=True)
        ]
        of_pair = Noise(float(noise.noise[pair, 0]), float(noise.noise_freedom[pair, 0]))
        of_both = [float(np.asarray(one)[pair]) for one in (assumed.short, assumed.bias)]
        found = compare_all_steps(runs[0], runs[1], of_pair, *of_both)
        failed["mean>3%"] += found.mean.change > max(found.mean.half or np.inf, log1p(0.03))
        failed["p90>5%"] += found.p90.change > max(found.p90.half or np.inf, log1p(0.05))
        lengths = [np.concatenate(side[pair]) for side in shifted]
        slow = [one > SLOW_STEP_RATIO * np.median(one) for one in lengths]
        is_sure = measure_slow_chance(slow) <= WRONG
        share = lengths[0].size / lengths[1].size
        failed["slow-steps>2"] += is_sure and slow[1].sum() * share - slow[0].sum() > _SLOW_STEPS
    for gate, times in failed.items():
        yield f"false gate {gate}", times / pairs


_SLOW_STEPS = 2


def _shift(every: AllSteps, by: float) -> AllSteps:
    mean, p90 = (Spread(one.mean + by, one.error, one.freedom) for one in (every.mean, every.p90))
    return AllSteps(mean, p90, every.steps)


def find_power(setting: Setting, pairs: int, number: int = 0, steps: int = 20, offset: float = 0.01) -> float:
    """Return how often a step 5 % slower is found, of runs of so many steps that differ by `offset`."""
    law = LAWS[number]
    random = np.random.default_rng([SEED, setting.runs, setting.is_recorded])
    known = _NOTHING
    needs = _Needs(errors=True, every=False)
    chosen = [(_measure(law, random, count * pairs, steps, needs), (pairs, count)) for count in setting.sides]
    if setting.is_recorded:
        records = _measure(law, random, RECORDED_RUNS * pairs, steps, _Needs(errors=False, every=False))
        runs = _draw_side(records, (pairs, RECORDED_RUNS), WHOLE, offset, random)
        known = Recorded(*runs.spread_between(), float(runs.steps.mean()))
    sides = [_draw_side(library, shape, WHOLE, offset, random) for library, shape in chosen]
    difference = measure_difference(sides[0], sides[1], known, _assume(chosen, sides))
    change = difference.change[:, 0] + log(1.05)
    return float((change > np.maximum(difference.half()[:, 0], MARGIN)).mean())


POWER_STEPS, POWER_NOISES, POWER_PAIRS = (6, 10, 20, 50), (0.005, 0.01, 0.02), 300
POWER_SETTINGS = SETTINGS[0], SETTINGS[2], SETTINGS[4]


def find_powers(cell: tuple[int, float]) -> list[float]:
    """Return how often a step 5 % slower is found, by runs a side, of so many steps and so much noise."""
    return [find_power(setting, POWER_PAIRS, 0, *cell) for setting in POWER_SETTINGS]


def count_part(number: int, steps: tuple[int, int], block: int, folder: Path | None) -> list[Rate]:
    """Return all rates of one block of pairs; of those already in the folder they are read."""
    law = ALL_LAWS[number]
    target = None if folder is None else folder / f"{number:02}-{steps[0]}-{steps[1]}-{block}.csv"
    if target is not None and target.exists():
        return read_cells(target)
    seed = SEED + _SEEDS_OF_BLOCKS * block
    rates = count_claims(number, steps, BLOCK_OF_PAIRS, seed=seed)
    if target is not None:
        write_cells(rates, target)
    sys.stderr.write(f"{law.name}, {write_steps(steps)} steps, block {block}\n")
    return rates


BLOCK_OF_PAIRS = 40
_SEEDS_OF_BLOCKS = 1_000


def count_again(rates: Sequence[Rate], pairs: int) -> list[Rate]:
    """Return rates of one law and numbers of steps, measured again with other seeds."""
    numbers = {law.name: number for number, law in enumerate(ALL_LAWS)}
    cells = [*dict.fromkeys((rate.setting, rate.varies, rate.offset) for rate in rates)]
    found = count_claims(numbers[rates[0].law], rates[0].steps, pairs, cells, SEED + 1)
    by_cell = {(one.setting, one.varies, one.offset, one.of): one for one in found}
    return [by_cell[rate.setting, rate.varies, rate.offset, rate.of] for rate in rates]


def main() -> None:
    """Print the table, or write it into a page."""
    parser = argparse.ArgumentParser(description="How often wallscope diff is wrong.")
    parser.add_argument("--pairs", type=int, default=240, help="a multiple of 40")
    parser.add_argument("--parts", type=Path, help="folder of finished parts, to continue where it stopped")
    parser.add_argument("--again", type=int, default=1_000)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--cells", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    laws = range(len(ALL_LAWS))
    steps = [(one, one) for one in STEPS]
    blocks = range(options.pairs // BLOCK_OF_PAIRS)
    tried = [(number, both, block) for block in blocks for both in (*steps, UNEQUAL_STEPS) for number in laws]
    with ProcessPoolExecutor(options.jobs) as pool:
        parts = pool.map(count_part, *zip(*tried, strict=True), repeat(options.parts))
        rates = merge_rates(rate for part in parts for rate in part)
        if options.cells is not None:
            write_cells(rates, options.cells)
        groups: dict[tuple[str, tuple[int, int]], list[Rate]] = {}
        for rate in choose_again(rates):
            groups.setdefault((rate.law, rate.steps), []).append(rate)
        again = pool.map(count_again, groups.values(), repeat(options.again))
        retried = [rate for part in again for rate in part]
        power = list(pool.map(find_power, SETTINGS, repeat(4 * options.pairs)))
        warming = list(pool.map(find_power, SETTINGS, repeat(4 * options.pairs), repeat(WARMING)))
        cells = [(count, noise) for count in POWER_STEPS for noise in POWER_NOISES]
        by_noise = dict(zip(cells, pool.map(find_powers, cells), strict=True))
    lines = tabulate_again([rate for part in groups.values() for rate in part], retried)
    more = [*tabulate_power(by_noise, [str(one) for one in POWER_SETTINGS], POWER_PAIRS), "", *lines]
    found = summarize(rates, (power, warming), more)
    put(options.write, "verdicts", found)


if __name__ == "__main__":
    main()
