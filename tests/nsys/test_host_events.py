import random
import sqlite3
from contextlib import contextmanager
from itertools import pairwise

import polars as pl
import pytest

from fixtures.export import ExportWriter, global_pid
from wallscope.errors import InputError
from wallscope.model.schemas import BYSTANDER_WAITS, CPU_SAMPLES, HOST_EVENTS
from wallscope.nsys.host_events import read_cpu_samples, read_host_events
from wallscope.nsys.identity import number_threads, process_of
from wallscope.nsys.sources import open_tables
from wallscope.nsys.tables import CatalogTable, make_database, read_table

HOST = 200  # its global ids are negative
MAIN = global_pid(1000, host=HOST) + 1000
OTHER, ELSEWHERE = MAIN + 1, global_pid(2000, host=HOST) + 2000
"""Another thread of the same process, and one of another process."""


def quiet(_):
    pass


@contextmanager
def export(path):
    with open_tables(path) as tables:
        yield make_database(path, tables)


def _host_thread_ids(source):
    tables = ("OSRT_API", "PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
    ids = [read_table(source, CatalogTable(name, ("globalTid",), required=()), quiet) for name in tables]
    return pl.concat(ids)["globalTid"].drop_nulls()


def numbered(source, tids=None):
    tids = _host_thread_ids(source) if tids is None else pl.Series("globalTid", tids, pl.Int64)
    pids = tids.to_frame("globalTid").select(globalPid=process_of("globalTid")).unique().sort("globalPid")
    return number_threads(source, tids, pids.with_row_index("process"))


def told(path, tids=None, shift_ns=0):
    with export(path) as source:
        rows, names, _ = read_host_events(source, numbered(source, tids), shift_ns, quiet)
    assert rows.schema == HOST_EVENTS
    return (
        rows.join(names, on="name", how="left", maintain_order="left")
        .select("thread", "start_ns", "end_ns", "kind", "text")
        .rows()
    )


def os_call(writer, name, start_ns, end_ns, tid=MAIN):
    writer.row("OSRT_API", start=start_ns, end=end_ns, globalTid=tid, nameId=writer.string(name))


def switch(writer, at_ns, onto, tid=MAIN):
    writer.row("SCHED_EVENTS", start=at_ns, cpu=0, isSchedIn=onto, globalTid=tid)


@pytest.mark.parametrize("schema", ["2.7.1", "3.28.1"])
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            "io",
            "read write pread pread64 pwritev2 readv open open64 openat openat64 close fopen fopen64 fclose",
        ),
        (
            "io",
            "fread fwrite fwrite_unlocked fgets putc getc fflush fsync fdatasync stat64 lstat64 fstat statx",
        ),
        ("io", "recv recvmsg recvmmsg recvfrom send sendmsg sendto sendfile connect accept accept4 getdelim"),
        ("lock", "pthread_mutex_lock pthread_mutex_trylock pthread_cond_wait pthread_cond_timedwait"),
        (
            "lock",
            "pthread_cond_signal pthread_rwlock_wrlock pthread_rwlock_timedwrlock sem_wait sem_timedwait",
        ),
        ("lock", "futex pthread_spin_lock pthread_barrier_wait flockfile"),
        (
            "os",
            "ioctl mmap munmap poll select sched_yield nanosleep pthread_create pthread_join fork",
        ),
        ("os", "waitpid sigaction openpty readlink_by_me reading"),
    ],
)
def test_calls_of_the_system_are_told_apart_by_their_names(kind, names, schema, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", schema) as writer:
        for name in names.split():
            os_call(writer, name, 100, 200)

    rows = told(tmp_path / "run.sqlite")
    assert sorted(row[3:] for row in rows) == sorted((kind, name) for name in names.split())


@pytest.mark.parametrize("schema", ["3.24.0", "3.28.1"])
def test_overheads_are_the_profilers_or_those_of_cuda(schema, tmp_path):
    kinds = ("undefined", "unknown", "jit", "flush", "instrumentation", "resource", "module", "lazy", "full")
    with ExportWriter(tmp_path / "run.sqlite", schema) as writer:
        for number, name in enumerate(kinds):
            row = {"start": number, "end": 100, "globalTid": MAIN, "nameId": writer.string(name)}
            writer.row("CUPTI_ACTIVITY_KIND_OVERHEAD", **row, overheadType=number)
            writer.row("PROFILER_OVERHEAD", **{**row, "end": 50}, overheadType=number)

    rows = told(tmp_path / "run.sqlite")
    assert [kind for *_, end_ns, kind, _ in rows if end_ns == 50] == ["profiler"] * 9
    assert {text for *_, end_ns, kind, text in rows if end_ns == 100 and kind == "profiler"} == {
        "flush",
        "instrumentation",
        "resource",
    }
    assert {kind for *_, kind, _ in rows} == {"profiler", "cuda"}


def test_overheads_of_old_exports_have_no_type(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", "2.7.1") as writer:
        writer.row("PROFILER_OVERHEAD", start=1, end=9, globalTid=MAIN, nameId=writer.string("Buffer flush"))

    assert told(tmp_path / "run.sqlite") == [(0, 1, 9, "profiler", "Buffer flush")]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("schema", ["2.7.1", "3.28.1"])
def test_a_thread_is_off_the_cpu_from_a_switch_out_to_the_next_switch_in(schema, seed, tmp_path):
    other = MAIN + 1
    rows = [
        *((at_ns, onto, MAIN) for at_ns, onto in ((5, 1), (10, 0), (30, 1), (40, 0), (45, 1), (90, 0))),
        *((at_ns, onto, other) for at_ns, onto in ((7, 0), (20, 1))),
    ]
    random.Random(seed).shuffle(rows)
    with ExportWriter(tmp_path / "run.sqlite", schema) as writer:
        for row in rows:
            switch(writer, *row)

    assert told(tmp_path / "run.sqlite", [other, MAIN], shift_ns=5) == [
        (0, 5, 25, "sched", "off the CPU"),
        (0, 35, 40, "sched", "off the CPU"),
        (1, 2, 15, "sched", "off the CPU"),
    ]


@pytest.mark.parametrize(
    ("switches", "spans"),
    [
        pytest.param([(10, 1)], [], id="on at the start"),
        pytest.param([(10, 0)], [], id="off at the end"),
        pytest.param([(10, 0), (20, 0), (30, 1)], [(20, 30)], id="a switch in is lost"),
        pytest.param([(10, 0), (20, 1), (30, 1)], [(10, 20)], id="a switch out is lost"),
        pytest.param([(10, 0), (20, 1), (20, 0), (30, 1)], [(10, 30)], id="on for no time"),
        pytest.param([(10, 1), (20, 1), (20, 0), (30, 0)], [], id="off for no time"),
        pytest.param([(10, 0), (10, 0), (20, 1), (20, 1)], [(10, 20)], id="all told twice"),
        pytest.param([(10, 0), (20, None), (30, 7)], [(10, 30)], id="no word where there should be one"),
    ],
)
@pytest.mark.parametrize("turned", [False, True], ids=["in order", "backwards"])
def test_switches_without_a_partner_make_no_span(switches, spans, turned, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        switch(writer, 1, 1, 5)
        writer.connection.execute("DROP TABLE SCHED_EVENTS")
        writer.connection.execute(
            "CREATE TABLE SCHED_EVENTS (start INT, cpu INT, isSchedIn INT, globalTid INT)"
        )
        for row in reversed(switches) if turned else switches:
            switch(writer, *row)

    assert [row[1:3] for row in told(tmp_path / "run.sqlite", [MAIN])] == spans


def test_threads_that_the_caller_did_not_number_are_left_out(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        for tid in (MAIN, MAIN + 1):
            os_call(writer, "read", 5, 9, tid)
            switch(writer, 10, 0, tid)
            switch(writer, 12, 1, tid)
            writer.row("COMPOSITE_EVENTS", start=7, globalTid=tid, cpuCycles=1)

    assert [row[:4] for row in told(tmp_path / "run.sqlite", [MAIN + 1])] == [
        (0, 5, 9, "io"),
        (0, 10, 12, "sched"),
    ]
    with export(tmp_path / "run.sqlite") as source:
        assert read_cpu_samples(source, numbered(source, [MAIN + 1]), 0, quiet).rows() == [(0, 7, 1)]


@pytest.mark.parametrize("schema", ["2.7.1", "3.25.0"])
def test_samples_stand_in_order_of_time_on_their_thread(schema, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", schema) as writer:
        for start, tid, cycles in (
            (1_300, MAIN, 0),
            (1_200, MAIN + 1, 1),
            (1_100, MAIN, 9_000),
            (1_050, 5, 1),
        ):
            writer.row("COMPOSITE_EVENTS", start=start, globalTid=tid, cpuCycles=cycles)

    with export(tmp_path / "run.sqlite") as source:
        rows = read_cpu_samples(source, numbered(source, [MAIN, MAIN + 1]), 1_000, quiet)
    assert rows.schema == CPU_SAMPLES
    assert rows.rows() == [(0, 100, 9_000), (0, 300, 0), (1, 200, 1)]


@pytest.mark.parametrize("schema", ["2.7.1", "3.25.0"])
def test_longer_calls_come_before_those_inside_them_and_broken_ones_are_left_out(schema, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", schema) as writer:
        os_call(writer, "open64", 100, 150)
        os_call(writer, "fopen", 100, 200)
        os_call(writer, "read", 300, 250)
        writer.row("OSRT_API", start=400, end=400, globalTid=MAIN, nameId=12345)

    assert [row[1:] for row in told(tmp_path / "run.sqlite", shift_ns=50)] == [
        (50, 150, "io", "fopen"),
        (50, 100, "io", "open64"),
        (350, 350, "os", "#12345"),
    ]


def test_an_export_without_the_tables_gives_empty_frames(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.call("cudaLaunchKernel_v7000", 1, 2)

    assert told(tmp_path / "run.sqlite", [MAIN]) == []
    with export(tmp_path / "run.sqlite") as source:
        assert read_cpu_samples(source, numbered(source, [MAIN]), 0, quiet).schema == CPU_SAMPLES


def test_a_word_for_a_time_is_refused(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        os_call(writer, "read", "soon", 9)

    with pytest.raises(InputError, match="not an integer"):
        told(tmp_path / "run.sqlite", [MAIN])


def counted(path, sql):
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    found = connection.execute(sql).fetchall()
    connection.close()
    return found


@pytest.mark.parametrize(
    "name",
    [
        "own_cap_nsys2022_export2022",
        "own_cap_nsys2023_export2023",
        "own_cap_nsys2024_export2024",
        "uvmtorch",
        "p4arth_3060",
    ],
)
def test_real_calls_of_the_system_are_all_there(name, traces):
    path = traces / f"{name}.sqlite"
    rows = [row for row in told(path) if row[3] not in {"profiler", "cuda", "sched"}]
    ((expected, length_ns),) = counted(
        path,
        """SELECT COUNT(*), SUM("end" - start) FROM OSRT_API JOIN StringIds ON StringIds.id = nameId
        WHERE value NOT LIKE 'OS runtime libraries profiling %'""",
    )
    ((locks,),) = counted(
        path,
        """SELECT COUNT(*) FROM OSRT_API JOIN StringIds ON StringIds.id = nameId
        WHERE value GLOB 'pthread_mutex_*' OR value GLOB 'pthread_cond_*' OR value GLOB 'sem_*'
        OR value GLOB 'pthread_rwlock_*' OR value IN ('futex', 'flockfile')""",
    )

    assert (len(rows), sum(end_ns - start_ns for _, start_ns, end_ns, _, _ in rows)) == (expected, length_ns)
    assert sum(kind == "lock" for _, _, _, kind, _ in rows) == locks
    assert sum(kind == "io" for _, _, _, kind, _ in rows) > 0


@pytest.mark.parametrize("name", ["jacc_a100_2026", "perlmutter_vecadd_prefetch", "fuser_h200", "ynan1_t4"])
def test_real_switches_of_a_thread_make_disjoint_spans(name, traces):
    path = traces / f"{name}.sqlite"
    tids = [tid for (tid,) in counted(path, "SELECT DISTINCT globalTid FROM SCHED_EVENTS")]
    ((switches_out,),) = counted(path, "SELECT COUNT(*) FROM SCHED_EVENTS WHERE isSchedIn = 0")
    spans = [row[:3] for row in told(path, tids) if row[3] == "sched"]

    assert switches_out - len(tids) <= len(spans) <= switches_out
    assert all(
        start_ns >= end_ns for (one, _, end_ns), (other, start_ns, _) in pairwise(spans) if one == other
    )


def test_real_overheads_of_cuda_are_not_the_profilers(traces):
    rows = told(traces / "nsysai_mock.sqlite")
    kinds = {kind: sum(row[3] == kind for row in rows) for kind in ("cuda", "profiler")}
    assert kinds == {"cuda": 6, "profiler": 25}
    assert {text for *_, kind, text in rows if kind == "cuda"} == {
        "Lazy Function Loading",
        "Runtime Triggered Module Loading",
    }


def bystanders(path, shift_ns=0):
    with export(path) as source:
        *_, waits = read_host_events(source, numbered(source, [MAIN]), shift_ns, quiet)
    assert waits.schema == BYSTANDER_WAITS
    return waits.rows()


@pytest.mark.parametrize(
    ("name", "length_ns", "expected"),
    [
        ("pthread_mutex_lock", 60_000, [(0, OTHER, 90, 95), (0, OTHER, 100, 200)]),
        ("pthread_mutex_lock", 40_000, []),
        ("pthread_cond_wait", 60_000, []),
    ],
)
def test_waits_of_threads_without_cuda_calls_are_read_where_one_with_calls_waits_for_a_lock(
    tmp_path, name, length_ns, expected
):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path) as writer:
        os_call(writer, name, 100, 100 + length_ns)
        os_call(writer, "pthread_cond_wait", 110, 210, tid=OTHER)
        os_call(writer, "sem_wait", 100, 105, tid=OTHER)
        os_call(writer, "read", 300, 400, tid=OTHER)
        os_call(writer, "sem_wait", 100, 200, tid=ELSEWHERE)

    assert bystanders(path, shift_ns=10) == expected
