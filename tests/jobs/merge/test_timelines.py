"""The timeline of a job of several exports: the ranks on one clock, from what each export kept."""

import numpy as np
import polars as pl
import pytest

from fixtures.simulation.program import HostThread, Program, Work, stepped
from fixtures.simulation.run import run
from fixtures.simulation.story import STEPS, gemm
from fixtures.simulation.writing import HostClock, write_run
from tests.jobs.simulated import thread, write_job
from wallscope.cache_folder import Cache
from wallscope.jobs.inputs import find_exports
from wallscope.jobs.merge import align_rank_clocks, job_report, run_job
from wallscope.model.capture import Options
from wallscope.summary.step_timeline import decode_overviews, encode_overviews
from wallscope.views.page_analysis import write_analysis_page

LARGEST_PAGE = 3_500_000


def silent(_):
    pass


def analyzed(folder, **options):
    return run_job(find_exports([folder]), Options(), silent, with_timeline=True, **options)


@pytest.fixture(scope="module")
def job(job_folder):
    return analyzed(job_folder)


def collective_ends(found):
    """End of each communication kernel on the clock of the job, a row for each rank."""
    steps = found.steps.select("place", "step", "shift_ns")
    own = found.operations.filter(pl.col("wall") == "communication").join(steps, on=["place", "step"])
    ends = own.with_columns(at=pl.col("end_ns") + pl.col("shift_ns")).sort("place", "at")
    return np.array([one["at"].to_list() for one in ends.partition_by("place", maintain_order=True)])


def test_collectives_end_at_one_moment_on_all_ranks(job):
    ends = collective_ends(job.overviews)

    assert ends.shape[0] == len(job.analysis.ranks) == 4
    assert ends.shape[1] >= STEPS - 2
    assert np.ptp(ends, axis=0).max() <= 1_000


def test_hosts_with_clocks_that_differ_are_aligned(tmp_path):
    """Clocks 40 ms apart, one of which runs 20 ppm fast."""
    played = run(Program(tuple(thread(rank, 4, 1.2) for rank in range(4))))
    for rank in range(4):
        clock = HostClock(
            hostname=f"host{rank // 2}", offset_ns=40_000_000 * (rank // 2), drift_ppm=10.0 * (rank // 2)
        )
        write_run(played, tmp_path / f"run_rank{rank}.sqlite", ranks=[rank], clock=clock)
    ends = collective_ends(analyzed(tmp_path).overviews)

    assert ends.shape[0] == 4
    assert np.ptp(ends, axis=0).max() <= 1_000


def test_clocks_are_those_by_which_the_job_matched(job):
    for place, clock in enumerate(align_rank_clocks(job.known)):
        rows = job.known.rows.filter(pl.col("member") == place)
        moved = [at + clock.shift_ns(at) for at in rows["session_ns"].to_list()]

        assert np.abs(np.array(moved) - rows["start_ns"].to_numpy()).max() <= 1_000


def test_the_rank_of_the_diagnosis_comes_first_and_all_its_steps_are_there(job):
    steps = job.overviews.steps
    place = job.analysis.diagnosis.rank_index
    own = steps.filter(pl.col("place") == place)

    assert steps["place"][0] == place
    assert own["step"].to_list() == [step.index for step in job.analysis.ranks[place].steps]
    slices = job.overviews.slices.group_by("place", "step").agg(pl.col("length_ns").sum())
    joined = steps.join(slices, on=["place", "step"])
    assert (joined["end_ns"] - joined["start_ns"]).to_list() == joined["length_ns"].to_list()


@pytest.mark.slow
def test_a_page_shows_eight_ranks_of_a_larger_job(tmp_path):
    found = analyzed(write_job(tmp_path / "many", ranks=9))
    page = write_analysis_page(job_report(found.analysis, found.known, found.overviews))
    places = found.overviews.steps["place"].unique().to_list()

    assert len(places) == 8
    assert {one.place for one in found.analysis.job.stragglers} <= set(places)
    assert "8 of 9 ranks of the job" in page
    assert 'id="timelines"' in page
    assert len(page) < LARGEST_PAGE


def test_kept_overviews_are_read_as_they_were(job):
    again = decode_overviews(encode_overviews(job.overviews))

    for name in ("steps", "slices", "operations"):
        assert getattr(again, name).equals(getattr(job.overviews, name))


@pytest.mark.slow
def test_a_cached_answer_without_a_timeline_is_made_again_with_one(job_folder, tmp_path, job):
    cache = Cache(tmp_path)
    bare = run_job(find_exports([job_folder]), Options(), silent, cache=cache)
    made, read = analyzed(job_folder, cache=cache), analyzed(job_folder, cache=cache)

    assert bare.overviews is None
    for found in (made, read):
        assert found.overviews.slices.equals(job.overviews.slices)
        assert found.overviews.steps.equals(job.overviews.steps)


def test_ranks_that_no_collective_ties_are_said_to_be_unaligned(tmp_path):
    """Two hosts that never met: their clocks differ by nobody knows how much."""
    alone = HostThread("python", stepped(STEPS, lambda _: (gemm(300), Work(2_000))))
    played = run(Program(((alone,), (alone,))))
    for rank in range(2):
        clock = HostClock(hostname=f"host{rank}")
        write_run(played, tmp_path / f"run_rank{rank}.sqlite", ranks=[rank], clock=clock)
    found = analyzed(tmp_path)
    shifts = found.overviews.steps.group_by("place").agg(pl.col("shift_ns").null_count() > 0)

    assert shifts["shift_ns"].all()
    page = write_analysis_page(job_report(found.analysis, found.known, found.overviews))
    assert "2 ranks not aligned" in page
