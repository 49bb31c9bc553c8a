"""The command line: parse, call, print, exit code; `--help` with options in groups and examples.

Exit codes: 0 is done, 1 is a failed gate and nothing else, 2 is bad usage, input or output. 70 is an error of
wallscope itself, 130 an interrupt, and 128 plus its number a signal that ended the command.
typer groups options only in its rich mode, which would import rich for each `--help`.
"""

import errno
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from wallscope._version import __version__
from wallscope.cli.advise import advise, capture_help, check_config, explain
from wallscope.cli.analyze import analyze
from wallscope.cli.capture import capture
from wallscope.cli.demo import demo
from wallscope.cli.diff import GateFailure, diff
from wallscope.cli.history import bisect, history, record
from wallscope.cli.installation import cache, install_recipe, mcp
from wallscope.cli.ledger import ledger
from wallscope.cli.tables import at, convert, gaps, info, kernels, ranges, steps
from wallscope.cli.whatif import whatif
from wallscope.errors import InternalError, OptionError, WallscopeError
from wallscope.files import is_of_package
from wallscope.process_tuning import POLARS_THREADS, tune_process
from wallscope.urls import redact

if TYPE_CHECKING:
    from typer._click import ClickException, Context, HelpFormatter, Parameter
    from typer.models import OptionInfo


FAILED, USAGE, INTERNAL = 1, 2, 70
_UsageError: "Final[type[ClickException]]" = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
_LONGEST_LINE = 2_000
_MOST_THREADS = 1_024
_NO_THREADS = re.compile(r"^can't start new thread$|could not spawn threads", re.IGNORECASE)
"""What Python, and panics of polars, say where a limit of the system allows no further thread."""
_OF_THE_SYSTEM = frozenset(
    {
        errno.EIO,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ESTALE,
        errno.EROFS,
    }
)
"""Errors of reading and writing that no program causes; they often name no file."""
_USAGE_WORDS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"^Invalid value for '([^']+)'(?: / '[^']+')*: (?:Value error, )?", r"\1 — "),
        (
            r"Input should be a valid integer\b.*|'(?P<v>[^']*)' is not a valid (?:integer|int)( range)?",
            "is not a whole number",
        ),
        (
            r"Input should be a valid number\b.*|'(?P<v>[^']*)' is not a valid float( range)?",
            "is not a number",
        ),
        (r"Input should be greater than or equal to (\S+)", r"is below \1"),
        (r"Input should be less than or equal to (\S+)", r"is above \1"),
        (r"^No such (option|command):? '?([^' ]+)'?", r"\2 — there is no such \1"),
        (r"^Missing (?:argument|option|parameter) '(.+)'", r"\1 — is missing"),
        (r"^Option '(.+)' requires an argument", r"\1 — has no value"),
        (r"^Option '(.+)' does not take a value", r"\1 — takes no value"),
        (r"^Got unexpected extra argument(?:s|\(s\))? \((.+)\)", r"\1 — is more than the command takes"),
        (r" \(Possible options: (.+)\)$|[.]? Did you mean (.+)\?$", r"; similar: \1\2"),
    )
)
_TRACKER = "https://github.com/wallscope/wallscope/issues"
EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "analyze": (
        "wallscope analyze run.sqlite",
        "wallscope analyze run.sqlite --html run.html",
        "wallscope analyze 'reports/rank-*.sqlite' --jobs 4 --fail-on 'communication>30%'",
    ),
    "demo": ("wallscope demo --open", "wallscope demo --diff", "wallscope demo --job --html job.html"),
    "diff": ("wallscope diff before.sqlite after.sqlite", "wallscope diff main..HEAD --fail-on 'step>3%'"),
    "record": ("wallscope record run.sqlite --commit HEAD --label model=moe-30b",),
    "history": ("wallscope history step",),
    "bisect": ("wallscope bisect v1.2..main step",),
    "ledger": ("wallscope ledger", "wallscope ledger runs/store --json ledger.json"),
    "steps": ("wallscope steps run.sqlite --csv steps.csv",),
    "kernels": ("wallscope kernels run.sqlite --steps 5",),
    "ranges": ("wallscope ranges run.sqlite --steps 5",),
    "gaps": ("wallscope gaps run.sqlite --top 5",),
    "at": ("wallscope at run.sqlite 0.5", "wallscope at run.sqlite 500ms"),
    "whatif": (
        "wallscope whatif run.sqlite",
        "wallscope whatif run.sqlite --hide communication:ep --scale host/data-loading=0",
        "wallscope whatif run.sqlite --sweep communication:ep=1,0.5,0.25,0",
    ),
    "advise": ("wallscope advise --model deepseek-v3 --gpus 256 --hardware h100",),
    "check-config": ("wallscope check-config recipe.yaml --hardware h100",),
    "explain": ("wallscope explain", "wallscope explain ep-overlap"),
    "info": ("wallscope info run.sqlite",),
    "convert": ("wallscope convert run.sqlite tables --to parquet",),
    "capture": (
        "wallscope capture -- torchrun --nproc-per-node 8 train.py",
        "wallscope capture --profiler torch --html run.html -- python train.py",
        "wallscope capture --step-function trainer:Trainer.run_step -- python train.py",
    ),
    "capture-help": ("wallscope capture-help", "wallscope capture-help run.sqlite"),
    "cache": ("wallscope cache --clear",),
    "install-recipe": ("wallscope install-recipe ~/recipes",),
    "mcp": ("wallscope mcp runs/",),
}
"""Command lines that `--help` of each command ends with."""

_PYTHON_TYPE = re.compile(r" <(path|str|list\[\w+\])>$")
"""The type behind the name of an argument: its text says what the value is."""
_ANY_COUNT = re.compile(r"; 0<=x<=2147483647|0<=x<=2147483647(; )?")
_BETWEEN = re.compile(r"(\d+)<=x<=(\d+)")
_AT_LEAST = re.compile(r"x>=(\d+)")
_LIMIT = re.compile(r"\d+ to \d+|at least \d+")
_UNBROKEN = {"-": "\N{NON-BREAKING HYPHEN}", " ": "\N{NO-BREAK SPACE}"}
"""Stand for characters at which a line must not break, until the lines are made."""
_MOST_DIGITS: Final = 19
_NEXT = "Run 'wallscope COMMAND --help' for options and examples, 'wallscope explain' for terms."


class GroupedCommand(TyperCommand):
    """A command whose options stand in groups; its help ends with examples."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Parse the command line; what is text or a default stays as it is."""
        functions = {name: function for group in _GROUPS.values() for name, function in group.items()}
        function = functions[self.name or ""]
        _convert_rarely(self.get_params(ctx), get_type_hints(function, include_extras=True))
        return super().parse_args(ctx, args)

    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write arguments, then options by group, those without a group last."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        others: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            record = describe_parameter(param, ctx)
            if record is None:
                continue
            panel = getattr(param, "rich_help_panel", None)
            is_argument = param.param_type_name == "argument"
            group = "Arguments" if is_argument else panel
            (others if group is None else groups.setdefault(group, [])).append(record)
        rest = "Other options" if len(groups) > 1 else "Options"
        _write_groups({**groups, rest: others}.items(), formatter)

    def format_epilog(self, ctx: "Context", formatter: "HelpFormatter") -> None:  # noqa: ARG002  # click's
        """Write the examples."""
        lines = EXAMPLES[self.name or ""]
        with formatter.section("Example" if len(lines) == 1 else "Examples"):
            for line in lines:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


_TEXTS: Final = dict.fromkeys((str, str | None, list[str], list[str] | None), str)
_PATHS: Final = dict.fromkeys((Path, Path | None, list[Path], list[Path] | None), Path)
_NUMBERS: Final = dict.fromkeys((int, int | None), int)
_MADE_OF_TEXT: Final[Mapping[Any, Callable[[Any], Any]]] = {**_TEXTS, **_PATHS, **_NUMBERS}


def _convert_rarely(params: "Iterable[Parameter]", hints: Mapping[str, Any]) -> None:
    """Make text, paths, numbers and defaults here: the first conversion by typer loads pydantic."""
    for param in params:
        hint = hints.get(param.name or "")
        kind, *options = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        vars(param)["process_value"] = partial(_convert_value, param, _MADE_OF_TEXT.get(kind), options)


def _convert_value(
    param: "Parameter",
    make: Callable[[Any], Any] | None,
    options: Sequence["OptionInfo"],
    ctx: "Context",
    value: Any,
) -> Any:
    """Return the value of an argument or option as its function takes it."""
    source = ctx.get_parameter_source(param.name or "")
    is_default = source is not None and source.name == "DEFAULT"
    is_many = param.multiple or param.nargs == -1
    if is_default and not param.required:
        kept = list(value or ()) if is_many else value
    elif make is not None and value and (make is not int or _is_within(options, value)):
        kept = [make(one) for one in value] if is_many else make(value)
    else:
        return type(param).process_value(param, ctx, value)
    return kept if param.callback is None else param.callback(ctx, param, kept)


def _is_within(options: Iterable["OptionInfo"], text: str) -> bool:
    """Return whether a text is a number that the limits of an option allow; typer says what is wrong."""
    if not (text.isascii() and text.isdecimal() and len(text) < _MOST_DIGITS):
        return False
    number = int(text)
    return not any(
        (option.min is not None and number < option.min) or (option.max is not None and number > option.max)
        for option in options
    )


class GroupedCommands(TyperGroup):
    """The list of commands in groups, with the first sentence of each uncut."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Parse the options before the command; what is a default stays as it is."""
        _convert_rarely(self.get_params(ctx), {})
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write the commands by group, in the order of their registration."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                panel = str(getattr(command, "rich_help_panel", None) or "Commands")
                groups.setdefault(panel, []).append((name, summarize(command.help or "")))
        widest = max(len(name) for rows in groups.values() for name, _ in rows)
        padded = {
            panel: [(f"{name:<{widest}}", text) for name, text in rows] for panel, rows in groups.items()
        }
        _write_groups(padded.items(), formatter)

    def format_epilog(self, ctx: "Context", formatter: "HelpFormatter") -> None:  # noqa: ARG002  # click's
        """Say how to read on."""
        formatter.write_paragraph()
        formatter.write_text(_NEXT)


def describe_parameter(param: "Parameter", ctx: "Context") -> tuple[str, str] | None:
    """Return the label of an argument or option and its text, with limits in words; `None` if hidden."""
    record = param.get_help_record(ctx)
    if record is None:
        return None
    label, text = record
    body, bracket, limits = text.partition("  [")
    limits = _BETWEEN.sub(r"\1 to \2", _ANY_COUNT.sub("", limits))
    limits = _AT_LEAST.sub(r"at least \1", limits)
    return _PYTHON_TYPE.sub("", label), body if limits in {"", "]"} else f"{body}{bracket}{limits}"


def summarize(text: str) -> str:
    """Return the first sentence of a help text, without its point.

    >>> summarize("List the steps. More of it.")
    'List the steps'
    """
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def _write_groups(groups: Iterable[tuple[str, list[tuple[str, str]]]], formatter: "HelpFormatter") -> None:
    for title, rows in groups:
        if rows:
            with formatter.section(title):
                formatter.write_dl([(label, _join_words(text)) for label, text in rows])
    split = str.maketrans({mark: character for character, mark in _UNBROKEN.items()})
    formatter.buffer[:] = [part.translate(split) for part in formatter.buffer]


def _join_words(text: str) -> str:
    """Return a text whose hyphenated words and limits stay in one line."""
    limits = _LIMIT.sub(lambda found: found[0].replace(" ", _UNBROKEN[" "]), text)
    return limits.replace("-", _UNBROKEN["-"])


app = typer.Typer(
    cls=GroupedCommands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Find what limits a GPU training step, from an Nsight Systems export or a trace of PyTorch's"
    " profiler.",
)
_GROUPS: dict[str, dict[str, Callable[..., None]]] = {
    "Get started": {"demo": demo, "capture": capture},
    "Analyze a run": {
        "analyze": analyze,
        "steps": steps,
        "kernels": kernels,
        "ranges": ranges,
        "gaps": gaps,
        "at": at,
        "whatif": whatif,
    },
    "Compare runs": {"diff": diff, "record": record, "history": history, "bisect": bisect, "ledger": ledger},
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
                "ignore_unknown_options": _command is explain,  # words such as --overlap-grad-reduce
                "allow_interspersed_args": _command is not capture,  # what follows is the program's
            },
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
    """Options before the command.

    Raises:
        OptionError: the environment names no number of threads that polars can start.
    """
    threads = os.environ.get(POLARS_THREADS)
    if threads is not None and not (threads.isdecimal() and 0 < int(threads[:9]) <= _MOST_THREADS):
        raise OptionError(
            f"{POLARS_THREADS}={threads[:40]} — is not a number of threads — write 1 to {_MOST_THREADS}"
        )
    tune_process()


def main() -> None:
    """Run the command line; every error becomes one line and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter shows a question mark
    try:
        code = app(standalone_mode=False, prog_name="wallscope")
    except (GateFailure, KeyboardInterrupt):
        raise
    except SystemExit as left:
        sys.exit(USAGE if left.code == FAILED else left.code)  # typer has a 1 for a pipe that broke
    except BaseException as error:  # noqa: BLE001  # the boundary; panics of polars are no `Exception`
        line = _state_error(error)
        if line is None:
            _report_defect()
        from wallscope.render.texts import visible  # noqa: PLC0415  # keeps --help fast

        line = redact(line)
        if len(line) > _LONGEST_LINE:
            line = f"{line[: _LONGEST_LINE // 2]}…{line[-_LONGEST_LINE // 2 :]}"  # reason and cure come last
        sys.stderr.write(f"wallscope: {visible(line, most=_LONGEST_LINE + 1)}\n")
        sys.exit(USAGE)
    sys.exit(code if isinstance(code, int) else 0)


def _state_error(error: BaseException) -> str | None:
    """Return the line about what the user can mend; `None` for a defect of wallscope."""
    if isinstance(error, _UsageError):
        return _state_usage(error)
    if isinstance(error, WallscopeError):
        return None if isinstance(error, InternalError) else str(error)
    if isinstance(error, OSError):
        return _state_system_error(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory — raise the limit, or capture fewer steps"
    if _NO_THREADS.search(str(error)) is not None:
        return "the system starts no more threads — raise the limit of memory, or of processes"
    return None


def _state_system_error(error: OSError) -> str | None:
    path = error.filename
    if isinstance(path, str):
        return None if is_of_package(path) else f"{path} — cannot be used: {error.strerror} — check the path"
    if error.errno in _OF_THE_SYSTEM:
        return f"the system stopped this: {os.strerror(error.errno)} — check disks, quotas and limits"
    return None


def _state_usage(error: "ClickException") -> str:
    """Return the line about a wrong command line; exit with the help where nothing was asked for."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        sys.exit(USAGE)
    context = getattr(error, "ctx", None)
    text = error.format_message().removesuffix(".")
    for pattern, words in _USAGE_WORDS:
        text = pattern.sub(words, text)
    return f"{text} — see {context.command_path if context is not None else 'wallscope'} --help"


def _report_defect() -> NoReturn:
    from wallscope.render.texts import spell_out  # noqa: PLC0415  # keeps --help fast

    for line in redact(traceback.format_exc()).splitlines():
        sys.stderr.write(f"{spell_out(line)}\n")
    sys.stderr.write(f"wallscope {__version__}: internal error; please report the lines above: {_TRACKER}\n")
    sys.exit(INTERNAL)
