"""The shipped example where the Makefile writes it; written here if that has not run yet."""

import os
from pathlib import Path

from wallscope.demo.example import write_example

_PATH = Path(__file__).resolve().parents[1] / "build" / "moe_step.sqlite"


def find_example() -> Path:
    """Return the path of the example; it appears whole, as several processes may write it at once."""
    if not _PATH.exists():
        _PATH.parent.mkdir(exist_ok=True)
        aside = _PATH.with_name(f".moe_step-{os.getpid()}.sqlite")
        write_example(aside)
        aside.replace(_PATH)
    return _PATH


EXAMPLE = find_example()
