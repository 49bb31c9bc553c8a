"""What the scanner of events keeps is what a parser of JSON finds; what it does not take, it leaves."""

import json

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ONCE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
MEMBERS = ("ts", "dur", "pid", "tid", "id", "ph", "cat", "name", "args")
CATEGORIES = ("kernel", "cpu_op", "Trace")
ARGUMENTS = ("stream", "grid", "Input Dims")
LEVELS = (3, 2, 0)
"""All kernels are kept, spans of operators; traces are counted."""
KEPT = {"kernel": (0, 1), "cpu_op": (2,), "Trace": ()}
HEAD = 13
LIST_ENDS, CUT, REFUSED, FULL = 0, -2, -3, -4


def laid_out():
    """The tables of words, as the documentation of the kernel has them."""
    spelled, bounds = b"", []
    slots = np.full((3, 256), -1, np.int64)
    for table, own in enumerate((MEMBERS, CATEGORIES, ARGUMENTS)):
        for code, word in enumerate(own):
            slot = (7 * len(word) + 3 * ord(word[0]) + 37 * ord(word[-1])) % 256
            while slots[table, slot] >= 0:
                slot = (slot + 1) % 256
            slots[table, slot] = len(bounds)
            bounds.append((len(spelled), len(word), code))
            spelled += word.encode()
    places = np.full((4, 5), -1, np.int64)
    for category, name in enumerate(CATEGORIES):
        for place, argument in enumerate(KEPT[name]):
            places[category, argument] = HEAD + 2 * place
        places[category, 3:] = HEAD + 2 * len(KEPT[name]), bool(KEPT[name])
    places[3, 2] = -2
    plain = np.array([byte >= 32 and byte not in b'"\\' for byte in range(256)], np.uint8)
    return plain, np.frombuffer(spelled, np.uint8), np.array(bounds), slots, np.array(LEVELS), places


class Scan:
    """One run of the scanner over a text."""

    def __init__(self, kernel_of, text, *, rooms=(64, 2_048, 64, 64, 128)):
        starts, rows, names, others, raws = rooms
        self.text = text
        self.counts = np.zeros(3, np.int64)
        self.starts, self.rows = np.full(starts, -7, np.int64), np.full(rows, -7, np.int64)
        self.names, self.numbers = np.full((names, 3), -7), np.full(256, -1)
        self.others, self.raws = np.full((others, 2), -7), np.full((raws, 2), -7)
        self.state = np.zeros(11, np.int64)
        self.why = kernel_of("json_events").scan_events(
            np.frombuffer(text + b"\0", np.uint8), *laid_out(), self.counts, self.starts, self.rows,
            self.names, self.numbers, self.others, self.raws, self.state,
        )  # fmt: skip

    @property
    def at(self):
        return int(self.state[0])

    def value(self, place, *, is_listed=True):
        """The value whose two numbers begin at a place."""
        value, mark = self.rows[place : place + 2].tolist()
        if mark == -1:
            return None
        if mark >= 0:
            return value / 10**mark if mark else value
        at = value
        if is_listed:
            assert place in self.raws[: self.state[5], 0]
            at, size, _ = self.names[value].tolist()
            assert size == -mark
        assert 0 <= at < at - mark <= len(self.text)
        return msgspec.json.decode(self.text[at : at - mark])

    def found(self):
        """The kept events, as dictionaries."""
        events = []
        for start in self.starts[: self.state[1]].tolist():
            category, phase, number = self.rows[start : start + 3].tolist()
            at, size, _ = self.names[number].tolist() if number >= 0 else (0, None, 1)
            kept = KEPT[CATEGORIES[category]]
            events.append(
                {
                    "cat": CATEGORIES[category],
                    "ph": chr(phase),
                    "name": size
                    if size is None
                    else msgspec.json.decode(b'"%s"' % self.text[at : at + size]),
                    **{name: self.value(start + 3 + 2 * place) for place, name in enumerate(MEMBERS[:5])},
                    **{
                        ARGUMENTS[one]: self.value(start + HEAD + 2 * place, is_listed=one != 2)
                        for place, one in enumerate(kept)
                    },
                }
            )
        return events

    def left(self):
        """The events of other categories, decoded."""
        return [msgspec.json.decode(self.text[at:end]) for at, end in self.others[: self.state[4]].tolist()]


NO_PHASE = "\0"


def expected(events):
    """The events that are kept, as `Scan.found` has them."""
    kept = []
    for event in events:
        level = dict(zip(CATEGORIES, LEVELS, strict=True)).get(event.get("cat"), 0)
        if level == 3 or (level == 2 and event.get("ph") == "X"):
            args = event.get("args")
            args = args if isinstance(args, dict) else {}
            kept.append(
                {
                    "cat": event["cat"],
                    "ph": event.get("ph", NO_PHASE),
                    "name": event.get("name"),
                    **{name: event.get(name) for name in MEMBERS[:5]},
                    **{ARGUMENTS[one]: args.get(ARGUMENTS[one]) for one in KEPT[event["cat"]]},
                }
            )
    return kept


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(-(10**15), 10**15, places=3).map(float),
    st.sampled_from([0, -0.0, 2**63 - 1, -(2**63), 1e-7]),
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
PLAIN_KEYS = st.text(st.characters(codec="ascii", categories=["L", "Nd", "Zs"]), max_size=9)
EVENTS = st.fixed_dictionaries(
    {"ph": st.sampled_from("XXXsfi"), "cat": st.sampled_from([*CATEGORIES, "other"])},
    optional={
        "name": st.none() | NAMES | st.sampled_from(["aten::mm", "a" * 40]),
        **dict.fromkeys(MEMBERS[:5], NUMBERS | VALUES),
        "args": st.dictionaries(st.sampled_from(ARGUMENTS) | PLAIN_KEYS, VALUES, max_size=4) | VALUES,
        "more": VALUES,
    },
).map(lambda event: {"cat": event["cat"], **event})


@ONCE
@given(events=st.lists(EVENTS, max_size=6), indent=st.sampled_from([None, 0, 3]), is_ascii=st.booleans())
def test_values_are_those_of_a_parser(kernel_of, events, indent, is_ascii):
    text = json.dumps(events, indent=indent, ensure_ascii=is_ascii).encode()[1:]
    scan = Scan(kernel_of, text)

    done = int(scan.state[-1])
    assert scan.found() == expected(events[:done])
    assert scan.left() == [event for event in events[:done] if event["cat"] == "other"]
    assert scan.counts.tolist() == [
        sum(event["cat"] == name and event["ph"] == "X" for event in events[:done]) for name in CATEGORIES
    ]
    if done < len(events):  # escapes of keys and of halves of pairs
        assert scan.why == REFUSED
        assert "\\" in json.dumps(events[done])
    else:
        assert (scan.why, scan.at) == (LIST_ENDS, len(text))


@ONCE
@given(
    events=st.lists(EVENTS, min_size=1, max_size=4),
    changes=st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 255)), max_size=4),
    end=st.integers(0, 2_000),
)
def test_changed_and_cut_texts_are_read_as_a_parser_does_or_left(kernel_of, events, changes, end):
    text = bytearray(json.dumps(events).encode()[1:])
    for place, byte in changes:
        text[place % len(text)] = byte
    scan = Scan(kernel_of, bytes(text[: end + 1]))

    assert scan.why in {LIST_ENDS, CUT, REFUSED}
    assert 0 <= scan.at <= len(scan.text)
    done = int(scan.state[-1])
    taken = scan.text[: scan.at].rstrip(b" ,]")
    try:
        parsed = msgspec.json.decode(b"[%s]" % taken)
    except UnicodeDecodeError:
        return  # texts are decoded by those who use them
    except msgspec.ValidationError as error:
        if "Number out of range" in str(error):
            return  # so are numbers: 1e400 is JSON, but no float
        raise
    assert len(parsed) == done
    assert scan.found() == expected(parsed)


@ONCE
@given(events=st.lists(EVENTS, min_size=1, max_size=5), data=st.data())
def test_a_full_array_stops_before_an_event(kernel_of, events, data):
    text = json.dumps(events, ensure_ascii=False).encode()[1:]
    whole = Scan(kernel_of, text)
    rooms = [data.draw(st.integers(0, most)) for most in (6, 120, 5, 5, 30)]
    scan = Scan(kernel_of, text, rooms=rooms)

    done = int(scan.state[-1])
    assert scan.why == whole.why if done == whole.state[-1] and scan.why != FULL else scan.why == FULL
    assert scan.found() == expected(events[:done])


@pytest.mark.parametrize(
    ("number", "stored"),
    [
        ("0", (0, 0)), ("-0", (0, 0)), ("12.500", (12_500, 3)), ("-0.5", (-5, 1)),
        ("1712195000000000.485", (1_712_195_000_000_000_485, 3)),
        ("9223372036854775799", (9_223_372_036_854_775_799, 0)), ("9223372036854775800", None),
        ("-0.0", None), ("1e3", None), ("0.0000000000000000001", None), ("1" * 400, None),
    ],
)  # fmt: skip
def test_numbers_are_exact_or_left_as_text(kernel_of, number, stored):
    scan = Scan(kernel_of, b'{"ph": "X", "cat": "kernel", "ts": %s}]' % number.encode())

    assert scan.why == LIST_ENDS
    value = tuple(scan.rows[3:5].tolist())
    if stored is None:
        at, size, is_name = scan.names[value[0]].tolist()
        assert (scan.text[at : at + size].decode(), size, is_name) == (number, -value[1], 0)
        assert scan.raws[0].tolist() == [3, -1]
    else:
        assert value == stored


@pytest.mark.parametrize(
    "wrong",
    [
        "01", "1.", ".5", "-", "+1", "1e", "tru", "nul", "NaN", "[1,]", '{"a" 1}', '"\\q"', '"\\u12g4"',
        '"\n"',
        '{"a":1,}', "[1}", "", "]", "1 2", '"\\ud800"',
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused(kernel_of, wrong):
    scan = Scan(kernel_of, b'{"ph": "X", "x": %s, "name": "n"}, {}]' % wrong.encode())

    assert (scan.why, scan.at) == (REFUSED, 0)


@pytest.mark.parametrize(
    "unusual",
    [
        '"ph": "X", "ph": "X"', '"args": {"stream": "x", "stream": 5}',
        '"ph": 1', '"ph": "XX"', '"ph": null', '"name": 5', '"c\\u0061t": 1',
        '"x": ' + "[" * 61 + "]" * 61,
    ],
)  # fmt: skip
def test_what_is_unusual_is_left(kernel_of, unusual):
    first = b'{"ph": "X", "cat": "kernel"},'
    scan = Scan(kernel_of, first + b' {"cat": "kernel", %s}, {}]' % unusual.encode())

    assert (scan.why, scan.at) == (REFUSED, len(first))


def test_arguments_before_their_category_are_left(kernel_of):
    scan = Scan(
        kernel_of, b'{"args": {"stream": 1}, "cat": "Trace"}, {"args": {"stream": 1}, "cat": "kernel"}]'
    )

    assert (scan.why, int(scan.state[-1])) == (REFUSED, 1)


def test_a_thousand_names_with_the_same_hash_stop_the_scan(kernel_of):
    """64 places are searched, so that no text takes time in proportion to its square."""
    events = ",".join(f'{{"cat": "kernel", "name": "{number}"}}' for number in range(300))
    scan = Scan(kernel_of, events.encode() + b"]", rooms=(400, 9_000, 300, 9, 99))

    assert scan.why == FULL
    assert (
        len({scan.text[at : at + size] for at, size, _ in scan.names[: scan.state[3]].tolist()})
        == scan.state[3]
    )
