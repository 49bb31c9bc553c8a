"""Files that are shipped: tables of the package, and the top-level folders `queries/` and `reports/`.

A wheel holds those folders inside the package; a checkout, editable installs too, has them next to it.
"""

import tomllib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any


@cache
def _folder(name: str) -> Traversable:
    packaged = files("wallscope") / name
    return packaged if packaged.is_dir() else Path(__file__).resolve().parent.parent / name


@cache
def read_query(name: str) -> str:
    """Return the text of `queries/<name>.sql`.

    Raises:
        FileNotFoundError: no such query is shipped.
    """
    return (_folder("queries") / f"{name}.sql").read_text(encoding="utf-8")


@cache
def read_toml(path: str) -> dict[str, Any]:
    """Return the content of a TOML file by its path in the package; not to be changed.

    Raises:
        FileNotFoundError: no such file is shipped.
    """
    return tomllib.loads((files("wallscope") / path).read_text(encoding="utf-8"))


def list_toml_paths(folder: str) -> list[str]:
    """Return the paths in the package of the TOML files of a folder, in the order of their names."""
    names = sorted(entry.name for entry in (files("wallscope") / folder).iterdir())
    return [f"{folder}/{name}" for name in names if name.endswith(".toml")]


def read_report(name: str) -> str:
    """Return the text of the file `name` in `reports/`.

    Raises:
        FileNotFoundError: no such file is shipped.
    """
    return (_folder("reports") / name).read_text(encoding="utf-8")
