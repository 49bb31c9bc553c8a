import sqlite3
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from fixtures.export import ExportWriter, global_pid
from wallscope.attribution.prepared import measure_rank_work
from wallscope.model.capture import Options
from wallscope.model.diagnosis import MemoryPressure
from wallscope.model.rank_summaries import Memory, MemoryUse, Offload
from wallscope.model.schemas import COPY_CAUSES, PASSES, RECOMPUTE
from wallscope.nsys import read_capture
from wallscope.preparation import read_trace
from wallscope.summary.memory import (
    count_allocator_retries,
    find_offload,
    judge_memory_pressure,
    measure_memory_use,
    measure_recomputed_share,
    summarize_memory,
)
from wallscope.trace.copies import classify_copies

GIB = 1 << 30
PLAIN = Memory(peak_bytes=None, capacity_bytes=100 * GIB, allocator_calls=None, copies=())


def held(headroom_gib: int, *, from_the_start: bool = True) -> Memory:
    use = MemoryUse(headroom_gib * GIB, None, from_the_start)
    return replace(PLAIN, peak_bytes=(100 - headroom_gib) * GIB, use=use)


@pytest.mark.parametrize(
    ("of_memory", "recomputed", "retries", "level", "count"),
    [
        pytest.param(PLAIN, None, None, "unknown", 0, id="nothing known"),
        pytest.param(PLAIN, (0.0, False), 0, "unknown", 0, id="no evidence is not none"),
        pytest.param(held(4), None, None, "high", 1, id="4 % left"),
        pytest.param(held(5), None, None, "near", 1, id="5 % left"),
        pytest.param(held(14), None, None, "near", 1, id="14 % left"),
        pytest.param(held(15), None, None, "none", 1, id="15 % left"),
        pytest.param(held(60, from_the_start=False), None, None, "unknown", 1, id="much left, seen in part"),
        pytest.param(held(4, from_the_start=False), None, None, "high", 1, id="little left, seen in part"),
        pytest.param(held(-3), None, None, "high", 1, id="more than there is"),
        pytest.param(PLAIN, (0.2, False), None, "near", 1, id="recompute"),
        pytest.param(PLAIN, (0.009, False), None, "unknown", 0, id="hardly any recompute"),
        pytest.param(held(20), (0.2, False), None, "near", 2, id="recompute with some room"),
        pytest.param(held(40), (0.2, False), None, "none", 2, id="recompute with ample room"),
        pytest.param(held(40), None, 1, "high", 2, id="a retry"),
        pytest.param(replace(PLAIN, offload=Offload(2, GIB, 2, GIB, 9)), None, None, "near", 1, id="offload"),
        pytest.param(
            replace(PLAIN, offload=Offload(2, 8, 2, 8, 9)), None, None, "unknown", 0, id="little offload"
        ),
    ],
)
def test_levels_of_memory_pressure(of_memory, recomputed, retries, level, count):
    found = judge_memory_pressure(of_memory, recomputed, retries)

    assert (found.level, len(found.evidence)) == (level, count)


def test_evidence_says_what_was_measured():
    of_memory = replace(held(12), offload=Offload(2, GIB, 2, GIB, 9))

    assert judge_memory_pressure(of_memory, (0.25, True), 3) == MemoryPressure(
        "high",
        (
            "peak use 88.0 GiB of 100.0 GiB: 12.0 % left",
            "3 allocator retries (cudaFree, then cudaMalloc) in steady steps",
            "recompute takes at least 25.0 % of compute work",
            "offload copies 1.0 GiB to the host and 1.0 GiB back per step",
        ),
    )


M, F, S, X = "cudaMalloc", "cudaFree", "cudaDeviceSynchronize", "cudaLaunchKernel"


def write(path: Path, *calls: str, thread: int = 1000) -> Path:
    """Five steps of a kernel each, issued every 1,000 ns; the calls stand in the third of them."""
    with ExportWriter(path) as writer:
        writer.gpu()
        for step in range(6):
            at_ns = 1_000 * step
            writer.range("step", at_ns, at_ns + 900)
            number = writer.call(X, at_ns + 10, at_ns + 15)
            writer.kernel("nvjet_tst_1", at_ns + 20, at_ns + 500, correlation=number)
        for row, name in enumerate(calls):
            at_ns = 2_100 + 10 * row
            writer.call(name, at_ns, at_ns + 4, thread=thread)
            if name == M:
                writer.call("cuMemAlloc_v2", at_ns + 1, at_ns + 3, thread=thread)
    return path


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param([M, S, F, F, F, M], 1, id="released and tried again"),
        pytest.param([M, F, F, M, F, F, M], 2, id="twice"),
        pytest.param([M, F, M], 0, id="one release is no burst"),
        pytest.param([F, F, M], 0, id="no failed allocation before"),
        pytest.param([M, F, F], 0, id="no allocation after"),
        pytest.param([M, M, X, F, F, M, M], 0, id="a program that allocates each step"),
        pytest.param([M, F, F, X, M], 0, id="work between"),
        pytest.param(
            ["cuMemCreate", "cuMemUnmap", "cuMemRelease", "cuMemCreate"], 1, id="expandable segments"
        ),
        pytest.param(["cudaHostAlloc", "cudaFreeHost", "cudaFreeHost", "cudaHostAlloc"], 0, id="host memory"),
        pytest.param([], 0, id="no allocations"),
    ],
)
def test_retries_of_the_allocator_in_steady_steps(calls, expected, tmp_path):
    parts = read_trace(write(tmp_path / "run.sqlite", *calls), Options(step_range="step"), lambda _: None)

    assert parts.windows["steady"].any()
    assert count_allocator_retries(parts.windows, parts.capture, 0) == expected


def test_without_calls_retries_are_unknown(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.kernel("nvjet_tst_1", 0, 10)
    parts = read_trace(tmp_path / "run.sqlite", Options(), lambda _: None)

    assert count_allocator_retries(parts.windows, parts.capture, 0) is None


def allocations(writer: ExportWriter, *events: tuple[int, int]) -> None:
    """Allocations of (time in ns, bytes); releases have bytes below 0."""
    for at_ns, change in events:
        writer.row(
            "CUDA_GPU_MEMORY_USAGE_EVENTS",
            start=at_ns,
            globalPid=global_pid(1000),
            deviceId=0,
            contextId=1,
            address=at_ns,
            pc=0,
            bytes=abs(change),
            memKind=2,
            memoryOperationType=0 if change > 0 else 1,
        )


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([(5, 1_000)], (85_520_808_984, 0, True), id="allocated once, before the first kernel"),
        pytest.param([(500, 1_000)], (85_520_808_984, 0, False), id="after it"),
        pytest.param(
            [(5, 100), (1_500, 10), (2_500, 10), (3_500, 10), (4_500, 10)],
            (85_520_809_844, 10, True),
            id="ten more each step",
        ),
        pytest.param([(5, 100), (1_500, 50), (1_600, -50)], (85_520_809_834, 0, True), id="up and down"),
        pytest.param([(4_500, 100)], (85_520_809_884, None, False), id="unknown at the first step"),
    ],
)
def test_use_of_memory_over_the_steps(events, expected, tmp_path):
    path = write(tmp_path / "run.sqlite")
    with ExportWriter(path) as writer:
        writer.gpu()
        for step in range(6):
            at_ns = 1_000 * step
            writer.range("step", at_ns, at_ns + 900)
            number = writer.call(X, at_ns + 10, at_ns + 15)
            writer.kernel("nvjet_tst_1", at_ns + 20, at_ns + 500, correlation=number)
        allocations(writer, *events)
    parts = read_trace(path, Options(step_range="step"), lambda _: None)
    rank = parts.capture.ranks.row(0, named=True)

    found = measure_memory_use(parts.capture, rank, parts.windows, 85_520_809_984)

    assert found == MemoryUse(*expected)


def test_without_recorded_allocations_use_is_unknown(tmp_path):
    parts = read_trace(write(tmp_path / "run.sqlite"), Options(), lambda _: None)

    assert (
        measure_memory_use(parts.capture, parts.capture.ranks.row(0, named=True), parts.windows, None) is None
    )


def test_time_in_allocation_calls_is_that_of_threads_that_issue_work(tmp_path):
    """Four calls of 4 ns in one of the steady steps; driver calls inside count once."""
    issuing = read_trace(write(tmp_path / "a.sqlite", M, M, F, F), Options(step_range="step"), lambda _: None)
    another = read_trace(
        write(tmp_path / "b.sqlite", M, M, F, F, thread=1001), Options(step_range="step"), lambda _: None
    )
    steps = issuing.windows["steady"].sum()

    found = [
        summarize_memory(
            measure_rank_work(parts, 0), parts.capture, parts.capture.ranks.row(0, named=True), None
        ).allocator_ns
        for parts in (issuing, another)
    ]
    assert found == [round(16 / steps), 0]


def test_bandwidth_and_offload_of_copies(tmp_path):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path) as writer:
        writer.kernel("nvjet_tst_1", 0, 100)
        writer.copy("device-to-host", 100, 1_100, 1 << 20)
        writer.copy("host-to-device", 2_000, 3_000, 1 << 20)
        writer.copy("host-to-device", 3_000, 4_000, 1 << 19, host_memory="pageable")
        writer.copy("host-to-device", 4_000, 9_000, 8)
        writer.fill(9_000, 9_010, 1 << 20)
    parts = read_trace(path, Options(), lambda _: None)
    work, capture = measure_rank_work(parts, 0), parts.capture
    causes = classify_copies(capture.operations, capture.copies, PASSES.to_frame())

    found = summarize_memory(work, capture, capture.ranks.row(0, named=True), None)

    assert {(entry.direction, entry.pinned): entry.bulk_bandwidth_bytes_per_s for entry in found.copies} == {
        ("device-to-host", True): 1_048_576e6,
        ("host-to-device", True): 1_048_576e6,
        ("host-to-device", False): 524_288e6,
        ("fill", None): None,
    }
    assert find_offload(work, causes) == Offload(1, 1 << 20, 1, 1 << 20, 2_000)
    assert find_offload(work, COPY_CAUSES.to_frame()) == Offload(0, 0, 0, 0, 0)


def test_share_of_recomputed_work(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        for row in range(4):
            writer.kernel("nvjet_tst_1", 10 * row, 10 * row + 10)
    parts = read_trace(tmp_path / "run.sqlite", Options(), lambda _: None)
    work = measure_rank_work(parts, 0)

    def again(*rows: tuple[int, str]) -> pl.DataFrame:
        return pl.DataFrame(list(rows), schema=RECOMPUTE, orient="row")

    assert measure_recomputed_share(work, again((0, "explicit"))) == (0.25, False)
    assert measure_recomputed_share(work, again((0, "lower-bound"), (1, "lower-bound"))) == (0.5, True)
    assert measure_recomputed_share(work, again()) == (0.0, False)


LINK = """
SELECT 1e9 * SUM(copied.bytes) / SUM(copied.end - copied.start) AS rate_bytes_per_s
FROM CUPTI_ACTIVITY_KIND_MEMCPY AS copied
WHERE copied.copyKind = 1 AND copied.srcKind = 1 AND copied.bytes >= 65536 AND copied.deviceId = 0
"""


def test_bandwidth_of_a_real_stream_of_layers_is_that_of_sql(traces):
    """28 GB/s over the host link of an H100, from pinned memory."""
    path = traces / "nsysai_h100_2gpu_1s.sqlite"
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    (expected,) = connection.execute(LINK).fetchone()
    connection.close()
    parts = read_trace(path, Options(), lambda _: None)
    rank = parts.capture.ranks.filter(pl.col("device") == 0).row(0, named=True)

    found = summarize_memory(measure_rank_work(parts, rank["rank_id"]), parts.capture, rank, None)

    assert found.copies[0].bulk_bandwidth_bytes_per_s == pytest.approx(expected)
    assert found.copies[0].pinned is True


def test_a_real_program_that_frees_and_allocates_does_not_retry(traces):
    path = traces / "llmc_t4_nokernel.sqlite"
    parts = read_trace(path, Options(), lambda _: None)
    everything = parts.windows.with_columns(
        steady=pl.lit(True),
        issue_start_ns=pl.lit(0),
        issue_end_ns=pl.lit(2**60),
    )

    assert read_capture(path, lambda _: None).calls.filter(pl.col("role") == "alloc").height == 106
    assert count_allocator_retries(everything, parts.capture, 0) == 0
