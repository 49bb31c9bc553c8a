"""`wallscope install-recipe`: jobs analysed by `nsys recipe`, in its modes and on its clusters."""

import stat
import sys
from pathlib import Path
from typing import Annotated

import typer

RECIPE = "wallscope_job"
_METADATA, _MODULE, _COMMAND, _COMPILED = "metadata.json", f"{RECIPE}.py", "command.json", "__pycache__"


def install_recipe(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of your recipes, as in NSYS_RECIPE_PATH.")
    ],
) -> None:
    """Put a recipe for `nsys recipe` into a folder: it runs this wallscope on the reports of a job."""
    import shlex  # noqa: PLC0415  # keeps --help fast

    from wallscope.cli.folders import check_folder, write_folder  # noqa: PLC0415  # same
    from wallscope.cli.output import print_out  # noqa: PLC0415  # same
    from wallscope.render.foreign import visible  # noqa: PLC0415  # same

    place = folder / RECIPE
    check_folder(place, (), _is_ours)
    write_folder(place, _write, _is_ours)
    found = shlex.quote(str(folder.resolve()))
    print_out(visible(f"{place} is written. Run it:"))
    sys.stdout.write(f"  NSYS_RECIPE_PATH={visible(found)} nsys recipe {RECIPE} --input REPORTS\n")


def _write(place: Path) -> None:
    import json  # noqa: PLC0415  # keeps --help fast

    from wallscope.shipped import report  # noqa: PLC0415  # same

    for name in (_METADATA, _MODULE):
        (place / name).write_text(report(f"recipe/{name}"), encoding="utf-8")
    command = json.dumps([sys.executable, "-m", "wallscope"])
    (place / _COMMAND).write_text(f"{command}\n", encoding="utf-8")


def _is_ours(place: Path) -> bool:
    """Whether a folder holds this recipe and nothing else, so that it may be replaced."""
    import json  # noqa: PLC0415  # keeps --help fast

    known = {_METADATA, _MODULE, _COMMAND}
    entries = {entry.name: entry.lstat().st_mode for entry in place.iterdir() if not _is_compiled(entry)}
    if not entries.keys() <= known or not all(map(stat.S_ISREG, entries.values())):
        return False
    try:
        told = json.loads((place / _METADATA).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(told, dict) and told.get("module_name") == RECIPE


def _is_compiled(entry: Path) -> bool:
    """Whether an entry is the folder that Python compiles into, with nothing else in it."""
    return (
        entry.name == _COMPILED
        and stat.S_ISDIR(entry.lstat().st_mode)
        and all(stat.S_ISREG(one.lstat().st_mode) and one.suffix == ".pyc" for one in entry.iterdir())
    )
