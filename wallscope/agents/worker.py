"""A process that answers one call of a tool and ends, and the folders that it may read.

It can be killed at once, and its memory goes with it. It reads a line of JSON from standard input, and writes
lines of JSON: progress, then the answer or an error. Asked to end, or when the server is gone, it ends the
programs that it started and removes what they wrote.

Every path that a client names is resolved and checked against the folders. What is outside is refused with
the same words whether it exists or not: an answer reveals nothing about it.
"""

import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, NoReturn

from wallscope.errors import InputError, InternalError, OptionError, WallscopeError
from wallscope.process_tuning import end_process, tune_process
from wallscope.records import dataclass
from wallscope.render.texts import spell_out, visible
from wallscope.urls import redact

_COMPANIONS = ("-wal", "-journal", "-shm")
_MOST_ENTRIES, _DEPTH = 10_000, 3
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Located:
    """A file or folder below a root: the path as the client named it, and what it is, links resolved."""

    named: str
    path: Path


@dataclass(frozen=True, slots=True)
class Roots:
    """Folders, links resolved; a relative path is looked for in each of them in turn."""

    folders: tuple[Path, ...]

    def locate(self, named: str) -> Located:
        """Return the file or folder that a client names.

        Raises:
            InputError: it lies outside all folders, does not exist, or leads out of them.
        """
        for folder in self.folders:
            try:
                path = (folder / named).resolve(strict=True)
            except (OSError, RuntimeError, ValueError):
                continue
            if self._holds(path) and (path.is_file() or path.is_dir()):
                self._check_inside(path, named)
                return Located(named, path)
        raise InputError(_refuse(named))

    def hide(self, text: str) -> str:
        """Return the text without the location of the folders.

        >>> Roots((Path("/data"),)).hide("/data/run.sqlite of /data, host/data-loading")
        'run.sqlite of ., host/data-loading'
        """
        for folder in sorted(map(str, self.folders), key=len, reverse=True):
            if folder.strip(os.sep):
                whole = rf"(?<![\w./-]){re.escape(folder)}"
                text = re.sub(rf"{whole}{re.escape(os.sep)}(?=[\w.])", "", text)
                text = re.sub(rf"{whole}(?![\w.-])", ".", text)
        return text

    def _holds(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self.folders)

    def _check_inside(self, path: Path, named: str) -> None:
        """Refuse a file or folder with a link that leads out, next to it or in it.

        Raises:
            InputError: there is one, or too much to look at.
        """
        companions = (Path(f"{path}{end}") for end in _COMPANIONS) if path.is_file() else ()
        for count, entry in enumerate((*companions, *(_walk(path) if path.is_dir() else ()))):
            if count >= _MOST_ENTRIES:
                raise InputError(f"{visible(named)} — holds too many files — name the exports")
            if entry.is_symlink() and not self._holds(Path(os.path.realpath(entry))):
                raise InputError(_refuse(named))


def open_roots(named: Sequence[Path]) -> Roots:
    """Return the folders that the user names, links resolved.

    Raises:
        OptionError: one is not a folder.
    """
    for folder in named:
        if not folder.is_dir():
            raise OptionError(f"{folder} — is not a folder — name the folders that agents may read")
    return Roots(tuple(dict.fromkeys(folder.resolve() for folder in named)))


def _walk(folder: Path) -> Iterator[Path]:
    """List what a folder holds as deep as exports lie, links not followed."""
    for at, folders, files in os.walk(folder):
        yield from (Path(at, name) for name in (*folders, *files))
        if len(Path(at).relative_to(folder).parts) >= _DEPTH:
            folders.clear()


def _refuse(named: str) -> str:
    shown = visible(named, most=_LONGEST_NAME)
    return f"{shown} — is not a file below the folders of this server — name one that is"


_LONGEST_ERROR = 600
_DEFECT = "internal error of wallscope: the log of the server has it"


def main() -> None:
    """Answer the call that standard input spells."""
    tune_process()
    signal.signal(signal.SIGTERM, _end)
    lines = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what a library prints goes to the log

    def write(**line: Any) -> None:
        lines.write(json.dumps(line) + "\n")
        lines.flush()

    call = json.loads(sys.stdin.buffer.readline())
    Thread(target=_end_with_server, daemon=True).start()
    answer_call(call, write)
    lines.flush()
    end_process()


def answer_call(call: dict[str, Any], write: Callable[..., None]) -> None:
    """Answer a call: `write` gets progress, then the answer or an error of one line, by these names."""
    roots = Roots(tuple(map(Path, call["roots"])))
    try:
        write(answer=_answer(call, roots, lambda what: write(progress=roots.hide(what))))
    except SystemExit:
        raise
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


def _end(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


def _end_with_server() -> None:
    """End this process when the server closes its standard input, as also a killed one does."""
    while os.read(0, 4096):  # not by the buffer: its lock would be held when Python ends
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _answer(call: dict[str, Any], roots: Roots, progress: Any) -> Any:
    from wallscope.agents.tools import ToolRequest, answer_tool  # noqa: PLC0415  # errors of it are reported
    from wallscope.cache_folder import CACHE_FOLDER, user_cache  # noqa: PLC0415  # same
    from wallscope.render.data import pack_brief  # noqa: PLC0415  # same

    with ExitStack() as stack:
        cache = user_cache() if call["has_cache"] else None
        if cache is None:  # what nsys makes of a report is kept for this call alone
            os.environ[CACHE_FOLDER] = stack.enter_context(TemporaryDirectory(prefix="wallscope-mcp-"))
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
