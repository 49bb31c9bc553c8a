"""`--brief` and `--max-rows`: the same answers in few words, for coding agents."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.output import write_file
from wallscope.errors import OptionError

if TYPE_CHECKING:
    from wallscope.model.brief import Brief

_DEFAULT_ROWS, _MOST_ROWS = 3, 50  # as in model/brief.py, which `--help` does not import

IsBrief = Annotated[
    bool,
    typer.Option(
        "--brief",
        help="Answer in under 600 tokens: verdict, numbers, recommendations, confidence, next command; --json"
        " then writes the same.",
    ),
]
MaxRows = Annotated[
    int | None,
    typer.Option(
        "--max-rows",
        metavar="N",
        min=1,
        max=_MOST_ROWS,
        help=f"Rows of each list in a brief answer, {_DEFAULT_ROWS} by default.",
    ),
]


def count_rows(*, brief: bool, max_rows: int | None) -> int | None:
    """Return how many rows each list of a brief answer has; `None` where the full answer is asked for.

    Raises:
        OptionError: rows are counted for a full answer.
    """
    if max_rows is not None and not brief:
        raise OptionError(f"--max-rows {max_rows} — only limits brief answers — add --brief")
    return (max_rows or _DEFAULT_ROWS) if brief else None


def show_brief(brief: "Brief", json: Path | None, *, is_printed: bool = True) -> None:
    """Write a brief answer as JSON where asked for, and print it unless standard output is taken."""
    from wallscope.render.data import write_brief, write_brief_json  # noqa: PLC0415  # keeps --help fast

    if json is not None:
        write_file(json, write_brief_json(brief))
    if is_printed and str(json) != "-":
        sys.stdout.write(write_brief(brief))
        sys.stdout.flush()
