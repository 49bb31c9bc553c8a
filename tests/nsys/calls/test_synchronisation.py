import sqlite3
from contextlib import contextmanager

import polars as pl
import pytest

from fixtures.export import ExportWriter, global_pid
from wallscope.errors import InputError
from wallscope.model.schemas import EVENTS, STREAMS, SYNCS
from wallscope.nsys.calls import build_calls, read_calls, read_events, read_streams, read_syncs
from wallscope.nsys.identity import number_threads, process_of, read_export_facts
from wallscope.nsys.sources import open_tables
from wallscope.nsys.tables import make_database

NOBODY = 4_294_967_295
HOST = 200  # its global ids are negative


class Reader:
    """The frames of this module's readers from one open export."""

    def __init__(self, source):
        self.source = source
        self.facts = read_export_facts(source)
        raw = read_calls(source, self.quiet)
        pids = raw.callers.to_frame().select(process_of("globalTid"))["globalTid"].unique().sort()
        numbered = pids.alias("globalPid").to_frame().with_row_index("process")
        self.threads = number_threads(source, raw.callers, numbered)
        self.calls = build_calls(raw, self.threads, self.facts.time_shift_ns)

    def quiet(self, _):
        pass

    def read_syncs(self):
        return read_syncs(self.source, self.facts, self.threads, self.calls, self.quiet)

    def read_events(self):
        return read_events(self.source, self.threads, self.calls, self.facts.time_shift_ns, self.quiet)

    def read_streams(self):
        return read_streams(self.source, self.threads, self.quiet)


@contextmanager
def reader(path):
    with open_tables(path) as tables:
        yield Reader(make_database(path, tables))


def sync(writer, start_ns, *, api=None, process=(1000, 0), **more):
    """A synchronisation of 50 ns and, if it is named, its call around it; `process` is its pid and host."""
    correlation, shift_ns = writer.correlation(), writer.time_shift_ns
    pid, of_process = process[0], global_pid(process[0], host=process[1])
    if api:
        writer.row(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start_ns - 10 + shift_ns,
            end=start_ns + 60 + shift_ns,
            globalTid=of_process + pid,
            correlationId=correlation,
            nameId=writer.string(api),
        )
    row = {
        "start": start_ns + shift_ns,
        "end": start_ns + 50 + shift_ns,
        "contextId": 1,
        "streamId": NOBODY,
        "eventId": NOBODY,
        "eventSyncId": NOBODY,
        "correlationId": correlation,
        "globalPid": of_process,
        "syncType": 0,
    }
    writer.row("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **{**row, **more})


def kinds(path):
    with reader(path) as found:
        return found.read_syncs()["kind"].to_list()


@pytest.mark.parametrize("schema", ["2.7.1", "3.24.0", "3.25.0"])
@pytest.mark.parametrize(
    ("api", "kind"),
    [
        ("cudaStreamSynchronize_v3020", "stream"),
        ("cudaStreamSynchronize_ptsz_v7000", "stream"),
        ("cuStreamSynchronize", "stream"),
        ("cudaEventSynchronize_v3020", "event"),
        ("cudaEventQuery_v3020", "event"),
        ("cudaDeviceSynchronize_v3020", "context"),
        ("cuCtxSynchronize", "context"),
        ("cuCtxSynchronize_v2", "context"),
        ("cudaStreamWaitEvent_v3020", "wait"),
        ("cuStreamWaitEvent_ptsz", "wait"),
        ("cudaStreamWaitEvent_ptsz_v7000", "wait"),
        ("cuGreenCtxWaitEvent", "wait"),
        ("cudaExecutionCtxSynchronize_v13010", "context"),
    ],
)
def test_the_name_of_the_call_tells_the_kind_whatever_the_numbers_say(api, kind, schema, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", schema) as writer:
        for number in range(5):
            sync(writer, 100 * number, api=api, streamId=7, eventId=3, syncType=number)

    assert kinds(tmp_path / "run.sqlite") == [kind] * 5


@pytest.mark.parametrize(("schema", "nobody"), [("3.0.0", NOBODY), ("3.25.0", NOBODY), ("3.25.0", -1)])
@pytest.mark.parametrize(
    ("parties", "kind"),
    [((7, 3), "wait"), ((7, None), "stream"), ((None, 3), "event"), ((None, None), "context")],
)
def test_without_its_call_the_parties_tell_the_kind(parties, kind, nobody, schema, tmp_path):
    stream, event = (nobody if party is None else party for party in parties)
    with ExportWriter(tmp_path / "run.sqlite", schema) as writer:
        sync(writer, 100, api="cudaStreamSynchronize_v3020", streamId=7)
        sync(writer, 300, streamId=stream, eventId=event, syncType=1)

    with reader(tmp_path / "run.sqlite") as found:
        last = found.read_syncs().select("call", "kind", "stream", "event").rows()[-1]
    assert last == (-1, kind, *parties)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("3.7.2", [None, None, None, None, None]),
        ("3.24.0", [None, None, None, None, None]),
        ("3.25.0", [None, "event", "wait", "stream", "context"]),
        ("3.28.1", [None, "event", "wait", "stream", "context"]),
    ],
)
def test_numbers_of_the_type_count_last_and_from_3_25_on_alone(schema, expected, tmp_path):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path, schema) as writer:
        for number in range(5):
            sync(writer, 100 * number, syncType=number)
        writer.connection.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION DROP COLUMN streamId")

    assert kinds(path) == expected


@pytest.mark.parametrize("schema", ["2.7.1", "3.7.2", "3.25.0"])
def test_correlation_ids_count_inside_their_process_alone(schema, tmp_path):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path, schema, time_shift_ns=1_000_000) as writer:
        for start_ns, pid, host, api in (
            (500, 3000, HOST, "cuCtxSynchronize"),
            (300, 2000, 0, "cudaEventSynchronize_v3020"),
            (100, 1000, 0, "cudaStreamSynchronize_v3020"),
        ):
            writer._correlation = 0
            sync(writer, start_ns, api=api, process=(pid, host), streamId=7)

    with reader(path) as found:
        rows = found.read_syncs()
        names = found.calls.calls.join(found.calls.names, on="name").select("call", "text")
        joined = rows.with_columns(pl.col("call").cast(pl.UInt32)).join(names, on="call")
    assert rows.schema == SYNCS
    assert joined.sort("process").select(
        "process", "thread", "start_ns", "end_ns", "kind", "text"
    ).rows() == [
        (0, 0, 500, 550, "context", "cuCtxSynchronize"),
        (1, 1, 100, 150, "stream", "cudaStreamSynchronize"),
        (2, 2, 300, 350, "event", "cudaEventSynchronize"),
    ]


def test_a_synchronisation_that_ends_before_it_starts_is_left_out(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        sync(writer, 200, end=100, streamId=7)
        sync(writer, 300, streamId=7)

    with reader(tmp_path / "run.sqlite") as found:
        assert found.read_syncs()["start_ns"].to_list() == [300]


def test_an_export_without_the_tables_gives_empty_frames(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.call("cudaLaunchKernel_v7000", 1, 2)

    with reader(tmp_path / "run.sqlite") as found:
        frames = [found.read_syncs(), found.read_events(), found.read_streams()]
    assert [(frame.schema, len(frame)) for frame in frames] == [(SYNCS, 0), (EVENTS, 0), (STREAMS, 0)]


@pytest.mark.parametrize(
    ("schema", "shift_ns", "timestamp", "expected"),
    [
        pytest.param("3.0.0", 0, 5_000, (None, None), id="neither is known"),
        pytest.param("3.24.0", 0, 0, (12, None), id="not collected"),
        pytest.param("3.24.0", 0, 5_000, (12, 5_000), id="collected"),
        pytest.param("3.24.0", 10**15, 10**15, (12, None), id="not collected, then shifted"),
        pytest.param("3.28.1", 10**15, 10**15 + 5_000, (12, 5_000), id="collected, then shifted"),
    ],
)
def test_records_of_events_have_a_time_where_it_was_collected(
    schema, shift_ns, timestamp, expected, tmp_path
):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path, schema, time_shift_ns=shift_ns) as writer:
        writer.row(
            "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
            timestamp=timestamp,
            contextId=1,
            streamId=7,
            correlationId=writer.call("cudaEventRecordWithFlags_v11010", 100, 200),
            globalPid=global_pid(1000),
            eventId=5,
            eventSyncId=12,
        )

    with reader(path) as found:
        rows = found.read_events()
    assert rows.schema == EVENTS
    assert rows.rows() == [(0, 0, 0, 1, 7, 5, *expected)]


@pytest.mark.parametrize("schema", ["2.7.1", "3.25.0"])
def test_streams_have_a_flag_and_a_signed_priority_and_null_streams_come_from_their_own_table(
    schema, tmp_path
):
    path = tmp_path / "run.sqlite"
    owner = {"hwId": HOST, "vmId": 1, "processId": 1000, "contextId": 1}
    with ExportWriter(path, schema) as writer:
        for _ in range(2):
            sync(writer, 100, api="cudaStreamSynchronize_v3020", process=(1000, HOST))
        for stream, flag, priority in ((12, 1, 4_294_967_291), (11, 2, 0), (7, 1, 0), (6, 0, 0), (11, 2, 0)):
            writer.row("TARGET_INFO_CUDA_STREAM", **owner, streamId=stream, flag=flag, priority=priority)
        writer.row("TARGET_INFO_CUDA_STREAM", **{**owner, "processId": 1}, streamId=12, flag=1, priority=0)
        for context in (1, 2):
            null = {**owner, "contextId": context, "streamId": 7, "nullStreamId": 7}
            tables = ("TARGET_INFO_CUDA_CONTEXT_INFO", "TARGET_INFO_CUDA_NULL_STREAM")
            writer.row(next(table for table in tables if writer.has(table)), **null)

    with reader(path) as found:
        rows = found.read_streams()
    assert rows.schema == STREAMS
    assert rows.rows() == [
        (0, 1, 6, None, 0),
        (0, 1, 7, "null", 0),
        (0, 1, 11, "nonblocking", 0),
        (0, 1, 12, "blocking", -5),
        (0, 2, 7, "null", None),
    ]


def test_a_word_for_a_time_is_refused(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        sync(writer, 100, api="cudaStreamSynchronize_v3020")
        writer.connection.execute("UPDATE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION SET start = 'soon'")

    with reader(tmp_path / "run.sqlite") as found, pytest.raises(InputError, match="not an integer"):
        found.read_syncs()


PLAIN = r"""
SELECT name.value, COUNT(*)
FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION AS sync
JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS call
  ON call.correlationId = sync.correlationId AND (call.globalTid & ~0xFFFFFF) = sync.globalPid
JOIN StringIds AS name ON name.id = call.nameId
GROUP BY 1
"""
KINDS = {
    "StreamSynchronize": "stream",
    "EventSynchronize": "event",
    "EventQuery": "event",
    "DeviceSynchronize": "context",
    "CtxSynchronize": "context",
    "StreamWaitEvent": "wait",
}


@pytest.mark.parametrize(
    "name",
    [
        "nsysai_mfu_before",
        "nsysai_h100_2gpu_1s",
        "p4arth_3060",
        "nsysai_mock",
        "tf_2020_report23",
        "abacus_report1",
        "jax_alpa_mem",
        "ompoffload_2021_report2",
    ],
)
def test_real_synchronisations_are_of_the_kind_that_their_call_names(name, traces):
    path = traces / f"{name}.sqlite"
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as plain:
        counted = plain.execute(PLAIN).fetchall()
    plain.close()
    expected = {}
    for api, count in counted:
        kind = next(kind for part, kind in KINDS.items() if part in api)
        expected[kind] = expected.get(kind, 0) + count

    with reader(path) as found:
        rows = found.read_syncs()
    called = rows.filter(pl.col("call") >= 0)
    assert dict(called["kind"].value_counts().rows()) == expected
    assert rows["kind"].null_count() == 0
    assert called.filter((pl.col("kind") == "stream") & pl.col("stream").is_null()).is_empty()


def test_real_streams_are_found_under_their_process(traces):
    with reader(traces / "p4arth_3060.sqlite") as found:
        assert found.read_streams().rows() == [
            (0, 1, 6, "blocking", 0),
            (0, 1, 7, "null", 0),
            *((0, 1, stream, "nonblocking", 0) for stream in (8, 9, 10, 11)),
            (0, 1, 12, "blocking", -5),
        ]
    with reader(traces / "nsysai_mfu_before.sqlite") as found:
        assert found.read_streams().group_by("process").len().sort("process").rows() == [(0, 173), (1, 173)]


def test_real_records_of_events_belong_to_a_call(traces):
    with reader(traces / "mobilenet_infer_single.sqlite") as found:
        rows = found.read_events()
    assert len(rows) == 465
    assert rows["timestamp_ns"].null_count() == 465
    assert (rows["call"] >= 0).all()
