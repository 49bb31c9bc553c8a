"""Gates on the command line: read, judged, and what becomes of the exit code."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.errors import OptionError
from wallscope.render.foreign import visible

if TYPE_CHECKING:
    from wallscope.compare.gates import Gate
    from wallscope.model.analysis import Analysis
    from wallscope.model.comparison import GateResult

FAILED = 1
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="GATE",
        help="Exit with 1 if so: step>3%, communication>5% (of the step), host/framework>2ms; repeatable.",
    ),
]
Gates = Annotated[
    Path | None, typer.Option("--gates", metavar="FILE", help="Gates, one a line; # begins a comment.")
]


def read_gates(texts: list[str] | None, file: Path | None = None) -> "tuple[Gate, ...]":
    """The gates that the options name, those of the file last.

    Raises:
        OptionError: one cannot be read, or the file cannot.
    """
    if not texts and file is None:
        return ()
    from wallscope.compare.gates import parse_gate  # noqa: PLC0415  # keeps --help fast

    lines: list[str] = []
    if file is not None:
        try:
            lines = [line.partition("#")[0].strip() for line in file.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(
                f"--gates {file} — cannot be read — give a text file of one gate a line"
            ) from error
    return tuple(parse_gate(text) for text in (*(texts or []), *filter(None, lines)))


def fail(found: "tuple[GateResult, ...]") -> None:
    """Exit with 1 if a gate failed, with a line each on standard error."""
    failed = [gate for gate in found if not gate.held]
    for gate in failed:
        sys.stderr.write(f"wallscope: gate {gate.gate} failed: {visible(gate.evidence, most=500)}\n")
    if failed:
        raise typer.Exit(FAILED)


def judge(gates: "tuple[Gate, ...]", analysis: "Analysis") -> None:
    """Exit with 1 if the typical step of an answer is past a gate.

    Raises:
        OptionError: a gate needs two sides to compare.
    """
    if not gates:
        return
    from wallscope.compare.gates import evaluate_gates_alone  # noqa: PLC0415  # keeps --help fast

    fail(evaluate_gates_alone(gates, analysis))
