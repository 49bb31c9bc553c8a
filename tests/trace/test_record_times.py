"""Records whose time cannot be are left out and counted, whichever reader finds one of them or all."""

import gzip
import json
import sqlite3
from contextlib import closing

import pytest

from fixtures.folders import folder_of
from fixtures.simulation.names import GEMM
from fixtures.simulation.program import HostThread, Launch, Program, SyncDevice, Work, stepped
from fixtures.simulation.run import run
from fixtures.simulation.torch_writing import write_torch_run
from fixtures.simulation.writing import write_run
from wallscope.errors import NothingToAnalyzeError
from wallscope.model.capture import Options
from wallscope.model.enums import Reader
from wallscope.model.finding_codes import FindingCode
from wallscope.nsys import read_capture
from wallscope.pipeline import analyze

MS, HOUR = 1_000_000, 3_600_000_000_000
FAULTS = {
    "never set": lambda _start, _end: (0, 0),
    "no start": lambda start, end: (0, end - start),
    "ends before it starts": lambda start, _end: (start, start - 5_000),
    "outlasts the capture": lambda start, end: (start, end + HOUR),
    "outlasts all captures": lambda start, _end: (start, 2**60),
}
WHY = {
    "never set": "without a time",
    "no start": "outside of the capture",
    "ends before it starts": "that end before they start",
    "outlasts the capture": "outside of the capture",
    "outlasts all captures": "outside of the capture",
}
TABLES = {
    "kernels": ("CUPTI_ACTIVITY_KIND_KERNEL", "kernel"),
    "calls": ("CUPTI_ACTIVITY_KIND_RUNTIME", "cuda_runtime"),
}


def ask(path):
    return analyze(path, Options(), lambda _: None)


@pytest.fixture(scope="module", params=["nsys", "torch"])
def captured(request, tmp_path_factory):
    """A capture of eight steps, which begin a while after the capture did, and its answer."""
    step = [Work(12 * MS), *([Launch(GEMM, 2 * MS)] * 6), SyncDevice()]
    played = run(Program(((HostThread("main", (Work(5 * MS), *stepped(8, lambda _: step))),),)))
    path = tmp_path_factory.mktemp("run") / "run.sqlite"
    if request.param == "nsys":
        write_run(played, path)
    else:
        path = write_torch_run(played, path.with_name("run.json.gz"))
    return path, ask(path)


def damage(path, to, kind, fault, *, is_all):
    table, category = TABLES[kind]
    if path.suffix == ".sqlite":
        to.write_bytes(path.read_bytes())
        with closing(sqlite3.connect(to)) as connection, connection:
            rows = connection.execute(f'SELECT rowid, start, "end" FROM "{table}" ORDER BY start').fetchall()
            for row, start, end in rows if is_all else rows[len(rows) // 2 :][:1]:
                connection.execute(
                    f'UPDATE "{table}" SET start = ?, "end" = ? WHERE rowid = ?', (*fault(start, end), row)
                )
        return len(rows)
    trace = json.loads(gzip.decompress(path.read_bytes()))
    events = [event for event in trace["traceEvents"] if event.get("cat") == category]
    for event in events if is_all else events[len(events) // 2 :][:1]:
        start_ns = round(event["ts"] * 1e3)
        start, end = fault(start_ns, start_ns + round(event["dur"] * 1e3))
        event["ts"], event["dur"] = start / 1e3, (end - start) / 1e3
    to.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return len(events)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", TABLES)
def test_one_record_is_left_out_and_counted(captured, kind, fault, tmp_path):
    path, right = captured
    damaged = tmp_path / path.name
    damage(path, damaged, kind, FAULTS[fault], is_all=False)
    found = ask(damaged)
    (said,) = (one.message for one in found.capture.findings if one.code == FindingCode.UNTIMED_OPERATIONS)

    assert said.startswith("Excluded 1 ")
    assert found.diagnosis.dominant_wall == right.diagnosis.dominant_wall == "host"
    assert found.diagnosis.share("host") == pytest.approx(right.diagnosis.share("host"), abs=0.02)
    assert [step.end_ns for step in found.ranks[0].steps] == pytest.approx(
        [step.end_ns for step in right.ranks[0].steps], abs=3 * MS
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_without_any_possible_kernel_there_is_no_answer(captured, fault, tmp_path):
    path, _ = captured
    damaged = tmp_path / path.name
    damage(path, damaged, "kernels", FAULTS[fault], is_all=True)

    with pytest.raises(NothingToAnalyzeError, match=rf"with a valid time: 48 \w+ {WHY[fault]}"):
        ask(damaged)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "run.sqlite"
    step = [Work(12 * MS), *([Launch(GEMM, 2 * MS)] * 6), SyncDevice()]
    write_run(run(Program(((HostThread("main", stepped(8, lambda _: step)),),))), path)
    return path


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("form", ["sqlite", "pages", "parquet", "arrow"])
def test_all_readers_refuse_an_export_without_any_possible_kernel_alike(exported, fault, form, tmp_path):
    damaged = tmp_path / "run.sqlite"
    count = damage(exported, damaged, "kernels", FAULTS[fault], is_all=True)
    reader = Reader(form) if form in set(Reader) else Reader.PAGES
    place = damaged if form in set(Reader) else folder_of(damaged, f".{form}")

    with pytest.raises(NothingToAnalyzeError, match=f"with a valid time: {count} rows {WHY[fault]}"):
        read_capture(place, lambda _: None, reader)


@pytest.mark.parametrize("length_us", [10**12, 1.1e12, 2e15, 9e15])
def test_sums_of_times_stay_within_64_bits(length_us, tmp_path):
    rows = [
        {"ph": "X", "cat": "kernel", "name": "a", "ts": 1_000 + at, "dur": length_us if at % 10 else 1}
        for at in range(10_000)
    ]
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": rows}))
    found = ask(path)
    (said,) = (one.message for one in found.capture.findings if one.code == FindingCode.UNTIMED_OPERATIONS)

    assert said.startswith("Excluded 9,000 events ")
    assert all(
        0 <= found.diagnosis.share(wall) <= 1 for wall in ("compute", "communication", "memory", "host")
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_without_any_possible_call_host_causes_are_unknown(captured, fault, tmp_path):
    path, _ = captured
    damaged = tmp_path / path.name
    count = damage(path, damaged, "calls", FAULTS[fault], is_all=True)
    found = ask(damaged)
    (said,) = (one.message for one in found.capture.findings if one.code == FindingCode.UNTIMED_OPERATIONS)

    assert said.startswith(f"Excluded {count} ")
    assert not [one.cause for one in found.ranks[0].causes if one.cause.startswith("host/")]
