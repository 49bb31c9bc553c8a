"""Gaps and moments: what is said of them can be found in the export."""

import itertools
from pathlib import Path

import polars as pl
import pytest

from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.truth import Slice, truths
from fixtures.simulation.writing import write_run
from tests.conftest import slow
from wallscope.model.capture import Options
from wallscope.model.report import GAPS
from wallscope.preparation import look_up_gaps
from wallscope.render.texts import shorten_name
from wallscope.summary.lookups import GapLookup

STORIES = {story.name: story for story in stories()}


@pytest.fixture(scope="module", params=[4, *slow(1)], ids=["each fourth", "all"])
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[GapLookup, tuple[Slice, ...]]]:
    """The proof of some stories, beside the true slices of all their steady steps."""
    folder = tmp_path_factory.mktemp("proof")
    found = {}
    for number, name in enumerate([*STORIES][:: request.param]):
        path = Path(folder) / f"{number}.sqlite"
        played = run(STORIES[name].program)
        write_run(played, path, has_os_calls=STORIES[name].has_os_calls)
        true = truths(played)[0].steady
        found[name] = (
            look_up_gaps(path, Options(), lambda _: None),
            tuple(piece for step in true for piece in step.slices),
        )
    return found


def test_the_links_of_a_gap_tile_it(told):
    for proof, _ in told.values():
        for gap in proof.gaps(50):
            links = gap.links
            assert (links[0].start_ns, links[-1].end_ns) == (gap.row["start_ns"], gap.row["end_ns"])
            assert all(left.end_ns == right.start_ns for left, right in itertools.pairwise(links))


def test_gaps_of_steady_steps_come_first_then_the_longest_and_follow_their_schema(told):
    for proof, _ in told.values():
        gaps = proof.gaps(50)
        frame = pl.DataFrame([gap.row for gap in gaps], schema=GAPS, orient="row")
        for own in frame.partition_by("pid"):
            assert own["steady"].is_sorted(descending=True)
            assert all(each["duration_ns"].is_sorted(descending=True) for each in own.partition_by("steady"))
        assert (frame["end_ns"] - frame["start_ns"] == frame["duration_ns"]).all()


def test_like_gaps_are_one_group_with_their_number_sum_and_longest(told):
    for proof, _ in told.values():
        gaps, groups = proof.gaps(100_000), proof.groups(100_000)
        kinds: dict[tuple[object, ...], list[dict[str, object]]] = {}
        for gap in sorted(gaps, key=lambda one: (-one.row["duration_ns"], one.row["start_ns"])):
            ended = gap.row["ended_by"] and shorten_name(gap.row["ended_by"].partition(" ")[0])
            key = (gap.row["pid"], gap.row["device"], gap.row["cause"], ended, gap.row["path"])
            kinds.setdefault(key, []).append(gap.row)
        expected = [
            (len(rows), len({row["step"] for row in rows}), sum(row["duration_ns"] for row in rows))
            for rows in kinds.values()
        ]

        assert sorted((one.count, one.steps, one.total_ns) for one in groups) == sorted(expected)
        assert {one.longest.row["start_ns"] for one in groups} == {
            rows[0]["start_ns"] for rows in kinds.values()
        }
        first = [one for one in groups if one.longest.row["pid"] == groups[0].longest.row["pid"]]
        assert [one.total_ns for one in first] == sorted((one.total_ns for one in first), reverse=True)


def test_the_cause_of_a_gap_is_the_one_that_owns_most_of_it(told):
    for proof, _ in told.values():
        for gap in proof.gaps(50):
            owned: dict[str, int] = {}
            for link in gap.links:
                owned[link.cause] = owned.get(link.cause, 0) + link.end_ns - link.start_ns
            assert owned[gap.row["cause"]] == gap.row["cause_ns"] == max(owned.values())


def test_every_moment_has_the_true_cause(told):
    for name, (proof, true) in told.items():
        if STORIES[name].is_split:
            continue
        for piece in true[:: max(len(true) // 40, 1)]:
            moment = proof.moments((piece.start_ns + piece.end_ns) // 2)[0]
            assert moment.row is not None
            assert moment.row["cause"] == piece.cause


def test_a_moment_outside_the_steps_belongs_to_nobody(told):
    proof, _ = next(iter(told.values()))

    assert all(moment.row is None for moment in proof.moments(-1))


def test_what_ended_a_gap_is_named_with_its_call(told):
    proof, _ = next(iter(told.values()))
    row = proof.gaps(1)[0].row

    assert None not in {row["ended_by"], row["call"], row["stream"], row["tid"]}
    assert row["call_start_ns"] <= row["end_ns"]
