"""wallscope: why a GPU training step takes as long as it does, from an Nsight Systems export."""

from importlib import import_module
from typing import TYPE_CHECKING

from wallscope._version import __version__

if TYPE_CHECKING:
    from wallscope.api import ComparisonResult, Result, analyze, diff
    from wallscope.errors import WallscopeError

__all__ = ["ComparisonResult", "Result", "WallscopeError", "__version__", "analyze", "diff"]


def __getattr__(name: str) -> object:
    """Public names are imported when they are first asked for: `import wallscope` itself stays light."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("wallscope.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
