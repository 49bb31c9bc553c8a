import polars as pl
import pytest

from wallscope.errors import SelectionError
from wallscope.model.capture import FOREVER_NS, Selection
from wallscope.model.schemas import STEPS
from wallscope.trace.steps import select_windows

WINDOWS = pl.DataFrame(
    [
        (0, 0, 100, 200, 90, 190, False, "warm-up"),
        (0, 1, 200, 300, 190, 290, True, None),
        (0, 2, 300, 400, 290, 390, True, None),
        (0, 3, 400, 450, 390, FOREVER_NS, False, "ends with the capture"),
        (1, 0, 300, 500, -FOREVER_NS, FOREVER_NS, False, "the whole capture, not a step"),
    ],
    schema=STEPS,
    orient="row",
)
"""Two ranks: four steps, and one window where no step was found."""


def found(*columns: str, **options) -> list[tuple]:
    return select_windows(WINDOWS, Selection(**options)).select("rank_id", "step", *columns).rows()


def test_without_a_selection_windows_stay_as_they_are():
    whole = select_windows(WINDOWS, Selection())

    assert whole.select(STEPS.names()).equals(WINDOWS)
    assert whole["selected"].all()


def test_a_time_cuts_windows_that_keep_their_numbers():
    assert found("start_ns", "end_ns", "reason", time_ns=(250, 420)) == [
        (0, 1, 250, 300, "cut by --time"),
        (0, 2, 300, 400, None),
        (0, 3, 400, 420, "cut by --time"),
        (1, 0, 300, 420, "cut by --time"),
    ]


def test_windows_that_the_time_cuts_are_selected_only_where_none_is_whole():
    assert found("selected", time_ns=(250, 420)) == [
        (0, 1, False),
        (0, 2, True),
        (0, 3, False),
        (1, 0, True),
    ]
    assert found("selected", time_ns=(250, 350)) == [(0, 1, True), (0, 2, True), (1, 0, True)]


def test_steps_beside_a_time_mean_the_same_steps():
    assert found("selected", "steady", "reason", steps=(2, 2), time_ns=(200, 420)) == [
        (0, 1, False, False, "not among --steps 2"),
        (0, 2, True, True, None),
        (0, 3, False, False, "not among --steps 2"),
    ]


def test_the_hosts_time_is_cut_with_its_window_and_where_it_is_open():
    assert found("issue_start_ns", "issue_end_ns", "host_until_ns", time_ns=(250, 460)) == [
        (0, 1, 250, 290, 460),
        (0, 2, 290, 390, FOREVER_NS),
        (0, 3, 390, 460, 460),
        (1, 0, 250, 460, 460),
    ]
    assert found("issue_start_ns", "issue_end_ns", time_ns=(340, 345)) == [(0, 2, 340, 345), (1, 0, 340, 345)]


def test_a_rank_without_a_selected_window_is_left_out():
    assert {rank for rank, *_ in found(steps=(1, 2))} == {0}
    assert {rank for rank, *_ in found(time_ns=(460, 470))} == {1}


def test_a_window_without_length_is_inside_a_time_that_holds_it():
    point = WINDOWS.head(1).with_columns(start_ns=pl.lit(100, pl.Int64), end_ns=pl.lit(100, pl.Int64))

    assert len(select_windows(point, Selection(time_ns=(100, 101)))) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param({"time_ns": (0, 100)}, "holds no part of a step", id="before the first window"),
        pytest.param({"time_ns": (500, 600)}, "between 0.000000100 and 0.000000500", id="behind the last"),
        pytest.param(
            {"steps": (4, 9)}, "--steps 4-9 — are not in this export — it has steps 0-3", id="steps"
        ),
        pytest.param(
            {"steps": (0, 0), "time_ns": (250, 299)},
            "--steps 0 — are not in the time of --time — it has steps 1",
            id="steps at another time",
        ),
    ],
)
def test_what_is_not_there_is_refused(options, said):
    with pytest.raises(SelectionError, match=said):
        select_windows(WINDOWS, Selection(**options))
