"""Nodes of CUDA graphs without numbers: replays give them some that agree with those of newer traces."""

import re

import polars as pl
import pytest

from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.torch_writing import write_torch_run
from fixtures.torch_trace import BASE_NS, H100, TraceWriter
from tests.conftest import slow
from wallscope.kineto.load_trace import read_trace_capture
from wallscope.model.capture import Options
from wallscope.pipeline import analyze

NODE = re.compile(r', "graph node id": (\d+)')


@pytest.mark.parametrize("seed", [1, *slow(4, 16)])
def test_replays_number_nodes_as_the_profiler_does_and_give_the_same_causes(seed, tmp_path):
    newer = write_torch_run(run(random_program(seed)), tmp_path / "newer.json")
    text = newer.read_text(encoding="utf-8")
    older = tmp_path / "older.json"
    older.write_text(NODE.sub("", text), encoding="utf-8")
    told, made = (
        read_trace_capture(path, lambda _: None).operations.select("op", node="graph_node")
        for path in (newer, older)
    )
    pairs = told.join(made, on="op", nulls_equal=True).select("node", "node_right").unique().drop_nulls()

    assert NODE.search(text)
    assert told["node"].null_count() == made["node"].null_count() < len(told)
    assert len(pairs) == pairs["node"].n_unique() == pairs["node_right"].n_unique()
    before, after = (analyze(path, Options(), lambda _: None).ranks[0].causes for path in (newer, older))
    assert {one.cause: one.typical_ns for one in after} == {one.cause: one.typical_ns for one in before}


def replay(writer, number, kernels):
    at_ns = 100_000 * number
    writer.call("cudaGraphLaunch", at_ns, at_ns + 5_000, number)
    for place, (name, stream) in enumerate(kernels):
        start_ns = at_ns + 10_000 + 1_000 * place
        writer.kernel(name, start_ns, start_ns + 900, number, stream=stream)


def test_another_graph_has_other_nodes_and_launches_of_kernels_have_none(tmp_path):
    writer = TraceWriter(deviceProperties=[{"id": 0, **H100}], baseTimeNanoseconds=BASE_NS)
    replay(writer, 1, [("a", 7), ("b", 9), ("a", 7)])
    replay(writer, 2, [("a", 7), ("a", 7), ("b", 9)])  # the same on each stream
    replay(writer, 3, [("a", 7), ("c", 9), ("a", 7)])
    writer.call("cudaLaunchKernel", 900_000, 901_000, 4)
    writer.kernel("a", 910_000, 911_000, 4)
    found = read_trace_capture(writer.write(tmp_path / "t.json"), lambda _: None)
    nodes = found.operations.join(found.streams.select("stream", "number"), on="stream", how="left").sort(
        "start_ns"
    )
    rows = nodes.select(pl.col("number"), pl.col("graph_node")).rows()
    first, second, third = (
        {stream: [node for one, node in rows[begin : begin + 3] if one == stream] for stream in (7, 9)}
        for begin in (0, 3, 6)
    )

    assert first == second
    assert not {node for own in first.values() for node in own} & {
        node for own in third.values() for node in own
    }
    assert rows[-1] == (7, None)
    assert len({*first[7], *first[9]}) == 3
