"""Faults planted in jobs of all layouts: the unit is named first, with what a job without it saves."""

import pytest

from benchmarks.culprits import LARGE, LAYOUTS, judge_job, judge_jobs, list_large_jobs, tabulate
from fixtures.planted_jobs import KINDS, Fault, Layout, PlantedJob, suits
from wallscope.ranks import match_collectives
from wallscope.ranks.job import match_ranks
from wallscope.summary.diagnosis import find_dominant_wall

QUICK = {
    ("data-parallel, 4 ranks", "none", True),
    ("data-parallel, 4 ranks", "two-gpus", False),
    ("data-parallel, 4 ranks", "slow-host", True),
    ("TP 2, DP 4", "slow-link", False),
    ("TP 2, DP 4", "chain", True),
    ("EP 4, DP 8", "hot-expert", False),
    ("EP 4, DP 8", "slow-node", True),
    ("PP 2, DP 4, 1F1B", "late-stage", False),
    ("PP 2, DP 4, 1F1B", "other-kernels", True),
    ("PP 4, DP 2, 1F1B, sends overlap compute", "none", False),
    ("PP 4, DP 2, 1F1B, sends overlap compute", "slow-gpu", True),
    ("PP 4, DP 2, interleaved, 5 steps", "other-kernels", True),
    ("PP 4, DP 2, interleaved, 5 steps", "late-stage", False),
}
ALL = [
    (layout, kind, has_payloads)
    for layout in LAYOUTS
    for kind in KINDS
    for has_payloads in (True, False)
    if suits(kind, LAYOUTS[layout]) and LAYOUTS[layout].size <= 8
]


@pytest.mark.parametrize(
    ("layout", "kind", "has_payloads"),
    [pytest.param(*one, marks=() if one in QUICK else pytest.mark.slow) for one in ALL],
)
def test_a_planted_fault_is_named_and_nothing_else(layout, kind, has_payloads):
    found = judge_job(kind, layout, seed=0 if has_payloads else 1, has_payloads=has_payloads)

    assert not found.is_accused
    assert found.is_first == found.is_asked
    assert found.close == found.amounts


def test_what_a_rank_loses_before_it_sends_is_not_spread_over_what_comes_after():
    layout = "PP 4, DP 2, 1F1B, sends overlap compute"
    found = judge_job("other-kernels", layout, seed=12, has_payloads=True)

    assert (found.is_first, found.is_accused, found.close) == (True, False, found.amounts)


@pytest.mark.parametrize(("kind", "seed"), [("garbage", 102), ("garbage", 103), ("slow-link", 101)])
def test_a_message_that_queues_behind_another_was_launched_where_those_that_do_not_queue_are(kind, seed):
    layout = "PP 4, DP 2, interleaved, 5 steps"
    found = judge_job(kind, layout, seed, has_payloads=seed % 2 == 0)

    assert (found.is_first, found.is_accused) == (True, False)
    assert found.close == found.amounts == 1


@pytest.mark.parametrize(
    "layout",
    ["TP 2, PP 4, DP 1, 5 steps", "PP 4, EP 2, DP 4, 1F1B, 5 steps", "TP 2, PP 4, DP 4, interleaved"],
)
def test_stages_on_several_nodes_are_matched_by_names_alone(layout):
    found = judge_job("slow-gpu", layout, seed=12, has_payloads=False)

    assert (found.is_first, found.is_accused) == (True, False)


def test_ranks_that_are_compared_by_names_alone_grow_as_the_ranks_do(monkeypatch):
    compared, pair = [0], match_collectives._pair_members

    def count(*args, **kwargs):
        compared[0] += 1
        return pair(*args, **kwargs)

    monkeypatch.setattr(match_collectives, "_pair_members", count)

    def compared_each(data):
        layout = Layout(2, 8, data=data, layers=1, steps=4, micro_batches=2, is_grouped=True, gpus_per_node=8)
        compared[0] = 0
        job = match_ranks(PlantedJob(layout, (), 0, has_payloads=False).profiles(), find_dominant_wall).job
        assert job.collectives.unmatched == 0
        return compared[0] / layout.size

    assert compared_each(4) <= 1.3 * compared_each(2)


def test_large_jobs_have_32_to_64_ranks_and_each_seed_takes_the_next():
    assert {32, 64} >= {layout.size for layout in LARGE.values()}
    asked = [next(list_large_jobs([seed])) for seed in (3, 4, 8)]
    assert [(name, has_payloads) for name, _, _, has_payloads in asked] == [
        (list(LARGE)[3], True),
        (next(iter(LARGE)), False),
        (next(iter(LARGE)), True),
    ]


def test_what_a_journal_holds_is_not_judged_again(tmp_path, monkeypatch):
    asked = [("data-parallel, 4 ranks", kind, 0, True) for kind in ("none", "slow-gpu")]
    (first,) = judge_jobs(asked[:1], tmp_path / "journal")
    both = list(judge_jobs(asked, tmp_path / "journal"))
    monkeypatch.setattr("benchmarks.culprits.judge_job", None)

    assert both[0] == first
    assert list(judge_jobs(asked, tmp_path / "journal")) == both


def test_the_table_counts_what_was_judged():
    judged = [
        judge_job(kind, "data-parallel, 4 ranks", 0, has_payloads=True) for kind in ("none", "slow-gpu")
    ]
    rows = tabulate(judged).splitlines()

    assert rows[2].startswith("| none | 1 | – | 0 |")  # noqa: RUF001  # a dash
    assert rows[3] == "| slow-gpu | 1 | 1 of 1 | 0 | 1 of 1 |"


@pytest.mark.parametrize("kind", ["slow-host", pytest.param("slow-link", marks=pytest.mark.slow)])
def test_groups_of_which_five_collectives_tell_are_those_of_others_of_the_family(kind):
    found = judge_job(kind, "PP 4, EP 4, DP 8, 1F1B", seed=1007, has_payloads=False)

    assert (found.is_first, found.is_accused, found.close) == (True, False, 1)


LACKING = Layout(
    pipeline=4, expert=4, data=8, steps=5, micro_batches=2, layers=1, is_grouped=True, gpus_per_node=8
)
STAGE = Fault("late-stage", "stage", tuple(range(16, 24)), 1.35)


@pytest.mark.parametrize(
    ("faults", "named"),
    [
        ((), ()),
        ((STAGE,), (STAGE,)),
        ((STAGE, Fault("slow-gpu", "rank", (3,), 1.3)), (STAGE, Fault("slow-gpu", "rank", (3,), 1.3))),
        ((Fault("slow-gpu", "rank", (13,), 1.4),), ()),
    ],
)
def test_a_rank_that_is_missing_hides_no_fault_of_others_and_gives_them_none(faults, named):
    planted = PlantedJob(LACKING, faults, seed=3)
    present = [profile for profile in planted.profiles() if profile.header.rank != 13]
    found = match_ranks(present, find_dominant_wall, LACKING.size).job.stragglers

    ranks = [tuple(present[place].header.rank for place in one.places) for one in found]
    assert [(str(one.unit), own) for one, own in zip(found, ranks, strict=True)] == [
        one.named for one in named
    ]
    gains = [gain_ns for _, gain_ns in planted.measure_chain([one.named for one in named])] if named else []
    assert [one.saved_ns for one in found] == pytest.approx(gains, rel=0.1)
