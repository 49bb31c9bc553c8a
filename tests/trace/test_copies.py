import sqlite3

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope.model.schemas import COPIES, COPY_CAUSES, OPERATIONS, PASSES
from wallscope.nsys import read_capture
from wallscope.thresholds.causes import BULK_COPY_BYTES
from wallscope.trace.copies import classify_copies, find_round_trips

H, D = "host-to-device", "device-to-host"
BULK = 1 << 20


def causes(*rows: dict) -> list[str | None]:
    """The cause of each copy; they run one after the other, 10 ns each."""
    filled = [
        {
            "op": op,
            "rank_id": 0,
            "start_ns": 100 * op,
            "end_ns": 100 * op + 10,
            "bytes": BULK,
            "pass": None,
            "scope": -1,
            **row,
        }
        for op, row in enumerate(rows)
    ]
    found = classify_copies(
        pl.DataFrame([{key: row.get(key) for key in OPERATIONS} for row in filled], schema=OPERATIONS),
        pl.DataFrame([{key: row.get(key) for key in COPIES} for row in filled], schema=COPIES),
        pl.DataFrame([{key: row.get(key) for key in PASSES} for row in filled], schema=PASSES),
    )
    assert found.schema == COPY_CAUSES
    told = dict(found.iter_rows())
    return [told.get(op, "no row") for op in range(len(rows))]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param({"direction": H, "bytes": BULK_COPY_BYTES - 1}, "small-copy", id="65,535 bytes"),
        pytest.param({"direction": H, "bytes": BULK_COPY_BYTES}, "staging", id="65,536 bytes"),
        pytest.param({"direction": D, "bytes": 0}, "small-copy", id="no bytes to the host"),
        pytest.param({"direction": D, "bytes": BULK_COPY_BYTES}, "readback", id="to the host without return"),
        pytest.param({"direction": D, "bytes": None}, "readback", id="of unknown size"),
        pytest.param({"direction": "host-to-host", "bytes": 8}, "staging", id="inside the host"),
        pytest.param({"direction": "device-to-device", "bytes": 8}, "device-copy", id="on the device"),
        pytest.param({"direction": "migration-to-device", "bytes": 8}, "migration", id="pages to the device"),
        pytest.param({"direction": "migration-to-host"}, "migration", id="pages to the host"),
        pytest.param({"direction": "migration-between-devices"}, "migration", id="pages between devices"),
        pytest.param({"direction": "fill", "bytes": 8}, "fill", id="a fill"),
        pytest.param({"direction": "unknown"}, None, id="of unknown direction"),
        pytest.param({"direction": None}, None, id="of no direction"),
        pytest.param({"direction": "peer"}, "no row", id="between devices"),
    ],
)
def test_single_copies_are_told_by_direction_and_size(row, expected):
    assert causes(row) == [expected]


@pytest.mark.parametrize(
    ("directions", "expected"),
    [
        pytest.param([D, H], ["offload", "offload"], id="there and back"),
        pytest.param([H, D], ["staging", "readback"], id="back before it went"),
        pytest.param([D, D, D], ["readback"] * 3, id="never back"),
        pytest.param([D, D, H], ["offload", "readback", "offload"], id="one of two, the first"),
        pytest.param([D, H, H], ["readback", "staging", "staging"], id="as often fresh as brought back"),
        pytest.param([D, D, H, H], ["offload"] * 4, id="two there, two back"),
        pytest.param([H, D, H], ["staging", "offload", "offload"], id="input, then there and back"),
        pytest.param([D, D, D, H, H, H, H], ["offload"] * 6 + ["staging"], id="a quarter is fresh"),
        pytest.param([H, H, D] * 6, ["staging", "staging", "readback"] * 6, id="two inputs, one output"),
    ],
)
def test_copies_to_the_host_that_come_back_are_offload(directions, expected):
    assert causes(*({"direction": direction} for direction in directions)) == expected


@pytest.mark.parametrize(
    ("there", "back"),
    [
        pytest.param({"bytes": BULK}, {"bytes": BULK + 1}, id="another size"),
        pytest.param({"rank_id": 0}, {"rank_id": 1}, id="another process or device"),
        pytest.param({"end_ns": 150}, {"start_ns": 149, "end_ns": 160}, id="before it was there"),
        pytest.param({"bytes": BULK_COPY_BYTES - 1}, {"bytes": BULK_COPY_BYTES - 1}, id="too small"),
    ],
)
def test_a_return_has_the_size_and_the_place_and_comes_later(there, back):
    assert "offload" not in causes({"direction": D, **there}, {"direction": H, **back})


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        pytest.param([("optimizer", 3, D, 1), ("optimizer", 3, H, 2)], ["offload"] * 2, id="both directions"),
        pytest.param([("optimizer", 3, D, 1)], ["readback"], id="one direction"),
        pytest.param(
            [("optimizer", 3, D, 1), ("optimizer", 4, H, 2)], ["readback", "staging"], id="two steps"
        ),
        pytest.param([("forward", 3, D, 1), ("forward", 3, H, 2)], ["readback", "staging"], id="forward"),
    ],
)
def test_bulk_copies_around_the_optimizers_work_on_the_host_are_offload(inside, expected):
    rows = [
        {"pass": of, "scope": scope, "direction": direction, "bytes": BULK * times}
        for of, scope, direction, times in inside
    ]

    assert causes(*rows) == expected


COPY = st.tuples(st.sampled_from([H, D]), st.integers(0, 1), st.integers(1, 2), st.integers(0, 30))


def walked(rows: list[tuple]) -> set[int]:
    """Walk through time; each return takes the earliest that is away, sizes mostly fresh are dropped."""
    found: set[int] = set()
    for key in {row[1:3] for row in rows}:
        own = [(op, row) for op, row in enumerate(rows) if row[1:3] == key]
        moments = sorted((row[3] + 5 if row[0] == D else row[3], row[0] != D, op, row[0]) for op, row in own)
        away: list[int] = []
        trips, seen, later, fresh = [], False, 0, 0
        for _, _, op, direction in moments:
            if direction == D:
                away.append(op)
                seen = True
                continue
            later += seen
            if away:
                trips.extend([away.pop(0), op])
            else:
                fresh += seen
        if 4 * fresh <= later:
            found.update(trips)
    return found


@given(st.lists(COPY, max_size=25))
def test_round_trips_equal_a_walk_through_time(drawn):
    rows = sorted(drawn, key=lambda row: row[3])
    rank, size, at_ns = (np.array([row[column] for row in rows], np.int64) for column in (1, 2, 3))
    leaves = np.array([row[0] == D for row in rows], np.bool_)

    assert set(find_round_trips(rank, size, leaves, at_ns, at_ns + 5).tolist()) == walked(rows)


SQL = """
SELECT CASE WHEN copyKind IN (1, 2) AND bytes < 65536 THEN 'small-copy' WHEN copyKind = 1 THEN 'staging'
WHEN copyKind = 2 THEN 'readback' WHEN copyKind IN (11, 12) THEN 'migration' ELSE 'device-copy' END AS cause,
COUNT(*) AS copies, SUM(bytes) AS copied_bytes FROM CUPTI_ACTIVITY_KIND_MEMCPY GROUP BY cause ORDER BY cause
"""


@pytest.mark.parametrize(
    "stem",
    [
        pytest.param("cs336_zx_2.7B", id="weights loaded"),
        pytest.param("nsysai_h100_2gpu_1s", id="layers streamed in"),
        pytest.param("t4_streams_old", id="two inputs and an output of one size"),
        pytest.param("pipit_saxpy_mpi", id="the same from pageable memory"),
        pytest.param("perlmutter_vecadd_prefetch", id="unified memory"),
        pytest.param("a40_cutlass", id="one result"),
    ],
)
def test_copies_of_real_exports_that_offload_nothing(stem, traces):
    path = traces / f"{stem}.sqlite"
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    expected = connection.execute(SQL).fetchall()
    connection.close()
    capture = read_capture(path, lambda _: None)

    found = classify_copies(capture.operations, capture.copies, PASSES.to_frame())
    listed = (
        found.filter(pl.col("cause").cast(pl.String) != "fill")
        .join(capture.operations, on="op")
        .group_by(pl.col("cause").cast(pl.String))
        .agg(pl.len(), pl.col("bytes").sum())
    )
    assert listed.sort("cause").rows() == expected


def test_round_trips_of_a_real_export_are_two_of_one_size(traces):
    """TensorFlow sends 256 KiB to the host and back, twice; 768 KiB go in four times and out twice."""
    capture = read_capture(traces / "tf_2020_report23.sqlite", lambda _: None)

    found = classify_copies(capture.operations, capture.copies, PASSES.to_frame())
    sizes = found.filter(pl.col("cause") == "offload").join(capture.operations, on="op")["bytes"]

    assert sizes.to_list() == [262_144] * 4


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        pytest.param(
            [(D, 2), (D, 2), (H, 1), (D, 2), (H, 1), (H, 1)],
            ["offload"] * 6,
            id="gradients in FP32 leave, parameters in BF16 return",
        ),
        pytest.param(
            [(D, 1), (D, 1), (H, 2), (H, 2)], ["offload"] * 4, id="gradients in BF16, parameters in FP32"
        ),
        pytest.param(
            [(D, 2), (H, 1), (D, 2), (H, 1)],
            ["readback", "staging"] * 2,
            id="a result, then the next input: never two at a time",
        ),
        pytest.param([(D, 3), (D, 3), (H, 1), (H, 1)], ["readback"] * 2 + ["staging"] * 2, id="a third"),
        pytest.param(
            [(D, 2), (D, 2), *[(H, 1)] * 6],
            ["readback"] * 2 + ["staging"] * 6,
            id="most of them bring nothing back",
        ),
    ],
)
def test_bytes_that_the_host_casts_come_back_in_another_size(copies, expected):
    assert causes(*({"direction": way, "bytes": parts * BULK} for way, parts in copies)) == expected
