"""Files that travel with the package: the top-level folders `queries/` and `reports/`.

A wheel holds them inside the package; a checkout, editable installs too, has them beside it.
"""

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


@cache
def _folder(name: str) -> Traversable:
    packaged = files("wallscope") / name
    return packaged if packaged.is_dir() else Path(__file__).resolve().parent.parent / name


@cache
def query(name: str) -> str:
    """Text of `queries/<name>.sql`.

    Raises:
        FileNotFoundError: no such query is shipped.
    """
    return (_folder("queries") / f"{name}.sql").read_text(encoding="utf-8")


def report(name: str) -> str:
    """Text of the file `name` in `reports/`.

    Raises:
        FileNotFoundError: no such file is shipped.
    """
    return (_folder("reports") / name).read_text(encoding="utf-8")
