"""Garbage collection is read from call stacks of CPU samples, and from nothing less."""

import polars as pl
import pytest

from fixtures.export import ExportWriter
from wallscope.model.enums import OperationKind
from wallscope.nsys import read_capture

PERIOD_NS = 700_000
PLAIN, COLLECTING = ("PyEval",), ("visit_decref", "gc_collect_main", "PyEval")


def collections(path, stacks, *, tables=("samples", "stacks"), skipped=()):
    """Start and end of each collection, in halves of a period, given the stack at each period."""
    with ExportWriter(path) as writer:
        writer.gpu()
        number = writer.call("cudaLaunchKernel", 0, 100)
        writer.kernel("gemm", 200, 900, correlation=number)
        thread = writer.connection.execute("SELECT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()[0]
        for place, stack in enumerate(stacks, start=1):
            if place in skipped:
                continue
            if "samples" in tables:
                writer.row(
                    "COMPOSITE_EVENTS",
                    id=place, start=place * PERIOD_NS, cpu=0, threadState=0, globalTid=thread, cpuCycles=1,
                )  # fmt: skip
            for depth, symbol in enumerate(stack if "stacks" in tables else ()):
                text = writer.string(symbol)
                writer.row("SAMPLING_CALLCHAINS", id=place, symbol=text, module=text, stackDepth=depth)
    found = read_capture(path, lambda _: None)
    assert found.operations["kind"].to_list() == [OperationKind.KERNEL]
    rows = found.host_events.filter(pl.col("kind") == "gc").select("start_ns", "end_ns").rows()
    return [tuple(2 * side // PERIOD_NS for side in row) for row in rows]


def test_samples_in_a_row_are_one_collection(tmp_path):
    stacks = [PLAIN] * 3 + [COLLECTING] * 4 + [PLAIN] * 2 + [COLLECTING] * 2 + [PLAIN]

    assert collections(tmp_path / "run.sqlite", stacks) == [(7, 15), (19, 23)]


@pytest.mark.parametrize(
    ("stacks", "more"),
    [
        pytest.param([PLAIN, COLLECTING, PLAIN, COLLECTING, PLAIN], {}, id="single samples"),
        pytest.param([("PyObject_GC_New", "PyEval")] * 5, {}, id="an allocation of a collected object"),
        pytest.param([COLLECTING] * 5, {"tables": ("samples",)}, id="no stacks"),
        pytest.param([COLLECTING] * 5, {"tables": ("stacks",)}, id="no samples"),
        pytest.param(
            [*[PLAIN] * 9, COLLECTING, *[PLAIN] * 9, COLLECTING],
            {"skipped": range(11, 20)},
            id="the thread did not run in between",
        ),
    ],
)
def test_less_is_no_collection(tmp_path, stacks, more):
    assert collections(tmp_path / "run.sqlite", stacks, **more) == []
