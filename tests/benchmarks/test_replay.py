from benchmarks.replay import QUESTIONS, load_window, table, timed
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.writing import write_run


def test_each_question_and_what_comes_before_has_a_row(tmp_path):
    write_run(run(random_program(5)), tmp_path / "run.sqlite", has_events=True)
    spent_s = timed(load_window(tmp_path / "run.sqlite", 1_000), rounds=2)
    rows = table(spent_s).splitlines()[2:]

    assert list(spent_s)[1:] == [f"`{question.option}`" for question in QUESTIONS]
    assert [row.split(" | ")[0] for row in rows] == [f"| {name}" for name in spent_s]
