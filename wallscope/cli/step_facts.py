"""The options that tell what the user knows of a step."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.errors import OptionError

if TYPE_CHECKING:
    from wallscope.model.throughput import StepFacts

_MOST = 1e30

UnprofiledStep = Annotated[
    str | None,
    typer.Option(
        "--unprofiled-step-ms",
        metavar="MS",
        help="How long a step takes without the profiler: tells how far the capture slowed it.",
    ),
]
Tokens = Annotated[
    str | None,
    typer.Option(
        "--tokens-per-step", metavar="N", help="Tokens of one step of the whole job: tells tokens per second."
    ),
]
Flops = Annotated[
    str | None,
    typer.Option(
        "--flops-per-step",
        metavar="F",
        help="FLOPs of one step on one GPU, by your own model, as 1.8e13: tells TFLOP/s, and MFU where the"
        " peak of the GPU is known.",
    ),
]


def step_facts(unprofiled_ms: str | None, tokens: str | None, flops: str | None) -> "StepFacts":
    """What the options tell of a step.

    Raises:
        OptionError: one is no number above 0, or no whole number of tokens.
    """
    from wallscope.model.throughput import StepFacts  # noqa: PLC0415  # keeps --help fast

    unprofiled = _number("--unprofiled-step-ms", unprofiled_ms, "412.6")
    counted = _number("--tokens-per-step", tokens, "4194304")
    if counted is not None and not counted.is_integer():
        raise OptionError(
            f"--tokens-per-step {tokens} — is no whole number — write --tokens-per-step 4194304"
        )
    return StepFacts(
        unprofiled_step_ns=None if unprofiled is None else max(round(unprofiled * 1e6), 1),
        tokens=None if counted is None else int(counted),
        flops=_number("--flops-per-step", flops, "1.8e13"),
    )


def _number(option: str, text: str | None, example: str) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= _MOST:
        raise OptionError(f"{option} {text} — is no number above 0 — write {option} {example}")
    return value
