"""All steps at low detail: nothing is lost of walls and causes, and pages read what was packed."""

from collections import Counter

import numpy as np
import polars as pl
import pytest

from fixtures.simulation.program import Program
from fixtures.simulation.run import run
from fixtures.simulation.writing import write_run
from tests.jobs.simulated import RANKS, thread
from tests.views.test_page_analysis import find_starts, reported, unpacked, write
from wallscope.model.enums import DeviceState, LinkKind, Wall
from wallscope.model.report import OVERVIEW_SLICES
from wallscope.render.timeline_pack import pack_timelines
from wallscope.summary.step_timeline import merge_slices

CAUSES = ("compute/gemm", "communication/ep/unsplit", "memory/fill", "host/framework")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("overview") / "run.sqlite"
    write(path)
    return reported(path)


def make_slices(seed, steps=3, count=200):
    """Random slices that tile their steps, most of them short."""
    random = np.random.default_rng(seed)
    rows = []
    for step in range(steps):
        lengths = np.where(
            random.random(count) < 0.1, random.integers(2_000, 9_000, count), random.integers(1, 90, count)
        )
        start = 1_000_000 * step + int(random.integers(1_000))
        end = start + int(lengths.sum())
        at = start
        for length in lengths.tolist():
            cause = CAUSES[int(random.integers(len(CAUSES)))]
            kind = None if cause.startswith("compute") else LinkKind.OPERATION
            rows.append((0, step, at, at + length, kind, cause.partition("/")[0], cause, start, end))
            at += length
    names = (
        "place",
        "step",
        "start_ns",
        "end_ns",
        "kind",
        "wall",
        "cause",
        "start_ns_of_step",
        "end_ns_of_step",
    )
    return pl.DataFrame(rows, names, orient="row").cast(
        {"wall": pl.Enum(Wall), "place": pl.UInt32, "step": pl.UInt32}
    )


@pytest.mark.parametrize("buckets", [1, 7, 60, 100_000])
def test_merging_keeps_every_nanosecond_of_each_cause_near_its_place(buckets):
    slices = make_slices(buckets)
    merged = merge_slices(slices, buckets)
    by = ["step", "wall", "cause"]
    sums = slices.group_by(by).agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum()).sort(by)

    assert merged.schema == OVERVIEW_SLICES
    assert (
        merged.group_by(by).agg(ns=pl.col("length_ns").sum()).sort(by).equals(sums.cast({"step": pl.UInt32}))
    )
    assert len(merged) <= len(slices)
    for (step,), own in slices.group_by("step"):
        grain = max((own["end_ns"].max() - own["start_ns"].min()) // buckets, 1)
        until = np.cumsum(merged.filter(pl.col("step") == step)["length_ns"].to_numpy())
        long = own.filter(pl.col("end_ns") - pl.col("start_ns") >= grain)
        ends = (long["end_ns"] - own["start_ns"].min()).to_list()
        assert set(ends) <= set(until.tolist())


def test_walls_of_each_step_are_those_of_the_answer(report):
    (rank,) = report.analysis.ranks
    sums = Counter()
    for row in report.overviews.slices.iter_rows(named=True):
        sums[row["step"], row["wall"]] += row["length_ns"]

    assert report.drawn_steps == {step.index for step in rank.steps}
    for step in rank.steps:
        assert [sums[step.index, wall] for wall in Wall] == list(step.walls.parts())


def test_gaps_are_where_no_compute_runs(report):
    shown = report.timelines[0]
    computing = shown.slices.filter(pl.col("state").is_in([DeviceState.COMPUTE, DeviceState.OPAQUE_GRAPH]))
    own = report.overviews.slices.filter((pl.col("step") == shown.step) & ~pl.col("is_gap"))

    assert own["length_ns"].sum() == (computing["end_ns"] - computing["start_ns"]).sum() > 0


def test_the_pack_holds_all_steps_behind_those_in_detail(report):
    head, columns = unpacked(pack_timelines(report.timelines, report.overviews, {0: "rank 0"}).base64)
    length, wall, cause, is_gap, gap, duration, name, _ = columns[-8:]
    found = report.overviews

    assert head["ranks"] == {"0": "rank 0"}
    assert [step["step"] for step in head["overviews"]] == found.steps["step"].to_list()
    assert (
        sum(step["slices"] for step in head["overviews"]) == len(found.slices) == len(length) == len(is_gap)
    )
    assert [head["texts"][number] for number in cause] == found.slices["cause"].to_list()
    assert [list(Wall)[number] for number in wall] == found.slices["wall"].to_list()
    at = 0
    for step in head["overviews"]:
        for lane, count in step["lanes"]:
            own = found.operations.filter((pl.col("step") == step["step"]) & (pl.col("lane") == lane))
            begun = find_starts(gap[at : at + count], duration[at : at + count]) + int(step["start"])
            assert begun.tolist() == own["start_ns"].to_list()
            assert duration[at : at + count].tolist() == (own["end_ns"] - own["start_ns"]).to_list()
            assert [head["texts"][number] for number in name[at : at + count]] == own["name"].to_list()
            at += count
    assert at == len(found.operations)


def test_slices_and_operations_come_in_the_order_of_the_steps(tmp_path):
    """The rank of the diagnosis comes first, wherever it is in the export."""
    played = run(Program(tuple(thread(rank, RANKS, 1.2) for rank in range(RANKS))))
    write_run(played, tmp_path / "run.sqlite")
    found = reported(tmp_path / "run.sqlite")
    head, columns = unpacked(pack_timelines(found.timelines, found.overviews, {}).base64)
    length, wall = columns[-8:-6]
    place = found.analysis.diagnosis.rank_index

    assert head["overviews"][0]["place"] == place > 0
    assert len({step["place"] for step in head["overviews"]}) == RANKS
    at = 0
    for step in head["overviews"]:
        own = slice(at, at + step["slices"])
        sums = Counter()
        for number, ns in zip(wall[own].tolist(), length[own].tolist(), strict=True):
            sums[list(Wall)[number]] += ns
        (walls,) = (
            one.walls for one in found.analysis.ranks[step["place"]].steps if one.index == step["step"]
        )
        compute_ns = walls.parts()[list(Wall).index(Wall.COMPUTE)]
        assert sum(sums.values()) == step["length"]
        assert sums[Wall.COMPUTE] == compute_ns
        at += step["slices"]
