"""What the terminal says of a job: narrow and wide."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console, Group

from fixtures.simulated_ranks import MS, US, Host, Meet, Work, played, profiles
from wallscope.model.report import Report
from wallscope.ranks.job import match_ranks
from wallscope.ranks.job_sentences import list_job_sentences
from wallscope.render.terminal import render_section, write_line
from wallscope.summary.diagnosis import decide_wall
from wallscope.views.analysis import stress_first, unfold_section
from wallscope.views.sections.job import build_clocks, build_job, build_survey

STAGES, REPLICAS, MICRO_BATCHES, STEPS = 2, 8, 4, 8
HOSTS = ("node-0", "node-1")


def rank(number, rng):
    stage, replica = number % STAGES, number // STAGES
    pair = (number - stage, number - stage + 1)
    group = tuple(stage + STAGES * other for other in range(REPLICAS))

    def step():
        for _ in range(MICRO_BATCHES):
            if stage:
                yield Meet(pair, 20 * US, "pp", "send-recv")
            yield Work(500 * US + abs(rng.normal(0, 2 * US)))
            if replica == 3:
                yield Work(60 * US, "host/data-loading", "")
            if not stage:
                yield Meet(pair, 20 * US, "pp", "send-recv")
        yield Meet(group, 200 * US)

    return [list(step()) for _ in range(STEPS)]


@pytest.fixture(scope="module")
def job():
    rng = np.random.default_rng(11)
    count = STAGES * REPLICAS
    hosts = [
        Host(
            HOSTS[number // (count // 2)], 13 * MS * (number // (count // 2)), 4.0 * (number // (count // 2))
        )
        for number in range(count)
    ]
    told = profiles(played([rank(number, rng) for number in range(count)]), hosts)
    return match_ranks(
        told, lambda walls, unknown: decide_wall(walls, unknown).dominant, world_size=count + 2
    ).job


@pytest.mark.parametrize("columns", [80, 140])
def test_the_terminal_of_a_job(golden, job, columns):
    page = io.StringIO()
    console = Console(file=page, width=columns, highlight=False, markup=False, emoji=False)
    anchor = SimpleNamespace(unit="step", window="step", typical="typical step")
    ranks = (SimpleNamespace(steps=(), speed_of_light=None),) * job.ranks
    analysis = SimpleNamespace(job=job, anchor=anchor, ranks=ranks, capture=SimpleNamespace(findings=()))
    sections = (build_job(Report(analysis, (), ())), build_survey(analysis), build_clocks(analysis))
    for part in (
        write_line(stress_first(list_job_sentences(job, "step"))),
        *(render_section(part) for section in sections for part in unfold_section(section)),
    ):
        console.print(Group(part, ""))
    lines = [line.rstrip() for line in page.getvalue().split("\n")]

    assert all(len(line) <= columns for line in lines)
    golden(f"job-{columns}.txt", "\n".join(lines))
