from fractions import Fraction

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from wallscope.attribution.totals import make_typical_work
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import Wall
from wallscope.model.schemas import CLASSIFIED, NAMES, NESTED, PATHS, SLICES
from wallscope.summary.ranges import find_host_range, measure_range_work, sum_range_walls
from wallscope.trace.ranges import RangeTree

STEPS = pl.DataFrame(
    [(10, 40, 0, 20, 1_000), (40, 60, 20, 50, 1_000)],
    schema=["start_ns", "end_ns", "issue_start_ns", "issue_end_ns", "host_until_ns"],
    orient="row",
)
PARENTS = [-1, 0, 1, 0, -1, 4]
TREE = {**NESTED, "process": pl.UInt32()}
OPERATION = st.tuples(st.integers(0, 70), st.integers(0, 15), st.integers(-1, len(PARENTS) - 1))
RANGE = st.tuples(st.integers(0, len(PARENTS) - 1), st.integers(0, 60), st.integers(0, 20), st.integers(0, 1))


def around(path: int) -> set[int]:
    found = set[int]()
    while path >= 0:
        found.add(path)
        path = PARENTS[path]
    return found


def mean(total: int) -> int:
    return round(Fraction(total, len(STEPS)))


def instants(rows) -> list[int]:
    return [at for start, length, _ in rows for at in range(start, start + length) if 10 <= at < 60]


@given(st.lists(OPERATION, max_size=12), st.lists(RANGE, max_size=5))
def test_time_and_work_of_paths_equal_a_count_of_instants(drawn, ranges):
    rows = sorted(drawn)
    operations = pl.DataFrame(
        [
            {"op": op, "start_ns": start, "end_ns": start + length, "class": "compute", "category": "gemm"}
            for op, (start, length, _) in enumerate(rows)
        ],
        schema=CLASSIFIED,
    )
    tree = pl.DataFrame(
        [
            {"range": number, "path": path, "start_ns": at, "end_ns": at + length, "process": process}
            for number, (path, at, length, process) in enumerate(ranges)
        ],
        schema=TREE,
    )
    paths = pl.DataFrame(
        [
            {"path": path, "parent": parent, "name": 0, "depth": len(around(path)) - 1}
            for path, parent in enumerate(PARENTS)
        ],
        schema=PATHS,
    )
    work = make_typical_work(operations, STEPS)
    of_op = {op: path for op, (_, _, path) in enumerate(rows)}
    path_of_row = np.array([of_op[op] for op in work.columns.op.tolist()], np.int64)

    found = {one.path: one for one in measure_range_work(work, path_of_row, tree, 1, paths)}

    touching = [rows[op] for op in work.columns.op.tolist()]
    for path in range(len(PARENTS)):
        own = [row for row in touching if row[2] == path]
        inside = [row for row in touching if path in around(row[2])]
        begun = [one for one in ranges if one[0] == path and one[3] == 1 and one[1] < 50]
        assert (path in found) == bool(inside or begun)
        if path in found:
            told = found[path]
            assert (told.gpu_ns, told.own_gpu_ns) == (
                mean(len(set(instants(inside)))),
                mean(len(set(instants(own)))),
            )
            assert (told.work_ns, told.own_work_ns) == (mean(len(instants(inside))), mean(len(instants(own))))
            assert told.instances == (mean(len(begun)) if begun else None)
            assert told.host_ns == (mean(sum(one[2] for one in begun)) if begun else None)


SPENT = st.tuples(st.integers(1, 40), st.sampled_from(["host", "compute", "memory"]), st.integers(-1, 5))


@given(st.lists(SPENT, min_size=1, max_size=10))
def test_the_range_of_host_time_is_the_innermost_that_holds_half_of_it(spent):
    edges = np.cumsum([0, *(length for length, *_ in spent)])
    slices = pl.DataFrame(
        {
            "start_ns": edges[:-1],
            "end_ns": edges[1:],
            "wall": [wall for _, wall, _ in spent],
            "range": [path for *_, path in spent],
        },
        schema={column: SLICES[column] for column in ("start_ns", "end_ns", "wall", "range")},
    )
    tree = pl.DataFrame(
        {"range": range(len(PARENTS)), "path": range(len(PARENTS))},
        schema={column: TREE[column] for column in ("range", "path")},
    )
    paths = pl.DataFrame(
        [
            {"path": path, "parent": parent, "name": path, "depth": len(around(path)) - 1}
            for path, parent in enumerate(PARENTS)
        ],
        schema=PATHS,
    )
    names = pl.DataFrame({"name": range(6), "text": list("abcdef")}, schema=NAMES)
    total = {wall: sum(length for length, of, _ in spent if of == wall) for wall in Wall}

    ranges = RangeTree(tree, paths, names)
    found = find_host_range(ranges, sum_range_walls(ranges, slices, 1), Walls(**total))

    def inside(path: int, *walls: str) -> int:
        return sum(length for length, wall, at in spent if wall in walls and path in around(at))

    half = [path for path in range(6) if 2 * inside(path, "host") >= total[Wall.HOST] > 0]
    deepest = max(half, key=lambda path: len(around(path)), default=None)
    if deepest is None or 20 * inside(deepest, *Wall) > 19 * sum(total.values()):
        assert found is None
    else:
        assert (found.host_ns, found.name) == (inside(deepest, "host"), "abcdef"[deepest])
