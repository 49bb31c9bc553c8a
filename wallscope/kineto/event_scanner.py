"""Scan events with the compiled scanner, which reads most traces several times as fast as a parser of JSON.

The scanner notes plain numbers, and where other values lie. Those are decoded here, equal texts once. Where
that fails, or the scanner stops, events have to be decoded as structures. Columns come from the rows of
scanned events: plain numbers as they are, the few other values one by one.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, assert_never

import msgspec
import numpy as np
import polars as pl

from wallscope.kernels import json_events, views
from wallscope.kineto.event_decoding import (
    ARGUMENTS,
    COUNTED,
    MEMBERS,
    STRUCTS,
    ArgumentType,
    Event,
    convert_to_ns,
    decode_event,
    read_product,
    read_real,
    read_whole,
    spell_list,
    spell_value,
)
from wallscope.nsys.identity import LONGEST_NAME_LETTERS
from wallscope.records import dataclass

_ABSENT, _REAL, _TEXT = -1, -3, -4
"""Marks of values: none, bits of a double, number of a text. From 0 on: a number with so many decimals."""
_MOST_WHOLE = 2**53
_MOST_DOUBLE_US = 2**43
_NS_DECIMALS = 3
_MOST_DECIMALS = 18
_POWERS = 10 ** np.arange(_MOST_DECIMALS + 1)
"""Of ten; a double has each of them."""
_WORDS = (*MEMBERS, "ph", "cat", "name", "args")
UNNAMED = "(unnamed)"
_TIMES_BEGIN = len(MEMBERS) - 2  # members have codes from -1 down, which count from the end here
_HEAD = 13
"""Numbers at the begin of each row, before arguments."""
_ROW_ROOM, _ROW_COUNT, _NAME_COUNT = 1 << 22, 1 << 18, 1 << 14
_RAW_COUNT, _OTHER_COUNT, _MOST_OTHERS = 1 << 16, 1 << 14, 1 << 16
_MOST_DECODED = 1 << 17
_SLOT_COUNT = 256
_LIST_ENDS, _UNUSUAL, _NO_ROOM = 0, -3, -4
_COUNTED, _CHECKED, _SPANS_KEPT, _ALL_KEPT = range(4)
_FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class ScannedRows:
    """Rows of one kind, as `kernels.json_events` writes them.

    Args:
        rows: int64[n], all rows, in which only the marks above are left.
        starts: int64[row], where each begins.
        places: of each value in a row.
        strings: the texts that values stand for.
    """

    rows: np.ndarray
    starts: np.ndarray
    places: Mapping[str, int]
    strings: Sequence[str]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def phase(self) -> np.ndarray:
        """The letter of each event's phase, as its code."""
        return np.take(self.rows, self.starts + 1)

    @property
    def text(self) -> np.ndarray:
        """The number of each event's name."""
        return np.take(self.rows, self.starts + 2)

    def filter(self, is_kept: np.ndarray) -> "ScannedRows":
        """Return some of the rows."""
        return ScannedRows(self.rows, self.starts[is_kept], self.places, self.strings)

    def times_ns(self, name: str) -> tuple[pl.Series, bool]:
        """Return times in nanoseconds, and whether any has a fraction of a microsecond."""
        values, marks = self._values(name)
        if not marks.any() and np.abs(values).max(initial=0) < _MOST_WHOLE:
            return pl.Series(values * 1_000), False
        decimals = np.clip(marks, 0, _NS_DECIMALS)
        ns = values * _POWERS[_NS_DECIMALS - decimals]
        is_large = (np.abs(values) >= _MOST_WHOLE * _POWERS[decimals]) & (marks >= 0)
        odd = np.flatnonzero((marks > _NS_DECIMALS) | is_large)
        found = _with_nulls(ns, marks == _ABSENT)
        if len(odd):
            times = [
                _read_time(*pair) for pair in zip(values[odd].tolist(), marks[odd].tolist(), strict=True)
            ]
            found = found.scatter(odd, pl.Series(times, dtype=pl.Int64))
        return found, bool((found % 1_000 != 0).any())

    def numbers(self, name: str) -> pl.Series:
        """Return whole numbers; null otherwise."""
        values, marks = self._values(name)
        if not marks.any():
            return pl.Series(values)
        for place in np.flatnonzero(marks > 0).tolist():
            whole, rest = divmod(int(values[place]), 10 ** int(marks[place]))
            values[place], marks[place] = (whole, 0) if not rest else (0, _ABSENT)
        return _with_nulls(values, marks == _ABSENT)

    def reals(self, name: str) -> pl.Series:
        """Return numbers that are not negative; null otherwise."""
        values, marks = self._values(name)
        found = values / _POWERS[np.clip(marks, 0, _MOST_DECIMALS)]
        for place in np.flatnonzero(np.abs(values) >= _MOST_WHOLE).tolist():
            found[place] = int(values[place]) / 10 ** max(0, int(marks[place]))
        is_bits = marks == _REAL
        found[is_bits] = values[is_bits].view(np.float64)
        return _with_nulls(found, (marks == _ABSENT) | ~((found >= 0) & (found <= _MOST_WHOLE)))

    def texts(self, name: str) -> pl.Series:
        """Return texts; null without one."""
        values, marks = self._values(name)
        spelled: list[str | None] = [None] * len(values)
        for place in np.flatnonzero(marks != _ABSENT).tolist():
            value, mark = int(values[place]), int(marks[place])
            spelled[place] = self.strings[value] if mark == _TEXT else spell_value(_as_number(value, mark))
        return pl.Series(spelled, dtype=pl.String)

    def read(self, name: str, own_type: ArgumentType) -> pl.Series:
        """Return the values of an argument."""
        match own_type:
            case ArgumentType.WHOLE | ArgumentType.PRODUCT:
                return self.numbers(name)
            case ArgumentType.REAL:
                return self.reals(name)
            case ArgumentType.TEXT | ArgumentType.LIST:
                return self.texts(name)
        assert_never(own_type)

    def _values(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        at = self.starts + self.places[name]
        return np.take(self.rows, at), np.take(self.rows, at + 1)


def _with_nulls(values: np.ndarray, is_null: np.ndarray) -> pl.Series:
    found = pl.Series(values)
    return found.set(pl.Series(is_null), None) if is_null.any() else found


def _as_number(value: int, mark: int) -> float:
    return value if mark == 0 else value / 10**mark


def _read_time(value: int, mark: int) -> int | None:
    """Return the nanoseconds of a time with many decimals, as of the number that a parser gives."""
    number = _as_number(value, mark)
    if mark and abs(number) >= _MOST_DOUBLE_US:
        digits = f"{abs(value):0{mark + 1}d}"
        return _time_of(f"{'-' * (value < 0)}{digits[:-mark]}.{digits[-mark:]}")
    return _time_of(number)


def _time_of(time: Any) -> int | None:
    ns: int | None = convert_to_ns([time])[0][0]
    return ns


@dataclass(frozen=True, slots=True)
class Scanned:
    """How many events were scanned, where the next begins, and why there.

    The list of events ends, the next is unusual, or there is no room until rows are cleared.
    """

    event_count: int
    at: int
    is_over: bool
    is_unusual: bool
    has_more: bool


class EventScanner:
    """Scans slices of text, and collects rows until they are cleared; `is_full` asks for it.

    Args:
        columns: of each category whose events are kept, the arguments that are kept.
        all_phases: those of them of which more than spans are kept.
        types: what each argument is.
        texts: numbers of names, which grow.
        listing: names of events of which lists are kept.
    """

    def __init__(
        self,
        columns: Mapping[str, Collection[str]],
        all_phases: Collection[str],
        types: Mapping[str, ArgumentType],
        texts: dict[str, int],
        listing: Collection[str],
    ) -> None:
        self._texts, self._listing = texts, listing
        self._categories = list(STRUCTS)
        spelled = {
            name: spelling
            for struct in ARGUMENTS.values()
            for name, spelling in zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
        }
        self._arguments = list(spelled)
        self._types = [types.get(name, ArgumentType.WHOLE) for name in spelled]
        self._words = _lay_out_words([_WORDS, self._categories, list(spelled.values())])
        self._levels = np.array([_find_level(name, columns, all_phases) for name in STRUCTS], np.int64)
        self._places = self._place_arguments(columns)
        self._plain = np.ones(256, np.uint8)
        self._plain[[*range(32), ord('"'), ord("\\")]] = 0
        self._text = np.empty(0, np.uint8)
        self._rows = np.empty(_ROW_ROOM, np.int64)
        self._starts = np.empty(_ROW_COUNT, np.int64)
        self._names = np.empty((_NAME_COUNT, 3), np.int64)
        self._numbers = np.empty(2 * _NAME_COUNT, np.int64)
        self._others = np.empty((_OTHER_COUNT, 2), np.int64)
        self._raws = np.empty((_RAW_COUNT, 2), np.int64)
        self._known: dict[bytes, int] = {}
        self._decoded: dict[tuple[int, bytes], tuple[int, int]] = {}
        self._listed: set[int] = set()
        self._strings: dict[str, int] = {}
        self._slices: list[int] = []
        self._count = self._filled = 0
        self._category: np.ndarray | None = None
        self.counts: Counter[str] = Counter()
        self.others: list[Event] = []

    @property
    def is_full(self) -> bool:
        """Whether rows have to be cleared before more is scanned."""
        return (
            self._filled > _ROW_ROOM // 2 or self._count > _ROW_COUNT // 2 or len(self.others) >= _MOST_OTHERS
        )

    def _place_arguments(self, columns: Mapping[str, Collection[str]]) -> np.ndarray:
        places = np.full((len(self._categories) + 1, len(self._arguments) + 2), -1, np.int64)
        for category, name in enumerate(self._categories):
            own = [self._arguments.index(one) for one in columns.get(name, ())]
            places[category, own] = _HEAD + 2 * np.arange(len(own))
            places[category, -2:] = _HEAD + 2 * len(own), bool(own)
        is_list = [own_type is ArgumentType.LIST for own_type in self._types]
        places[-1, :-2][is_list] = -2
        return places

    def scan(self, content: bytes) -> Scanned:
        """Scan the events at the begin of a text, as many as can be."""
        if len(content) >= len(self._text):
            self._text = np.empty(len(content) + (len(content) >> 3) + 1, np.uint8)
        text = self._text[: len(content) + 1]
        text[:-1] = np.frombuffer(content, np.uint8)
        text[-1] = 0
        at = event_count = 0
        while True:
            counts = np.zeros(len(self._categories), np.int64)
            state = np.array([at, self._count, self._filled, *[0] * 8], np.int64)
            self._numbers.fill(-1)
            reason = json_events.scan_events(
                *views(text, self._plain, *self._words, self._levels, self._places, counts, self._starts,
                       self._rows, self._names, self._numbers, self._others, self._raws, state)
            )  # fmt: skip
            reached, count, filled = state[:3].tolist()
            if reached > at:
                try:
                    others = self._resolve(content, state)
                except _FAULTS:
                    return Scanned(event_count, at, is_over=False, is_unusual=True, has_more=False)
                self.others += others
                self.counts.update(dict(zip(self._categories, counts.tolist(), strict=True)))
                event_count += int(state[-1])
                self._slices.append(self._count)
                self._count, self._filled = count, filled
                self._category = None
            has_more = reason == _NO_ROOM and self.is_full
            if reason != _NO_ROOM or reached == at or has_more:
                is_unusual = reason == _UNUSUAL or (reason == _NO_ROOM and not has_more)
                return Scanned(event_count, reached, reason == _LIST_ENDS, is_unusual, has_more)
            at = reached

    def _resolve(self, content: bytes, state: np.ndarray) -> list[Event]:
        """Replace what refers to the text in new rows; return events of other categories.

        Raises:
            msgspec.DecodeError: a text cannot be decoded; also UnicodeDecodeError and RecursionError.
        """
        _, count, _, names, others, raws = state[:6].tolist()
        rows, starts = self._rows, self._starts[self._count : count]
        events = [decode_event(content[at:end]) for at, end in self._others[:others].tolist()]
        texts = [content[at : at + size] for at, size in self._names[:names, :2].tolist()]
        numbers = [
            self._number_name(raw) if is_name else 0
            for raw, is_name in zip(texts, self._names[:names, 2].tolist(), strict=True)
        ]
        own = rows[starts + 2]
        if len(own) and own.min() < 0:
            numbers.append(self._number_name(b""))
        if len(own):
            rows[starts + 2] = np.array(numbers, np.int64)[own]
        self._resolve_values(texts, raws)
        listing = self._listed.intersection(numbers)
        if listing:
            self._resolve_lists(content, starts[np.isin(rows[starts + 2], list(listing))])
        return events

    def _number_name(self, raw: bytes) -> int:
        number = self._known.get(raw)
        if number is None:
            name = msgspec.json.decode(b'"%s"' % raw, type=str)[:LONGEST_NAME_LETTERS] or UNNAMED
            number = self._texts.setdefault(name, len(self._texts))
            self._known[raw] = number
            if name in self._listing:
                self._listed.add(number)
        return number

    def _resolve_values(self, texts: list[bytes], count: int) -> None:
        """Replace the numbers of texts by what these mean; many values have the same text."""
        places, codes = self._raws[:count].T
        most = len(self._arguments) + len(MEMBERS)
        keys, which = np.unique(self._rows[places] * most + codes % most, return_inverse=True)
        if len(keys):
            pairs = zip((keys % most).tolist(), (keys // most).tolist(), strict=True)
            found = np.array([self._decode(code, texts[number]) for code, number in pairs], np.int64)
            self._rows[places], self._rows[places + 1] = found[which].T

    def _resolve_lists(self, content: bytes, starts: np.ndarray) -> None:
        """Decode the lists in some rows."""
        rows = self._rows
        of_category = self._places[rows[starts]]
        for code, own_type in enumerate(self._types):
            if own_type is ArgumentType.LIST:
                places = (starts + of_category[:, code])[of_category[:, code] > 0]
                places = places[rows[places + 1] < _ABSENT]
                for place, at, mark in zip(
                    places, rows[places].tolist(), rows[places + 1].tolist(), strict=True
                ):
                    rows[place : place + 2] = self._decode(code, content[at : at - mark])

    def _decode(self, code: int, raw: bytes) -> tuple[int, int]:
        """Return value and mark of a JSON value other than a plain number."""
        key = code, raw
        found = self._decoded.get(key)
        if found is None:
            found = self._read(code, raw)
            if len(self._decoded) > _MOST_DECODED:
                self._decoded.clear()
            self._decoded[key] = found
        return found

    def _read(self, code: int, raw: bytes) -> tuple[int, int]:
        if code >= len(self._types) + _TIMES_BEGIN:
            time_ns = convert_to_ns([str(raw, "latin-1")])[0][0]
            return (0, _ABSENT) if time_ns is None else (time_ns, _NS_DECIMALS)
        own_type = self._types[code] if code < len(self._types) else ArgumentType.WHOLE
        if own_type is ArgumentType.LIST:
            text = spell_list(msgspec.Raw(raw))
        elif own_type is ArgumentType.TEXT:
            text = spell_value(msgspec.json.decode(raw))
        elif own_type is ArgumentType.REAL:
            real = read_real(msgspec.json.decode(raw))
            return (0, _ABSENT) if real is None else (int(np.float64(real).view(np.int64)), _REAL)
        else:
            value = msgspec.json.decode(raw)
            whole = read_whole(read_product(value) if own_type is ArgumentType.PRODUCT else value)
            return (0, _ABSENT) if whole is None else (whole, 0)
        return (0, _ABSENT) if text is None else (self._strings.setdefault(text, len(self._strings)), _TEXT)

    def find_rows(self, categories: Collection[str]) -> ScannedRows:
        """Return the rows of some categories, by slice, category and place in the text."""
        if self._category is None:
            self._category = self._rows[self._starts[: self._count]].astype(np.uint8)
        codes = [self._categories.index(name) for name in categories]
        places = {name: 3 + 2 * place for place, name in enumerate(MEMBERS)}
        places |= {
            name: int(place)
            for name, place in zip(self._arguments, self._places[codes[0], :-2], strict=True)
            if place > 0
        }
        own = [np.flatnonzero(self._category == code) for code in codes]
        rows = np.concatenate(own)
        if len(rows) > max(map(len, own)):
            rank = np.repeat(np.arange(len(own)), list(map(len, own)))
            rows = rows[np.lexsort((rank, np.searchsorted(self._slices, rows, side="right")))]
        return ScannedRows(self._rows, self._starts[rows], places, list(self._strings))

    def clear(self) -> None:
        """Forget all rows, counts and other events."""
        self._count = self._filled = 0
        self._category = None
        self.counts.clear()
        self.others.clear()
        self._slices.clear()
        self._strings.clear()
        self._decoded.clear()


def _find_level(name: str, columns: Collection[str], all_phases: Collection[str]) -> int:
    if name in columns:
        return _ALL_KEPT if name in all_phases else _SPANS_KEPT
    return _COUNTED if name in COUNTED else _CHECKED


def _lay_out_words(tables: list[Collection[str]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the words, their bounds, and the slots of each table, as `json_events.find_word` reads them."""
    spelled = [
        (table, code, word.encode()) for table, own in enumerate(tables) for code, word in enumerate(own)
    ]
    slots = np.full((len(tables), _SLOT_COUNT), -1, np.int64)
    bounds = []
    at = 0
    for word, (table, code, text) in enumerate(spelled):
        slot = (7 * len(text) + 3 * text[0] + 37 * text[-1]) % _SLOT_COUNT
        while slots[table, slot] >= 0:
            slot = (slot + 1) % _SLOT_COUNT
        slots[table, slot] = word
        bounds.append((at, len(text), code))
        at += len(text)
    joined = b"".join(text for *_, text in spelled)
    return np.frombuffer(joined, np.uint8), np.array(bounds, np.int64), slots
