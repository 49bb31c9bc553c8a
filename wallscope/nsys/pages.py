"""The pages of an SQLite file, and where the records of a table lie in them.

SQLite hands out one value after another; here numpy finds all records of many pages at once, and `records`
takes the columns out of them. The numbers beside the steps are sections of
https://www.sqlite.org/fileformat2.html.

Nothing is mended or guessed: what breaks a rule that SQLite checks while it reads, and what is rare, is
unusual, and SQLite reads that table or names the damage.
"""

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Flat = NDArray[np.uint8]

SPARE_BYTES = 8_192
"""Room behind the pages for what seems to begin in them: as many values as a record may have here, each of
the widest type of one byte. What stands there is no part of an answer."""

_FILE_HEADER_BYTES = 100
_LEAF, _INTERIOR = 13, 5
_PAGE_HEADER_BYTES = {_LEAF: 8, _INTERIOR: 12}
_MOST_LEVELS = 16
_CHUNK_BYTES = 1 << 20
_MOST_OVERFLOW_BYTES = 64 << 20


HAS_OWN_PLACES = hasattr(os, "preadv")
"""Whether several threads can read one open file, each at a place of its own."""


class UnusualError(Exception):
    """Why SQLite has to read the table."""


@dataclass(frozen=True, slots=True)
class Pages:
    """An open file of pages, which are counted from one (1.2, 1.3), and which of them have been read.

    They are read, not mapped: a file that shrinks under a map ends the program.
    """

    stream: io.FileIO
    page_bytes: int
    usable_bytes: int
    page_count: int
    seen: NDArray[np.bool_]

    def visit(self, numbers: Numbers) -> None:
        """Count the pages as read: in one table, each is read once."""
        # page 1 is the schema's; the page at 1 GiB belongs to locks (1.4)
        is_wrong = (numbers < 2) | (numbers > self.page_count) | (numbers == 2**30 // self.page_bytes + 1)
        if is_wrong.any() or self.seen[numbers].any() or len(np.unique(numbers)) < len(numbers):
            raise UnusualError("a page number in its tree is wrong")
        self.seen[numbers] = True

    def read_into(self, number: int, room: Flat) -> None:
        """Read pages, from this number on, until the room is full."""
        _read_into(self.stream, (number - 1) * self.page_bytes, room)

    def chunks(self, numbers: Numbers) -> Iterator[Flat]:
        """The pages one behind the other and spare bytes, as many at a time as a processor's cache holds.

        The memory of each chunk is that of the one before.
        """
        stride = max(1, min(len(numbers), _CHUNK_BYTES // self.page_bytes))
        flat = np.zeros(stride * self.page_bytes + SPARE_BYTES, np.uint8)
        for start in range(0, len(numbers), stride):
            chunk = numbers[start : start + stride]
            edges = [0, *(np.flatnonzero(np.diff(chunk) != 1) + 1).tolist(), len(chunk)]
            for first, past in pairwise(edges):
                self.read_into(int(chunk[first]), flat[first * self.page_bytes : past * self.page_bytes])
            yield flat[: len(chunk) * self.page_bytes + SPARE_BYTES]


@dataclass(frozen=True, slots=True)
class Records:
    """Records of a table: the bytes that hold them, where each starts and ends, where its row's number is."""

    flat: Flat
    starts: Numbers
    ends: Numbers
    row_numbers_at: Numbers


def pages_of(stream: io.FileIO, page_bytes: int, page_count: int) -> Pages:
    """The pages as the file's header tells (1.3), where SQLite, which has checked that, agrees."""
    header = np.zeros(_FILE_HEADER_BYTES, np.uint8)
    _read_into(stream, 0, header)
    told_bytes = int(view(header, ">u2")[16])
    if (65_536 if told_bytes == 1 else told_bytes) != page_bytes:
        raise UnusualError("its header is not what it was")
    usable_bytes = page_bytes - int(header[20])
    return Pages(stream, page_bytes, usable_bytes, page_count, np.zeros(page_count + 1, np.bool_))


def _read_into(stream: io.FileIO, at: int, room: Flat) -> None:
    """Fill the room with what the file holds from a place on."""
    if HAS_OWN_PLACES:
        count = os.preadv(stream.fileno(), [room.data], at)
    else:
        stream.seek(at)
        count = stream.readinto(room.data)
    if count != len(room):
        raise UnusualError("the file ends inside a page")


def leaves(pages: Pages, root: int) -> Numbers:
    """The leaf pages of the table that begins at this page, in row order; they lie equally deep (1.6)."""
    level = np.array([root])
    for depth in range(_MOST_LEVELS):
        pages.visit(level)
        first = next(pages.chunks(level[:1]))
        if first[0] == _LEAF:
            is_empty = depth == 0 and not view(first, ">u2")[3]
            return level[:0] if is_empty else level
        level = np.concatenate([_children(pages, flat) for flat in pages.chunks(level)])
    raise UnusualError("its tree is too deep")


def _children(pages: Pages, flat: Flat) -> Numbers:
    """The pages to which interior pages lead: one of each cell, then the one in the header (1.6)."""
    cells, ends, counts = _cells(pages, flat, _INTERIOR)
    if (behind_varint(flat, cells + 4) > ends).any():
        raise UnusualError("a cell reaches out of its page")
    numbers = view(flat, ">u4")
    is_last = np.zeros(len(cells) + len(counts), np.bool_)
    is_last[np.cumsum(counts + 1) - 1] = True
    children = np.empty(len(is_last), np.int64)
    children[is_last] = numbers[np.arange(len(counts)) * pages.page_bytes + 8]
    children[~is_last] = numbers[cells]
    return children


def _cells(pages: Pages, flat: Flat, kind: int) -> tuple[Numbers, Numbers, Numbers]:
    """Where each cell starts, where its page ends, and how many cells each page has (1.6)."""
    bases = np.arange(0, len(flat) - SPARE_BYTES, pages.page_bytes)
    numbers = view(flat, ">u2")
    counts = numbers[bases + 3].astype(np.int64)
    if (flat[bases] != kind).any() or not 1 <= counts.min() <= counts.max() <= (pages.page_bytes - 8) // 6:
        raise UnusualError("a page is of another kind, or has too many or no cells")
    pointers_end = _PAGE_HEADER_BYTES[kind] + 2 * counts
    base = np.repeat(bases, counts)
    pointers = np.repeat(bases + pointers_end - 2 * np.cumsum(counts), counts) + 2 * np.arange(len(base))
    offsets = numbers[pointers].astype(np.int64)
    if (offsets < np.repeat(pointers_end, counts)).any() or offsets.max() > pages.usable_bytes - 4:
        raise UnusualError("a cell lies outside of its page")
    return base + offsets, base + pages.usable_bytes, counts


def records(pages: Pages, flat: Flat) -> Records:
    """The records of leaf pages: behind their length and the number of the row (1.6)."""
    cells, page_ends, _ = _cells(pages, flat, _LEAF)
    lengths, row_numbers_at = varints(flat, cells)
    starts = behind_varint(flat, row_numbers_at)
    ends = starts + lengths
    if lengths.max() > pages.usable_bytes - 35:
        whole, starts = _gathered(pages, flat, starts, lengths.astype(np.int64), page_ends)
        return Records(whole, starts, starts + lengths, row_numbers_at)
    if (ends > page_ends).any():
        raise UnusualError("a record reaches out of its page")
    return Records(flat, starts, ends, row_numbers_at)


def _gathered(
    pages: Pages, flat: Flat, starts: Numbers, lengths: Numbers, page_ends: Numbers
) -> tuple[Flat, Numbers]:
    """The bytes with those records behind the pages that go on in overflow pages, and where each starts."""
    # 1.6, "cell payload overflow": U, X, M, K as they are called there
    u = pages.usable_bytes
    x, m = u - 35, (u - 12) * 32 // 255 - 23
    k = m + (lengths - m) % (u - 4)
    is_long = lengths > x
    here = np.where(is_long, np.where(k <= x, k, m), lengths)
    long = np.flatnonzero(is_long)
    if (starts + here + 4 * is_long > page_ends).any() or lengths[long].sum() > _MOST_OVERFLOW_BYTES:
        raise UnusualError("a record reaches out of its page, or records are very long")
    parts, end = [flat[:-SPARE_BYTES]], len(flat) - SPARE_BYTES
    moved = starts.copy()
    for record in long.tolist():
        start, here_bytes = int(starts[record]), int(here[record])
        parts.append(flat[start : start + here_bytes])
        parts.extend(_overflow(pages, flat, start + here_bytes, int(lengths[record]) - here_bytes))
        moved[record] = end
        end += int(lengths[record])
    return np.concatenate([*parts, np.zeros(SPARE_BYTES, np.uint8)]), moved


def _overflow(pages: Pages, flat: Flat, at: int, missing_bytes: int) -> Iterator[Flat]:
    """The rest of a record: each overflow page begins with the number of the next (1.6)."""
    number = flat[at : at + 4]
    while missing_bytes > 0:
        page = np.empty(pages.usable_bytes, np.uint8)
        following = int.from_bytes(number.tobytes(), "big")
        pages.visit(np.array([following]))
        pages.read_into(following, page)
        number, content = page[:4], page[4 : 4 + missing_bytes]
        missing_bytes -= len(content)
        yield content


def varints(flat: Flat, at: Numbers) -> tuple[Numbers | Flat, Numbers]:
    """Numbers of up to three bytes, seven bits in each, and the positions behind them (1.6)."""
    single = flat.take(at)
    behind = at + 1
    if single.max() < 128:
        return single, behind
    numbers = single.astype(np.int64)
    longer = np.flatnonzero(single > 127)
    numbers[longer] -= 128
    for _ in range(2):
        byte = flat.take(behind[longer])
        numbers[longer] = (numbers[longer] << 7) | (byte & 127)
        behind[longer] += 1
        longer = longer[byte > 127]
    if longer.size:
        raise UnusualError("a length is out of bounds")
    return numbers, behind


def long_varints(flat: Flat, at: Numbers) -> Numbers:
    """Numbers of up to nine bytes: seven bits of each but the ninth, of which all eight count (1.6)."""
    numbers = np.zeros(len(at), np.int64)
    goes_on = np.ones(len(at), np.bool_)
    for place in range(9):
        byte = flat.take(at + place).astype(np.int64)
        longer = (numbers << 8) | byte if place == 8 else (numbers << 7) | (byte & 127)
        numbers = np.where(goes_on, longer, numbers)
        goes_on &= byte > 127
        if not goes_on.any():
            break
    return numbers


def behind_varint(flat: Flat, at: Numbers) -> Numbers:
    """The positions behind numbers of up to nine bytes: all but the last have their top bit set (1.6)."""
    last = at.copy()
    for _ in range(8):
        goes_on = flat.take(last) > 127
        if not goes_on.any():
            break
        last += goes_on
    return last + 1


def view(flat: Flat, kind: str) -> Numbers:
    """A number of this kind at every position that has room for one."""
    size_bytes = np.dtype(kind).itemsize
    return np.ndarray((len(flat) - size_bytes + 1,), kind, flat, strides=(1,))
