"""Profiles as text: columns as JSON, compressed, in base64, so that they fit into the JSON answer.

The format is JSON and zlib, not Arrow or Parquet. A profile then outlives the versions of the libraries that
wrote it. Reading one runs no complex decoder on untrusted data, and three lines of Python show its content.
"""

import base64
import binascii
import json
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from wallscope.errors import ProfileError
from wallscope.files import check_json, read_json_bytes, state_schema
from wallscope.model.analysis import SCHEMA, PackedProfile
from wallscope.model.enums import Wall
from wallscope.model.profile import (
    NULLABLE,
    OPERATION_KEYS,
    PROFILE_SCHEMA,
    PROFILE_STEPS,
    RANK_COLLECTIVES,
    RECOVERABLE,
    STEP_CAUSES,
    STEP_OWNED,
    STEP_WORK,
    Header,
    Profile,
)
from wallscope.profile.recorded_fixes import read_fixes
from wallscope.records import dataclass
from wallscope.units import make_plain, size

if TYPE_CHECKING:
    from pydantic import TypeAdapter

TABLES: Final = {
    "steps": PROFILE_STEPS,
    "keys": OPERATION_KEYS,
    "work": STEP_WORK,
    "owned": STEP_OWNED,
    "causes": STEP_CAUSES,
    "recoverable": RECOVERABLE,
    "collectives": RANK_COLLECTIVES,
}
_ADDED: Final = ("key", "peer")
"""Columns of collectives that profiles of earlier releases lack."""
_LASTING: Final = ("steps", "keys", "work", "collectives")
_MOST_BYTES: Final = 256 << 20
_MOST_VALUES: Final = 64 << 20
"""Numbers of all profiles of a file, and letters of their texts, where each counts as often as it is used."""
_EFFORT: Final = 3  # a fifth larger than 6, in a third of the time
_LONG: Final = 2_000  # for fewer rows Python is faster
_json = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode
_AGAIN = "make it again with `wallscope analyze … --json`"


@dataclass(frozen=True, slots=True)
class EncodedTables:
    """Tables of a profile as JSON, to pack another that has some of them too."""

    texts: tuple[tuple[pl.DataFrame, str], ...] = ()

    def text(self, table: pl.DataFrame) -> str:
        """Return a table as JSON."""
        return next((text for known, text in self.texts if known is table), None) or _encode_table(table)


def encode_tables(profile: Profile) -> EncodedTables:
    """Return the tables that stay as they are when ranks are joined."""
    return EncodedTables(
        tuple((table, _encode_table(table)) for table in (getattr(profile, name) for name in _LASTING))
    )


def pack_profile(profile: Profile, known: EncodedTables | None = None) -> PackedProfile:
    """Return the profile as text; the same profile gives the same text with the same zlib."""
    known = known or EncodedTables()
    header = _json(make_plain(profile.header))
    text = _object({"header": header, **{name: known.text(getattr(profile, name)) for name in TABLES}})
    return PackedProfile(PROFILE_SCHEMA, base64.b64encode(zlib.compress(text.encode(), _EFFORT)).decode())


@cache
def _headers() -> "TypeAdapter[Header]":
    from pydantic import TypeAdapter  # noqa: PLC0415  # heavy, and only packed profiles need it

    return TypeAdapter(Header)


@dataclass(slots=True)
class Allowance:
    """How many values the profiles of one file may still have."""

    left: int = _MOST_VALUES

    def take(self, values: int, origin: str) -> None:
        """Count some values.

        Raises:
            ProfileError: they are too many.
        """
        self.left -= values
        if self.left < 0:
            raise ProfileError(
                f"{origin} — its profiles have more than {_MOST_VALUES:,} values, and would take"
                f" {size((_MOST_VALUES - self.left) * 16)} of memory or more — {_AGAIN}"
            )


def unpack_profile(
    stored: PackedProfile, origin: str, allowance: Allowance | None = None, *, is_checked: bool = False
) -> Profile:
    """Return the profile that was packed; `origin` names its file in errors.

    One that this program wrote or read before is not checked again.

    Raises:
        ProfileError: it is damaged, or of another version.
    """
    if stored.schema != PROFILE_SCHEMA:
        raise ProfileError(
            f"{origin} — its profile is {stored.schema[:60]}, this wallscope reads {PROFILE_SCHEMA}"
            f" — {_AGAIN}"
        )
    allowance = allowance or Allowance()
    try:
        packed = _inflate(stored.data)
        if not is_checked:
            check_json(packed, f"{origin}: its profile", _AGAIN, ProfileError)
            allowance.take(max(packed.count(b","), len(packed) // 8), origin)
        content = json.loads(packed)
        del packed
        for added in _ADDED:
            content["collectives"].setdefault(added, [None] * len(content["collectives"]["place"]))
        header = _headers().validate_python(content["header"], strict=False)
        frames = {
            name: _decode_table(content[name], schema, NULLABLE.get(name, frozenset()))
            for name, schema in TABLES.items()
        }
    except (
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
        IndexError,
        OverflowError,
        RecursionError,
        binascii.Error,
        zlib.error,
        pl.exceptions.PolarsError,
    ) as error:
        raise ProfileError(f"{origin} — its profile is damaged — {_AGAIN}") from error
    profile = Profile(header=header, fixes=(), **frames)
    if is_checked:
        return profile
    texts = [column for frame in frames.values() for column in frame if column.dtype == pl.String]
    allowance.take(sum(int(column.str.len_bytes().sum()) for column in texts), origin)
    if not _is_sound(profile):
        raise ProfileError(f"{origin} — its profile contradicts itself — {_AGAIN}")
    return profile


def _inflate(data: str) -> bytes:
    stream = zlib.decompressobj()
    content = stream.decompress(base64.b64decode(data, validate=True), _MOST_BYTES)
    if not stream.eof or stream.unused_data:
        raise ValueError
    return content


def _encode_table(frame: pl.DataFrame) -> str:
    """Encode a table as JSON: numbers as lists, text as codes into the distinct texts."""
    return _object({column.name: _encode_column(column) for column in frame})


def _encode_column(column: pl.Series) -> str:
    is_text = column.dtype == pl.String or isinstance(column.dtype, pl.Enum)
    if len(column) < _LONG:
        return _json(_encode_texts(column.to_list()) if is_text else column.to_list())
    if not is_text:
        return _encode_numbers(column)
    column = column.cast(pl.String)
    texts = column.unique().drop_nulls().sort()
    codes = column.cast(pl.Enum(texts)).to_physical()
    return _object({"texts": _json(texts.to_list()), "codes": _encode_numbers(codes)})


def _encode_texts(values: list[str | None]) -> dict[str, Any]:
    texts = sorted({text for text in values if text is not None})
    code_of: dict[str | None, int] = {text: code for code, text in enumerate(texts)}
    return {"texts": texts, "codes": [code_of.get(text) for text in values]}


def _encode_numbers(numbers: pl.Series) -> str:
    """Encode integers and truth values as JSON: the writer of CSV takes the least time."""
    texts = numbers.to_frame().write_csv(include_header=False, line_terminator=",", null_value="null")
    return f"[{texts[:-1]}]"


def _object(members: dict[str, str]) -> str:
    """Return an object of JSON out of values that are JSON already."""
    return f"{{{','.join(f'{_json(name)}:{value}' for name, value in members.items())}}}"


def _decode_table(columns: dict[str, Any], schema: pl.Schema, nullable: frozenset[str]) -> pl.DataFrame:
    found = {name: _decode_column(columns[name], dtype) for name, dtype in schema.items()}
    if any(column.has_nulls() for name, column in found.items() if name not in nullable):
        raise ValueError
    return pl.DataFrame(found, schema=schema, strict=True)


def _decode_column(content: Any, dtype: pl.DataType) -> pl.Series:
    if isinstance(content, dict):
        texts = pl.Series(content["texts"], dtype=pl.String, strict=True)
        codes = pl.Series(content["codes"], dtype=pl.UInt32, strict=True)  # nothing is below 0
        return texts.cast(dtype)[codes]
    return pl.Series(content, dtype=dtype, strict=True)


def _is_sound(profile: Profile) -> bool:
    """Return whether indices are valid, and attributed time sums to each step."""
    known = profile.steps.select("input", "step", owned_ns=pl.col("end_ns") - pl.col("start_ns"))
    owned = profile.owned.group_by("input", "step").agg(pl.col("owned_ns").sum())
    has_keys = all(
        table["key"].is_empty() or int(table["key"].cast(pl.Int64).to_numpy().max()) < len(profile.keys)
        for table in (profile.work, profile.owned, profile.collectives.drop_nulls("key"))
    )
    return (
        _select_timed_rows(known).equals(_select_timed_rows(owned))
        and has_keys
        and all(_on_walls(table["cause"]) for table in (profile.owned, profile.causes, profile.recoverable))
        and known["input"].is_in(range(len(profile.header.inputs))).all()
        and profile.keys["key"].to_list() == list(range(len(profile.keys)))
    )


def _select_timed_rows(owned: pl.DataFrame) -> pl.DataFrame:
    """Return the steps with time, in order; others have no slice."""
    return owned.filter(pl.col("owned_ns") != 0).sort("input", "step")


def _on_walls(causes: pl.Series) -> bool:
    """Return whether each cause is one of a wall."""
    return {cause.partition("/")[0] for cause in causes.unique()} <= set(map(str, Wall))


def read_profiles(path: Path) -> tuple[Profile, ...]:
    """Return the profiles of the ranks in an answer, in order.

    Raises:
        ProfileError: the file is not an answer of this version, or has no profile.
    """
    try:
        answer = json.loads(read_json_bytes(path, _AGAIN, ProfileError).decode())
        if answer.get("schema") != SCHEMA:
            raise ProfileError(
                f"{path} — {state_schema(answer.get('schema'), SCHEMA)} — give what"
                " `wallscope analyze … --json` wrote"
            )
        stored = [
            PackedProfile(rank["profile"]["schema"], rank["profile"]["data"]) for rank in answer["ranks"]
        ]
        fixes = read_fixes(answer)
    except OSError as error:
        raise ProfileError(f"{path} — cannot be read: {error.strerror} — check the path") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ProfileError(
            f"{path} — is not an answer with profiles — make it with `wallscope analyze … --json`"
        ) from error
    if (
        not all(isinstance(text, str) for entry in stored for text in (entry.schema, entry.data))
        or not stored
    ):
        raise ProfileError(
            f"{path} — is not an answer with profiles — make it with `wallscope analyze … --json`"
        )
    allowance = Allowance()
    return tuple(replace(unpack_profile(entry, str(path), allowance), fixes=fixes) for entry in stored)
