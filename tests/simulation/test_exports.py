import sqlite3
from contextlib import closing

import pytest

from fixtures.export import SCHEMAS
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.truth import truths
from fixtures.simulation.writing import pid, write_run
from tests.conftest import run_part
from wallscope.model.capture import Options
from wallscope.preparation import read_trace

SEEDS = (0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 8)))


def rows(path, sql):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def windows(path):
    """Process id, start, end and steadiness of every window."""
    parts = read_trace(path, Options(), lambda _: None)
    joined = parts.steps.windows.join(parts.capture.ranks.select("rank_id", "pid"), on="rank_id")
    return joined.sort("pid", "start_ns").select("pid", "start_ns", "end_ns", "steady").rows()


def true_windows(played, ranks=None):
    return [
        (pid(rank.rank), step.start_ns, step.end_ns, step.is_steady)
        for rank in truths(played)
        if ranks is None or rank.rank in ranks
        for step in rank.steps
    ]


@pytest.mark.parametrize("story", run_part(stories(), name=lambda story: story.name))
def test_wallscope_finds_the_windows_of_a_story(story, tmp_path):
    played = run(story.program)
    write_run(played, tmp_path / "story.sqlite", has_os_calls=story.has_os_calls)

    assert windows(tmp_path / "story.sqlite") == true_windows(played)


@pytest.mark.parametrize("has_events", [pytest.param(True, id="events"), pytest.param(False, id="no events")])
@pytest.mark.parametrize("seed", SEEDS)
def test_wallscope_finds_the_windows_of_a_random_program(seed, has_events, tmp_path):
    played = run(random_program(seed))
    write_run(played, tmp_path / "run.sqlite", has_events=has_events)

    assert windows(tmp_path / "run.sqlite") == true_windows(played)


@pytest.mark.parametrize("schema", run_part(SCHEMAS, (SCHEMAS[0], SCHEMAS[-1]), name=str))
def test_every_schema_generation_can_be_written(schema, tmp_path):
    played = run(random_program(2))
    write_run(played, tmp_path / "run.sqlite", schema=schema)

    assert windows(tmp_path / "run.sqlite") == true_windows(played)


def test_each_rank_may_have_an_export_of_its_own(tmp_path):
    story = next(story for story in stories() if story.name == "slow peer")
    played = run(story.program)
    for rank in range(2):
        path = tmp_path / f"rank{rank}.sqlite"
        write_run(played, path, ranks=[rank])
        assert windows(path) == true_windows(played, [rank])
        assert rows(path, "SELECT value FROM META_DATA_CAPTURE WHERE value LIKE 'RANK=%'") == [
            (f'RANK="{rank}"',)
        ]


def test_an_export_without_event_records_keeps_the_waits(tmp_path):
    played = run(random_program(1))
    waits = "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION WHERE syncType = 2"
    tables = "SELECT COUNT(*) FROM sqlite_schema WHERE name = 'CUPTI_ACTIVITY_KIND_CUDA_EVENT'"
    write_run(played, tmp_path / "with.sqlite")
    write_run(played, tmp_path / "without.sqlite", has_events=False)

    assert rows(tmp_path / "with.sqlite", waits) == rows(tmp_path / "without.sqlite", waits) != [(0,)]
    assert rows(tmp_path / "with.sqlite", tables) == [(1,)]
    assert rows(tmp_path / "without.sqlite", tables) == [(0,)]


def test_correlation_ids_begin_anew_in_each_process(tmp_path):
    story = next(story for story in stories() if story.name == "slow peer")
    write_run(run(story.program), tmp_path / "run.sqlite")
    first = rows(
        tmp_path / "run.sqlite",
        "SELECT MIN(correlationId), COUNT(DISTINCT correlationId) = COUNT(*)"
        " FROM CUPTI_ACTIVITY_KIND_RUNTIME GROUP BY globalTid >> 24 ORDER BY 1",
    )
    assert first == [(1, 1), (1, 1)]


def test_a_graph_is_written_node_by_node_under_one_launch(tmp_path):
    story = next(story for story in stories() if story.name == "graph on two streams")
    write_run(run(story.program), tmp_path / "run.sqlite")
    replays = rows(
        tmp_path / "run.sqlite",
        "SELECT COUNT(*), COUNT(DISTINCT graphNodeId), COUNT(DISTINCT streamId)"
        " FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY correlationId",
    )
    assert set(replays) == {(4, 4, 2)}


def test_wallscope_analyses_a_random_program(wallscope, tmp_path):
    write_run(run(random_program(0)), tmp_path / "run.sqlite")
    answer = wallscope("analyze", tmp_path / "run.sqlite")

    assert (answer.code, answer.err) == (0, "")
