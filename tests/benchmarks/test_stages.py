from types import SimpleNamespace

import polars as pl

from benchmarks import sizes, stages
from benchmarks.commands import Run
from fixtures.bulk import write_bulk


def test_each_stage_of_an_analysis_is_timed_once(tmp_path):
    path = tmp_path / "run.sqlite"
    write_bulk(path, kernels=4_000, ranks=2, steps=4)

    found = stages.measured(path, "stages")

    assert set(found) == {stages._IMPORTS, *stages._STAGES.values()}
    assert all(spent_s >= 0 for spent_s in found.values())
    assert found["reading the tables"] > 0


def test_the_least_is_measured_for_stages_that_exist(tmp_path):
    path = tmp_path / "run.sqlite"
    write_bulk(path, kernels=4_000, ranks=2, steps=4)

    found = stages.measured(path, "least")

    assert set(found) <= {stages._IMPORTS, *stages._STAGES.values()}
    assert all(least_s > 0 for least_s in found.values())


def test_busy_time_counts_overlap_once_and_leaves_gaps_out():
    operations = pl.DataFrame(
        {"rank_id": [0, 0, 0, 1, 1], "start_ns": [5, 0, 20, 0, 3], "end_ns": [9, 7, 30, 10, 4]}
    )

    assert stages._find_busy(SimpleNamespace(operations=operations)) == [9 + 10, 10]


def test_sizes_are_listed_with_their_threads():
    runs = {"0.1 | 2": [Run(3.0, 1.0, 10.0), Run(1.0, 2.0, 2_000.0), Run(2.0, 3.0, 30.0)]}

    assert sizes.table(runs).splitlines()[-1] == "| 0.1 | 2 | 2.00 | 2.00 | 2,000 |"
