"""What a trace becomes: frames of a capture, one line for what is none, and limits that say what lacks."""

import json
import re
from functools import cache

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures.export import ExportWriter
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.torch_writing import write_torch_run
from fixtures.torch_trace import BASE_NS, H100, TraceWriter
from tests.conftest import slow
from wallscope.compare.compare import CompareOptions, Side, compare_sides
from wallscope.errors import InputError, NothingToAnalyzeError
from wallscope.jobs.inputs import find_exports, is_many
from wallscope.kineto.any_capture import read_any_contents
from wallscope.kineto.load_trace import read_trace_capture
from wallscope.model.capture import Options
from wallscope.model.finding_codes import FindingCode
from wallscope.pipeline import analyze, analyze_capture, build_report
from wallscope.profile.codec import unpack_profile

GEMM = "nvjet_tst_128x128"
RUN = run(random_program(2))


def trace(**keys):
    keys = {"deviceProperties": [{"id": 0, **H100}], "baseTimeNanoseconds": BASE_NS, **keys}
    return TraceWriter(**keys)


@cache
def written_run(folder):
    """The bytes of a trace of several steps."""
    return write_torch_run(RUN, folder / "whole.json").read_bytes()


def load(writer, tmp_path, name="trace.json"):
    return read_trace_capture(writer.write(tmp_path / name), lambda _: None)


def with_kernel(writer=None):
    writer = writer or trace()
    writer.call("cudaLaunchKernel", 1_000, 2_001, 5)
    writer.kernel(GEMM, 3_000, 9_007, 5)
    return writer


def test_a_kernel_is_an_operation_with_its_call(tmp_path):
    found = load(with_kernel(), tmp_path)

    assert found.operations.select("start_ns", "end_ns", "kind", "call", "stream").rows() == [
        (2_000, 8_007, "kernel", 0, 0)
    ]
    assert found.kernels.select("blocks", "threads", "registers").rows() == [(132, 256, 96)]
    assert found.export.session_start_utc_ns == BASE_NS + 1_000
    assert found.export.gpus[0].sm_count == 132
    assert found.ranks.select("rank", "pid", "device", "gpu").rows() == [(None, 4_242, 0, 0)]


def test_what_was_recorded_is_read_from_members_and_events(tmp_path):
    members = {"record_shapes": 1, "with_stack": 1, "cuda_driver_version": 13_000, "cupti_version": 28}
    plain = load(with_kernel(), tmp_path).conditions
    found = load(with_kernel(trace(**members)), tmp_path).conditions
    odd = load(with_kernel(trace(record_shapes="1", cuda_driver_version="x", cupti_version=True)), tmp_path)

    assert {name for name, value in plain.options if value == "on"} == set()
    assert {name for name, value in found.options if value == "on"} == {"input shapes", "Python stacks"}
    assert (found.cuda_version, found.profiler_version) == ("13.0", "CUPTI 28")
    assert odd.conditions == plain


@pytest.mark.parametrize(
    ("name", "direction", "source", "destination"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "host-to-device", "pageable", "device"),
        ("Memcpy DtoH (Device -> Pinned)", "device-to-host", "device", "pinned"),
        ("Memcpy DtoD (Device -> Device Static)", "device-to-device", "device", "device-static"),
        ("Memcpy PtoP (Device -> Device)", "peer", "device", "device"),
        ("Memcpy HtoA (Managed -> Array)", "host-to-device", "managed", "array"),
        ("Memcpy <unknown> (Unknown -> Unknown)", "unknown", "unknown", "unknown"),
    ],
)
def test_the_name_of_a_copy_tells_direction_and_memory(name, direction, source, destination, tmp_path):
    writer = with_kernel()
    writer.on_device("gpu_memcpy", name, 10_000, 12_000, 9, bytes=64)
    found = load(writer, tmp_path)

    assert found.copies.select("direction", "source", "destination").rows() == [
        (direction, source, destination)
    ]
    assert found.operations["bytes"].to_list() == [None, 64]


def test_a_copy_between_devices_has_the_context_of_its_device(tmp_path):
    writer = with_kernel()
    args = {"stream": 7, "correlation": 9, "bytes": 64, "fromDevice": 0, "inDevice": 0, "toDevice": 1}
    writer.span("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 10_000, 12_000, pid=0, tid=7, args=args)
    found = load(writer, tmp_path)

    assert found.operations["stream"].n_unique() == 1
    assert found.ranks["device"].to_list() == [0]


def test_ranks_of_processes_in_one_file_are_kept_apart(tmp_path):
    writer = trace()
    for number, pid in enumerate((100, 200)):
        writer.pid = pid
        writer.call("cudaLaunchKernel", 1_000, 2_000, 5 + number)
        writer.on_device("kernel", GEMM, 3_000, 9_000, 5 + number, device=number)
    found = load(writer, tmp_path)

    assert found.ranks.select("pid", "device").rows() == [(100, 0), (200, 1)]
    assert found.operations["call"].to_list() == [0, 1]


def test_an_end_that_rounding_made_late_stays_inside_its_range(tmp_path):
    writer = with_kernel()
    writer.span("user_annotation", "outer", 0, 50_000)
    writer.span("cpu_op", "aten::mm", 10_000, 51_000)
    found = load(writer, tmp_path)

    assert found.ranges.select("start_ns", "end_ns", "domain").rows() == [(0, 50_000, 0), (10_000, 51_000, 1)]

    coarse = TraceWriter()
    coarse.call("cudaLaunchKernel", 1_000, 2_000, 5)
    coarse.kernel(GEMM, 3_000, 9_000, 5)
    coarse.span("user_annotation", "outer", 0, 50_000)
    coarse.span("cpu_op", "aten::mm", 10_000, 51_000)
    found = load(coarse, tmp_path)

    assert found.ranges["end_ns"].to_list() == [50_000, 50_000]
    assert "microsecond-times" in {finding.code for finding in found.findings}


def test_a_record_behind_its_wait_is_not_believed(tmp_path):
    writer = with_kernel()
    for correlation, at_ns in ((20, 10_000), (22, 40_000)):
        writer.call("cudaEventRecord", at_ns, at_ns + 1_000, correlation)
    for correlation, record in ((21, 20), (23, 22), (24, -1)):
        at_ns = 20_000 + correlation
        writer.call("cudaStreamWaitEvent", at_ns, at_ns + 500, correlation)
        writer.on_device(
            "cuda_sync", "Stream Wait Event", at_ns, at_ns + 400, correlation, stream=9,
            cuda_sync_kind="Stream Wait Event", wait_on_stream=7, wait_on_cuda_event_id=3,
            wait_on_cuda_event_record_corr_id=record,
        )  # fmt: skip
    found = load(writer, tmp_path)

    assert found.syncs.select("kind", "stream", "event_sync").rows() == [
        ("wait", 9, 20),
        ("wait", 9, None),
        ("wait", 9, None),
    ]
    assert found.events.select("stream", "event", "event_sync").rows() == [(7, 3, 20), (7, 3, 22)]


def test_allocations_are_the_memory_that_the_allocator_reserved(tmp_path):
    writer = with_kernel(trace(profile_memory=1))
    row = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 4_242, "tid": 1, "s": "t"}
    for at, kind, size in ((4, 1, 1 << 30), (5, 0, 7), (6, 1, 2 << 30)):
        args = {"Total Reserved": size, "Total Allocated": 5, "Device Type": kind, "Device Id": 0}
        writer.event(json.dumps({**row, "ts": at, "args": args}))
    found = load(writer, tmp_path)

    assert found.memory.select("at_ns", "bytes_used").rows() == [(3_000, 1 << 30), (5_000, 2 << 30)]


@pytest.mark.parametrize(
    ("collective", "sent", "received", "size", "counted", "function"),
    [
        ("_allgather_base", 100, 800, 8, 200, "allgather"),
        ("_reduce_scatter_base", 800, 100, 8, 200, "reducescatter"),
        ("allreduce_coalesced", 100, 100, 8, 200, "allreduce"),
        ("all_to_allv", 800, 640, 8, 200, "alltoall"),
        ("broadcast", 100, 100, 8, 200, "broadcast"),
    ],
)
def test_bytes_are_counted_as_nccl_does(collective, sent, received, size, counted, function, tmp_path):  # noqa: PLR0913, PLR0917  # a row of the table
    writer = trace(distributedInfo={"rank": 1, "world_size": 8})
    writer.call("cudaLaunchKernelExC", 1_000, 2_000, 5)
    writer.kernel(
        "ncclDevKernel_X(ncclDevKernelArgsStorage<4096ul>)", 3_000, 9_000, 5,
        **{
            "Collective name": collective, "dtype": "BFloat16", "Group size": size, "In msg nelems": sent,
            "Out msg nelems": received, "Process Group Name": "3", "Process Group Ranks": "[0, 1, 2, 3]",
        },
    )  # fmt: skip
    found = load(writer, tmp_path)

    assert found.collective_calls.select("operation", "bytes", "participants", "rank").rows() == [
        (function, counted, size, 1)
    ]


def test_groups_that_are_cut_short_are_those_of_the_job(tmp_path):
    ranks = list(range(40))

    def written(rank, listed):
        config = [{"pg_name": "3", "ranks": ranks}]
        writer = trace(distributedInfo={"rank": rank, "world_size": 64, "pg_config": config})
        writer.call("cudaLaunchKernelExC", 1_000, 2_000, 5)
        args = {"Collective name": "allreduce", "Process Group Name": "3", "Process Group Ranks": listed}
        writer.kernel("ncclDevKernel_AllReduce", 3_000, 9_000, 5, **args)
        return load(writer, tmp_path).collective_calls

    cut, whole = written(1, "[0, 1, 2, ...]"), written(39, str(ranks))

    assert cut["communicator"].to_list() == whole["communicator"].to_list()
    assert (cut["rank"].to_list(), whole["rank"].to_list()) == ([1], [39])


REFUSED = {
    "a list": (b'[{"ph": "X", "name": "a"}]', "is a list of events"),
    "other JSON": (b'{"distributedInfo": {}, "a": 1}', "is JSON without traceEvents"),
    "cut off in its head": (b'{"schemaVersion": 1, "dev', "is JSON without traceEvents"),
    "no events": (b'{"traceEvents": []}', "has no kernel, copy or fill (no event)"),
    "the CPU alone": (
        b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "ts": 1, "dur": 1}]}',
        "has no kernel, copy or fill (1 event of cpu_op)",
    ),
    "kernels lost": (
        b'{"traceEvents": [{"ph": "X", "cat": "cuda_runtime", "name": "cuLaunchKernel", "ts": 1, "dur": 1}]}',
        "has 1 kernel launch but no kernel (1 event of cuda_runtime): records of the GPU were lost",
    ),
    "another device": (
        b'{"traceEvents": [{"ph": "X", "cat": "xpu_runtime", "name": "a", "ts": 1, "dur": 1}]}',
        "is a trace of an Intel XPU",
    ),
    "replayed kernels": (
        b'{"traceEvents": [{"ph": "X", "cat": "cuda_profiler_range", "name": "a", "ts": 1, "dur": 1}]}',
        "kernels were replayed for counters",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_one_line_and_exit_code_2(case, tmp_path, wallscope):
    content, said = REFUSED[case]
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    ran = wallscope("analyze", str(path))

    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert ran.out == ""


OLD_CATEGORIES = {
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
    "cuda_runtime": "Runtime",
    "cpu_op": "Operator",
    "user_annotation": "Operator",
    "ac2g": "async",
}


@pytest.mark.parametrize("is_list", [True, *slow(False)], ids=["a bare list", "of members"])
def test_categories_of_pytorch_before_1_13_give_the_same_answer(is_list, tmp_path):
    whole = json.loads(written_run(tmp_path))
    events = [
        event | {"cat": OLD_CATEGORIES.get(event.get("cat"), event.get("cat"))}
        for event in whole["traceEvents"]
        if event.get("cat") not in {"cuda_sync", "fwdbwd"}  # PyTorch wrote none at that time
    ]
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    kept = [event for event in whole["traceEvents"] if event.get("cat") not in {"cuda_sync", "fwdbwd"}]
    old.write_text(json.dumps(events if is_list else whole | {"traceEvents": events}))
    new.write_text(json.dumps(whole | {"traceEvents": kept}))
    walls = [
        [step.walls for step in analyze(path, Options(), lambda _: None).ranks[0].steps]
        for path in (old, new)
    ]

    assert walls[0] == walls[1]
    assert len(walls[0]) > 2


def test_the_same_run_with_calls_of_hip_gives_the_same_walls(tmp_path):
    text = written_run(tmp_path).decode()
    renamed = re.sub(r'"name": ?"(?:cuda|cu)(?=[A-Z])', '"name": "hip', text)
    hip = tmp_path / "hip.json"
    hip.write_text(renamed)
    cuda, amd = (
        [step.walls for step in analyze(path, Options(), lambda _: None).ranks[0].steps]
        for path in (tmp_path / "whole.json", hip)
    )

    assert renamed.count('"hipLaunchKernel') > 100
    assert cuda == amd


def test_a_trace_that_is_cut_off_is_answered_and_says_so(tmp_path):
    content = write_torch_run(RUN, tmp_path / "whole.json").read_bytes()
    path = tmp_path / "cut.json"
    path.write_bytes(content[: len(content) * 2 // 3])
    found = analyze(path, Options(), lambda _: None)
    (cut,) = (finding for finding in found.capture.findings if finding.code == "trace-cut-off")

    assert cut.severity == "error"
    assert "it ends inside an event" in cut.message
    assert found.diagnosis.confidence.level == "low"
    assert "the trace is incomplete, so idle time may be missing work" in found.diagnosis.confidence.reasons
    assert {fix.speedup_ceiling for fix in found.fixes or ()} <= {None}
    assert {entry.recoverable_ns for entry in found.ranks[0].causes} == {None}
    assert (found.opportunities, found.replay.refused) == ((), "the capture is incomplete")


@settings(
    max_examples=2 * settings.default.max_examples // 3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_damaged_bytes_give_an_answer_or_one_line(data, tmp_path):
    content = bytearray(written_run(tmp_path))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) // 2))
        kind = data.draw(st.sampled_from(["flip", "cut", "insert", "drop"]))
        match kind:
            case "flip":
                content[at : at + 1] = bytes([data.draw(st.integers(0, 255))])
            case "cut":
                del content[2 * at + 2 :]
            case "insert":
                content[at:at] = data.draw(
                    st.sampled_from([b"nan", b'"', b"}", b"\\", b",", b"[[[", b"1e999"])
                )
            case "drop":
                del content[at : at + data.draw(st.integers(1, 400))]
    path = tmp_path / "damaged.json"
    path.write_bytes(bytes(content))
    try:
        found = read_trace_capture(path, lambda _: None)
    except InputError as error:
        said = str(error)
    else:
        said = ""
        assert (found.operations["end_ns"] >= found.operations["start_ns"]).all()
        assert found.operations["call"].max() < len(found.calls)
    assert "\n" not in said


WRONG = st.sampled_from([None, True, -1, 2**70, 1e300, "x", "7", [], {}, [1, 2, 3], "[1, 2"])


@settings(
    max_examples=2 * settings.default.max_examples // 3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    members=st.dictionaries(st.sampled_from(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]), WRONG),
    args=st.dictionaries(
        st.sampled_from(
            [
                *("device", "context", "stream", "correlation", "bytes", "grid", "block"),
                *("registers per thread", "Collective name", "dtype", "Group size", "In msg nelems"),
                "Process Group Ranks",
                *("est. achieved occupancy %", "blocks per SM", "warps per SM", "graph node id"),
                *("Sequence number", "Fwd thread id", "Input Dims", "Input type", "Concrete Inputs"),
            ]
        ),
        WRONG,
    ),
    keys=st.dictionaries(
        st.sampled_from(["distributedInfo", "deviceProperties", "baseTimeNanoseconds", "schemaVersion"]),
        WRONG,
    ),
)
def test_values_of_any_type_give_an_answer_or_one_line(members, args, keys, tmp_path):
    writer = with_kernel(TraceWriter(**keys))
    strange = {"ph": "X", "cat": "kernel", "name": GEMM, "pid": 0, "tid": 7, "ts": 20, "dur": 5, "args": args}
    writer.event(json.dumps({**strange, **members}))
    writer.event(json.dumps({**strange, "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)"}))
    writer.event(json.dumps({**strange, "cat": "cuda_runtime", "name": "cudaLaunchKernel", **members}))
    for name in ("aten::mm", "_Linear", "_LinearBackward"):
        writer.event(json.dumps({**strange, "cat": "cpu_op", "name": name, **members}))
    for code in "sf":
        writer.event(
            json.dumps({**strange, "cat": "fwdbwd", "ph": code, "id": members.get("pid"), **members})
        )
    found = load(writer, tmp_path)

    assert len(found.operations) >= 2
    assert found.operations.select(pl.col("rank_id", "stream").null_count().sum()).row(0) == (0, 0)
    analyze(tmp_path / "trace.json", Options(), lambda _: None)


def test_rank_files_of_a_folder_are_one_job(tmp_path):
    for rank in range(len(RUN.ranks)):
        write_torch_run(RUN, tmp_path / f"rank-{rank}.json.gz", rank)
    (tmp_path / "config.json").write_text("{}")

    assert is_many([tmp_path])
    assert [path.name for path in find_exports([tmp_path])] == [
        f"rank-{rank}.json.gz" for rank in range(len(RUN.ranks))
    ]


def test_exports_come_before_traces_in_a_folder(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.kernel(GEMM, 0, 1_000)
    with_kernel().write(tmp_path / "trace.json")

    assert [path.name for path in find_exports([tmp_path])] == ["run.sqlite"]


def test_one_trace_is_no_job_and_an_answer_is_one(tmp_path):
    path = with_kernel().write(tmp_path / "trace.json")
    answer = tmp_path / "answer.json"
    answer.write_text('{"schema": "wallscope.analysis/1"}')

    assert not is_many([path])
    assert is_many([answer])


def test_sides_of_different_profilers_are_compared_with_a_warning(tmp_path):
    from fixtures.simulation.writing import write_run

    write_run(RUN, tmp_path / "run.sqlite", ranks=[0])
    trace_file = write_torch_run(RUN, tmp_path / "run.json.gz", 0)
    sides = []
    for path in (tmp_path / "run.sqlite", trace_file):
        (rank,) = analyze(path, Options(), lambda _: None).ranks
        sides.append(Side(path.name, ((unpack_profile(rank.profile, path.name),),)))
    found = compare_sides(*sides, CompareOptions())
    (apart,) = (entry for entry in found.mismatches if entry.what == "profiler")

    assert apart.base == "Nsight Systems"
    assert "at its own cost" in apart.head
    assert found.comparable


def test_contents_are_events_by_category(tmp_path):
    found = read_any_contents(with_kernel().write(tmp_path / "trace.json"), lambda _: None)

    assert {entry.table: entry.row_count for entry in found.tables if entry.row_count} == {
        "kernel": 1,
        "cuda_runtime": 1,
    }
    assert found.duration_ns == 8_007
    assert found.processes == 1


def test_work_that_begins_before_its_call_is_kept_and_said(tmp_path):
    writer = with_kernel()
    writer.call("cudaLaunchKernel", 20_000, 21_000, 6)
    writer.kernel(GEMM, 19_000, 19_500, 6)
    found = load(writer, tmp_path)
    (said,) = (finding.message for finding in found.findings if finding.code == "work-before-calls")

    assert len(found.operations) == 2
    assert said.startswith("1 device operation of 2 began before")


def test_functions_of_python_are_ranges_on_request(tmp_path):
    writer = with_kernel()
    writer.span("user_annotation", "train", 0, 50_000)
    writer.span("python_function", "train.py(7): step", 500, 40_000, args={"Python id": 1})
    path = writer.write(tmp_path / "trace.json")
    plain, asked = (
        read_trace_capture(path, lambda _: None, with_python=wanted).ranges for wanted in (False, True)
    )

    assert plain["domain"].to_list() == [0]
    assert asked.select("start_ns", "domain").rows() == [(0, 0), (500, 2)]


def test_an_empty_trace_is_no_capture(tmp_path):
    with pytest.raises(NothingToAnalyzeError, match="ProfilerActivity"):
        load(trace(), tmp_path)


def test_neither_page_nor_fixes_of_a_trace_speak_of_flags_of_nsys(tmp_path):
    from wallscope.views.page_analysis import write_analysis_page

    found = analyze_capture(write_torch_run(RUN, tmp_path / "run.json.gz"), Options(), lambda _: None)
    page = write_analysis_page(build_report(found, lambda _: None))
    fixes = found.analysis.fixes or ()

    assert fixes
    settings_of_fixes = [setting for fix in fixes for setting in fix.settings]
    assert not any("nsys" in (one.system, one.key.split(" ")[0]) for one in settings_of_fixes)
    assert "sqlite3" not in page
    assert "PyTorch profiler" in page


@pytest.mark.parametrize("marks", [0, 1])
def test_a_single_mark_is_a_step_of_its_own_length(marks, tmp_path):
    writer = with_kernel()
    for number in range(marks):
        writer.span("user_annotation", f"ProfilerStep#{number}", 0, 50_000)
    found = analyze(writer.write(tmp_path / "trace.json"), Options(), lambda _: None)
    (step,) = found.ranks[0].steps

    assert (found.anchor.kind, found.anchor.name) == (("whole-trace", None), ("nvtx", "ProfilerStep#"))[marks]
    assert step.steady is bool(marks)
    assert not marks or step.end_ns - step.start_ns == 50_000
    assert any(finding.code == "no-steps" for finding in found.capture.findings) is not bool(marks)


@pytest.mark.parametrize("other_call", ["cudaFree", None])
def test_a_device_that_idles_in_a_filtered_trace_is_not_called_shared(other_call, tmp_path):
    writer = trace()
    for number in range(40):
        at_ns = 1_000_000 * number
        for place, (stream, start_ns) in enumerate(((9, 10_000), (7, 20_000), (7, 700_000))):
            issued_ns, correlation = at_ns + 2_000 * place, 3 * number + place + 1
            writer.call("cudaLaunchKernel", issued_ns, issued_ns + 1_000, correlation)
            writer.kernel(GEMM, at_ns + start_ns, at_ns + start_ns + 100_000, correlation, stream=stream)
    if other_call is not None:
        writer.call(other_call, 50_000_000, 50_001_000, 999)
    found = analyze(writer.write(tmp_path / "trace.json"), Options(), lambda _: None)
    causes = {entry.cause for entry in found.ranks[0].causes}

    assert ("unattributed/held-while-idle" in causes) is (other_call is not None)
    assert ("exclusive-gpu" in {fix.id for fix in found.fixes or ()}) is (other_call is not None)


@pytest.mark.parametrize(
    ("held_by", "expected"),
    [
        pytest.param(None, "held-while-idle", id="nothing in the program: another process"),
        pytest.param("cudaLaunchHostFunc", "unresolved", id="a function of the host"),
        pytest.param("cudaStreamAddCallback", "unresolved", id="the older call for it"),
        pytest.param("cuStreamWaitValue32", "unresolved", id="a value in memory"),
        pytest.param("hipLaunchHostFunc", "unresolved", id="a function of the host on an AMD GPU"),
        pytest.param("record_param_comms", "unresolved", id="collectives without a kernel"),
    ],
)
def test_an_idle_gpu_is_shared_only_if_nothing_of_the_program_explains_it(held_by, expected, tmp_path):
    writer = trace()
    writer.call("cudaFree", 500, 900, 9_999)
    for number in range(40):
        at_ns = 1_000_000 * number
        for place, (start_ns, end_ns) in enumerate(((10_000, 110_000), (700_000, 800_000))):
            issued_ns, correlation = at_ns + 2_000 * place, 2 * number + place + 1
            writer.call("cudaLaunchKernel", issued_ns + 1_000, issued_ns + 1_800, correlation)
            writer.kernel(GEMM, at_ns + start_ns, at_ns + end_ns, correlation)
        if held_by == "record_param_comms":
            writer.span("cpu_op", held_by, at_ns + 2_000, at_ns + 2_500)
        elif held_by is not None:
            writer.call(held_by, at_ns + 2_000, at_ns + 2_500, 1_000 + number)
    found = analyze(writer.write(tmp_path / "trace.json"), Options(), lambda _: None)
    shares = {
        one.cause.split("/")[1]: one.share for one in found.ranks[0].causes if one.wall == "unattributed"
    }
    told = [one for one in found.capture.findings if one.code == FindingCode.SILENT_WAITS]

    assert list(shares) == [expected]
    assert shares[expected] > 0.4
    assert ("shared with another process" in found.diagnosis.verdict) is (held_by is None)
    assert [held_by in one.message for one in told] == [True] * (held_by is not None)
