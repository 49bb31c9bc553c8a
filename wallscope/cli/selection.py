"""The options that select a part of a capture, the same for all commands that account for time."""

import re
from typing import Annotated

import typer

from wallscope.errors import SelectionError
from wallscope.model.selection import FOREVER_NS, Selection

_MOST = 2**31 - 1

Rank = Annotated[
    int | None,
    typer.Option("--rank", metavar="N", min=0, max=_MOST, help="Only the rank of this number in the job."),
]
Device = Annotated[
    int | None,
    typer.Option("--device", metavar="N", min=0, max=_MOST, help="Only ranks on this CUDA device."),
]
Steps = Annotated[
    str | None,
    typer.Option("--steps", metavar="A-B", help="Only these steps, by number, both included; or one: A."),
]
Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="A-B",
        help="Only this time: seconds of the session, or with ns, us, ms, s. Steps keep their numbers; those"
        " it cuts count only where no whole one is left.",
    ),
]

_UNITS_NS = {"": 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_MOMENT = r"(\d{1,12}(?:\.\d{1,9})?)(ns|us|ms|s|)"


def selection(rank: int | None, device: int | None, steps: str | None, time: str | None) -> Selection:
    """The selection that the options spell.

    Raises:
        SelectionError: an option cannot be read.
    """
    return Selection(rank, device, _steps(steps), _time_ns(time))


def _steps(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if first > last:
        raise SelectionError(f"--steps {text} — is no stretch of steps — write --steps 3-7, or --steps 3")
    return first, last


def _time_ns(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(f"{_MOMENT}-{_MOMENT}", text)
    begin_ns, end_ns = (_moment_ns(*found.group(1, 2)), _moment_ns(*found.group(3, 4))) if found else (0, 0)
    if begin_ns >= end_ns:
        raise SelectionError(
            f"--time {text} — is no stretch of time — write --time 1.25-1.5, or 1250ms-1500ms"
        )
    return min(begin_ns, FOREVER_NS), min(end_ns, FOREVER_NS)


def moment_ns(text: str) -> int:
    """A moment of the session in ns, from its spelling.

    Raises:
        SelectionError: it cannot be read.
    """
    found = re.fullmatch(_MOMENT, text)
    if found is None:
        raise SelectionError(f"{text} — is no moment — write 60.127760123 (seconds), or 60127760us")
    return _moment_ns(found[1], found[2])


def _moment_ns(number: str, unit: str) -> int:
    whole, _, fraction = number.partition(".")
    return (int(whole) * 10**9 + int(f"{fraction:0<9}")) * _UNITS_NS[unit] // 10**9
