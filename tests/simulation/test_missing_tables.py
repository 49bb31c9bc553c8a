"""Random programs with noise, of whose exports one kind of rows after the other is taken away.

Without the rows that tell who waits for whom, walls are found all the same, by times; whatever is missing, a
wall that is not the true one is never claimed with high confidence.
"""

import shutil
import sqlite3
from dataclasses import dataclass

import pytest

from fixtures.simulation.noise import add_noise
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.stories_waits import waits
from fixtures.simulation.writing import write_run
from wallscope.model.options import Options
from wallscope.pipeline import prepare
from wallscope.summary.confidence import judge_confidence
from wallscope.summary.diagnosis import decide_wall
from wallscope.summary.rank import summarize_ranks

SEEDS = range(10)
CALLS, SYNCHRONIZATION, EVENTS = (
    f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("RUNTIME", "SYNCHRONIZATION", "CUDA_EVENT")
)
TABLES = {
    "waits": (SYNCHRONIZATION, EVENTS),
    "synchronizations": (SYNCHRONIZATION,),
    "events": (EVENTS,),
    "calls": (CALLS,),
    "OS calls": ("OSRT_API",),
    "ranges": ("NVTX_EVENTS",),
}
BUSIEST, OTHER = "calls of the busiest thread", "calls of another thread"


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
        steady = any(step.steady for step in account.rank.steps)
        confidence = judge_confidence(
            decision,
            account.walls,
            account.unresolved,
            account.inferred,
            steady=steady,
            hides_recompute=account.hides_recompute,
            lacks_calls=account.lacks_calls,
        )
        found.append((decision.dominant, confidence.level))
    return found


def removals(path):
    """What is taken away, as statements by name."""
    yield from (
        (name, [f"DROP TABLE IF EXISTS {table}" for table in tables]) for name, tables in TABLES.items()
    )
    with sqlite3.connect(path) as connection:
        threads = connection.execute(f"SELECT globalTid FROM {CALLS} GROUP BY 1 ORDER BY COUNT(*) DESC")
        for name, (thread,) in zip((BUSIEST, OTHER), threads.fetchall(), strict=False):
            yield name, [f"DELETE FROM {CALLS} WHERE globalTid = {thread}"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What is told of each rank, by what is missing."""
    told = {}
    for seed in SEEDS:
        whole = tmp_path_factory.mktemp("run") / "run.sqlite"
        write_run(run(add_noise(random_program(seed), seed)), whole, has_events=True)
        known = judge_ranks(whole)
        for name, statements in removals(whole):
            path = whole.with_name("less.sqlite")
            shutil.copy(whole, path)
            connection = sqlite3.connect(path)
            for statement in statements:
                connection.execute(statement)
            connection.commit()
            connection.close()
            pairs = enumerate(zip(known, judge_ranks(path), strict=True))
            told.setdefault(name, []).extend(
                Found(f"rank {rank} of random_program({seed})", wall, other, level)
                for rank, ((wall, _), (other, level)) in pairs
            )
    return told


def test_walls_of_communication_survive_without_the_rows_of_waits(found):
    of_communication = [one.told for one in found["waits"] if one.known == "communication"]

    assert len(of_communication) >= 5
    # measured over 24 programs: all are the same
    assert of_communication.count("communication") >= 0.95 * len(of_communication)
    assert set(of_communication) <= {"communication", "unknown"}


@pytest.mark.parametrize("missing", [*TABLES, BUSIEST, OTHER])
def test_no_other_wall_is_claimed_with_confidence(found, missing):
    wrong = [one for one in found[missing] if one.told not in {one.known, "unknown"} and one.level == "high"]

    assert found[missing]
    assert wrong == []


@pytest.mark.parametrize("name", ["slow framework", "recomputed activations", "an even pipeline"])
def test_compute_is_less_sure_without_launch_calls(name, tmp_path):
    """Gaps between kernels are too short there to be seen as missing calls."""
    program = {**{story.name: story.program for story in stories()}, **dict(waits())}[name]
    path = tmp_path / "run.sqlite"
    write_run(run(add_noise(program, 1)), path, has_events=True)
    known = judge_ranks(path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"DROP TABLE {CALLS}")
    without = judge_ranks(path)
    changed = [level for (wall, _), (told, level) in zip(known, without, strict=True) if told != wall]

    assert changed
    assert "high" not in changed


def test_recomputed_work_that_no_range_names_makes_compute_less_sure(found):
    hidden = [one for one in found["ranges"] if (one.known, one.told) == ("memory", "compute")]

    assert hidden
    assert {one.level for one in hidden} == {"medium"}
