"""Tables of how often comparisons are wrong, and which cells fail for which reason."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import comb, sqrt
from pathlib import Path

import numpy as np

from benchmarks.noise_laws import LAWS, OTHER_LAWS, WALLS

COVERED, WRONG = (0.93, 0.98), 0.05
BEGIN, END = "<!-- verdicts -->", "<!-- end of verdicts -->"
_HELD = 0.95


@dataclass(frozen=True, slots=True)
class Setting:
    """How many runs a side has, and whether other runs are recorded."""

    runs: int
    is_recorded: bool = False

    def __str__(self) -> str:
        return f"{self.runs}{', recorded' if self.is_recorded else ''}"


SETTINGS = (
    Setting(1),
    Setting(1, is_recorded=True),
    Setting(2),
    Setting(2, is_recorded=True),
    Setting(3),
    Setting(5),
    Setting(10),
)


@dataclass(frozen=True, slots=True)
class Rate:
    """How often something was so in the pairs of one cell.

    `of` is what was counted; `is_known` is whether runs differ by no more than is recorded, seen or assumed.
    `may_rest` is whether a run may rest at one of two levels that are further apart than is assumed.
    """

    law: str
    steps: int
    setting: Setting
    varies: str
    offset: float
    of: str
    share: float
    pairs: int
    is_known: bool
    may_rest: bool = False

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the share (Wilson 1927)."""
        return _limits(self.share, self.pairs)

    @property
    def is_coverage(self) -> bool:
        """Whether it is a coverage, else a share of wrong claims."""
        return self.of.startswith("interval")


def summarize(rates: Sequence[Rate], pairs: int, power: Sequence[float]) -> str:
    """Return the tables of the docs."""
    settings = [(str(setting), [rate for rate in rates if rate.setting == setting]) for setting in SETTINGS]
    laws = [(law.name, [rate for rate in rates if rate.law == law.name]) for law in LAWS]
    found = [f"{setting}: {100 * one:.0f} %" for setting, one in zip(SETTINGS, power, strict=False)]
    other = [(law.name, [rate for rate in rates if rate.law == law.name]) for law in OTHER_LAWS]
    worst = [*_list_low(rates, COVERED[0], WRONG)]
    power_found = (
        f"{pairs:,} pairs a cell. A step 5 % slower is found, at 20 steps and runs that differ by 1 %, by"
        f" runs a side: {'; '.join(found)}."
    )
    return "\n".join(
        [
            power_found,
            "",
            *_tabulate_classes(rates),
            "",
            _describe_chance(rates, pairs),
            "",
            *_tabulate("runs a side", settings),
            "",
            *_tabulate("steps vary", laws),
            "",
            "The same for laws that no limit of a comparison was chosen by:",
            "",
            *_tabulate("steps vary", other),
            "",
            "Rates outside with their whole interval:" if worst else "No rate is outside.",
            "",
            *(f"* {_describe(rate)}" for rate in worst[:_MOST_LISTED]),
            *([f"* {len(worst) - _MOST_LISTED} more"] if len(worst) > _MOST_LISTED else []),
            "",
        ]
    )


_MOST_LISTED = 12
_FEW = 2  # runs a side, up to which noise is assumed without records


def _list_low(rates: Iterable[Rate], least: float, most: float) -> list[Rate]:
    """Return rates that are surely wrong, the worst first: coverages, then wrong claims."""
    known = [rate for rate in rates if rate.is_known]
    low = [rate for rate in known if rate.is_coverage and rate.interval[1] < least]
    often = [rate for rate in known if not rate.is_coverage and rate.interval[0] > most]
    return sorted(low, key=lambda rate: rate.share) + sorted(often, key=lambda rate: -rate.share)


def _classify(rate: Rate) -> str:
    if rate.setting.is_recorded or rate.setting.runs > _FEW:
        return "noise measured: three or more runs, or records"
    if not rate.is_known:
        return "noise assumed, and runs differ by more"
    if rate.may_rest:
        return "noise assumed, and runs may rest at levels further apart"
    return "noise assumed, and runs differ by at most that"


def _tabulate_classes(rates: Sequence[Rate]) -> Iterator[str]:
    """Count rates outside their limits with their whole interval, by what is known of the noise."""
    yield (
        "| cells | coverages | mean | below 93 % | false verdicts, gates and claims | mean | above 5 % |"
        " largest |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    classes: dict[str, list[Rate]] = {}
    for rate in rates:
        classes.setdefault(_classify(rate), []).append(rate)
    for name in sorted(classes, reverse=True):
        coverage = [rate for rate in classes[name] if rate.is_coverage]
        wrong = [rate for rate in classes[name] if not rate.is_coverage]
        low = sum(rate.interval[1] < COVERED[0] for rate in coverage)
        often = sum(rate.interval[0] > WRONG for rate in wrong)
        shares = [100 * float(np.mean([rate.share for rate in part])) for part in (coverage, wrong)]
        largest = 100 * max((rate.share for rate in wrong), default=0.0)
        yield (
            f"| {name} | {len(coverage):,} | {shares[0]:.1f} % | {low:,} |"
            f" {len(wrong):,} | {shares[1]:.1f} % | {often:,} | {largest:.1f} % |"
        )


def _describe_chance(rates: Sequence[Rate], pairs: int) -> str:
    """Say how many coverages of exactly 95 % would be below 93 % by chance."""
    chance = sum(
        comb(pairs, held) * _HELD**held * (1 - _HELD) ** (pairs - held)
        for held in range(pairs + 1)
        if _limits(held / pairs, pairs)[1] < COVERED[0]
    )
    measured = sum(
        (rate.is_coverage and rate.setting.runs > _FEW) or rate.setting.is_recorded for rate in rates
    )
    return (
        "A rate counts as outside if its whole 95 % interval is. Of as many coverages of exactly 95 % as have"
        f" measured noise, {chance * measured:.0f} would be below 93 % by chance."
    )


def _limits(share: float, pairs: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927)."""
    z = 1.96
    middle = (share + z * z / (2 * pairs)) / (1 + z * z / pairs)
    half = z / (1 + z * z / pairs) * sqrt(share * (1 - share) / pairs + z * z / (4 * pairs * pairs))
    return middle - half, middle + half


def _describe(rate: Rate) -> str:
    low, high = rate.interval
    return (
        f"{rate.law}, {rate.steps} steps, {rate.setting} a side, {rate.varies} {100 * rate.offset:.0f} % off:"
        f" {rate.of} {100 * rate.share:.1f} % ({100 * low:.1f} … {100 * high:.1f} %)"
    )


def _tabulate(title: str, groups: Iterable[tuple[str, list[Rate]]]) -> Iterator[str]:
    yield f"| {title} | step | walls | causes | false verdict | false gate | any cause claimed |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for name, rates in groups:
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
        yield f"| {name} | {' | '.join(cells)} |"


def _range(rates: Sequence[Rate]) -> str:
    """Write the mean coverage, the least and the largest of a cell."""
    shares = [100 * rate.share for rate in rates]
    return f"{np.mean(shares):.1f} % ({min(shares):.0f} … {max(shares):.0f})" if shares else ""


def _most(rates: Sequence[Rate]) -> str:
    """Write the mean share of wrong claims, and the largest of a cell with its interval."""
    if not rates:
        return ""
    worst = max(rates, key=lambda rate: rate.share)
    mean = 100 * float(np.mean([rate.share for rate in rates]))
    low, high = worst.interval
    return f"{mean:.1f} % (at most {100 * worst.share:.1f}, {100 * low:.1f} … {100 * high:.1f})"


def replace_table(text: str, found: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """Return the page with the table between its marks replaced."""
    before, _, rest = text.partition(marks[0])
    return f"{before}{marks[0]}\n\n{found}\n{marks[1]}{rest.partition(marks[1])[2]}"


def write_cells(rates: Iterable[Rate], target: Path) -> None:
    """Write all rates as CSV."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("law", "steps", "runs", "varies", "offset", "of", "share", "low", "high", "known"))
        for rate in rates:
            low, high = rate.interval
            row = (rate.law, rate.steps, rate.setting, rate.varies, rate.offset, rate.of)
            writer.writerow((*row, f"{rate.share:.4f}", f"{low:.4f}", f"{high:.4f}", rate.is_known))
