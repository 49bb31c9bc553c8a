import numpy as np
import pytest

from benchmarks import large_jobs
from benchmarks.jobs import Spent
from benchmarks.large_jobs import Measured, measure_gains, tabulate
from fixtures.planted_exports import Spoiled
from fixtures.planted_jobs import Fault, Layout, PlantedJob

_NODE, _RANK = ("node", (2, 3)), ("rank", (0,))


@pytest.fixture
def two_faults(monkeypatch):
    faults = (Fault("slow-node", "node", (2, 3), 1.4), Fault("slow-gpu", "rank", (0,), 1.2))
    planted = PlantedJob(Layout(data=4, gpus_per_node=2), faults, 1)
    monkeypatch.setattr(large_jobs, "plant_job", lambda _ranks: (planted, Spoiled()))
    return planted


def test_a_unit_saves_what_the_job_becomes_without_it_and_those_before_it(tmp_path, two_faults):
    steps_ns = [two_faults.measure_step_ns(two_faults.play(two_faults.faults[first:])) for first in range(3)]

    assert measure_gains(tmp_path, 4, [_NODE, _RANK]) == (-np.diff(steps_ns)).tolist()
    assert measure_gains(tmp_path, 4, [_RANK]) != measure_gains(tmp_path, 4, [_NODE])


@pytest.mark.usefixtures("two_faults")
def test_what_units_save_is_played_once(tmp_path, monkeypatch):
    gains_ns = measure_gains(tmp_path, 4, [_NODE, _RANK])
    monkeypatch.setattr(large_jobs, "plant_job", None)

    assert measure_gains(tmp_path, 4, [_NODE, _RANK]) == gains_ns


def test_a_row_tells_how_many_causes_and_amounts_are_right():
    one = Measured(64, 1.0, Spent(1.0, 6.4, 192.0), 500_000, planted=4, named=3, accused=1, close=2)
    row = tabulate([one], Spent(1.0, 0.0, 128.0), None).splitlines()[2]

    assert row == "| 64 | 1.00 | 6.4 | 100 | 192 | 1.00 | 500 | 3 of 4 | 1 | 2 of 3 |"
