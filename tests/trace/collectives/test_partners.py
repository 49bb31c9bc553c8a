"""Operations of several ranks are one collective where they overlap and end together, time and again."""

import polars as pl
import pytest

from wallscope.model.schemas import CLASSIFIED, COLLECTIVES
from wallscope.trace.collectives import find_partners

PERIOD_NS = 1_000_000
COUNT = 10
NO_CALLS = COLLECTIVES.to_frame()


def operations(*rows):
    """Kernels of (rank_id, start_ns, end_ns), of one name and stream unless told; numbered as they come."""
    empty = CLASSIFIED.to_frame().clear(len(rows))
    columns = {
        "op": range(len(rows)),
        "rank_id": [row["rank_id"] for row in rows],
        "stream": [row.get("stream", 7) for row in rows],
        "name": [row.get("name", 1) for row in rows],
        "start_ns": [row["start_ns"] for row in rows],
        "end_ns": [row["end_ns"] for row in rows],
        "class": [row.get("class", "communication") for row in rows],
    }
    return empty.with_columns(
        [pl.Series(name, list(values)).cast(CLASSIFIED[name]) for name, values in columns.items()]
    )


def series(rank_id, *, late_ns=0, length_ns=200_000, ends_later_ns=0, count=COUNT, **told):
    """One operation a period on a rank that comes late but ends when the others do."""
    return [
        {
            "rank_id": rank_id,
            "start_ns": place * PERIOD_NS + late_ns,
            "end_ns": place * PERIOD_NS + length_ns + ends_later_ns,
            **told,
        }
        for place in range(count)
    ]


def sizes(found):
    """How many operations each collective has."""
    return sorted(found.group_by("collective").len()["len"].to_list())


def test_operations_that_end_together_are_one_collective():
    found = find_partners(operations(*series(0), *series(1, late_ns=150_000)), NO_CALLS)

    assert found.rows() == [(op, place) for place in range(COUNT) for op in (place, place + COUNT)]


def test_a_collective_may_have_many_participants():
    rows = [row for rank_id in range(4) for row in series(rank_id, late_ns=40_000 * rank_id)]

    assert sizes(find_partners(operations(*rows), NO_CALLS)) == [4] * COUNT


@pytest.mark.parametrize(
    ("other", "why"),
    [
        pytest.param({"ends_later_ns": 60_000}, "ends apart from the first", id="ends-apart"),
        pytest.param({"name": 2}, "another kernel", id="name"),
        pytest.param({"class": "compute"}, "does not communicate", id="compute"),
        pytest.param({"count": 1}, "once may be chance", id="once"),
        pytest.param({"late_ns": 201_000, "ends_later_ns": 4_000}, "came when the other was out", id="after"),
    ],
)
def test_others_are_not(other, why):
    assert find_partners(operations(*series(0), *series(1, **other)), NO_CALLS).is_empty(), why


def scattered(rank_id, scale_ns, *, is_waited_for):
    """Operations that come up to so much late; they end with the others, or as late as they came."""
    late_ns = [scale_ns * (place * 7 % COUNT) // COUNT for place in range(COUNT)]
    return [
        row | {"start_ns": row["start_ns"] + late, "end_ns": row["end_ns"] + (0 if is_waited_for else late)}
        for row, late in zip(series(rank_id), late_ns, strict=True)
    ]


@pytest.mark.parametrize(
    ("is_waited_for", "size"), [(True, [2] * COUNT), (False, [])], ids=["waits for it", "only runs beside it"]
)
def test_what_ends_as_far_apart_as_it_starts_is_no_collective(is_waited_for, size):
    rows = operations(*series(0), *scattered(1, 20_000, is_waited_for=is_waited_for))

    assert sizes(find_partners(rows, NO_CALLS)) == size


def test_clocks_of_two_devices_may_differ_by_some_microseconds():
    rows = scattered(1, 100_000, is_waited_for=True)
    shifted = [row | {side: row[side] - 22_000 for side in ("start_ns", "end_ns")} for row in rows]

    assert sizes(find_partners(operations(*series(0), *shifted), NO_CALLS)) == [2] * COUNT


def test_operations_of_one_rank_are_never_one_collective():
    assert find_partners(operations(*series(0), *series(0, stream=9)), NO_CALLS).is_empty()


def test_streams_tell_groups_of_one_kernel_apart():
    apart = [
        series(rank_id, stream=9, late_ns=500_000, length_ns=700_000 + 90_000 * rank_id) for rank_id in (0, 1)
    ]
    found = find_partners(operations(*series(0), *series(1), *apart[0], *apart[1]), NO_CALLS)

    assert found["op"].max() < 2 * COUNT
    assert sizes(found) == [2] * COUNT


def test_communicators_tell_them_apart_too():
    rows = operations(*series(0), *series(1))
    calls = pl.DataFrame(
        {"op": rows["op"], "communicator": [11] * COUNT + [12] * COUNT},
        schema={"op": pl.UInt32, "communicator": pl.UInt64},
    )
    told = pl.concat([NO_CALLS, calls], how="diagonal")

    assert find_partners(rows, told).is_empty()


def test_one_that_a_capture_lacks_leaves_the_others_matched():
    lacking = series(1, late_ns=50_000)[1:]
    found = find_partners(operations(*series(0), *lacking), NO_CALLS)

    assert sizes(found) == [2] * (COUNT - 1)
