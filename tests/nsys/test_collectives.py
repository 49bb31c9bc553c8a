import json
import sqlite3
import struct
from contextlib import contextmanager

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.export import ExportWriter, global_pid
from wallscope.model.schemas import COLLECTIVE_CALLS, COMMUNICATORS
from wallscope.nsys.collectives import read_collectives
from wallscope.nsys.identity import number_threads, process_of
from wallscope.nsys.sources import open_tables
from wallscope.nsys.tables import make_database

HOST = 200  # its global ids are negative
PID = 1000
NCCL, OTHERS = 1, 2  # numbers of domains
HASH = 0xF123_4567_89AB_CDEF
ENUM = 16_777_232
ALL_REDUCE, SEND, INIT, RAGGED = 16_777_221, 16_777_225, 16_777_216, 16_777_299
SCHEMAS = {
    ALL_REDUCE: [
        (18, "NCCL communicator ID", None),
        (22, "Message size [bytes]", 8),
        (ENUM, "Reduction operation", 16),
    ],
    SEND: [(18, "NCCL communicator ID", None), (22, "Message size [bytes]", 8), (5, "Peer rank", 16)],
    INIT: [
        (18, "NCCL communicator ID", None),
        (5, "No. of ranks", 8),
        (5, "Rank", 12),
        (5, "CUDA device", 16),
    ],
    RAGGED: [(5, "Rank", None), (5, "Peer rank", None), (22, "Message size [bytes]", 20), (19, "Root", 4)],
}
NOTHING = (None, None, None, None, None)


def quiet(_):
    pass


@contextmanager
def export(path):
    with open_tables(path) as tables:
        yield make_database(path, tables)


def tid(pid):
    return global_pid(pid, host=HOST) + pid


def names_of_ranges(source):
    there = source.has("NVTX_EVENTS", "text", "textId")
    rows = source.select("SELECT text, textId FROM NVTX_EVENTS") if there else []
    return pl.DataFrame(rows, schema={"text": pl.String, "textId": pl.Int64}, orient="row", strict=False)


def found(path, shift_ns=0, pids=(PID, PID + 1)):
    tids = pl.Series("globalTid", [tid(pid) for pid in pids], pl.Int64)
    processes = tids.to_frame().select(globalPid=process_of("globalTid")).sort("globalPid")
    with export(path) as source:
        numbered = number_threads(source, tids, processes.with_row_index("process"))
        made = read_collectives(source, names_of_ranges(source), numbered, shift_ns, quiet)
    assert (made.calls.schema, made.communicators.schema) == (COLLECTIVE_CALLS, COMMUNICATORS)
    return made


def facts(path):
    """Communicator, bytes, participants, peer, rank and source of each call."""
    return found(path).calls.select("communicator", "bytes", "participants", "peer", "rank", "source").rows()


def blob(schema, payload, *, domain=NCCL, payload_bytes=None):
    size = len(payload) if payload_bytes is None else payload_bytes
    return struct.pack("<IIIIQQ", domain, 0, schema, 0, size, 32 + size) + payload


def event(writer, **row):
    more = {"eventId": writer.correlation()} if writer.has("NVTX_EVENTS_PAYLOAD_SCHEMAS") else {}
    writer.row("NVTX_EVENTS", **{**more, **row})


def name_domain(writer, text="NCCL", domain=NCCL, pid=PID):
    event(writer, start=-5_000, eventType=75, text=text, domainId=domain, globalTid=tid(pid))


def call(writer, name, start_ns=100, *, pid=PID, **more):
    row = {"start": start_ns, "end": start_ns + 10, "eventType": 59, "domainId": NCCL, "globalTid": tid(pid)}
    event(writer, **{**row, "textId": writer.string(name), **more})


def describe(writer, schema, entries=None, *, payload_bytes=24):
    entries = SCHEMAS[schema] if entries is None else entries
    size = {"schemaId": schema, "type": 1, "numEntries": len(entries), "payloadSize": payload_bytes}
    writer.row("NVTX_PAYLOAD_SCHEMAS", domainId=NCCL, **size)
    for index, (kind, name, offset) in enumerate(entries):
        row = {"schemaId": schema, "idx": index, "type": kind, "name": name, "offset": offset}
        writer.row("NVTX_PAYLOAD_SCHEMA_ENTRIES", domainId=NCCL, **row)


def write(path, *calls, schema="3.25.0", schemas=(ALL_REDUCE, SEND, INIT), processes=2):
    with ExportWriter(path, schema) as writer:
        name_domain(writer)
        for _ in range(processes):
            for described in schemas:
                describe(writer, described)
        for number, (name, more) in enumerate(calls):
            call(writer, name, 100 * (number + 1), **more)
    return path


@pytest.mark.parametrize("schema", ["2.7.1", "3.0.0", "3.7.2", "3.28.1"])
def test_names_alone_tell_the_operation(schema, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", schema, time_shift_ns=0) as writer:
        call(writer, "ncclAllReduce", 300)
        name_domain(writer)
        call(writer, "API Group", 200)
        call(writer, "ncclGroupStart", 100, eventType=60)
        call(writer, "ncclBroadcast", 400, end=None)
        call(writer, "ncclBroken", 500, end=400)
        call(writer, "ncclMark", 500, eventType=34)
        call(writer, "ncclElsewhere", domainId=OTHERS)

    made = found(tmp_path / "run.sqlite", shift_ns=50)
    assert made.calls.drop("sequence").rows() == [
        (0, 50, 60, "GroupStart", *NOTHING, "name"),
        (0, 150, 160, "API Group", *NOTHING, "name"),
        (0, 250, 260, "AllReduce", *NOTHING, "name"),
        (0, 350, None, "Broadcast", *NOTHING, "name"),
    ]
    assert (len(made.communicators), made.unread_payloads) == (0, 0)


@pytest.mark.parametrize("schema", ["2.7.1", "3.25.0"])
def test_domains_are_numbered_anew_in_each_process(schema, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", schema) as writer:
        name_domain(writer, domain=3)
        name_domain(writer, "dataloader", domain=NCCL)
        name_domain(writer, domain=NCCL, pid=PID + 1)
        call(writer, "ncclSend", 100, domainId=3)
        call(writer, "ncclNot", 200, domainId=NCCL)
        call(writer, "ncclRecv", 300, pid=PID + 1)
        call(writer, "ncclNot", 400, pid=PID + 1, domainId=3)

    rows = found(tmp_path / "run.sqlite").calls.select("thread", "operation").rows()
    assert rows == [(0, "Send"), (1, "Recv")]


@pytest.mark.parametrize("schema", ["2.7.1", "3.25.0"])
def test_registered_names_tell_nccl_where_no_domain_is_named(schema, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", schema) as writer:
        call(writer, "ncclAllGather", 100)
        call(writer, "ncclmine", 200)
        call(writer, "AllGather", 300)
        call(writer, "x", 400, textId=None, text="ncclAllGather")
        call(writer, "ncclAllGather", 500, domainId=0)

    assert found(tmp_path / "run.sqlite").calls["start_ns"].to_list() == [100]


@pytest.mark.parametrize("schema", ["3.24.0", "3.25.0", "3.28.1"])
@pytest.mark.parametrize("spelled", [bytes, bytes.hex, lambda raw: "0x" + raw.hex().upper()])
def test_payloads_are_read_by_the_names_of_their_entries(spelled, schema, tmp_path):
    payloads = [
        ("ncclCommInitRank", INIT, struct.pack("<QiiiI", HASH, 8, 3, 1, 0)),
        ("ncclAllReduce", ALL_REDUCE, struct.pack("<QQQ", HASH, 4_096, 0)),
        ("ncclSend", SEND, struct.pack("<QQiI", HASH, 77, 5, 0)),
    ]
    calls = [(name, {"binaryData": spelled(blob(number, payload))}) for name, number, payload in payloads]
    path = write(tmp_path / "run.sqlite", *calls, ("ncclGroupEnd", {}), schema=schema)

    assert facts(path) == [
        (HASH, None, 8, None, 3, "payload"),
        (HASH, 4_096, None, None, None, "payload"),
        (HASH, 77, None, 5, None, "payload"),
        (*NOTHING, "name"),
    ]
    made = found(path)
    assert made.communicators.rows() == [(0, HASH, 3, 8, 1)]
    assert made.unread_payloads == 0


def test_the_number_of_a_schema_means_nothing(tmp_path):
    moved = [(22, "Message size [bytes]", None), (22, "Root", 8)]
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        name_domain(writer)
        describe(writer, INIT, moved, payload_bytes=16)
        enum = {"domainId": NCCL, "schemaId": INIT, "idx": 0, "name": "Sum", "value": 0}
        writer.row("NVTX_PAYLOAD_ENUM_ENTRIES", **enum)
        call(writer, "ncclAllReduce", binaryData=blob(INIT, struct.pack("<QQ", 9, 1)))

    assert facts(tmp_path / "run.sqlite") == [(None, 9, None, None, None, "payload")]


@pytest.mark.parametrize(
    ("second", "payload_bytes"),
    [
        pytest.param([(18, "NCCL communicator ID", None), (22, "Peer rank", 8)], 24, id="other entries"),
        pytest.param(SCHEMAS[ALL_REDUCE], 32, id="another size"),
    ],
)
def test_a_schema_that_processes_disagree_about_is_not_used(second, payload_bytes, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        name_domain(writer)
        describe(writer, ALL_REDUCE)
        describe(writer, ALL_REDUCE, second, payload_bytes=payload_bytes)
        call(writer, "ncclAllReduce", binaryData=blob(ALL_REDUCE, struct.pack("<QQQ", HASH, 4_096, 0)))

    assert facts(tmp_path / "run.sqlite") == [(*NOTHING, "name")]
    assert found(tmp_path / "run.sqlite").unread_payloads == 1


def test_entries_without_an_offset_inside_the_payload_are_unknown(tmp_path):
    raw = blob(RAGGED, struct.pack("<iiQQ", 6, 7, 8, 9))
    path = write(tmp_path / "run.sqlite", ("ncclSend", {"binaryData": raw}), schemas=(RAGGED,))

    assert facts(path) == [(None, None, None, None, 6, "payload")]


GOOD = blob(ALL_REDUCE, struct.pack("<QQQ", HASH, 4_096, 0))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="empty"),
        pytest.param(GOOD[:20], id="half a header"),
        pytest.param(GOOD[:32], id="no payload"),
        pytest.param(GOOD[:-1], id="a byte missing"),
        pytest.param(GOOD.hex()[:-1], id="half a byte missing"),
        pytest.param(blob(ALL_REDUCE, bytes(16)), id="a payload of another size"),
        pytest.param(blob(ALL_REDUCE, bytes(24), payload_bytes=2**63), id="a huge size"),
        pytest.param(blob(ALL_REDUCE, bytes(24), domain=OTHERS), id="another domain"),
        pytest.param(blob(12345, bytes(24)), id="an unknown schema"),
        pytest.param("no hexadecimal text", id="text"),
        pytest.param("é" * 40, id="other text"),
        pytest.param(17, id="a number"),
        pytest.param(bytes(1_000_000), id="a million zeros"),
    ],
)
def test_payloads_that_cannot_be_read_are_counted(raw, tmp_path):
    path = write(
        tmp_path / "run.sqlite", ("ncclAllReduce", {"binaryData": raw}), ("ncclSend", {"binaryData": GOOD})
    )

    assert facts(path) == [(*NOTHING, "name"), (HASH, 4_096, None, None, None, "payload")]
    assert found(path).unread_payloads == 1


def test_impossible_values_are_unknown(tmp_path):
    path = write(
        tmp_path / "run.sqlite",
        ("ncclSend", {"binaryData": blob(SEND, struct.pack("<QQiI", 0, 2**63 + 5, -1, 0))}),
        ("ncclSend", {"binaryData": blob(SEND, struct.pack("<QQiI", 0, 2**62, 2**31 - 1, 0))}),
        (
            "ncclSend",
            {"jsonText": json.dumps({"bytes": -1, "peer": 2**200, "commRank": 1.5, "commHash": -1})},
        ),
        (
            "ncclSend",
            {"jsonText": json.dumps({"bytes": True, "peer": None, "rank": [1], "commHash": "0xZZ"})},
        ),
    )

    assert [row[:5] for row in facts(path)] == [(0, *NOTHING[1:])] * 2 + [NOTHING] * 2


@pytest.mark.parametrize("schema", ["2.7.1", "3.24.0", "3.28.1"])
def test_json_is_read_leniently(schema, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", schema) as writer:
        name_domain(writer)
        call(
            writer,
            "AllReduce",
            100,
            jsonText='{"commHash": "0xf123456789abcdef", "commRank": 3, "seqNumber": 9}',
        )
        call(
            writer,
            "Send",
            200,
            jsonText=json.dumps({"payload": {"Message size [bytes]": "12", "Peer rank": 4}}),
        )
        registered = writer.string(json.dumps({"NCCL communicator ID": HASH, "Rank": 1, "No. of ranks": 2}))
        call(writer, "Recv", 300, jsonTextId=registered)
        call(writer, "API Group", 400, jsonText='{"groupId": 7}')

    assert facts(tmp_path / "run.sqlite") == [
        (HASH, None, None, None, 3, "json"),
        (None, 12, None, 4, None, "json"),
        (HASH, None, 2, None, 1, "json"),
        (*NOTHING, "json"),
    ]
    assert found(tmp_path / "run.sqlite").communicators.rows() == [(0, HASH, 1, 2, None)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        "3",
        "null",
        '{"rank": 1' + "0" * 5_000 + "}",
        "[" * 60_000,
        '{"rank": 1, "name": "' + "x" * 70_000 + '"}',
        b"\xff\xfe",
        b'{"rank": 1\x00',
    ],
    ids=range(10),
)
def test_what_is_no_json_object_is_counted(text, tmp_path):
    path = write(tmp_path / "run.sqlite", ("ncclSend", {"jsonText": text}))

    assert facts(path) == [(*NOTHING, "name")]
    assert found(path).unread_payloads == 1


@given(raw=st.binary(max_size=64), told=st.text(max_size=40))
def test_no_payload_is_ever_an_error(raw, told, tmp_path_factory):
    path = tmp_path_factory.mktemp("rubbish") / "run.sqlite"
    write(
        path,
        ("ncclSend", {"binaryData": GOOD[:32] + raw}),
        ("ncclSend", {"jsonText": told, "binaryData": raw}),
    )

    assert len(facts(path)) == 2


def test_odd_values_in_columns_of_nccl_rows_are_unknown(tmp_path):
    path = write(
        tmp_path / "run.sqlite",
        ("ncclSend", {}),
        ("ncclRecv", {"end": "late"}),
        ("ncclBad", {"start": "soon"}),
    )

    assert found(path).calls.select("start_ns", "end_ns", "operation").rows() == [
        (100, 110, "Send"),
        (200, None, "Recv"),
    ]


def test_an_export_without_ranges_gives_empty_frames(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.call("cudaLaunchKernel_v7000", 1, 2)

    made = found(tmp_path / "run.sqlite")
    assert (len(made.calls), len(made.communicators), made.unread_payloads) == (0, 0, 0)


@pytest.mark.parametrize("name", ["nsysai_mfu_before", "nsysai_mfu_after", "llmc_t4_nokernel"])
def test_real_calls_of_nccl_are_told_by_their_names(name, traces):
    path = traces / f"{name}.sqlite"
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    counted = connection.execute(
        """SELECT SUBSTR(value, 5), COUNT(*) FROM NVTX_EVENTS JOIN StringIds ON StringIds.id = textId
        WHERE value GLOB 'nccl*' AND eventType IN (59, 60) GROUP BY 1"""
    ).fetchall()
    tids = [tid for (tid,) in connection.execute("SELECT DISTINCT globalTid FROM NVTX_EVENTS")]
    connection.close()
    with export(path) as source:
        pids = pl.DataFrame({"tid": tids}).select(globalPid=process_of("tid")).unique().sort("globalPid")
        numbered = number_threads(source, pl.Series(tids), pids.with_row_index("process"))
        made = read_collectives(source, names_of_ranges(source), numbered, 0, quiet)

    assert dict(made.calls["operation"].value_counts().rows()) == dict(counted)
    assert made.calls["thread"].null_count() == 0
    assert set(made.calls["source"]) == {"name"}
    assert made.unread_payloads == 0


def test_bytes_are_those_of_elements_of_a_known_type(tmp_path):
    kinds = {
        "ncclFloat16": 20,
        "bfloat16": 20,
        "ncclInt64": 80,
        "Float8e4m3": 10,
        "ncclNumTypes": None,
        7: None,
    }
    path = write(
        tmp_path / "run.sqlite",
        *(("ncclAllReduce", {"jsonText": json.dumps({"count": 10, "dataType": kind})}) for kind in kinds),
        ("ncclAllReduce", {"jsonText": json.dumps({"dataType": "ncclFloat16"})}),
        ("ncclAllReduce", {"jsonText": json.dumps({"count": 10, "bytes": 3, "dataType": "ncclFloat16"})}),
    )

    assert found(path).calls["bytes"].to_list() == [*kinds.values(), None, 3]


def test_a_call_knows_what_the_device_says_of_it(tmp_path):
    told = {"commHash": hex(HASH), "commRank": 1, "nRanks": 2, "count": 4, "dataType": "ncclInt8"}
    with ExportWriter(tmp_path / "run.sqlite", "3.28.1") as writer:
        name_domain(writer)
        call(writer, "AllReduce", 100, jsonText=json.dumps({"apiId": 5, "bytes": 9}))
        call(writer, "AllReduce", 200, jsonText=json.dumps({"apiId": 6}))
        call(writer, "AllReduce", 300, jsonText=json.dumps({"apiId": 5, "seqNumber": 0, **told}))
        for start in (400, 500):  # two operations of one call: neither is the whole of it
            call(writer, "AllReduce", start, jsonText=json.dumps({"apiId": 6, "seqNumber": start, **told}))

    assert found(tmp_path / "run.sqlite").calls.select(
        "communicator", "bytes", "rank", "sequence"
    ).rows() == [
        (HASH, 9, 1, None),
        (None, None, None, None),
        (HASH, 4, 1, 0),
        (HASH, 4, 1, 400),
        (HASH, 4, 1, 500),
    ]
