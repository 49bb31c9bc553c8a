"""Digest the outputs of an input; what processes of a pool do."""

import hashlib
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.digests.inputs import TRACES, inputs
from tests.digests.outputs import KINDS, Files, Given, files_of

COLUMNS = 80
SQLITE_VERSION = slice(96, 100)
"""Where the header of a database tells which SQLite wrote it."""


def outputs_of(name: str, kinds: tuple[str, ...]) -> dict[str, Files]:
    """The outputs of one input, by kind."""
    one = inputs()[name]
    with tempfile.TemporaryDirectory() as temporary:
        folder = TRACES if one.real else Path(temporary, "in").resolve()
        if one.made is not None:
            folder.mkdir()
            made = one.made(folder)
            for file in files_of(folder):
                pin(file)
        files = one.real or made
        given = Given(name, folder, (*files, *one.options), Path(temporary, "out").resolve())
        return {kind: KINDS[kind](given) for kind in kinds}


def pin(database: Path) -> None:
    """Let a database say the same of its SQLite on every machine."""
    with database.open("r+b") as file:
        file.seek(SQLITE_VERSION.start)
        file.write(bytes(SQLITE_VERSION.stop - SQLITE_VERSION.start))


def digest(files: Files) -> str:
    whole = hashlib.sha256()
    for name, content in sorted(files.items()):
        whole.update(f"{name} {len(content)}\n".encode())
        whole.update(content)
    return whole.hexdigest()


def digested(name: str, kinds: tuple[str, ...], keep: Path | None) -> tuple[str, dict[str, str], float]:
    """Digests of one input by kind, and the CPU time that took; its outputs are kept where wanted."""
    begun_s = time.process_time()
    found = outputs_of(name, kinds)
    if keep is not None:
        for kind, files in found.items():
            place = keep / name / kind
            shutil.rmtree(place, ignore_errors=True)
            for file, content in files.items():
                (place / file).parent.mkdir(parents=True, exist_ok=True)
                (place / file).write_bytes(content)
    return name, {kind: digest(files) for kind, files in found.items()}, time.process_time() - begun_s


def prepare() -> None:
    """Let nothing of the user's surroundings count, nor what earlier runs kept."""
    for variable in [name for name in os.environ if name.startswith("WALLSCOPE_")]:
        del os.environ[variable]
    os.environ |= {
        "WALLSCOPE_CACHE_DIR": os.devnull,
        "COLUMNS": str(COLUMNS),
        "PATH": os.devnull,
        "TZ": "UTC",
    }
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    zlib.compress = partial(compressed_quickly, zlib.compress)


def compressed_quickly(compress: Callable[[bytes, int], bytes], raw: bytes, *_: int) -> bytes:
    """Compress with little effort, in place of `zlib.compress`: what counts is the content."""
    return compress(raw, 1)
