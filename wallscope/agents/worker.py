"""A process that answers one call of a tool and ends: it can be killed at once, and its memory goes with it.

It reads a line of JSON from standard input, and writes lines of JSON: progress, then the answer or an error.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from wallscope.agents.roots import Roots
from wallscope.errors import InternalError, WallscopeError
from wallscope.process_tuning import end_process, tune_process
from wallscope.render.texts import spell_out, visible
from wallscope.urls import redact

_LONGEST_ERROR = 600
_DEFECT = "internal error of wallscope: the log of the server has it"


def main() -> None:
    """Answer the call that standard input spells."""
    tune_process()
    lines = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what a library prints goes to the log

    def write(**line: Any) -> None:
        lines.write(json.dumps(line) + "\n")
        lines.flush()

    call = json.loads(sys.stdin.buffer.readline())
    roots = Roots(tuple(map(Path, call["roots"])))
    try:
        write(answer=_answer(call, roots, lambda what: write(progress=roots.hide(what))))
    except InternalError:
        _log_defect()
        write(error=_DEFECT)
    except WallscopeError as error:
        write(error=visible(redact(_hide(str(error), call, roots)), most=_LONGEST_ERROR))
    except MemoryError:
        write(error="there is not enough memory — ask about fewer steps or files")
    except BaseException:  # noqa: BLE001  # the boundary; panics of polars are no `Exception`
        _log_defect()
        write(error=_DEFECT)
    lines.flush()
    end_process()


def _answer(call: dict[str, Any], roots: Roots, progress: Any) -> Any:
    from wallscope.agents.tools import ToolRequest, answer_tool  # noqa: PLC0415  # errors of it are reported
    from wallscope.cache_folder import user_cache  # noqa: PLC0415  # same
    from wallscope.render.brief import pack_brief  # noqa: PLC0415  # same

    cache = user_cache() if call["has_cache"] else None
    paths = {named: Path(path) for named, path in call["paths"].items()}
    brief = answer_tool(ToolRequest(call["tool"], call["arguments"], paths, cache), progress)
    return _hide_all(pack_brief(brief), call, roots)


def _hide_all(value: Any, call: dict[str, Any], roots: Roots) -> Any:
    if isinstance(value, dict):
        return {key: _hide_all(entry, call, roots) for key, entry in value.items()}
    if isinstance(value, list):
        return [_hide_all(entry, call, roots) for entry in value]
    return _hide(value, call, roots) if isinstance(value, str) else value


def _hide(text: str, call: dict[str, Any], roots: Roots) -> str:
    """Return a text with files as the client named them, and without the place of the roots."""
    if text in call["paths"]:
        return text
    for named, path in call["paths"].items():
        text = text.replace(path, named)
    return roots.hide(text)


def _log_defect() -> None:
    for line in redact(traceback.format_exc()).splitlines():
        sys.stderr.write(f"{spell_out(line)}\n")


if __name__ == "__main__":
    main()
