"""Traces that are small and claim to be large: linear in what is read, or refused in a line."""

import gzip
import io
import itertools
import re
import time
from pathlib import Path

import pytest

from tests.conftest import slow
from wallscope.errors import InputError, NothingToAnalyzeError
from wallscope.kineto import load_trace, trace_bytes, trace_events
from wallscope.kineto.load_trace import load_trace_tables, read_trace_capture
from wallscope.kineto.trace_bytes import OversizeError, TraceBytes
from wallscope.kineto.trace_events import FileFacts, iterate_events

KERNEL = (
    '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1,'
    ' "args": {"device": 0, "stream": 7, "correlation": 1}}'
)
HEAD = '{"schemaVersion": 1, "traceEvents": ['


def silent(_):
    pass


def read(text):
    facts = FileFacts()
    events = [one for some in iterate_events(TraceBytes(io.BytesIO(text.encode())), facts) for one in some]
    return len(events), facts


@pytest.mark.parametrize("begin", [HEAD, '{"schemaVersion": 1,', *slow(HEAD + '{"name": "')])
def test_a_terabyte_of_nothing_is_not_read_to_its_end(tmp_path, begin):
    path = tmp_path / "run.json"
    with path.open("wb") as stream:
        stream.write(begin.encode())
        stream.truncate(1 << 40)
    before_s = time.process_time()
    with pytest.raises(InputError) as told:
        read_trace_capture(path, silent)
    assert time.process_time() - before_s < 30
    assert "\n" not in str(told.value)


def test_what_unpacks_to_hundreds_of_times_its_size_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_bytes, "_FEW_BYTES", 4 << 20)
    path = tmp_path / "run.json.gz"
    path.write_bytes(gzip.compress(HEAD.encode() + b"{}," * (2 << 20)))
    with pytest.raises(InputError, match="it unpacks to more than 100 times its size — profile fewer steps"):
        read_trace_capture(path, silent)


@pytest.mark.parametrize(("left_bytes", "is_read"), [(None, True), (1 << 40, True), (1 << 20, False)])
def test_reading_stops_before_memory_does(tmp_path, monkeypatch, left_bytes, is_read):
    path = tmp_path / "run.json"
    path.write_text(HEAD + ", ".join([KERNEL] * 2_000) + "]}", encoding="utf-8")
    monkeypatch.setattr(trace_bytes, "_FEW_BYTES", 1_000)
    monkeypatch.setattr(load_trace, "find_free_bytes", lambda: left_bytes)
    if is_read:
        assert len(load_trace_tables(path, silent).frames["kernels"]) == 2_000
    else:
        with pytest.raises(InputError, match=r"of it take all memory but 1.0 MiB — profile fewer steps"):
            load_trace_tables(path, silent)


def test_a_small_trace_is_read_however_little_memory_is_left():
    source = TraceBytes(io.BytesIO(b"x" * 1_000), lambda: 0)
    assert list(source.pieces()) == [b"x" * 1_000]


def test_the_size_of_a_plain_file_is_no_reason(monkeypatch):
    monkeypatch.setattr(trace_bytes, "_FEW_BYTES", 10)
    assert sum(map(len, TraceBytes(io.BytesIO(b"x" * 1_000)).pieces())) == 1_000
    with pytest.raises(OversizeError):
        list(TraceBytes(io.BytesIO(gzip.compress(b"x" * 100_000))).pieces())


@pytest.mark.parametrize("broken", ['{"a":},', '"",', *slow('{"name": "C:\\q"},', "{1},", '{"a": 1 2},')])
def test_what_is_no_event_takes_time_in_proportion(broken):
    """The time of some letters and of four times as many; each error once took all before it."""
    took_s = []
    for letters in (1 << 16, 1 << 18):
        text = HEAD + broken * (letters // len(broken)) + KERNEL + "]}"
        before_s = time.process_time()
        read(text)
        took_s.append(time.process_time() - before_s)
    assert took_s[1] < 8 * took_s[0] + 0.5


def test_a_trace_of_broken_events_is_given_up(monkeypatch):
    monkeypatch.setattr(trace_events, "_MOST_LOST_EVENTS", 100)
    count, facts = read(HEAD + '{"a":},' * 99 + KERNEL + "]}")
    assert (count, facts.lost_events, facts.fault) == (1, 99, None)
    count, facts = read(HEAD + '{"a":},' * 200 + KERNEL + "]}")
    assert (count, facts.lost_events) == (0, 100)
    assert facts.fault == "a million of its events cannot be read"


@pytest.mark.parametrize("letters", [65_520, 65_530, 65_536, 65_537, 70_000, 200_000])
def test_events_of_any_length_are_whole(letters):
    long = KERNEL.replace('"k"', f'"{"x" * letters}"')
    broken = '{"a": N},'
    count, facts = read(HEAD + broken + ", ".join([KERNEL, long, broken[:-1], long, KERNEL]) + "]}")
    assert (count, facts.lost_events, facts.fault) == (4, 2, None)


@pytest.mark.parametrize(
    "events",
    [
        '{"args": ' + '{"a": ' * 200_000 + "1" + "}" * 200_000 + "}",
        '{"args": ' + "[" * 1_000_000,
        '{"ts": NaN, "dur": Infinity}',
        '{"ts": 1e308, "dur": 1e308}',
        f'{{"ts": {"1" * 5_000}, "dur": 1}}',
        '{"ts": 1, "ts": 2, "args": {"device": 0}, "args": {"stream": 1}}',
        '{"name": "\\ud800<script>\\u202e"}',
        '{"name": "' + "\\" * 10_001,
        "," * 100_000,
        "}{" * 50_000,
        "[[[[" * 50_000,
        "\x00" * 50_000,
    ],
    ids=itertools.count(),
)
def test_every_kind_of_nonsense_is_an_answer_or_a_line(tmp_path, events):
    path = tmp_path / "run.json"
    members = '"ph": "X", "cat": "kernel", "name": "n", "pid": 0, "tid": 7, '
    path.write_text(f"{HEAD}{events.replace('{', '{' + members, 1)}, {KERNEL}]}}", encoding="utf-8")
    try:
        found = len(read_trace_capture(path, silent).operations)
    except NothingToAnalyzeError as error:
        found, said = 0, str(error)
    assert found or re.fullmatch(r"[^\n]* — [^\n]* — [^\n]*", said)


@pytest.mark.skipif(not Path("/proc/kmsg").exists(), reason="Linux has files that wait when they are read")
@pytest.mark.parametrize("command", ["analyze", "info", "check-config"])
def test_files_of_the_system_without_a_size_are_not_waited_for(called, command):
    ran = called(command, "/proc/kmsg")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
