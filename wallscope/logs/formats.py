"""How frameworks write a step into a log: the patterns of `formats.toml`, compiled."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from wallscope.files import read_toml
from wallscope.records import dataclass

_NUMBER = (  # bounded, begins at its first digit, and takes what it can at once: lines are text of others
    r"(?<![0-9])(?<![0-9][.,])"
    r"([0-9](?:,?[0-9]){0,20}+(?:\.[0-9]{0,20}+)?+(?:[eE][-+]?[0-9]{1,3}+)?+)(?![0-9])"
)
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0}
CLOCK = "clock"
"""The unit of a progress bar: hours, minutes and seconds since it began."""
MOST_TIME_S = 1e9
_MOST_FIGURE = 1e18
_PER_SECOND, _NAMED = "per_s", "named"


@dataclass(frozen=True, slots=True)
class TimePattern:
    """A pattern of a duration, and its unit: one of those of `formats.toml`."""

    pattern: re.Pattern[str]
    unit: str

    def find_s(self, text: str) -> float | None:
        """Return the duration in seconds that a text states; `None` if none that can be, or it is 0."""
        found = self.pattern.search(text)
        seconds = None if found is None else self._read_s(found)
        return seconds if seconds is not None and seconds <= MOST_TIME_S else None

    def _read_s(self, found: re.Match[str]) -> float | None:
        if self.unit == CLOCK:
            return _read_clock_s(found[1])
        first, unit = found[1], self.unit
        if unit == _NAMED:
            first, unit = (found[2], first) if first.lower() in _UNITS_S else (first, found[2])
        number = parse_written_number(first)
        if not number:
            return None
        return 1 / number if unit == _PER_SECOND else number * _UNITS_S[unit.lower()]


@dataclass(frozen=True, slots=True)
class FigurePattern:
    """A pattern of a number besides the duration, and the factor to the unit of its field."""

    pattern: re.Pattern[str]
    factor: float

    def find(self, text: str) -> float | None:
        """Return the number that a text states, `None` if there is none that can be."""
        found = self.pattern.search(text)
        number = None if found is None else parse_written_number(next(filter(None, found.groups())))
        if number is None:
            return None
        return number * self.factor if self.factor >= 1 else number / round(1 / self.factor)


@dataclass(frozen=True, slots=True)
class LogFormat:
    """A way to write about a step; `formats.toml` says what the fields are."""

    id: str
    name: str
    source: str
    commit: str
    marks: tuple[str, ...]
    start: re.Pattern[str]
    leaves: re.Pattern[str] | None
    step: re.Pattern[str] | None
    time: tuple[TimePattern, ...]
    elapsed: tuple[TimePattern, ...]
    whole: re.Pattern[str] | None
    figures: Mapping[str, FigurePattern]
    has_clock: bool


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A line about one event: a skipped step, how many were so far, the samples of a step."""

    marks: tuple[str, ...]
    figures: Mapping[str, re.Pattern[str]]


def parse_written_number(text: str) -> float | None:
    """Return a number with or without commas between its digits, `None` if no figure of a run is so large.

    A log may have any digits: each number of it comes in here, 0 or from 1e-18 to 1e18.

    >>> parse_written_number("7,123"), parse_written_number("1.073e+04"), parse_written_number("1e999")
    (7123.0, 10730.0, None)
    """
    number = float(text.replace(",", ""))
    return number if not number or 1 / _MOST_FIGURE <= number <= _MOST_FIGURE else None


def _read_clock_s(text: str) -> float:
    """Return hours, minutes and seconds in seconds; infinite if they have more digits than a float.

    >>> _read_clock_s("01:10"), _read_clock_s("2:00:01")
    (70.0, 7201.0)
    """
    total = 0.0
    for part in text.split(":"):
        total = total * 60 + float(part)
    return total


@cache
def list_log_formats() -> tuple[LogFormat, ...]:
    """Return the formats, those first that state a step more exactly."""
    return tuple(_make_format(table) for table in read_toml("logs/formats.toml")["format"])


def find_log_format(name: str) -> LogFormat:
    """Return the format with an id.

    Raises:
        StopIteration: there is none.
    """
    return next(one for one in list_log_formats() if one.id == name)


@cache
def list_log_events() -> tuple[LogEvent, ...]:
    """Return the events."""
    return tuple(
        LogEvent(
            tuple(table["marks"]),
            {name: _compile(text) for name, text in table.items() if name != "marks"},
        )
        for table in read_toml("logs/formats.toml")["event"]
    )


def _make_format(table: Mapping[str, Any]) -> LogFormat:
    return LogFormat(
        id=table["id"],
        name=table["name"],
        source=table["source"],
        commit=table["commit"],
        marks=tuple(table["marks"]),
        start=_compile(table["start"]),
        leaves=_compile(table["leaves"]) if "leaves" in table else None,
        step=_compile(table["step"]) if "step" in table else None,
        time=tuple(TimePattern(_compile(text), unit) for text, unit in table.get("time", ())),
        elapsed=tuple(TimePattern(_compile(text), unit) for text, unit in table.get("elapsed", ())),
        whole=_compile(table["whole"]) if "whole" in table else None,
        figures={
            name: FigurePattern(_compile(text), factor)
            for name, (text, factor) in table.get("figures", {}).items()
        },
        has_clock=table.get("clock", False),
    )


def _compile(text: str) -> re.Pattern[str]:
    return re.compile(text.replace("{n}", _NUMBER))
