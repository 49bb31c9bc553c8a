import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from wallscope.attribution.totals import measure_budgets
from wallscope.model.enums import OperationClass
from wallscope.model.schemas import BUDGET_PARTS, CLASSIFIED, WINDOWS

OPERATION = st.tuples(
    st.sampled_from(list(OperationClass)), st.integers(0, 1), st.integers(0, 50), st.integers(0, 20)
)


def classified(rows: list[tuple[str, int, int, int]]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"class": kind, "rank_id": rank, "start_ns": start, "end_ns": end}
            for kind, rank, start, end in rows
        ],
        schema=CLASSIFIED,
    )


def everything(rows: list[tuple[str, int, int, int]]) -> pl.DataFrame:
    """One window from the first start to the last end."""
    window = (0, 0, min(start for *_, start, _ in rows), max(end for *_, end in rows))
    return pl.DataFrame([window], schema=WINDOWS, orient="row")


def dull(rows: list[tuple[str, int, int, int]], rank: int, start_ns: int, end_ns: int) -> tuple[int, ...]:
    """Nanosecond by nanosecond: the first class in order of precedence that runs."""
    order = [*OperationClass, None]
    counts = dict.fromkeys(order, 0)
    for instant in range(start_ns, end_ns):
        running = {kind for kind, own, start, end in rows if own == rank and start <= instant < end}
        counts[next((kind for kind in OperationClass if kind in running), None)] += 1
    return tuple(counts[kind] for kind in order)


@given(st.lists(OPERATION, min_size=1, max_size=15), st.lists(st.integers(0, 80), min_size=2, max_size=5))
def test_budgets_equal_a_count_of_instants_and_sum_to_their_windows(drawn, cuts):
    rows = [(kind, rank, start, start + length) for kind, rank, start, length in drawn]
    edges = sorted(cuts)
    windows = [(rank, step, *edges[step : step + 2]) for rank in (0, 1) for step in range(len(edges) - 1)]

    found = measure_budgets(classified(rows), pl.DataFrame(windows, schema=WINDOWS, orient="row"))

    assert found.select(BUDGET_PARTS).rows() == [
        dull(rows, rank, start_ns, end_ns) for rank, _, start_ns, end_ns in windows
    ]
    assert found.select(pl.sum_horizontal(BUDGET_PARTS)).to_series().to_list() == [
        end_ns - start_ns for *_, start_ns, end_ns in windows
    ]


@given(st.lists(OPERATION, min_size=1, max_size=10), st.integers(2, 1_000_000))
def test_all_times_scaled_scale_the_budget(drawn, factor):
    rows = [(kind, rank, start, start + length) for kind, rank, start, length in drawn]
    scaled = [(kind, rank, factor * start, factor * end) for kind, rank, start, end in rows]

    once = measure_budgets(classified(rows), everything(rows)).select(BUDGET_PARTS)
    found = measure_budgets(classified(scaled), everything(scaled)).select(BUDGET_PARTS)

    assert found.rows() == [tuple(factor * part for part in row) for row in once.rows()]
