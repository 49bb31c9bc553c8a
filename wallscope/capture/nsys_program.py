"""Finds the installed nsys, and asks it for its version and options."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from wallscope.model.nsys_flags import InstalledNsys, parse_options

NSYS_VARIABLE = "WALLSCOPE_NSYS"
"""Names the nsys to use; empty means none."""
_PLACES = (
    "/opt/nvidia/nsight-systems*/*/bin/nsys",
    "/opt/nvidia/nsight-systems*/*/target-linux-x64/nsys",
    "/usr/local/cuda*/bin/nsys",
)
_PATIENCE_S = 30


def find_nsys() -> Path | None:
    """Return the nsys of `$WALLSCOPE_NSYS`, of the PATH, or the newest where NVIDIA's packages install it."""
    named = os.environ.get(NSYS_VARIABLE, "nsys")
    found = shutil.which(named) if named else None
    if found is not None or NSYS_VARIABLE in os.environ:
        return None if found is None else Path(found)
    places = [
        place for pattern in _PLACES for place in Path("/").glob(pattern[1:]) if os.access(place, os.X_OK)
    ]
    return max(places, key=_read_numbers, default=None)


def _read_numbers(place: Path) -> tuple[int, ...]:
    """Return the numbers in a path: versions are compared by value."""
    return tuple(map(int, re.findall(r"\d+", str(place))))


def ask_nsys() -> InstalledNsys | None:
    """Return the installed nsys with its options; `None` if there is none that prints its help."""
    path = find_nsys()
    if path is None:
        return None
    version, profile, export = (
        _read_output(path, *words) for words in (("--version",), ("profile", "--help"), ("export", "--help"))
    )
    options = parse_options(profile)
    if not options:
        return None
    number = re.search(r"\d{4}\.\d+(\.\d+)*", version)
    return InstalledNsys(
        str(path), number[0] if number else "of unknown version", options, parse_options(export)
    )


def _read_output(path: Path, *words: str) -> str:
    """Return what nsys prints; nothing if it does not run, or not within half a minute."""
    try:
        ran = subprocess.run(  # noqa: S603  # no shell; nsys belongs to the user
            [path, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.decode("utf-8", "replace")
