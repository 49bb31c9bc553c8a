"""Reports of steps in the lines of a log, whoever wrote them: one rank, or many into one file.

Colors are removed, and a carriage return ends a line, as a progress bar writes it. What precedes a report,
without times, says who wrote it: `0:` of srun, `[rank3]:`, `[1,3]<stdout>:`, the name of a node. A report in
the middle of another one begins at its own first words, and a number that is cut off is not read.
"""

import re
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path

from wallscope.errors import OptionError
from wallscope.logs.formats import CLOCK, LogFormat, list_log_events, list_log_formats, parse_written_number
from wallscope.records import dataclass
from wallscope.thresholds.logs import MOST_LINE_LETTERS_COUNT, MOST_LOG_BYTES, MOST_LOG_REPORTS_COUNT
from wallscope.user_files import read_user_bytes

_COLORS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_DAY = re.compile(
    r"(?:(?P<date>\d{4}-\d\d-\d\d)[T ])?(?<!\d)(?<!\d:)"
    r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?(?![\d:])"
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_SPACE, _WIDE_SPACE = re.compile(r"\s+"), re.compile(r"\s{9,}")
_LINE = re.compile(rb"[^\r\n]+")
_MOST_LINE_BYTES = 4 * MOST_LINE_LETTERS_COUNT  # of UTF-8
_ONE_SPACE = str.maketrans(dict.fromkeys("\t\v\f\xa0", " "))
_WIDE = " " * 9  # patterns try each way to divide spaces
_MOST_PREFIX = 200
CURE = "give the text that the run printed"


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a line says about a step.

    Attributes:
        writer: what precedes the report, without times, and the total of a progress bar.
        step: number of the step, `None` if the line has none.
        time_s: how long the step took.
        elapsed_s: time since some moment of the run.
        clock_s: time of the day, or since 1970 where the line has a date.
        clock_step_s: the smallest difference of such times that the line can show.
        figures: by the names of `formats.toml`.
    """

    writer: str
    step: int | None
    time_s: float | None
    elapsed_s: float | None
    clock_s: float | None
    clock_step_s: float
    figures: dict[str, float]


@dataclass(slots=True)
class LogContent:
    """What a log holds: reports by the id of their format, and events.

    `begun` counts the beginnings of reports, also of those that are cut off.
    """

    name: str
    reports: dict[str, list[StepReport]] = field(default_factory=dict)
    whole_per_s: list[float] = field(default_factory=list)
    samples: float | None = None
    skipped_lines: int = 0
    skipped_so_far: float | None = None
    loss_scale: float | None = None
    broken: int = 0
    begun: int = 0


def read_log(path: Path) -> LogContent:
    """Return the reports of a log.

    Raises:
        OptionError: it cannot be read, is too large, has too many reports, or is not text.
    """
    try:
        content = read_user_bytes(path, MOST_LOG_BYTES, "give the part with the last steps", OptionError)
    except OSError as error:
        raise OptionError(f"{path} — cannot be read: {error.strerror} — {CURE}") from error
    if b"\0" in content:
        raise OptionError(f"{path} — is not text — {CURE}")
    found = LogContent(path.name)
    formats = list_log_formats()
    for line in _list_lines(content):
        _read_events(line, found)
        for one in formats:
            if any(mark in line for mark in one.marks) and _read_reports(line, one, found):
                break
        if found.begun > MOST_LOG_REPORTS_COUNT:
            raise OptionError(
                f"{path} — has more than {MOST_LOG_REPORTS_COUNT:,} reports of steps —"
                " give the part with the last steps"
            )
    return found


def _list_lines(content: bytes) -> Iterator[str]:
    """Yield the lines one by one: all at once, short ones take many times the memory of their letters."""
    for found in _LINE.finditer(content):
        begin = content[found.start() : min(found.end(), found.start() + _MOST_LINE_BYTES)]
        cut = begin.decode("utf-8", "replace")[:MOST_LINE_LETTERS_COUNT].translate(_ONE_SPACE)
        plain = _COLORS.sub("", cut) if "\x1b" in cut else cut
        yield _WIDE_SPACE.sub(" ", plain) if _WIDE in plain else plain


def _read_events(line: str, found: LogContent) -> None:
    for event in list_log_events():
        if not any(mark in line for mark in event.marks):
            continue
        for name, pattern in event.figures.items():
            if (hit := pattern.search(line)) is None:
                continue
            if name == "skipped":
                found.skipped_lines += 1
                continue
            if (number := parse_written_number(hit[1])) is None:
                continue
            if name == "skipped_so_far":
                found.skipped_so_far = number
            elif name == "samples":
                found.samples = number
            else:
                found.loss_scale = number


def _read_reports(line: str, kind: LogFormat, found: LogContent) -> bool:
    """Read the reports of a line in one format; return whether it has any."""
    starts = [hit.start() for hit in kind.start.finditer(line)]
    found.begun += len(starts)
    has_any = False
    for place, start in enumerate(starts):
        end = starts[place + 1] if place + 1 < len(starts) else len(line)
        before = line[starts[place - 1] if place else 0 : start]
        if kind.leaves is not None and kind.leaves.search(before):
            has_any = True  # known, and not of training
            continue
        text = line[start:end]
        if kind.whole is not None:
            if (hit := kind.whole.search(text)) is not None:
                if (rate := parse_written_number(hit[1])) is not None:
                    found.whole_per_s.append(rate)
                found.reports.setdefault(kind.id, [])
                _add(found, kind, _make_report(before, text, kind, is_first=not place))
                has_any = True
            continue
        report = _make_report(before, text, kind, is_first=not place)
        if report is not None:
            _add(found, kind, report)
            has_any = True
        elif not kind.has_clock:
            found.broken += 1
    return has_any


def _add(found: LogContent, kind: LogFormat, report: StepReport | None) -> None:
    if report is not None:
        found.reports.setdefault(kind.id, []).append(report)


def _make_report(before: str, text: str, kind: LogFormat, *, is_first: bool) -> StepReport | None:
    """Return what a part of a line says about a step, `None` if that is neither a time nor a figure."""
    hit = kind.step.search(text) if kind.step is not None else None
    step = None if hit is None else parse_written_number(hit[1])
    time_s = next(filter(None, (one.find_s(text) for one in kind.time)), None)
    elapsed_s = next((at for one in kind.elapsed if (at := one.find_s(text)) is not None), None)
    figures = {name: value for name, one in kind.figures.items() if (value := one.find(text)) is not None}
    clock = _DAY.search(before[-_MOST_PREFIX:]) if kind.has_clock else None
    if time_s is None and elapsed_s is None and not figures and (clock is None or step is None):
        return None
    if kind.step is not None and step is None:
        return None
    clock_s, clock_step_s = (None, 1.0) if clock is None else _read_day(clock)
    return StepReport(
        _name_writer(before, text, kind) if is_first else "",
        None if step is None else int(step),
        time_s,
        elapsed_s,
        clock_s,
        clock_step_s,
        figures,
    )


_TOTAL = re.compile(r"/(\d+) \[")


def _name_writer(before: str, text: str, kind: LogFormat) -> str:
    """Return what precedes a report without times and numbers of epochs, and the total of a progress bar."""
    own = _DATE.sub("", _DAY.sub("", before[:_MOST_PREFIX]))
    own = _SPACE.sub(" ", re.sub(r"(?i)epoch\s*\d+", "epoch", own)).strip()
    total = _TOTAL.search(text) if any(one.unit == CLOCK for one in kind.elapsed) else None
    return own if total is None else f"{own} of {total[1]}"


def _read_day(found: re.Match[str]) -> tuple[float, float]:
    """Return the time of a moment in seconds, and how exactly it is written."""
    from datetime import date  # noqa: PLC0415  # keeps --help fast

    fraction = found["f"] or ""
    time_s = int(found["h"]) * 3_600 + int(found["m"]) * 60 + int(found["s"])
    if found["date"]:
        try:
            time_s += date.fromisoformat(found["date"]).toordinal() * 86_400
        except ValueError:
            return float(time_s), 1.0
    return time_s + float(f"0.{fraction or 0}"), 10.0 ** -len(fraction)
