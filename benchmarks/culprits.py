"""Measure what is said to hold planted jobs up: which unit first, which innocent ones, and how much it saves.

    python -m benchmarks.culprits --seeds 20 --into docs/accuracy.md
    python -m benchmarks.culprits --large --first 1000 --seeds 20 --into docs/accuracy.md

The jobs come from `fixtures.planted_jobs`; the truth of a fault is the same job played without it.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.marks import put
from fixtures.planted_jobs import KINDS, Layout, PlantedJob, draw_fault, suits
from wallscope.ranks.job import match_ranks
from wallscope.summary.diagnosis import find_dominant_wall

LAYOUTS = {
    "data-parallel, 4 ranks": Layout(data=4, gpus_per_node=2),
    "data-parallel, 8 ranks": Layout(data=8),
    "TP 2, DP 4": Layout(tensor=2, data=4),
    "EP 4, DP 8": Layout(expert=4, data=8),
    "PP 2, DP 4, 1F1B": Layout(pipeline=2, data=4, micro_batches=6, is_grouped=True),
    "PP 4, DP 2, 1F1B, sends overlap compute": Layout(pipeline=4, data=2, micro_batches=8),
    "PP 2, EP 2, DP 4, interleaved": Layout(
        pipeline=2, expert=2, data=4, virtual=2, micro_batches=4, layers=1
    ),
    "TP 2, PP 2, EP 2, DP 4": Layout(
        tensor=2, pipeline=2, expert=2, data=4, micro_batches=4, is_grouped=True
    ),
    "TP 2, PP 4, DP 1, 5 steps": Layout(tensor=2, pipeline=4, data=1, steps=5, is_grouped=True),
    "TP 4, EP 2, DP 4": Layout(tensor=4, expert=2, data=4, steps=6, micro_batches=2),
    "PP 4, EP 2, DP 4, 1F1B, 5 steps": Layout(
        pipeline=4, expert=2, data=4, steps=5, micro_batches=4, is_grouped=True
    ),
    "PP 4, DP 2, interleaved, 5 steps": Layout(
        pipeline=4, data=2, virtual=2, micro_batches=8, layers=1, steps=5
    ),
    "TP 2, PP 4, DP 4, interleaved": Layout(
        tensor=2, pipeline=4, data=4, virtual=2, micro_batches=4, layers=1, steps=5, gpus_per_node=8
    ),
    "TP 2, PP 2, EP 4, DP 16": Layout(
        tensor=2, pipeline=2, expert=4, data=16, micro_batches=2, is_grouped=True, gpus_per_node=8, layers=1
    ),
}
LARGE = {
    "TP 2, PP 4, DP 4, interleaved": LAYOUTS["TP 2, PP 4, DP 4, interleaved"],
    "TP 2, PP 2, EP 4, DP 16": LAYOUTS["TP 2, PP 2, EP 4, DP 16"],
    "TP 4, EP 4, DP 8": Layout(
        tensor=4, expert=4, data=8, steps=6, micro_batches=2, layers=1, gpus_per_node=8
    ),
    "PP 4, EP 4, DP 8, 1F1B": Layout(
        pipeline=4, expert=4, data=8, steps=5, micro_batches=4, layers=1, is_grouped=True, gpus_per_node=8
    ),
}
"""Jobs of 32 to 64 ranks: each seed takes one of them in turn, with payloads or names alone."""
ALL_LAYOUTS = LAYOUTS | LARGE
NOTABLE_SHARE, CLOSE_SHARE = 0.015, 0.1
"""Of the step that a fault costs, to be asked for; of its cost that an amount may be wrong."""


@dataclass(frozen=True)
class Judged:
    """What was right of one job; amounts are those of planted units that are named."""

    layout: str
    kind: str
    seed: int
    has_payloads: bool
    is_asked: bool
    is_first: bool
    is_accused: bool
    amounts: int
    close: int


def judge_job(kind: str, name: str, seed: int, *, has_payloads: bool) -> Judged:
    """Plant a fault of a kind in a job of a layout, and compare what is said with the job without it."""
    layout = ALL_LAYOUTS[name]
    rng = np.random.default_rng((seed, KINDS.index(kind)))
    planted = PlantedJob(layout, draw_fault(kind, layout, rng), seed, has_payloads)
    job = match_ranks(planted.profiles(), find_dominant_wall).job
    named = {(str(one.unit), one.places): one.saved_ns for one in job.stragglers}
    step_ns, chain = planted.measure_step_ns(planted.ranks), planted.measure_chain(list(named))
    gains_ns = {fault.named: gain_ns for fault, gain_ns in chain}
    notable = {unit: gain_ns for unit, gain_ns in gains_ns.items() if gain_ns >= NOTABLE_SHARE * step_ns}
    right = [unit for unit in named if unit in notable]
    return Judged(
        name,
        kind,
        seed,
        has_payloads,
        is_asked=bool(notable),
        is_first=bool(notable) and next(iter(named), None) in gains_ns,
        is_accused=any(unit not in gains_ns for unit in named),
        amounts=len(right),
        close=sum(abs(named[unit] - gains_ns[unit]) <= CLOSE_SHARE * gains_ns[unit] for unit in right),
    )


Asked = tuple[str, str, int, bool]
"""A job to judge: its layout, kind of fault and seed, and whether it has payloads."""


def list_jobs(
    seeds: Sequence[int], kinds: Sequence[str] = KINDS, layouts: Sequence[str] = tuple(LAYOUTS)
) -> Iterator[Asked]:
    """List a job of each kind, layout and seed; every second one has names alone."""
    for name in layouts:
        for kind in kinds:
            if suits(kind, LAYOUTS[name]):
                for seed in seeds:
                    yield name, kind, seed, seed % 2 == 0


def list_large_jobs(seeds: Sequence[int]) -> Iterator[Asked]:
    """List a large job of each kind and seed."""
    for seed in seeds:
        name = list(LARGE)[seed % len(LARGE)]
        for kind in KINDS:
            if suits(kind, LARGE[name]):
                yield name, kind, seed, seed // len(LARGE) % 2 == 0


def judge_jobs(asked: Iterable[Asked], journal: Path | None = None) -> Iterator[Judged]:
    """Judge jobs; those that a journal holds are read from it, and the others are added to it."""
    lines = journal.read_text(encoding="utf-8").splitlines() if journal and journal.exists() else []
    known = [Judged(**json.loads(line)) for line in lines]
    done = {(one.layout, one.kind, one.seed, one.has_payloads): one for one in known}
    for name, kind, seed, has_payloads in asked:
        one = done.get((name, kind, seed, has_payloads))
        if one is None:
            one = judge_job(kind, name, seed, has_payloads=has_payloads)
            if journal:
                with journal.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(one)) + "\n")
        yield one


def tabulate(judged: Sequence[Judged]) -> str:
    """Return the table of the page: a row for each kind of fault, and the sums."""
    lines = [
        "| fault | jobs | right unit first | jobs that name an innocent unit | amounts within 10 % |",
        "|---|---:|---:|---:|---:|",
    ]
    rows: list[tuple[str, Sequence[Judged]]] = [
        (kind, own) for kind in KINDS if (own := [one for one in judged if one.kind == kind])
    ]
    rows += [
        ("**all, with payloads**", [one for one in judged if one.has_payloads]),
        ("**all, names alone**", [one for one in judged if not one.has_payloads]),
    ]
    for name, shown in rows:
        sums: Counter[str] = Counter()
        for one in shown:
            sums.update(asked=int(one.is_asked), first=int(one.is_first), accused=int(one.is_accused))
            sums.update(amounts=one.amounts, close=one.close)
        first = f"{sums['first']} of {sums['asked']}" if sums["asked"] else "–"  # noqa: RUF001  # a dash
        close = f"{sums['close']} of {sums['amounts']}" if sums["amounts"] else "–"  # noqa: RUF001  # same
        lines.append(f"| {name} | {len(shown)} | {first} | {sums['accused']} | {close} |")
    return "\n".join(lines)


def main() -> None:
    """Judge all jobs and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--large", action="store_true", help="jobs of 32 to 64 ranks")
    parser.add_argument("--into", type=Path)
    parser.add_argument("--journal", type=Path, help="keeps each result, so that a stopped run goes on")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    judged = []
    for one in judge_jobs(list_large_jobs(seeds) if given.large else list_jobs(seeds), given.journal):
        judged.append(one)
        if one.is_accused or one.is_first < one.is_asked or one.close < one.amounts:
            sys.stderr.write(f"{one}\n")
    name = "large-culprits" if given.large else "culprits"
    told = f"{len(judged)} jobs, seeds {seeds[0]} to {seeds[-1]}."
    put(given.into, name, f"{told}\n\n{tabulate(judged)}\n")


if __name__ == "__main__":
    main()
