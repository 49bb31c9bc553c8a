from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from wallscope.timeline.call_spans import CallTimes
from wallscope.walls.pieces import PIECES, shortened

FRAMEWORK, OTHER, LAUNCH = "host/framework", "host/other-call", "host/launch-call"
OUTSIDE, QUERY, ANOTHER, ISSUING, LATER = -1, 0, 1, 2, 3
NEVER = -(2**62)


def told_short(*pieces, issues=(), processes=(0, 0)):
    """Pieces (thread, start, end, call, cause) shortened; `issues`: start, end, thread of issuing calls."""
    calls = {ISSUING + place: issue for place, issue in enumerate(issues)}
    rows = [calls.get(call, (NEVER, NEVER, -1)) for call in range(ISSUING + len(issues))]
    start_ns, end_ns, thread = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    waits = SimpleNamespace(calls=CallTimes(start_ns, end_ns, thread), blocking={})
    activity = SimpleNamespace(process=pl.Series(processes, dtype=pl.UInt32))
    operations = pl.DataFrame({"call": list(calls)}, schema={"call": pl.Int32})
    frame = pl.DataFrame(pieces, schema=PIECES, orient="row")
    evidence = SimpleNamespace(waits=waits, activity=activity)
    return shortened(frame, operations, evidence, ()).rows()


BUSY = (
    (0, 0, 4, OUTSIDE, FRAMEWORK),
    (0, 4, 5, QUERY, OTHER),
    (0, 5, 9, OUTSIDE, FRAMEWORK),
    (0, 9, 11, ANOTHER, OTHER),
    (0, 11, 12, OUTSIDE, FRAMEWORK),
)
SHORT = [(0, 0, 9, OUTSIDE, FRAMEWORK), (0, 9, 12, QUERY, OTHER)]


@pytest.mark.parametrize(
    ("pieces", "issues", "expected"),
    [
        pytest.param(BUSY, (), SHORT, id="time of one cause comes together"),
        pytest.param(
            (*BUSY[:2], (0, 5, 9, ISSUING, LAUNCH), *BUSY[3:]),
            ((5, 9, 0),),
            [
                (0, 0, 4, OUTSIDE, FRAMEWORK),
                (0, 4, 5, QUERY, OTHER),
                (0, 5, 9, ISSUING, LAUNCH),
                (0, 9, 11, ANOTHER, OTHER),
                (0, 11, 12, OUTSIDE, FRAMEWORK),
            ],
            id="but not across a launch",
        ),
        pytest.param(
            (BUSY[0], (0, 4, 9, QUERY, OTHER), *BUSY[3:]),
            ((5, 8, 0),),
            [
                (0, 0, 4, OUTSIDE, FRAMEWORK),
                (0, 4, 9, QUERY, OTHER),
                (0, 9, 11, ANOTHER, OTHER),
                (0, 11, 12, OUTSIDE, FRAMEWORK),
            ],
            id="nor across a call around a launch",
        ),
    ],
)
def test_between_launches_time_of_one_cause_is_one_piece(pieces, issues, expected):
    assert told_short(*pieces, issues=issues) == expected


def test_pieces_stay_where_another_thread_of_the_process_goes_on():
    other = ((1, 0, 6, OUTSIDE, FRAMEWORK),)
    kept = sorted((*BUSY, *other), key=lambda piece: (piece[2], piece[1]))

    assert told_short(*BUSY, *other) == kept
    assert told_short(*BUSY, *other, processes=(0, 1)) == sorted((*SHORT, *other), key=lambda piece: piece[2])
