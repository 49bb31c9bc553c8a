"""How often simulated programs are diagnosed rightly: verdicts, walls and upper bounds against the truth.

python -m benchmarks.accuracy --programs 200 --threads 100 --into docs/accuracy.md
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np

from benchmarks.marks import put
from fixtures.simulation.judged import Judged, Judgement, judged
from fixtures.simulation.random_threads import random_threads

_NAME, _NAME_OF_THREADS = "simulation", "threads"
_HEADER = (
    "| variant of the export | ranks | right verdicts | time with a wrong wall: median | 95th percentile"
    " | worst | unknown time: 95th percentile | upper bounds | error: median | 95th percentile | worst"
    " | more than 1 % below the gain |"
)
_SEED = 46002
"""No limit was chosen by the programs that are drawn with it."""
_CLEARANCE = 0.005
"""Verdicts nearer to a threshold than this share of the step may go either way by rounding."""
_LOW_SHARE = 0.01
"""Bounds that are less than the true gain by more than this share of the step are counted."""


def table(programs: int, seed: int) -> list[str]:
    """The programs as exports with and without event records, and with noise, as lines of a table."""
    seeds = Random(seed).sample(range(1_000_000), programs)  # noqa: S311  # programs to try, no keys
    title = f"{programs:,} random programs, drawn with seed {seed}."
    return _list_rows(title, judged(seeds), judged(seeds, noisy=True))


def table_of_threads(programs: int, seed: int) -> list[str]:
    """Programs of two or three threads that share a lock, with and without noise, as lines of a table."""
    seeds = Random(seed).sample(range(1_000_000), programs)  # noqa: S311  # programs to try, no keys
    plain, noisy = (judged(seeds, noisy=one, make=random_threads) for one in (False, True))
    title = f"{programs:,} random programs with two or three threads, drawn with seed {seed}."
    return _list_rows(title, plain, noisy)


def _list_rows(title: str, plain: Judgement, noisy: Judgement) -> list[str]:
    return [
        title,
        "",
        _HEADER,
        f"|---{'|---:' * 11}|",
        _row("with event records", plain.with_events, _CLEARANCE),
        _row("without event records", plain.without_events, _CLEARANCE),
        _row("noise, with event records", noisy.with_events, 2 * _CLEARANCE),
        _row("noise, without event records", noisy.without_events, 2 * _CLEARANCE),
        "",
    ]


def _row(name: str, ranks: Sequence[Judged], clearance: float) -> str:
    clear = [rank for rank in ranks if rank.truth.clearance >= clearance]
    right = sum(rank.dominant == rank.truth.dominant for rank in clear)
    walls = _spread([rank.wrong_share for rank in ranks])
    unknown = _write_share(float(np.percentile([rank.wall_error - rank.wrong_share for rank in ranks], 95)))
    excess = [
        removal.recoverable - removal.won
        for rank in ranks
        for removal in rank.removals
        if removal.recoverable is not None
    ]
    low, sizes = sum(one < -_LOW_SHARE for one in excess), [abs(one) for one in excess]
    errors = f"{len(excess)} | {_spread(sizes)} | {low}" if excess else "not compared | | | |"
    return f"| {name} | {len(ranks)} | {right} of {len(clear)} | {walls} | {unknown} | {errors} |"


def _spread(shares: Sequence[float]) -> str:
    return " | ".join(map(_write_share, np.percentile(shares, [50, 95, 100]).tolist()))


def _write_share(share: float) -> str:
    return f"{share:.2%}".replace("%", " %")


def main() -> None:
    """Write the table into a page, or print it."""
    parser = argparse.ArgumentParser(description="Diagnoses of simulated programs, against the truth.")
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--threads", type=int, default=100, help="programs with several threads")
    parser.add_argument("--seed", type=int, default=_SEED, help="programs are drawn with it")
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    if options.programs:
        put(options.into, _NAME, "\n".join(table(options.programs, options.seed)))
    if options.threads:
        put(options.into, _NAME_OF_THREADS, "\n".join(table_of_threads(options.threads, options.seed)))


if __name__ == "__main__":
    main()
