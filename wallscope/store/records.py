"""Records of runs by commit, the profiles that they name, and what runs of one testbed differ by.

A store has a marker and files of these names. Nothing else in it is ever touched.

    wallscope-store.json            the marker, written first

    objects/<2>/<62>                a packed profile, named by the SHA-256 of its bytes

    records/<commit>/<32>.json      a recorded run, which names its objects

    objects/<2>/.aside-*            a file before its rename, also below records/<commit>

There are no locks, because not every storage has them. A written file never changes and appears whole.
Objects are written before the record that names them. So two concurrent writers lose nothing, and a killed
writer leaves at most one unreferenced object. Retention may run at the same time. So a writer looks for its
objects again after it has written its record. Retention looks for records again after it has deleted an
object. The later of both restores the object.
"""

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from itertools import pairwise
from math import sqrt
from pathlib import Path
from statistics import median

from pydantic import TypeAdapter, ValidationError

from wallscope.errors import StoreError
from wallscope.files import check_json, state_schema
from wallscope.model.analysis import PackedProfile
from wallscope.model.profile import RECORD_SCHEMA, Noise, Record, RecordedNoise, Testbed
from wallscope.store.storage import ASIDE, MOST_BYTES, Storage, open_storage
from wallscope.thresholds.noise import FEWEST_DEGREES_OF_NOISE_COUNT, FEWEST_NEIGHBORS_COUNT
from wallscope.thresholds.verdict import OUTLYING_DEVIATIONS_COUNT
from wallscope.units import make_plain

MARKER = "wallscope-store.json"
STORE_SCHEMA = "wallscope.store/1"
RECORDS, OBJECTS = "records", "objects"
_HEX = "[0-9a-f]"
_COMMIT = re.compile(f"{_HEX}{{4,64}}")
_OBJECT_PATH = re.compile(f"{OBJECTS}/{_HEX}{{2}}/{_HEX}{{62}}")
_RECORD = re.compile(f"{RECORDS}/{_COMMIT.pattern}/{_HEX}{{32}}[.]json")
_LEFTOVER = re.compile(f"(?:{OBJECTS}/{_HEX}{{2}}|{RECORDS}/{_COMMIT.pattern})/{re.escape(ASIDE)}[^/]+")
_MOST_FOREIGN = 3
_OBJECT = re.compile(r"[0-9a-f]{64}")
_GRACE_S = 3_600
_MOST_SHOWN = 5
_MOST_RECORD_BYTES = 32 << 20
"""The size limit of a record. Chosen: a job of 100,000 ranks."""
_NEVER_NS, _LONGEST_NS, _MOST_STEPS = 2**62, 2**53, 2**31


def object_path(name: str) -> str:
    """Return where the profile of this name lies."""
    return f"{OBJECTS}/{name[:2]}/{name[2:]}"


def _has_marker(storage: Storage) -> bool:
    """Whether files are marked as a store; those without a marker must be none, or a store of version 0.1.

    Raises:
        StoreError: it holds something else or a link, or cannot be read.
    """
    content = _read_if_there(storage, MARKER)
    found = storage.top()  # a link among them ends it here
    if content is None and MARKER in found:  # another writer has marked it since, or it is not a file
        content = _read_if_there(storage, MARKER)
        if content is None:
            raise StoreError(f"{storage}/{MARKER} — does not mark a store — give another store")
    if content is not None:
        _check_marker(content, f"{storage}/{MARKER}")
        return True
    others = [name for name in found if name not in {RECORDS, OBJECTS} and not name.startswith(ASIDE)]
    others = others or [
        path
        for below in (RECORDS, OBJECTS)
        if below in found
        for path in storage.names(below)
        if not (_OBJECT_PATH.fullmatch(path) or _RECORD.fullmatch(path) or _LEFTOVER.fullmatch(path))
    ]
    if others:
        shown = ", ".join(ascii(name[:60]) for name in others[:_MOST_FOREIGN])
        raise StoreError(
            f"{storage} — holds other files ({shown}) and is not a wallscope store — name a new or an"
            " empty folder"
        )
    return False


def _read_if_there(storage: Storage, path: str) -> bytes | None:
    """Return all of a file; `None` for one that is not there, or is not regular.

    Raises:
        StoreError: it cannot be read.
    """
    content = storage.read_each((path,), _MOST_RECORD_BYTES).get(path)
    if isinstance(content, StoreError):
        raise content
    return content


def _check_marker(content: bytes, path: str) -> None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema is None:
        raise StoreError(f"{path} — does not mark a store — give another store")
    if schema != STORE_SCHEMA:
        raise StoreError(f"{path} — {state_schema(schema, STORE_SCHEMA)} — use the wallscope that wrote it")


class Store:
    """Records in a folder or behind a URL (`open_storage`); a folder is made by the first one.

    Every method refuses what holds something else than a store with a `StoreError`.
    """

    def __init__(self, where: str | Path) -> None:
        self.storage = open_storage(str(where))
        self._is_known = self._is_marked = False
        self.unreadable: dict[str, StoreError] = {}
        """Records that were left out, by path, and why: damaged, not to be read, or of a later version."""

    def __str__(self) -> str:
        return str(self.storage)

    def keep(self, packed: PackedProfile) -> str:
        """Put a profile into the store, also where it is there: that mends it and makes it young; its name.

        Raises:
            StoreError: the store cannot be written.
        """
        self._mark()
        name = object_name(packed)
        self.storage.write(object_path(name), _json(asdict(packed)))
        return name

    def add(self, record: Record, profiles: Mapping[str, PackedProfile]) -> None:
        """Put a run into the store; adding it again changes nothing. `profiles` are its objects, by name.

        Raises:
            StoreError: the store cannot be written, or `commit` is not a commit id.
        """
        if not _COMMIT.fullmatch(record.commit):
            raise StoreError(
                f"--commit {record.commit[:80]} — is not a commit id — give the hash that git prints"
            )
        self._mark()
        for packed in profiles.values():
            self.keep(packed)
        identity = _identity(record)
        path = f"{RECORDS}/{record.commit}/{sha256(identity).hexdigest()[:32]}.json"
        if not (self.storage.has(path) and self._has_same(path, identity)):
            self.storage.write(path, _json(_fields(record)))
        for name, packed in profiles.items():
            if not self.storage.has(object_path(name)):
                self.keep(packed)

    def _has_same(self, path: str, identity: bytes) -> bool:
        """Whether a record is there, undamaged."""
        try:
            content = _read_if_there(self.storage, path)
            return content is not None and _identity(_parse_record(content, path)) == identity
        except StoreError:
            return False

    def profile(self, name: str) -> PackedProfile:
        """A profile by the name of its object.

        Raises:
            StoreError: it is not there, or its bytes are not those that were written.
        """
        content = self._known().read(object_path(name))
        if sha256(content).hexdigest() != name:
            raise StoreError(f"{self}/{object_path(name)} — is damaged — delete it and record the run again")
        check_json(content, f"{self}/{object_path(name)}", "record the run again", StoreError)
        return TypeAdapter(PackedProfile).validate_json(content)

    def commits(self) -> tuple[str, ...]:
        """The recorded commits, by name."""
        return tuple(sorted({path.split("/")[1] for path in self._paths()}))

    def commit(self, wanted: str) -> str:
        """The one recorded commit that begins so.

        Raises:
            StoreError: there is none, or several.
        """
        return self._only(wanted, self.commits())

    def base(self, wanted: str) -> str:
        """The one commit that begins so and that not only pull requests recorded.

        Raises:
            StoreError: there is none, or several.
        """
        every = self._read(RECORDS)
        references = sorted({path.split("/")[1] for path, record in every.items() if record.is_reference})
        if not _beginning(wanted, references) and (recorded_too := _beginning(wanted, self.commits())):
            for path, error in self.unreadable.items():
                if path.split("/")[1] in recorded_too:
                    raise error
            raise StoreError(
                f"{self} — only pull requests recorded commit {wanted[:80]}, and such runs cannot be a base"
                " — record it from a branch that you trust"
            )
        return self._only(wanted, references)

    def _only(self, wanted: str, commits: Iterable[str]) -> str:
        found = _beginning(wanted, commits)
        if len(found) == 1:
            return found[0]
        if found:
            raise StoreError(f"{self} — {len(found)} recorded commits begin with {wanted} — give more digits")
        newest = ", ".join(name[:12] for name in self._newest()[:_MOST_SHOWN]) or "none"
        raise StoreError(
            f"{self} — holds no record of commit {wanted[:80]} (newest: {newest})"
            f" — record it first: wallscope record RUN --commit {wanted[:80]}"
        )

    def records(self, commit: str) -> tuple[Record, ...]:
        """The runs of a commit, the oldest first; without those that are unreadable.

        Raises:
            StoreError: none of them can be read.
        """
        below = f"{RECORDS}/{commit}"
        found = self._read(below).values()
        left_out = [error for path, error in self.unreadable.items() if path.startswith(f"{below}/")]
        if left_out and not found:
            raise left_out[0]
        return tuple(sorted(found, key=lambda record: (record.recorded_utc_ns, repr(record))))

    def all_records(self) -> tuple[Record, ...]:
        """All runs, the oldest first; without those that are unreadable.

        Raises:
            StoreError: the store cannot be read.
        """
        found = self._read(RECORDS).values()
        return tuple(sorted(found, key=lambda record: (record.recorded_utc_ns, record.commit, repr(record))))

    def retain(
        self, testbed: Testbed, commits: int, *, origin: str | None = None, recorded: str | None = None
    ) -> int:
        """Keep the newest commits of a testbed, forget its older runs; how many runs were forgotten.

        Runs of another origin neither count nor go: what pull requests record displaces no reference. The
        commit that was `recorded` just now is the newest, whatever the clocks of its machines said.

        Raises:
            StoreError: the store cannot be written.
        """
        objects = self._known().names(OBJECTS)  # a link among them ends it here
        every = self._read(RECORDS)
        own = {
            path: record
            for path, record in every.items()
            if (record.testbed, record.origin) == (testbed, origin)
        }
        ordered = sorted(own.values(), key=lambda record: (record.recorded_utc_ns, record.commit))
        by_age = [record.commit for record in reversed(ordered)]
        first = [recorded] if recorded is not None and recorded in by_age else []
        newest = set(list(dict.fromkeys(first + by_age))[:commits])
        old = [path for path, record in own.items() if record.commit not in newest]
        for path in old:
            self.storage.delete(path)
        self._sweep((*objects, *self.storage.names(RECORDS)))
        return len(old)

    def _sweep(self, paths: Iterable[str]) -> None:
        """Delete objects that no record names, and what killed writers left, after a grace of an hour.

        What bears the name of an object and has other bytes is not known to be ours, and stays.
        """
        named = self._named()
        if self.unreadable:  # it is unknown which objects these name
            return
        gone: dict[str, bytes] = {}
        for path in paths:
            if not (_LEFTOVER.fullmatch(path) or _OBJECT_PATH.fullmatch(path)) or path in named:
                continue
            mtime_s = self.storage.mtime_s(path)
            if mtime_s is None or mtime_s >= time.time() - _GRACE_S:
                continue
            if _OBJECT_PATH.fullmatch(path):
                content = self.storage.read_each((path,), MOST_BYTES).get(path)
                if not isinstance(content, bytes) or object_path(sha256(content).hexdigest()) != path:
                    continue
                gone[path] = content
            self.storage.delete(path)
        for path in gone.keys() & (self._named() if gone else set()):
            self.storage.write(path, gone[path])

    def _named(self) -> set[str]:
        return {object_path(rank.object) for record in self.all_records() for rank in record.ranks}

    def _known(self) -> Storage:
        """The files, once they are known to be a store or nothing."""
        if not self._is_known:
            _has_marker(self.storage)
            self._is_known = True
        return self.storage

    def _mark(self) -> None:
        """Mark the store before the first file is written: it is absent, empty, or of version 0.1."""
        if not self._is_marked:
            if not _has_marker(self.storage):
                self.storage.write(MARKER, (json.dumps({"schema": STORE_SCHEMA}) + "\n").encode())
            self._is_known = self._is_marked = True

    def _paths(self, below: str = RECORDS) -> list[str]:
        return [path for path in self._known().names(below) if _RECORD.fullmatch(path)]

    def _read(self, below: str) -> dict[str, Record]:
        found: dict[str, Record] = {}
        known = self.unreadable.items()
        self.unreadable = {path: error for path, error in known if not path.startswith(f"{below}/")}
        for path, content in self.storage.read_each(self._paths(below), _MOST_RECORD_BYTES).items():
            try:
                if isinstance(content, StoreError):
                    raise content
                found[path] = _parse_record(content, f"{self}/{path}")
            except StoreError as error:
                self.unreadable[path] = error
        return found

    def _newest(self) -> list[str]:
        return list(dict.fromkeys(record.commit for record in reversed(self.all_records())))


def object_name(packed: PackedProfile) -> str:
    """The name of the object that holds a profile."""
    return sha256(_json(asdict(packed))).hexdigest()


def _identity(record: Record) -> bytes:
    """All of a record but when it was made."""
    return _json({**_fields(record), "recorded_utc_ns": 0})


def _fields(record: Record) -> dict[str, object]:
    """What is written of a record; one without origin and fixes is the same bytes as in version 0.1."""
    found: dict[str, object] = make_plain(record)
    for name in ("origin", "fixes"):
        if not found[name]:
            del found[name]
    return found


def _beginning(wanted: str, commits: Iterable[str]) -> list[str]:
    """The commits that begin so, or that are the beginning."""
    return [name for name in commits if name.startswith(wanted) or wanted.startswith(name)]


def _json(content: object) -> bytes:
    return (json.dumps(content, ensure_ascii=True, sort_keys=True, separators=(",", ":")) + "\n").encode()


def _parse_record(content: bytes, path: str) -> Record:
    check_json(content, path, "delete it and record the run again", StoreError)
    try:
        found = json.loads(content)
        schema = found.get("schema") if isinstance(found, dict) else None
        if schema != RECORD_SCHEMA:
            raise StoreError(
                f"{path} — {state_schema(schema, RECORD_SCHEMA)} — use the wallscope that wrote it"
            )
        record = TypeAdapter(Record).validate_json(content)
    except (ValueError, ValidationError, RecursionError) as error:
        raise StoreError(f"{path} — is damaged — delete it and record the run again") from error
    is_named = all(_OBJECT.fullmatch(rank.object) for rank in record.ranks)  # else it could be any file
    if not is_named or not 0 <= record.speaks < len(record.ranks) or not _is_possible(record):
        raise StoreError(f"{path} — is damaged — delete it and record the run again")
    return record


def _is_possible(record: Record) -> bool:
    """Whether its times and counts can be: sums over all runs of a store stay within 64 bits."""
    bounds = [(one.whole_ns, one.bound_ns, one.expected_ns, one.replayed_ns) for one in record.fixes]
    if any(time_ns is not None and not 0 <= time_ns < _LONGEST_NS for times in bounds for time_ns in times):
        return False
    return 0 <= record.recorded_utc_ns < _NEVER_NS and all(
        0 <= rank.typical_ns < _LONGEST_NS
        and 0 <= rank.steps < _MOST_STEPS
        and all(time_ns >= 0 for time_ns in rank.causes.values())
        and sum(rank.causes.values()) < _LONGEST_NS
        for rank in record.ranks
    )


_NORMAL_DEVIATION = 1.4826  # one deviation in medians of the absolute difference


def run_noise(records: Iterable[Record], testbed: Testbed) -> RecordedNoise | None:
    """Return what runs of a testbed differ by: the step, each wall and each cause, relative to itself.

    Runs of one commit measure it. Where these are too few, so do differences between neighboring commits, as
    far as no change is among them. Runs of pull requests do not count, nor do copies of a run.
    """
    by_commit: dict[str, list[Record]] = {}
    own = [one for one in records if one.is_reference and one.testbed == testbed]
    for record in sorted(drop_repetitions(own), key=lambda record: record.recorded_utc_ns):
        if record.representative.typical_ns > 0:
            by_commit.setdefault(record.commit, []).append(record)
    commits = [[_list_recorded_times(record) for record in runs] for runs in by_commit.values()]
    names = sorted({name for runs in commits for times in runs for name in times})
    found = {name: _noise([[times.get(name, 0) for times in runs] for runs in commits]) for name in names}
    known = {name: noise for name, noise in found.items() if noise.freedom > 0}
    if "step" not in known:
        return None
    steps = [record.representative.steps for runs in by_commit.values() for record in runs]
    return RecordedNoise(known, sum(steps) / len(steps))


def drop_repetitions(records: Iterable[Record], *, is_within_commit: bool = False) -> list[Record]:
    """Return records without those of a run that is recorded already, under another name or commit.

    All times of all ranks are the same to the ns. `is_within_commit` keeps one of each commit.
    """
    kept: dict[str, Record] = {}
    for record in records:
        commit = record.commit if is_within_commit else ""
        times = [[rank.typical_ns, *sorted(rank.causes.items())] for rank in record.ranks]
        kept.setdefault(json.dumps([commit, str(record.testbed), record.origin, times]), record)
    return list(kept.values())


def _list_recorded_times(record: Record) -> dict[str, int]:
    """Return the times of a run by step, wall and cause."""
    found = {"step": record.representative.typical_ns}
    for cause, time_ns in record.representative.causes.items():
        wall = cause.partition("/")[0]
        found[wall] = found.get(wall, 0) + time_ns
        found[cause] = time_ns
    return found


def _noise(commits: Sequence[Sequence[int]]) -> Noise:
    """Return relative noise of runs, given by commit, in the order of time."""
    squares, freedom = 0.0, 0.0
    for times in commits:
        mean = sum(times) / len(times)
        if len(times) > 1 and mean > 0:
            squares += sum((time / mean - 1) ** 2 for time in times)
            freedom += len(times) - 1
    if freedom < FEWEST_DEGREES_OF_NOISE_COUNT:
        more = _noise_of_neighbors([sum(times) / len(times) for times in commits])
        squares += more.deviation**2 * more.freedom
        freedom += more.freedom
    return Noise(sqrt(squares / freedom) if freedom else 0.0, freedom)


def _noise_of_neighbors(times: Sequence[float]) -> Noise:
    """Return noise from the relative differences of neighbors, without those that may be changes.

    Half the mean square of differences is the variance, also under slow drift (von Neumann 1941). Each value
    is in two differences, so they have about two thirds as many degrees of freedom.
    """
    apart = sorted(
        abs(after - before) / ((after + before) / 2)
        for before, after in pairwise(times)
        if after + before > 0
    )
    if len(apart) < FEWEST_NEIGHBORS_COUNT:
        return Noise(0.0, 0.0)
    limit = OUTLYING_DEVIATIONS_COUNT * _NORMAL_DEVIATION * median(apart)
    kept = [one for one in apart if one <= limit]
    return Noise(sqrt(sum(one**2 for one in kept) / (2 * len(kept))), 2 * len(kept) / 3)
