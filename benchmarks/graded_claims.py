"""How often graded claims of `wallscope diff` are right, on simulated pairs with published seeds.

    python -m benchmarks.graded_claims --pairs 400 --write docs/diff.md

Half of the pairs do not change. In the other half, one cause makes the step longer or shorter. Runs differ by
a known noise of the step, and each cause that is not compute by noise of its own. A claim about the step is
right if it changed in that direction, and one about a cause if this cause did.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log1p
from pathlib import Path

import numpy as np

from benchmarks.diff_tables import Rate, Setting
from benchmarks.diff_verdicts import WHOLE
from benchmarks.marks import put
from benchmarks.noise_laws import Floats
from wallscope.compare.grades import Measured, StepClaim, grade_part, grade_step
from wallscope.compare.run_noise import Assumed, Difference, Recorded, Runs, measure_difference
from wallscope.compare.wall_deltas import assume_noise, find_significant, find_sure, name_columns
from wallscope.model.cause_catalogue import find_wall
from wallscope.model.enums import Grade, Wall
from wallscope.thresholds.verdict import MARGIN_SHARE

SEED = 20_261_128
STEP_NS, STEPS, STEPS_ERROR = 1e8, 20, 0.001
SHARES = {
    "compute/gemm": 0.40,
    "compute/attention": 0.15,
    "communication/ep/unsplit": 0.15,
    "communication/dp/unsplit": 0.10,
    "memory/staging": 0.05,
    "host/framework": 0.07,
    "host/queue-drained/cudaStreamSynchronize": 0.05,
    "host/data-loading": 0.03,
}
CAUSES = sorted(SHARES)
NAMES = name_columns(CAUSES)
SPREADS, OWN_NOISES, CHANGES = (0.003, 0.01, 0.02), (0.01, 0.03, 0.06), (-0.05, 0.03, 0.05, 0.1, 0.15)


@dataclass(frozen=True, slots=True)
class Case:
    """How many runs each side has, and how many recorded runs there are."""

    runs: int
    recorded: int = 0

    def __str__(self) -> str:
        return f"{self.runs}" + (f", {self.recorded} recorded" if self.recorded else "")


CASES = (Case(1), Case(1, 3), Case(1, 10), Case(2), Case(3), Case(5))
Claims = dict[tuple[str, Grade], list[bool]]


def _draw(
    random: np.random.Generator, runs: int, spread: float, own: float, times_ns: dict[str, float]
) -> Runs:
    """Draw runs of causes that vary alike by the spread, and but for compute each by noise of its own too."""
    rows = []
    for _ in range(runs):
        common = 1 + spread * random.standard_normal()
        found = {
            cause: ns * common * (1 + (0 if cause.startswith("compute") else own) * random.standard_normal())
            for cause, ns in times_ns.items()
        }
        walls = [sum(ns for cause, ns in found.items() if find_wall(cause) == wall) for wall in Wall]
        rows.append([log(sum(found.values())), *walls, *(found[cause] for cause in CAUSES)])
    mean = np.array(rows)
    error = np.abs(mean) * STEPS_ERROR
    error[:, 0] = STEPS_ERROR
    return Runs(mean, error, np.full(runs, STEPS - 1.0), np.full(runs, float(STEPS)))


def grade_pairs(case: Case, pairs: int) -> Claims:
    """Return the claims about the step, its causes and the first cause, each with whether it is right."""
    random = np.random.default_rng([SEED, case.runs, case.recorded])
    claims: Claims = defaultdict(list)
    before = {cause: STEP_NS * share for cause, share in SHARES.items()}
    for number in range(pairs):
        spread, own = float(random.choice(SPREADS)), float(random.choice(OWN_NOISES))
        change = float(random.choice(CHANGES)) if number % 2 else 0.0
        large = [cause for cause in CAUSES if SHARES[cause] > 0.05 or change > 0]
        changed = str(random.choice(large))
        after = {**before, changed: before[changed] + change * STEP_NS}
        base, head = (_draw(random, case.runs, spread, own, times) for times in (before, after))
        known = Recorded(np.zeros(len(NAMES)), np.zeros(len(NAMES)))
        if case.recorded:
            others = _draw(random, case.recorded, spread, own, before)
            known = Recorded(*others.spread_between(), float(STEPS))
        found = measure_difference(base, head, known, Assumed(assume_noise(NAMES)))
        _grade_pair(claims, found, float(np.exp(base.center[0])), changed, change)
    return claims


def _grade_pair(claims: Claims, found: Difference, base_ns: float, changed: str, change: float) -> None:
    halves, seen = found.half(), found.change
    margin = log1p(MARGIN_SHARE)
    of_step = Measured(
        float(seen[0]),
        float(halves[0]),
        abs(seen[0]) > margin,
        bool(find_sure(found)[0]),
        bool(found.is_assumed[0]),
    )
    grade = grade_step(of_step, margin)
    if grade is not None:
        claims["step", grade].append(seen[0] * change > 0)
    whole = float(np.expm1(seen[0])) * base_ns
    first = 1 + len(Wall)
    rows = _grade_rows(found, halves, first, StepClaim(whole, grade))
    for cause, of_cause in rows.items():
        if of_cause is not None:
            delta = float(seen[first + CAUSES.index(cause)])
            claims["causes", of_cause].append(cause == changed and delta * change > 0)
    along = {cause: float(seen[first + at]) * np.sign(whole) for at, cause in enumerate(CAUSES)}
    leading = max(along, key=lambda cause: along[cause])
    if (of_first := rows[leading]) is not None and grade in {Grade.SURE, Grade.LIKELY}:
        claims["first cause", of_first].append(leading == changed and change != 0)


def _grade_rows(found: Difference, halves: Floats, first: int, step: StepClaim) -> dict[str, Grade | None]:
    significant = find_significant(found.chance()[first:])
    surely = find_sure(found)[first:]
    return {
        cause: grade_part(
            Measured(
                float(found.change[first + at]),
                float(halves[first + at]),
                bool(significant[at]),
                bool(surely[at]),
                bool(found.is_assumed[first + at]),
            ),
            step,
        )
        for at, cause in enumerate(CAUSES)
    }


def tabulate(pairs: int) -> str:
    """Return the table of the docs."""
    lines = [
        (
            f"Each row has {pairs:,} pairs. Runs differ by 0.3 to 2 %, and the causes that are not compute by"
            " 1 to 6 % more. In half of the pairs, one cause changes the step by -5 to +15 %."
        ),
        "",
        "| runs per side | claim | sure: right | likely: right | possible: right |",
        "|---|---|---:|---:|---:|",
    ]
    every: Claims = defaultdict(list)
    for case in CASES:
        claims = grade_pairs(case, pairs)
        lines += _tabulate_claims(str(case), claims)
        for key, rights in claims.items():
            every[key] += rights
    return "\n".join([*lines, *_tabulate_claims("all", every), ""])


def _tabulate_claims(name: str, claims: Claims) -> list[str]:
    return [
        f"| {name} | {claim} | {' | '.join(_write(claims.get((claim, grade), [])) for grade in Grade)} |"
        for claim in ("step", "causes", "first cause")
    ]


def _write(rights: Sequence[bool]) -> str:
    if not rights:
        return "none"
    share = float(np.mean(rights))
    low, high = Rate("", (0, 0), Setting(1), WHOLE, 0.0, "", share, len(rights), is_known=True).interval
    return f"{100 * share:.0f} % ({100 * low:.0f} … {100 * high:.0f}) of {len(rights):,}"


def main() -> None:
    """Print the table, or write it into a page."""
    parser = argparse.ArgumentParser(description="How often graded claims of wallscope diff are right.")
    parser.add_argument("--pairs", type=int, default=2_000)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    put(options.write, "grades", tabulate(options.pairs))


if __name__ == "__main__":
    main()
