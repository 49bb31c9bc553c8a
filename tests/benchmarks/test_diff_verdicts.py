import re
from pathlib import Path

import pytest

from benchmarks.diff_verdicts import BEGIN, JITTERS, POWER, PROGRAMS, STEPS, verdicts, written

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "diff.md").read_text(encoding="utf-8")
PAIRS = 40


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_like_sides_are_seldom_called_slower(program):
    wrong = [
        verdicts(program, count, jitter, 1.0, PAIRS).get("regression", 0.0)
        for count in (STEPS[0], STEPS[-1])
        for jitter in JITTERS[1:]
    ]

    assert sum(wrong) / len(wrong) <= 0.05


@pytest.mark.parametrize(("factor", "jitter", "count"), POWER)
def test_slowdowns_are_found(factor, jitter, count):
    assert verdicts(PROGRAMS[0], count, jitter, factor, PAIRS).get("regression", 0.0) >= 0.9


def test_the_same_arguments_give_the_same_verdicts():
    assert verdicts(PROGRAMS[1], 10, 0.05, 1.05, 10) == verdicts(PROGRAMS[1], 10, 0.05, 1.05, 10)


def test_the_page_holds_the_rates_that_are_promised():
    rows = [
        line.strip("| ").split(" | ")
        for line in PAGE.partition(BEGIN)[2].splitlines()
        if re.match(r"\| (?!steps vary|-)", line)
    ]
    promised = {program.name for program in PROGRAMS}
    rates = [float(cell.rstrip(" %")) for row in rows if row[0] in promised for cell in row[2:5]]

    assert len(rates) == len(PROGRAMS) * len(JITTERS) * len(STEPS)
    assert max(rates) <= 5.0
    assert "5 % slower at 2 % jitter" in PAGE


def test_a_table_replaces_the_one_before():
    assert written(written(PAGE, "one"), "two") == written(PAGE, "two")
