"""Tables of how often comparisons are wrong, and which cells fail for which reason."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import comb, sqrt
from pathlib import Path

import numpy as np

from benchmarks.noise_laws import KEPT_LAWS, LAWS, OTHER_LAWS, WALLS
from wallscope.thresholds.noise import FEWEST_DEGREES_OF_NOISE_COUNT

COVERED, WRONG = (0.93, 0.98), 0.05
_HELD = 0.95


@dataclass(frozen=True, slots=True)
class Setting:
    """How many runs each side has, and whether other runs are recorded.

    `head` is 0 where both sides have as many.
    """

    runs: int
    is_recorded: bool = False
    head: int = 0

    def __str__(self) -> str:
        head = f" and {self.head}" if self.head else ""
        return f"{self.runs}{head}{', recorded' if self.is_recorded else ''}"

    @property
    def sides(self) -> tuple[int, int]:
        """Return how many runs base and head have."""
        return self.runs, self.head or self.runs

    @property
    def is_measured(self) -> bool:
        """Whether records or the runs have enough degrees of freedom to measure what runs differ by."""
        return self.is_recorded or sum(self.sides) - 2 >= FEWEST_DEGREES_OF_NOISE_COUNT


SETTINGS = (
    Setting(1),
    Setting(1, is_recorded=True),
    Setting(2),
    Setting(2, is_recorded=True),
    Setting(3),
    Setting(5),
    Setting(10),
    Setting(1, head=3),
    Setting(2, head=5),
)


@dataclass(frozen=True, slots=True)
class Rate:
    """How often something was so in the pairs of one cell.

    `of` is what was counted; `is_known` is whether runs differ by no more than is recorded, seen or assumed.
    `may_rest` is whether a run may rest at one of two levels that are further apart than is assumed,
    `as_assumed` whether runs differ by as much as is assumed, and not by less.
    """

    law: str
    steps: tuple[int, int]
    setting: Setting
    varies: str
    offset: float
    of: str
    share: float
    pairs: int
    is_known: bool
    may_rest: bool = False
    as_assumed: bool = False

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the share (Wilson 1927)."""
        return _limits(self.share, self.pairs)

    @property
    def is_coverage(self) -> bool:
        """Whether it is a coverage, else a share of wrong claims."""
        return self.of.startswith("interval")

    @property
    def is_single(self) -> bool:
        """Whether it is the coverage of one interval a pair, of the step or of a wall."""
        return self.is_coverage and not self.of.startswith("interval of causes")

    @property
    def kind(self) -> str:
        """Return what it is about, without a name."""
        if self.is_coverage:
            of = "step" if self.of.endswith("step") else "walls" if self.is_single else "causes"
            return f"interval of {of}"
        return "false claim of any cause" if "claim" in self.of else self.of


def summarize(
    rates: Sequence[Rate], power: tuple[Sequence[float], Sequence[float]], more: Sequence[str]
) -> str:
    """Return the tables of the docs.

    Args:
        rates: of all cells.
        power: how often a slower step is found in each setting, and the same if both sides warm up.
        more: lines of further tables.
    """
    settings = [
        ((str(setting),), [rate for rate in rates if rate.setting == setting]) for setting in SETTINGS
    ]
    laws = [
        ((law.title or law.name, str(group)), [rate for rate in rates if rate.law == law.name])
        for group, part in enumerate((LAWS, OTHER_LAWS, KEPT_LAWS), 1)
        for law in part
    ]
    pairs = " or ".join(f"{count:,}" for count in sorted({rate.pairs for rate in rates}))
    return "\n".join(
        [
            f"Each cell has {pairs} pairs of runs.",
            "",
            *_tabulate_classes(rates),
            "",
            _describe_chance(rates),
            "",
            _COLUMNS,
            "",
            *_tabulate(("runs per side",), settings),
            "",
            *_tabulate(("steps vary", "group"), laws),
            "",
            *_tabulate_power_of_settings(*power),
            "",
            *more,
            "",
        ]
    )


_COLUMNS = (
    "All values of the next two tables are in percent. Coverages have the mean, the lowest and the highest"
    " cell. False claims have the mean, and the largest share of a cell with its 95 % interval."
)


def _tabulate_power_of_settings(found: Sequence[float], warming: Sequence[float]) -> Iterator[str]:
    yield "A step that is 5 % slower is found (runs of 20 steps, noise of runs 1 %):"
    yield ""
    yield "| runs per side | found | found if both sides warm up by 10 % |"
    yield "|---|---:|---:|"
    for setting, *shares in zip(SETTINGS, found, warming, strict=False):
        yield f"| {setting} | {' | '.join(f'{100 * share:.0f} %' for share in shares)} |"


MEASURED = "noise measured"
AT_MOST = "noise assumed, and runs differ by at most the assumed noise"
RESTING = "noise assumed, and clock levels differ by more than the assumed noise"
MORE = "noise assumed, and runs differ by more than the assumed noise"
CLASSES = (MEASURED, AT_MOST, RESTING, MORE)


def is_outside(rate: Rate) -> bool:
    """Whether a rate is surely wrong: a coverage too low, or a share of wrong claims too high."""
    low, high = rate.interval
    return high < COVERED[0] if rate.is_coverage else low > WRONG


def choose_again(rates: Iterable[Rate]) -> list[Rate]:
    """Return rates to measure again with more pairs: those outside, and the worst of each class and kind."""
    groups: dict[tuple[str, str], list[Rate]] = {}
    for rate in rates:
        if rate.is_known:
            groups.setdefault((classify(rate), rate.kind), []).append(rate)
    chosen = []
    for own in groups.values():
        own.sort(key=lambda rate: rate.share if rate.is_coverage else -rate.share)
        chosen += [rate for place, rate in enumerate(own) if is_outside(rate) or place < _WORST_COUNT]
    return chosen


_WORST_COUNT = 1


def tabulate_again(first: Sequence[Rate], again: Sequence[Rate]) -> Iterator[str]:
    """Return a table of the rates that were measured again: by class and kind, the worst of them."""
    pairs = again[0].pairs if again else 0
    groups: dict[tuple[str, str], list[tuple[Rate, Rate]]] = {}
    for before, after in zip(first, again, strict=True):
        groups.setdefault((classify(after), after.kind), []).append((before, after))
    yield (
        "The cells outside the targets, and the worst cell of each class and rate, were measured again on"
        f" {pairs:,} pairs with other seeds:"
    )
    yield ""
    yield "| class | rate | cells outside | of these outside again | worst cell of the second measurement |"
    yield "|---|---|---:|---:|---|"
    fine = 0
    for name, kind in sorted(groups, key=lambda key: (CLASSES.index(key[0]), key[1])):
        own = groups[name, kind]
        worst = min((after for _, after in own), key=lambda one: one.share if one.is_coverage else -one.share)
        counts = [sum(map(is_outside, part)) for part in zip(*own, strict=True)]
        if any(counts):
            yield f"| {name} | {kind} | {counts[0]} | {counts[1]} | {_describe(worst)} |"
        fine += not any(counts)
    yield ""
    yield f"In the {fine} other combinations of a class and a rate, no cell is outside in either measurement."


def tabulate_power(
    shares: Mapping[tuple[int, float], Sequence[float]], settings: Sequence[str], pairs: int
) -> Iterator[str]:
    """Return a table of how often a step 5 % slower is found, by steps and by the noise of runs."""
    yield (
        f"The same by steps per run and noise of runs. The steps of a run vary by 1 %. Each value is from"
        f" {pairs} pairs:"
    )
    yield ""
    yield f"| steps | noise of runs | {' | '.join(f'{one} per side' for one in settings)} |"
    yield f"|---:|---:|{'---:|' * len(settings)}"
    for (steps, noise), own in shares.items():
        limits = [_limits(share, pairs) for share in own]
        cells = [
            f"{100 * share:.0f} % ({100 * low:.0f} … {100 * high:.0f})"
            for share, (low, high) in zip(own, limits, strict=True)
        ]
        yield f"| {steps} | {100 * noise:.1f} % | {' | '.join(cells)} |"


def classify(rate: Rate) -> str:
    """Return the class of a cell: what is known of the noise between its runs."""
    if rate.setting.is_measured:
        return MEASURED
    if not rate.is_known:
        return MORE
    return RESTING if rate.may_rest else AT_MOST


def _tabulate_classes(rates: Sequence[Rate]) -> Iterator[str]:
    """Count rates outside their limits with their whole interval, by what is known of the noise."""
    yield (
        "| class | coverages | mean | surely below 93 % | rates of false claims | mean | surely above 5 % |"
        " largest |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    classes: dict[str, list[Rate]] = {}
    for rate in rates:
        classes.setdefault(classify(rate), []).append(rate)
    for name in sorted(classes, key=CLASSES.index):
        coverage = [rate for rate in classes[name] if rate.is_coverage]
        wrong = [rate for rate in classes[name] if not rate.is_coverage]
        outside = [sum(map(is_outside, part)) for part in (coverage, wrong)]
        shares = [100 * float(np.mean([rate.share for rate in part])) for part in (coverage, wrong)]
        largest = 100 * max((rate.share for rate in wrong), default=0.0)
        yield (
            f"| {name} | {len(coverage):,} | {shares[0]:.1f} % | {outside[0]:,} |"
            f" {len(wrong):,} | {shares[1]:.1f} % | {outside[1]:,} | {largest:.1f} % |"
        )


def _describe_chance(rates: Sequence[Rate]) -> str:
    """Say how many coverages of exactly 95 % would be below 93 % by chance."""
    single = [rate for rate in rates if rate.setting.is_measured and rate.is_single]
    low = sum(map(is_outside, single))
    chance = sum(_find_chance(rate.pairs) for rate in single)
    return (
        "*Surely* means that the whole 95 % interval of the rate is below 93 % or above 5 %. With measured"
        f" noise, {low} of {len(single):,} coverages of the step and of walls are surely below 93 %. If every"
        f" true coverage were 95 %, {chance:.0f} would be so by chance."
    )


@cache
def _find_chance(pairs: int) -> float:
    """Return how likely a coverage of exactly 95 % is outside in so many pairs."""
    return sum(
        comb(pairs, held) * _HELD**held * (1 - _HELD) ** (pairs - held)
        for held in range(pairs + 1)
        if _limits(held / pairs, pairs)[1] < COVERED[0]
    )


def _limits(share: float, pairs: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927)."""
    z = 1.96
    middle = (share + z * z / (2 * pairs)) / (1 + z * z / pairs)
    half = z / (1 + z * z / pairs) * sqrt(share * (1 - share) / pairs + z * z / (4 * pairs * pairs))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def write_steps(steps: tuple[int, int]) -> str:
    """Write how many steps the runs of each side have."""
    return str(steps[0]) if steps[0] == steps[1] else f"{steps[0]} and {steps[1]}"


def _describe(rate: Rate) -> str:
    low, high = rate.interval
    title = next((law.title for law in (*OTHER_LAWS, *KEPT_LAWS) if law.name == rate.law), "") or rate.law
    return (
        f"{title}; {write_steps(rate.steps)} steps; {rate.setting} runs per side; noise of runs"
        f" {100 * rate.offset:.0f} % ({rate.varies}); {rate.of}:"
        f" {100 * rate.share:.1f} % ({100 * low:.1f} … {100 * high:.1f})"
    )


def _tabulate(titles: Sequence[str], groups: Iterable[tuple[Sequence[str], list[Rate]]]) -> Iterator[str]:
    heads = (
        "coverage: step",
        "coverage: walls",
        "coverage: causes",
        "false verdict",
        "false gate",
        "any cause",
    )
    yield f"| {' | '.join((*titles, *heads))} |"
    yield f"|{'---|' * len(titles)}{'---:|' * len(heads)}"
    for names, rates in groups:
        known = [rate for rate in rates if rate.is_known]
        cells = [
            _range([rate for rate in known if rate.of == "interval of step"]),
            _range([rate for rate in known if rate.of in {f"interval of {wall}" for wall in WALLS}]),
            _range([rate for rate in known if rate.of.startswith("interval of causes")]),
            *(
                _most([rate for rate in known if rate.of.startswith(f"false {word}")])
                for word in ("verdict", "gate", "claim")
            ),
        ]
        yield f"| {' | '.join((*names, *cells))} |"


def _range(rates: Sequence[Rate]) -> str:
    """Write the mean coverage, the least and the largest of a cell."""
    shares = [100 * rate.share for rate in rates]
    return f"{np.mean(shares):.1f} ({min(shares):.0f} … {max(shares):.0f})" if shares else ""


def _most(rates: Sequence[Rate]) -> str:
    """Write the mean share of false claims, and the largest of a cell with its interval."""
    if not rates:
        return ""
    worst = max(rates, key=lambda rate: rate.share)
    mean = 100 * float(np.mean([rate.share for rate in rates]))
    low, high = worst.interval
    return f"{mean:.1f}, {100 * worst.share:.1f} ({100 * low:.1f} … {100 * high:.1f})"


def merge_rates(rates: Iterable[Rate]) -> list[Rate]:
    """Return the rates of cells over all blocks of pairs."""
    cells: dict[tuple[object, ...], list[Rate]] = {}
    for rate in rates:
        key = (rate.law, rate.steps, rate.setting, rate.varies, rate.offset, rate.of)
        cells.setdefault(key, []).append(rate)
    return [_merge(own) for own in cells.values()]


def _merge(rates: Sequence[Rate]) -> Rate:
    pairs = sum(rate.pairs for rate in rates)
    return replace(rates[0], share=sum(rate.share * rate.pairs for rate in rates) / pairs, pairs=pairs)


_CELL_FIELDS = ("law", "steps", "runs", "varies", "offset", "of")
_RATE_FIELDS = ("share", "low", "high", "pairs", "known", "rests", "as_assumed")


def write_cells(rates: Iterable[Rate], target: Path) -> None:
    """Write all rates as CSV."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".unfinished")
    with unfinished.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow((*_CELL_FIELDS, *_RATE_FIELDS))
        for rate in rates:
            low, high = rate.interval
            row = (rate.law, write_steps(rate.steps), rate.setting, rate.varies, rate.offset, rate.of)
            measured = (f"{rate.share:.6f}", f"{low:.4f}", f"{high:.4f}", rate.pairs)
            writer.writerow((*row, *measured, rate.is_known, rate.may_rest, rate.as_assumed))
    unfinished.replace(target)


def read_cells(source: Path) -> list[Rate]:
    """Read what `write_cells` wrote."""
    settings = {str(setting): setting for setting in SETTINGS}
    with source.open(encoding="utf-8", newline="") as stream:
        return [
            Rate(
                row["law"],
                _read_steps(row["steps"]),
                settings[row["runs"]],
                row["varies"],
                float(row["offset"]),
                row["of"],
                float(row["share"]),
                int(row["pairs"]),
                row["known"] == "True",
                row["rests"] == "True",
                row["as_assumed"] == "True",
            )
            for row in csv.DictReader(stream)
        ]


def _read_steps(written: str) -> tuple[int, int]:
    base, _, head = written.partition(" and ")
    return int(base), int(head or base)
