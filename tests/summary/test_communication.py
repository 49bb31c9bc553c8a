import sqlite3

import polars as pl
import pytest

from fixtures.export import ExportWriter
from fixtures.nccl import Nccl
from wallscope.attribution.totals import make_typical_work
from wallscope.model.rank_summaries import DispatcherWork
from wallscope.model.schemas import AXES, CLASSIFIED, COLLECTIVES, NAMES
from wallscope.nsys import read_capture
from wallscope.summary.communication import (
    CommunicationSummary,
    measure_overlap_tax,
    summarize_communication,
)
from wallscope.trace.collectives import match_nccl_calls
from wallscope.trace.kernel_classes import classify_kernels, classify_operations, load_shipped_kernel_rules
from wallscope.trace.parallel_axes import RangePaths, infer_axes
from wallscope.trace.ranges import nest_ranges, project_ranges

STEPS = pl.DataFrame(
    [(0, 1_000, 0, 1_000, 1_000), (1_000, 2_000, 1_000, 2_000, 2_000)],
    schema=["start_ns", "end_ns", "issue_start_ns", "issue_end_ns", "host_until_ns"],
    orient="row",
)
SEND_RECV = ("communication", "send-recv", "nccl")


def work(*rows, steps=STEPS):
    """Operations written as start, end, class, category, backend, and bytes if they are copies."""
    keys = ("start_ns", "end_ns", "class", "category", "backend", "bytes")
    filled = [
        {"op": op, "rank_id": 0, "name": op, "matched": True, **dict(zip(keys, row, strict=False))}
        for op, row in enumerate(rows)
    ]
    return make_typical_work(pl.DataFrame(filled, schema=CLASSIFIED), steps)


def traffic(axes_rows, collective_rows=()):
    """Axes written as op, operation, axis, evidence; calls as op, bytes, bytes on the bus."""
    known = [{"op": op, "bytes": size, "bus_bytes": bus} for op, size, bus in collective_rows]
    return CommunicationSummary(
        pl.DataFrame(axes_rows, schema=AXES, orient="row"),
        pl.DataFrame(known, schema=COLLECTIVES),
        NAMES.to_frame(),
    )


def listed(found):
    return [
        (one.operation, one.axis, one.count, one.work_ns, one.exposed_ns, one.bytes)
        for one in found.operations
    ]


def test_operations_are_listed_by_what_they_do_and_axis():
    own = work(
        (0, 100, *SEND_RECV),
        (200, 260, *SEND_RECV),
        (240, 300, "compute", "gemm", None),
        (1_000, 1_100, *SEND_RECV),
        (1_200, 1_260, *SEND_RECV),
    )
    known = traffic(
        [
            (0, "all-to-all", "ep", "range 'b'"),
            (1, "send-recv", "pp", "range 'p'"),
            (3, "all-to-all", "ep", "range 'a'"),
            (4, "send-recv", "pp", "range 'p'"),
        ],
        [(0, 800, 700), (3, 800, 700), (1, 60, 60)],
    )

    found = summarize_communication(own, 180, known)

    assert listed(found) == [
        ("all-to-all", "ep", 1, 100, 100, 800),
        ("send-recv", "pp", 1, 60, 50, None),
    ]
    assert [one.bus_bandwidth_bytes_per_s for one in found.operations] == [7e9, None]
    assert [one.evidence for one in found.operations] == [("range 'a'", "range 'b'"), ("range 'p'",)]


def test_without_what_the_host_asked_for_the_axis_and_the_bandwidth_are_unknown():
    found = summarize_communication(work((0, 100, *SEND_RECV)), 50)

    assert listed(found) == [("send-recv", "unknown", 0, 50, 50, None)]
    assert found.operations[0].bus_bandwidth_bytes_per_s is None
    assert (found.operations[0].evidence, found.overlap_tax, found.dispatcher) == ((), None, None)


def test_only_operations_that_begin_in_the_steps_count_for_the_bandwidth():
    own = work((0, 100, *SEND_RECV), (950, 1_050, *SEND_RECV), (1_990, 2_090, *SEND_RECV), steps=STEPS[1:])
    known = traffic(
        [(op, "all-to-all", "ep", "range 'a'") for op in range(3)], [(1, 5_000, 4_000), (2, 1_000, 900)]
    )

    (one,) = summarize_communication(own, 60, known).operations

    assert (one.count, one.bytes, one.bus_bandwidth_bytes_per_s) == (1, 1_000, 9e9)


def test_a_copy_between_devices_counts_its_own_bytes():
    own = work((0, 100, "communication", "send-recv", "peer-copy", 400))

    (one,) = summarize_communication(own, 50, traffic([(0, "send-recv", "tp", "range 't'")])).operations

    assert (one.axis, one.bytes, one.bus_bandwidth_bytes_per_s) == ("tp", 200, 4e9)


def test_no_communication_is_listed_as_none():
    found = summarize_communication(work((0, 100, "compute", "gemm", None)), 0)

    assert (found.union_ns, found.hidden_share, found.operations) == (0, None, ())


def real(path):
    """Communication of each rank of an export, its whole time taken as one step."""
    capture = read_capture(path, lambda _: None)
    tree, paths, names = nest_ranges(capture.ranges, capture.range_names, capture.calls, capture.threads)
    operations = classify_operations(
        capture.operations, capture.copies, classify_kernels(capture.names, load_shipped_kernel_rules())
    )
    around = RangePaths(project_ranges(operations, capture.calls, tree, capture.threads), tree, paths, names)
    asked = match_nccl_calls(operations, capture)
    known = CommunicationSummary(infer_axes(operations, capture, asked, around, {}), asked, capture.names)
    bounds = operations.select(start_ns=pl.col("start_ns").min(), end_ns=pl.col("end_ns").max())
    whole = bounds.with_columns(issue_start_ns="start_ns", issue_end_ns="end_ns", host_until_ns="end_ns")
    of_ranks = (
        make_typical_work(own, whole) for own in operations.partition_by("rank_id", maintain_order=True)
    )
    return [
        summarize_communication(own, 0, known, measure_overlap_tax(own, capture.kernels)) for own in of_ranks
    ]


def test_payloads_give_an_exchange_its_bandwidth(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        nccl = Nccl(writer)
        nccl.member(0xE0, 3, 8)
        nccl.mark("ncclGroupStart", 100, 101)
        for peer in range(8):
            nccl.message("ncclSend", 110 + 20 * peer, 112 + 20 * peer, 0xE0, 1_000, peer)
            nccl.message("ncclRecv", 120 + 20 * peer, 122 + 20 * peer, 0xE0, 900, peer)
        nccl.mark("ncclGroupEnd", 300, 400)
        number = writer.call("cuLaunchKernelEx", 350, 360)
        writer.kernel("ncclDevKernel_SendRecv(x)", 1_000, 1_100, stream=20, correlation=number)
        writer.kernel("_permute_kernel", 2_000, 2_050)

    (found,) = real(tmp_path / "run.sqlite")
    (one,) = found.operations
    assert (one.operation, one.axis, one.bytes) == ("all-to-all", "ep", 8_000)
    assert one.bus_bandwidth_bytes_per_s == pytest.approx(7_000 / 100e-9)
    assert found.dispatcher == DispatcherWork(
        pack_ns=50, synchronise_ns=0, transport_ns=100, unpack_ns=0, routing_ns=0
    )


def test_real_copies_between_devices_have_the_bandwidth_of_a_plain_query(traces):
    path = traces / "mpi_v100_4rank.sqlite"
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    expected = connection.execute(
        """SELECT COUNT(*), SUM(bytes), SUM(bytes) * 1e9 / SUM("end" - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY
        WHERE copyKind = 10 OR (copyKind = 8 AND srcDeviceId <> dstDeviceId)
        GROUP BY globalPid, deviceId ORDER BY globalPid, deviceId"""
    ).fetchall()
    connection.close()

    found = [one for of_rank in real(path) for one in of_rank.operations]
    assert [(one.count, one.bytes) for one in found] == [row[:2] for row in expected] == [(9, 14_400)] * 3
    assert [one.bus_bandwidth_bytes_per_s for one in found] == [pytest.approx(row[2]) for row in expected]


def test_real_calls_without_payloads_tell_no_bytes(traces):
    found = real(traces / "nsysai_mfu_before.sqlite")

    assert [[(one.operation, one.axis, one.bytes) for one in of_rank.operations] for of_rank in found] == [
        [("all-to-all", "cp", None), ("send-recv", "unknown", None)]
    ] * 2
    assert [(of_rank.overlap_tax, of_rank.dispatcher) for of_rank in found] == [(None, None)] * 2
