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
from dataclasses import dataclass
from itertools import repeat
from math import log, log1p, sqrt
from pathlib import Path
from zlib import crc32

import numpy as np

from benchmarks.diff_tables import SETTINGS, WRONG, Rate, Setting, replace_table, summarize, write_cells
from benchmarks.noise_laws import CAUSES, LAWS, OTHER_LAWS, STEP_NS, WALLS, Floats, draw_runs
from benchmarks.noise_laws import Noise as Law
from wallscope.compare.all_steps import AllSteps, compare_all_steps, measure_all_steps, measure_slow_chance
from wallscope.compare.confidence import Spread, log_first, spread_of_steps, typical_means
from wallscope.compare.run_noise import Difference, Recorded, Runs, measure_difference, stack_runs
from wallscope.compare.step_levels import find_levels
from wallscope.compare.wall_deltas import assume_noise, find_significant
from wallscope.model.profile import Noise
from wallscope.thresholds.comparison import SLOW_STEP_RATIO

SEED = 20_261_123
STEPS = (6, 7, 10, 20, 100)
STEPS_OF_CLAIMS = (6, 20, 100)
STEPS_OF_ALL = (10, 20, 100)
OFFSETS = (0.0, 0.01, 0.05, 0.10, 0.20)
WHOLE, PARTS = "the step", "communication and host"
RECORDED_RUNS = 10
MARGIN = log(1.02)
NAMES = ("step", *WALLS, *CAUSES)
ASSUMED = assume_noise(NAMES)
FIRST_CAUSE = 1 + len(WALLS)
_STEP_SHARE = sqrt(0.25**2 + 0.12**2)
"""By which the step varies where communication and host do, of a law without stalls."""


_RESTING_STEPS = 20  # as long as two levels last in the mean
_FEW = 2  # runs a side, up to which errors by steps are needed
_WITH_ERRORS = 3  # and for mean and p90 of all steps


@dataclass(frozen=True, slots=True)
class _Library:
    """What a comparison knows of runs that differ by their steps alone."""

    mean: Floats
    error: Floats
    freedom: Floats
    distance: Floats
    """Between levels of steps."""
    length_ns: Floats
    """Of each step; a row is a run."""
    every: list[AllSteps]


def _measure(law: Law, random: np.random.Generator, runs: int, steps: int, *, errors: bool) -> _Library:
    parts = []
    for _ in range(0, runs, 500):
        values = draw_runs(law, random, min(500, runs), steps)
        mean = log_first(typical_means(values))
        if not errors:
            nothing, lengths = np.zeros(len(mean)), values[:, :, 0]
            parts.append(_Library(mean, np.full_like(mean, 1e-12), np.ones(len(mean)), nothing, lengths, []))
            continue
        whole = np.round(values).astype(np.int64)
        spreads = [spread_of_steps(run[:, 0], run[:, 1:]) for run in whole]
        found = stack_runs(spreads, [steps] * len(spreads))
        distance = np.array([find_levels(run[:, 0]).distance for run in whole])
        every = [measure_all_steps(run[:, 0]) for run in whole] if steps in STEPS_OF_ALL else []
        parts.append(_Library(found.mean, found.error, found.freedom, distance, values[:, :, 0], every))
    return _Library(
        np.concatenate([one.mean for one in parts])[:runs],
        np.concatenate([one.error for one in parts])[:runs],
        np.concatenate([one.freedom for one in parts])[:runs],
        np.concatenate([one.distance for one in parts])[:runs],
        np.concatenate([one.length_ns for one in parts])[:runs],
        [every for one in parts for every in one.every][:runs],
    )


def vary_runs(
    library: _Library, shape: tuple[int, int], varies: str, offset: float, random: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """Return mean, error and freedom of runs whose times differ; the shape is pairs, runs."""
    count = shape[0] * shape[1]
    mean, error = (part[:count].reshape(*shape, -1).copy() for part in (library.mean, library.error))
    factor = np.ones_like(mean)
    if varies == WHOLE:
        factor[...] = np.exp(offset * random.standard_normal(shape))[..., None]
        mean[..., 0] += np.log(factor[..., 0])
    else:
        for name in ("communication", "host"):
            own = [place for place, one in enumerate(NAMES) if one == name]
            factor[..., own] = np.exp(offset * random.standard_normal(shape))[..., None]
        more = (mean * (factor - 1))[..., 1:FIRST_CAUSE].sum(axis=-1)
        mean[..., 0] = np.log(np.exp(mean[..., 0]) + more)
    mean[..., 1:] *= factor[..., 1:]
    error[..., 1:] *= factor[..., 1:]
    return mean, error, library.freedom[:count].reshape(shape)


def _assume(libraries: Sequence[_Library], shape: tuple[int, int], steps: int) -> Floats:
    """Return what is assumed of each pair, with the levels of its steps."""
    count = shape[0] * shape[1]
    distance = np.max([one.distance[:count].reshape(shape).max(axis=1) for one in libraries], axis=0)
    return np.stack([assume_noise(NAMES, one, steps) for one in distance.tolist()])


def _name_of(what: str) -> str:
    """Return the column that a rate is about."""
    name = what.rpartition(" ")[2].partition(">")[0]
    return name if name in NAMES else "step"


def _may_rest(law: Law, steps: int) -> bool:
    """Whether a run of so many steps may stay at one level, and levels are further apart than is assumed."""
    assumed = float(assume_noise(NAMES[:1], steps=steps)[0])
    return steps <= _RESTING_STEPS and law.distance / 2 > assumed


def _is_known(setting: Setting, varies: str, offset: float, name: str) -> bool:
    if setting.is_recorded or setting.runs > _FEW:
        return True
    if varies == WHOLE:
        return offset <= float(ASSUMED[NAMES.index(name)]) * 1.01
    own = offset * (_STEP_SHARE if name == "step" else float(name in {"communication", "host"}))
    return own <= float(ASSUMED[NAMES.index(name)]) * 1.01


def count_claims(number: int, steps: int, pairs: int) -> list[Rate]:
    """Return all rates of a law, by its number, and a number of steps."""
    law = (*LAWS, *OTHER_LAWS)[number]
    random = np.random.default_rng([SEED, crc32(f"{law.name}/{steps}".encode())])
    most = max(setting.runs for setting in SETTINGS)
    few = [_measure(law, random, _WITH_ERRORS * pairs, steps, errors=True) for _ in range(2)]
    many = [_measure(law, random, most * pairs, steps, errors=False) for _ in range(2)]
    records = _measure(law, random, RECORDED_RUNS * pairs, steps, errors=False)
    found: list[Rate] = []
    for setting in SETTINGS:
        for varies, offset in [(WHOLE, one) for one in OFFSETS] + [(PARTS, one) for one in OFFSETS[2:]]:
            known = Recorded(np.zeros(len(NAMES)), np.zeros(len(NAMES)))
            if setting.is_recorded:
                runs = vary_runs(records, (pairs, RECORDED_RUNS), varies, offset, random)
                known = Recorded(*Runs(*runs, np.full(runs[2].shape, steps)).spread_between(), steps)
            sides = []
            for library in few if setting.runs <= _FEW else many:
                runs = vary_runs(library, (pairs, setting.runs), varies, offset, random)
                sides.append(Runs(*runs, np.full(runs[2].shape, float(steps))))
            assumed = ASSUMED if setting.runs > _FEW else _assume(few, (pairs, setting.runs), steps)
            difference = measure_difference(sides[0], sides[1], known, assumed)
            shares = [*_count(difference, with_claims=steps in STEPS_OF_CLAIMS and varies == WHOLE)]
            if steps in STEPS_OF_ALL and setting.runs <= _WITH_ERRORS and (varies, offset) in _OF_ALL:
                shares.extend(_count_all_steps(few, (pairs, setting.runs), offset, known, random))
            found.extend(
                Rate(
                    law.name,
                    steps,
                    setting,
                    varies,
                    offset,
                    of,
                    share,
                    pairs,
                    _is_known(setting, varies, offset, _name_of(of)),
                    _may_rest(law, steps),
                )
                for of, share in shares
            )
    return found


def _count(difference: Difference, *, with_claims: bool) -> Iterator[tuple[str, float]]:
    half, change = difference.half(), difference.change
    held = (np.abs(change) <= half).mean(axis=0)
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
        chance = difference.chance()[:, FIRST_CAUSE:]
        claimed = np.mean([bool(find_significant(row).any()) for row in chance])
        yield "false claim of any cause of compute", float(claimed)


_OF_ALL = {(WHOLE, 0.0), (WHOLE, 0.01)}


def _count_all_steps(
    libraries: Sequence[_Library],
    shape: tuple[int, int],
    offset: float,
    recorded: Recorded,
    random: np.random.Generator,
) -> Iterator[tuple[str, float]]:
    """Count gates on all steps that fail."""
    count, steps = shape[0] * shape[1], libraries[0].length_ns.shape[1]
    varied = [vary_runs(library, shape, WHOLE, offset, random) for library in libraries]
    factor = [
        runs[0][..., 0] - one.mean[:count, 0].reshape(shape)
        for runs, one in zip(varied, libraries, strict=True)
    ]
    sides = [Runs(*runs, np.full(shape, float(steps))) for runs in varied]
    noise = measure_difference(sides[0], sides[1], recorded, _assume(libraries, shape, steps))
    failed = {"mean>3%": 0, "p90>5%": 0, "slow-steps>2": 0}
    for pair in range(shape[0]):
        own = slice(pair * shape[1], (pair + 1) * shape[1])
        runs = [
            [_shift(every, by) for every, by in zip(one.every[own], part[pair].tolist(), strict=True)]
            for one, part in zip(libraries, factor, strict=True)
        ]
        of_pair = Noise(float(noise.noise[pair, 0]), float(noise.noise_freedom[pair, 0]))
        found = compare_all_steps(runs[0], runs[1], of_pair)
        failed["mean>3%"] += found.mean.change > max(found.mean.half or np.inf, log1p(0.03))
        failed["p90>5%"] += found.p90.change > max(found.p90.half or np.inf, log1p(0.05))
        lengths = [
            (one.length_ns[own] * np.exp(part[pair])[:, None]).ravel()
            for one, part in zip(libraries, factor, strict=True)
        ]
        slow = [one > SLOW_STEP_RATIO * np.median(one) for one in lengths]
        is_sure = measure_slow_chance(slow) <= WRONG
        failed["slow-steps>2"] += is_sure and int(slow[1].sum()) - int(slow[0].sum()) > 2
    for gate, times in failed.items():
        yield f"false gate {gate}", times / shape[0]


def _shift(every: AllSteps, by: float) -> AllSteps:
    return AllSteps(
        *(Spread(one.mean + by, one.error, one.freedom) for one in (every.mean, every.p90)),
    )


def find_power(setting: Setting, pairs: int) -> float:
    """Return how often a step 5 % slower is found, of 20 steps, where runs differ by 1 %."""
    random = np.random.default_rng([SEED, setting.runs, setting.is_recorded])
    base, head = (_measure(LAWS[0], random, setting.runs * pairs, 20, errors=True) for _ in range(2))
    known = Recorded(np.zeros(len(NAMES)), np.zeros(len(NAMES)))
    if setting.is_recorded:
        records = _measure(LAWS[0], random, RECORDED_RUNS * pairs, 20, errors=False)
        runs = vary_runs(records, (pairs, RECORDED_RUNS), WHOLE, 0.01, random)
        known = Recorded(*Runs(*runs, np.full(runs[2].shape, 20.0)).spread_between(), 20.0)
    sides = []
    for library in (base, head):
        runs = vary_runs(library, (pairs, setting.runs), WHOLE, 0.01, random)
        sides.append(Runs(*runs, np.full(runs[2].shape, 20.0)))
    difference = measure_difference(sides[0], sides[1], known, ASSUMED)
    change = difference.change[:, 0] + log(1.05)
    return float((change > np.maximum(difference.half()[:, 0], MARGIN)).mean())


def main() -> None:
    """Print the table, or write it into a page."""
    parser = argparse.ArgumentParser(description="How often wallscope diff is wrong.")
    parser.add_argument("--pairs", type=int, default=250)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--cells", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    cells = [(number, steps) for steps in reversed(STEPS) for number in range(len(LAWS) + len(OTHER_LAWS))]
    with ProcessPoolExecutor(options.jobs) as pool:
        parts = pool.map(
            count_claims,
            [number for number, _ in cells],
            [steps for _, steps in cells],
            repeat(options.pairs),
        )
        rates = [rate for part in parts for rate in part]
        power = list(pool.map(find_power, SETTINGS, repeat(4 * options.pairs)))
    if options.cells is not None:
        write_cells(rates, options.cells)
    found = summarize(rates, options.pairs, power)
    if options.write is None:
        sys.stdout.write(found)
    else:
        page = replace_table(options.write.read_text(encoding="utf-8"), found)
        options.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
