import re
from pathlib import Path

import pytest

from benchmarks.further_runs import (
    tabulate,
    tabulate_bisections,
    tabulate_further,
    tabulate_pairs,
    tabulate_recorded,
)
from benchmarks.marks import put
from tests.conftest import slow

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "diff.md").read_text(encoding="utf-8")
COUNT = 300


def rates(lines, column):
    """The rates of a column of a table, in percent."""
    rows = [line.strip("| ").split(" | ") for line in lines][2:]
    return [float(re.match(r"[0-9.]+", row[column])[0]) for row in rows]


def test_pairs_hold_and_find_more_than_single_runs_where_the_machine_drifts():
    lines = [*tabulate_pairs(COUNT)]
    paired, singly = rates(lines, 4), rates(lines, 5)

    assert min(rates(lines, 2)) > 91
    assert max(rates(lines, 3)) < 5
    assert all(ours > theirs for ours, theirs in zip(paired[3::2], singly[3::2], strict=True))


def test_few_recorded_runs_keep_the_interval_at_any_spread():
    lines = [*tabulate_recorded(2_000)]

    assert 93 <= min(rates(lines, 2)) <= max(rates(lines, 2)) <= 98
    assert max(rates(lines, 3)) < 7


@pytest.mark.parametrize("count", [100, *slow(COUNT)])
def test_the_stated_number_of_runs_decides_in_half_of_all_cases_at_least(count):
    assert min(rates(tabulate_further(count), 4)) > 45


@pytest.mark.slow
def test_ranges_of_bisections_hold_the_commit():
    lines = [*tabulate_bisections(100)]

    assert min(rates(lines, 2)) > 91
    assert min(rates(lines, 4)) > 85


@pytest.mark.parametrize("column", [2, 4])
def test_the_page_holds_what_was_measured(column):
    table = PAGE.partition("<!-- bench: further runs -->")[2].partition("<!-- end -->")[0]
    parts = [part.splitlines() for part in table.strip().split("\n\n")[1:]]

    assert len(parts) == 4
    assert all(min(rates(part, column)) > 15 for place, part in enumerate(parts) if place != 1 or column == 2)


def test_the_tables_replace_those_before(tmp_path):
    page = tmp_path / "diff.md"
    page.write_text(PAGE, encoding="utf-8")
    found = tabulate(120)

    put(page, "further runs", "one")
    put(page, "further runs", found)

    assert page.read_text(encoding="utf-8").count(found) == 1
