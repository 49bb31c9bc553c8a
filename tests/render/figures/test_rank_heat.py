"""Communication of ranks in each step: of many ranks those that matter, and colors that show who waits."""

from types import SimpleNamespace

import polars as pl
import pytest

from fixtures.simulated_ranks import US, Meet, Work, played, profiles
from wallscope.ranks.job import match_ranks
from wallscope.render.html import lay_out
from wallscope.summary.diagnosis import find_dominant_wall
from wallscope.views.sections.job import MOST_RANKS, build_job

LATE = 70


@pytest.fixture(scope="module", params=[4, MOST_RANKS + 16])
def job(request):
    everyone = tuple(range(request.param))
    late = min(LATE, everyone[-1])
    step = [[Work(400 * US * (1.2 if rank == late else 1.0)), Meet(everyone, 50 * US)] for rank in everyone]
    return match_ranks(profiles(played([[own] * 6 for own in step])), find_dominant_wall).job


def draw(job):
    walls = {one.place: one.walls for one in job.members}
    steps = [[SimpleNamespace(index=0, walls=walls[one.place])] for one in job.members]
    analysis = SimpleNamespace(
        job=job,
        anchor=SimpleNamespace(unit="step", window="step", typical="typical step"),
        ranks=[SimpleNamespace(steps=own) for own in steps],
        capture=SimpleNamespace(findings=()),
    )
    section = build_job(SimpleNamespace(analysis=analysis, lanes=pl.DataFrame()))
    return section, next(one for one in section.blocks if one.kind == "figure" and one.name == "job")


def test_a_screen_holds_the_ranks_and_the_late_one_is_among_them(job):
    _, figure = draw(job)
    (trace,) = figure.traces
    left_out = job.ranks - len(trace["y"])

    assert f"rank {min(LATE, job.ranks - 1)}" in trace["y"]
    assert len(trace["y"]) == len(trace["z"]) == min(job.ranks, 24 if job.ranks > MOST_RANKS else job.ranks)
    assert figure.height_px <= 600
    assert (f"; {left_out} more ranks not drawn" in figure.caption) == bool(left_out)


def test_colors_begin_at_the_least_time(job):
    """All ranks wait much of a step: beginning at 0, all were equally dark."""
    _, figure = draw(job)
    (trace,) = figure.traces
    times = [row[0] for row in trace["z"]]

    assert trace["zmin"] == min(times) > 0
    assert trace["y"][times.index(min(times))] == f"rank {min(LATE, job.ranks - 1)}"


def test_a_late_unit_lists_all_of_its_ranks_in_a_tooltip(job):
    section, _ = draw(job)
    late = next(lay_out(block) for block in section.blocks if block.kind == "grid")

    assert late["rows"][0][0]["cell"].hint == f"ranks {min(LATE, job.ranks - 1)}"
