"""Steps with more operations than the page has room for: what is merged, and what stays exact."""

from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
import pytest

from tests.views.test_page_analysis import find_starts, unpacked
from wallscope.model.enums import DeviceState, Wall
from wallscope.model.report import SHOWN_HOST, SHOWN_OPERATIONS, SHOWN_SLICES, StepTimeline
from wallscope.render import timeline_pack
from wallscope.render.timeline_pack import pack_timelines

WALLS = list(Wall)
LENGTH_NS = 4_000_000


def make_timeline(seed, start_ns, count=600):
    """A step of random slices that tile it, and of operations on three streams, most of them short."""
    random = np.random.default_rng(seed)
    cuts = np.sort(random.choice(np.arange(1, LENGTH_NS), count - 1, replace=False))
    edges = start_ns + np.concatenate([[0], cuts, [LENGTH_NS]])
    walls = [WALLS[place] for place in random.integers(0, len(WALLS), count)]
    slices = {
        "start_ns": edges[:-1],
        "end_ns": edges[1:],
        "state": [DeviceState.IDLE] * count,
        "wall": walls,
        "cause": [f"{wall}/any" for wall in walls],
        "slack_ns": random.integers(0, 100, count),
    }
    begins_ns = start_ns + np.sort(random.integers(0, LENGTH_NS - 60_000, count))
    lengths_ns = np.where(random.random(count) < 0.1, random.integers(20_000, 60_000, count), 90)
    operations = {
        "start_ns": begins_ns,
        "end_ns": begins_ns + lengths_ns,
        "lane": [str(stream) for stream in random.integers(0, 3, count)],
        "name": [f"kernel {place}" for place in range(count)],
        "what": ["gemm"] * count,
        "wall": [Wall.COMPUTE] * count,
    }
    return StepTimeline(
        role="typical",
        step=3,
        start_ns=start_ns,
        end_ns=start_ns + LENGTH_NS,
        operations=fill(operations, SHOWN_OPERATIONS).sort("lane", "start_ns"),
        calls=SHOWN_HOST.to_frame(),
        ranges=SHOWN_HOST.to_frame(),
        slices=fill(slices, SHOWN_SLICES),
        threads_left_out=0,
    )


def fill(columns, schema):
    """A frame with all columns of a schema; those that are not given are null."""
    given = pl.DataFrame(columns, {name: schema[name] for name in columns})
    return given.select(
        pl.col(name) if name in columns else pl.lit(None, schema[name]).alias(name) for name in schema
    )


def read_step(pack):
    """The lengths and walls of the slices of a pack, and the number of its operations."""
    head, columns = unpacked(pack.base64)
    streams = sum(lane["kind"] == "stream" for lane in head["steps"][0]["lanes"])
    others = len(head["steps"][0]["lanes"]) - streams
    before = 9 * streams + 5 * others
    gap, length, wall = columns[before : before + 3]
    return find_starts(gap, length), length, wall, sum(len(columns[9 * lane]) for lane in range(streams))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("most", [200, 500, 900])
def test_what_is_kept_fits_and_the_time_of_each_wall_stays_exact(monkeypatch, seed, most):
    monkeypatch.setattr("wallscope.render.timeline_pack._MOST_ROWS", most)
    timeline = make_timeline(seed, 1_000)
    pack = pack_timelines([timeline])
    start, length, wall, operations = read_step(pack)
    exact = {
        WALLS.index(row["wall"]): row["ns"]
        for row in timeline.slices.group_by(pl.col("wall").cast(pl.String))
        .agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
        .iter_rows(named=True)
    }

    assert most // 8 < len(length) <= most // 2
    assert most // 8 < operations <= most // 2
    assert (start[1:] == start[:-1] + length[:-1]).all()
    assert {place: int(length[wall == place].sum()) for place in exact} == exact
    assert [note.partition(" than")[0] for note in pack.notes] == ["Neighbors shorter"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("most", [1, 30, 100, 250])
def test_the_grain_is_the_first_at_which_merging_leaves_room(seed, most):
    timeline = make_timeline(seed, -5_000)
    slices = timeline.slices.sort("start_ns").with_columns(pl.col("wall", "state").cast(pl.String))
    rows = timeline.operations.with_columns(
        place=pl.col("lane").cast(pl.Int64), depth=pl.lit(0), wall=pl.lit(0, pl.UInt32)
    )
    by, kept = ["place", "lane", "depth"], ["name", "what", "wall", *timeline_pack._ISSUE]
    for found, merge in (
        (timeline_pack._coarsen(rows, most, LENGTH_NS), partial(timeline_pack._merge, rows, by, kept=kept)),
        (
            timeline_pack._coarsen_slices(slices, most, LENGTH_NS),
            partial(timeline_pack._merge_slices, slices),
        ),
    ):
        grain_ns = LENGTH_NS // 100_000
        while len(merged := merge(grain_ns=grain_ns)) > most and grain_ns <= LENGTH_NS:
            grain_ns *= 2

        assert (found[1], len(found[0])) == (grain_ns, len(merged))


@pytest.mark.parametrize("seed", range(3))
def test_a_clock_that_begins_below_zero_changes_nothing(monkeypatch, seed):
    monkeypatch.setattr("wallscope.render.timeline_pack._MOST_ROWS", 500)
    (_, columns), (_, others) = (
        unpacked(pack_timelines([make_timeline(seed, start_ns)]).base64) for start_ns in (1_000, -7_654_321)
    )

    assert [column.tolist() for column in columns] == [column.tolist() for column in others]


def test_a_step_that_fits_is_kept_whole():
    _, length, _, operations = read_step(pack_timelines([make_timeline(0, 0)]))

    assert (len(length), operations) == (600, 600)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_a_pack_that_is_too_long_is_cut_to_what_fits_and_not_to_much_less(share):
    timeline = make_timeline(0, 0, 20_000)
    whole = len(pack_timelines([timeline], most_characters=10**9).base64)
    most = int(share * whole)
    cut = len(pack_timelines([timeline], most_characters=most).base64)

    assert 0.35 * most < cut <= most


@pytest.mark.parametrize("tick_ns", [1, 7])
def test_starts_and_ends_are_found_again_where_rows_tile_overlap_or_leave_gaps(tick_ns):
    edges_ns = [(100, 250), (250, 250), (240, 300), (900, 5_000), (4_000, 4_100)]
    rows = pl.DataFrame(edges_ns, ["start_ns", "end_ns"], orient="row")
    gap, length = (
        column.astype(np.uint32).astype(np.int64)
        for column in timeline_pack._list_ticks(rows, 30, tick_ns, [])
    )
    start = find_starts(gap, length)

    assert start.tolist() == [(begin - 30) // tick_ns for begin, _ in edges_ns]
    assert (start + length).tolist() == [(end - 30) // tick_ns for _, end in edges_ns]


def test_correlation_ids_are_found_again_from_their_differences():
    timeline = make_timeline(0, 0)
    random = np.random.default_rng(0)
    numbered = timeline.operations.with_columns(
        correlation=pl.Series(random.integers(0, 2**32, 600), dtype=timeline.operations["correlation"].dtype)
    )
    _, columns = unpacked(pack_timelines([replace(timeline, operations=numbered)]).base64)
    found = [one for lane in range(3) for one in (np.cumsum(columns[9 * lane + 7]) % 2**32).tolist()]

    assert found == numbered.sort("lane", "start_ns", "end_ns", "name")["correlation"].to_list()


def test_notes_name_the_step_where_several_are_shown(monkeypatch):
    monkeypatch.setattr("wallscope.render.timeline_pack._MOST_ROWS", 200)
    timeline = make_timeline(0, 0)
    pack = pack_timelines([timeline, replace(timeline, step=8)])

    assert [note.partition(" shorter")[0] for note in pack.notes] == [
        "Step 3: neighbors",
        "Step 8: neighbors",
    ]
