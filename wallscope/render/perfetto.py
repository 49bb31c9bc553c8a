"""A trace for Perfetto (ui.perfetto.dev): tracks, slices that nest, counters, arrows; written in pieces.

Field numbers are those of Perfetto's `trace_packet.proto`, `track_event.proto`, `track_descriptor.proto` and
`interned_data.proto`. One packet sequence; names are interned, each written once.
"""

import zlib
from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl

from wallscope.columns import Rows
from wallscope.model.report import TRACED, Track
from wallscope.render.foreign import visible
from wallscope.render.protobuf import (
    Ragged,
    doubles,
    fixed64,
    joined,
    message,
    messages,
    number,
    numbers,
    same,
    spread,
)
from wallscope.trace.intervals import lay_inside, lay_side_by_side, list_edges

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

_OURS = number(_SEQUENCE, 1)


def perfetto(tracks: Iterable[Track], earliest_ns: int) -> Iterator[bytes]:
    """The trace in pieces; if the earliest time is below 0, which Perfetto can not tell, it becomes 0."""
    yield _packet(_OURS, number(_FLAGS, _NEW_STATE))
    writer = _Writer(max(-earliest_ns, 0))
    for place, track in enumerate(tracks):
        yield from writer.track(place, track)


def gzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces as a gzip file, which Perfetto opens too; no time in it."""
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

    def track(self, place: int, track: Track) -> Iterator[bytes]:
        """A track with its descriptor, the names that it needs, and its events."""
        parent = None if track.parent is None else self._of_place[track.parent]
        self._of_place.append(self._tracks + 1)
        if track.counter is not None:
            counter = message(8, number(3, 2) + message(6, visible(track.unit)))
            yield self._described(track, parent, place, counter)
            yield from self._counted(track.counter)
        elif track.slices is None or track.slices.is_empty():
            yield self._described(track, parent, place)
        else:
            yield from self._lanes(track, track.slices, parent, place)

    def _lanes(self, track: Track, slices: pl.DataFrame, parent: int | None, place: int) -> Iterator[bytes]:
        start_ns, end_ns = slices["start_ns"].to_numpy(), slices["end_ns"].to_numpy()
        if track.nesting == "nested":
            lanes, depths = lay_inside(start_ns, end_ns)
        else:
            lanes = lay_side_by_side(start_ns, end_ns)
            depths = np.zeros_like(lanes)
        for lane in range(int(lanes.max()) + 1):
            yield self._described(track, parent, place)
            own = lanes == lane
            shown = slices if own.all() else slices.filter(pl.Series(own))
            yield from self._events(shown, depths[own])

    def _described(self, track: Track, parent: int | None, place: int, counter: bytes = b"") -> bytes:
        self._tracks += 1
        body = number(1, self._tracks) + message(2, visible(track.name, _LONGEST_NAME))
        if parent is not None:
            body += number(5, parent)
        if track.tid is not None and track.pid is not None:
            thread = number(1, track.pid) + number(2, track.tid) + message(5, visible(track.name))
            body += message(4, thread)
        elif track.pid is not None:
            body += message(3, number(1, track.pid) + message(6, visible(track.name)))
        body += counter + number(11, _EXPLICIT) + number(12, place)
        return _packet(_OURS, message(_DESCRIPTOR, body))

    def _events(self, slices: pl.DataFrame, depths: Rows) -> Iterator[bytes]:
        rows, begins = list_edges(slices["start_ns"].to_numpy(), slices["end_ns"].to_numpy(), depths)
        for first in range(0, rows.size, _EVENTS_A_PIECE):
            piece = slice(first, first + _EVENTS_A_PIECE)
            is_begin = begins[piece]
            opened = self._begun(slices[rows[piece][is_begin]])
            ended = self._ended(slices["end_ns"].to_numpy()[rows[piece][~is_begin]])
            yield self._names()
            yield joined(spread(opened, is_begin), spread(ended, ~is_begin)).flat.tobytes()

    def _begun(self, slices: pl.DataFrame) -> Ragged:
        """Packets of slices that begin."""
        fields = [
            same(number(_TYPE, _BEGIN) + number(_TRACK, self._tracks), len(slices)),
            numbers(_NAME, self._numbers(_NAMES, slices["name"].fill_null("")).to_numpy()),
            *self._present(slices["category"], _CATEGORIES, _CATEGORY),
            *_flows(slices),
        ]
        for column in slices.columns:
            if column not in TRACED:
                fields += self._notes(slices[column])
        event = messages(_TRACK_EVENT, *fields)
        return self._packets(slices["start_ns"].to_numpy(), event, number(_FLAGS, _NEEDS_STATE))

    def _ended(self, at_ns: Rows) -> Ragged:
        event = message(_TRACK_EVENT, number(_TYPE, _END) + number(_TRACK, self._tracks))
        return self._packets(at_ns, same(event, at_ns.size))

    def _counted(self, counter: pl.DataFrame) -> Iterator[bytes]:
        for piece in counter.iter_slices(_EVENTS_A_PIECE):
            kind = same(number(_TYPE, _COUNTER) + number(_TRACK, self._tracks), len(piece))
            event = messages(_TRACK_EVENT, kind, doubles(_VALUE, piece["value"].to_numpy()))
            yield self._packets(piece["at_ns"].to_numpy(), event).flat.tobytes()

    def _packets(self, at_ns: Rows, event: Ragged, flags: bytes = b"") -> Ragged:
        ours = same(_OURS + flags, at_ns.size)
        return messages(_PACKET, numbers(_TIMESTAMP, at_ns + self._later_ns), ours, event)

    def _present(self, texts: pl.Series, kind: int, field: int) -> list[Ragged]:
        """A field of interned texts in the rows that have one."""
        known = texts.is_not_null().to_numpy()
        if not known.any():
            return []
        return [spread(numbers(field, self._numbers(kind, texts.drop_nulls()).to_numpy()), known)]

    def _notes(self, values: pl.Series) -> list[Ragged]:
        """A note of that column's name in the rows that have a value."""
        known = values.is_not_null().to_numpy()
        if not known.any():
            return []
        own = values.drop_nulls()
        name = same(number(_NOTE_NAME, self._number(_NOTE_NAMES, values.name)), len(own))
        if own.dtype == pl.String:
            value = numbers(_NOTE_TEXT, self._numbers(_NOTE_TEXTS, own).to_numpy())
        else:
            value = numbers(_NOTE_NUMBER, own.cast(pl.Int64).to_numpy())
        return [spread(messages(_NOTE, name, value), known)]

    def _numbers(self, kind: int, texts: pl.Series) -> pl.Series:
        """The number of each text among the interned ones of its kind."""
        distinct = texts.unique(maintain_order=True)
        known = [self._number(kind, text) for text in distinct.to_list()]
        return texts.replace_strict(distinct, known, return_dtype=pl.Int64)

    def _number(self, kind: int, text: str) -> int:
        known = self._interned[kind]
        if text not in known:
            known[text] = len(known) + 1
            shown = visible(text, _LONGEST_NAME)
            self._fresh.append(message(kind, number(1, known[text]) + message(2, shown)))
        return known[text]

    def _names(self) -> bytes:
        """A packet with the names that became known since the last one; nothing if there are none."""
        if not self._fresh:
            return b""
        told = message(_INTERNED, b"".join(self._fresh))
        self._fresh.clear()
        return _packet(_OURS, number(_FLAGS, _NEEDS_STATE), told)


def _flows(slices: pl.DataFrame) -> list[Ragged]:
    """Arrows that begin and end at slices."""
    counts = slices["flows_out"].list.len().fill_null(0).cast(pl.Int64).to_numpy()
    ends = slices["flow_in"].is_not_null().to_numpy()
    found = []
    if counts.any():
        out = slices["flows_out"].drop_nulls().explode().drop_nulls()
        found.append(fixed64(_FLOW_OUT, out.to_numpy(), counts))
    if ends.any():
        found.append(fixed64(_FLOW_IN, slices["flow_in"].drop_nulls().to_numpy(), ends.astype(np.int64)))
    return found


def _packet(*fields: bytes) -> bytes:
    return message(_PACKET, b"".join(fields))
