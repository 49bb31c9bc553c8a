"""What recorded runs of one testbed differ by, while nothing changed."""

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import sqrt
from statistics import median

from wallscope.model.record import Noise, Record, RecordedNoise, Testbed
from wallscope.thresholds.comparison import OUTLYING_DEVIATIONS_COUNT
from wallscope.thresholds.noise import FEWEST_DEGREES_OF_NOISE_COUNT, FEWEST_NEIGHBORS_COUNT

_NORMAL_DEVIATION = 1.4826  # one deviation in medians of the absolute difference


def run_noise(records: Iterable[Record], testbed: Testbed) -> RecordedNoise | None:
    """Return what runs of a testbed differ by: the step, each wall and each cause, relative to itself.

    Runs of one commit measure it. Where these are too few, so do differences between neighboring commits, as
    far as no change is among them. Runs of pull requests do not count, nor do copies of a run.
    """
    by_commit: dict[str, list[Record]] = {}
    own = [one for one in records if one.is_reference and one.testbed == testbed]
    for record in sorted(drop_repetitions(own), key=lambda record: record.recorded_utc_ns):
        if record.representative.typical_ns > 0:
            by_commit.setdefault(record.commit, []).append(record)
    commits = [[_times(record) for record in runs] for runs in by_commit.values()]
    names = sorted({name for runs in commits for times in runs for name in times})
    found = {name: _noise([[times.get(name, 0) for times in runs] for runs in commits]) for name in names}
    known = {name: noise for name, noise in found.items() if noise.freedom > 0}
    if "step" not in known:
        return None
    steps = [record.representative.steps for runs in by_commit.values() for record in runs]
    return RecordedNoise(known, sum(steps) / len(steps))


def drop_repetitions(records: Iterable[Record], *, is_within_commit: bool = False) -> list[Record]:
    """Return records without those of a run that is recorded already, under another name or commit.

    All times of all ranks are the same to the ns. `is_within_commit` keeps one of each commit.
    """
    kept: dict[str, Record] = {}
    for record in records:
        commit = record.commit if is_within_commit else ""
        times = [[rank.typical_ns, *sorted(rank.causes.items())] for rank in record.ranks]
        kept.setdefault(json.dumps([commit, str(record.testbed), record.origin, times]), record)
    return list(kept.values())


def _times(record: Record) -> dict[str, int]:
    """Return the times of a run by step, wall and cause."""
    found = {"step": record.representative.typical_ns}
    for cause, time_ns in record.representative.causes.items():
        wall = cause.partition("/")[0]
        found[wall] = found.get(wall, 0) + time_ns
        found[cause] = time_ns
    return found


def _noise(commits: Sequence[Sequence[int]]) -> Noise:
    """Return relative noise of runs, given by commit, in the order of time."""
    squares, freedom = 0.0, 0.0
    for times in commits:
        mean = sum(times) / len(times)
        if len(times) > 1 and mean > 0:
            squares += sum((time / mean - 1) ** 2 for time in times)
            freedom += len(times) - 1
    if freedom < FEWEST_DEGREES_OF_NOISE_COUNT:
        more = _noise_of_neighbors([sum(times) / len(times) for times in commits])
        squares += more.deviation**2 * more.freedom
        freedom += more.freedom
    return Noise(sqrt(squares / freedom) if freedom else 0.0, freedom)


def _noise_of_neighbors(times: Sequence[float]) -> Noise:
    """Return noise from the relative differences of neighbors, without those that may be changes.

    Half the mean square of differences is the variance, also under slow drift (von Neumann 1941). Each value
    is in two differences, so they have about two thirds as many degrees of freedom.
    """
    apart = sorted(
        abs(after - before) / ((after + before) / 2)
        for before, after in pairwise(times)
        if after + before > 0
    )
    if len(apart) < FEWEST_NEIGHBORS_COUNT:
        return Noise(0.0, 0.0)
    limit = OUTLYING_DEVIATIONS_COUNT * _NORMAL_DEVIATION * median(apart)
    kept = [one for one in apart if one <= limit]
    return Noise(sqrt(sum(one**2 for one in kept) / (2 * len(kept))), 2 * len(kept) / 3)
