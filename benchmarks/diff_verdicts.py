"""How often `wallscope diff` is wrong: simulated pairs of captures, with published seeds.

    python -m benchmarks.diff_verdicts --pairs 2000 --jobs 2 --write docs/diff.md

Each pair is two sides drawn from the same program, one of them slowed by a known share; the verdict of the
comparison is counted. The same arguments give the same table.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from math import log, sqrt
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt

from wallscope.compare.compare import decide_verdict
from wallscope.compare.confidence import Noise, Spread, combine_sides, spread_of_steps

SEED = 20_260_721
STEP_NS = 100_000_000
MARGIN, MARGIN_NS = 0.02, 10_000
OFFSET = 0.02
BEGIN, END = "<!-- verdicts -->", "<!-- end of verdicts -->"
Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Program:
    """How the steps of a run vary.

    Attributes:
        name: as the table says it.
        correlation: of neighbouring steps.
        offset: standard deviation between runs, as a share.
        off: how far a run may be off, evenly, as a share.
        slow: how much longer every fifth step lasts.
        runs: a side.
        recorded: whether the noise between runs is known from records.
    """

    name: str
    correlation: float = 0.0
    offset: float = 0.0
    off: float = 0.0
    slow: float = 0.0
    runs: int = 1
    recorded: bool = False


PROGRAMS = (
    Program("independent"),
    Program("neighbours correlated 0.3", correlation=0.3),
    Program("neighbours correlated 0.6", correlation=0.6),
    Program("neighbours correlated 0.8", correlation=0.8),
    Program("every fifth step 1.5x", slow=0.5),
    Program("runs off by up to 2 %, one a side", off=OFFSET),
    Program("runs differ 2 %, one a side, recorded", offset=OFFSET, recorded=True),
    Program("runs differ 2 %, 3 a side", offset=OFFSET, runs=3),
    Program("runs differ 2 %, 5 a side", offset=OFFSET, runs=5),
)
UNKNOWABLE = (Program("runs differ 2 %, one a side, unrecorded", offset=OFFSET),)
JITTERS = (0.01, 0.05, 0.15)
STEPS = (10, 20, 40)
POWER = ((1.05, 0.02, 20), (1.10, 0.05, 20))


def steps(program: Program, count: int, jitter: float, random: np.random.Generator) -> Times:
    """The steps of one run, in ns."""
    drawn = random.standard_normal(count)
    if program.correlation:
        drawn[0] = random.standard_normal()
        rest = sqrt(1 - program.correlation**2)
        for step in range(1, count):
            drawn[step] = program.correlation * drawn[step - 1] + rest * drawn[step]
    off = program.offset * random.standard_normal() + random.uniform(-program.off, program.off)
    length_ns = STEP_NS * np.exp(jitter * drawn + off)
    if program.slow:
        length_ns[random.integers(5) :: 5] *= 1 + program.slow
    return np.round(length_ns).astype(np.int64)


def side(
    program: Program, count: int, jitter: float, factor: float, random: np.random.Generator
) -> list[Spread]:
    """What a comparison knows of the runs of a side."""
    nothing = np.empty((count, 0), np.int64)
    return [
        spread_of_steps(np.round(steps(program, count, jitter, random) * factor).astype(np.int64), nothing)
        for _ in range(program.runs)
    ]


def verdicts(program: Program, count: int, jitter: float, factor: float, pairs: int) -> dict[str, float]:
    """Shares of the verdicts over many pairs whose head is slowed by a factor."""
    name = f"{program.name}/{count}/{jitter}/{factor}"
    random = np.random.default_rng([SEED, crc32(name.encode())])
    known = Noise(program.offset, 9.0) if program.recorded else None
    counted: dict[str, float] = {}
    for _ in range(pairs):
        base = side(program, count, jitter, 1.0, random)
        head = side(program, count, jitter, factor, random)
        both = combine_sides(base, head, (known, known))
        change = float(both.head.mean[0] - both.base.mean[0])
        verdict = decide_verdict(change, (both.half(), both.likeness), STEP_NS, log(1 + MARGIN), MARGIN_NS)
        counted[verdict] = counted.get(verdict, 0.0) + 1 / pairs
    return counted


def rows(program: Program, pairs: int) -> list[str]:
    """The rows of the table for one program."""
    lines = []
    for jitter in JITTERS:
        wrong = [verdicts(program, count, jitter, 1.0, pairs) for count in STEPS]
        found = [verdicts(program, 20, jitter, factor, pairs) for factor in (1.05, 1.10)]
        shown = [f"{100 * shares.get('regression', 0.0):.1f} %" for shares in (*wrong, *found)]
        lines.append(f"| {program.name} | {100 * jitter:.0f} % | {' | '.join(shown)} |")
    return lines


def table(pairs: int, jobs: int) -> str:
    """The table of the docs: false regressions without a change, and how often slowdowns are found."""
    head = f"| steps vary | jitter | {' | '.join(f'{count} steps' for count in STEPS)}"
    with ProcessPoolExecutor(jobs) as pool:
        found = list(pool.map(rows, (*PROGRAMS, *UNKNOWABLE), repeat(pairs)))
    asked = [
        f"{100 * (factor - 1):.0f} % slower at {100 * jitter:.0f} % jitter and {count} steps:"
        f" {100 * verdicts(PROGRAMS[0], count, jitter, factor, pairs).get('regression', 0.0):.1f} % found"
        for factor, jitter, count in POWER
    ]
    return "\n".join(
        [
            f"{pairs:,} pairs a cell. Independent steps, {'; '.join(asked)}.",
            "",
            f"{head} | 5 % slower found | 10 % slower found |",
            "|---|---:|---:|---:|---:|---:|---:|",
            *(line for lines in found for line in lines),
            "",
        ]
    )


def written(text: str, found: str) -> str:
    """The page with the table between its marks replaced."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{found}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    """Print the table, or write it into a page."""
    parser = argparse.ArgumentParser(description="How often wallscope diff is wrong.")
    parser.add_argument("--pairs", type=int, default=2_000)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    found = table(options.pairs, options.jobs)
    if options.write is None:
        sys.stdout.write(found)
    else:
        options.write.write_text(written(options.write.read_text(encoding="utf-8"), found), encoding="utf-8")


if __name__ == "__main__":
    main()
