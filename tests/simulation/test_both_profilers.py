"""One run recorded by both profilers: the walls of its steps are the same."""

from collections import defaultdict

import pytest

from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.torch_writing import write_torch_run
from fixtures.simulation.writing import write_run
from tests.conftest import run_part
from wallscope.jobs.merge import run_job
from wallscope.model.capture import Options, Profiler
from wallscope.pipeline import analyze

SEEDS = (3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 1, 2, 4, 5, 6, 7)))
OWN_COST = "profiler"
"""The story in which nsys notes what it costs by thread; PyTorch's profiler does not say on which."""
MOST_APART_SHARE = 0.001


def account(path):
    """The typical step of the rank, and its causes."""
    found = analyze(path, Options(), lambda _: None)
    rank = found.ranks[found.diagnosis.rank_index]
    return found, {cause.cause: cause.typical_ns for cause in rank.causes}


def walls(causes):
    sums = defaultdict(int)
    for cause, ns in causes.items():
        sums[cause.partition("/")[0]] += ns
    return sums


def recorded(played, rank, folder, *, has_os_calls=False):
    write_run(played, folder / "run.sqlite", ranks=[rank], has_os_calls=has_os_calls)
    trace = write_torch_run(played, folder / "run.json.gz", rank)
    return account(folder / "run.sqlite"), account(trace)


def assert_alike(ours, theirs):
    step_ns = sum(ours.values())
    before, after = walls(ours), walls(theirs)

    assert abs(step_ns - sum(theirs.values())) <= MOST_APART_SHARE * step_ns
    for wall in before.keys() | after.keys():
        assert abs(before[wall] - after[wall]) <= MOST_APART_SHARE * step_ns, wall


@pytest.mark.parametrize(
    "story",
    run_part([one for one in stories() if one.name != OWN_COST], name=lambda story: story.name, of=9),
)
def test_a_story_has_the_same_walls_by_either_profiler(story, tmp_path):
    (_, ours), (found, theirs) = recorded(
        run(story.program), story.rank, tmp_path, has_os_calls=story.has_os_calls
    )

    assert_alike(ours, theirs)
    assert found.inputs[0].profiler is Profiler.TORCH
    assert found.anchor.name is not None
    assert found.anchor.name.startswith("ProfilerStep")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_program_has_the_same_walls_by_either_profiler(seed, tmp_path):
    (_, ours), (_, theirs) = recorded(run(random_program(seed)), 0, tmp_path)

    assert_alike(ours, theirs)


def test_what_the_profiler_costs_is_taken_for_time_of_the_host(tmp_path):
    (story,) = (one for one in stories() if one.name == OWN_COST)
    (_, ours), (_, theirs) = recorded(run(story.program), story.rank, tmp_path)
    own_ns = ours["unattributed/profiler"]

    assert own_ns > 0
    assert theirs.get("unattributed/profiler") is None
    assert theirs["host/framework"] == ours.get("host/framework", 0) + own_ns


def test_collectives_have_the_same_bytes_by_either_profiler(tmp_path):
    found, trace = (side[0] for side in recorded(run(random_program(3)), 0, tmp_path))

    def told(analysis):
        operations = analysis.ranks[0].communication.operations
        kinds = ("all-gather", "reduce-scatter", "all-reduce")
        return {
            (one.operation, one.axis): (one.count, one.bytes) for one in operations if one.operation in kinds
        }

    assert told(found)
    assert told(trace) == told(found)


@pytest.mark.parametrize(
    "story", run_part([one for one in stories() if one.is_split], name=lambda one: one.name)
)
def test_rank_files_on_clocks_of_their_own_have_the_same_waits_as_exports(story, tmp_path):
    played = run(story.program)
    exports, traces = [], []
    for rank in range(len(played.ranks)):
        exports.append(tmp_path / f"run_rank{rank}.sqlite")
        write_run(played, exports[-1], ranks=[rank])
        traces.append(write_torch_run(played, tmp_path / f"rank-{rank}.json.gz", rank))
    ours, theirs = (run_job(paths, Options(), lambda _: None).analysis for paths in (exports, traces))

    assert theirs.job is not None
    assert theirs.job.collectives.matched == ours.job.collectives.matched > 0
    for before, after in zip(ours.ranks, theirs.ranks, strict=True):
        assert {one.cause: one.typical_ns for one in after.causes} == {
            one.cause: one.typical_ns for one in before.causes
        }
