"""Digests of what wallscope writes, compared with a stored baseline: a refactoring changes none of them.

    python -m tests.digests                               compare everything
    python -m tests.digests --only 'story*' --kinds json  compare some
    python -m tests.digests --keep DIR                    also write the outputs, to compare two trees
    python -m tests.digests --write                       store the baseline

Inputs are the real exports of ../shared/traces, the shipped example, the scenarios, the stories of the
simulator and small jobs. Each is given to the commands of the command line, which run in this process or in
those of a pool, without the cache. A digest is the SHA-256 of one kind of output of one input. What depends
on the machine is left out: folders, and compressed bytes (their content counts).

Only the command line and `fixtures` are used, so the script is the same before and after modules move.
"""

import argparse
import fnmatch
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from tests.digests.digesting import digested, prepare
from tests.digests.inputs import inputs
from tests.digests.outputs import KINDS

BASELINE = Path(__file__).with_name("baseline.tsv")


def all_digests(
    wanted: dict[str, tuple[str, ...]], jobs: int, keep: Path | None
) -> Iterator[tuple[str, dict[str, str]]]:
    """Digests by kind of each input, as they are made; the largest inputs are begun first."""
    order = sorted(wanted, key=lambda name: (-inputs()[name].size_bytes, name))
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=prepare) as pool:
        tasks = [pool.submit(digested, name, wanted[name], keep) for name in order]
        for count, task in enumerate(as_completed(tasks), 1):
            name, digests, took_s = task.result()
            sys.stderr.write(f"{count}/{len(order)}  {took_s:5.1f} s  {name}\n")
            yield name, digests


def read_baseline() -> dict[tuple[str, str], str]:
    lines = BASELINE.read_text(encoding="utf-8").splitlines() if BASELINE.exists() else []
    return {(name, kind): value for name, kind, value in (line.split("\t") for line in lines)}


def write_baseline(digests: dict[tuple[str, str], str]) -> None:
    text = "".join(f"{name}\t{kind}\t{value}\n" for (name, kind), value in sorted(digests.items()))
    BASELINE.write_text(text, encoding="utf-8")


def main() -> None:
    """Compare digests with the baseline, or store them there."""
    parser = argparse.ArgumentParser("python -m tests.digests", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", metavar="PATTERN", action="append", help="inputs, as 'story/*'; repeatable")
    parser.add_argument("--kinds", metavar="KIND,…", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write the outputs there")
    parser.add_argument("--write", action="store_true", help="store the digests as the baseline")
    parser.add_argument("--list", action="store_true", help="list the inputs")
    options = parser.parse_args()
    patterns = options.only or ["*"]
    kinds = tuple(KINDS) if options.kinds is None else tuple(options.kinds.split(","))
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"--kinds: {', '.join(sorted(unknown))}: none of {', '.join(KINDS)}")

    def asked(name: str, kind: str) -> bool:
        return kind in kinds and any(fnmatch.fnmatchcase(name, f"*{pattern}*") for pattern in patterns)

    wanted = {
        name: own
        for name, one in inputs().items()
        if (own := tuple(kind for kind in one.kinds if asked(name, kind)))
    }
    if options.list:
        sys.stdout.write("".join(f"{name}\n" for name in sorted(wanted)))
        return
    keep = None if options.keep is None else options.keep.absolute()
    stored = read_baseline()
    found: dict[tuple[str, str], str] = {}
    different = 0
    for name, digests in all_digests(wanted, options.jobs, keep):
        found |= {(name, kind): value for kind, value in digests.items()}
        for kind, value in digests.items():
            if not options.write and stored.get((name, kind)) != value:
                different += 1
                said = "different" if (name, kind) in stored else "not in the baseline"
                sys.stdout.write(f"{said}: {name}: {kind}\n")
                sys.stdout.flush()
    if options.write:
        write_baseline(stored | found)
        sys.stdout.write(f"{len(found)} digests of {len(wanted)} inputs stored in {BASELINE.name}\n")
        return
    absent = sorted({name for name, kind in stored if asked(name, kind)} - wanted.keys())
    for name in absent:
        sys.stdout.write(f"not compared, absent here: {name}\n")
    same = len(found) - different
    sys.stdout.write(f"{same} digests the same, {different} different, {len(absent)} inputs not compared\n")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
