"""Read the events of a trace slice by slice, and the data around them, without keeping the file's text.

A slice ends between two events. If it decodes as a list, its end is valid; msgspec is faster at this than any
streaming parser. A slice that does not decode is read event by event. Known faults of profilers in an event
are repaired; an event with another fault counts as lost.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec

from wallscope.kineto.event_decoding import decode_event, decode_events
from wallscope.kineto.event_scanner import Scanned
from wallscope.kineto.trace_bytes import TraceBytes

_MOST_HEADER_BYTES = 64 << 20
_MOST_EVENT_BYTES = 64 << 20
_NEAR_END_BYTES = (1 << 16, 1 << 20)
_MOST_CUTS_TRIED = 3
_MOST_LOST_EVENTS = 1_000_000
_NEAR_LETTERS = 1 << 16
_LONGEST_WORD = len("-Infinity")  # of those that JSON knows, and of any number that is not whole
_BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")
_ARRAY_END = re.compile(rb"\}\s*,?\s*\]")
_LIST_END = re.compile(rb"\}\s*\](?=\s*[,}])")
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_SPACE = re.compile(r"[\s\ufeff]*")
_BETWEEN_EVENTS = re.compile(r"[\s,}]*")
"""There is one comma between events; some files have more commas, and an extra brace."""
_BOM = b"\xef\xbb\xbf"

_REPAIRS = (
    (re.compile(r'(?<!\\)":\s*(?:N/A|-?(?i:nan|inf|infinity))\s*(?=[,}\]])'), '": null'),
    (re.compile(r"([\[,]\s*)(?:N/A|-?(?i:nan|inf|infinity))\s*(?=[,\]])"), r"\1null"),
    (re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})'), r"\\\\"),
    (re.compile(r",\s*([}\]])"), r"\1"),
)
"""Values that JSON does not have, backslashes of Windows paths, commas after the last member."""


_OPEN_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+\\?\Z', re.DOTALL)
_PLAIN = json.JSONDecoder(strict=False)
_MILD = json.JSONDecoder(strict=False, parse_float=str, parse_constant=lambda _: None)


@dataclass(slots=True)
class FileFacts:
    """Data collected while a trace is read; complete after its events.

    `keys` are the members of the file other than its events. `fault` describes where the file ends early, if
    it does. `is_list`: the file is a list of events, as profilers before Kineto wrote it.
    """

    keys: dict[str, Any] = field(default_factory=dict)
    has_events: bool = False
    is_list: bool = False
    lost_events: int = 0
    repaired_events: int = 0
    fault: str | None = None


Scan = Callable[[bytes], Scanned]


def iterate_events(
    source: TraceBytes, facts: FileFacts, scan: Scan | None = None
) -> Iterator[list[Any] | Scanned]:
    """Yield the events of a trace in lists, and fill in `facts`.

    `scan` is tried first on each slice, and what it returns is yielded; it keeps the events that it takes.
    Before the next slice, room has to be made if it is full.
    """
    pieces = source.pieces()
    rest = _read_header(pieces, facts)
    if rest is not None:
        reader = _SliceReader(pieces, facts, scan)
        yield from reader.slices(rest)
        _read_tail(reader.tail, pieces, facts)
    facts.fault = source.fault or facts.fault


def _read_header(pieces: Iterator[bytes], facts: FileFacts) -> bytes | None:
    """Record the members before the events; return the text after the bracket, `None` without events."""
    held = b""
    for piece in pieces:
        held += piece
        text = held.removeprefix(_BOM).decode("latin-1")
        at = _skip(_SPACE, text, 0)
        if text[at : at + 1] == "[":
            facts.is_list = facts.has_events = True
            return text[at + 1 :].encode("latin-1")
        found = _read_members(text, at + 1, facts)
        if found is not None:
            facts.has_events = True
            return text[found:].encode("latin-1")
        if match := _EVENTS_KEY.search(held):  # a member before it cannot be read
            facts.has_events = True
            return held[match.end() :]
        if len(held) > _MOST_HEADER_BYTES:
            break
    return None


def _read_members(text: str, at: int, facts: FileFacts) -> int | None:
    """Record members of an object; return where the list of events begins, `None` if not reached yet."""
    while True:
        at = _skip(_SPACE, text, at)
        if text[at : at + 1] == ",":
            at = _skip(_SPACE, text, at + 1)
        if text[at : at + 1] != '"':
            return None
        try:
            key, at = _PLAIN.raw_decode(text, at)
            at = _skip(_SPACE, text, at)
            if text[at : at + 1] != ":":
                return None
            at = _skip(_SPACE, text, at + 1)
            if key == "traceEvents" and text[at : at + 1] == "[":
                return at + 1
            value, at = _PLAIN.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        facts.keys[str(key)] = value


def _read_tail(tail: bytes, pieces: Iterator[bytes], facts: FileFacts) -> None:
    """Record the members after the events."""
    held = [tail]
    size_bytes = len(tail)
    for piece in pieces:
        held.append(piece)
        size_bytes += len(piece)
        if size_bytes > _MOST_HEADER_BYTES:
            break
    text = b"".join(held).decode("latin-1")
    _read_members(text, 0, facts)


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()


class _SliceReader:
    """Cuts chunks into slices between events; `tail` is the text after the events."""

    def __init__(self, pieces: Iterator[bytes], facts: FileFacts, scan: Scan | None) -> None:
        self._pieces = pieces
        self._scan = scan
        self._facts = facts
        self._is_over = False
        self.tail = b""

    def slices(self, held: bytes) -> Iterator[list[Any] | Scanned]:
        """Yield the events of each slice."""
        is_last = False
        while True:
            scanned = self._scan(held) if self._scan else None
            if scanned is not None:
                yield scanned
                held = held[scanned.at :]
                self._is_over = scanned.is_over
                if scanned.has_more:
                    continue
            is_parsed = scanned is None or scanned.is_unusual or not scanned.at or is_last
            if is_parsed and not self._is_over:
                events, held = self._decode(held, is_last=is_last)
                if events:
                    yield events
            if self._is_over:
                self.tail = held
                return
            if is_last:
                self._facts.fault = self._facts.fault or "it ends before its list of events does"
                return
            piece = next(self._pieces, None)
            is_last = piece is None
            held += piece or b""

    def _decode(self, held: bytes, *, is_last: bool) -> tuple[list[Any], bytes]:
        """Decode as much as possible; return events, and the text behind them."""
        found = None if is_last else self._decode_slice(held)
        return self._decode_singly(held, is_last=is_last) if found is None else found

    def _decode_slice(self, held: bytes) -> tuple[list[Any], bytes] | None:
        """Decode up to the last event boundary; `None` if this fails."""
        for near_bytes in (*_NEAR_END_BYTES, len(held)):
            begin = max(0, len(held) - near_bytes)
            cuts = list(_BOUNDARY.finditer(held, begin))
            if cuts or begin == 0:
                break
        for cut in cuts[: -_MOST_CUTS_TRIED - 1 : -1]:
            if (events := _decode_list(held[: cut.start() + 1])) is not None:
                return events, held[cut.end() :]
        for end in islice(_LIST_END.finditer(held), _MOST_CUTS_TRIED):
            if (events := _decode_list(held[: end.start() + 1])) is not None:
                self._is_over = True
                return events, held[end.end() :]
        return None

    def _decode_singly(self, held: bytes, *, is_last: bool) -> tuple[list[Any], bytes]:
        """Decode event by event; the rest is the begin of an event, or the text after the last one."""
        text = held.decode("latin-1")  # a letter for each byte
        events: list[Any] = []
        at = 0
        while True:
            at = _skip(_BETWEEN_EVENTS, text, at)
            if text[at : at + 1] == "]":
                self._is_over = True
                return events, held[at + 1 :]
            if at >= len(text):
                return events, b""
            end, is_cut = _find_end(text, at)
            may_go_on = not is_last and len(held) - at < _MOST_EVENT_BYTES
            if end is None and not (is_cut and may_go_on):
                end = self._find_broken_end(held, at, is_last=is_last)
            if end is None and may_go_on:
                return events, held[at:]
            if end is None:  # a tail that is not an event; nothing after so much of it is read
                self._facts.fault = "it ends inside an event"
                self._is_over = True
                return events, b""
            event = self._decode_event(held[at:end])
            if event is None:
                self._facts.lost_events += 1
                if self._facts.lost_events >= _MOST_LOST_EVENTS:
                    self._facts.fault = "a million of its events cannot be read"
                    self._is_over = True
                    return events, b""
            else:
                events.append(event)
            at = end

    def _find_broken_end(self, held: bytes, at: int, *, is_last: bool) -> int | None:
        """Return where an unreadable event ends, as far as the next one shows it; else `None`."""
        if match := _BOUNDARY.search(held, at):
            return match.start() + 1
        if is_last and (match := _ARRAY_END.search(held, at)):
            return match.start() + 1
        return None

    def _decode_event(self, raw: bytes) -> Any:
        try:
            return decode_event(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        text = raw.decode("utf-8", "replace")
        for repaired in (text, _repair(text)):
            try:
                members = _MILD.decode(repaired)
                event = decode_event(msgspec.json.encode(members))
            except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError):
                continue
            self._facts.repaired_events += 1
            return event
        return None


def _decode_list(raw: bytes) -> list[Any] | None:
    return decode_events(b"".join((b"[", raw, b"]")))


def _find_end(text: str, at: int) -> tuple[int | None, bool]:
    """Return where the object at a position ends, `None` without one; and whether the text ends before it.

    It is first looked for nearby: an error takes time for all text before it.
    """
    near = text[at : at + _NEAR_LETTERS]
    end, is_cut = _find_decoded_end(near, 0)
    if (is_cut or end == len(near)) and at + len(near) < len(text):
        return _find_decoded_end(text, at)
    return None if end is None else at + end, is_cut


def _find_decoded_end(text: str, at: int) -> tuple[int | None, bool]:
    try:
        return int(_PLAIN.raw_decode(text, at)[1]), False
    except json.JSONDecodeError as error:
        is_in_string = _OPEN_STRING.match(text, error.pos) is not None
        return None, is_in_string or error.pos >= len(text) - _LONGEST_WORD
    except (ValueError, RecursionError):
        return None, False


def _repair(text: str) -> str:
    for pattern, replacement in _REPAIRS:
        text = pattern.sub(replacement, text)
    return text
