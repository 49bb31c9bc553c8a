"""Laws by which steps and runs vary, for measuring how often comparisons are wrong.

A run is float64[run, step, column], ns: the length of the step, then compute, communication, memory and host,
then their causes. All laws are about 100 ms a step and seeded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Law = Callable[[np.random.Generator, int, int], Floats]

STEP_NS = 100e6
WALLS = ("compute", "communication", "memory", "host")
_SHARES = np.array([0.55, 0.25, 0.08, 0.12])
_CAUSES = (9, 7, 6, 8)
CAUSES = tuple(wall for wall, count in zip(WALLS, _CAUSES, strict=True) for _ in range(count))
_OWN_JITTER = 0.03
HOST = WALLS.index("host")


def _normal(random: np.random.Generator, runs: int, steps: int) -> Floats:
    return random.standard_normal((runs, steps))


def _correlated(correlation: float) -> Law:
    def law(random: np.random.Generator, runs: int, steps: int) -> Floats:
        drawn = _normal(random, runs, steps)
        for step in range(1, steps):
            drawn[:, step] = correlation * drawn[:, step - 1] + sqrt(1 - correlation**2) * drawn[:, step]
        return drawn

    return law


def _levels(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return two levels, each of which lasts ten steps in the mean."""
    switched = random.random((runs, steps)) < 0.1
    begins = random.integers(0, 2, (runs, 1))
    level: Floats = ((begins + np.cumsum(switched, axis=1)) % 2).astype(np.float64)
    return level


def _every(period: int) -> Law:
    def law(random: np.random.Generator, runs: int, steps: int) -> Floats:
        first = random.integers(0, period, (runs, 1))
        is_stalled: Floats = ((np.arange(steps) + first) % period == 0).astype(np.float64)
        return is_stalled

    return law


@dataclass(frozen=True, slots=True)
class Noise:
    """How the steps of a run vary.

    Attributes:
        name: of the law, with which its steps are drawn.
        factor: of each step, 1 in the usual one.
        stalls: how often a step lasts twice as long, on the host.
        distance: of levels at which a whole run may rest, as a logarithm.
        exchanged: share of communication that each step exchanges for compute, or the reverse.
        missing: a wall that base does not have.
        title: as the tables say it, if not by name.
    """

    name: str
    factor: Law
    stalls: Law | None = None
    distance: float = 0.0
    exchanged: float = 0.0
    missing: str | None = None
    title: str = ""


def _scaled(jitter: float, law: Law = _normal) -> Law:
    return lambda random, runs, steps: np.exp(jitter * law(random, runs, steps))


def _walk(random: np.random.Generator, runs: int, steps: int) -> Floats:
    walked: Floats = np.cumsum(_normal(random, runs, steps), axis=1)
    return walked


def _heavy(random: np.random.Generator, runs: int, steps: int) -> Floats:
    return np.clip(random.standard_t(3, (runs, steps)), -20, 20)


def _skewed(random: np.random.Generator, runs: int, steps: int) -> Floats:
    return random.standard_exponential((runs, steps))


def _warming(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return a warm-up that ends within the run."""
    return np.exp(-3 * np.arange(steps) / steps) + 0.05 * _normal(random, runs, steps)


def _rarely(random: np.random.Generator, runs: int, steps: int) -> Floats:
    return (random.random((runs, steps)) < 0.03).astype(np.float64)


LAWS = (
    Noise("independent, 1 %", _scaled(0.01)),
    Noise("independent, 5 %", _scaled(0.05)),
    Noise("independent, 15 %", _scaled(0.15)),
    Noise("heavy tails (Student's, 3 degrees), 2 %", _scaled(0.02, _heavy)),
    Noise("skewed (exponential), 5 %", _scaled(0.05, _skewed)),
    Noise("neighbors correlated 0.5, 3 %", _scaled(0.03, _correlated(0.5))),
    Noise("neighbors correlated 0.9, 2 %", _scaled(0.02, _correlated(0.9))),
    Noise("random walk, 0.3 % a step", _scaled(0.003, _walk)),
    Noise("two clock levels 5 % apart", _scaled(0.05, _levels), distance=0.05),
    Noise("every 5th step doubled", _scaled(0.01), _every(5)),
    Noise("every 8th step doubled", _scaled(0.01), _every(8)),
    Noise("3 % of steps doubled", _scaled(0.02), _rarely),
    Noise("warm-up of 10 % within the run", _scaled(0.1, _warming)),
)


def _laplace(random: np.random.Generator, runs: int, steps: int) -> Floats:
    return random.laplace(size=(runs, steps))


def _slower_tenth(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return two kinds of steps in any order: one of ten is of the second."""
    kind: Floats = (random.random((runs, steps)) < 0.1) + 0.05 * _normal(random, runs, steps)
    return kind


def _drifting(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return a rise by one from the first step to the last."""
    return np.linspace(0, 1, steps) + 2 * _normal(random, runs, steps)


def _clock_steps(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return clocks that follow a correlated load in steps of one."""
    return np.round(_correlated(0.8)(random, runs, steps))


def _uneven(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return noise that grows threefold over the run."""
    return np.linspace(0.5, 1.5, steps) * _normal(random, runs, steps)


def _burst_lengths(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return bursts of two to five slow steps; one begins at a step out of 40."""
    begins = random.random((runs, steps + 4)) < 1 / 40
    length = random.integers(2, 6, begins.shape)
    inside = np.zeros((runs, steps), np.bool_)
    for after in range(5):
        inside |= (begins & (length > after))[:, 4 - after : 4 - after + steps]
    burst: Floats = inside + 0.02 * _normal(random, runs, steps)
    return burst


def _bursts(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return bursts of three slow steps; one begins at a step out of 30."""
    begins = random.random((runs, steps + 2)) < 1 / 30
    inside = begins[:, 2:] | begins[:, 1:-1] | begins[:, :-2]
    burst: Floats = inside + 0.02 * _normal(random, runs, steps)
    return burst


OTHER_LAWS = (
    Noise("Laplace, 3 %", _scaled(0.03, _laplace)),
    Noise("lognormal, 10 %", _scaled(0.1)),
    Noise("one of ten steps 20 % slower", _scaled(0.2, _slower_tenth)),
    Noise("every 10th step doubled", _scaled(0.01), _every(10)),
    Noise("drift of 0.5 % within the run, 1 %", _scaled(0.005, _drifting)),
    Noise("neighbors correlated 0.95, 1 %", _scaled(0.01, _correlated(0.95))),
    Noise(
        "clocks in steps of 1 %, correlated 0.8",
        _scaled(0.01, _clock_steps),
        title="clock levels 1 % apart, neighbors correlated 0.8",
    ),
    Noise(
        "noise that grows threefold, 3 %",
        _scaled(0.03, _uneven),
        title="noise that triples within the run, 3 %",
    ),
    Noise("bursts of three steps 50 % slower", _scaled(0.4, _bursts)),
    Noise("bursts of two to five steps 50 % slower", _scaled(0.4, _burst_lengths)),
    Noise("neighbors correlated 0.95, 3 %", _scaled(0.03, _correlated(0.95))),
    Noise(
        "compute and communication exchange time",
        _scaled(0.01),
        exchanged=0.2,
        title="time moves between compute and communication, 1 %",
    ),
    Noise("no memory time in base, 5 %", _scaled(0.05), missing="memory"),
)
"""Correlated neighbors, clocks and bursts also chose limits of warm-up and blocks; the others chose none."""


def _three_levels(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return three levels; a run moves by one level every sixth step in the mean."""
    moved = (random.random((runs, steps)) < 1 / 6) * random.choice((-1, 1), (runs, steps))
    level: Floats = np.abs((random.integers(0, 4, (runs, 1)) + np.cumsum(moved, axis=1) + 2) % 4 - 2) * 1.0
    return level


def _alternating(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return every other step slower by one."""
    kind: Floats = (np.arange(steps) + random.integers(0, 2, (runs, 1))) % 2 + 0.1 * _normal(
        random, runs, steps
    )
    return kind


def _sawtooth(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return a rise by one over 12 steps, again and again."""
    place: Floats = (np.arange(steps) + random.integers(0, 12, (runs, 1))) % 12 / 12
    return place + 0.2 * _normal(random, runs, steps)


def _waves(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return waves of 25 steps."""
    wave: Floats = np.sin(2 * np.pi * (np.arange(steps) / 25 + random.random((runs, 1))))
    return wave + 0.5 * _normal(random, runs, steps)


def _settling(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return steps that get longer by one, as a GPU that gets warmer, until half of the run."""
    return 1 - np.exp(-6 * np.arange(steps) / steps) + 0.3 * _normal(random, runs, steps)


def _clustered(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return noise whose size itself wanders: quiet and noisy times."""
    return np.exp(_correlated(0.9)(random, runs, steps)) * _normal(random, runs, steps)


def _heavy_correlated(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return the mean of each two neighbors of heavy tails."""
    drawn = _heavy(random, runs, steps + 1)
    return (drawn[:, 1:] + drawn[:, :-1]) / sqrt(2)


def _mixed(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return one of six steps slower by one, and a few by far more."""
    kind = random.random((runs, steps))
    slower: Floats = (kind < 1 / 6) + 8.0 * (kind > 0.98) + 0.15 * _normal(random, runs, steps)
    return slower


def _gamma(random: np.random.Generator, runs: int, steps: int) -> Floats:
    return (random.standard_gamma(2, (runs, steps)) - 2) / sqrt(2)


def _alternately(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return steps of which a long one follows a short one: correlated -0.6."""
    drawn = _normal(random, runs, steps)
    for step in range(1, steps):
        drawn[:, step] = -0.6 * drawn[:, step - 1] + 0.8 * drawn[:, step]
    return drawn


def _cycling(random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Return cycles of about 7 steps whose height and phase wander (Yule 1927)."""
    drawn = _normal(random, runs, steps + _SETTLED_STEPS)
    for step in range(2, drawn.shape[1]):
        drawn[:, step] += 2 * 0.9 * np.cos(2 * np.pi / 7) * drawn[:, step - 1] - 0.81 * drawn[:, step - 2]
    settled: Floats = drawn[:, _SETTLED_STEPS:] / drawn[:, _SETTLED_STEPS:].std()
    return settled


_SETTLED_STEPS = 50

KEPT_LAWS = (
    Noise("three clock levels 2 % apart", _scaled(0.02, _three_levels), distance=0.04),
    Noise("every other step 6 % slower", _scaled(0.06, _alternating)),
    Noise(
        "rises of 4 % over 12 steps",
        _scaled(0.04, _sawtooth),
        title="rise of 4 % over 12 steps, again and again",
    ),
    Noise("waves of 25 steps, 1 %", _scaled(0.01, _waves)),
    Noise(
        "steps 3 % longer until half of the run",
        _scaled(0.03, _settling),
        title="rise of 3 % in the first half of the run",
    ),
    Noise(
        "quiet and noisy times, 2 %", _scaled(0.02, _clustered), title="periods of low and of high noise, 2 %"
    ),
    Noise("heavy tails, neighbors correlated 0.5, 2 %", _scaled(0.02, _heavy_correlated)),
    Noise(
        "one of six steps 10 % slower, 2 % by 120 %",
        _scaled(0.1, _mixed),
        title="one of 6 steps 10 % slower, 2 % of steps 120 % slower",
    ),
    Noise("skewed (gamma, shape 2), 4 %", _scaled(0.04, _gamma)),
    Noise("neighbors correlated -0.6, 3 %", _scaled(0.03, _alternately)),
    Noise("cycles of about 7 steps, 2 %", _scaled(0.02, _cycling)),
)
"""Written after all limits were chosen; they chose none. The last three are the newest."""

ALL_LAWS = (*LAWS, *OTHER_LAWS, *KEPT_LAWS)


def draw_runs(law: Noise, random: np.random.Generator, runs: int, steps: int) -> Floats:
    """Draw runs that differ by their steps alone."""
    factor = STEP_NS * law.factor(random, runs, steps)[:, :, None]
    own = np.exp(_OWN_JITTER * random.standard_normal((runs, steps, len(CAUSES))))
    shares = np.concatenate(
        [np.full(count, share / count) for share, count in zip(_SHARES, _CAUSES, strict=True)]
    )
    causes = factor * shares * own
    if law.exchanged:
        part = law.exchanged * _SHARES[1] * STEP_NS * random.standard_normal((runs, steps))
        ours, theirs = _CAUSES[:2]
        causes[:, :, :ours] -= part[:, :, None] / ours
        causes[:, :, ours : ours + theirs] += part[:, :, None] / theirs
    if law.stalls is not None:
        causes[:, :, -1] += STEP_NS * law.stalls(random, runs, steps)
    return sum_columns(causes)


def sum_columns(causes: Floats) -> Floats:
    """Return length, walls and causes of steps; the last axis is causes."""
    ends = np.cumsum((0, *_CAUSES))
    walls = np.stack([causes[..., first:end].sum(axis=-1) for first, end in pairwise(ends)], axis=-1)
    return np.concatenate([walls.sum(axis=-1, keepdims=True), walls, causes], axis=-1)
