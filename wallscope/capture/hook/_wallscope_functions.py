"""Counts the returns of a function by its name, wherever it is defined: Python 3.12 and later."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from types import CodeType


def watch(name: str, returned: Callable[[], None]) -> None:
    """Call `returned` after each return of a function or method of this name."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        sys.stderr.write(
            "wallscope: without its module, a step function needs Python 3.12:"
            f" --step-function MODULE:{name}\n"
        )
        return
    free = [number for number in (4, 3) if monitoring.get_tool(number) is None]
    if not free:
        sys.stderr.write("wallscope: the step function cannot be watched: other tools watch all functions\n")
        return
    tool, events = free[0], monitoring.events
    watched: set[CodeType] = set()

    def started(code: CodeType, _offset: int) -> Any:
        known = getattr(code, "co_qualname", code.co_name)
        if name in (code.co_name, known) or known.endswith("." + name):
            watched.add(code)
            monitoring.set_local_events(tool, code, events.PY_RETURN)
        return monitoring.DISABLE

    def ended(code: CodeType, _offset: int, _value: object) -> Any:
        if code in watched:
            returned()
            return None
        return monitoring.DISABLE

    monitoring.use_tool_id(tool, "wallscope")
    monitoring.register_callback(tool, events.PY_START, started)
    monitoring.register_callback(tool, events.PY_RETURN, ended)
    monitoring.set_events(tool, events.PY_START)
