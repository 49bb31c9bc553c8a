"""Findings at their thresholds; what each looks like is in fixtures/scenarios."""

import pytest

from fixtures.export import ExportWriter
from wallscope.nsys import read_capture

ALWAYS = {"gpu-unknown", "loss-unknown", "no-nvtx"}
LAUNCH = "cudaLaunchKernel_v7000"


@pytest.fixture
def found(tmp_path):
    """The findings of an export that a function wrote, by code, but for those of a short one."""

    def run(write, **options):
        path = tmp_path / "run.sqlite"
        with ExportWriter(path, **options) as writer:
            write(writer)
        findings = read_capture(path, lambda _: None).findings
        return {finding.code: finding for finding in findings if finding.code not in ALWAYS}

    return run


def back_to_back(writer, count, *, without_call=(), without_kernel=(), pid=1000):
    """Kernels of 10 ns, one after the other, each launched 1 µs before it starts."""
    for number in range(count):
        start_ns, correlation = 10_000 + 10 * number, number + 1
        if number not in without_kernel:
            writer.kernel("gemm", start_ns, start_ns + 10, pid=pid, correlation=correlation)
        if number not in without_call:
            writer.call(LAUNCH, start_ns - 1_000, start_ns - 995, pid=pid, correlation=correlation)


@pytest.mark.parametrize(
    ("without_call", "codes"),
    [
        pytest.param((), set(), id="none"),
        pytest.param((0,), {"capture-range"}, id="one of 200 was queued before the capture"),
        pytest.param((0, 1), {"capture-range", "orphan-operations"}, id="two of 200 were queued"),
        pytest.param((100,), {"orphan-operations"}, id="one of 200 inside"),
        pytest.param((199,), {"orphan-operations"}, id="the last"),
    ],
)
def test_operations_without_a_call(found, without_call, codes):
    assert set(found(lambda writer: back_to_back(writer, 200, without_call=without_call))) == codes


def test_the_message_tells_what_was_queued_from_what_is_not_known(found):
    finding = found(lambda writer: back_to_back(writer, 200, without_call=(0, 1, 100)))["orphan-operations"]

    assert finding.covers_ns == 30
    assert finding.message == (
        "3 of 200 device operations (30 ns in total) have no API call in the export, and therefore no NVTX"
        " range; 2 of these were issued before the capture began."
    )


def test_a_stream_of_unknown_calls_alone_was_queued_if_it_ran_before_the_first_call(found):
    def write(writer, start_ns):
        back_to_back(writer, 200)
        writer.kernel("ncclDevKernel", start_ns, start_ns + 1, stream=20, correlation=999)

    assert set(found(lambda writer: write(writer, 8_000))) == {"capture-range"}
    assert set(found(lambda writer: write(writer, 11_000))) == {"orphan-operations"}


@pytest.mark.parametrize(
    ("without_kernel", "codes"),
    [
        pytest.param((100,), set(), id="one of 200 is not much"),
        pytest.param((100, 101), {"launches-without-work"}, id="two of 200"),
        pytest.param(tuple(range(150, 200)), set(), id="the last fifty had not run"),
        pytest.param((0, 1, 198, 199), {"launches-without-work"}, id="the first, and the last"),
    ],
)
def test_launches_without_work(found, without_kernel, codes):
    assert set(found(lambda writer: back_to_back(writer, 200, without_kernel=without_kernel))) == codes


def test_correlation_ids_are_looked_up_inside_their_process(found):
    def write(writer):
        back_to_back(writer, 10, pid=101)
        back_to_back(writer, 10, pid=102, without_kernel=(4,))

    assert found(write)["launches-without-work"].message.startswith("1 of 20 kernel launches ")


def test_a_wrapper_that_shares_the_correlation_id_of_its_launch_is_no_launch_of_its_own(found):
    def write(writer):
        back_to_back(writer, 10)
        for number in range(10):
            writer.call("cudaLaunchKernel", 8_999 + 10 * number, 9_006 + 10 * number, correlation=number + 1)

    assert found(write) == {}


def test_launches_of_any_thread_go_into_a_graph_while_one_is_captured(found):
    def write(writer):
        back_to_back(writer, 10)
        writer.call("cudaStreamBeginCapture_v10000", 9_001, 9_002)
        for number in range(5):
            writer.call(LAUNCH, 9_010 + number, 9_011 + number, thread=1001)
        writer.call("cudaStreamEndCapture_v10000", 9_020, 9_021)

    assert found(write) == {}


def test_negative_times_are_told_on_the_clock_of_the_session(found):
    def write(writer, start_ns):
        back_to_back(writer, 10)
        writer.row("ANALYSIS_DETAILS", duration=99_000)
        writer.row("NVTX_EVENTS", start=start_ns + writer.time_shift_ns, eventType=75, text="TensorRT")

    assert set(found(lambda writer: write(writer, -1), time_shift_ns=50_000)) == {"capture-range"}
    assert set(found(lambda writer: write(writer, 0), time_shift_ns=50_000)) == set()


@pytest.mark.parametrize(
    ("held_ns", "severities"),
    [
        pytest.param(19, [], id="below 1 %"),
        pytest.param(20, ["info"], id="1 %"),
        pytest.param(99, ["info"], id="below 5 %"),
        pytest.param(100, ["warning"], id="5 %"),
    ],
)
def test_the_profiler_on_a_launching_thread(found, held_ns, severities):
    def write(writer):
        back_to_back(writer, 200)
        for _ in range(2):  # rows that overlap count once
            writer.row(
                "PROFILER_OVERHEAD",
                start=10_500 + writer.time_shift_ns,
                end=10_500 + held_ns + writer.time_shift_ns,
                globalTid=(1 << 48) + (1000 << 24) + 1000,
            )

    findings = found(write, time_shift_ns=7_000_000)

    assert [str(finding.severity) for finding in findings.values()] == severities
    assert [finding.covers_ns for finding in findings.values()] == [held_ns] * len(severities)


def test_an_export_of_kernels_alone_has_no_calls_and_no_more_to_say_about_them(found):
    findings = found(lambda writer: back_to_back(writer, 3, without_call=(0, 1, 2)))

    assert list(findings) == ["no-api-calls"]
    assert "3 device operations" in findings["no-api-calls"].message


@pytest.mark.parametrize(
    ("domain", "code"),
    [
        pytest.param("training", "ranges-lost", id="the program's own"),
        pytest.param("MPI", None, id="the profiler's, for MPI"),
        pytest.param("cuBLAS", None, id="cuBLAS"),
        pytest.param("customers", "ranges-lost", id="one that starts like a library of CUDA"),
    ],
)
def test_domains_of_libraries_are_no_ranges_of_the_program(found, domain, code):
    def write(writer):
        back_to_back(writer, 10)
        writer.row("NVTX_EVENTS", start=5, eventType=75, text=domain)

    assert set(found(write)) == ({code} if code else set())


def test_marks_show_that_nothing_was_lost(found):
    def write(writer):
        back_to_back(writer, 10)
        writer.row("NVTX_EVENTS", start=5, eventType=75, text="training")
        writer.row("NVTX_EVENTS", start=6, eventType=34, text="here")

    assert found(write) == {}


def test_payloads_may_be_json(found):
    def write(writer):
        back_to_back(writer, 10)
        writer.row("NVTX_PAYLOAD_SCHEMAS", domainId=1, schemaId=16_777_221)
        writer.row("NVTX_EVENTS", start=5, end=6, eventType=59, text="AllReduce", jsonText="{}")

    assert found(write) == {}


def test_ranges_that_end_together_are_not_cut_off_where_the_end_of_the_capture_is_unknown(found):
    def write(writer, duration_ns=None):
        back_to_back(writer, 10)
        writer.range("step", 0, 12_000)
        writer.range("backward", 5_000, 12_000)
        if duration_ns is not None:
            writer.row("ANALYSIS_DETAILS", duration=duration_ns)

    assert set(found(write)) == set()
    assert set(found(lambda writer: write(writer, 12_000))) == {"clipped-ranges"}


OLD_DRIVER = "Installed CUDA driver version (13.1) is not supported by this build of Nsight Systems."
WSL2 = "5.15.146.1-microsoft-standard-WSL2"


def say(writer, messages=(), release="5.15.0-generic", hostname="gpu-node"):
    for text in messages:
        writer.row("DIAGNOSTIC_EVENT", timestamp=1, timestampType=0, source=1, severity=2, text=text)
    for name, value in (("SoftwareReleaseVersion", release), ("Hostname", hostname)):
        writer.row("TARGET_INFO_SYSTEM_ENV", name=name, nameEnum=0, value=value)


@pytest.mark.parametrize(
    ("said", "reasons", "cure"),
    [
        ({"release": WSL2}, "the system is WSL2", "On WSL2 update the Windows driver and nsys"),
        ({"release": "4.4.0"}, "the system is the sandbox gVisor", "Run nsys in a container without"),
        ({"hostname": "0a1b2c3d4e5f"}, "the program ran in a container", "--cap-add=SYS_ADMIN"),
        ({"messages": [OLD_DRIVER]}, f'nsys reports "{OLD_DRIVER}"', "Use an nsys release that supports"),
    ],
    ids=["WSL2", "gVisor", "container", "old driver"],
)
def test_what_may_explain_missing_rows_is_said_where_rows_are_missing(found, said, reasons, cure):
    def write(writer, **missing):
        back_to_back(writer, 200, **missing)
        say(writer, **said)

    finding = found(lambda writer: write(writer, without_call=(100,)))["profiler-messages"]

    assert reasons in finding.message
    assert cure in finding.cure
    assert "profiler-messages" not in found(write)
