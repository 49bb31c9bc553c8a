"""Waits for a thread that holds the driver have a cause of their own."""

import pytest

from tests.attribution.brute_trace import Call, Op, evidence, operations
from tests.trace.walking import launch, trace_of, waits_of
from wallscope.attribution.host_waits import list_locked_calls, mark_lock_waits
from wallscope.attribution.slices import blame_gaps
from wallscope.model.enums import LINK_KINDS

US = 1_000


def marked(*rows):
    """From, to, kind, call and thread of each link, in microseconds."""
    trace = trace_of(*rows)
    told = evidence(trace)
    links = mark_lock_waits(
        blame_gaps(operations(trace), told.constraints),
        told.waits,
        list_locked_calls(told.waits, told.calls["role"]),
    )
    sides = ((links.start_ns / US).tolist(), (links.end_ns / US).tolist())
    kinds = [str(LINK_KINDS[kind]) for kind in links.kind.tolist()]
    return [*zip(*sides, kinds, links.call.tolist(), links.thread.tolist(), strict=True)]


def beside(holder, *, held=(100, 200), role="launch"):
    """A call of the launching thread next to one of another thread, and the kernel launched behind."""
    return (
        launch(0, 0),
        launch(0, 2),
        Call(0, *held, role),
        launch(0, held[1], held[1] + 1),
        holder,
        Op(0, 10, 20, "compute", 0),
        Op(1, 15, 195, "copy", 1),
        Op(0, held[1] + 5, held[1] + 9, "compute", 3),
    )


def test_the_wait_for_a_synchronization_of_another_thread_is_one_for_the_driver():
    """The other thread waits for the copy, which runs from 15 to 195. Until 100 nobody waits for the lock."""
    assert marked(*beside(Call(1, 90, 202, "context"))) == [
        (20, 100, "operation", 2, -1),
        (100, 195, "driver-lock", 2, 0),
        (195, 200, "driver-lock", 2, 0),
        (200, 201, "launch-call", 3, 0),
        (201, 205, "launch-latency", 3, 0),
    ]


def test_the_wait_for_a_copy_of_another_thread_is_one_for_the_driver():
    assert marked(*beside(Call(1, 90, 190, "copy")))[-4:] == [
        (100, 190, "driver-lock", 2, 0),
        (190, 200, "launch-call", 2, 0),
        (200, 201, "launch-call", 3, 0),
        (201, 205, "launch-latency", 3, 0),
    ]


def test_a_kernel_that_starts_before_its_launch_returns_waited_for_the_driver_too():
    rows = (
        launch(0, 0),
        Call(0, 100, 200, "launch"),
        Call(1, 90, 190, "copy"),
        Op(0, 10, 20, "compute", 0),
        Op(0, 195, 199, "compute", 1),
    )

    assert marked(*rows)[-2:] == [(100, 190, "driver-lock", 1, 0), (190, 195, "launch-call", 1, 0)]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(beside(Call(1, 90, 190, "alloc")), id="allocation of another thread"),
        pytest.param(beside(Call(1, 90, 190, "copy"), role="alloc"), id="an allocation that waits"),
        pytest.param(beside(Call(1, 90, 150, "copy")), id="a copy that returns earlier"),
        pytest.param(beside(Call(0, 90, 95, "copy")), id="a copy of the same thread"),
        pytest.param(beside(Call(1, 110, 190, "copy")), id="a copy that begins later"),
    ],
)
def test_other_calls_wait_for_no_driver(rows):
    assert [row for row in marked(*rows) if row[2] == "driver-lock"] == []


def test_links_tile_the_gap_as_before():
    rows = beside(Call(1, 90, 202, "context"))
    links = marked(*rows)

    assert [row[1] for row in links[:-1]] == [row[0] for row in links[1:]]
    assert (links[0][0], links[-1][1]) == (20, 205)
    assert waits_of(*rows).holder[2] == 4
