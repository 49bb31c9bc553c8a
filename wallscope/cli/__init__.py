"""The command line: parse, call, print, exit code.

Exit codes: 0 is done, 1 is a failed gate and nothing else, 2 is bad usage, input or output. 70 is an error of
wallscope itself, 130 an interrupt, and 128 plus its number a signal that ended the command.
"""

import sys
import traceback
from collections.abc import Callable
from io import TextIOWrapper
from typing import NoReturn

import typer

from wallscope._version import __version__
from wallscope.cli.advise import advise, capture_help, check_config, explain
from wallscope.cli.analyze import analyze
from wallscope.cli.diff import GateFailure, diff
from wallscope.cli.help_text import GroupedCommand, GroupedCommands
from wallscope.cli.history import bisect, history, record
from wallscope.cli.installation import cache, install_recipe
from wallscope.cli.mcp import mcp
from wallscope.cli.tables import at, convert, gaps, info, kernels, ranges, steps
from wallscope.cli.whatif import whatif
from wallscope.errors import InternalError, WallscopeError
from wallscope.process_tuning import tune_process
from wallscope.render.texts import spell_out, visible
from wallscope.urls import redact

FAILED, USAGE, INTERNAL = 1, 2, 70
_TRACKER = "https://github.com/wallscope/wallscope/issues"

app = typer.Typer(
    cls=GroupedCommands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Find what limits a GPU training step, from an Nsight Systems export or a trace of PyTorch's"
    " profiler.",
)
_GROUPS: dict[str, dict[str, Callable[..., None]]] = {
    "Analyze a run": {
        "analyze": analyze,
        "steps": steps,
        "kernels": kernels,
        "ranges": ranges,
        "gaps": gaps,
        "at": at,
        "whatif": whatif,
    },
    "Compare runs": {"diff": diff, "record": record, "history": history, "bisect": bisect},
    "Understand and plan": {"explain": explain, "advise": advise, "check-config": check_config},
    "Capture and convert": {"capture-help": capture_help, "info": info, "convert": convert},
    "Installation and agents": {"cache": cache, "install-recipe": install_recipe, "mcp": mcp},
}
for _group, _commands in _GROUPS.items():
    for _name, _command in _commands.items():
        app.command(
            _name,
            cls=GroupedCommand,
            rich_help_panel=_group,
            context_settings={
                "ignore_unknown_options": _command is explain
            },  # words such as --overlap-grad-reduce
        )(_command)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  # typer's callback protocol
    if wanted:
        sys.stdout.write(f"wallscope {__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: bool = typer.Option(  # noqa: ARG001  # the callback acts on it
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Options before the command."""
    tune_process()


def main() -> None:
    """Run the command line; every error becomes one line and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter shows a question mark
    try:
        app()
    except InternalError:
        _report_defect()
    except WallscopeError as error:
        sys.stderr.write(f"wallscope: {visible(redact(str(error)), most=2_000)}\n")
        sys.exit(USAGE)
    except MemoryError:
        sys.stderr.write("wallscope: there is not enough memory — raise the limit, or capture fewer steps\n")
        sys.exit(USAGE)
    except GateFailure:
        raise
    except SystemExit as left:
        sys.exit(USAGE if left.code == FAILED else left.code)  # typer has a 1 for a pipe that broke
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  # the boundary; panics of polars are no `Exception`
        _report_defect()


def _report_defect() -> NoReturn:
    for line in redact(traceback.format_exc()).splitlines():
        sys.stderr.write(f"{spell_out(line)}\n")
    sys.stderr.write(f"wallscope {__version__}: internal error; please report the lines above: {_TRACKER}\n")
    sys.exit(INTERNAL)
