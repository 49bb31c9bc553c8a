import sqlite3

import pytest

from fixtures.export import ExportWriter
from fixtures.nccl import Nccl
from wallscope.model.schemas import COLLECTIVES
from wallscope.nsys import read_capture
from wallscope.trace.collectives import match_nccl_calls
from wallscope.trace.kernel_classes import classify_kernels, classify_operations, load_shipped_kernel_rules

DATA, EXPERT = 0xD0, 0xE0  # communicators
KERNELS = {
    "all-reduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
    "all-gather": "ncclDevKernel_AllGather_RING_LL(x)",
    "reduce-scatter": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(x)",
    "send-recv": "ncclDevKernel_SendRecv(x)",
}
UNKNOWN = (None, None, None)


def launch(writer, at_ns, kind="send-recv", *, thread=None, **where):
    pid = where.get("pid", 1000)
    number = writer.call("cuLaunchKernelEx", at_ns, at_ns + 1, pid=pid, thread=thread)
    start_ns = 1_000_000 + at_ns
    writer.kernel(KERNELS[kind], start_ns, start_ns + 100, stream=20, correlation=number, **where)


def found(path):
    capture = read_capture(path, lambda _: None)
    operations = classify_operations(
        capture.operations, capture.copies, classify_kernels(capture.names, load_shipped_kernel_rules())
    )
    made = match_nccl_calls(operations, capture)
    assert made.schema == COLLECTIVES
    return made


def told(path):
    """What is told of each operation: all but its number, its source and the peer of its messages."""
    return found(path).drop("op", "source", "peer").rows()


def group(nccl, start_ns, *messages, communicator=EXPERT):
    """Sends and receives in a group; the end of it lasts from the start on for 900 to 1,000 ns."""
    nccl.mark("ncclGroupStart", start_ns, start_ns + 1)
    for number, (name, message_bytes, peer) in enumerate(messages):
        at_ns = start_ns + 10 * (number + 1)
        nccl.message(name, at_ns, at_ns + 5, communicator, message_bytes, peer)
    nccl.mark("ncclGroupEnd", start_ns + 900, start_ns + 1_000)


def exchange(peers, message_bytes=100):
    return [(name, message_bytes, peer) for peer in peers for name in ("ncclSend", "ncclRecv")]


@pytest.mark.parametrize(
    ("name", "kernel", "operation", "bus_bytes"),
    [
        pytest.param("ncclAllReduce", "all-reduce", "all-reduce", 1_750, id="both ways, seven eighths"),
        pytest.param("ncclAllGather", "all-gather", "all-gather", 7_000, id="the parts of seven others"),
        pytest.param("ncclReduceScatter", "reduce-scatter", "reduce-scatter", 7_000, id="as it gathers"),
        pytest.param("ncclBroadcast", "broadcast", "broadcast", 1_000, id="once"),
        pytest.param("ncclAlltoAll", "send-recv", "all-to-all", 7_000, id="a part for seven others"),
        pytest.param("ncclAllToAll", "send-recv", "all-to-all", 7_000, id="as RCCL spells it"),
        pytest.param("ncclGather", "send-recv", "send-recv", None, id="only the root receives"),
    ],
)
def test_bytes_of_a_collective_and_what_the_bus_carries(name, kernel, operation, bus_bytes, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        nccl = Nccl(writer)
        nccl.member(DATA, 3, 8)
        nccl.call(name, 100, 200, DATA, 1_000)
        launch(writer, 150, kernel)

    assert told(tmp_path / "run.sqlite") == [(operation, DATA, 8, None, 1_000, bus_bytes)]
    assert found(tmp_path / "run.sqlite")["source"].to_list() == ["payload"]


@pytest.mark.parametrize(
    ("messages", "rank", "expected"),
    [
        pytest.param(exchange(range(8)), 3, ("all-to-all", 7, 800, 700), id="to all of eight"),
        pytest.param(exchange(range(2)), 1, ("all-to-all", 1, 200, 100), id="to itself and one other"),
        pytest.param(
            [("ncclSend", 9, 0), ("ncclSend", 9, 1), ("ncclSend", 9, 6), ("ncclRecv", 5, 6)],
            3,
            ("all-to-all", 3, 27, 27),
            id="to three experts, from one",
        ),
        pytest.param(
            [("ncclSend", 500, 4), ("ncclRecv", 400, 2)], 3, ("send-recv", 2, 500, 500), id="two neighbours"
        ),
        pytest.param(exchange([2, 4], 300), 3, ("send-recv", 2, 600, 600), id="both ways in a pipeline"),
        pytest.param(exchange([4] * 6, 10), 3, ("send-recv", 1, 60, 60), id="six messages to one peer"),
        pytest.param(
            [("ncclSend", 10, peer) for peer in range(8)], 3, ("send-recv", 7, 80, 70), id="it only scatters"
        ),
        pytest.param(exchange([2, 4], 300), None, ("send-recv", 2, 600, None), id="maybe to itself"),
        pytest.param(exchange(range(8)), None, ("all-to-all", 8, 800, None), id="to eight, maybe to itself"),
        pytest.param([("ncclRecv", 400, 2)], None, ("send-recv", 1, 400, 400), id="from one"),
    ],
)
def test_a_group_of_messages_is_one_operation(messages, rank, expected, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        nccl = Nccl(writer)
        if rank is not None:
            nccl.member(EXPERT, rank, 8)
        group(nccl, 1_000, *messages)
        launch(writer, 1_950)

    operation, peers, message_bytes, bus_bytes = expected
    participants = None if rank is None else 8
    assert told(tmp_path / "run.sqlite") == [
        (operation, EXPERT, participants, peers, message_bytes, bus_bytes)
    ]


@pytest.mark.parametrize(
    ("count", "operation"),
    [pytest.param(2, "send-recv", id="two neighbours"), pytest.param(8, "all-to-all", id="eight messages")],
)
def test_names_alone_tell_an_exchange_by_the_number_of_messages(count, operation, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        nccl = Nccl(writer)
        nccl.mark("ncclGroupStart", 100, 101)
        for number in range(2 * count):
            nccl.mark(("ncclSend", "ncclRecv")[number % 2], 110 + 10 * number, 115 + 10 * number)
        nccl.mark("ncclGroupEnd", 900, 1_000)
        launch(writer, 950)

    assert told(tmp_path / "run.sqlite") == [(operation, None, None, None, *UNKNOWN[:2])]
    assert found(tmp_path / "run.sqlite")["source"].to_list() == ["name"]


def test_collectives_of_a_group_add_up(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        nccl = Nccl(writer)
        nccl.member(DATA, 0, 4)
        nccl.mark("ncclGroupStart", 100, 101)
        nccl.mark("ncclGroupStart", 102, 103)
        nccl.call("ncclReduceScatter", 110, 120, DATA, 1_000)
        nccl.mark("ncclGroupEnd", 125, 126)
        nccl.call("ncclReduceScatter", 130, 140, DATA, 500)
        nccl.mark("ncclGroupEnd", 150, 200)
        nccl.call("ncclReduceScatter", 210, 220, DATA, 7)
        launch(writer, 160, "reduce-scatter")
        launch(writer, 215, "reduce-scatter")

    assert told(tmp_path / "run.sqlite") == [
        ("reduce-scatter", DATA, 4, None, 1_500, 4_500),
        ("reduce-scatter", DATA, 4, None, 7, 21),
    ]


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        pytest.param(
            ["reduce-scatter", "all-gather"],
            [("reduce-scatter", DATA, 2, None, 1_000, 1_000), ("all-gather", EXPERT, 2, None, 300, 300)],
            id="each has its kernel",
        ),
        pytest.param(["all-gather"], [("other", None, 2, None, 1_300, 1_300)], id="one kernel serves both"),
        pytest.param(
            ["all-gather", "all-gather"],
            [("all-gather", EXPERT, 2, None, *UNKNOWN[:2])] * 2,
            id="whose bytes are whose is not told",
        ),
    ],
)
def test_a_group_of_several_communicators_is_split_by_what_kernels_do(kernels, expected, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        nccl = Nccl(writer)
        nccl.member(DATA, 0, 2)
        nccl.member(EXPERT, 1, 2)
        nccl.mark("ncclGroupStart", 100, 101)
        nccl.call("ncclReduceScatter", 110, 120, DATA, 1_000)
        nccl.call("ncclAllGather", 130, 140, EXPERT, 300)
        nccl.mark("ncclGroupEnd", 150, 200)
        for number, kernel in enumerate(kernels):
            launch(writer, 160 + 10 * number, kernel)

    assert told(tmp_path / "run.sqlite") == expected


def test_a_group_that_began_before_the_capture_ends_with_what_is_left_of_it(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        nccl = Nccl(writer)
        nccl.member(EXPERT, 0, 8)
        nccl.message("ncclSend", 110, 115, EXPERT, 40, 1)
        nccl.mark("ncclGroupEnd", 150, 200)
        group(nccl, 1_000, ("ncclSend", 500, 1))
        launch(writer, 160)
        launch(writer, 1_950)

    assert told(tmp_path / "run.sqlite") == [
        ("send-recv", EXPERT, 8, 1, 40, 40),
        ("send-recv", EXPERT, 8, 1, 500, 500),
    ]


def test_a_group_whose_end_is_lost_does_not_swallow_what_follows(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        nccl = Nccl(writer)
        nccl.member(DATA, 0, 2)
        nccl.mark("ncclGroupStart", 50, 51)
        nccl.call("ncclAllReduce", 100, 200, DATA, 10)
        group(nccl, 1_000, ("ncclSend", 500, 1), communicator=DATA)
        group(nccl, 3_000, ("ncclSend", 70, 1), communicator=DATA)
        launch(writer, 150, "all-reduce")
        launch(writer, 1_950)
        launch(writer, 3_950)

    assert [row[4] for row in told(tmp_path / "run.sqlite")] == [10, 500, 70]


@pytest.mark.parametrize(
    ("thread", "at_ns"),
    [
        pytest.param(1001, 150, id="another thread"),
        pytest.param(None, 250, id="after the call"),
        pytest.param(None, 99, id="before the call"),
        pytest.param(None, 305, id="in the begin of a group"),
    ],
)
def test_what_no_call_contains_is_told_nothing(thread, at_ns, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        nccl = Nccl(writer)
        nccl.call("ncclAllReduce", 100, 200, DATA, 1_000)
        nccl.mark("ncclGroupStart", 300, 310)
        launch(writer, at_ns, "all-reduce", thread=thread)

    assert told(tmp_path / "run.sqlite") == []


def test_a_call_that_is_made_of_others_speaks_for_them(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        nccl = Nccl(writer)
        nccl.member(EXPERT, 0, 2)
        nccl.call("ncclAllToAll", 100, 3_000, EXPERT, 50)
        group(nccl, 1_000, *exchange(range(2), 50))
        launch(writer, 1_950)

    assert told(tmp_path / "run.sqlite") == [("all-to-all", EXPERT, 2, None, 50, 50)]


def test_a_range_of_a_whole_group_contains_its_calls(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        nccl = Nccl(writer)
        nccl.member(EXPERT, 0, 8)
        nccl.mark("API Group", 100, 1_000)
        for peer in range(4):
            nccl.message("Send", 110 + 20 * peer, 115 + 20 * peer, EXPERT, 10, peer)
            nccl.message("Recv", 120 + 20 * peer, 125 + 20 * peer, EXPERT, 10, peer)
        nccl.mark("KernelLaunch", 880, 960)
        launch(writer, 900)

    assert told(tmp_path / "run.sqlite") == [("all-to-all", EXPERT, 8, 3, 40, 30)]


def test_ranks_of_one_communicator_are_told_apart_by_process_and_device(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        for pid, ranks in ((1000, (0, 1)), (2000, (2, 3))):
            nccl = Nccl(writer, pid=pid)
            for device, rank in enumerate(ranks):
                nccl.member(EXPERT, rank, 4, device=device)
                group(nccl, 1_000 * (2 * device + 1), *exchange([2, 3], 10))
                launch(writer, 1_000 * (2 * device + 1) + 950, pid=pid, device=device)

    assert [row[:1] + row[3:] for row in told(tmp_path / "run.sqlite")] == [
        ("send-recv", 2, 20, 20),
        ("send-recv", 2, 20, 20),
        ("all-to-all", 1, 20, 10),
        ("all-to-all", 1, 20, 10),
    ]


def test_a_replayed_graph_has_no_calls(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        Nccl(writer).call("ncclAllReduce", 100, 200, DATA, 1_000)
        writer.call("cudaGraphLaunch_v10000", 300, 310, correlation=9)
        for node in (1, 2):
            writer.kernel(KERNELS["all-reduce"], 100 * node, 100 * node + 50, correlation=9, graph_node=node)

    assert told(tmp_path / "run.sqlite") == []


@pytest.mark.parametrize("name", ["nsysai_mfu_before", "nsysai_mfu_after"])
def test_real_groups_are_found_as_a_plain_query_finds_them(name, traces):
    path = traces / f"{name}.sqlite"
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    ended = connection.execute(
        """SELECT kernel.start, COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel
        JOIN StringIds AS name ON name.id = kernel.shortName AND name.value GLOB 'nccl*'
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS call ON call.correlationId = kernel.correlationId
            AND call.globalTid >> 24 = kernel.globalPid >> 24
        JOIN NVTX_EVENTS AS range ON range.globalTid = call.globalTid AND range.domainId <> 0
            AND range.start <= call.start AND call.start < range."end"
        JOIN StringIds AS text ON text.id = range.textId AND text.value = 'ncclGroupEnd'
        GROUP BY kernel.start, kernel.globalPid ORDER BY 1"""
    ).fetchall()
    connection.close()
    capture = read_capture(path, lambda _: None)
    operations = classify_operations(
        capture.operations, capture.copies, classify_kernels(capture.names, load_shipped_kernel_rules())
    )
    made = match_nccl_calls(operations, capture).join(operations.select("op", "start_ns"), on="op")

    assert {count for _, count in ended} == {1}
    assert sorted(made["start_ns"].to_list()) == [start_ns for start_ns, _ in ended]
    assert set(made.drop("op", "start_ns", "peer").rows()) == {
        ("send-recv", None, None, None, None, None, "name")
    }
