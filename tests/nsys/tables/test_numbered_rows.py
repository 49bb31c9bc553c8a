"""Groups of columns that are read as numbers of distinct rows say the same as the columns themselves."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from fixtures.export import ExportWriter
from wallscope.model.enums import Reader
from wallscope.nsys import tables
from wallscope.nsys.sources import open_tables
from wallscope.nsys.tables import DistinctRows, make_database, read_row_numbers, read_table

GROUPS = {
    "origin": ("globalPid", "deviceId", "contextId", "streamId"),
    "named": ("demangledName", "shortName", "absent"),
    "shape": tables.LAUNCH_SHAPE,
    "nothing": ("missing",),
}
KERNELS = tables.CatalogTable(tables.KERNELS.name, (*tables.KERNELS.columns, "absent", "missing"))


@pytest.mark.parametrize("reader", Reader)
@pytest.mark.parametrize("count", [0, 1, 2_000])
def test_numbered_columns_give_the_rows_back(tmp_path, reader, count):
    path = tmp_path / "a.sqlite"
    with ExportWriter(path) as writer:
        writer.copy("host-to-device", 0, 5, 100)
        for nth in range(count):
            writer.kernel(
                f"k{nth % 7}", nth, nth + 1, stream=nth % 3, gridX=nth % 700, registersPerThread=nth % 3
            )
    with open_tables(path, reader=reader) as own:
        source = make_database(path, own)
        plain = read_table(source, KERNELS, lambda _: None)
        found, distinct = read_row_numbers(source, KERNELS, GROUPS, lambda _: None)
    assert distinct["shape"].is_unique().all()
    assert len(distinct["shape"]) == count
    assert len(distinct["nothing"]) == min(count, 1)
    columns = [distinct[name][found[name]] for name in GROUPS]
    assert_frame_equal(
        pl.concat([found.drop(*GROUPS), *columns], how="horizontal"), plain, check_column_order=False
    )


@given(st.lists(st.tuples(st.one_of(st.none(), st.integers(-2, 3)), st.integers(0, 200)), max_size=600))
def test_distinct_rows_of_frames_and_of_arrays_have_the_same_numbers(rows):
    frame = pl.DataFrame(rows, schema={"a": pl.Int64, "b": pl.Int64}, orient="row")
    numbered = DistinctRows("a", "b")
    first = numbered.number_frame(frame)
    again = numbered.number(np.array([frame["a"].fill_null(-(2**63)).to_numpy(), frame["b"].to_numpy()]))
    assert first.to_list() == again.tolist()
    assert numbered.list_rows(("a", "b")).rows() == list(dict.fromkeys(rows))
    assert [numbered.list_rows(("b", "a")).row(number)[::-1] for number in again.tolist()] == rows
