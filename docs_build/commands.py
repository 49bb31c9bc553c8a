"""The reference of commands, made from the command line itself."""

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from wallscope.cli import app, describe_parameter

_HEAD = """# Commands

`wallscope COMMAND --help` prints the same: this page is generated from the command line.
[Exit codes](exit-codes.md) are the same for all commands.

<!-- picture: help | All commands, as `wallscope --help` lists them -->
"""


def write_commands() -> str:
    """Return the page: one section for each command, with its arguments and options."""
    group: Any = typer.main.get_command(app)
    sections = (line for name in group.commands for line in _command(group, name))
    return "\n".join([_HEAD, *_overview(group), *sections])


def _overview(group: Any) -> Iterator[str]:
    yield "| command | purpose |\n|---|---|"
    for name, command in group.commands.items():
        purpose = " ".join(str(command.help or "").partition("\n\n")[0].split())
        yield f"| [`{name}`](#{name}) | {_cell(purpose)} |"
    yield ""


def _command(group: Any, name: str) -> Iterator[str]:
    command = group.commands[name]
    context = command.make_context(name, [], parent=None, resilient_parsing=True)
    usage = " ".join(part for part in command.collect_usage_pieces(context) if part)
    yield f"## {name}\n"
    yield from _prose(str(command.help or ""))
    yield f"```text\nwallscope {name} {usage}\n```\n"
    yield "| argument or option | meaning | values and default |\n|---|---|---|"
    for parameter in command.get_params(context):
        record = describe_parameter(parameter, context)
        if record is not None:
            said, _, extra = record[1].partition("  [")
            yield f"| {_code(record[0])} | {_cell(said)} | {_cell(extra.removesuffix(']'))} |"
    yield ""
    yield from _examples(command, context)


def _examples(command: Any, context: Any) -> Iterator[str]:
    """The examples that the help of the command ends with."""
    formatter = context.make_formatter()
    command.format_epilog(context, formatter)
    lines = [line.strip() for line in formatter.getvalue().splitlines()]
    commands = [line for line in lines if line.startswith("wallscope ")]
    if commands:
        yield "\n".join(["```sh", *commands, "```", ""])


def _prose(text: str) -> Iterator[str]:
    """The paragraphs of a help text; those that keep their lines, as examples do, as they stand."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if paragraph.startswith("\b"):
            lines = paragraph.removeprefix("\b").strip("\n")
            yield f"```text\n{lines}\n```\n"
        elif paragraph:
            yield f"{paragraph}\n"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
