"""How often `wallscope history` finds changes: simulated histories of 30 commits, with published seeds.

python -m benchmarks.change_points --histories 2000 --write docs/diff.md
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt

from benchmarks.diff_tables import Rate, Setting
from benchmarks.diff_verdicts import WHOLE
from benchmarks.marks import put
from wallscope.compare.change_points import Course, find_changes
from wallscope.model.enums import Grade

SEED = 20_261_124
COMMITS, STEP_NS, NEAR = 30, 1e8, 2
Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator], tuple[Floats, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class History:
    """A kind of history: relative times of commits without noise, and where they change.

    `has_drift` is whether they drift in addition.
    """

    name: str
    draw: Draw
    noise: float = 0.01
    has_drift: bool = False


def _none(_: np.random.Generator) -> tuple[Floats, tuple[int, ...]]:
    return np.ones(COMMITS), ()


def _step(size: float, first: int = 5) -> Draw:
    def draw(random: np.random.Generator) -> tuple[Floats, tuple[int, ...]]:
        at = int(random.integers(first, COMMITS - first + 1))
        return np.where(np.arange(COMMITS) >= at, 1 + size, 1.0), (at,)

    return draw


def _two(_: np.random.Generator) -> tuple[Floats, tuple[int, ...]]:
    place = np.arange(COMMITS)
    return 1 + 0.04 * (place >= 10) + 0.04 * (place >= 20), (10, 20)


def _drift(slope: float, step: float = 0.0) -> Draw:
    def draw(_: np.random.Generator) -> tuple[Floats, tuple[int, ...]]:
        place = np.arange(COMMITS)
        return (1 + slope) ** place * (1 + step * (place >= 12)), (12,) if step else ()

    return draw


HISTORIES = (
    History("no change, noise 1 %", _none),
    History("no change, noise 5 %", _none, noise=0.05),
    History("+3 %, at least five commits from an end", _step(0.03)),
    History("+3 %, anywhere", _step(0.03, first=1)),
    History("+5 %, anywhere", _step(0.05, first=1)),
    History("+4 % twice", _two),
    History("+0.3 % a commit", _drift(0.003), has_drift=True),
    History("+0.3 % a commit and +5 % once", _drift(0.003, 0.05), has_drift=True),
)


LAWS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "normal": lambda random, count: random.standard_normal(count),
    "skewed (exponential)": lambda random, count: random.exponential(size=count) - 1,
    "heavy tails (Student's, 3 degrees)": lambda random, count: random.standard_t(3, count) / sqrt(3),
}
SIZES, FEWEST, MOST = (0.03, 0.05, 0.1), 8, 60


@dataclass(frozen=True, slots=True)
class Claims:
    """Changes that were named, each with its grade and whether the stated range holds a true one.

    `is_sure_of_nothing` is whether a sure change was named, for each history without a change.
    """

    claims: tuple[tuple[Grade, bool], ...]
    is_sure_of_nothing: tuple[bool, ...]


def grade_claims(count: int) -> dict[str, Claims]:
    """Return what is claimed of so many histories without a change, and as many with one, by law of noise."""
    found = {}
    for law, draw in LAWS.items():
        random = np.random.default_rng([SEED, crc32(law.encode())])
        claims, is_sure = [], []
        for number in range(2 * count):
            commits = int(random.integers(FEWEST, MOST + 1))
            at = int(random.integers(1, commits)) if number >= count else None
            level = np.where(
                np.arange(commits) >= (commits if at is None else at), 1 + random.choice(SIZES), 1
            )
            course = find_changes(STEP_NS * level * (1 + 0.01 * draw(random, commits)), np.ones(commits))
            named = (*course.changes, *([] if course.suspected is None else [course.suspected]))
            claims += [(one.grade, at is not None and one.earliest <= at <= one.latest) for one in named]
            if at is None:
                is_sure.append(bool(course.changes))
        found[law] = Claims(tuple(claims), tuple(is_sure))
    return found


def tabulate_grades(count: int) -> list[str]:
    """Return how often claims of each grade are right."""
    lines = [
        (
            f"{count:,} histories of {FEWEST} to {MOST} commits without a change, and as many with one of"
            f" {', '.join(f'{100 * size:.0f}' for size in SIZES)} % at any commit, for each law of the noise"
            " (1 %). A claim is right if the stated range contains the commit."
        ),
        "",
        "| noise | sure without a change | sure claims right | likely claims right | possible claims right |",
        "|---|---:|---:|---:|---:|",
    ]
    found = grade_claims(count)
    for law, rows in found.items():
        cells = [_write_grade([rows], grade) for grade in Grade]
        lines.append(f"| {law} | {_write(rows.is_sure_of_nothing)} | {' | '.join(cells)} |")
    cells = [_write_grade([*found.values()], grade) for grade in Grade]
    of_nothing = [one for rows in found.values() for one in rows.is_sure_of_nothing]
    return [*lines, f"| all | {_write(of_nothing)} | {' | '.join(cells)} |"]


def _write_grade(found: Sequence[Claims], grade: Grade) -> str:
    rights = [is_right for rows in found for one, is_right in rows.claims if one == grade]
    return f"{_write(rights)} of {len(rights):,}"


ENDS = (1, 2, 3, 4, 5)
_NULL_HISTORIES = 20_000


def find_limit(*, is_known: bool, commits: int = COMMITS) -> float:
    """Return what `measure_largest` is in 1 % of histories without a change and with normal noise."""
    random = np.random.default_rng(SEED)
    drawn = random.standard_normal((_NULL_HISTORIES, commits))
    return float(np.quantile(measure_largest(drawn, is_known=is_known), 0.99))


def measure_largest(times: Floats, *, is_known: bool) -> Floats:
    """Return the largest difference of means before and after any commit, in standard errors; a row each.

    If the noise is known, it is 1. No test that keeps to its false alarms finds more then. Otherwise it is
    estimated from all commits of the history; a test that assumes that it is normal finds as much.
    """
    count = times.shape[1]
    before = np.arange(1, count)
    sums = np.cumsum(times, axis=1)
    apart = sums[:, :-1] / before - (sums[:, -1:] - sums[:, :-1]) / (count - before)
    found: Floats = np.abs(apart / np.sqrt(1 / before + 1 / (count - before))).max(axis=1)
    return found if is_known else found / times.std(axis=1)


def tabulate_ends(count: int) -> list[str]:
    """Return how often +3 % is found by its distance from an end, and how often at most."""
    lines = [
        "| commits from an end | found by `history` | by a test for normal noise | if the noise were known |",
        "|---|---:|---:|---:|",
    ]
    limits = [find_limit(is_known=is_known) for is_known in (False, True)]
    for end in ENDS:
        random = np.random.default_rng([SEED, end])
        level = np.where(np.arange(COMMITS) >= COMMITS - end, 1.03, 1.0)
        times = level * (1 + 0.01 * random.standard_normal((count, COMMITS)))
        found = [bool(find_changes(STEP_NS * row, np.ones(COMMITS)).changes) for row in times]
        normal, known = (
            (measure_largest((times - 1) / 0.01, is_known=is_known) > limit).tolist()
            for is_known, limit in zip((False, True), limits, strict=True)
        )
        lines.append(f"| {end} | {_write(found)} | {_write(normal)} | {_write(known)} |")
    return lines


def find_all(history: History, count: int) -> list[tuple[Course, tuple[int, ...]]]:
    """Return what is found in many histories, and where they change."""
    random = np.random.default_rng([SEED, crc32(history.name.encode())])
    found = []
    for _ in range(count):
        level, places = history.draw(random)
        times = STEP_NS * level * (1 + history.noise * random.standard_normal(COMMITS))
        found.append((find_changes(times, np.ones(COMMITS)), places))
    return found


def is_near(course: Course, places: Sequence[int]) -> bool:
    """Return whether a change is found within two commits of each place."""
    return all(any(abs(one.at - place) <= NEAR for one in course.changes) for place in places)


def tabulate(count: int) -> str:
    """Return the table of the docs."""
    lines = [
        (
            f"Each row is measured on {count:,} simulated histories of {COMMITS} commits, with one run per"
            " commit. Brackets contain 95 % intervals."
        ),
        "",
        "| history | change found | at most two commits away | stated range contains it | drift found |",
        "|---|---:|---:|---:|---:|",
    ]
    for history in HISTORIES:
        found = find_all(history, count)
        has_place = bool(found[0][1])
        covered = [
            all(any(one.earliest <= place <= one.latest for one in course.changes) for place in places)
            for course, places in found
        ]
        cells = [
            _write([bool(course.changes) for course, _ in found]),
            _write([is_near(course, places) for course, places in found]) if has_place else "",
            _write(covered) if has_place else "",
            _write([course.drift is not None for course, _ in found]),
        ]
        lines.append(f"| {history.name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *tabulate_ends(count // 2), "", *tabulate_grades(count), ""])


def _write(held: Sequence[bool]) -> str:
    share = float(np.mean(held))
    low, high = Rate("", (0, 0), Setting(1), WHOLE, 0.0, "", share, len(held), is_known=True).interval
    return f"{100 * share:.1f} % ({100 * low:.1f} … {100 * high:.1f})"


def main() -> None:
    """Print the table, or write it into a page."""
    parser = argparse.ArgumentParser(description="How often wallscope history finds changes.")
    parser.add_argument("--histories", type=int, default=2_000)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    found = tabulate(options.histories)
    put(options.write, "changes", found)


if __name__ == "__main__":
    main()
