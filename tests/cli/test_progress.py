import logging

import pytest

from wallscope.cli.progress import Stages, reported


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
    with caplog.at_level(level, logger="wallscope.cli.progress"), reported() as progress:
        for what in ("reading KERNELS", "reading KERNELS: 7 rows", "naming kernels"):
            progress(what)

    told = [record.message for record in caplog.records]
    assert [*told[:3], *(line.split(":")[0] for line in told[3:])] == expected
