"""Traces of PyTorch's profiler that others published: every reference value, to the nanosecond.

The reference values are plain interval arithmetic on the files, by rules that `expected.json` tells.
"""

import json
import re
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from tests.answered_once import analyze_once
from wallscope.attribution.totals import measure_budgets
from wallscope.jobs.inputs import find_exports
from wallscope.jobs.merge import run_job
from wallscope.kineto.any_capture import read_any_capture
from wallscope.kineto.load_trace import build_trace_capture, load_trace_tables
from wallscope.model.capture import Options, Profiler
from wallscope.model.schemas import WINDOWS
from wallscope.preparation import read_trace
from wallscope.trace.collectives import match_nccl_calls
from wallscope.trace.kernel_classes import classify_kernels, classify_operations, load_kernel_rules

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces" / "kineto"
REFERENCE = TRACES / "expected.json"

pytestmark = pytest.mark.skipif(
    not REFERENCE.is_file(), reason="no traces of others here: ../shared/traces/kineto is absent"
)

EXPECTED = json.loads(REFERENCE.read_text(encoding="utf-8")) if REFERENCE.is_file() else {"traces": {}}
NAMES = list(EXPECTED["traces"])
PARTS = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
LAYOUT = "get_dispatch_layout"
"""The kernel that the reference takes for communication, and wallscope for local work of a dispatcher: it
counts tokens by rank, and moves none."""


@cache
def capture(name):
    return read_any_capture(TRACES / name, lambda _: None)


@cache
def classified(name):
    found = capture(name)
    kinds = classify_kernels(found.names, load_kernel_rules(None))
    return classify_operations(found.operations, found.copies, kinds)


def answer(name):
    return analyze_once(TRACES / name)


def budget(name, window, *, as_reference=False):
    """The device budget of a window; as the reference divides kernels, or as wallscope does."""
    operations = classified(name)
    if as_reference:
        texts = operations.select("name").join(
            capture(name).names, on="name", how="left", maintain_order="left"
        )
        is_layout = texts["text"].str.contains(LAYOUT).fill_null(value=False)
        operations = operations.with_columns(
            pl.when(is_layout)
            .then(pl.lit("communication", operations.schema["class"]))
            .otherwise("class")
            .alias("class")
        )
    windows = pl.DataFrame([(0, 0, window["start_ns"], window["end_ns"])], schema=WINDOWS, orient="row")
    return measure_budgets(operations, windows).row(0, named=True)


def parts(window):
    return {part: window[part] for part in PARTS}


def windows_of(name):
    one = EXPECTED["traces"][name]
    return [one["whole"], *one.get("host_span", ()), *one.get("issued", ())]


@pytest.mark.parametrize("name", NAMES)
def test_the_budget_of_every_window_is_the_reference(name):
    for window in windows_of(name):
        assert parts(budget(name, window, as_reference=True)) == parts(window)


@pytest.mark.parametrize("name", NAMES)
def test_only_one_kernel_is_classified_otherwise_than_the_reference(name):
    pattern = re.compile(EXPECTED["communication_regex"])
    kernels = classified(name).filter(pl.col("kind") == "kernel").join(capture(name).names, on="name")
    differing = {
        text
        for text, kind in kernels.select("text", "class").iter_rows()
        if (kind == "communication") != (pattern.search(text) is not None)
    }

    assert all(LAYOUT in text for text in differing)
    assert bool(differing) == (name == "ds_train.json.gz")


@pytest.mark.parametrize("name", NAMES)
def test_every_event_is_read(name):
    found, expected = capture(name), EXPECTED["traces"][name]
    counts = expected["counts"]
    kinds = dict(found.operations["kind"].value_counts().iter_rows())
    domains = dict(found.ranges["domain"].value_counts().iter_rows())
    own = found.ranks.filter(pl.col("rank").is_not_null())

    assert kinds.get("kernel", 0) == counts.get("kernel", 0)
    assert kinds.get("copy", 0) == counts.get("gpu_memcpy", 0)
    assert kinds.get("fill", 0) == counts.get("gpu_memset", 0)
    assert len(found.calls) == counts.get("cuda_runtime", 0) + counts.get("cuda_driver", 0)
    assert domains.get(0, 0) == counts.get("user_annotation", 0)
    assert domains.get(1, 0) == counts.get("cpu_op", 0)
    assert int((found.operations["call"] < 0).sum()) == expected["operations_without_call"]
    assert (
        int((found.operations["start_ns"] == found.operations["end_ns"]).sum())
        == (expected["zero_length_operations"])
    )
    assert own["rank"].to_list() == [expected["rank"]]
    assert found.ranks["device"].to_list() == expected["device"]
    assert found.world_size == expected["world_size"]
    assert found.export.profiler is Profiler.TORCH
    assert found.export.hostname is None


@pytest.mark.parametrize("name", NAMES)
def test_the_session_begins_with_the_first_event(name):
    expected = EXPECTED["traces"][name]

    assert capture(name).export.session_start_utc_ns == (
        expected["base_ns"] + (expected["baseTimeNanoseconds"] or 0)
    )


@pytest.mark.parametrize("name", NAMES)
def test_streams_and_bytes_are_those_of_the_file(name):
    found, expected = capture(name), EXPECTED["traces"][name]
    numbered = found.operations.join(found.streams.select("stream", "number"), on="stream")
    streams = {str(number): count for number, count in numbered["number"].value_counts().iter_rows()}
    moved = dict(found.operations.group_by("kind").agg(pl.col("bytes").sum()).iter_rows())

    assert streams == expected["streams"]
    assert moved.get("copy", 0) == expected["bytes"].get("gpu_memcpy", 0)
    assert moved.get("fill", 0) == expected["bytes"].get("gpu_memset", 0)


@pytest.mark.parametrize(
    "name", [name for name in NAMES if len(EXPECTED["traces"][name].get("issued", ())) > 1]
)
def test_the_steps_are_those_of_the_profiler(name):
    """A step begins with its mark, when earlier work has ended, but not after its first compute kernel."""
    steps = read_trace(TRACES / name, Options(), lambda _: None).steps.windows
    operations, calls = capture(name).operations, capture(name).calls["start_ns"].to_list()
    issued = [
        (calls[call] if call >= 0 else start_ns, end_ns)
        for call, start_ns, end_ns in operations["call", "start_ns", "end_ns"].iter_rows()
    ]
    marks = {one["step"]: one["start_ns"] for one in EXPECTED["traces"][name]["host_span"]}
    expected = []
    for one in EXPECTED["traces"][name]["issued"]:
        mark_ns = marks[one["step"]]
        ended_ns = max((end_ns for issue_ns, end_ns in issued if issue_ns < mark_ns), default=mark_ns)
        expected.append(min(one["start_ns"], max(mark_ns, ended_ns)))

    assert steps["start_ns"].to_list() == expected


@pytest.mark.parametrize("name", [name for name in NAMES if "collectives" in EXPECTED["traces"][name]])
def test_collectives_have_the_bytes_of_their_arguments(name):
    found = capture(name)
    told = match_nccl_calls(classified(name), found)
    expected = EXPECTED["traces"][name]["collectives"]
    sent = sum(one["in_bytes"] for one in expected)

    assert len(told) == sum(one["kernels"] for one in expected)
    assert told["bytes"].sum() == sent
    assert set(told["participants"]) == {one["group_size"] for one in expected}
    assert told["communicator"].n_unique() == len({one["process_group"] for one in expected})
    assert told["bus_bytes"].null_count() == 0


@pytest.mark.parametrize("name", [name for name in NAMES if "event_edges" in EXPECTED["traces"][name]])
def test_waits_mean_the_records_that_the_trace_names(name):
    found = capture(name)
    waits = found.syncs.join(found.calls.select(pl.col("call").cast(pl.Int32), "correlation"), on="call")
    by_correlation = {row["correlation"]: row for row in waits.iter_rows(named=True)}

    for edge in EXPECTED["traces"][name]["event_edges"]:
        wait = by_correlation[edge["correlation"]]
        assert wait["stream"] == (None if edge["stream"] < 0 else edge["stream"])
        assert wait["event_sync"] == (None if edge["record_correlation"] < 0 else edge["record_correlation"])
        if edge["record_correlation"] >= 0:
            record = found.events.filter(pl.col("event_sync") == edge["record_correlation"])
            assert record["stream"].to_list() == [edge["wait_on_stream"]]


@pytest.mark.parametrize("name", [name for name in NAMES if "event_edges" in EXPECTED["traces"][name]])
def test_operations_wait_for_what_was_issued_before_the_record(name):
    found = read_trace(TRACES / name, Options(), lambda _: None)
    calls, operations = found.capture.calls, found.capture.operations
    numbers = operations.join(calls.select(pl.col("call").cast(pl.Int32), "correlation"), on="call")
    op_of = dict(numbers.select("correlation", "op").iter_rows())
    edges = EXPECTED["traces"][name]["event_edges"]
    pairs = {
        (op_of[edge["first_operation_after_wait"]], op_of[edge["last_operation_before_record"]])
        for edge in edges
        if edge["first_operation_after_wait"] is not None and edge["last_operation_before_record"] is not None
    }
    position, producer = found.waits.pairs(operations["op"].to_numpy())

    assert pairs <= set(zip(position.tolist(), producer.tolist(), strict=True))


def test_deepseek_hides_nearly_all_of_its_communication():
    name = "ds_train.json.gz"
    told = EXPECTED["traces"][name]["whole_if_get_dispatch_layout_computes"]
    rank = answer(name).ranks[0]

    assert parts(budget(name, told)) == parts(told)
    assert rank.communication.union_ns == told["communication_ns"] == 113_030_000
    assert rank.communication.exposed_ns == told["exposed_communication_ns"] == 4_162_000
    assert answer(name).diagnosis.dominant_wall == "compute"
    verdict = answer(name).diagnosis.verdict
    assert "Compute hides 96.3 % of the 113.0 ms of communication in the step." in verdict
    assert "The remaining 4.2 ms is exposed, and 2.0 ms of it delays later work." in verdict


@pytest.mark.parametrize(
    ("name", "flops", "kernels"),
    [
        pytest.param("hta_test.json.gz", 156_046_983_168, 798, id="products of a V100"),
        pytest.param("hta_control.json.gz", 2_068_206_096_384, 2_394, id="of an A100, in batches too"),
        pytest.param("tracelens_b200_eager.json.gz", 235_838_453_760, 109, id="of a B200"),
    ],
)
def test_operators_have_the_flops_of_their_shapes(name, flops, kernels):
    found = capture(name).kernel_flops

    assert found.unique("operator")["flops"].sum() == flops
    assert len(found) == kernels


def test_numbers_of_operators_link_what_flows_link():
    tables = load_trace_tables(TRACES / "hta_nccl_data.json.gz", lambda _: None)
    numbered = capture("hta_nccl_data.json.gz").autograd_ranges
    tables.frames["operators"] = tables.frames["operators"].with_columns(sequence=None, forward_thread=None)
    flows = build_trace_capture(TRACES / "hta_nccl_data.json.gz", tables).autograd_ranges

    assert len(flows) == tables.counts["fwdbwd"] == 543
    links = ["range", "forward"]
    assert len(flows.join(numbered, on=links)) == len(flows)
    assert numbered["forward"].null_count() == 0
    assert not numbered["is_replay"].any()


def test_deepseek_recomputes_norms_and_projections_in_the_backward_pass():
    found = capture("ds_train.json.gz")
    again = found.autograd_ranges.filter("is_replay").join(found.ranges, on="range")
    names = again.join(found.range_names, on="name")["text"]

    assert {"DropoutAddLayerNormFn", "LinearWithGradAccumulationFP8"} <= set(names)


def test_blocks_per_multiprocessor_stand_in_for_a_gpu_that_is_not_described():
    name = "hta_sampled_rank0.json.gz"
    found = answer(name).ranks[0].compute_details.launch_shapes
    grids = capture(name).kernels.join(capture(name).kernel_occupancy, on="op")

    assert capture(name).export.gpus == ()
    assert (grids["blocks"] / grids["blocks_per_sm"]).round().unique().to_list() == [108]  # an A100
    assert found.small_grid_share is not None
    assert found.achieved_occupancy is not None


def test_only_a_trace_of_which_all_products_have_shapes_has_flops_of_a_step():
    details = {name: answer(name).ranks[0].compute_details for name in NAMES}
    known = {name for name, found in details.items() if found is not None and found.flops is not None}
    rates = {str(one.category): one.flops_per_s for one in answer("hta_control.json.gz").ranks[0].compute}

    assert known == {"hta_control.json.gz"}
    partial = {name: found.flops_share for name, found in details.items() if found is not None}
    assert {name for name, share in partial.items() if share is not None} == {
        *known,
        "hta_sampled_rank0.json.gz",
        "hta_sampled_rank1.json.gz",
        "hta_test.json.gz",
        "tracelens_b200_eager.json.gz",
    }
    assert rates["gemm"] is not None
    assert all(rate is None for category, rate in rates.items() if category != "gemm")


def test_what_the_profiler_does_not_record_is_said():
    codes = {name: {finding.code for finding in answer(name).capture.findings} for name in NAMES}

    assert all("torch-profiler" in found for found in codes.values())
    assert {name for name, found in codes.items() if "torch-stacks" in found} == {
        "tracelens_b200_eager.json.gz"
    }
    assert {name for name, found in codes.items() if "trace-filtered" in found} == {
        "hta_sampled_rank0.json.gz",
        "hta_sampled_rank1.json.gz",
    }
    assert {name for name, found in codes.items() if "microsecond-times" not in found} == {
        "hta_nccl_data.json.gz",
        "tracelens_b200_eager.json.gz",
    }


def test_two_rank_files_are_one_job():
    pair = find_exports([TRACES / f"hta_sampled_rank{rank}.json.gz" for rank in (0, 1)])
    found = run_job(pair, Options(), lambda _: None).analysis

    assert [rank.rank for rank in found.ranks] == [0, 1]
    assert len(found.inputs) == 2
    assert "export-left-out" not in {finding.code for finding in found.capture.findings}
