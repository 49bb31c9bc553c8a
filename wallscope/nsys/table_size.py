"""Compute the unpacked size of a file of a table folder from its metadata, before it is read.

A run of equal values takes a few bytes of Parquet whatever its length, and compressed zeros hardly more.
Formats: https://github.com/apache/parquet-format (FileMetaData in Thrift's compact protocol) and
https://arrow.apache.org/docs/format/Columnar.html (a stream of messages, each a FlatBuffer).
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from wallscope.errors import InputError
from wallscope.units import size

_FEW_BYTES = 1 << 30
_MOST_TIMES = 200
"""A table above one gibibyte and above 200 times its file size is refused. Measured: 20 times."""
_CELL_BYTES = 16  # a view of a text, or a number in two copies
_TAIL_BYTES, _MOST_FOOTER_BYTES = 8, 64 << 20
_DEEPEST, _MOST_PARTS = 16, 1 << 20


@dataclass(frozen=True, slots=True)
class TableSize:
    """Rows of a table, and the unpacked size of its columns; `unpacked_bytes` is that of unnamed columns."""

    rows: int
    of_columns: Mapping[str, int] = field(default_factory=dict)
    unpacked_bytes: int = 0

    def cost_bytes(self, columns: Sequence[str]) -> int:
        """Return the minimum size of some columns."""
        known = sum(self.of_columns.get(column, 0) for column in columns)
        return known + self.unpacked_bytes + self.rows * _CELL_BYTES * len(columns)


def measure_table(file: Path) -> TableSize:
    """Return the size by the metadata of a file.

    Raises:
        ValueError: the metadata is invalid.
        OSError: it cannot be read.
    """
    try:
        with file.open("rb") as stream:
            return _measure_parquet(stream) if file.suffix == ".parquet" else _measure_arrow(stream)
    except (KeyError, IndexError, TypeError, AttributeError, struct.error, OverflowError) as error:
        raise ValueError("no table of contents") from error


def refuse_oversize(file: Path, needed_bytes: int) -> None:
    """Refuse a file that expands to many times its size.

    Raises:
        InputError: it does.
    """
    file_bytes = file.stat().st_size
    if needed_bytes > max(_FEW_BYTES, _MOST_TIMES * file_bytes):
        raise InputError(
            f"{file} — needs {size(needed_bytes)} of memory, but its size is {size(file_bytes)}: tables"
            " of exports are not so compressed — export the report again"
        )


def _measure_parquet(stream: BinaryIO) -> TableSize:
    end = stream.seek(0, 2)
    stream.seek(end - _TAIL_BYTES)
    (length,) = struct.unpack("<I", stream.read(4))
    if length > min(_MOST_FOOTER_BYTES, end - _TAIL_BYTES):
        raise ValueError
    stream.seek(end - _TAIL_BYTES - length)
    about = _Thrift(stream.read(length)).struct()
    of_columns: dict[str, int] = {}
    for group in about.get(4, []):
        for chunk in group.get(1, []):
            metadata = chunk[3]
            name = metadata[3][0].decode("utf-8", "replace")
            of_columns[name] = of_columns.get(name, 0) + max(metadata[6], 0)
    rows = max(about[3], sum(group.get(3, 0) for group in about.get(4, [])), 0)
    return TableSize(rows, of_columns)


class _Thrift:
    """Values of Thrift's compact protocol: structs by number of field, lists, integers, bytes."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place, self.parts = content, 0, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            found[number] = self._value(head & 15, depth + 1)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        self.parts += 1
        if depth > _DEEPEST or self.parts > _MOST_PARTS * 16:
            raise ValueError
        match kind:
            case 1 | 2:
                return kind == 1
            case 3 | 4 | 5 | 6:
                return self._byte() if kind == 3 else self._zigzag()
            case 7 | 8:
                return self._bytes(8 if kind == 7 else self._varint())
            case 9 | 10:
                head = self._byte()
                count = head >> 4 if head >> 4 < 15 else self._varint()
                if count > _MOST_PARTS:
                    raise ValueError
                inner = head & 15
                return [
                    self._byte() == 1 if inner in {1, 2} else self._value(inner, depth + 1)
                    for _ in range(count)
                ]
            case 12:
                return self.struct(depth)
        raise ValueError

    def _byte(self) -> int:
        self.place += 1
        return self.content[self.place - 1]

    def _bytes(self, count: int) -> bytes:
        self.place += count
        if self.place > len(self.content):
            raise ValueError
        return self.content[self.place - count : self.place]

    def _varint(self) -> int:
        found = shift = 0
        while shift < 70:
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
        raise ValueError

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)


_RECORDS = 3


def _measure_arrow(stream: BinaryIO) -> TableSize:
    end = stream.seek(0, 2)
    stream.seek(0)
    rows = unpacked_bytes = 0
    while stream.tell() < end:
        mark, length = struct.unpack("<iI", stream.read(8))
        if mark != -1 or length > _MOST_FOOTER_BYTES:
            raise ValueError
        if length == 0:
            break
        message = _Table.root(stream.read(length))
        body, body_bytes = stream.tell(), message.number(3, "<q", 0)
        if not 0 <= body_bytes <= end - body:
            raise ValueError
        if message.number(1, "<B", 0) == _RECORDS:
            batch = message.table(2)
            rows += max(batch.number(0, "<q", 0), 0)
            unpacked_bytes += _unpacked_bytes(stream, batch, body, body_bytes)
        stream.seek(body + body_bytes)
    return TableSize(rows, {}, unpacked_bytes)


def _unpacked_bytes(stream: BinaryIO, batch: "_Table", body: int, body_bytes: int) -> int:
    """Return the size of the buffers of a batch; compressed ones begin with it."""
    if not batch.has(3):
        return body_bytes
    found = 0
    for offset, length in batch.pairs(2):
        if length >= 8 and 0 <= offset <= body_bytes - 8:
            stream.seek(body + offset)
            (unpacked_bytes,) = struct.unpack("<q", stream.read(8))
            found += length if unpacked_bytes < 0 else unpacked_bytes
    return found


class _Table:
    """A table of a FlatBuffer, and its position."""

    def __init__(self, content: bytes, place: int) -> None:
        (back,) = struct.unpack_from("<i", content, place)
        self.content, self.place, self.fields = content, place, place - back
        (self.fields_bytes,) = struct.unpack_from("<H", content, self.fields)

    @classmethod
    def root(cls, content: bytes) -> "_Table":
        return cls(content, struct.unpack_from("<I", content)[0])

    def _at(self, number: int) -> int:
        slot = 4 + 2 * number
        if slot + 2 > self.fields_bytes:
            return 0
        offset: int = struct.unpack_from("<H", self.content, self.fields + slot)[0]
        return self.place + offset if offset else 0

    def has(self, number: int) -> bool:
        return self._at(number) > 0

    def number(self, number: int, kind: str, default: int) -> int:
        place = self._at(number)
        return int(struct.unpack_from(kind, self.content, place)[0]) if place else default

    def _behind(self, number: int) -> int:
        place = self._at(number)
        if not place:
            raise ValueError
        return place + int(struct.unpack_from("<I", self.content, place)[0])

    def table(self, number: int) -> "_Table":
        return _Table(self.content, self._behind(number))

    def pairs(self, number: int) -> list[tuple[int, int]]:
        place = self._behind(number)
        (count,) = struct.unpack_from("<I", self.content, place)
        if place + 4 + 16 * count > len(self.content):
            raise ValueError
        return [struct.unpack_from("<qq", self.content, place + 4 + 16 * one) for one in range(count)]
