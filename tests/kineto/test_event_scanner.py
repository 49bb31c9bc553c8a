"""Scanned events become the same frames as events that msgspec decodes, whatever a file has."""

import io
import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.conftest import run_part
from wallscope.kineto import event_scanner, event_tables, trace_bytes
from wallscope.kineto.trace_bytes import TraceBytes

TRACES = Path(__file__).parents[3] / "shared/traces/kineto"
NUMBERS = st.one_of(
    st.integers(-5, 10**6),
    st.integers(-(2**65), 2**65),
    st.integers(0, 2**61).map(lambda ns: ns / 1_000),
    st.floats(),
    st.sampled_from(["7", "12.5", "soon", None, True, [1], {"a": 1}, 68.0, 0.0005, 8796093022208.0625]),
)
ARGUMENTS = {
    **dict.fromkeys(
        ["correlation", "device", "context", "stream", "bytes", "inDevice", "shared memory", "Group size",
         "Sequence number", "Fwd thread id", "Total Reserved", "Device Type", "Device Id", "blocks per SM",
         "est. achieved occupancy %", "wait_on_stream"],
        NUMBERS,
    ),
    **dict.fromkeys(["grid", "block", "Input Dims"], st.lists(NUMBERS, max_size=3) | NUMBERS),
    **dict.fromkeys(["Collective name", "dtype", "Process Group Ranks", "cuda_sync_kind", "name"],
                    st.text(max_size=3) | st.lists(st.integers(), max_size=2) | NUMBERS),
}  # fmt: skip
TIMES = st.integers(0, 10**9) | st.integers(0, 10**12).map(lambda ns: ns / 1_000)
NAMES = st.sampled_from(["aten::mm", "", "[memory]", "thread_name", 'a"b\\c', "é\u2028", None]) | st.text(
    max_size=4
)
EVENTS = st.fixed_dictionaries(
    {
        "ph": st.sampled_from("XXXXsfiM"),
        "cat": st.sampled_from(
            ["kernel", "gpu_memcpy", "cuda_runtime", "cuda_driver", "cpu_op", "operator", "cuda_sync",
             "user_annotation", "python_function", "fwdbwd", "cpu_instant_event", "ac2g", "mine", None]
        ),
        "name": NAMES,
    },
    optional={
        **dict.fromkeys(("ts", "dur"), TIMES | NUMBERS),
        **dict.fromkeys(("pid", "tid", "id"), st.integers(0, 3) | NUMBERS),
        "args": st.fixed_dictionaries({}, optional=ARGUMENTS) | NUMBERS,
    },
)  # fmt: skip


OF_TWO_CATEGORIES = ("calls", "operators", "multiplications")
"""Within a slice, events of one category stand before those of the other; an unusual event ends a slice."""


def read(content, *, is_scanned, with_python=False):
    """The tables of a trace, by the scanner or without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_tables, "is_compiled", lambda: is_scanned)
        source = TraceBytes(io.BytesIO(content))
        return event_tables.read_trace_tables(source, lambda _: None, with_python=with_python)


def spelled(tables, name):
    """A frame with names in place of their numbers, which may differ."""
    frame = tables.frames[name]
    if "text" not in frame.columns:
        return frame
    return frame.with_columns(text=pl.Series(tables.texts, dtype=pl.String).gather(frame["text"]))


def assert_same(content, **options):
    one, other = (read(content, is_scanned=is_scanned, **options) for is_scanned in (True, False))
    for name in other.frames:
        is_ordered = name not in OF_TWO_CATEGORIES
        assert_frame_equal(
            spelled(one, name), spelled(other, name), check_exact=True, check_row_order=is_ordered
        )
    for fact in ("facts", "counts", "left_out", "is_coarse"):
        assert getattr(one, fact) == getattr(other, fact), fact


@given(
    events=st.lists(EVENTS, max_size=8),
    piece_bytes=st.sampled_from([60, 700, 1 << 20]),
    indent=st.sampled_from([None, 1]),
    with_python=st.booleans(),
)
def test_every_frame_is_the_same(events, piece_bytes, indent, with_python):
    content = json.dumps({"traceEvents": events, "traceName": "x"}, indent=indent).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_bytes, "PIECE_BYTES", piece_bytes)
        assert_same(content, with_python=with_python)


@given(
    events=st.lists(EVENTS, min_size=2, max_size=5),
    changes=st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 127)), min_size=1, max_size=3),
    end=st.integers(0, 4_000),
)
def test_broken_files_are_the_same(events, changes, end):
    content = bytearray(json.dumps({"traceEvents": events}).encode())
    for place, byte in changes:
        content[17 + place % (len(content) - 17)] = byte
    assert_same(bytes(content[: 17 + end]))


def test_rows_for_which_there_is_no_room_come_too(monkeypatch):
    for name, size in {
        "_ROW_ROOM": 400,
        "_ROW_COUNT": 7,
        "_NAME_COUNT": 4,
        "_RAW_COUNT": 45,
        "_OTHER_COUNT": 2,
    }.items():
        monkeypatch.setattr(event_scanner, name, size)
    rows = [
        {"ph": "X", "cat": ("kernel", "cuda_runtime", "mine")[number % 3], "name": f"k{number % 9}",
         "ts": number, "dur": 1, "pid": 0, "tid": 7, "args": {"grid": [number, 2, 1], "correlation": number}}
        for number in range(60)
    ]  # fmt: skip
    content = json.dumps({"traceEvents": rows}).encode()
    tables = read(content, is_scanned=True)

    assert_same(content)
    assert tables.frames["kernels"]["grid"].to_list() == [2 * number for number in range(0, 60, 3)]
    assert tables.counts["mine"] == 20


@pytest.mark.parametrize("path", run_part(sorted(TRACES.glob("*.json.gz"))))
def test_real_traces_are_the_same(path):
    assert_same(path.read_bytes(), with_python=True)


def test_real_traces_are_there():
    if not TRACES.is_dir():
        pytest.skip("no ../shared/traces/kineto beside this checkout")
    assert list(TRACES.glob("*.json.gz"))
