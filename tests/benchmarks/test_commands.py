import sys

import pytest

from benchmarks.commands import _STAGE, Run, Way, compared, measured, table
from benchmarks.marks import put


def test_a_run_counts_its_children_and_their_memory():
    script = (
        "import subprocess, sys; x = bytearray(60 << 20);"
        "subprocess.run([sys.executable, '-c', 'sum(range(10**6))'])"
    )
    found = measured(Way((sys.executable, "-c", script)))

    assert found.wall_s > 0
    assert found.cpu_s > 0
    assert found.pss_mib > 50


def test_a_command_that_fails_is_no_measurement():
    with pytest.raises(RuntimeError, match="failed"):
        measured(Way((sys.executable, "-c", "raise SystemExit(3)")))


def test_each_command_runs_once_a_round_with_what_was_prepared_for_it(tmp_path):
    script = f"import os; open({str(tmp_path / 'ran')!r}, 'a').write(os.environ['SAID'])"
    ways = {said: Way((sys.executable, "-c", script), lambda said=said: {"SAID": said}) for said in "ab"}

    runs = compared(ways, 2)

    assert {name: len(of_way) for name, of_way in runs.items()} == {"a": 2, "b": 2}
    assert sorted((tmp_path / "ran").read_text()) == ["a", "a", "b", "b"]


def test_the_table_tells_median_least_and_peak():
    runs = {"one": [Run(3.0, 1.0, 10.0), Run(1.0, 2.0, 2_000.0), Run(2.0, 3.0, 30.0)]}

    assert table(runs).splitlines()[-1] == "| `one` | 2.00 | 1.00 | 2.00 | 2,000 |"


def test_stages_are_told_without_their_counts():
    said = "   625 ms  reading A\n   700 ms  reading A: 1,000 rows\nother\n  1240 ms  naming kernels\n"

    assert _STAGE.findall(said) == [("625", "reading A"), ("700", "reading A"), ("1240", "naming kernels")]


def test_a_text_goes_between_its_marks_alone(tmp_path):
    document = tmp_path / "page.md"
    document.write_text("a\n<!-- bench: x -->\nold\n<!-- end -->\nb\n<!-- bench: y -->\n<!-- end -->\n")

    put(document, "x", "new\n")

    assert document.read_text() == (
        "a\n<!-- bench: x -->\n\nnew\n\n<!-- end -->\nb\n<!-- bench: y -->\n<!-- end -->\n"
    )
    with pytest.raises(ValueError, match="no marks for z"):
        put(document, "z", "new")
