"""NCCL calls on the host, and bytes, peers and communicators from their NVTX payloads.

Payloads are read by the names of their entries, because the numbers of NCCL's schemas and enumerations change
between versions. Unreadable values are null and counted. Invalid payloads never cause an error.
"""

import json
import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from wallscope.model.capture import Progress
from wallscope.model.schemas import COLLECTIVE_CALLS, COMMUNICATORS, CollectiveSource
from wallscope.nsys.identity import join_threads, look_up_texts
from wallscope.nsys.tables import Database
from wallscope.records import dataclass

_HEADER = struct.Struct("<IIIIQQ")  # domain, -, schema, -, bytes of the payload, bytes of all
_INTEGERS = ("<i4", "<u4", "<i8", "<u8", "<i8", "<u8", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8")
_NUMPY_TYPES = {**dict(enumerate(_INTEGERS, start=5)), 22: "<u8"}
"""Integer types by NVTX's numbers: int to uint64_t, and size_t."""
_INDIRECT = 0x7E  # flags of an entry that is a pointer, an offset or an array
_FIELDS = {
    "communicator": ("ncclcommunicatorid", "communicatorid", "commhash"),
    "bytes": ("messagesizebytes", "messagesize", "bytes"),
    "participants": ("noofranks", "nranks", "commnranks"),
    "peer": ("peerrank", "peer"),
    "rank": ("rank", "commrank"),
    "device": ("cudadevice", "cudadev"),
    "sequence": ("seqnumber", "sequencenumber"),
    "api": ("apiid",),
}
_FIELD_OF = {spelling: field for field, spellings in _FIELDS.items() for spelling in spellings}
_ELEMENT_BYTES = {
    **dict.fromkeys(("int8", "char", "uint8", "float8e4m3", "float8e5m2"), 1),
    **dict.fromkeys(("float16", "half", "bfloat16"), 2),
    **dict.fromkeys(("int32", "int", "uint32", "float32", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "double"), 8),
}
"""Bytes of an element of NCCL's types, by their names without prefix."""
_LARGEST_BYTES, _MOST_RANKS = 1 << 48, 1 << 24
_PAYLOAD = {
    "row_id": pl.Int64(),
    "evidence": COLLECTIVE_CALLS["source"],
    **{field: pl.UInt64() if field == "communicator" else pl.Int64() for field in _FIELDS},
}
_RANGES = {
    "row_id": pl.Int64(),
    "global_tid": pl.Int64(),
    "start": pl.Int64(),
    "end": pl.Int64(),
    "text": pl.String(),
}
_NEEDED = ("start", "end", "eventType", "globalTid", "domainId", "text", "textId")

_Key = tuple[int, int]  # domain, schema


@dataclass(frozen=True, slots=True)
class Collectives:
    """Frames `COLLECTIVE_CALLS`, `COMMUNICATORS`, and the number of unreadable payloads."""

    calls: pl.DataFrame
    communicators: pl.DataFrame
    unread_payloads: int


@dataclass(frozen=True, slots=True)
class _PayloadLayout:
    """Size of a payload, `None` if unknown, and numpy type and offset of its known fields."""

    payload_bytes: int | None
    fields: Mapping[str, tuple[str, int]]


def read_collectives(
    source: Database, raw: pl.DataFrame, threads: pl.DataFrame, time_shift_ns: int, progress: Progress
) -> Collectives:
    """Read the NCCL calls of all threads, including groups and the creation of communicators.

    `raw` are all rows of ranges. Calls that end before they start are excluded. A call without an end has
    none. Rows with a sequence number are what NCCL traced on the device; what one says holds for the call
    with its `apiId` too.
    """
    rows = _read_nccl_ranges(source, raw)
    progress(f"reading NCCL calls: {len(rows):,} rows")
    payloads, payload_count = _read_payloads(source, rows["row_id"])
    facts = (
        rows.join(payloads, on="row_id", how="left", maintain_order="left")
        .pipe(join_threads, threads, "global_tid")
        .with_columns(
            start_ns=pl.col("start") - time_shift_ns,
            end_ns=pl.col("end") - time_shift_ns,
            operation=pl.col("text").str.replace(r"^nccl([A-Z])", "$1"),
            source=pl.col("evidence").fill_null(CollectiveSource.NAME),
        )
        .sort("thread", "start_ns", maintain_order=True)
    )
    facts = _inform_calls(facts)
    is_member = pl.all_horizontal(pl.col("communicator", "rank", "participants").is_not_null())
    members = facts.filter(is_member).select(COMMUNICATORS.names()).unique()
    return Collectives(
        calls=facts.select(COLLECTIVE_CALLS.names()).cast(COLLECTIVE_CALLS),
        communicators=members.sort(COMMUNICATORS.names()).cast(COMMUNICATORS),
        unread_payloads=payload_count - len(payloads),
    )


def _inform_calls(facts: pl.DataFrame) -> pl.DataFrame:
    """Return the rows; a call without a sequence knows what the only traced row with its `apiId` says."""
    asked = ["process", "api", "operation"]
    known = ("communicator", "bytes", "participants", "peer", "rank")
    traced = facts.filter(pl.col("sequence").is_not_null()).drop_nulls("api").unique(asked, keep="none")
    if traced.is_empty():
        return facts
    told = traced.select(*asked, pl.col(known).name.prefix("told_"))
    is_call = pl.col("sequence").is_null()
    joined = facts.join(told, on=asked, how="left", maintain_order="left")
    return joined.with_columns(
        pl.when(is_call).then(pl.coalesce(name, f"told_{name}")).otherwise(name).alias(name) for name in known
    )


def _read_nccl_ranges(source: Database, raw: pl.DataFrame) -> pl.DataFrame:
    has_texts = source.has("NVTX_EVENTS", *_NEEDED) and source.has("StringIds", "id", "value")
    if not (has_texts and _is_named(source, raw)):
        return pl.DataFrame(schema=_RANGES)
    found = _make_frame(source.rows("nccl_ranges"), _RANGES)
    return found.drop_nulls("start").filter((pl.col("end") >= pl.col("start")).fill_null(value=True))


def _is_named(source: Database, raw: pl.DataFrame) -> bool:
    """Return whether any text has NCCL's prefix; otherwise the table need not be searched."""
    texts = pl.concat([raw["text"], look_up_texts(source, raw["textId"])["text"]])
    return bool(texts.str.contains("^(?i)nccl").any())


def _read_payloads(source: Database, row_ids: pl.Series) -> tuple[pl.DataFrame, int]:
    """Return the data of readable payloads, one row each, and their number."""
    wanted = json.dumps(row_ids.to_list())
    blobs = texts = []
    if source.has("NVTX_EVENTS", "binaryData"):
        blobs = source.rows("nvtx_payloads", wanted)
    if source.has("NVTX_EVENTS", "jsonText", "jsonTextId"):
        texts = source.rows("nvtx_json", wanted)
    frames = [*_decode_payloads(blobs, _read_layouts(source) if blobs else {}), _decode_json(texts)]
    found = pl.concat([pl.DataFrame(schema=_PAYLOAD), *frames], how="diagonal")
    count = pl.col("participants", "peer", "rank", "device")
    payloads = found.unique("row_id", keep="first", maintain_order=True).with_columns(
        pl.when(pl.col("bytes").is_between(0, _LARGEST_BYTES)).then(pl.col("bytes")),
        pl.when(count.is_between(0, _MOST_RANKS)).then(count),
    )
    return payloads, len({row_id for row_id, _ in (*blobs, *texts)})


def _read_layouts(source: Database) -> dict[_Key, _PayloadLayout]:
    """Return the layout of each schema that all processes describe alike."""
    if not source.has(
        "NVTX_PAYLOAD_SCHEMA_ENTRIES", "domainId", "schemaId", "idx", "name", "type", "offset", "flags"
    ):
        return {}
    sizes: defaultdict[_Key, set[object]] = defaultdict(set)
    if source.has("NVTX_PAYLOAD_SCHEMAS", "domainId", "schemaId", "payloadSize"):
        for domain, schema, payload_bytes in source.rows("payload_sizes"):
            sizes[domain, schema].add(payload_bytes)
    entries: defaultdict[_Key, list[tuple[object, ...]]] = defaultdict(list)
    for domain, schema, *entry in source.rows("payload_entries"):
        entries[domain, schema].append(tuple(entry))
    layouts: dict[_Key, _PayloadLayout] = {}
    for key, described in entries.items():
        payload_bytes = next(iter(sizes[key]), None)
        is_alike = len(sizes[key]) < 2 and len({index for index, *_ in described}) == len(described)
        if is_alike and (payload_bytes is None or isinstance(payload_bytes, int)):
            layouts[key] = _PayloadLayout(payload_bytes, dict(_known_fields(described)))
    return layouts


def _known_fields(entries: Iterable[tuple[object, ...]]) -> Iterator[tuple[str, tuple[str, int]]]:
    """Return name, numpy type and offset of the entries that are plain integers with a known name."""
    for index, name, kind, offset, flags in entries:
        field = _FIELD_OF.get(_spelling(name))
        begins = 0 if offset is None and index == 0 else offset  # Nsight writes 0 for null there
        is_plain = flags is None or (isinstance(flags, int) and not flags & _INDIRECT)
        if field and is_plain and isinstance(kind, int) and kind in _NUMPY_TYPES and isinstance(begins, int):
            yield field, (_NUMPY_TYPES[kind], begins)


def _decode_payloads(
    rows: Iterable[tuple[int, object]], layouts: Mapping[_Key, _PayloadLayout]
) -> Iterator[pl.DataFrame]:
    """Return one frame per layout."""
    groups: defaultdict[tuple[_Key, int], list[tuple[int, bytes]]] = defaultdict(list)
    for row_id, blob in rows:
        if isinstance(blob, bytes) and (opened := _unpack_payload(blob)):
            key, payload = opened
            layout = layouts.get(key)
            if layout and layout.payload_bytes in {None, len(payload)}:
                groups[key, len(payload)].append((row_id, payload))
    for (key, payload_bytes), members in groups.items():
        fields = {
            name: (kind, offset)
            for name, (kind, offset) in layouts[key].fields.items()
            if 0 <= offset <= payload_bytes - np.dtype(kind).itemsize
        }
        kinds, offsets = [kind for kind, _ in fields.values()], [offset for _, offset in fields.values()]
        whole = np.dtype(
            {"names": list(fields), "formats": kinds, "offsets": offsets, "itemsize": payload_bytes}
        )
        values = np.frombuffer(b"".join(payload for _, payload in members), whole)
        columns = {
            name: pl.Series(np.ascontiguousarray(values[name])).cast(_PAYLOAD[name], strict=False)
            for name in fields
        }
        yield pl.DataFrame({"row_id": [row_id for row_id, _ in members], **columns}).with_columns(
            evidence=pl.lit(CollectiveSource.PAYLOAD, _PAYLOAD["evidence"])
        )


def _unpack_payload(blob: bytes) -> tuple[_Key, bytes] | None:
    """Return domain and schema of a payload, and the payload; `None` if it is truncated or not a payload."""
    if re.fullmatch(rb"(0[xX])?([0-9a-fA-F]{2})+", blob):  # some exports write it as text
        blob = bytes.fromhex(blob.removeprefix(b"0x").removeprefix(b"0X").decode("ascii"))
    if len(blob) <= _HEADER.size:
        return None
    domain, _, schema, _, payload_bytes, _ = _HEADER.unpack_from(blob)
    payload = blob[_HEADER.size : _HEADER.size + payload_bytes]
    return ((domain, schema), payload) if len(payload) == payload_bytes > 0 else None


def _decode_json(rows: Iterable[tuple[int, object]]) -> pl.DataFrame:
    """Return the data of JSON objects and their inner objects; keys are compared by letters only."""
    payloads: list[tuple[object, ...]] = []
    for row_id, text in rows:
        try:
            read = json.loads(str(text))
        except (ValueError, RecursionError):
            continue
        if isinstance(read, dict):
            inner = [value for value in read.values() if isinstance(value, dict)]
            pairs = [pair for level in (*inner, read) for pair in level.items()]
            facts = {_FIELD_OF.get(_spelling(key)): _parse_integer(value) for key, value in pairs}
            facts.setdefault("bytes", _count_bytes({_spelling(key): value for key, value in pairs}))
            payloads.append((row_id, str(CollectiveSource.JSON), *(facts.get(field) for field in _FIELDS)))
    return _make_frame(payloads, _PAYLOAD)


def _count_bytes(values: Mapping[str, object]) -> int | None:
    """Return the bytes of a message by its elements and their type, `None` where either is unknown."""
    count = _parse_integer(values.get("count"))
    kind = re.sub(r"[^a-z0-9]|^nccl", "", str(values.get("datatype", "")).lower())
    each = _ELEMENT_BYTES.get(kind)
    return None if count is None or each is None else count * each


def _spelling(name: object) -> str:
    return re.sub(r"[^a-z]", "", str(name).lower())


def _parse_integer(value: object) -> int | None:
    """Return an integer, also if JSON has it as decimal or hexadecimal text."""
    if isinstance(value, str) and re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}|\d{1,20}", value):
        return int(value, 16 if value[:2] in {"0x", "0X"} else 10)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _make_frame(rows: Sequence[tuple[object, ...]], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Build a frame in which values of another type are null."""
    columns: Sequence[Sequence[object]] = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pl.DataFrame(
        [
            pl.Series(name, values, dtype=kind, strict=False)
            for (name, kind), values in zip(schema.items(), columns, strict=True)
        ]
    )
