"""What was read, as tables: every row of the file, with its names."""

import json

import polars as pl
import pytest

from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.shapes import find_operator
from fixtures.simulation.torch_writing import write_torch_run
from fixtures.simulation.writing import write_run
from wallscope.model.capture_columns import CAPTURE_TABLES

RUN = run(random_program(4))


@pytest.fixture(params=["nsys", "torch"])
def file(request, tmp_path):
    if request.param == "torch":
        return write_torch_run(RUN, tmp_path / "trace.json.gz", 0)
    write_run(RUN, tmp_path / "run.sqlite", ranks=[0])
    return tmp_path / "run.sqlite"


def test_tables_hold_every_row_with_its_name(file, tmp_path, wallscope):
    ran = wallscope("convert", str(file), "--to", "parquet", str(tmp_path / "tables"))
    own = RUN.ranks[0]
    tables = {
        table.name: pl.read_parquet(tmp_path / f"tables/{table.name}.parquet") for table in CAPTURE_TABLES
    }
    kernels = tables["operations"].filter(pl.col("kind") == "kernel")

    assert (ran.code, ran.out) == (0, "")
    assert len(tables["operations"]) == len(own.operations)
    assert sorted(kernels["name"]) == sorted(one.name for one in own.operations if one.name)
    assert len(tables["calls"]) == len(own.calls)
    assert all(tables[table.name].schema == table.schema for table in CAPTURE_TABLES)


def test_flops_of_operators_are_in_the_table_of_operations(tmp_path, wallscope):
    trace = write_torch_run(RUN, tmp_path / "trace.json", 0, has_shapes=True)
    wallscope("convert", str(trace), "--to", "parquet", str(tmp_path / "tables"))
    known = pl.read_parquet(tmp_path / "tables/operations.parquet").drop_nulls("flops")
    issued = [one for one in map(find_operator, RUN.ranks[0].operations) if one is not None]

    assert known["operator"].n_unique() == len(known) == len(issued)
    assert sorted(known["flops"]) == sorted(one.flops for one in issued)


def test_the_manifest_tells_the_columns_and_the_folder_may_be_written_again(file, tmp_path, wallscope):
    folder = tmp_path / "tables"
    for _ in range(2):
        assert wallscope("convert", str(file), str(folder), "--to", "csv").code == 0
    manifest = json.loads((folder / "manifest.json").read_text())

    assert [table["name"] for table in manifest["tables"]] == [table.name for table in CAPTURE_TABLES]
    assert manifest["source"] == file.name


def test_a_folder_with_other_files_is_left_alone(file, tmp_path, wallscope):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    ran = wallscope("convert", str(file), str(tmp_path / "full"))

    assert ran.code == 2
    assert "holds other files" in ran.err
    assert [entry.name for entry in (tmp_path / "full").iterdir()] == ["notes"]
