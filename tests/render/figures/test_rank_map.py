"""The map of all ranks: a row for each node, a button for each share of the step, small for a thousand."""

import json
from dataclasses import replace

import pytest

from fixtures.simulated_ranks import US, Host, Meet, Work, played, profiles
from wallscope.ranks.job import match_ranks
from wallscope.render.figures import draw_rank_map
from wallscope.summary.diagnosis import find_dominant_wall

LATE, NODE = 5, 4


@pytest.fixture(scope="module")
def job():
    everyone = tuple(range(8))
    step = [[Work(400 * US * (1.2 if rank == LATE else 1.0)), Meet(everyone, 50 * US)] for rank in everyone]
    ranks = played([[own] * 6 for own in step])
    hosts = [Host(f"node-{rank // NODE}") for rank in everyone]
    return match_ranks(profiles(ranks, hosts), find_dominant_wall).job


def test_the_late_rank_is_the_only_one_that_holds_the_job_up(job):
    figure = draw_rank_map(job)
    (trace,) = figure.traces
    saved = 100 * job.stragglers[0].saved_ns / job.replayed_step_ns

    assert trace["y"] == ["node-0", "node-1"]
    assert trace["z"] == [[0, 0, 0, 0], [0, pytest.approx(saved, abs=0.01), 0, 0]]
    assert trace["text"][1][1].startswith("rank 5: ")


def test_each_button_shows_a_share_of_every_rank(job):
    figure = draw_rank_map(job)
    buttons = {one["label"]: one["args"][0]["z"][0] for one in figure.layout["updatemenus"][0]["buttons"]}

    assert next(iter(buttons)) == "delays others"
    assert set(buttons) == {
        "delays others", "waits for others", "compute", "communication", "memory", "host",
    }  # fmt: skip
    assert min(buttons["waits for others"][0]) > buttons["waits for others"][1][1]


def test_a_thousand_ranks_take_little_room(job):
    count = 1_024
    members = tuple(
        replace(
            job.members[place % 8],
            place=place,
            rank=place,
            name=f"rank {place}",
            hostname=f"node-{place // 8}",
        )
        for place in range(count)
    )
    figure = draw_rank_map(replace(job, ranks=count, members=members))

    assert [len(figure.traces[0]["z"]), len(figure.traces[0]["z"][0])] == [128, 8]
    assert len(json.dumps([figure.traces, figure.layout])) < 250_000


def test_ranks_of_one_host_are_laid_out_by_number(job):
    alone = replace(job, members=tuple(replace(one, hostname="node-0", stage=None) for one in job.members))
    (trace,) = draw_rank_map(alone).traces

    assert trace["y"] == ["rank 0 …"]
    assert len(trace["z"][0]) == 8


@pytest.mark.parametrize(("lacking", "column"), [(4, 0), (6, 2)])
def test_a_missing_rank_leaves_its_own_place_empty(job, lacking, column):
    held = tuple(one for one in job.members if one.rank != lacking)
    (trace,) = draw_rank_map(replace(job, members=held)).traces

    assert [place for place, text in enumerate(trace["text"][1]) if text is None] == [column]
    assert trace["text"][1][LATE - NODE].startswith("rank 5: ")
