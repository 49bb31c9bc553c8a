"""A job in which much is wrong at once, with files that are missing, cut off and of another run."""

import pytest

from fixtures.planted_exports import large_job, write_answers, write_exports
from wallscope.jobs.merge import run_job
from wallscope.model.capture import Options


def judged(paths):
    return run_job(paths, Options(), lambda _: None, keep_going=True).analysis


def assert_planted_found(found, planted, spoiled):
    """Every planted fault is named and nothing else, with what its repair saves; each bad file is said."""
    numbers = {place: rank.rank for place, rank in enumerate(found.ranks)}
    named = {
        (str(one.unit), tuple(numbers[place] for place in one.places)): one.saved_ns
        for one in found.job.stragglers
    }
    faults = {
        (fault.unit, tuple(rank for rank in fault.places if rank not in spoiled.ranks)): fault
        for fault in planted.faults
    }
    assert named.keys() == faults.keys()
    chain = dict(planted.measure_chain([faults[unit].named for unit in named]))
    for unit, saved_ns in named.items():
        assert saved_ns == pytest.approx(chain[faults[unit]], rel=0.25)

    left_out = [one.message for one in found.capture.findings if one.code == "export-left-out"]
    for number in spoiled.cut:
        assert any(f"rank{number:04}" in one and "is truncated" in one for one in left_out)
    for number in spoiled.other_run:
        assert any(f"rank{number:04}" in one and "belongs to another run" in one for one in left_out)
    assert len(left_out) == len(spoiled.cut) + len(spoiled.other_run)
    assert found.job.missing == spoiled.ranks


def test_exports_of_64_ranks_are_judged_whole(tmp_path):
    planted, spoiled = large_job(pipeline=4, data=8, steps=5)
    found = judged(list(write_exports(tmp_path, planted, spoiled)))

    assert_planted_found(found, planted, spoiled)


def test_an_export_is_the_same_each_time(tmp_path):
    for folder in ("a", "b"):
        planted, _ = large_job(pipeline=2, data=8, steps=2)
        list(write_exports(tmp_path / folder, planted, ranks=[3]))

    (one,), (other,) = ((tmp_path / folder).iterdir() for folder in ("a", "b"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
def test_so_are_answers(tmp_path):
    planted, spoiled = large_job(pipeline=4, data=8, steps=5)
    found = judged(list(write_answers(tmp_path, planted, spoiled)))

    assert_planted_found(found, planted, spoiled)
