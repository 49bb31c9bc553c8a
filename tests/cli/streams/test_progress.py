import logging

import pytest

from wallscope import kernels
from wallscope.cli.streams import Stages, report_progress


def test_rows_that_are_read_are_one_stage():
    stages = Stages()

    for what in ("reading", "reading", "finding steps"):
        stages.enter(what)

    assert [line.split(":")[0] for line in stages.lines()] == ["reading", "finding steps"]


def test_a_stage_tells_its_time_and_memory():
    stages = Stages()
    stages.enter("finding steps")

    (line,) = stages.lines()

    assert "of CPU time" in line
    assert line.endswith("at the peak")


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        pytest.param(logging.WARNING, [], id="quiet"),
        pytest.param(
            logging.INFO,
            ["reading KERNELS", "reading KERNELS: 7 rows", "naming kernels", "reading", "naming kernels"],
            id="verbose",
        ),
    ],
)
def test_the_stages_are_told_behind_the_work(caplog, level, expected):
    with caplog.at_level(level, logger="wallscope.cli.streams"), report_progress() as progress:
        for what in ("reading KERNELS", "reading KERNELS: 7 rows", "naming kernels"):
            progress(what)

    told = [record.message for record in caplog.records]
    assert [*told[:3], *(line.split(":")[0] for line in told[3:])] == expected


@pytest.mark.parametrize("is_compiled", [True, False])
def test_missing_compiled_loops_are_announced_once_when_work_begins(monkeypatch, capsys, is_compiled):
    monkeypatch.setattr(kernels, "is_compiled", lambda: is_compiled)
    with report_progress():
        pass
    assert capsys.readouterr().err == ""

    with report_progress() as progress:
        progress("reading KERNELS")
        progress("naming kernels")

    expected = (
        ""
        if is_compiled
        else (
            "wallscope: the compiled loops are missing (no C compiler or Python headers at installation):"
            " reading and analysis take several times as long\n"
        )
    )
    assert capsys.readouterr().err == expected
