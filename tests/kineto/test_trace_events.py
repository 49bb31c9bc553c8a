"""Events out of files of any layout: all that are whole, each once, with exact times."""

import gzip
import io
import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from wallscope.kineto import trace_bytes
from wallscope.kineto.event_tables import read_trace_tables
from wallscope.kineto.trace_bytes import TraceBytes, is_torch_trace
from wallscope.kineto.trace_events import FileFacts, iterate_events
from wallscope.trace.record_times import LeftOut


def read(content):
    """The names of all events, and what was met."""
    facts = FileFacts()
    raw = content if isinstance(content, bytes) else content.encode()
    events = [one for some in iterate_events(TraceBytes(io.BytesIO(raw)), facts) for one in some]
    return [event.name for event in events], facts


def event(name, **more):
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 1, "dur": 2, **more}


NESTED = event("nested", args={"occupancy": [{"a": 1}, {"b": [{"c": {}}]}], "text": "}, {"})
NAMES = st.text(max_size=12)
VALUES = st.recursive(
    st.none() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@given(
    names=st.lists(NAMES, max_size=8),
    args=st.dictionaries(NAMES, VALUES, max_size=3),
    head=st.dictionaries(st.sampled_from(["schemaVersion", "INFO"]), VALUES),
    tail=st.dictionaries(st.sampled_from(["traceName", "deviceProperties"]), VALUES),
    indent=st.sampled_from([None, 0, 2]),
    piece_bytes=st.integers(1, 300),
    is_ascii=st.booleans(),
)
def test_every_event_of_a_whole_file_comes_once(names, args, head, tail, indent, piece_bytes, is_ascii):  # noqa: PLR0913, PLR0917  # drawn together
    events = [event(name, args=args) for name in names]
    text = json.dumps({**head, "traceEvents": events, **tail}, indent=indent, ensure_ascii=is_ascii)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_bytes, "PIECE_BYTES", piece_bytes)
        found, facts = read(text.encode("utf-8", "surrogatepass"))

    assert [name or "" for name in found] == [name.encode("utf-8", "replace").decode() for name in names]
    assert len(found) == len(names)
    assert facts.keys.keys() == {*head, *tail}
    assert (facts.lost_events, facts.fault, facts.has_events) == (0, None, True)


@pytest.mark.parametrize(
    ("broken", "is_lost"),
    [
        pytest.param('{"name": "b", "ts": 1, "args": {"x": NaN}}', False, id="NaN"),
        pytest.param('{"name": "b", "ts": 1, "args": {"x": nan, "y": -inf}}', False, id="bare nan"),
        pytest.param('{"name": "b", "ts": 1, "args": {"x": N/A}}', False, id="N/A"),
        pytest.param('{"name": "b", "ts": 1, "args": {"x": 1,}}', False, id="trailing comma"),
        pytest.param('{"name": "b", "path": "C:\\Users\\q", "ts": 1}', False, id="path of Windows"),
        pytest.param('{"name": "b", "note": "a\x01\n\tb", "ts": 1}', False, id="control characters"),
        pytest.param('{"name": "b", "ts": 1}, }', False, id="a brace too many"),
        pytest.param('{"name": "b", "ts": 1},,', False, id="two commas"),
        pytest.param('{"name": "b", "note": "a "quoted" name", "ts": 1}', True, id="bare quotes"),
        pytest.param('{"name": 7, "ts": 1}', True, id="a name that is none"),
        pytest.param('{"name": "b" "ts": 1}', True, id="no comma"),
    ],
)
def test_a_broken_event_takes_no_other_with_it(broken, is_lost):
    whole = [json.dumps(event(name)) for name in ("a", "c")]
    text = f'{{"schemaVersion": 1, "traceEvents": [{whole[0]}, {broken}, {whole[1]}], "traceName": "x"}}'
    found, facts = read(text)

    assert found == (["a", "c"] if is_lost else ["a", "b", "c"])
    assert facts.lost_events == is_lost
    assert facts.fault is None
    assert facts.keys == {"schemaVersion": 1, "traceName": "x"}


def test_arguments_and_times_that_are_no_utf8_are_read():
    rows = (
        b'{"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "dur": 1,'
        b' "args": {"dtype": "\xff", "stream": 7}},'
        b'{"ph": "X", "cat": "kernel", "name": "b", "ts": "\xff", "dur": 1, "args": {"stream": 8}}'
    )
    tables = read_trace_tables(TraceBytes(io.BytesIO(b'{"traceEvents": [' + rows + b"]}")), lambda _: None)

    assert tables.frames["kernels"].select("stream", "dtype").rows() == [(7, "\ufffd")]
    assert tables.left_out == {"kernels": LeftOut(timeless=1)}


def test_bytes_that_are_no_utf8_are_read():
    raw = b'{"traceEvents": [{"name": "a\xff", "ts": 1}, {"name": "b", "ts": 2}]}'

    assert read(raw)[0] == ["a\ufffd", "b"]


@pytest.mark.parametrize("kept", [40, 90, 150, 290])
def test_a_file_that_is_cut_off_gives_its_whole_events_and_says_so(kept):
    text = json.dumps({"traceEvents": [event(name) for name in "abcdef"]})
    found, facts = read(text[:kept])

    assert found == list("abcdef")[: len(found)]
    assert len(found) == text[:kept].count('"dur": 2}')
    assert facts.fault is not None
    assert facts.lost_events == 0


def test_gzip_that_is_cut_off_gives_what_was_before():
    packed = gzip.compress(
        json.dumps({"traceEvents": [event(str(n)) for n in range(5_000)]}).encode(), mtime=0
    )
    found, facts = read(packed[: len(packed) // 2])

    assert 0 < len(found) < 5_000
    assert found == [str(n) for n in range(len(found))]
    assert facts.fault == "its gzip data is cut off"


def test_gzip_that_is_damaged_gives_what_was_before():
    packed = bytearray(
        gzip.compress(json.dumps({"traceEvents": [event(str(n)) for n in range(99)]}).encode())
    )
    packed[-6] ^= 0xFF  # the checksum

    assert read(bytes(packed))[1].fault == "its gzip data is damaged"


def test_gzip_of_several_members_is_one_file():
    text = json.dumps({"traceEvents": [event(name) for name in "abcd"]}).encode()
    found, facts = read(gzip.compress(text[:100]) + gzip.compress(text[100:]))

    assert (found, facts.fault) == (list("abcd"), None)


def test_objects_inside_events_are_no_boundaries():
    assert read(json.dumps({"traceEvents": [NESTED, event("b")]}))[0] == ["nested", "b"]


def test_a_list_of_events_and_json_without_events_are_told():
    assert read(json.dumps([event("a")]))[1].is_list
    assert not read(json.dumps({"a": 1}))[1].has_events


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        pytest.param(("4458676416788.066", "0.001"), (4_458_676_416_788_066, 1), id="since 2024"),
        pytest.param(
            ("1740461679470813", "85"), (1_740_461_679_470_813_000, 85_000), id="whole microseconds"
        ),
        pytest.param(("1712195000000000.485", "1.25"), (1_712_195_000_000_000_485, 1_250), id="of an epoch"),
        pytest.param(("12.5", "68.0"), (12_500, 68_000), id="without zeros"),
        pytest.param(("1e3", "2E0"), (1_000_000, 2_000), id="with an exponent"),
        pytest.param(('"12.5"', '"1"'), (12_500, 1_000), id="as text"),
        pytest.param(("-0.5", "1"), (-500, 1_000), id="before the base"),
    ],
)
def test_times_are_exact(times, expected):
    start, length = times
    row = f'{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": {start}, "dur": {length}}}'
    tables = read_trace_tables(TraceBytes(io.BytesIO(f'{{"traceEvents": [{row}]}}'.encode())), lambda _: None)
    (found,) = tables.frames["kernels"].select("start", "end").rows()

    assert (found[0], found[1] - found[0]) == expected


@given(ns=st.integers(0, 2**61 - 2**40), length_ns=st.integers(0, 2**40))
def test_every_nanosecond_survives(ns, length_ns):
    assume(ns or length_ns)  # what CUPTI writes for work that it could not time
    row = (
        '{"ph": "X", "cat": "gpu_memset", "name": "m", "pid": 0, "tid": 7,'
        f' "ts": {ns // 1000}.{ns % 1000:03d}, "dur": {length_ns // 1000}.{length_ns % 1000:03d}}}'
    )
    tables = read_trace_tables(TraceBytes(io.BytesIO(f'{{"traceEvents": [{row}]}}'.encode())), lambda _: None)

    assert tables.frames["fills"].select("start", "end").rows() == [(ns, ns + length_ns)]


def test_events_without_a_usable_time_are_counted():
    rows = [event("a", dur=-1), event("b", ts=None), event("c"), {**event("d"), "ts": "soon"}]
    raw = json.dumps({"traceEvents": rows}).encode()
    tables = read_trace_tables(TraceBytes(io.BytesIO(raw)), lambda _: None)

    assert (tables.left_out["kernels"], len(tables.frames["kernels"])) == (LeftOut(2, 1), 1)


@pytest.mark.parametrize("unset", [1, 3], ids=["one row", "all rows"])
@pytest.mark.parametrize(
    ("host_ts", "length", "is_kept"),
    [(1_700_000_000_000_000, 0, False), (1_700_000_000_000_000, 5, False), (10, 0, False), (10, 5, True)],
)
def test_work_whose_time_was_never_set_is_left_out_and_counted(unset, host_ts, length, is_kept):
    work = [event(f"k{row}", ts=0 if row < unset else host_ts, dur=length or 1) for row in range(3)]
    rows = [event("cudaLaunchKernel", cat="cuda_runtime", ts=host_ts), *work]
    for row in work[:unset]:
        row["dur"] = length
    tables = read_trace_tables(
        TraceBytes(io.BytesIO(json.dumps({"traceEvents": rows}).encode())), lambda _: None
    )

    left_out = 0 if is_kept else unset
    assert sum(one.count for one in tables.left_out.values()) == left_out
    assert len(tables.frames["kernels"]) == 3 - left_out


def test_an_operator_that_is_read_twice_is_counted_once():
    names = ("aten::mm", "aten::relu")
    rows = [event(name, cat="cpu_op", **wrong) for name in names for wrong in ({"dur": -1}, {"ts": None})]
    tables = read_trace_tables(
        TraceBytes(io.BytesIO(json.dumps({"traceEvents": rows}).encode())), lambda _: None
    )

    assert tables.left_out == {"operators": LeftOut(2, 2)}


@pytest.mark.parametrize(
    ("name", "content", "is_trace"),
    [
        pytest.param("a.json", b'{"traceEvents": []}', True, id="plain"),
        pytest.param("a.bin", gzip.compress(b'\xef\xbb\xbf {"traceEvents": []}'), True, id="gzip, any name"),
        pytest.param("a.json", b'{"schema": "wallscope.analysis/1"}', False, id="an answer"),
        pytest.param("a.json.gz", gzip.compress(b"SQLite format 3\x00"), False, id="gzip of an export"),
        pytest.param("a.json", b"", False, id="empty"),
        pytest.param("a.json.gz", b"\x1f\x8b\x08\x00rubbish", False, id="broken gzip"),
        pytest.param("a.sqlite", b"SQLite format 3\x00", False, id="an export"),
    ],
)
def test_a_trace_is_told_by_its_content(name, content, is_trace, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)

    assert is_torch_trace(path) is is_trace
