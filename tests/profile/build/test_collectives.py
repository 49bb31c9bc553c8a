"""The collectives of a profile say what the slices of the rank say."""

import numpy as np
import polars as pl
import pytest

from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.writing import write_run
from wallscope.model.capture import Options
from wallscope.model.enums import Wall
from wallscope.model.profile import BEFORE, INSIDE
from wallscope.pipeline import analyze_capture
from wallscope.profile import build
from wallscope.profile.codec import unpack_profile

NAMES = ("slow peer", "pipeline bubble", "exposed all-to-all", "hidden reduce-scatter")


@pytest.fixture(scope="module", params=NAMES)
def told(request, tmp_path_factory):
    """The collectives of each rank of a story beside its slices."""
    (story,) = [story for story in stories() if story.name == request.param]
    path = tmp_path_factory.mktemp("story") / "story.sqlite"
    write_run(run(story.program), path)
    found = analyze_capture(path, Options(), lambda _: None)
    slices = found.prepared.slices()
    ids = found.prepared.trace.capture.ranks["rank_id"]
    return [
        (unpack_profile(rank.profile, "run").collectives, slices.filter(pl.col("rank_id") == rank_id))
        for rank, rank_id in zip(found.analysis.ranks, ids, strict=True)
    ]


def owned(slices, wall, from_ns, until_ns):
    """The dull way: each slice cut at both moments."""
    rows = slices.filter(pl.col("wall") == wall).select("start_ns", "end_ns").rows()
    return sum(max(0, min(end, until_ns) - max(start, from_ns)) for start, end in rows)


def test_walls_between_and_inside_are_those_of_the_slices(told):
    for table, slices in told:
        assert not table.is_empty()
        previous = min(slices["start_ns"].min(), table["start_ns"][0])
        for row in table.iter_rows(named=True):
            assert [row[name] for name in BEFORE] == [
                owned(slices, wall, previous, row["start_ns"]) for wall in Wall
            ]
            assert [row[name] for name in INSIDE] == [
                owned(slices, wall, row["start_ns"], row["end_ns"]) for wall in Wall
            ]
            previous = row["start_ns"]


def test_what_blocks_is_all_that_communication_owns_itself(told):
    for table, slices in told:
        bound = slices.filter(
            pl.col("cause").str.ends_with("/unsplit") & (pl.col("kind").cast(pl.String) == "operation")
        )
        assert table["blocking_ns"].sum() == (bound["end_ns"] - bound["start_ns"]).sum()


def test_sequences_count_the_collectives_of_a_communicator(told):
    for table, _ in told:
        assert table["communicator"].null_count() == 0
        for _, own in table.group_by("communicator"):
            assert own.sort("start_ns")["sequence"].to_list() == list(range(len(own)))


def test_of_very_many_the_first_are_kept(monkeypatch, tmp_path):
    (story,) = [story for story in stories() if story.name == "exposed all-to-all"]
    write_run(run(story.program), tmp_path / "story.sqlite")
    monkeypatch.setattr(build, "_MOST_COLLECTIVES", 4)
    (rank,) = analyze_capture(tmp_path / "story.sqlite", Options(), lambda _: None).analysis.ranks
    table = unpack_profile(rank.profile, "run").collectives

    assert table["place"].to_list() == [0, 1, 2, 3]
    assert (np.diff(table["start_ns"].to_numpy()) > 0).all()
