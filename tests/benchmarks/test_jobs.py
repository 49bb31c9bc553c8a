import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.jobs import Spent, make_exports, spent, table, ways

ROOT = Path(__file__).resolve().parents[2]
SIDE_BY_SIDE = """
import sys
from benchmarks.jobs import spent

script = "x = b'x' * ({} << 20); sum(range(10**6))"
found = spent([[sys.executable, "-S", "-c", script.format(size)] for size in (1, 300)])
print(found.wall_s, found.cpu_s, found.largest_mib)
"""


def test_what_runs_side_by_side_is_added_up():
    """Started by a process of their own: what runs counts from the memory of the one that starts it."""
    command = [sys.executable, "-c", SIDE_BY_SIDE]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    wall_s, cpu_s, largest_mib = map(float, told.split())

    assert wall_s > 0
    assert cpu_s > 0
    assert 300 < largest_mib < 600


def test_one_that_fails_is_no_measurement():
    with pytest.raises(RuntimeError, match="failed"):
        spent([[sys.executable, "-c", "raise SystemExit(3)"]])


def test_exports_differ_and_stay(tmp_path):
    paths = make_exports(tmp_path, 2, 1_000)
    contents = [path.read_bytes() for path in paths]
    written = [path.stat().st_mtime_ns for path in paths]

    assert contents[0] != contents[1]
    assert [path.stat().st_mtime_ns for path in make_exports(tmp_path, 2, 1_000)] == written


def test_each_way_takes_all_exports_but_the_last(tmp_path):
    paths = make_exports(tmp_path, 3, 1_000)
    taken = [
        {part for command in way for part in command if part.endswith(".sqlite")}
        for way in ways(paths).values()
    ]

    assert [len(some) for some in taken] == [3, 3, 1]


def test_the_table_compares_round_by_round():
    runs = {
        "jobs": [Spent(10.0, 20.0, 110.0), Spent(20.0, 20.0, 100.0)],
        "two": [Spent(9.0, 19.0, 100.0), Spent(20.0, 21.0, 100.0)],
        "alone": [Spent(1.0, 1.0, 100.0), Spent(1.0, 1.0, 90.0)],
    }
    *_, empty, said = table(runs, 4).splitlines()

    assert table(runs, 4).splitlines()[2] == "| jobs | 15.0 | 10.0 | 20.0 | 110 |"
    assert empty == ""
    assert "take 0.95 (0.90 to 1.00 over the rounds) times as long as `--jobs 2`" in said
    assert "and 1.00 (0.95 to 1.05) times as much CPU time" in said
    assert "1.10 times as much memory" in said
