"""The tables behind the answer: they follow their declaration, and their sums are those of the answer."""

import polars as pl
import pytest

from fixtures.export import ExportWriter
from wallscope.demo.machine import SimulatedMachine
from wallscope.errors import UnknownWordError
from wallscope.model.capture import Options, Selection
from wallscope.model.enums import Wall
from wallscope.model.table_columns import TABLES
from wallscope.pipeline import analyze_capture, build_tables
from wallscope.preparation import look_up_gaps


def write(path):
    with ExportWriter(path) as writer:
        writer.gpu()
        machine = SimulatedMachine(writer, pid=1000, device=0)
        main = machine.thread("python", start_ns=1_000_000)
        for _ in range(6):
            with main.range("train_step"):
                with main.range("forward"):
                    main.launch("gemm_kernel", 400_000, stream=7)
                main.work(100_000)
                main.copy("host-to-device", 1 << 20, 50_000, stream=7)
                main.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 300_000, stream=7)
                main.synchronize()
                main.work(50_000)


def made(path, **selected):
    return analyze_capture(
        path, Options(step_range="train_step", selection=Selection(**selected)), lambda _: None
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "run.sqlite"
    write(path)
    return path


@pytest.fixture(scope="module")
def found(path):
    return made(path)


@pytest.fixture(scope="module")
def tables(found):
    return build_tables(found)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_is_as_declared(tables, table):
    assert tables.frame(table.name).schema == table.schema


def test_names_and_columns_are_told_once():
    assert len({table.name for table in TABLES}) == len(TABLES)
    for table in TABLES:
        assert len(table.schema) == len(table.columns)
        assert all(column.meaning for column in table.columns)


def test_columns_of_time_say_their_unit():
    for table in TABLES:
        for column in table.columns:
            is_time = column.meaning in {"begin", "end"} or "duration" in column.name
            assert not is_time or column.name.endswith("_ns")


def test_an_unknown_table_is_refused_with_the_names_of_all(tables):
    with pytest.raises(UnknownWordError, match=r"slicez — is not a table — the tables are ranks, .*slices"):
        tables.frame("slicez")


def test_slices_tile_the_steps_and_sum_to_the_walls_and_budget_of_the_answer(found, tables):
    slices = tables.frame("slices").sort("start_ns")
    for step in found.analysis.ranks[0].steps:
        own = slices.filter(pl.col("step") == step.index)
        bounds = own["start_ns"].to_list() + own["end_ns"].tail(1).to_list()
        walls = dict(own.group_by("wall").agg(pl.col("duration_ns").sum()).rows())
        states = dict(own.group_by("state").agg(pl.col("duration_ns").sum()).rows())

        assert bounds == [step.start_ns, *own["end_ns"].to_list()]
        assert tuple(walls.get(wall, 0) for wall in Wall) == step.walls.parts()
        assert states == {
            name: time_ns
            for name in ("compute", "opaque_graph", "exposed_communication", "exposed_copy", "idle")
            if (time_ns := getattr(step.budget, name))
        }


def test_causes_of_a_step_sum_to_it(tables):
    summed = tables.frame("step_causes").group_by("step").agg(pl.col("owned_ns").sum()).sort("step")
    steps = tables.frame("steps")

    assert summed["owned_ns"].to_list() == steps["duration_ns"].to_list()


def test_gaps_are_those_that_the_proof_tells(path, tables):
    told = look_up_gaps(path, Options(step_range="train_step"), lambda _: None).gaps(1_000)
    told = sorted(told, key=lambda gap: (-gap.row["duration_ns"], gap.row["start_ns"]))
    columns = ["step", "start_ns", "end_ns", "duration_ns", "cause", "cause_ns", "ended_by", "path"]
    rows = tables.frame("gaps").sort("duration_ns", "start_ns", descending=[True, False]).select(columns)

    assert rows.rows() == [tuple(gap.row[name] for name in columns) for gap in told]


def test_operations_have_names_calls_and_ranges(tables):
    operations = tables.frame("operations").sort("start_ns").head(3)

    assert operations.select("name", "kind", "class", "axis", "path").rows() == [
        ("gemm_kernel", "kernel", "compute", None, "train_step / forward"),
        ("copy host-to-device", "copy", "copy", None, "train_step"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "kernel", "communication", "unknown", "train_step"),
    ]
    calls = tables.frame("calls")
    issued = operations.join(calls.select("call", began_ns="start_ns"), on="call", how="left")
    assert issued["began_ns"].to_list() == issued["call_start_ns"].to_list()


def test_collectives_are_the_operations_that_communicate(tables):
    operations = tables.frame("operations").filter(pl.col("class") == "communication")

    assert tables.frame("collectives")["op"].to_list() == operations["op"].to_list()


def test_a_selection_leaves_what_runs_in_it_and_what_issued_that(path):
    found = made(path, steps=(2, 3))
    tables, steps = build_tables(found), found.analysis.ranks[0].steps
    from_ns, until_ns = steps[2].start_ns, steps[3].end_ns
    operations, calls = tables.frame("operations"), tables.frame("calls")

    assert set(tables.frame("slices")["step"]) == {2, 3}
    assert set(tables.frame("gaps")["step"]) == {2, 3}
    assert len(operations) == 6
    assert operations["start_ns"].min() >= from_ns
    assert operations["end_ns"].max() <= until_ns
    assert set(operations["call"]) <= set(calls["call"])
    assert 6 <= len(calls) < len(build_tables(made(path)).frame("calls"))
