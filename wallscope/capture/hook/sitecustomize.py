"""Starts the hook in each Python process of the captured program, then the `sitecustomize` of the user's own.

`wallscope capture` puts this folder first in PYTHONPATH. Standard library alone, Python 3.8 and later.
"""

from __future__ import annotations

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _start_hook() -> None:
    try:
        import _wallscope_hook

        _wallscope_hook.install()
    except Exception as error:
        sys.stderr.write(f"wallscope: the hook that counts steps did not start: {error!r}\n")


def _run_next() -> None:
    """Execute the `sitecustomize` that this one hides; what it raises is shown as without this file."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    if "WALLSCOPE_CAPTURE" in os.environ:
        _start_hook()
    _run_next()
