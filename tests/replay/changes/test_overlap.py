"""Communication that comes to run beside compute: what it wins, and what it takes from the compute."""

import polars as pl
import pytest

from fixtures.simulation import changed, names
from fixtures.simulation.program import NULL_STREAM, Copy, Launch, Record, SyncDevice, WaitEvent
from fixtures.simulation.run import run
from fixtures.simulation.story import COMMUNICATION, COPIES, US, all_to_all, alone, gemm, reduce_scatter
from fixtures.simulation.windows import busiest_stream, typical_step_ns
from fixtures.simulation.writing import write_run
from tests.replay.stretches import read
from wallscope.model.capture import Options, Selection
from wallscope.model.whatif import Asked, Question
from wallscope.pipeline import ask_what_if
from wallscope.replay.engine import Engine, WindowReplay
from wallscope.replay.what_if import answer_questions

IN_ORDER = alone(
    lambda _: (gemm(100), all_to_all(200, stream=NULL_STREAM), gemm(300), gemm(50), SyncDevice())
)
TOO_LONG = alone(lambda _: (gemm(100), all_to_all(500, stream=NULL_STREAM), gemm(300), SyncDevice()))
TWO = alone(
    lambda _: (
        gemm(100),
        all_to_all(100, stream=NULL_STREAM),
        reduce_scatter(80, stream=NULL_STREAM),
        gemm(400),
        SyncDevice(),
    )
)


def asked(program, path, question, tax=None):
    stretch, prepared = read(program, path)
    parts = prepared.trace
    typical = stretch.steps.filter(pl.col("typical"))
    step_ns = round((typical["end_ns"] - typical["start_ns"]).mean())
    texts = pl.Series("text", [""], pl.String).new_from_index(0, len(parts.range_tree.paths))
    player = WindowReplay(stretch, step_ns, Engine(stretch, lambda _: tax))
    return answer_questions(player, Asked((question,)), texts).answers[0]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(IN_ORDER, id="hides behind what follows"),
        pytest.param(TOO_LONG, id="longer than what follows"),
        pytest.param(TWO, id="two that stay in order"),
    ],
)
def test_a_collective_on_a_stream_of_its_own_wins_what_the_program_would(program, tmp_path):
    answer = asked(program, tmp_path / "run.sqlite", Question("overlap", "communication"))
    played = run(program)
    after = run(changed.on_stream(program, 77))
    true_ns = typical_step_ns(after.ranks[0], busiest_stream(played.ranks[0]), 1)

    assert answer.step_ns == pytest.approx(true_ns, rel=0.02)
    assert answer.won_ns > 0
    assert "assumed to be as fast as alone" in " ".join(answer.notes)


def test_compute_beside_communication_slows_by_the_measured_tax(tmp_path):
    question = Question("overlap", "communication")
    free, taxed = (asked(IN_ORDER, tmp_path / f"{tax}.sqlite", question, tax) for tax in (None, 1.25))

    # the all-to-all runs for 200 µs beside kernels of 350 µs, which take a quarter of that longer
    assert taxed.step_ns - free.step_ns == pytest.approx(50 * US, abs=2 * US)
    assert "1.25 times as long" in " ".join(taxed.notes)


def on_two_streams(*, at_once):
    """Multiplications on two streams, at the same time or one after the other."""
    own, other = (
        [Launch(name, 50 * US, stream) for _ in range(10)]
        for name, stream in ((names.GEMM, NULL_STREAM), (names.NORM, COPIES))
    )
    between = (Record("begun"), WaitEvent(COPIES, "begun"))
    ordered = (*between, *other, *own) if at_once else (*own, *between, *other)
    return alone(lambda _: (*ordered, Record("ended", COPIES), WaitEvent(NULL_STREAM, "ended"), SyncDevice()))


@pytest.mark.parametrize("at_once", [True, False])
def test_what_kernels_of_other_streams_take_is_stated_where_they_overlap(tmp_path, at_once):
    write_run(run(on_two_streams(at_once=at_once)), tmp_path / "run.sqlite", has_events=True)
    half = Asked((Question("scale", "category:gemm", 0.5),))
    (answer,) = ask_what_if(tmp_path / "run.sqlite", Options(), half, lambda _: None).answers

    assert ("their mutual slowdown is unknown" in " ".join(answer.notes)) is at_once


def test_what_is_awaited_by_an_event_gains_nothing_on_another_stream(tmp_path):
    from fixtures.simulation.story import exchange

    program = alone(lambda _: (gemm(100), *exchange(200), gemm(100), SyncDevice()))
    answer = asked(program, tmp_path / "run.sqlite", Question("overlap", "communication"))

    assert answer.won_ns == 0


RELAYED = alone(
    lambda _: (
        gemm(20),
        all_to_all(300),
        Record("gathered", COMMUNICATION),
        WaitEvent(COPIES, "gathered"),
        Copy("host-to-device", 1 << 20, 50 * US, COPIES),
        Record("copied", COPIES),
        WaitEvent(NULL_STREAM, "copied"),
        gemm(400),
        SyncDevice(),
    )
)
"""Compute behind a copy behind a collective; all three begin in the first step, behind nothing."""


def test_a_copy_that_no_longer_waits_for_a_collective_holds_nobody_up_for_it(tmp_path):
    write_run(run(RELAYED), tmp_path / "run.sqlite", has_events=True)
    questions = (Question("hide", "communication"), Question("hide", "copies"))
    first_step = Options(selection=Selection(steps=(0, 0)))
    told = ask_what_if(tmp_path / "run.sqlite", first_step, Asked(questions), lambda _: None)
    unseen, _, both = (answer.won_ns for answer in told.answers)

    assert both == pytest.approx(unseen + 50 * US, abs=10 * US)  # the copy is not waited for either


def test_what_is_hidden_first_does_not_matter(tmp_path):
    """Behind a hidden copy stands what the copy waited for: a collective that is hidden too."""
    write_run(run(RELAYED), tmp_path / "run.sqlite", has_events=True)
    questions = (Question("hide", "communication"), Question("hide", "copies"))
    won = [
        ask_what_if(tmp_path / "run.sqlite", Options(), Asked(one), lambda _: None).answers[-1].won_ns
        for one in (questions, questions[::-1])
    ]

    assert won[0] == won[1] > 0
