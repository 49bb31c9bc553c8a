"""Where results go: standard output, and files that appear whole or not at all."""

import io
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from wallscope.errors import OutputError
from wallscope.files import real, write_chunks

if TYPE_CHECKING:
    from rich.console import RenderableType

_STANDARD_OUTPUT = "-"


def print_out(answer: "RenderableType") -> None:
    """Print to standard output, as wide as the terminal, 80 columns elsewhere; no letter of it is obeyed."""
    from rich.console import Console  # noqa: PLC0415  # keeps --help fast
    from rich.segment import SegmentLines  # noqa: PLC0415

    from wallscope.render.foreign import spelled  # noqa: PLC0415

    page = io.StringIO()
    console = Console(
        file=page,
        force_terminal=sys.stdout.isatty(),
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )
    lines = [
        [segment._replace(text=spelled(segment.text)) for segment in line]
        for line in console.render_lines(answer, pad=False)
    ]
    console.print(SegmentLines(lines, new_lines=True))
    _to_standard_output("\n".join(line.rstrip() for line in page.getvalue().split("\n")))


def _to_standard_output(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to flush at exit
        raise typer.Exit(2) from None
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputError(
            f"standard output — cannot be written: {error.strerror} — make room there"
        ) from error


def check_output(target: Path | None, inputs: tuple[Path | None, ...]) -> None:
    """Refuse a bad target before the work begins.

    Raises:
        OutputError: the target is an input, no regular file, or in no folder that can be written.
    """
    if target is None or str(target) == _STANDARD_OUTPUT:
        return
    status = status_of(target, "file")
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise OutputError(f"{target} — is no regular file — name another file")
    if status is not None and any(path and path.exists() and target.samefile(path) for path in inputs):
        raise OutputError(f"{target} — is an input — name another file")
    folders = [real(path) for path in inputs if path is not None and path.is_dir()]
    if any(real(target).is_relative_to(folder) for folder in folders):
        raise OutputError(f"{target} — lies in a folder that is an input — name a file elsewhere")
    if not target.absolute().parent.is_dir():
        raise OutputError(f"{target} — its folder does not exist — make it first")


def status_of(target: Path, kind: str) -> os.stat_result | None:
    """What stands at a target, links not followed; `None` without anything.

    Raises:
        OutputError: that cannot be told; `kind` is what to name another one of.
    """
    try:
        return target.lstat()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise OutputError(f"{target} — cannot be written: {error} — name another {kind}") from error


def check_different(targets: dict[str, Path | None]) -> None:
    """Refuse two results in one place; `targets` are the options and what each of them names.

    Raises:
        OutputError: two of them name the same file, or both standard output.
    """
    taken: dict[Path | str, str] = {}
    for option, target in targets.items():
        if target is None:
            continue
        is_standard = str(target) == _STANDARD_OUTPUT
        place = _STANDARD_OUTPUT if is_standard else real(target)
        if place in taken:
            said = "standard output" if is_standard else str(target)
            raise OutputError(f"{said} — is named by {taken[place]} and by {option} — name two places")
        taken[place] = option


def write_whole(target: Path, text: str) -> None:
    """Write aside, then rename: the target holds all of the text, or what it held before.

    Raises:
        OutputError: the file cannot be written.
    """
    if str(target) == _STANDARD_OUTPUT:
        _to_standard_output(text)
        return
    write_chunks(target, (text.encode(),))
