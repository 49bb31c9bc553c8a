"""The answer about a program does not depend on the clock of its GPU, or host causes are unknown."""

import gzip
import json
import sqlite3
from contextlib import closing

import pytest

from fixtures.simulation.names import GEMM
from fixtures.simulation.program import HostThread, Launch, Program, SyncDevice, Work, stepped
from fixtures.simulation.run import run
from fixtures.simulation.torch_writing import write_torch_run
from fixtures.simulation.writing import write_run
from wallscope.model.capture import Options
from wallscope.model.finding_codes import FindingCode
from wallscope.pipeline import analyze

MS, SECOND = 1_000_000, 1_000_000_000
_ON_DEVICE = ("KERNEL", "MEMCPY", "MEMSET")
_TRACED = ("kernel", "gpu_memcpy", "gpu_memset")


def _launch(duration_ns):
    return Launch(GEMM, duration_ns)


def _drained(_):
    return [Work(60 * MS), *([_launch(2 * MS)] * 40), SyncDevice()]


def _launched(_):
    return [action for _ in range(12) for action in (Work(9 * MS), _launch(3 * MS))]


def _queued(_):
    return [_launch(12 * MS)] * 12


PROGRAMS = {"drained": _drained, "launched": _launched, "queued": _queued}
WALLS = {"drained": "host", "launched": "host", "queued": "compute"}
MOVES = {
    "second earlier": (-SECOND, 0),
    "a second later": (SECOND, 0),
    "20 ms earlier": (-20 * MS, 0),
    "1 ms later": (1 * MS, 0),
    "fast": (0, 1e-4),
    "slow and late": (300 * MS, -1e-4),
}


@pytest.fixture(scope="module", params=["nsys", "torch"])
def reader(request):
    return request.param


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request):
    return request.param


@pytest.fixture(scope="module")
def captured(reader, program, tmp_path_factory):
    """A capture of a program of a second or two, and its answer."""
    path = capture(program, reader, tmp_path_factory.mktemp("run"))
    return path, ask(path)


def capture(program, reader, folder):
    played = run(Program(((HostThread("main", stepped(8, PROGRAMS[program])),),)))
    if reader == "torch":
        return write_torch_run(played, folder / "run.json.gz")
    write_run(played, folder / "run.sqlite")
    return folder / "run.sqlite"


def ask(path):
    return analyze(path, Options(), lambda _: None)


def move_device(path, to, change):
    """Write a capture with the start and end of each device operation changed."""
    if path.suffix == ".sqlite":
        to.write_bytes(path.read_bytes())
        with closing(sqlite3.connect(to)) as connection, connection:
            connection.create_function("moved", 1, change)
            for table in _ON_DEVICE:
                name = f"CUPTI_ACTIVITY_KIND_{table}"
                if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone():
                    connection.execute(f'UPDATE "{name}" SET start = moved(start), "end" = moved("end")')
        return
    trace = json.loads(gzip.decompress(path.read_bytes()))
    for event in trace["traceEvents"]:
        if event.get("cat") in _TRACED:
            start_ns = round(event["ts"] * 1e3)
            end_ns = start_ns + round(event["dur"] * 1e3)
            event["ts"] = change(start_ns) / 1e3
            event["dur"] = (change(end_ns) - change(start_ns)) / 1e3
    to.write_bytes(gzip.compress(json.dumps(trace).encode()))


def find(answer, code):
    return [one for one in answer.capture.findings if one.code == code]


@pytest.mark.parametrize("move", MOVES)
def test_the_clock_of_a_gpu_changes_no_answer(captured, program, move, tmp_path):
    path, right = captured
    offset_ns, drift = MOVES[move]
    first_ns = right.ranks[0].steps[0].start_ns + right.inputs[0].time_shift_ns
    moved = tmp_path / path.name
    move_device(path, moved, lambda at_ns: at_ns + offset_ns + round(drift * (at_ns - first_ns)))
    found = ask(moved)

    assert found.diagnosis.dominant_wall == right.diagnosis.dominant_wall == WALLS[program]
    for wall in ("compute", "host"):
        # 60 µs of drift go unnoticed, at a dozen gaps in a step of 144 ms
        assert found.diagnosis.share(wall) == pytest.approx(right.diagnosis.share(wall), abs=0.006)


@pytest.mark.parametrize(
    ("name", "offset_ns", "said"),
    [
        ("drained", -SECOND, "1.000 s behind"),
        ("drained", SECOND, "1.000 s ahead of"),
        ("launched", -SECOND, "1.000 s behind"),
        ("launched", SECOND, "1.000 s ahead of"),
        ("queued", -SECOND, "1.000 s behind"),
    ],
)
def test_the_size_of_the_difference_is_said(reader, name, offset_ns, said, tmp_path):
    path, moved = capture(name, reader, tmp_path), tmp_path / "moved"
    moved = moved.with_suffix("".join(path.suffixes))
    move_device(path, moved, lambda at_ns: at_ns + offset_ns)
    (finding,) = find(ask(moved), FindingCode.DEVICE_CLOCK_ALIGNED)

    assert said in finding.message


def test_clocks_without_a_contradiction_are_left_alone(captured):
    assert not find(captured[1], FindingCode.DEVICE_CLOCK_ALIGNED)
    assert not find(captured[1], FindingCode.DEVICE_CLOCK_UNKNOWN)


def test_no_host_cause_is_named_where_nothing_aligns_the_clocks(reader, tmp_path):
    path = capture("drained", reader, tmp_path)
    steps = ask(path).ranks[0].steps
    middle_ns = steps[len(steps) // 2].start_ns + ask(path).inputs[0].time_shift_ns
    moved = tmp_path / f"moved{''.join(path.suffixes)}"
    move_device(path, moved, lambda at_ns: at_ns + (400 * MS if at_ns > middle_ns else -400 * MS))
    found = ask(moved)

    assert find(found, FindingCode.DEVICE_CLOCK_UNKNOWN)
    assert found.diagnosis.dominant_wall != "host"
    assert found.diagnosis.confidence.level != "high"
    assert not [one.cause for one in found.ranks[0].causes if one.cause.startswith("host/")]


def test_one_record_with_a_wrong_time_moves_nothing(reader, tmp_path):
    path = capture("drained", reader, tmp_path)
    middle_ns = ask(path).ranks[0].steps[4].end_ns + ask(path).inputs[0].time_shift_ns
    moved = tmp_path / f"moved{''.join(path.suffixes)}"
    move_device(path, moved, lambda at_ns: at_ns - 30 * MS if abs(at_ns - middle_ns) < MS else at_ns)

    assert not find(ask(moved), FindingCode.DEVICE_CLOCK_ALIGNED)
    assert not find(ask(moved), FindingCode.DEVICE_CLOCK_UNKNOWN)
