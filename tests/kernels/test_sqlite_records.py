"""Values of SQLite's pages, encoded here by the format's rules, and pages with changed bytes."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ONCE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
NULL = -(2**63)
SKIPPED, INTEGER, TEXT, ROW_NUMBER = range(4)
SIZES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""Bytes of the integer types."""

INTEGERS = st.one_of(st.none(), st.sampled_from([0, 1, -1, 127, 128, -129, 2**55, 2**63 - 1, 1 - 2**63]))
VALUES = {
    SKIPPED: st.one_of(INTEGERS, st.floats(allow_nan=False), st.binary(max_size=90), st.text(max_size=9)),
    INTEGER: st.one_of(INTEGERS, st.integers(-(2**40), 2**40)),
    TEXT: st.one_of(st.none(), st.text(max_size=9), st.integers(0, 300).map("x".__mul__)),
    ROW_NUMBER: st.none(),
}


def varint(number: int) -> bytes:
    """The shortest form of a number of 64 bits."""
    if number < 0 or number >= 2**56:
        rest = number % 2**64
        return varint_of_bits(rest >> 8, 8, more=True) + bytes([rest & 255])
    return varint_of_bits(number, max(1, -(-number.bit_length() // 7)), more=False)


def varint_of_bits(number: int, count: int, *, more: bool) -> bytes:
    groups = [number >> 7 * place & 127 for place in reversed(range(count))]
    return bytes(group | 128 if more or place < count - 1 else group for place, group in enumerate(groups))


def encoded(value: object, widening: int) -> tuple[int, bytes]:
    """Type and bytes of a value; integers in a type that may be wider than they need."""
    match value:
        case None:
            return 0, b""
        case 0 | 1 if isinstance(value, int) and not widening:
            return 8 + value, b""
        case int():
            fitting = [
                kind for kind, size in SIZES.items() if -(2 ** (8 * size - 1)) <= value < 2 ** (8 * size - 1)
            ]
            kind = fitting[min(widening, len(fitting) - 1)]
            return kind, value.to_bytes(SIZES[kind], "big", signed=True)
        case float():
            return 7, np.float64(value).astype(">f8").tobytes()
        case str():
            return 13 + 2 * len(value.encode()), value.encode()
        case bytes():
            return 12 + 2 * len(value), value
    raise AssertionError


def record(values: list[object], widening: int) -> bytes:
    parts = [encoded(value, widening) for value in values]
    types = b"".join(varint(kind) for kind, _ in parts)
    return varint(len(types) + 1) + types + b"".join(content for _, content in parts)


def leaf(cells: list[bytes], page_bytes: int, reserved: int, gap: int) -> bytes:
    """A leaf page with its cells at the end, last first, some bytes between them."""
    page = bytearray(page_bytes)
    page[0] = 13
    page[3:5] = len(cells).to_bytes(2, "big")
    at = page_bytes - reserved
    for place, cell in enumerate(cells):
        at -= len(cell) + gap
        page[at : at + len(cell)] = cell
        page[8 + 2 * place : 10 + 2 * place] = at.to_bytes(2, "big")
    assert at >= 8 + 2 * len(cells)
    return bytes(page)


@st.composite
def leaves(draw):
    """What is wanted of each column, rows with their numbers, pages of them, sizes, records that overflow."""
    wanted = draw(st.lists(st.sampled_from([SKIPPED, INTEGER, TEXT, ROW_NUMBER]), min_size=1, max_size=6))
    page_bytes, reserved = draw(st.sampled_from([(512, 0), (512, 32), (1_024, 7)]))
    rows, pages, cells, over = [], [], [], []
    room, gap = page_bytes - reserved - 8, draw(st.integers(0, 3))
    for place in range(draw(st.integers(1, 14))):
        number = draw(st.one_of(st.integers(0, 300), st.integers(-(2**63), 2**63 - 1)))
        values = [draw(VALUES[kind]) for kind in wanted][: draw(st.integers(1, 20))]
        raw = record(values, draw(st.integers(0, 6)))
        cell = varint(len(raw)) + varint(number) + raw
        if len(raw) > page_bytes - reserved - 35:
            usable = page_bytes - reserved
            least = (usable - 12) * 32 // 255 - 23
            here = least + (len(raw) - least) % (usable - 4)
            here = here if here <= usable - 35 else least
            cell = varint(len(raw)) + varint(number) + raw[:here] + b"\0\0\1\2"
            over.append((place, raw, number))
        if len(cell) + gap + 2 > room:
            pages.append(leaf(cells, page_bytes, reserved, gap))
            cells, room = [], page_bytes - reserved - 8
        room -= len(cell) + gap + 2
        cells.append(cell)
        rows.append((number, values))
    pages.append(leaf(cells, page_bytes, reserved, gap))
    return wanted, rows, b"".join(pages), page_bytes, reserved, over


def wanted_array(wanted: list[int], default: int) -> np.ndarray:
    """What the loops take: kind, row of the values, may be absent, default."""
    target = np.cumsum([0, *(2 if kind == TEXT else kind != SKIPPED for kind in wanted)])[:-1]
    return np.array(
        [(kind, at, 1, NULL if kind == TEXT else default) for kind, at in zip(wanted, target, strict=True)],
        np.int64,
    )


def decoded(kernels, pages: bytes, page_bytes: int, usable_bytes: int, wanted: np.ndarray):
    """What the loop returns, its values, and the records that overflow."""
    flat = np.frombuffer(pages, np.uint8)
    count = max(0, kernels.count_cells(flat, page_bytes))
    values = np.full((int((wanted[:, 0] + (wanted[:, 0] == TEXT) > 0).sum()) + 9, count), 77, np.int64)
    over = np.empty((count, 5), np.int64)
    return kernels.decode_leaves(flat, page_bytes, usable_bytes, wanted, NULL, values, over), values, over


def expected_value(kind: int, place: int, row: tuple[int, list[object]], default: int) -> object:
    number, values = row
    if kind == ROW_NUMBER:
        return number
    if place >= len(values):
        return default if kind == INTEGER else None
    return NULL if kind == INTEGER and values[place] is None else values[place]


def found_values(wanted: np.ndarray, values: np.ndarray, flat: bytes, row: int) -> list[object]:
    """The values of a row, of the wanted columns."""
    found = []
    for kind, target, *_ in wanted.tolist():
        if kind == TEXT:
            at, size = values[target : target + 2, row].tolist()
            found.append(None if size < 0 else flat[at : at + size].decode())
        elif kind != SKIPPED:
            found.append(int(values[target, row]))
    return found


@ONCE
@given(table=leaves(), default=st.integers(-5, 5))
def test_values_are_those_that_were_encoded(kernel_of, table, default):
    kernels = kernel_of("sqlite_records")
    wanted, rows, pages, page_bytes, reserved, over = table
    layout = wanted_array(wanted, default)

    count, values, overflowing = decoded(kernels, pages, page_bytes, page_bytes - reserved, layout)

    assert count == len(over)
    flat = pages
    for place, (row, raw, number) in zip(overflowing[:count], over, strict=True):
        assert place[[0, 2, 3]].tolist() == [row, len(raw), number]
        start, here = place[[1, 4]].tolist()
        assert pages[start : start + here + 4] == raw[:here] + b"\0\0\1\2"
        place[1] = len(flat)
        flat += raw
    whole = np.frombuffer(flat, np.uint8)
    assert kernels.decode_records(whole, overflowing[:count], layout, NULL, values) == 0
    for row, one in enumerate(rows):
        assert found_values(layout, values, flat, row) == [
            expected_value(kind, place, one, default) for place, kind in enumerate(wanted) if kind != SKIPPED
        ]


@ONCE
@given(
    table=leaves(),
    flips=st.lists(
        st.tuples(st.one_of(st.integers(0, 40), st.integers(0, 2_000)), st.integers(0, 255)), max_size=6
    ),
    usable_bytes=st.sampled_from([480, 505, 512, 1_017, 1_024]),
)
def test_changed_bytes_are_refused_or_read_inside_of_their_page(kernel_of, table, flips, usable_bytes):
    kernels = kernel_of("sqlite_records")
    wanted, _, pages, page_bytes, *_ = table
    changed = bytearray(pages)
    for place, byte in flips:
        changed[place % len(changed)] = byte
    layout = wanted_array(wanted, 0)

    count, values, overflowing = decoded(kernels, bytes(changed), page_bytes, usable_bytes, layout)

    assert -7 <= count <= values.shape[1]
    assert count != -1
    if count < 0:
        return
    is_here = np.ones(values.shape[1], np.bool_)
    is_here[overflowing[:count, 0]] = False
    for target in layout[layout[:, 0] == TEXT, 1]:
        start, size = values[target : target + 2, is_here]
        assert (start >= 0).all()
        assert (start + size <= len(changed)).all()
    starts, here = overflowing[:count, 1], overflowing[:count, 4]
    assert (starts + here + 4 <= len(changed)).all()
    kernels.decode_records(np.frombuffer(changed, np.uint8), overflowing[:count], layout, NULL, values)


def interior(children: list[int], page_bytes: int) -> bytes:
    """An interior page: a cell for all children but the last."""
    page = bytearray(page_bytes)
    page[0] = 5
    page[3:5] = (len(children) - 1).to_bytes(2, "big")
    page[8:12] = children[-1].to_bytes(4, "big")
    at = page_bytes
    for place, child in enumerate(children[:-1]):
        cell = child.to_bytes(4, "big") + varint(place * 1_000)
        at -= len(cell)
        page[at : at + len(cell)] = cell
        page[12 + 2 * place : 14 + 2 * place] = at.to_bytes(2, "big")
    return bytes(page)


@ONCE
@given(
    pages=st.lists(st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=30), min_size=1, max_size=4),
    flips=st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 255)), max_size=3),
)
def test_interior_pages_lead_to_their_children(kernel_of, pages, flips):
    kernels = kernel_of("sqlite_records")
    flat = bytearray(b"".join(interior(children, 512) for children in pages))
    for place, byte in flips:
        flat[place % len(flat)] = byte
    whole = np.frombuffer(flat, np.uint8)
    cells = kernels.count_cells(whole, 512)
    if cells < 0:
        assert flips
        return
    children = np.empty(cells + len(pages), np.int64)

    count = kernels.list_children(whole, 512, 512, children)

    assert -7 <= count <= len(children)
    if not flips:
        assert children[:count].tolist() == [child for own in pages for child in own]


@pytest.mark.parametrize(
    ("numbers", "done"),
    [([2, 9, 3], 0), ([2, 3, 2], -7), ([1], -7), ([10], -7), ([5], -7), ([-1], -7), ([], 0)],
    ids=["each once", "twice", "the schema", "behind the file", "of locks", "negative", "none"],
)
def test_each_page_is_visited_once(kernel_of, numbers, done):
    seen = np.zeros(10, np.uint8)

    assert kernel_of("sqlite_records").visit(np.array(numbers, np.int64), 5, seen) == done
    assert done != 0 or np.flatnonzero(seen).tolist() == sorted(numbers)


@ONCE
@given(texts=st.lists(st.one_of(st.none(), st.binary(max_size=9)), max_size=9), separator=st.integers(0, 255))
def test_texts_are_joined(kernel_of, texts, separator):
    flat = b"".join(text or b"" for text in texts)
    length = np.array([-1 if text is None else len(text) for text in texts], np.int64)
    start = np.cumsum(np.maximum(length, 0)) - np.maximum(length, 0)
    there = [text for text in texts if text is not None]
    expected = b"".join(text + bytes([separator]) for text in there)
    joined = np.empty(len(expected), np.uint8)

    inside = kernel_of("sqlite_records").join_texts(
        np.frombuffer(flat, np.uint8), start, length, separator, joined
    )

    assert inside == flat.count(separator)
    assert joined.tobytes() == expected


@pytest.mark.parametrize(
    ("start", "length", "room"),
    [(-1, 1, 9), (5, 1, 9), (0, 5, 9), (2, 2**62, 9), (0, 4, 4)],
    ids=["before", "behind", "too long", "very long", "no room"],
)
def test_texts_outside_of_their_bytes_are_refused(kernel_of, start, length, room):
    joined = np.empty(room, np.uint8)
    bounds = np.array([start]), np.array([length])

    assert kernel_of("sqlite_records").join_texts(np.zeros(4, np.uint8), *bounds, 0, joined) == -4
