"""A trace for Perfetto (ui.perfetto.dev): tracks, slices that nest, counters, arrows; written in pieces.

Field numbers are those of Perfetto's `trace_packet.proto`, `track_event.proto`, `track_descriptor.proto` and
`interned_data.proto`. One packet sequence; names are interned, each written once.

Messages are written a million at a time: fields of many rows as arrays of bytes. The wire format is small and
fixed (https://protobuf.dev/programming-guides/encoding), and a library that makes one object a message takes
minutes for what this does in seconds.
"""

import zlib
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Flags, Rows
from wallscope.model.report import TRACED, Track
from wallscope.records import dataclass
from wallscope.render.texts import visible
from wallscope.trace.intervals import lay_inside, lay_side_by_side, list_edges

_VARINT, _FIXED64, _DELIMITED = 0, 1, 2
Bytes = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int64]
_EVENTS_A_PIECE = 65_536
_LONGEST_NAME = 400
_FASTEST = 1
_AS_GZIP = 31
_PACKET = 1
_TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED, _FLAGS, _DESCRIPTOR = 8, 10, 11, 12, 13, 60
_NEW_STATE, _NEEDS_STATE = 1, 2
_CATEGORY, _NOTE, _TYPE, _NAME, _TRACK, _VALUE, _FLOW_OUT, _FLOW_IN = 3, 4, 9, 10, 11, 44, 47, 48
_BEGIN, _END, _COUNTER = 1, 2, 4
_NOTE_NAME, _NOTE_NUMBER, _NOTE_TEXT = 1, 4, 17
_CATEGORIES, _NAMES, _NOTE_NAMES, _NOTE_TEXTS = 1, 2, 3, 29
_EXPLICIT = 3


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
        longer = sizes > place
        bits = (rest[longer] >> np.uint64(7 * place)).astype(np.uint8) & np.uint8(127)
        flat[begins[longer] + place] = bits | ((sizes[longer] > place + 1).astype(np.uint8) << np.uint8(7))
    return Ragged(flat, sizes)


def _write_key(field: int, wire: int) -> bytes:
    return write_varint(field << 3 | wire)


_OURS = write_number(_SEQUENCE, 1)


def write_trace(tracks: Iterable[Track], earliest_ns: int) -> Iterator[bytes]:
    """Write the trace in pieces; an earliest time below 0, which Perfetto cannot represent, becomes 0."""
    yield _write_packet(_OURS, write_number(_FLAGS, _NEW_STATE))
    writer = _Writer(max(-earliest_ns, 0))
    for place, track in enumerate(tracks):
        yield from writer.write_track(place, track)


def compress(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Compress the pieces to a gzip file, which Perfetto opens too; no time in it."""
    packer = zlib.compressobj(_FASTEST, zlib.DEFLATED, _AS_GZIP)
    yield from map(packer.compress, pieces)
    yield packer.flush()


class _Writer:
    """Knows which names are interned, and the numbers of tracks."""

    def __init__(self, later_ns: int) -> None:
        self._later_ns = later_ns
        self._interned: dict[int, dict[str, int]] = {
            kind: {} for kind in (_CATEGORIES, _NAMES, _NOTE_NAMES, _NOTE_TEXTS)
        }
        self._fresh: list[bytes] = []
        self._of_place: list[int] = []
        self._tracks = 0

    def write_track(self, place: int, track: Track) -> Iterator[bytes]:
        """Write a track with its descriptor, the names that it needs, and its events."""
        parent = None if track.parent is None else self._of_place[track.parent]
        self._of_place.append(self._tracks + 1)
        if track.counter is not None:
            counter = write_message(8, write_number(3, 2) + write_message(6, visible(track.unit)))
            yield self._describe(track, parent, place, counter)
            yield from self._write_counter(track.counter)
        elif track.slices is None or track.slices.is_empty():
            yield self._describe(track, parent, place)
        else:
            yield from self._write_lanes(track, track.slices, parent, place)

    def _write_lanes(
        self, track: Track, slices: pl.DataFrame, parent: int | None, place: int
    ) -> Iterator[bytes]:
        start_ns, end_ns = slices["start_ns"].to_numpy(), slices["end_ns"].to_numpy()
        if track.nesting == "nested":
            lanes, depths = lay_inside(start_ns, end_ns)
        else:
            lanes = lay_side_by_side(start_ns, end_ns)
            depths = np.zeros_like(lanes)
        for lane in range(int(lanes.max()) + 1):
            yield self._describe(track, parent, place)
            own = lanes == lane
            shown = slices if own.all() else slices.filter(pl.Series(own))
            yield from self._write_events(shown, depths[own])

    def _describe(self, track: Track, parent: int | None, place: int, counter: bytes = b"") -> bytes:
        self._tracks += 1
        body = write_number(1, self._tracks) + write_message(2, visible(track.name, _LONGEST_NAME))
        if parent is not None:
            body += write_number(5, parent)
        if track.tid is not None and track.pid is not None:
            thread = (
                write_number(1, track.pid)
                + write_number(2, track.tid)
                + write_message(5, visible(track.name))
            )
            body += write_message(4, thread)
        elif track.pid is not None:
            body += write_message(3, write_number(1, track.pid) + write_message(6, visible(track.name)))
        body += counter + write_number(11, _EXPLICIT) + write_number(12, place)
        return _write_packet(_OURS, write_message(_DESCRIPTOR, body))

    def _write_events(self, slices: pl.DataFrame, depths: Rows) -> Iterator[bytes]:
        rows, begins = list_edges(slices["start_ns"].to_numpy(), slices["end_ns"].to_numpy(), depths)
        for first in range(0, rows.size, _EVENTS_A_PIECE):
            piece = slice(first, first + _EVENTS_A_PIECE)
            is_begin = begins[piece]
            opened = self._open_slices(slices[rows[piece][is_begin]])
            ended = self._close_slices(slices["end_ns"].to_numpy()[rows[piece][~is_begin]])
            yield self._write_names()
            yield join(spread(opened, is_begin), spread(ended, ~is_begin)).flat.tobytes()

    def _open_slices(self, slices: pl.DataFrame) -> Ragged:
        """Write packets of slices that begin."""
        fields = [
            repeat(write_number(_TYPE, _BEGIN) + write_number(_TRACK, self._tracks), len(slices)),
            write_numbers(_NAME, self._numbers(_NAMES, slices["name"].fill_null("")).to_numpy()),
            *self._write_texts(slices["category"], _CATEGORIES, _CATEGORY),
            *_write_flows(slices),
        ]
        for column in slices.columns:
            if column not in TRACED:
                fields += self._write_notes(slices[column])
        event = write_messages(_TRACK_EVENT, *fields)
        return self._write_packets(slices["start_ns"].to_numpy(), event, write_number(_FLAGS, _NEEDS_STATE))

    def _close_slices(self, at_ns: Rows) -> Ragged:
        event = write_message(_TRACK_EVENT, write_number(_TYPE, _END) + write_number(_TRACK, self._tracks))
        return self._write_packets(at_ns, repeat(event, at_ns.size))

    def _write_counter(self, counter: pl.DataFrame) -> Iterator[bytes]:
        for piece in counter.iter_slices(_EVENTS_A_PIECE):
            kind = repeat(write_number(_TYPE, _COUNTER) + write_number(_TRACK, self._tracks), len(piece))
            event = write_messages(_TRACK_EVENT, kind, write_doubles(_VALUE, piece["value"].to_numpy()))
            yield self._write_packets(piece["at_ns"].to_numpy(), event).flat.tobytes()

    def _write_packets(self, at_ns: Rows, event: Ragged, flags: bytes = b"") -> Ragged:
        ours = repeat(_OURS + flags, at_ns.size)
        return write_messages(_PACKET, write_numbers(_TIMESTAMP, at_ns + self._later_ns), ours, event)

    def _write_texts(self, texts: pl.Series, kind: int, field: int) -> list[Ragged]:
        """Write a field of interned texts in the rows that have one."""
        known = texts.is_not_null().to_numpy()
        if not known.any():
            return []
        return [spread(write_numbers(field, self._numbers(kind, texts.drop_nulls()).to_numpy()), known)]

    def _write_notes(self, values: pl.Series) -> list[Ragged]:
        """Write a note of that column's name in the rows that have a value."""
        known = values.is_not_null().to_numpy()
        if not known.any():
            return []
        own = values.drop_nulls()
        name = repeat(write_number(_NOTE_NAME, self._number(_NOTE_NAMES, values.name)), len(own))
        if own.dtype == pl.String:
            value = write_numbers(_NOTE_TEXT, self._numbers(_NOTE_TEXTS, own).to_numpy())
        else:
            value = write_numbers(_NOTE_NUMBER, own.cast(pl.Int64).to_numpy())
        return [spread(write_messages(_NOTE, name, value), known)]

    def _numbers(self, kind: int, texts: pl.Series) -> pl.Series:
        """Number each text among the interned ones of its kind."""
        distinct = texts.unique(maintain_order=True)
        known = [self._number(kind, text) for text in distinct.to_list()]
        return texts.replace_strict(distinct, known, return_dtype=pl.Int64)

    def _number(self, kind: int, text: str) -> int:
        known = self._interned[kind]
        if text not in known:
            known[text] = len(known) + 1
            shown = visible(text, _LONGEST_NAME)
            self._fresh.append(write_message(kind, write_number(1, known[text]) + write_message(2, shown)))
        return known[text]

    def _write_names(self) -> bytes:
        """Write a packet with the names that became known since the last one; nothing if there are none."""
        if not self._fresh:
            return b""
        names = write_message(_INTERNED, b"".join(self._fresh))
        self._fresh.clear()
        return _write_packet(_OURS, write_number(_FLAGS, _NEEDS_STATE), names)


def _write_flows(slices: pl.DataFrame) -> list[Ragged]:
    """Write arrows that begin and end at slices."""
    counts = slices["flows_out"].list.len().fill_null(0).cast(pl.Int64).to_numpy()
    ends = slices["flow_in"].is_not_null().to_numpy()
    found = []
    if counts.any():
        out = slices["flows_out"].drop_nulls().explode().drop_nulls()
        found.append(write_fixed64(_FLOW_OUT, out.to_numpy(), counts))
    if ends.any():
        found.append(
            write_fixed64(_FLOW_IN, slices["flow_in"].drop_nulls().to_numpy(), ends.astype(np.int64))
        )
    return found


def _write_packet(*fields: bytes) -> bytes:
    return write_message(_PACKET, b"".join(fields))
