"""What NCCL traced on the device belongs to the operation that it begins and ends with, and to no other."""

import json

import pytest

from fixtures.export import ExportWriter, global_pid
from tests.answered_once import analyze_once

PID = 1000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"
SEND = "ncclDevKernel_SendRecv(x)"


def traced(writer, name, start_ns, end_ns, sequence=1, **more):
    told = {"commHash": "0x2a", "commRank": 0, "nRanks": 4, "count": 8, "dataType": "ncclFloat32", **more}
    if sequence is not None:
        told["seqNumber"] = sequence
    row = {"domainId": 1, "globalTid": global_pid(PID) + PID, "eventType": 60, "text": name}
    writer.row("NVTX_EVENTS", **row, start=start_ns, end=end_ns, jsonText=json.dumps(told))


def bytes_of(path, *rows, kernels=((ALL_REDUCE, 10_000, 20_000),), launch_ns=(500, 600)):
    """The bytes of the communication of an export with these rows; each kernel has a launch."""
    with ExportWriter(path) as writer:
        writer.row(
            "NVTX_EVENTS", start=0, eventType=75, text="NCCL", domainId=1, globalTid=global_pid(PID) + PID
        )
        for name, start_ns, end_ns in kernels:
            number = writer.call("cudaLaunchKernel_v7000", *launch_ns)
            writer.kernel(name, start_ns, end_ns, correlation=number, stream=20)
        writer.kernel("gemm", 1_000, 30_000)
        for name, start_ns, end_ns, more in rows:
            traced(writer, name, start_ns, end_ns, **more)
    (rank,) = analyze_once(path).ranks
    return {str(one.operation): one.bytes for one in rank.communication.operations}


def test_a_row_that_begins_and_ends_with_the_operation_tells_its_bytes(tmp_path):
    assert bytes_of(tmp_path / "run.sqlite", ("AllReduce", 10_100, 19_500, {})) == {"all-reduce": 32}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (("AllGather", 10_100, 19_500, {}), "another function"),
        (("AllReduce", 13_000, 20_000, {}), "begins too late"),
        (("AllReduce", 10_000, 23_000, {}), "ends too late"),
        (("AllReduce", 10_000, 20_000, {"dataType": "ncclUnknown"}), "unknown type"),
    ],
)
def test_other_rows_do_not(row, why, tmp_path):
    assert bytes_of(tmp_path / "run.sqlite", row) == {"all-reduce": None}, why


def test_each_operation_has_the_nearest_row(tmp_path):
    kernels = [(ALL_REDUCE, 2_000, 4_000), (ALL_REDUCE, 5_000, 7_000)]
    rows = [("AllReduce", 2_100, 3_900, {}), ("AllReduce", 5_100, 6_900, {"count": 16, "sequence": 2})]

    assert bytes_of(tmp_path / "run.sqlite", *rows, kernels=kernels) == {"all-reduce": 96}


def test_messages_pair_with_none(tmp_path):
    rows = [("Send", 10_000, 20_000, {}), ("Recv", 10_000, 20_000, {"sequence": 2})]

    assert bytes_of(tmp_path / "run.sqlite", *rows, kernels=[(SEND, 10_000, 20_000)]) == {"send-recv": None}


def test_a_call_stays_the_source_where_there_is_one(tmp_path):
    rows = [
        ("AllReduce", 400, 700, {"sequence": None, "count": 2}),
        ("AllReduce", 10_000, 20_000, {"count": 50}),
    ]

    assert bytes_of(tmp_path / "run.sqlite", *rows) == {"all-reduce": 8}


def test_a_traced_row_is_no_call_of_what_is_launched_meanwhile(tmp_path):
    kernels = [(ALL_REDUCE, 2_000, 9_000), (ALL_REDUCE, 10_000, 11_000)]
    launch_ns = (3_000, 3_100)

    found = bytes_of(
        tmp_path / "run.sqlite", ("AllReduce", 2_000, 9_000, {}), kernels=kernels, launch_ns=launch_ns
    )
    assert found == {"all-reduce": None}  # the second is launched inside the row, and its bytes are unknown
