from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.attribution import brute_slices
from tests.attribution.brute_programs import (
    SAME_EACH_TIME,
    busy_hosts,
    jittered,
    possible,
    programmatic,
    senseless,
)
from tests.attribution.brute_trace import Call, Op, Trace, operations, slices, windows
from wallscope.attribution.totals import measure_budgets
from wallscope.model.enums import DeviceState
from wallscope.model.schemas import BUDGET_PARTS, SLICES

COLUMNS = list(SLICES.names())
SAID = [{"start": "start_ns", "end": "end_ns"}.get(name, name) for name in brute_slices.Moment._fields]
CUTS = st.lists(st.integers(0, 60), max_size=3)
BEYOND = st.tuples(st.integers(0, 40), st.integers(0, 40))


def said(frame):
    return brute_slices.merged([brute_slices.Moment(*row) for row in frame.select(SAID).iter_rows()])


def edges_of(trace, cuts, beyond=(0, 0)):
    """Edges of windows inside the time in which the device was seen, but for so much at both ends."""
    start, end = trace.ops[0].start, max(op.end for op in trace.ops)
    return sorted({start - beyond[0], end + beyond[1]} | {min(start + cut, end) for cut in cuts})


def length_ns(frame):
    return int((frame["end_ns"] - frame["start_ns"]).sum())


@pytest.mark.parametrize(
    "traces",
    [busy_hosts(possible()), busy_hosts(jittered()), programmatic()],
    ids=["possible", "jittered", "programmatic"],
)
@SAME_EACH_TIME
@given(data=st.data(), cuts=CUTS, beyond=BEYOND)
def test_slices_equal_those_of_the_dull_way(traces, data, cuts, beyond):
    trace = data.draw(traces)
    edges = edges_of(trace, cuts, beyond)

    assert said(slices(trace, edges)) == brute_slices.slices(trace, edges)


@given(senseless(), CUTS, BEYOND)
def test_slices_tile_the_windows_whatever_the_rows_say(trace, cuts, beyond):
    edges = edges_of(trace, cuts, beyond)

    found = slices(trace, edges)

    assert found.schema == SLICES
    assert [edges[0], *found["end_ns"]] == [*found["start_ns"], edges[-1]]
    assert (found["end_ns"] > found["start_ns"]).all()
    assert [edges[step] for step in found["step"]] <= found["start_ns"].to_list()
    for step, (start, end) in enumerate(pairwise(edges)):
        assert length_ns(found.filter(found["step"] == step)) == end - start


@given(senseless(), CUTS)
def test_states_sum_to_the_budget_and_reasons_to_the_time_without_compute(trace, cuts):
    edges = edges_of(trace, cuts)
    found = slices(trace, edges)
    parts = measure_budgets(operations(trace), windows(edges))

    for step in range(len(edges) - 1):
        own = found.filter(found["step"] == step)
        budget = parts.row(step, named=True)
        of_state = [length_ns(own.filter(own["state"] == str(state))) for state in DeviceState]
        assert of_state == [budget[name] for name in BUDGET_PARTS]
        absent = length_ns(own.filter(own["absent"].is_not_null()))
        assert absent == edges[step + 1] - edges[step] - budget["compute_ns"] - budget["opaque_graph_ns"]


LAUNCH_OF_NO_LENGTH = Trace(
    (
        *(Op(0, 0, 0, "compute"),) * 2,
        Op(0, 0, 0, "compute", call=1),
        Op(0, 1, 3_001, "compute", call=0),
    ),
    (Call(0, 1, 3_001, "launch"), Call(1, 0, 0, "launch")),
)


@given(senseless(), CUTS, CUTS)
@example(LAUNCH_OF_NO_LENGTH, [], [])
def test_finer_windows_say_the_same(trace, cuts, more):
    coarse, fine = edges_of(trace, cuts), edges_of(trace, cuts + more)

    once, again = said(slices(trace, coarse)), said(slices(trace, fine))

    assert steps_apart(once, fine) == steps_apart(again, fine)


HELD_WITHOUT_A_LAUNCH = Trace(
    (
        Op(0, 2, 2, "compute", call=0),
        Op(1, 3, 3, "compute", call=1),
        Op(1, 50_008, 50_008, "compute"),
        Op(0, 51_995, 51_995, "compute", call=3),
    ),
    (
        Call(0, 1, 2, "launch"),
        Call(0, 2, 3, "launch"),
        Call(0, 50_004, 50_005, "launch"),
        Call(0, 50_005, 50_006, "launch"),
    ),
)


def test_work_that_waits_on_an_idle_device_without_a_launch_is_held():
    edges = edges_of(HELD_WITHOUT_A_LAUNCH, [])
    found = said(slices(HELD_WITHOUT_A_LAUNCH, edges))

    assert found == brute_slices.slices(HELD_WITHOUT_A_LAUNCH, edges)
    assert ("unattributed/held-while-idle", 50_005) in {(row.cause, row.end - row.start) for row in found}


def steps_apart(rows, edges):
    """The rows cut at some moments, without their step."""
    found = []
    for row in rows:
        inner = [edge for edge in edges if row.start < edge < row.end]
        sides = [row.start, *inner, row.end]
        found += [row._replace(step=0, start=start, end=end) for start, end in pairwise(sides)]
    return found
