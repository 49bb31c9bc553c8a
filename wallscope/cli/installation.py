"""`wallscope cache`, `install-recipe` and `mcp`: what is kept on a machine, and servers of other programs."""

import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.options import NoCache
from wallscope.errors import OptionError
from wallscope.units import plural, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wallscope.cache_folder import Entry

RECIPE = "wallscope_job"
_METADATA, _MODULE, _COMMAND, _COMPILED = "metadata.json", f"{RECIPE}.py", "command.json", "__pycache__"
_MOST_PORT = 65_535


def cache(
    *, clear: Annotated[bool, typer.Option("--clear", help="Remove everything in the cache.")] = False
) -> None:
    """Show or clear the cache of results."""
    from wallscope.cache_folder import EntryKind, user_cache  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.texts import visible  # noqa: PLC0415  # same

    place = user_cache()
    if clear:
        sys.stdout.write(f"{_amount(place.clear())} removed\n")
        return
    found = place.entries()
    lines = [visible(str(place.folder), most=4_000)]
    lines += [
        f"  {kind:<11}{_amount([entry for entry in found if entry.kind == kind])}" for kind in EntryKind
    ]
    lines.append(f"  {'limit':<11}{size(place.limit_bytes)}, least recently used first")
    sys.stdout.write("\n".join(lines) + "\n")


def _amount(entries: "Sequence[Entry]") -> str:
    return f"{plural(len(entries), 'file')}, {size(sum(entry.size_bytes for entry in entries))}"


def install_recipe(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of your recipes, as in NSYS_RECIPE_PATH.")
    ],
) -> None:
    """Install a recipe that runs wallscope under nsys recipe."""
    import shlex  # noqa: PLC0415  # keeps --help fast

    from wallscope.cli.output import check_folder, write_folder  # noqa: PLC0415  # same
    from wallscope.render.texts import visible  # noqa: PLC0415  # same

    place = folder / RECIPE
    check_folder(place, (), _is_ours)
    write_folder(place, _write_recipe, _is_ours)
    found = shlex.quote(str(folder.resolve()))
    sys.stdout.write(
        f"Run the recipe:\n  NSYS_RECIPE_PATH={visible(found)} nsys recipe {RECIPE} --input REPORTS\n"
    )


def _write_recipe(place: Path) -> None:
    import json  # noqa: PLC0415  # keeps --help fast

    from wallscope.files import read_report  # noqa: PLC0415  # same

    for name in (_METADATA, _MODULE):
        (place / name).write_text(read_report(f"recipe/{name}"), encoding="utf-8")
    command = json.dumps([sys.executable, "-m", "wallscope"])
    (place / _COMMAND).write_text(f"{command}\n", encoding="utf-8")


def _is_ours(place: Path) -> bool:
    """Whether a folder holds this recipe and nothing else, so that it may be replaced."""
    import json  # noqa: PLC0415  # keeps --help fast

    known = {_METADATA, _MODULE, _COMMAND}
    entries = {
        entry.name: entry.lstat().st_mode for entry in place.iterdir() if not _is_bytecode_folder(entry)
    }
    if not entries.keys() <= known or not all(map(stat.S_ISREG, entries.values())):
        return False
    try:
        metadata = json.loads((place / _METADATA).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(metadata, dict) and metadata.get("module_name") == RECIPE


def _is_bytecode_folder(entry: Path) -> bool:
    """Whether an entry is the folder that Python compiles into, with nothing else in it."""
    return (
        entry.name == _COMPILED
        and stat.S_ISDIR(entry.lstat().st_mode)
        and all(stat.S_ISREG(one.lstat().st_mode) and one.suffix == ".pyc" for one in entry.iterdir())
    )


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

    from wallscope.agents.worker import open_roots  # noqa: PLC0415

    if find_spec("mcp") is None:
        from wallscope.extras import name_install_command  # noqa: PLC0415  # only where it is absent

        raise OptionError(
            f"mcp — needs the package `mcp`, which is not installed — {name_install_command('mcp', 'mcp')}"
        )
    found = open_roots(roots)
    from wallscope.agents.server import serve  # noqa: PLC0415  # imports the SDK

    serve(found, port=http, has_cache=not no_cache)
