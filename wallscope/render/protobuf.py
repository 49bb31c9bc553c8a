"""Protocol buffers, written a million messages at a time: fields of many rows as arrays of bytes.

The wire format is small and fixed: https://protobuf.dev/programming-guides/encoding. Written here because a
library that makes one object a message takes minutes for what this does in seconds, and so that an
installation needs none.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wallscope.columns import Flags

_VARINT, _FIXED64, _DELIMITED = 0, 1, 2

Bytes = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ragged:
    """Bytes of many rows, one row behind the other, and how many belong to each."""

    flat: Bytes
    sizes: Counts


def write_number(field: int, value: int) -> bytes:
    """Write a field that is an integer; negative ones as two's complement.

    >>> write_number(1, 300).hex()
    '08ac02'
    """
    return _write_key(field, _VARINT) + write_varint(value)


def write_message(field: int, body: bytes | str) -> bytes:
    """Write a field that is a message, bytes or text.

    >>> write_message(2, "ab").hex()
    '12026162'
    """
    encoded = body.encode() if isinstance(body, str) else body
    return _write_key(field, _DELIMITED) + write_varint(len(encoded)) + encoded


def write_varint(value: int) -> bytes:
    """Write an integer, seven bits a byte, the lowest first."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def repeat(text: bytes, rows: int) -> Ragged:
    """Repeat the same bytes in every row."""
    return Ragged(np.tile(np.frombuffer(text, np.uint8), rows), np.full(rows, len(text)))


def write_numbers(field: int, values: npt.NDArray[np.integer]) -> Ragged:
    """Write a field that is an integer in every row."""
    return join(repeat(_write_key(field, _VARINT), values.size), _write_varints(values))


def write_fixed64(field: int, values: npt.NDArray[np.uint64], counts: Counts) -> Ragged:
    """Write a repeated field of eight bytes: so many of the values in each row."""
    key = np.frombuffer(_write_key(field, _FIXED64), np.uint8)
    eight = np.ascontiguousarray(values, "<u8").view(np.uint8).reshape(-1, 8)
    flat = np.concatenate([np.tile(key, (values.size, 1)), eight], axis=1).ravel()
    return Ragged(flat, counts * (key.size + 8))


def write_doubles(field: int, values: npt.NDArray[np.float64]) -> Ragged:
    """Write a field that is a real number in every row."""
    return write_fixed64(
        field, np.ascontiguousarray(values, "<f8").view("<u8"), np.ones(values.size, np.int64)
    )


def write_messages(field: int, *parts: Ragged) -> Ragged:
    """Write a field that is a message in every row, made of the parts."""
    body = join(*parts)
    return join(repeat(_write_key(field, _DELIMITED), body.sizes.size), _write_varints(body.sizes), body)


def spread(rows: Ragged, among: Flags) -> Ragged:
    """Put the rows at the places that are true; the others are empty."""
    sizes = np.zeros(among.size, np.int64)
    sizes[among] = rows.sizes
    return Ragged(rows.flat, sizes)


def join(*parts: Ragged) -> Ragged:
    """Put the parts of each row behind one another."""
    if len(parts) == 1:
        return parts[0]
    sizes = np.sum([part.sizes for part in parts], axis=0)
    flat = np.empty(int(sizes.sum()), np.uint8)
    begins = np.cumsum(sizes) - sizes
    for part in parts:
        _place(part, begins, flat)
        begins = begins + part.sizes
    return Ragged(flat, sizes)


def _place(part: Ragged, begins: Counts, flat: Bytes) -> None:
    """Copy each row of the part to where it begins."""
    if part.sizes.size and (part.sizes == part.sizes[0]).all():
        size = int(part.sizes[0])
        rows = part.flat.reshape(-1, size) if size else part.flat
        for place in range(size):
            flat[begins + place] = rows[:, place]
        return
    own = np.cumsum(part.sizes) - part.sizes
    flat[np.arange(part.flat.size) + np.repeat(begins - own, part.sizes)] = part.flat


def _write_varints(values: npt.NDArray[np.integer]) -> Ragged:
    rest = values.astype(np.int64).view(np.uint64)
    sizes = np.ones(rest.size, np.int64)
    for bits_below in range(7, 64, 7):
        sizes += rest >= np.uint64(1 << bits_below)
    flat = np.empty(int(sizes.sum()), np.uint8)
    begins = np.cumsum(sizes) - sizes
    for place in range(int(sizes.max(initial=0))):
        held = sizes > place
        bits = (rest[held] >> np.uint64(7 * place)).astype(np.uint8) & np.uint8(127)
        flat[begins[held] + place] = bits | ((sizes[held] > place + 1).astype(np.uint8) << np.uint8(7))
    return Ragged(flat, sizes)


def _write_key(field: int, wire: int) -> bytes:
    return write_varint(field << 3 | wire)
