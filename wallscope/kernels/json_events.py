"""Scan the JSON text of a trace: the numbers of its events, and where their names and other values lie.

Grammar: https://www.rfc-editor.org/rfc/rfc8259. The text is not trusted and ends with a zero byte, at which
each loop stops. Scanning stops before an event that breaks the grammar or is unusual: with escapes in its
keys, members that occur twice, arguments before the category. Another parser reads it.
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

# why scanning stops; -1 means to Cython that there may be an exception
CUT = cython.declare(i64, -2)
REFUSED = cython.declare(i64, -3)
FULL = cython.declare(i64, -4)
# places in `state`
AT = cython.declare(i64, 0)
ROWS = cython.declare(i64, 1)
FILLED = cython.declare(i64, 2)
NAMES = cython.declare(i64, 3)
OTHERS = cython.declare(i64, 4)
RAWS = cython.declare(i64, 5)
VALUE = cython.declare(i64, 6)
MARK = cython.declare(i64, 7)
NEW_RAWS = cython.declare(i64, 8)
KEY_END = cython.declare(i64, 9)
EVENTS = cython.declare(i64, 10)
MEMBER = cython.declare(i64, 0)
CATEGORY = cython.declare(i64, 1)
ARGUMENT = cython.declare(i64, 2)
PHASE = cython.declare(i64, 5)  # codes of members; those before are numbers with a place in each row
OF_CATEGORY = cython.declare(i64, 6)
NAME = cython.declare(i64, 7)
HEAD = cython.declare(i64, 13)
LARGEST_WHOLE = cython.declare(i64, 922337203685477579)  # ten times it and 9 are less than 2**63
MOST_PROBES = cython.declare(i64, 64)


def scan_events(
    text: cython.const[u8][::1], plain: cython.const[u8][::1], words: cython.const[u8][::1],
    bounds: cython.const[i64][:, ::1], slots: cython.const[i64][:, ::1], levels: cython.const[i64][::1],
    places: cython.const[i64][:, ::1], counts: i64[::1], starts: i64[::1], rows: i64[::1],
    names: i64[:, ::1], numbers: i64[::1], others: i64[:, ::1], raws: i64[:, ::1], state: i64[::1],
) -> int:  # fmt: skip
    """Write a row for each event that is kept, up to where scanning stops; return why it stops.

    Args:
        text: uint8[n], the text of events from `state[0]` on; the last byte is 0, so there is one.
        plain: uint8[256], 1 for each byte that stands for itself in a string: not a quote, not a backslash,
            not one below 32.
        words: uint8[m], all known words one behind the other.
        bounds: int64[word, 3], start and length in `words`, and code in its table.
        slots: int64[3, 256], words of the members, categories and arguments, by `find_word`, each in the
            first free slot from there on; -1 for none. A slot of each table is free.
        levels: int64[category], 0: only counted; 1: names are read too; 2: spans are kept; 3: all are kept.
        places: int64[category, argument + 2], where the value of an argument is in the row, -1 if it is
            not kept. Then follow the size of the row (13 or more), and whether any argument is kept. The
            last row has -2 for arguments that `raws` does not list: their value is a position in the text.
        counts: int64[category], to which spans are added.
        starts: int64[a], starts of rows in `rows`.
        rows: int64[b], rows: category, phase (a letter), number of the name (-1: none). Then follow a value
            and its mark for each of `ts`, `dur`, `pid`, `tid`, `id` and each kept argument. Mark 0 to 18: a
            number without its point, and its count of decimals. -1: there is none, or null. Below -1: any
            other JSON value, as the number of its text, and its size, negative.
        names: int64[c, 3], positions and bytes of distinct texts; then 1 for a name, without quotes, else 0.
        numbers: int64[d], hash table of `names`; d is a power of 2, at least 2 c. -1 where free.
        others: int64[e, 2], begin and end of events of other categories or none.
        raws: int64[f, 2], places in `rows` of values that are other than plain numbers, and
            code: the argument, or -1 to -5 for `ts` to `id`.
        state: int64[11], position, rows, size of `rows`, names, others, raws, as they are; 4 unused; events.

    Returns:
        0: the list of events ends. -2: the text ends. -3: an unusual event follows. -4: an array is full.
    """
    done: i64 = 0
    if text[text.shape[0] - 1] != 0 or state[AT] >= text.shape[0] or plain[0]:
        return REFUSED
    with cython.nogil:
        while done >= 0 and (state[AT] == 0 or text[state[AT] - 1] != 93):  # ]
            done = scan_event(
                text, plain, words, bounds, slots, levels, places, counts, starts, rows, names, numbers,
                others, raws, state,
            )  # fmt: skip
    return min(done, 0)


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=True)
def scan_event(
    text: cython.const[u8][::1], plain: cython.const[u8][::1], words: cython.const[u8][::1],
    bounds: cython.const[i64][:, ::1], slots: cython.const[i64][:, ::1], levels: cython.const[i64][::1],
    places: cython.const[i64][:, ::1], counts: i64[::1], starts: i64[::1], rows: i64[::1],
    names: i64[:, ::1], numbers: i64[::1], others: i64[:, ::1], raws: i64[:, ::1], state: i64[::1],
) -> i64:  # fmt: skip
    """Write the row of the next event, and go on behind its comma; return 0, or why not."""
    at: i64 = skip_space(text, state[AT])
    key: i64
    end: i64
    code: i64
    place: i64
    number: i64
    category: i64 = -1
    phase: i64 = 0
    seen: i64 = 0
    name_at: i64 = -1
    name_bytes: i64 = 0
    table: i64 = MEMBER
    is_first: cython.bint = True
    is_odd: cython.bint = False
    has_arguments: cython.bint = False
    is_skipped: cython.bint = False
    begin: i64 = at
    last: i64 = text.shape[0] - 1
    row: i64 = state[FILLED]
    arguments: i64 = places.shape[1] - 2
    state[NEW_RAWS] = state[RAWS]
    if text[at] == 93:  # ]
        state[AT] = at + 1
        return 0
    if text[at] != 123:  # {
        return refuse(at, last)
    if row + HEAD + 2 * arguments > rows.shape[0] or state[ROWS] >= starts.shape[0]:
        return FULL
    if state[OTHERS] >= others.shape[0] or state[RAWS] + arguments + PHASE > raws.shape[0]:
        return FULL
    for place in range(row + 4, row + HEAD, 2):
        rows[place] = -1
    while True:
        at = skip_space(text, at + 1)
        if text[at] != 125 or not is_first:  # }
            is_first = False
            key = at + 1
            at = skip_key(text, plain, at, state)
            if at < 0:
                return at
            code = find_word(text, key, state[KEY_END], words, bounds, slots, table)
            place = places[category, code] if table == ARGUMENT and code >= 0 else -1
            if table == MEMBER and code >= 0:
                if seen >> code & 1:
                    return REFUSED
                seen |= 1 << code
                if code < PHASE:
                    place = 3 + 2 * code
            if place >= 0:
                at = read_value(text, plain, at, state)
                if at < 0:
                    return at
                if rows[row + place + 1] != -1:
                    return REFUSED  # an argument that occurs twice
                rows[row + place] = state[VALUE]
                rows[row + place + 1] = state[MARK]
                if state[MARK] < -1 and (table == MEMBER or places[places.shape[0] - 1, code] != -2):
                    number = number_text(text, state[VALUE], -state[MARK], names, numbers, state)
                    if number < 0:
                        return number
                    rows[row + place] = number
                    raws[state[NEW_RAWS], 0] = row + place
                    raws[state[NEW_RAWS], 1] = code if table == ARGUMENT else -1 - code
                    state[NEW_RAWS] += 1
            elif table == MEMBER and PHASE <= code <= NAME and text[at] == 34:
                key = at + 1
                at = skip_string(text, plain, key)
                if at < 0:
                    return at
                end = at - 1
                if code == NAME:
                    name_at = key
                    name_bytes = end - key
                elif code == PHASE:
                    phase = text[key]
                    if end != key + 1 or phase == 92 or phase > 127:
                        return REFUSED
                else:
                    for place in range(key, end):
                        if text[place] == 92:
                            return REFUSED
                    category = find_word(text, key, end, words, bounds, slots, CATEGORY)
                    if category >= 0:
                        has_arguments = places[category, arguments + 1] > 0
                        for place in range(row + HEAD + 1, row + places[category, arguments], 2):
                            rows[place] = -1
            elif table == MEMBER and code > NAME and has_arguments and text[at] == 123:
                table = ARGUMENT
                is_first = True
                continue
            else:
                if table == MEMBER and (code == PHASE or (code == OF_CATEGORY and text[at] != 110)):
                    return REFUSED  # a category may be null
                if table == MEMBER and code >= NAME and text[at] != 110:
                    is_odd = is_odd or code == NAME
                    is_skipped = is_skipped or (code > NAME and text[at] == 123)
                at = skip_value(text, plain, at, state)
                if at < 0:
                    return at
        at = skip_space(text, at)
        if text[at] == 125 and table == ARGUMENT:
            table = MEMBER
            is_first = False
            at = skip_space(text, at + 1)
        if text[at] == 125:
            break
        if text[at] != 44:  # ,
            return refuse(at, last)
    end = at + 1
    at = skip_space(text, end)
    if text[at] != 44 and text[at] != 93:
        return refuse(at, last)
    if category < 0:
        others[state[OTHERS], 0] = begin
        others[state[OTHERS], 1] = end
        state[OTHERS] += 1
    elif levels[category] > 0:
        is_odd = is_odd or (levels[category] == 1 and state[NEW_RAWS] > state[RAWS])
        if is_odd or (is_skipped and has_arguments):
            return REFUSED
        number = -1
        if name_at >= 0:
            number = number_text(text, name_at, name_bytes, names, numbers, state)
            if number < 0:
                return number
            names[number, 2] = 1
        if levels[category] == 3 or (levels[category] == 2 and phase == 88):
            rows[row] = category
            rows[row + 1] = phase
            rows[row + 2] = number
            starts[state[ROWS]] = row
            state[ROWS] += 1
            state[FILLED] = row + places[category, arguments]
            state[RAWS] = state[NEW_RAWS]
    if category >= 0:
        counts[category] += phase == 88  # X
    state[AT] = at + 1
    state[EVENTS] += 1
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=True)
def number_text(
    text: cython.const[u8][::1], at: i64, size: i64, names: i64[:, ::1], numbers: i64[::1], state: i64[::1]
) -> i64:
    """Return the number of the text at a position, a new one if it is new."""
    place: i64
    number: i64
    hashed: i64 = 0
    for place in range(at, at + size):
        hashed = (hashed * 1000003 + text[place]) & 0x7FFFFFFF
    hashed ^= hashed >> 15
    for place in range(hashed, hashed + MOST_PROBES):
        number = numbers[place & (numbers.shape[0] - 1)]
        if number < 0 and state[NAMES] < names.shape[0]:
            numbers[place & (numbers.shape[0] - 1)] = state[NAMES]
            names[state[NAMES], 0] = at
            names[state[NAMES], 1] = size
            names[state[NAMES], 2] = 0
            state[NAMES] += 1
            return state[NAMES] - 1
        if number < 0:
            return FULL
        if names[number, 1] == size and is_same(text, at, text, names[number, 0], size):
            return number
    return FULL


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=True)
def refuse(at: i64, last: i64) -> i64:
    """Return why the byte at a position does not fit: the text ends there, or breaks the grammar."""
    return CUT if at >= last else REFUSED


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1, check=True)
def skip_space(text: cython.const[u8][::1], at: i64) -> i64:
    """Return the position of the first byte from there on other than a space."""
    while text[at] == 32 or text[at] == 10 or text[at] == 13 or text[at] == 9:
        at += 1
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=True)
def skip_string(text: cython.const[u8][::1], plain: cython.const[u8][::1], at: i64) -> i64:
    """Return the position behind the string whose content begins at a position."""
    digit: i64
    while True:
        while plain[text[at]]:
            at += 1
        if text[at] == 34:
            return at + 1
        if text[at] != 92:
            return refuse(at, text.shape[0] - 1)
        at += 1
        if text[at] == 117:  # u
            for digit in range(at + 1, at + 5):
                at = digit
                if not (48 <= text[at] <= 57 or 97 <= text[at] | 32 <= 102):
                    return refuse(at, text.shape[0] - 1)
                if text[at - 1] == 117 and text[at] | 32 == 100:
                    return REFUSED  # half of a pair, or about as rare
            at += 1
        elif text[at] in (34, 92, 47, 98, 102, 110, 114, 116):  # "\/bfnrt
            at += 1
        else:
            return refuse(at, text.shape[0] - 1)


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=True)
def skip_key(text: cython.const[u8][::1], plain: cython.const[u8][::1], at: i64, state: i64[::1]) -> i64:
    """Note where the key that begins at a position ends; return the position of its value."""
    last: i64 = text.shape[0] - 1
    if text[at] != 34:
        return refuse(at, last)
    at += 1
    while plain[text[at]]:
        at += 1
    if text[at] != 34:
        return refuse(at, last)
    state[KEY_END] = at
    at = skip_space(text, at + 1)
    if text[at] != 58:  # :
        return refuse(at, last)
    return skip_space(text, at + 1)


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=True)
def find_word(
    text: cython.const[u8][::1], at: i64, end: i64, words: cython.const[u8][::1],
    bounds: cython.const[i64][:, ::1], slots: cython.const[i64][:, ::1], table: i64,
) -> i64:  # fmt: skip
    """Return the code of the word between two positions, -2 if it is not in a table.

    Its first slot is 7 x bytes + 3 x first byte + 37 x last byte, modulo 256.
    """
    slot: i64
    word: i64
    slot = (7 * (end - at) + 3 * text[at] + 37 * text[end - 1]) & 255
    word = slots[table, slot]
    while word >= 0:
        if bounds[word, 1] == end - at and is_same(text, at, words, bounds[word, 0], end - at):
            return bounds[word, 2]
        slot = (slot + 1) & 255
        word = slots[table, slot]
    return -2


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=True)
def is_same(
    one: cython.const[u8][::1], at: i64, other: cython.const[u8][::1], other_at: i64, size: i64
) -> i64:
    """Return 1 if two texts have the same bytes, else 0."""
    place: i64
    for place in range(size):
        if one[at + place] != other[other_at + place]:
            return 0
    return 1


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=True)
def read_value(text: cython.const[u8][::1], plain: cython.const[u8][::1], at: i64, state: i64[::1]) -> i64:
    """Note the value that begins at a position, and its mark; return the position behind it."""
    end: i64 = skip_value(text, plain, at, state)  # notes a number
    if text[at] != 45 and not 48 <= text[at] <= 57:
        state[VALUE] = at
        state[MARK] = -1 if text[at] == 110 else at - end
    return end


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=True)
def read_number(text: cython.const[u8][::1], at: i64, state: i64[::1]) -> i64:
    """Note the number that begins at a position, and its mark; return the position behind it."""
    first: i64
    value: i64 = 0
    decimals: i64 = 0
    begin: i64 = at
    is_plain: cython.bint = True
    if text[at] == 45:  # -
        at += 1
    first = at
    while 48 <= text[at] <= 57:
        is_plain = is_plain and value <= LARGEST_WHOLE
        if is_plain:
            value = value * 10 + text[at] - 48
        at += 1
    if at == first or (text[first] == 48 and at > first + 1):
        return refuse(at, text.shape[0] - 1)
    if text[at] == 46:  # .
        at += 1
        first = at
        while 48 <= text[at] <= 57:
            is_plain = is_plain and value <= LARGEST_WHOLE
            if is_plain:
                value = value * 10 + text[at] - 48
            at += 1
        decimals = at - first
        is_plain = is_plain and decimals <= 18
        if not decimals:
            return refuse(at, text.shape[0] - 1)
    if text[at] | 32 == 101:  # e
        is_plain = False
        at += 1
        if text[at] == 43 or text[at] == 45:
            at += 1
        first = at
        while 48 <= text[at] <= 57:
            at += 1
        if at == first:
            return refuse(at, text.shape[0] - 1)
    if text[begin] == 45:
        is_plain = is_plain and (value != 0 or decimals == 0)  # a double has a negative zero
        value = -value
    state[VALUE] = value if is_plain else begin
    state[MARK] = decimals if is_plain else begin - at
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=True)
def skip_value(text: cython.const[u8][::1], plain: cython.const[u8][::1], at: i64, state: i64[::1]) -> i64:
    """Return the position behind the value that begins at a position."""
    close: i64
    depth: i64 = 0
    objects: i64 = 0  # a bit for each open bracket, the last lowest: 1 for an object
    last: i64 = text.shape[0] - 1
    while True:
        if text[at] == 34:
            at = skip_string(text, plain, at + 1)
        elif text[at] == 91 or text[at] == 123:
            if depth == 60:  # bits of `objects`
                return REFUSED
            depth += 1
            objects = 2 * objects + (text[at] == 123)
            close = text[at] + 2
            at = skip_space(text, at + 1)
            if text[at] == close:
                depth -= 1
                objects >>= 1
                at += 1
            elif not objects & 1:
                continue
            else:
                at = skip_key(text, plain, at, state)
                if at >= 0:
                    continue
        elif text[at] == 45 or 48 <= text[at] <= 57:
            at = read_number(text, at, state)
        else:
            at = skip_literal(text, at)
        while depth and at >= 0:
            at = skip_space(text, at)
            if text[at] == 44:
                at = skip_space(text, at + 1)
                if objects & 1:
                    at = skip_key(text, plain, at, state)
                break
            if text[at] != (125 if objects & 1 else 93):
                return refuse(at, last)
            depth -= 1
            objects >>= 1
            at += 1
        if not depth or at < 0:
            return at


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=True)
def skip_literal(text: cython.const[u8][::1], at: i64) -> i64:
    """Return the position behind `true`, `false` or `null`."""
    if text[at] == 116 and text[at + 1] == 114 and text[at + 2] == 117 and text[at + 3] == 101:
        return at + 4
    if text[at] == 110 and text[at + 1] == 117 and text[at + 2] == 108 and text[at + 3] == 108:
        return at + 4
    if text[at] == 102 and text[at + 1] == 97 and text[at + 2] == 108 and text[at + 3] == 115:
        return at + 5 if text[at + 4] == 101 else refuse(at + 4, text.shape[0] - 1)
    return refuse(at + 3, text.shape[0] - 1)
