"""What lowers the confidence of a verdict, one thing at a time, on steps of 100 ns."""

from dataclasses import replace

import numpy as np
import pytest

from fixtures.simulation.run import run
from fixtures.simulation.stories_waits import waits
from fixtures.simulation.writing import write_run
from wallscope.model.capture import Finding, Options, Profiler, Severity
from wallscope.model.diagnosis import Walls
from wallscope.preparation import prepare
from wallscope.summary.diagnosis import decide_wall
from wallscope.summary.rank import summarize_ranks
from wallscope.summary.verdict import judge_confidence

COMPUTE, COMMUNICATION, MEMORY, HOST = (
    (95, 5, 0, 0, 0),
    (50, 50, 0, 0, 0),
    (50, 0, 50, 0, 0),
    (50, 0, 0, 50, 0),
)
MOSTLY_HOST = (30, 0, 0, 70, 0)
STEPS = 4


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run.sqlite"
    write_run(run(dict(waits())["a value that is read from the device"]), path)
    return prepare(path, Options(), lambda _: None)


@pytest.fixture(scope="module")
def account(prepared):
    """A rank with steady steps; each test replaces what confidence depends on."""
    (found,) = summarize_ranks(prepared)
    return found


def judge(account, *steps, unresolved=0, inferred=(0,), blocked=0, beside=0, **flags):
    """The confidence in some steps; one step stands for several that are alike, numbers for all."""
    walls = np.array(steps * (STEPS if len(steps) == 1 else 1))
    changed = replace(
        account,
        walls=walls,
        unresolved=np.outer(np.full(len(walls), unresolved), [1, 0, 0, 0]),
        inferred=np.resize(np.array(inferred), len(walls)),
        blocked=np.full(len(walls), blocked),
        beside=np.full(len(walls), beside),
        profiled=np.zeros(len(walls), np.int64),
        **{
            "unseen": np.zeros(len(walls), np.int64),
            "unrecognized": np.zeros(len(walls), np.int64),
            "hides_recompute": False,
            "lacks_calls": False,
            "is_slowed_by_profiler": False,
            "has_unknown_clock": False,
        }
        | flags,
    )
    return judge_confidence(decide_wall(changed.walls, changed.unresolved), changed)


@pytest.mark.parametrize("step", [COMPUTE, COMMUNICATION, MEMORY, HOST])
def test_confidence_is_high_where_nothing_is_inferred_or_missing(account, step):
    assert judge(account, step).level == "high"


@pytest.mark.parametrize(("inferred", "level"), [(3, "high"), (4, "medium"), (20, "medium"), (21, "low")])
def test_confidence_falls_with_the_share_inferred_from_timing(account, inferred, level):
    assert judge(account, COMMUNICATION, inferred=(inferred,)).level == level


@pytest.mark.parametrize(("rare", "level"), [(12, "high"), (16, "medium")])
def test_a_few_steps_with_much_inferred_time_count(account, rare, level):
    assert judge(account, COMMUNICATION, inferred=(0, 0, 0, rare)).level == level


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (COMPUTE, "launch calls are missing, so short gaps between kernels count as compute"),
        (HOST, "launch calls are missing, so the host may have waited for calls that the export lacks"),
        (MEMORY, "launch calls are missing, so it is partly unknown what the GPU waited for"),
        (COMMUNICATION, "launch calls are missing, so it is partly unknown what the GPU waited for"),
    ],
)
def test_no_wall_is_certain_without_launch_calls(account, step, reason):
    found = judge(account, step, lacks_calls=True)

    assert (found.level, found.reasons[-1]) == ("medium", reason)


@pytest.mark.parametrize(
    ("step", "blocked", "level"),
    [
        pytest.param(HOST, 9, "high", id="too little to change the wall"),
        pytest.param(MOSTLY_HOST, 30, "high", id="host leads without it"),
        pytest.param(MOSTLY_HOST, 36, "medium", id="unknown without it"),
        pytest.param(HOST, 30, "medium", id="most of the host time"),
    ],
)
def test_host_is_less_sure_if_it_depends_on_blocked_calls(account, step, blocked, level):
    found = judge(account, step, blocked=blocked)

    assert found.level == level
    assert ("blocked for an unrecorded reason" in found.reasons[-1]) == (level == "medium")


@pytest.mark.parametrize(
    ("step", "beside", "level"),
    [
        pytest.param(MOSTLY_HOST, 30, "high", id="host leads without it"),
        pytest.param(MOSTLY_HOST, 36, "medium", id="unknown without it"),
        pytest.param((43, 50, 0, 7, 0), 7, "high", id="host is not the wall"),
    ],
)
def test_host_is_less_sure_if_threads_may_have_waited_for_each_other(account, step, beside, level):
    found = judge(account, step, beside=beside)

    assert found.level == level
    assert ("would show whether it waits for them" in found.reasons[-1]) == (level == "medium")


@pytest.mark.parametrize(
    ("step", "unseen", "level"),
    [
        pytest.param(MOSTLY_HOST, 30, "high", id="host leads without it"),
        pytest.param(MOSTLY_HOST, 36, "medium", id="unknown without it"),
        pytest.param((43, 50, 0, 7, 0), 7, "high", id="host is not the wall"),
    ],
)
def test_host_is_less_sure_if_the_holders_of_locks_have_no_calls(account, step, unseen, level):
    found = judge(account, step, unseen=np.full(STEPS, unseen))

    assert found.level == level
    assert ("the capture shows no thread with CUDA calls releasing it" in found.reasons[-1]) == (
        level == "medium"
    )


@pytest.mark.parametrize(
    ("step", "unrecognized", "level"),
    [
        pytest.param(COMPUTE, 95, "low", id="no name is known"),
        pytest.param(COMPUTE, 86, "low", id="next to none is known"),
        pytest.param(COMPUTE, 85, "medium", id="most are unknown"),
        pytest.param(COMPUTE, 5, "medium", id="just enough to be the wall"),
        pytest.param(COMPUTE, 4, "high", id="too little to be a wall"),
        pytest.param(HOST, 50, "low", id="as much as the host"),
        pytest.param(MOSTLY_HOST, 30, "high", id="the host leads all the same"),
        pytest.param(COMMUNICATION, 50, "high", id="the wall is communication all the same"),
    ],
)
def test_unknown_names_lower_the_confidence_where_they_could_change_the_wall(
    account, step, unrecognized, level
):
    found = judge(account, step, unrecognized=np.full(STEPS, unrecognized))

    assert found.level == level
    assert ("the verdict changes if kernels" in found.reasons[-1]) == (level != "high")


@pytest.mark.parametrize("step", [(93, 0, 0, 7, 0), (43, 50, 0, 7, 0), (43, 0, 50, 7, 0)])
def test_blocked_calls_concern_host_alone(account, step):
    assert judge(account, step, blocked=7).level == "high"


def test_recomputed_work_that_no_range_names_concerns_compute_alone(account):
    assert judge(account, COMPUTE, hides_recompute=True).level == "medium"
    assert judge(account, HOST, hides_recompute=True).level == "high"


def test_a_profiler_that_slows_the_host_concerns_host_alone(account):
    found = judge(account, HOST, is_slowed_by_profiler=True)

    assert (found.level, found.reasons[-1]) == ("medium", "the profiler slowed down the host")
    assert judge(account, COMMUNICATION, is_slowed_by_profiler=True).level == "high"


@pytest.mark.parametrize(
    ("profiler", "code", "severity", "is_slowed"),
    [
        (Profiler.NSYS, "emit-nvtx", Severity.WARNING, True),
        (Profiler.NSYS, "profiler-overhead", Severity.WARNING, True),
        (Profiler.NSYS, "profiler-overhead", Severity.INFO, False),
        (Profiler.TORCH, "torch-stacks", Severity.WARNING, True),
        (Profiler.TORCH, "profiler-overhead", Severity.WARNING, False),
        (Profiler.TORCH, "torch-operators", Severity.INFO, False),
        (Profiler.NSYS, "unresolved-waits", Severity.WARNING, False),
    ],
)
def test_warnings_that_recording_slowed_the_host_reach_the_rank(
    prepared, profiler, code, severity, is_slowed
):
    capture = prepared.trace.capture
    changed = replace(
        capture,
        export=replace(capture.export, profiler=profiler),
        findings=(Finding(code, severity, "Said.", None),),
    )
    (found,) = summarize_ranks(replace(prepared, trace=replace(prepared.trace, capture=changed)))

    assert found.is_slowed_by_profiler is is_slowed


def test_steps_whose_mean_has_another_wall_are_less_sure(account):
    long = (100, 0, 0, 9_900, 0)
    found = judge(account, COMMUNICATION, long)

    assert found.level == "medium"
    assert found.reasons[-1] == "the mean step is host-bound, unlike the median step"


@pytest.mark.parametrize(("memory", "level"), [(600, "medium"), (400, "high")])
def test_a_wall_of_the_whole_capture_that_is_not_that_of_the_steps_is_less_sure(account, memory, level):
    whole = Walls(1_000 - memory, 0, memory, 0, 0)
    changed = replace(account, rank=replace(account.rank, whole_walls=whole))

    assert judge(changed, COMPUTE).level == level
    assert judge(changed, MEMORY).level == "high"


def test_without_a_steady_step_nothing_is_certain(account):
    steps = tuple(replace(step, steady=False) for step in account.rank.steps)
    changed = replace(account, rank=replace(account.rank, steps=steps))

    assert judge(changed, COMPUTE).level == "medium"
