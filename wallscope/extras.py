"""Extras: the command that adds the packages of one, in the way in which wallscope was installed."""

import re
import shlex
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wallscope.records import dataclass

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_UV_RECEIPT, _PIPX_METADATA = "uv-receipt.toml", "pipx_metadata.json"
_UVX_FOLDERS = ("archive-v", "environments-v")  # of uv's cache
_EXTRA = re.compile(r"(?P<requirement>[^;]+?)\s*;\s*extra == ['\"](?P<extra>[^'\"]+)['\"]")
_FOLDER = {"path", "directory", "editable"}


class Tool(StrEnum):
    """What installs packages into the environment of wallscope."""

    UV_TOOL = "uv tool"
    UVX = "uvx"
    PIPX = "pipx"
    UV_PIP = "uv pip"
    PIP = "pip"


@dataclass(frozen=True, slots=True)
class Installation:
    """How wallscope was installed.

    Attributes:
        source: what was installed: a folder, file or URL; `None` for a package index.
        requirements: packages of each extra.
        further: packages that a uv tool was installed with, and that a new installation would drop.
    """

    tool: Tool
    prefix: Path
    python: str
    source: str | None
    is_editable: bool
    requirements: dict[str, tuple[str, ...]]
    further: tuple[str, ...] = ()


def name_install_command(extra: str, package: str) -> str:
    """Return the command that installs the packages of an extra; `package` is the one that is missing."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415  # keeps --help fast

    try:
        found = distribution("wallscope")
    except PackageNotFoundError:  # a folder on PYTHONPATH
        found = None
    installation = read_installation(Path(sys.prefix), sys.executable, found)
    return write_install_command(installation.requirements.get(extra, (package,)), installation)


def write_install_command(packages: Sequence[str], place: Installation) -> str:
    """Return the command that adds packages to an installation."""
    match place.tool:
        case Tool.UV_TOOL:
            own = [f"--with {shlex.quote(package)}" for package in (*place.further, *packages)]
            source = shlex.quote(place.source or "wallscope")
            return " ".join(["uv tool install", *own, *(["--editable"] if place.is_editable else []), source])
        case Tool.UVX:
            own = [f"--with {shlex.quote(package)}" for package in packages]
            origin = [] if place.source is None else ["--from", shlex.quote(place.source)]
            return " ".join(["uvx", *own, *origin, "wallscope", "..."])
        case Tool.PIPX:
            command = ["pipx", "inject", place.prefix.name]
        case Tool.UV_PIP:
            command = ["uv", "pip", "install", "--python", place.python]
        case Tool.PIP:
            command = [place.python, "-m", "pip", "install"]
    return shlex.join([*command, *packages])


def read_installation(prefix: Path, python: str, found: "Distribution | None") -> Installation:
    """Return how wallscope was installed into an environment.

    Args:
        prefix: the environment, `sys.prefix`.
        python: its interpreter.
        found: the installed distribution; `None` if wallscope runs from a folder.
    """
    import json  # noqa: PLC0415  # keeps --help fast

    installer = (found.read_text("INSTALLER") or "").strip() if found else ""
    origin = json.loads((found.read_text("direct_url.json") if found else None) or "{}")
    requirements: dict[str, tuple[str, ...]] = {}
    for line in (found.requires if found else None) or ():
        if parts := _EXTRA.fullmatch(line):
            requirements[parts["extra"]] = (*requirements.get(parts["extra"], ()), parts["requirement"])
    return Installation(
        _find_tool(prefix, installer),
        prefix,
        python,
        _find_source(origin),
        bool(origin.get("dir_info", {}).get("editable")),
        requirements,
        _read_further(prefix / _UV_RECEIPT),
    )


def _find_tool(prefix: Path, installer: str) -> Tool:
    if (prefix / _UV_RECEIPT).is_file():
        return Tool.UV_TOOL
    if (prefix / _PIPX_METADATA).is_file():
        return Tool.PIPX
    if installer == "uv":
        return Tool.UVX if prefix.parent.name.startswith(_UVX_FOLDERS) else Tool.UV_PIP
    return Tool.PIP


def _find_source(origin: dict[str, Any]) -> str | None:
    """Return what `direct_url.json` names (https://packaging.python.org/specifications/direct-url)."""
    from urllib.parse import urlsplit  # noqa: PLC0415  # keeps --help fast
    from urllib.request import url2pathname  # noqa: PLC0415  # same

    url = origin.get("url")
    if not isinstance(url, str):
        return None
    parts = urlsplit(url)
    if parts.scheme == "file":
        return url2pathname(parts.path)
    return f"{origin['vcs_info']['vcs']}+{url}" if "vcs_info" in origin else url


def _read_further(receipt: Path) -> tuple[str, ...]:
    """Return the packages next to wallscope in the receipt of a uv tool."""
    import tomllib  # noqa: PLC0415  # keeps --help fast

    try:
        requirements = tomllib.loads(receipt.read_text(encoding="utf-8"))["tool"]["requirements"]
    except (OSError, ValueError, KeyError):
        return ()
    return tuple(
        f"{one['name']}{one.get('specifier', '')}"
        for one in requirements
        if one["name"] != "wallscope" and not _FOLDER & one.keys()
    )
