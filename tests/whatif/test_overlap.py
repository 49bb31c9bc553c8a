"""Communication that comes to run beside compute: what it wins, and what it takes from the compute."""

import polars as pl
import pytest

from fixtures.simulation import changed
from fixtures.simulation.program import NULL_STREAM, SyncDevice
from fixtures.simulation.run import run
from fixtures.simulation.story import US, all_to_all, alone, gemm, reduce_scatter
from fixtures.simulation.windows import busiest_stream, typical_step_ns
from fixtures.simulation.writing import write_run
from wallscope.analysis import Options, divide, gathered
from wallscope.model.whatif import Asked, Question
from wallscope.timeline.partners import partners
from wallscope.walls.accounting import rank_windows
from wallscope.walls.playable import playable
from wallscope.whatif import answered

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
    write_run(run(program), path, has_events=True)
    parts, division = divide(path, Options(), lambda _: None)
    facts, evidence = gathered(parts, division, Options(), lambda _: None)
    ranks = rank_windows(parts)
    between = partners(parts.operations, facts.collectives)
    stretch = playable(evidence, ranks, between, parts.phases, parts.capture.names, 0)
    typical = stretch.steps.filter(pl.col("typical"))
    step_ns = round((typical["end_ns"] - typical["start_ns"]).mean())
    texts = pl.Series("text", [""], pl.String).new_from_index(0, len(parts.phases.paths))
    return answered(stretch, Asked((question,)), step_ns, tax, texts).answers[0]


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
    assert "taken to be as fast as alone" in " ".join(answer.notes)


def test_compute_beside_communication_slows_by_the_measured_tax(tmp_path):
    question = Question("overlap", "communication")
    free, taxed = (asked(IN_ORDER, tmp_path / f"{tax}.sqlite", question, tax) for tax in (None, 1.25))

    # the all-to-all runs for 200 µs beside kernels of 350 µs, which take a quarter of that longer
    assert taxed.step_ns - free.step_ns == pytest.approx(50 * US, abs=2 * US)
    assert "1.25 times as long" in " ".join(taxed.notes)


def test_what_is_awaited_by_an_event_gains_nothing_on_another_stream(tmp_path):
    from fixtures.simulation.story import exchange

    program = alone(lambda _: (gemm(100), *exchange(200), gemm(100), SyncDevice()))
    answer = asked(program, tmp_path / "run.sqlite", Question("overlap", "communication"))

    assert answer.won_ns == 0
