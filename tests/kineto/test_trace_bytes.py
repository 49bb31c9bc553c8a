"""Files that are no trace: one line with the file, what it is, and what to give instead."""

import gzip
import json
import pickle

import pytest

EVENT = {"name": "render", "ph": "X", "ts": 1, "dur": 2, "pid": 1, "tid": 1}
PERFETTO = {"traceEvents": [{**EVENT, "cat": "toplevel"}], "metadata": {"chrome-version": "1"}}
THREAD = {"ph": "M", "pid": 1, "tid": 13, "name": "thread_name", "args": {"name": "Stream #13(Compute)"}}
JAX = {"displayTimeUnit": "ns", "traceEvents": [THREAD, {**EVENT, "args": {"hlo_op": "fusion.1"}}]}
TENSORFLOW = {"traceEvents": [{**EVENT, "cat": "Op", "args": {"op": "MatMul"}}]}
CHAKRA = {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}
OTHER_PROGRAM = r"is a trace of another program: PyTorch's profiler wrote none of its events — capture the"
NOTHING = r"is a gzip file with nothing in it — copy or write the file again"
NSYS = r"is a JSON export of Nsight Systems, which is not read — export the report again: nsys export"


def spell(content):
    return json.dumps(content).encode()


FILES = [
    ("perfetto.json", spell(PERFETTO), OTHER_PROGRAM),
    ("jax.trace.json.gz", gzip.compress(spell(JAX)), OTHER_PROGRAM),
    ("tensorflow.json", spell(TENSORFLOW), OTHER_PROGRAM),
    ("events.json", spell([EVENT]), r"is a list of events, as other programs and PyTorch's profilers before"),
    (
        "chakra.json",
        spell(CHAKRA),
        r"is an execution trace of PyTorch, which has no times of the GPU — profile",
    ),
    ("nsys.json", b'{"type":80,"CudaEvent":{"startNs":"1"}}\n{"type":80}\n', NSYS),
    ("tables.json", spell({"StringIds": [{"id": 1, "value": "k"}]}), NSYS),
    ("empty.json", b"", r"is empty — copy or write the file again"),
    ("empty.json.gz", b"", r"is empty — copy or write the file again"),
    ("nothing.json.gz", gzip.compress(b""), NOTHING),
    ("cut.json.gz", gzip.compress(spell(PERFETTO))[:11], NOTHING),
    (
        "damaged.json.gz",
        b"\x1f\x8b\x08\x00 and no gzip",
        r"is damaged: its gzip data cannot be read — copy it",
    ),
    ("text.json.gz", gzip.compress(b"hello"), r"is compressed with gzip and is not a trace of PyTorch's"),
    (
        "run.sqlite.gz",
        gzip.compress(b"SQLite format 3\0" + bytes(90)),
        r"is an export compressed with gzip —",
    ),
    ("snapshot.pickle", pickle.dumps({"segments": []}), r"is a Python pickle, for instance a snapshot of"),
    ("text.json", b"hello", r"is neither a trace of PyTorch's profiler nor a JSON answer of analyze — make"),
]


@pytest.mark.parametrize(("name", "content", "said"), FILES, ids=[name for name, _, _ in FILES])
def test_a_file_that_is_no_trace_is_described_in_one_line(wallscope, tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    ran = wallscope("analyze", "--no-cache", name)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith(f"wallscope: {name} — {said.split(' — ')[0]}")
    assert said in ran.err


@pytest.mark.parametrize("name", ["perfetto.json", "nothing.json.gz"])
def test_info_does_not_take_them_for_traces_either(wallscope, tmp_path, name):
    content, said = next(rest for own, *rest in FILES if own == name)
    (tmp_path / name).write_bytes(content)
    ran = wallscope("info", name)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_a_trace_of_pytorch_without_events_is_still_one(wallscope, tmp_path):
    (tmp_path / "run.json").write_bytes(spell({"schemaVersion": 1, "traceEvents": []}))
    ran = wallscope("analyze", "--no-cache", "run.json")
    assert ran.code == 2
    assert "has no kernel, copy or fill (no event)" in ran.err
