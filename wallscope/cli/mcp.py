"""`wallscope mcp`: a server for coding agents, over the Model Context Protocol."""

from pathlib import Path
from typing import Annotated

import typer

from wallscope.cli.options import NoCache
from wallscope.errors import OptionError

_MOST_PORT = 65_535


def mcp(
    roots: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Folders that agents may read; everything else is refused."),
    ],
    *,
    http: Annotated[
        int | None,
        typer.Option(
            "--http",
            metavar="PORT",
            min=1,
            max=_MOST_PORT,
            help="Serve over HTTP at http://127.0.0.1:PORT/mcp, only on this machine, instead of standard"
            " streams.",
        ),
    ] = None,
    no_cache: NoCache = False,
) -> None:
    """Serve read-only tools to coding agents (MCP)."""
    from importlib.util import find_spec  # noqa: PLC0415  # keeps --help fast

    from wallscope.agents.worker import open_roots  # noqa: PLC0415  # same

    if find_spec("mcp") is None:
        raise OptionError("mcp — needs the package `mcp`, which is not installed — pip install mcp")
    found = open_roots(roots)
    from wallscope.agents.server import serve  # noqa: PLC0415  # imports the SDK

    serve(found, port=http, has_cache=not no_cache)
