"""Decode values from table pages of an SQLite file: integers, and where texts lie.

The numbers in comments are sections of https://www.sqlite.org/fileformat2.html. The bytes are not trusted:
each read is checked against the page or the record first. What breaks a rule or is rare is refused with a
negative number, and SQLite reads the table.
"""

try:
    import cython
except ImportError:  # runs as plain Python without Cython
    from wallscope.kernels import plain as cython

if cython.compiled:
    from cython.cimports.libc.stdint import int64_t as i64
    from cython.cimports.libc.stdint import uint8_t as u8
else:
    i64, u8 = cython.longlong, cython.uchar

# what is refused; -1 means to Cython that there may be an exception
WRONG_PAGE = cython.declare(i64, -2)
OUTSIDE_OF_PAGE = cython.declare(i64, -3)
WRONG_RECORD = cython.declare(i64, -4)
WRONG_TYPE = cython.declare(i64, -5)
UNKNOWN_DEFAULT = cython.declare(i64, -6)
WRONG_NUMBER = cython.declare(i64, -7)

# what is wanted of a column
INTEGER = cython.declare(i64, 1)
TEXT = cython.declare(i64, 2)
ROW_NUMBER = cython.declare(i64, 3)

HALF_56_BITS = cython.declare(i64, 36028797018963968)
LEAST_PAGE_BYTES = cython.declare(i64, 512)
LEAST_USABLE_BYTES = cython.declare(i64, 480)


def count_cells(pages: cython.const[u8][::1], page_bytes: i64) -> int:
    """Return how many cells some pages have together, by their headers, or why not (1.6).

    Args:
        pages: uint8[n * page_bytes], the pages one after the other.
        page_bytes: size of a page, 512 at least.
    """
    page: i64
    base: i64
    cells: i64
    count: i64 = 0
    if page_bytes < LEAST_PAGE_BYTES:
        return WRONG_PAGE
    with cython.nogil:
        for page in range(pages.shape[0] // page_bytes):
            base = page * page_bytes
            cells = (pages[base + 3] << 8) | pages[base + 4]
            if cells < 1 or cells > (page_bytes - 8) // 6:
                count = WRONG_PAGE
                break
            count += cells
    return count


def visit(numbers: cython.const[i64][::1], lock_page: i64, seen: u8[::1]) -> int:
    """Mark pages as read; return 0, or why not: in one table, each is read once.

    Args:
        numbers: int64[n], numbers of pages, which count from 1; page 1 belongs to no table (1.3).
        lock_page: the page that holds no content (1.4).
        seen: uint8[number of pages + 1], 1 for each page that was read.
    """
    place: i64
    number: i64
    done: i64 = 0
    with cython.nogil:
        for place in range(numbers.shape[0]):
            number = numbers[place]
            if number < 2 or number >= seen.shape[0] or number == lock_page or seen[number]:
                done = WRONG_NUMBER
                break
            seen[number] = 1
    return done


def list_children(
    pages: cython.const[u8][::1], page_bytes: i64, usable_bytes: i64, children: i64[::1]
) -> int:
    """Write the numbers of the pages to which interior pages lead; return how many, or why not (1.6).

    Args:
        pages: uint8[n * page_bytes], interior pages of one table.
        page_bytes: size of a page, 512 at least.
        usable_bytes: bytes of it that hold content, 480 to `page_bytes`.
        children: int64[cells of all pages + n], filled from the front: one of each cell,
            then the last one of the page.
    """
    page: i64
    count: i64 = 0
    if page_bytes < LEAST_PAGE_BYTES or usable_bytes < LEAST_USABLE_BYTES or usable_bytes > page_bytes:
        return WRONG_PAGE
    with cython.nogil:
        for page in range(pages.shape[0] // page_bytes):
            count = list_own_children(pages, page * page_bytes, page_bytes, usable_bytes, children, count)
            if count < 0:
                break
    return count


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=True)
def list_own_children(
    pages: cython.const[u8][::1],
    base: i64,
    page_bytes: i64,
    usable_bytes: i64,
    children: i64[::1],
    count: i64,
) -> i64:
    """Add the children of the interior page that begins at a position; return how many there are then."""
    cell: i64
    at: i64
    until: i64 = base + usable_bytes
    cells: i64 = (pages[base + 3] << 8) | pages[base + 4]
    pointers_end: i64 = base + 12 + 2 * cells
    if pages[base] != 5 or cells < 1 or cells > (page_bytes - 8) // 6:
        return WRONG_PAGE
    if pointers_end > until or cells >= children.shape[0] - count:
        return WRONG_PAGE
    for cell in range(cells):
        at = base + 12 + 2 * cell
        at = base + ((pages[at] << 8) | pages[at + 1])
        if at < pointers_end or at > until - 4 or end_of_varint(pages, at + 4, until) < 0:
            return OUTSIDE_OF_PAGE
        children[count] = page_number(pages, at)
        count += 1
    children[count] = page_number(pages, base + 8)
    return count + 1


def decode_leaves(
    pages: cython.const[u8][::1],
    page_bytes: i64,
    usable_bytes: i64,
    wanted: cython.const[i64][:, ::1],
    null: i64,
    values: i64[:, ::1],
    overflowing: i64[:, ::1],
) -> int:
    """Write the wanted values of all records of leaf pages that end in their page (1.6).

    Args:
        pages: uint8[n * page_bytes], leaf pages of one table, in row order.
        page_bytes: size of a page, 512 at least.
        usable_bytes: bytes of it that hold content, 480 to `page_bytes`.
        wanted: int64[m, 4], the first m columns of the table, up to the last wanted one. For each: what is
            wanted (0 nothing, 1 an integer, 2 a text, 3 the number of the row); the first row of `values`
            that it fills. Then whether older records may lack it (0 or 1), and the value that they get.
        null: stands for NULL.
        values: int64[k, rows of all pages], filled: a row for each integer; for a text two, its position in
            `pages` and its length in bytes, which is -1 for NULL.
        overflowing: int64[rows of all pages, 5], filled from the front, for records that go on in other
            pages: row, start in `pages`, bytes of the whole record, number of the row, bytes of it in
            `pages`, behind which stands the number of the next page.

    Returns:
        How many records go on in other pages, or why SQLite has to read the table.
    """
    page: i64
    base: i64
    row: i64 = 0
    spilled: i64 = 0
    if page_bytes < LEAST_PAGE_BYTES or usable_bytes < LEAST_USABLE_BYTES or usable_bytes > page_bytes:
        return WRONG_PAGE
    if wanted.shape[1] < 4 or overflowing.shape[1] < 5:
        return WRONG_RECORD
    with cython.nogil:
        for page in range(pages.shape[0] // page_bytes):
            base = page * page_bytes
            spilled = decode_leaf(
                pages, base, page_bytes, usable_bytes, wanted, null, values, row, overflowing, spilled
            )
            if spilled < 0:
                break
            row += (pages[base + 3] << 8) | pages[base + 4]
    return spilled


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=True)
def decode_leaf(
    pages: cython.const[u8][::1],
    base: i64,
    page_bytes: i64,
    usable_bytes: i64,
    wanted: cython.const[i64][:, ::1],
    null: i64,
    values: i64[:, ::1],
    row: i64,
    overflowing: i64[:, ::1],
    spilled: i64,
) -> i64:
    """Write the values of the page that begins at a position; return how many records overflow by then."""
    at: i64
    length: i64
    behind: i64
    row_number: i64
    here: i64
    done: i64
    cell: i64
    until: i64 = base + usable_bytes
    cells: i64 = (pages[base + 3] << 8) | pages[base + 4]
    pointers_end: i64 = base + 8 + 2 * cells
    if pages[base] != 13 or cells < 1 or cells > (page_bytes - 8) // 6:
        return WRONG_PAGE
    if pointers_end > until or cells > values.shape[1] - row:
        return WRONG_PAGE
    for cell in range(cells):
        at = base + 8 + 2 * cell
        at = base + ((pages[at] << 8) | pages[at + 1])
        if at < pointers_end or at > until - 4:
            return OUTSIDE_OF_PAGE
        length = short_varint(pages, at, until)
        if length < 0:
            return OUTSIDE_OF_PAGE
        at += 1 + (length & 3)
        length >>= 2
        behind = end_of_varint(pages, at, until)
        if behind < 0:
            return OUTSIDE_OF_PAGE
        row_number = long_varint(pages, at, behind)
        if length > usable_bytes - 35:
            here = local_bytes(length, usable_bytes)
            if behind + here + 4 > until or spilled >= overflowing.shape[0]:
                return OUTSIDE_OF_PAGE
            overflowing[spilled, 0] = row + cell
            overflowing[spilled, 1] = behind
            overflowing[spilled, 2] = length
            overflowing[spilled, 3] = row_number
            overflowing[spilled, 4] = here
            spilled += 1
            continue
        if behind + length > until:
            return OUTSIDE_OF_PAGE
        done = decode_record(pages, behind, behind + length, row_number, wanted, null, values, row + cell)
        if done < 0:
            return done
    return spilled


def decode_records(
    records: cython.const[u8][::1],
    place: cython.const[i64][:, ::1],
    wanted: cython.const[i64][:, ::1],
    null: i64,
    values: i64[:, ::1],
) -> int:
    """Write the wanted values of records that lie in one piece; return 0, or why SQLite has to read.

    Args:
        records: uint8[n], bytes that hold the records.
        place: int64[m, 5], of each record: row of `values`, start and size in `records`, number of the row.
        wanted: as for `decode_leaves`.
        null: the same.
        values: the same; positions of texts are those in `records`.
    """
    record: i64
    row: i64
    start: i64
    size: i64
    done: i64 = 0
    if wanted.shape[1] < 4 or place.shape[1] < 4:
        return WRONG_RECORD
    with cython.nogil:
        for record in range(place.shape[0]):
            row = place[record, 0]
            start = place[record, 1]
            size = place[record, 2]
            done = WRONG_RECORD
            if (
                0 <= row < values.shape[1]
                and 0 <= start <= records.shape[0]
                and 0 <= size <= records.shape[0] - start
            ):
                done = decode_record(
                    records, start, start + size, place[record, 3], wanted, null, values, row
                )
            if done < 0:
                break
    return done


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=True)
def decode_record(
    flat: cython.const[u8][::1],
    start: i64,
    end: i64,
    row_number: i64,
    wanted: cython.const[i64][:, ::1],
    null: i64,
    values: i64[:, ::1],
    row: i64,
) -> i64:
    """Write the values of the record between two positions in `flat`; return 0, or why not (2.1)."""
    column: i64
    kind: i64
    size: i64
    want: i64
    target: i64
    is_absent: cython.bint
    if start >= end or flat[start] < 2 or flat[start] > 127:
        return WRONG_RECORD  # SQLite takes an empty header for damage; longer ones are rare
    # the types stand in the header one behind the other, and so do the values behind it
    header_end: i64 = start + flat[start]
    type_at: i64 = start + 1
    value_at: i64 = header_end
    if header_end > end:
        return WRONG_RECORD
    for column in range(wanted.shape[0]):
        is_absent = type_at >= header_end
        kind = 0
        if not is_absent:
            kind = flat[type_at]
            type_at += 1
            if kind > 127:
                kind = short_varint(flat, type_at - 1, header_end)
                if kind < 0:
                    return WRONG_RECORD
                type_at += kind & 3
                kind >>= 2
        if kind >= 12:
            size = (kind - 12) >> 1
        elif kind <= 4:
            size = kind
        elif kind == 5:
            size = 6
        else:
            size = 8 if kind <= 7 else 0
        if size > end - value_at:
            return WRONG_RECORD
        want = wanted[column, 0]
        if want:
            target = wanted[column, 1]
            if target < 0 or target + (want == TEXT) >= values.shape[0]:
                return WRONG_TYPE
            if is_absent and want != ROW_NUMBER and not wanted[column, 2]:
                return UNKNOWN_DEFAULT
            if want == INTEGER:
                if kind == 7 or kind > 9:
                    return WRONG_TYPE
                if is_absent:
                    values[target, row] = wanted[column, 3]
                elif kind == 0:
                    values[target, row] = null
                elif size == 0:
                    values[target, row] = kind - 8
                else:
                    values[target, row] = integer(flat, value_at, size)
            elif want == TEXT:
                if kind != 0 and (kind < 13 or not kind & 1):
                    return WRONG_TYPE
                values[target, row] = value_at
                values[target + 1, row] = size if kind else -1
            else:  # 2.3: the record holds NULL for it
                if kind != 0:
                    return WRONG_TYPE
                values[target, row] = row_number
        value_at += size
    if type_at < header_end or (type_at == header_end and value_at == end):
        return 0
    return WRONG_RECORD


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-4611686018427387904, check=True)
def integer(flat: cython.const[u8][::1], at: i64, size: i64) -> i64:
    """Return a big-endian integer of 1 to 8 bytes, in two's complement."""
    place: i64
    number: i64 = flat[at]
    if number > 127:
        number -= 256
    for place in range(at + 1, at + size):
        number = number * 256 + flat[place]
    return number


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1, check=True)
def page_number(flat: cython.const[u8][::1], at: i64) -> i64:
    """Return an unsigned big-endian integer of four bytes."""
    number: i64 = flat[at]
    return (number << 24) | (flat[at + 1] << 16) | (flat[at + 2] << 8) | flat[at + 3]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1, check=True)
def short_varint(flat: cython.const[u8][::1], at: i64, until: i64) -> i64:
    """Return four times a number of up to three bytes, plus how many follow its first, or why not (1.6)."""
    number: i64 = 0
    place: i64
    for place in range(3):
        if at + place >= until:
            return OUTSIDE_OF_PAGE
        number = (number << 7) | (flat[at + place] & 127)
        if flat[at + place] < 128:
            return number * 4 + place
    return OUTSIDE_OF_PAGE


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1, check=True)
def end_of_varint(flat: cython.const[u8][::1], at: i64, until: i64) -> i64:
    """Return the position behind a number of up to nine bytes: the last has no top bit (1.6)."""
    last: i64
    for last in range(at, at + 9):
        if last >= until:
            return OUTSIDE_OF_PAGE
        if flat[last] < 128 or last == at + 8:
            return last + 1
    return OUTSIDE_OF_PAGE


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-4611686018427387904, check=True)
def long_varint(flat: cython.const[u8][::1], at: i64, end: i64) -> i64:
    """Return a number of up to nine bytes: seven bits of each, eight of the ninth (1.6)."""
    number: i64 = 0
    place: i64
    for place in range(at, end):
        if place < at + 8:
            number = (number << 7) | (flat[place] & 127)
        else:
            if number >= HALF_56_BITS:  # two's complement of 64 bits
                number -= 2 * HALF_56_BITS
            number = number * 256 + flat[place]
    return number


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def local_bytes(length: i64, usable_bytes: i64) -> i64:
    """Return how many bytes of an overflowing record lie in its leaf page: K or M of 1.6."""
    least: i64 = (usable_bytes - 12) * 32 // 255 - 23
    wanted: i64 = least + (length - least) % (usable_bytes - 4)
    return wanted if wanted <= usable_bytes - 35 else least


def join_texts(
    flat: cython.const[u8][::1],
    start: cython.const[i64][::1],
    length: cython.const[i64][::1],
    separator: u8,
    joined: u8[::1],
) -> int:
    """Write texts one after the other, each with a separator behind it; return how often one holds that byte.

    Args:
        flat: uint8[n], bytes that hold the texts.
        start: int64[m], positions in `flat`.
        length: int64[m], bytes; -1 for none, of which nothing is written.
        separator: a byte.
        joined: uint8[sum of `length + 1`], filled.

    Returns:
        The count, or why not: a text lies outside of `flat`, or there is no room for it.
    """
    text: i64
    place: i64
    at: i64
    size: i64
    filled: i64 = 0
    inside: i64 = 0
    with cython.nogil:
        for text in range(start.shape[0]):
            size = length[text]
            if size < 0:
                continue
            at = start[text]
            if at < 0 or at > flat.shape[0] or size > flat.shape[0] - at or size >= joined.shape[0] - filled:
                inside = WRONG_RECORD
                break
            for place in range(size):
                joined[filled + place] = flat[at + place]
                inside += flat[at + place] == separator
            filled += size
            joined[filled] = separator
            filled += 1
    return inside
