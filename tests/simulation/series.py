"""Series of commits of one simulated program, and what comparisons recognize in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from fixtures.simulation.noise import add_noise
from fixtures.simulation.program import Action, HostThread, Program, stepped
from fixtures.simulation.run import run
from fixtures.simulation.writing import write_run
from wallscope.compare.compare import CompareOptions, Side, compare_sides
from wallscope.jobs.inputs import resolve_runs
from wallscope.model.capture import Options

MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Series:
    """A step, the step with a fix, and the ids of recommendations that it may be."""

    name: str
    before: Sequence[Action]
    after: Sequence[Action]
    fixes: frozenset[str]


def record_run(folder: Path, actions: Sequence[Action], seed: int, steps: int = 14) -> Side:
    """A run of a program of these steps, with the noise of a seed."""
    program = Program(((HostThread("python", stepped(steps, lambda _: actions)),),))
    path = folder / f"{seed}.sqlite"
    write_run(run(add_noise(program, seed)), path)
    return Side(path.name, resolve_runs((path,), Options(), lambda _: None))


def recognize(base: Side, head: Side) -> list[str]:
    """The recommendations that head has applied."""
    return [one.id for one in compare_sides(base, head, CompareOptions()).applied]


def recognize_series(series: Series, folder: Path, seed: int) -> list[list[str]]:
    """What is recognized before, at and after the commit with the fix; seeds count on from the first."""
    steps = (series.before, series.before, series.after, series.after)
    commits = [record_run(folder, actions, seed + place) for place, actions in enumerate(steps)]
    return [recognize(base, head) for base, head in pairwise(commits)]
