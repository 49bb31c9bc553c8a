"""Options that several commands share: the export, the part of it that is selected, facts about a step."""

import math
import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from wallscope.errors import OptionError, SelectionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wallscope.cache_folder import Cache
    from wallscope.model.capture import Selection
    from wallscope.model.diagnosis import StepFacts
    from wallscope.model.enums import Axis


class Tracker(StrEnum):
    """Where `history --to` sends its rows."""

    WANDB = "wandb"
    MLFLOW = "mlflow"


READING, SELECTION, THROUGHPUT, RUNNING = "Reading", "Selection", "Throughput", "Running"
"""Groups of options in `--help`."""
Export = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A .sqlite export, a parquetdir or arrowdir folder, a report (needs nsys), or a trace of"
        " PyTorch's profiler (.json, .json.gz).",
    ),
]


Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", rich_help_panel=RUNNING, help="Log stages and times to standard error."),
]


KernelRules = Annotated[
    Path | None,
    typer.Option(
        "--kernels",
        metavar="FILE",
        rich_help_panel=READING,
        help="TOML file of rules that classify kernels by name, before the built-in rules.",
    ),
]


StepRange = Annotated[
    str | None,
    typer.Option(
        "--step-range",
        metavar="REGEX",
        rich_help_panel=READING,
        help="NVTX ranges that mark steps. Default: names of known frameworks, then repeating ranges.",
    ),
]


Streams = Annotated[
    list[str] | None,
    typer.Option(
        "--stream",
        metavar="N=AXIS",
        rich_help_panel=READING,
        help="Parallel axis of a CUDA stream: ep, dp-gradient, dp-parameter, tp, cp or pp. Repeatable.",
    ),
]


PythonFunctions = Annotated[
    bool,
    typer.Option(
        "--python-functions",
        rich_help_panel=READING,
        help="Use the Python functions of a PyTorch trace with stacks as ranges; there may be millions.",
    ),
]


ReadBy = Annotated[
    Literal["pages", "sqlite"],  # those of `Reader`
    typer.Option(
        rich_help_panel=READING,
        help="How to read .sqlite exports. Both give the same: pages is fast, sqlite is for a check of it.",
    ),
]


Configuration = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        rich_help_panel=READING,
        help="Configuration of the run: a Megatron Bridge YAML, Megatron-LM arguments or log, or TOML.",
    ),
]


def parse_stream_map(texts: list[str] | None) -> "Mapping[int, Axis]":
    """The axes of streams that the options spell.

    Raises:
        SelectionError: one cannot be read.
    """
    if not texts:
        return {}
    from wallscope.trace.parallel_axes import parse_stream_axes  # noqa: PLC0415  # keeps --help fast

    return parse_stream_axes(texts)


NoCache = Annotated[
    bool,
    typer.Option("--no-cache", rich_help_panel=RUNNING, help="Compute the result again, without the cache."),
]


def open_cache(*, refused: bool) -> "Cache | None":
    """The user's cache, unless the options say to go without.

    Raises:
        OptionError: the environment sets a size that is none.
    """
    from wallscope.cache_folder import user_cache  # noqa: PLC0415  # keeps --help fast

    return None if refused else user_cache()


_MOST = 2**31 - 1

Rank = Annotated[
    int | None,
    typer.Option(
        "--rank", metavar="N", min=0, max=_MOST, rich_help_panel=SELECTION, help="Only this rank of the job."
    ),
]
Device = Annotated[
    int | None,
    typer.Option(
        "--device",
        metavar="N",
        min=0,
        max=_MOST,
        rich_help_panel=SELECTION,
        help="Only ranks on this CUDA device.",
    ),
]
Steps = Annotated[
    str | None,
    typer.Option(
        "--steps",
        metavar="A-B",
        rich_help_panel=SELECTION,
        help="Only the steps from A to B, both included; A alone is one step.",
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="A-B",
        rich_help_panel=SELECTION,
        help="Only this part of the session: seconds, or with a unit (ns, us, ms, s). Steps keep their"
        " numbers. A step that is cut counts only if no whole step is left.",
    ),
]

_UNITS_NS = {"": 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_MOMENT = r"(\d{1,12}(?:\.\d{1,9})?)(ns|us|ms|s|)"


def make_selection(rank: int | None, device: int | None, steps: str | None, time: str | None) -> "Selection":
    """The selection that the options spell.

    Raises:
        SelectionError: an option cannot be read.
    """
    from wallscope.model.capture import Selection  # noqa: PLC0415  # keeps --help fast

    return Selection(rank, device, _parse_step_range(steps), _time_ns(time))


def _parse_step_range(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if first > last:
        raise SelectionError(f"--steps {text} — is not a range of steps — write --steps 3-7, or --steps 3")
    return first, last


def _time_ns(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    from wallscope.model.capture import FOREVER_NS  # noqa: PLC0415  # keeps --help fast

    found = re.fullmatch(f"{_MOMENT}-{_MOMENT}", text)
    begin_ns, end_ns = (_moment_ns(*found.group(1, 2)), _moment_ns(*found.group(3, 4))) if found else (0, 0)
    if begin_ns >= end_ns:
        raise SelectionError(
            f"--time {text} — is not a range of time — write --time 1.25-1.5, or 1250ms-1500ms"
        )
    return min(begin_ns, FOREVER_NS), min(end_ns, FOREVER_NS)


def parse_moment(text: str) -> int:
    """A moment of the session in ns, from its spelling.

    Raises:
        SelectionError: it cannot be read.
    """
    found = re.fullmatch(_MOMENT, text)
    if found is None:
        raise SelectionError(f"{text} — is not a time — write 60.127760123 (seconds), or 60127760us")
    return _moment_ns(found[1], found[2])


def _moment_ns(number: str, unit: str) -> int:
    whole, _, fraction = number.partition(".")
    return (int(whole) * 10**9 + int(f"{fraction:0<9}")) * _UNITS_NS[unit] // 10**9


_MOST_COUNT = 1e30

UnprofiledStep = Annotated[
    str | None,
    typer.Option(
        "--unprofiled-step-ms",
        metavar="MS",
        rich_help_panel=THROUGHPUT,
        help="Step time without the profiler, which limits host time: more of it is that of the profiler.",
    ),
]
Logs = Annotated[
    list[Path] | None,
    typer.Option(
        "--log",
        metavar="FILE",
        rich_help_panel=THROUGHPUT,
        help="Log of the run without the profiler: step time, tokens/s and MFU are read from it. Repeatable.",
    ),
]
Tokens = Annotated[
    str | None,
    typer.Option(
        "--tokens-per-step",
        metavar="N",
        rich_help_panel=THROUGHPUT,
        help="Tokens per step of the whole job: shows tokens per second.",
    ),
]
Flops = Annotated[
    str | None,
    typer.Option(
        "--flops-per-step",
        metavar="F",
        rich_help_panel=THROUGHPUT,
        help="Model FLOPs per step and GPU, such as 1.8e13: shows TFLOP/s, and MFU for GPUs of known peak.",
    ),
]


def make_step_facts(
    unprofiled_ms: str | None, tokens: str | None, flops: str | None, logs: "Sequence[Path] | None" = None
) -> "StepFacts":
    """Return the facts about a step that the options give.

    Raises:
        OptionError: one is not a number above 0, or no whole number of tokens; a log states no step time, or
            there is a step time besides.
    """
    from wallscope.model.diagnosis import StepFacts  # noqa: PLC0415  # keeps --help fast

    unprofiled = _parse_positive("--unprofiled-step-ms", unprofiled_ms, "412.6")
    counted = _parse_positive("--tokens-per-step", tokens, "4194304")
    if counted is not None and not counted.is_integer():
        raise OptionError(
            f"--tokens-per-step {tokens} — is not a whole number — write --tokens-per-step 4194304"
        )
    if logs and unprofiled is not None:
        raise OptionError(
            "--log and --unprofiled-step-ms — both give the step without the profiler — give one of them"
        )
    logged = None
    if logs:
        from wallscope.logs.step_times import read_logged_steps  # noqa: PLC0415  # keeps --help fast

        logged = read_logged_steps(logs)
        unprofiled = None if logged.step_ns is None else logged.step_ns / 1e6
    return StepFacts(
        unprofiled_step_ns=None if unprofiled is None else max(round(unprofiled * 1e6), 1),
        tokens=None if counted is None else int(counted),
        flops=_parse_positive("--flops-per-step", flops, "1.8e13"),
        logged=logged,
    )


def _parse_positive(option: str, text: str | None, example: str) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= _MOST_COUNT:
        raise OptionError(f"{option} {text} — is not a number above 0 — write {option} {example}")
    return value
