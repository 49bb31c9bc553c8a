"""Stand-ins for an analysis whose process is killed at `b`, the first time or each time."""

import os
import time

from wallscope.errors import InputError


def dies_once(path, _options):
    """Killed at once, the first time."""
    return _dying(path, is_first=_mark(path), after_s=0)


def dies_always(path, _options):
    """Killed at once, each time."""
    return _dying(path, is_first=True, after_s=0)


def dies_once_later(path, _options):
    """Killed when Dask's nanny has seen its worker start: of one that dies before it starts no other."""
    return _dying(path, is_first=_mark(path), after_s=2)


def dies_always_later(path, _options):
    """The same, each time."""
    return _dying(path, is_first=True, after_s=2)


def takes_long(path, _options):
    """One that others wait for."""
    time.sleep(2)
    return InputError(path.name)


def _dying(path, *, is_first, after_s):
    if path.name == "b" and is_first:
        time.sleep(after_s)
        os._exit(9)
    return InputError(path.name)


def _mark(path):
    """Whether this is the first time."""
    mark = path.with_suffix(".seen")
    is_first = not mark.exists()
    mark.touch()
    return is_first
