"""One question, one answer: `whatif` answers the bound of a cause, and no fix for a part of it gains more."""

import pytest

from fixtures.export import ExportWriter
from fixtures.scenario import scenarios
from fixtures.simulation.noise import add_noise
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.random_threads import random_threads
from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.stories_inferred import wait_stories
from fixtures.simulation.stories_waits import waits
from fixtures.simulation.writing import write_run
from tests.answered_once import analyze_once
from tests.conftest import run_part
from tests.shipped_example import EXAMPLE
from tests.test_traces import EXPORTS, TRACES, WITHOUT_DEVICE_OPERATIONS
from wallscope.errors import NothingToAnalyzeError
from wallscope.model.capture import Options, Selection
from wallscope.model.whatif import Asked, Question
from wallscope.pipeline import analyze, ask_what_if

SMALL = sorted(path for end in ("sqlite", "json.gz") for path in (TRACES / "minimal").rglob(f"*.{end}"))
NOTHING = WITHOUT_DEVICE_OPERATIONS | {"dynamicvit", "calls_only_wsl", "t3b_all_kernels_lost.json"}
"""Captures without a kernel."""
KINETO = sorted((TRACES / "kineto").glob("*.json.gz"))
CAPTURES = [EXAMPLE, *(path for path in (*EXPORTS, *SMALL, *KINETO) if path.stem not in NOTHING)]
SEVERAL = [path for path in CAPTURES if path.stem in {"interleaved", "nsysai_mfu_before", "nsysai_mfu_after"}]
"""Captures of several ranks."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
ANY_ERROR = 1e9
NO_OPTIONS = Options()
SEEDS = (0, 3, 5, 12, *range(20, 32))
TWO_RANKS = tuple(seed for seed in range(40) if len(random_program(seed).ranks) > 1)[:6]


def ask_all(path, causes, options=NO_OPTIONS):
    """What `whatif` answers for each cause, at each share of it."""
    questions = tuple(Question("scale", cause, share) for cause in causes for share in SHARES)
    found = ask_what_if(path, options, Asked(sweep=questions, largest_error=ANY_ERROR), lambda _: None)
    won_ns = {one.questions[0]: one.won_ns for one in found.sweep}
    return found, {cause: [won_ns[Question("scale", cause, share)] for share in SHARES] for cause in causes}


def check_answers(path, analysis, options=NO_OPTIONS):
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    bounds = {one.cause: one.recoverable_ns for one in (*rank.causes, *analysis.opportunities)}
    check_rank(path, rank, bounds, [one for one in analysis.fixes or () if one.replay is not None], options)


def check_rank(path, rank, bounds, fixes, options):
    try:
        found, won_ns = ask_all(path, [one.cause for one in rank.causes], options)
    except NothingToAnalyzeError:
        assert not any(bounds.values())
        assert not fixes
        return
    assert (found.rank, found.step_ns) == (rank.rank, rank.typical.step_ns)
    for cause, by_share_ns in won_ns.items():
        assert by_share_ns == sorted(by_share_ns, reverse=True), cause
        assert by_share_ns[-1] == 0, cause
        assert bounds[cause] in {by_share_ns[0], None}, cause
    for fix in fixes:
        most_ns = max((won_ns[cause][0] for cause in fix.causes if cause in won_ns), default=0)
        says_more = "also affects" in fix.assumes or len(fix.causes) > 1
        assert 0 <= fix.replay.won_ns <= most_ns or says_more, fix.id


@pytest.mark.parametrize("path", run_part(CAPTURES, {EXAMPLE.stem, "act_offload", "gather_next"}, of=9))
def test_of_captures(path):
    if not path.exists():
        pytest.skip("../shared/traces is absent")
    check_answers(path, analyze_once(path))


def check_each_rank(path, analysis):
    """`whatif` of one rank answers what `analyze` says of it, about all ranks and about this one."""
    assert len(analysis.ranks) > 1
    for rank in analysis.ranks:
        options = Options(selection=Selection(rank=rank.rank, device=rank.device))
        alone = analyze(path, options, lambda _: None)
        check_answers(path, alone, options)
        check_rank(path, rank, {one.cause: one.recoverable_ns for one in rank.causes}, [], options)
        assert [one.steps for one in alone.ranks] == [rank.steps]


@pytest.mark.parametrize("path", run_part(SEVERAL, {"interleaved"}))
def test_of_each_rank_of_captures_with_several(path):
    check_each_rank(path, analyze_once(path))


@pytest.mark.parametrize("seed", run_part(TWO_RANKS, name=str, of=3))
def test_of_each_rank_of_random_programs(seed, tmp_path):
    write_run(run(add_noise(random_program(seed), seed)), tmp_path / "run.sqlite", has_events=True)
    check_each_rank(tmp_path / "run.sqlite", analyze(tmp_path / "run.sqlite", NO_OPTIONS, lambda _: None))


@pytest.mark.slow
def test_of_each_stage_of_a_pipeline(tmp_path):
    write_run(run(add_noise(dict(waits())["an even pipeline"], 1)), tmp_path / "run.sqlite")
    analysis = analyze(tmp_path / "run.sqlite", NO_OPTIONS, lambda _: None)

    assert len(analysis.ranks) == 4
    check_each_rank(tmp_path / "run.sqlite", analysis)


def test_a_rank_without_the_steps_of_the_others_is_divided_by_its_own(tmp_path):
    """Selected alone; among the others its whole time is one window."""
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        for pid, device, mark in ((101, 0, "training_step_"), (102, 1, "evaluate_step_")):
            for index in range(8):
                at = 1_000_000 + 100_000 * index
                writer.range(f"{mark}{index}" if device == 0 else mark, at - 10, at + 95_000, pid=pid)
                for kernel in range(10 - device):
                    number = writer.call(
                        "cudaLaunchKernel_v7000", at + 9_000 * kernel, at + 9_000 * kernel + 10, pid=pid
                    )
                    start_ns = at + 9_000 * kernel + 500
                    where = {"pid": pid, "device": device, "correlation": number}
                    writer.kernel(f"nvjet_{kernel}", start_ns, start_ns + 5_000, **where)
    of_all, alone = (
        analyze(tmp_path / "run.sqlite", Options(selection=one), lambda _: None)
        for one in (Selection(), Selection(device=1))
    )

    assert [len(one.steps) for one in of_all.ranks] == [8, 1]
    assert [len(one.steps) for one in alone.ranks] == [8]
    check_answers(tmp_path / "run.sqlite", alone, Options(selection=Selection(device=1)))


@pytest.mark.parametrize("scenario", run_part(scenarios(), name=lambda scenario: scenario.name, of=9))
def test_of_scenarios(scenario, tmp_path):
    scenario.write(tmp_path / "run.sqlite")
    try:
        analysis = analyze(tmp_path / "run.sqlite", NO_OPTIONS, lambda _: None)
    except NothingToAnalyzeError:
        return
    check_answers(tmp_path / "run.sqlite", analysis)


@pytest.mark.parametrize("story", run_part(stories(), name=lambda story: story.name, of=9))
def test_of_stories(story, tmp_path):
    write_run(run(story.program), tmp_path / "run.sqlite", has_events=True)
    check_answers(tmp_path / "run.sqlite", analyze(tmp_path / "run.sqlite", Options(), lambda _: None))


@pytest.mark.parametrize("story", run_part(tuple(wait_stories()), name=lambda story: story.name, of=9))
def test_of_waits_that_no_row_names(story, tmp_path):
    story.write(tmp_path / "run.sqlite", 7, is_near=False)
    check_answers(tmp_path / "run.sqlite", analyze(tmp_path / "run.sqlite", Options(), lambda _: None))


@pytest.mark.parametrize("make", [random_program, random_threads])
@pytest.mark.parametrize("seed", run_part(SEEDS, name=str, of=5))
def test_of_random_programs(seed, make, tmp_path):
    write_run(run(add_noise(make(seed), seed)), tmp_path / "run.sqlite", has_events=True)
    check_answers(tmp_path / "run.sqlite", analyze(tmp_path / "run.sqlite", Options(), lambda _: None))


@pytest.mark.parametrize(
    ("name", "cause", "won"),
    [
        # measured by running each program without the cause, in the simulator that made the capture
        pytest.param("act_offload", "memory/offload", 0.354, id="half of an offload wins less than all"),
        pytest.param("gather_next", "communication", 0.198, id="parameters gathered for the next step"),
    ],
)
def test_a_cause_wins_what_a_run_without_it_does(name, cause, won):
    path = TRACES / "minimal" / "waits" / f"{name}.sqlite"
    if not path.exists():
        pytest.skip("../shared/traces is absent")
    found, answers = ask_all(path, [cause])

    assert answers[cause][0] / found.step_ns == pytest.approx(won, abs=0.01)
