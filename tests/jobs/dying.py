"""Stand-ins for an analysis whose process is killed."""

import os

from wallscope.errors import InputError


def dies_once(path, _options):
    """Killed at `b`, the first time."""
    mark = path.with_suffix(".seen")
    if path.name == "b" and not mark.exists():
        mark.touch()
        os._exit(9)
    return InputError(path.name)


def dies_always(path, _options):
    """Killed at `b`, each time."""
    if path.name == "b":
        os._exit(9)
    return InputError(path.name)
