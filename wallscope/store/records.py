"""A store is a folder.

    objects/<2>/<62>      a packed profile, named by the SHA-256 of its bytes
    records/<commit>/*    a recorded run, which names its objects

Objects are written before the record that names them, and each file appears whole, so writers need not know
of each other: two at once lose nothing, and a killed one leaves at most an object that nobody names.
Retention alone takes the lock for itself.
"""

import fcntl
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from wallscope.errors import StoreError
from wallscope.model.analysis import PackedProfile
from wallscope.model.record import RECORD_SCHEMA, Record, Testbed
from wallscope.store.files import ASIDE, read_bytes, write_once

_COMMIT = re.compile(r"[0-9a-f]{4,64}")
_GRACE_S = 3_600
_MOST_SHOWN = 5


class Store:
    """Records in a folder; it is made by the first one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, packed: PackedProfile) -> str:
        """Put a profile into the store; its name there.

        Raises:
            StoreError: the store cannot be written.
        """
        content, name = _json(asdict(packed)), object_name(packed)
        path = self._object(name)
        if not path.exists() or path.read_bytes() != content:
            write_once(path, content)
        return name

    def add(self, record: Record, profiles: Mapping[str, PackedProfile]) -> None:
        """Put a run into the store; adding it again changes nothing. `profiles` are its objects, by name.

        Raises:
            StoreError: the store cannot be written, or the commit is no commit id.
        """
        if _COMMIT.fullmatch(record.commit) is None:
            raise StoreError(
                f"--commit {record.commit[:80]} — is no commit id — give the hash that git prints"
            )
        with self._locked(fcntl.LOCK_SH):
            for packed in profiles.values():
                self.keep(packed)
            identity = _json({**asdict(record), "recorded_utc_ns": 0})
            path = self._records / record.commit / f"{sha256(identity).hexdigest()[:32]}.json"
            if not path.exists():
                write_once(path, _json(asdict(record)))

    def profile(self, name: str) -> PackedProfile:
        """A profile by the name of its object.

        Raises:
            StoreError: it is not there, or its bytes are not those that were written.
        """
        path = self._object(name)
        content = read_bytes(path)
        if sha256(content).hexdigest() != name:
            raise StoreError(f"{path} — is damaged — delete it and record the run again")
        return TypeAdapter(PackedProfile).validate_json(content)

    def commits(self) -> tuple[str, ...]:
        """The recorded commits, by name."""
        if not self._records.is_dir():
            return ()
        return tuple(sorted(entry.name for entry in self._records.iterdir() if _COMMIT.fullmatch(entry.name)))

    def commit(self, wanted: str) -> str:
        """The one recorded commit that begins so.

        Raises:
            StoreError: there is none, or several.
        """
        found = [name for name in self.commits() if name.startswith(wanted) or wanted.startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise StoreError(
                f"{self.folder} — {len(found)} recorded commits begin with {wanted} — give more digits"
            )
        newest = ", ".join(name[:12] for name in self._newest()[:_MOST_SHOWN]) or "none"
        raise StoreError(
            f"{self.folder} — holds no record of commit {wanted[:80]} (newest: {newest}) — record it first"
        )

    def records(self, commit: str) -> tuple[Record, ...]:
        """The runs of a commit, the oldest first.

        Raises:
            StoreError: one cannot be read.
        """
        folder = self._records / commit
        paths = [path for path in sorted(folder.glob("*.json")) if not path.name.startswith(ASIDE)]
        return tuple(sorted(map(_read, paths), key=lambda record: (record.recorded_utc_ns, repr(record))))

    def all_records(self) -> tuple[Record, ...]:
        """All runs, the oldest first.

        Raises:
            StoreError: one cannot be read.
        """
        found = [record for commit in self.commits() for record in self.records(commit)]
        return tuple(sorted(found, key=lambda record: (record.recorded_utc_ns, record.commit)))

    def retain(self, testbed: Testbed, commits: int) -> int:
        """Keep the newest commits of a testbed, forget its older runs; how many runs were forgotten.

        Raises:
            StoreError: the store cannot be written.
        """
        with self._locked(fcntl.LOCK_EX):
            own = [record for record in self.all_records() if record.testbed == testbed]
            newest = list(dict.fromkeys(record.commit for record in reversed(own)))[:commits]
            forgotten = 0
            for commit in {record.commit for record in own} - set(newest):
                for path in sorted((self._records / commit).glob("*.json")):
                    if _read(path).testbed == testbed:
                        path.unlink()
                        forgotten += 1
            self._sweep()
        return forgotten

    def _sweep(self) -> None:
        """Delete objects that no record names, and what killed writers left, after a grace of an hour."""
        named = {rank.object for record in self.all_records() for rank in record.ranks}
        before_s = time.time() - _GRACE_S
        for path in self.folder.glob("objects/*/*"):
            if f"{path.parent.name}{path.name}" not in named and path.stat().st_mtime < before_s:
                path.unlink(missing_ok=True)
        for path in self._records.glob(f"*/{ASIDE}*"):
            if path.stat().st_mtime < before_s:
                path.unlink(missing_ok=True)

    @property
    def _records(self) -> Path:
        return self.folder / "records"

    def _object(self, name: str) -> Path:
        return self.folder / "objects" / name[:2] / name[2:]

    def _newest(self) -> list[str]:
        return list(dict.fromkeys(record.commit for record in reversed(self.all_records())))

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """Writers share the lock, retention has it alone; it goes with its process, however that ends."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            stream = (self.folder / "lock").open("a", encoding="utf-8")
        except OSError as error:
            raise StoreError(
                f"{self.folder} — cannot be written: {error.strerror} — give another --store"
            ) from error
        with stream:
            fcntl.flock(stream, how)
            yield


def object_name(packed: PackedProfile) -> str:
    """The name of the object that holds a profile."""
    return sha256(_json(asdict(packed))).hexdigest()


def _json(content: object) -> bytes:
    return (json.dumps(content, ensure_ascii=True, sort_keys=True, separators=(",", ":")) + "\n").encode()


def _read(path: Path) -> Record:
    content = read_bytes(path)
    try:
        found = json.loads(content)
        schema = found.get("schema") if isinstance(found, dict) else None
        if schema != RECORD_SCHEMA:
            raise StoreError(
                f"{path} — is {str(schema)[:60]}, not {RECORD_SCHEMA} — use the wallscope that wrote it"
            )
        record = TypeAdapter(Record).validate_json(content)
    except (ValueError, ValidationError, RecursionError) as error:
        raise StoreError(f"{path} — is damaged — delete it and record the run again") from error
    if not 0 <= record.speaks < len(record.ranks):
        raise StoreError(f"{path} — is damaged — delete it and record the run again")
    return record
