import polars as pl
import pytest

from fixtures.export import ExportWriter, global_pid
from wallscope.model.capture import Capture
from wallscope.nsys import read_capture


def capture(path) -> Capture:
    return read_capture(path, lambda _: None)


def texts(found: Capture) -> list[tuple[str, int, int, bool, bool]]:
    return (
        found.ranges.join(found.range_names, on="name", how="left", maintain_order="left")
        .select("text", "start_ns", "end_ns", "clipped", "crosses")
        .rows()
    )


@pytest.mark.parametrize("schema", ["3.0.0", "3.7.2", "3.25.0"])
def test_ranges_have_their_text_from_wherever_it_stands(schema, tmp_path):
    thread = global_pid(1000) + 1000
    with ExportWriter(tmp_path / "run.sqlite", schema) as writer:
        writer.kernel("nvjet", 1, 2)
        writer.row("ANALYSIS_DETAILS", duration=900)
        common = {"eventType": 59, "globalTid": thread}
        writer.row("NVTX_EVENTS", start=10, end=90, text="inline", **common)
        writer.row("NVTX_EVENTS", start=10, end=95, textId=writer.string("registered"), **common)
        writer.row("NVTX_EVENTS", start=20, end=30, **common)
        writer.row("NVTX_EVENTS", start=40, end=900, text="still open", **common)
        writer.row("NVTX_EVENTS", start=50, end=None, text="a mark", eventType=34, globalTid=thread)
        writer.row("NVTX_EVENTS", start=-5, end=None, text="a domain", eventType=75, globalTid=thread)
        writer.row("NVTX_EVENTS", start=60, end=70, text="", **common)
        writer.row(
            "NVTX_EVENTS",
            start=80,
            end=99,
            text="handed over",
            eventType=60,
            globalTid=thread,
            endGlobalTid=thread + 1,
        )

    assert texts(capture(tmp_path / "run.sqlite")) == [
        ("registered", 10, 95, False, False),
        ("inline", 10, 90, False, False),
        ("(unnamed)", 20, 30, False, False),
        ("still open", 40, 900, True, False),
        ("", 60, 70, False, False),
        ("handed over", 80, 99, False, True),
    ]


def test_without_a_known_end_of_capture_a_shared_last_end_marks_open_ranges(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.kernel("nvjet", 1, 2)
        for start_ns, end_ns in ((10, 500), (20, 500), (30, 40)):
            writer.range("r", start_ns, end_ns)

    assert [row[3] for row in texts(capture(tmp_path / "run.sqlite"))] == [True, True, False]


def test_calls_carry_names_without_versions_and_roles(tmp_path):
    names = {
        "cudaLaunchKernel_v7000": ("cudaLaunchKernel", "launch"),
        "cuLaunchKernelEx": ("cuLaunchKernelEx", "launch"),
        "cudaLaunchKernelExC_v11060_ptsz": ("cudaLaunchKernelExC", "launch"),
        "cudaGraphLaunch_v10000": ("cudaGraphLaunch", "graph"),
        "cudaStreamSynchronize_v3020": ("cudaStreamSynchronize", "sync"),
        "cuCtxSynchronize": ("cuCtxSynchronize", "sync"),
        "cudaMemcpyAsync_v3020": ("cudaMemcpyAsync", "copy"),
        "cuMemcpyHtoDAsync_v2": ("cuMemcpyHtoDAsync", "copy"),
        "cudaMalloc_v3020": ("cudaMalloc", "alloc"),
        "cuMemAlloc_v2": ("cuMemAlloc", "alloc"),
        "cudaFreeAsync_v11020": ("cudaFreeAsync", "alloc"),
        "cudaEventRecordWithFlags_v11010": ("cudaEventRecordWithFlags", "event"),
        "cudaStreamWaitEvent_v3020": ("cudaStreamWaitEvent", "event"),
        "cudaStreamGetCaptureInfo_v2_v11030": ("cudaStreamGetCaptureInfo", "other"),
    }
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.kernel("nvjet", 1, 2)
        for at, name in enumerate(names):
            writer.call(name, 10 * at, 10 * at + 5)
    found = capture(tmp_path / "run.sqlite")

    rows = found.calls.join(found.call_names, on="name", how="left", maintain_order="left").select(
        "text", "role"
    )
    assert rows.rows() == list(names.values())


def test_operations_find_their_call_in_their_own_process(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.call("cudaLaunchKernel_v7000", 5, 6, pid=102, correlation=7)
        writer.call("cudaLaunchKernel_v7000", 1, 2, pid=101, thread=555, correlation=7)
        writer.kernel("a", 10, 20, pid=101, correlation=7)
        writer.kernel("b", 30, 40, pid=102, correlation=7)
        writer.kernel("issued before the capture", 50, 60, pid=102, correlation=8)
    found = capture(tmp_path / "run.sqlite")

    issued = (
        found.operations.with_columns(pl.col("call").cast(pl.UInt32, strict=False))
        .join(
            found.calls.select("call", "thread", at="start_ns"), on="call", how="left", maintain_order="left"
        )
        .join(found.threads.select("thread", "pid", "tid"), on="thread", how="left", maintain_order="left")
    )
    assert issued.select("start_ns", "pid", "tid", "at").rows() == [
        (10, 101, 555, 1),
        (30, 102, 102, 5),
        (50, None, None, None),
    ]


def test_only_threads_of_known_libraries_are_called_by_name(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.kernel("nvjet", 1, 2)
        for thread, name in ((1000, "my_secret_job"), (1001, "pt_autograd_0"), (1002, "pt_nccl_watchdg")):
            writer.call("cudaLaunchKernel_v7000", 1, 2, thread=thread)
            writer.row(
                "ThreadNames", nameId=writer.string(name), globalTid=global_pid(1000) + thread, priority=0
            )

    found = capture(tmp_path / "run.sqlite").threads
    assert found.select("tid", "role").rows() == [
        (1000, None),
        (1001, "pt_autograd_0"),
        (1002, "pt_nccl_watchdg"),
    ]


def test_work_without_a_process_belongs_to_the_only_one_that_made_calls(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.call("cudaLaunchKernel_v7000", 1, 2, pid=101, correlation=7)
        writer.kernel("a", 10, 20, pid=101, correlation=7)
        writer.connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = NULL")
    found = capture(tmp_path / "run.sqlite")

    assert found.ranks["pid"].to_list() == [101]
    assert found.operations["call"].to_list() == [0]


@pytest.mark.parametrize(
    ("untied", "outside"),
    [
        pytest.param([("b load", 100, 190), ("a fetch", 110, 180)], "b load", id="elsewhere one is outside"),
        pytest.param([], "a fetch", id="nothing tells, so text does"),
    ],
)
def test_equal_ranges_nest_alike_in_each_step_whatever_the_order_of_rows(untied, outside, tmp_path):
    steps = [["a fetch", "b load"], ["b load", "a fetch"], ["a fetch", "b load"]]
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.kernel("nvjet", 1, 2)
        for text, start_ns, end_ns in untied:
            writer.range(text, start_ns, end_ns)
        for number, order in enumerate(steps):
            for text in order:
                writer.range(text, 1_000 * (number + 1), 1_000 * (number + 1) + 50)

    found = [text for text, start_ns, *_ in texts(capture(tmp_path / "run.sqlite")) if start_ns >= 1_000]
    inside = "a fetch" if outside == "b load" else "b load"
    assert found == [outside, inside] * 3
