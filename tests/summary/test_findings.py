"""What is said of the chain itself, and which rank it is said of."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from wallscope.demo.example import write_example
from wallscope.model.analysis import CauseTime
from wallscope.model.capture import Options, Selection
from wallscope.model.diagnosis import Walls
from wallscope.preparation import prepare
from wallscope.summary.diagnosis import find_least_computing
from wallscope.summary.findings import describe_anchor, find_attribution_limits
from wallscope.summary.rank import summarize_ranks


def nothing(_):
    """Progress that nobody watches."""


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """The example: its account, dependencies, division and anchor."""
    path = tmp_path_factory.mktemp("chain") / "moe.sqlite"
    write_example(path)
    prepared = prepare(path, Options(), nothing)
    (account,) = summarize_ranks(prepared)
    return account, prepared.evidence.waits, prepared.trace, describe_anchor(prepared.trace)


def codes(known, *, account=None, waits=None, parts=None):
    own_account, own_waits, own_parts, anchor = known
    found = find_attribution_limits(account or own_account, waits or own_waits, parts or own_parts, anchor)
    return {finding.code: finding for finding in found}


def lacking(account, share, cause="unattributed/unresolved"):
    """The account with a share of its step under a cause without an owner."""
    open_ns = round(account.rank.typical.step_ns * share)
    entry = CauseTime(cause, cause.split("/")[0], open_ns, share, None, open_ns)
    return replace(account, rank=replace(account.rank, causes=(entry, *account.rank.causes)))


def test_the_example_lacks_peers_alone(known):
    assert set(codes(known)) == {"one-rank"}
    assert codes(known)["one-rank"].cure == "Capture all ranks."
    assert "With only 1 of 16 ranks captured" in codes(known)["one-rank"].message


def test_no_other_capture_is_asked_for_where_the_user_chose_the_rank(known):
    chosen = replace(known[2], selection=Selection(rank=3))

    assert codes(known, parts=chosen)["one-rank"].cure == ""


def test_one_rank_that_hardly_communicates_is_not_told_so(known):
    account = known[0]
    typical = replace(account.rank.typical, walls=Walls(account.rank.typical.step_ns, 0, 0, 0, 0))
    quiet = replace(account, rank=replace(account.rank, typical=typical))

    assert codes(known, account=quiet) == {}


@pytest.mark.parametrize(
    ("waits_share", "said"),
    [
        pytest.param(0.0, "time cannot be separated from waiting for peers. ", id="nothing is known to wait"),
        pytest.param(0.5, "cannot be separated into transfer time and waiting. ", id="half is"),
        pytest.param(1.0, "", id="all is"),
    ],
)
def test_kernels_that_only_wait_are_not_part_of_what_one_rank_leaves_open(known, waits_share, said):
    account = known[0]
    waiting_ns = round(waits_share * account.rank.typical.walls.communication)
    entry = CauseTime("communication/ep/peer-wait", "communication", waiting_ns, 0.1, None, 0)
    told = replace(account, rank=replace(account.rank, causes=(entry,) if waiting_ns else ()))
    found = codes(known, account=told)

    assert [said in one.message for one in found.values()] == [True] * bool(said)


@pytest.mark.parametrize(
    ("share", "severity", "said"),
    [
        pytest.param(0.0, "info", "but all of the typical step is accounted for.", id="no time"),
        pytest.param(0.02, "info", " of the typical step (2.0 %) is unexplained.", id="little"),
        pytest.param(0.04, "warning", " of the typical step (4.0 %) is unexplained.", id="much"),
    ],
)
def test_waits_that_are_not_resolved_are_counted_with_the_time_they_leave_open(known, share, severity, said):
    waits = replace(known[1], waits_resolved=known[1].waits_seen - 2)
    found = codes(known, account=lacking(known[0], share), waits=waits)

    assert set(found) == {"unresolved-waits", "one-rank"}
    assert found["unresolved-waits"].severity == severity
    assert found["unresolved-waits"].message.startswith(
        f"The capture does not show what ended 2 of {waits.waits_seen:,} waits, "
    )
    assert found["unresolved-waits"].message.endswith(said)


@pytest.mark.parametrize(
    ("cause", "share", "is_said"),
    [
        pytest.param("unattributed/unresolved", 0.029, False, id="under three hundredths"),
        pytest.param("unattributed/unresolved", 0.031, True, id="over three hundredths"),
        pytest.param("memory/unresolved", 0.031, True, id="of a wall"),
        pytest.param("unattributed/profiler", 0.031, True, id="the profiler"),
    ],
)
def test_time_without_owner_is_told_where_nothing_else_tells_of_it(known, cause, share, is_said):
    found = codes(known, account=lacking(known[0], share, cause))

    assert ("unattributed-time" in found) == is_said


def test_a_replay_that_is_far_off_says_why_there_is_no_ceiling(known):
    far = SimpleNamespace(error=0.205, step_count=3, recoverable_ns=lambda _: None)
    found = codes(known, account=replace(known[0], ceilings=far))

    assert found["replay-unfaithful"].message == (
        "The simulation of 3 steps differs from the capture by 20.5 %,"
        " which is too much to give upper bounds."
    )


def test_steps_that_cannot_be_played_have_no_ceilings(known):
    unplayed = SimpleNamespace(error=None, step_count=0, recoverable_ns=lambda _: None)
    account = replace(known[0], ceilings=unplayed)

    assert "no upper bounds" in codes(known, account=account)["replay-unfaithful"].message


def with_compute(rank, share):
    budget = replace(rank.typical.budget, compute=round(share * rank.typical.step_ns))
    return replace(rank, typical=replace(rank.typical, budget=budget))


@pytest.mark.parametrize(
    ("unmarked", "place"),
    [
        pytest.param((), 1, id="the smallest share"),
        pytest.param((1,), 2, id="not one without steps"),
        pytest.param((0, 1, 2), 1, id="unless all lack them"),
    ],
)
def test_the_rank_that_is_spoken_of_computed_least_of_those_with_steps(known, unmarked, place):
    ranks = tuple(with_compute(known[0].rank, share) for share in (0.8, 0.5, 0.6))

    assert find_least_computing(ranks, unmarked) == place
