"""Random programs with noise, of whose exports one kind of rows after the other is taken away.

Without the rows that tell who waits for whom, walls are found all the same, by times; whatever is missing, a
wall that is not the true one is never claimed with high confidence.
"""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass

import pytest

from fixtures.simulation.less_rows import BUSIEST, CALLS, OTHER, TABLES, list_removals
from fixtures.simulation.noise import add_noise
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.stories_waits import waits
from fixtures.simulation.wait_story import change_rows
from fixtures.simulation.writing import write_run
from tests.conftest import slow
from wallscope.model.capture import Options
from wallscope.preparation import prepare
from wallscope.summary.diagnosis import decide_wall
from wallscope.summary.rank import summarize_ranks
from wallscope.summary.verdict import judge_confidence

FEW = (1, 8)
MANY = range(10)
STORIES = dict(waits())
QUICK_STORY = "a driver lock"
DRIVER_LOCK = STORIES[QUICK_STORY]


@dataclass(frozen=True)
class Found:
    """The wall of a rank with all rows, and what is told without some."""

    where: str
    known: str
    told: str
    level: str


def judge_ranks(path):
    """The dominant wall of each rank and how sure it is."""
    found = []
    for account in summarize_ranks(prepare(path, Options(), lambda _: None)):
        decision = decide_wall(account.walls, account.unresolved)
        confidence = judge_confidence(decision, account)
        found.append((decision.dominant, confidence.level))
    return found


def remove(whole, statements):
    """The path of a copy of an export on which some statements were run."""
    path = whole.with_name("less.sqlite")
    shutil.copy(whole, path)
    change_rows(path, statements)
    return path


def judge_removals(name, program, folder):
    """What is missing, and what is then found of each rank, one by one."""
    whole = folder / "run.sqlite"
    write_run(run(program), whole, has_events=True)
    known = judge_ranks(whole)
    for missing, statements in list_removals(whole):
        less = judge_ranks(remove(whole, statements))
        for rank, ((wall, _), (other, level)) in enumerate(zip(known, less, strict=True)):
            yield missing, Found(f"rank {rank} of {name}", wall, other, level)


def list_wrong(found):
    """Those whose wall is another than that of the whole export, with high confidence."""
    return [one for one in found if one.told not in {one.known, "unknown"} and one.level == "high"]


@pytest.fixture(scope="module", params=[FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
def found(request, tmp_path_factory):
    """What is found of each rank of random programs, by what is missing."""
    told = {}
    for seed in request.param:
        program = add_noise(random_program(seed), seed)
        for missing, one in judge_removals(
            f"random_program({seed})", program, tmp_path_factory.mktemp("run")
        ):
            told.setdefault(missing, []).append(one)
    return told


def test_walls_of_communication_survive_without_the_rows_of_waits(found):
    of_communication = [one.told for one in found["waits"] if one.known == "communication"]

    assert len(of_communication) >= 3
    # measured over 24 programs: all are the same
    assert of_communication.count("communication") >= 0.95 * len(of_communication)
    assert set(of_communication) <= {"communication", "unknown"}


@pytest.mark.parametrize("missing", [*TABLES, BUSIEST, OTHER])
def test_no_other_wall_is_claimed_with_confidence(found, missing):
    assert found[missing]
    assert list_wrong(found[missing]) == []


@pytest.mark.parametrize(
    "name",
    [QUICK_STORY, *slow(*(name for name in STORIES if name != QUICK_STORY))],
)
def test_no_other_wall_of_a_story_is_claimed_with_confidence(name, tmp_path):
    judged = [one for _, one in judge_removals(name, add_noise(STORIES[name], 1), tmp_path)]

    assert len(judged) > len(TABLES)
    assert list_wrong(judged) == []


HOLDERS_CALLS = f"DELETE FROM {CALLS} WHERE globalTid IN (SELECT MAX(globalTid) FROM {CALLS})"


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param([HOLDERS_CALLS], id="the calls of the holder"),
        pytest.param(
            [HOLDERS_CALLS, "DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY"], id="its calls and its copies"
        ),
    ],
)
def test_launches_that_nothing_in_the_export_blocks_make_host_less_sure(statements, tmp_path):
    path = tmp_path / "run.sqlite"
    write_run(run(add_noise(DRIVER_LOCK, 1)), path, has_events=True)

    assert judge_ranks(remove(path, statements)) == [("host", "medium")]


@pytest.mark.parametrize("name", ["slow framework", "recomputed activations", "an even pipeline"])
def test_compute_is_less_sure_without_launch_calls(name, tmp_path):
    """Gaps between kernels are too short there to be seen as missing calls."""
    program = {**{story.name: story.program for story in stories()}, **dict(waits())}[name]
    path = tmp_path / "run.sqlite"
    write_run(run(add_noise(program, 1)), path, has_events=True)
    known = judge_ranks(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"DROP TABLE {CALLS}")
    without = judge_ranks(path)
    changed = [level for (wall, _), (told, level) in zip(known, without, strict=True) if told != wall]

    assert changed
    assert "high" not in changed


def test_recomputed_work_that_no_range_names_makes_compute_less_sure(found):
    hidden = [one for one in found["ranges"] if (one.known, one.told) == ("memory", "compute")]

    assert hidden
    assert {one.level for one in hidden} == {"medium"}
