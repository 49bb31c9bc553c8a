"""What makes a folder a store: its marker, and the names of its files. Nothing else in it is ever touched.

    wallscope-store.json            the marker, written first
    objects/<2>/<62>                a packed profile, named by the SHA-256 of its bytes
    records/<commit>/<32>.json      a recorded run, which names its objects
    objects/<2>/.aside-*            what a writer has not renamed yet, also below records/<commit>

Stores of version 0.1 have no marker: a folder that holds such files alone is one.
"""

import json
import re
from typing import TYPE_CHECKING

from wallscope.errors import StoreError

if TYPE_CHECKING:
    from wallscope.store.places import Place

MARKER = "wallscope-store.json"
STORE_SCHEMA = "wallscope.store/1"
ASIDE = ".aside-"
RECORDS, OBJECTS = "records", "objects"
_HEX = "[0-9a-f]"
_COMMIT = re.compile(f"{_HEX}{{4,64}}")
_OBJECT = re.compile(f"{OBJECTS}/{_HEX}{{2}}/{_HEX}{{62}}")
_RECORD = re.compile(f"{RECORDS}/{_COMMIT.pattern}/{_HEX}{{32}}[.]json")
_LEFTOVER = re.compile(f"(?:{OBJECTS}/{_HEX}{{2}}|{RECORDS}/{_COMMIT.pattern})/{re.escape(ASIDE)}[^/]+")
_MOST_SHOWN = 3


def is_commit(name: str) -> bool:
    """Whether a commit can be named so, and with it a folder of records."""
    return _COMMIT.fullmatch(name) is not None


def is_object(path: str) -> bool:
    """Whether a path is that of a profile."""
    return _OBJECT.fullmatch(path) is not None


def is_record(path: str) -> bool:
    """Whether a path is that of a recorded run."""
    return _RECORD.fullmatch(path) is not None


def is_leftover(path: str) -> bool:
    """Whether a path is that of a file that a writer has not renamed yet."""
    return _LEFTOVER.fullmatch(path) is not None


def object_path(name: str) -> str:
    """Return where the profile of this name lies."""
    return f"{OBJECTS}/{name[:2]}/{name[2:]}"


def mark_store(place: "Place") -> None:
    """Make a store of a place that is absent, empty, or a store of version 0.1.

    Raises:
        StoreError: it holds something else, or cannot be written.
    """
    if not has_marker(place):
        place.write(MARKER, (json.dumps({"schema": STORE_SCHEMA}) + "\n").encode())


def has_marker(place: "Place") -> bool:
    """Whether a place is marked as a store; one without a marker must be absent, empty, or of version 0.1.

    Raises:
        StoreError: it holds something else, or cannot be read.
    """
    content = place.read_all((MARKER,)).get(MARKER)
    if content is not None:
        _check_marker(content, f"{place}/{MARKER}")
        return True
    found = place.top()
    if MARKER in found:  # another writer has marked it since
        return True
    others = [name for name in found if name not in {RECORDS, OBJECTS} and not name.startswith(ASIDE)]
    others = others or [
        path
        for below in (RECORDS, OBJECTS)
        if below in found
        for path in place.names(below)
        if not (is_object(path) or is_record(path) or is_leftover(path))
    ]
    if others:
        shown = ", ".join(ascii(name[:60]) for name in others[:_MOST_SHOWN])
        raise StoreError(
            f"{place} — holds other files ({shown}) and is no wallscope store — name a new or an empty folder"
        )
    return False


def _check_marker(content: bytes, path: str) -> None:
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        told = None
    schema = told.get("schema") if isinstance(told, dict) else None
    if schema is None:
        raise StoreError(f"{path} — is no marker of a store — give another --store")
    if schema != STORE_SCHEMA:
        raise StoreError(
            f"{path} — is {str(schema)[:60]}, not {STORE_SCHEMA} — use the wallscope that wrote it"
        )
