from dataclasses import replace

import pytest

from fixtures.scenario import scenarios
from wallscope.model.capture import Options
from wallscope.pipeline import analyze
from wallscope.views.verdict import tell_hidden_communication


@pytest.fixture(scope="module")
def rank(tmp_path_factory):
    path = tmp_path_factory.mktemp("hidden") / "run.sqlite"
    next(one for one in scenarios() if one.name == "communication-partly-hidden").write(path)
    return analyze(path, Options(), lambda _: None).ranks[0]


def told(rank, union_ns, exposed_ns, step_ns=10_000_000):
    hidden = (union_ns - exposed_ns) / union_ns if union_ns else None
    times = {"union_ns": union_ns, "exposed_ns": exposed_ns, "hidden_share": hidden}
    changed = replace(
        rank,
        communication=replace(rank.communication, **times),
        typical=replace(rank.typical, step_ns=step_ns),
    )
    return list(tell_hidden_communication(changed, "step"))


def test_much_communication_that_is_mostly_hidden_is_told(rank):
    found = (
        "Compute hides 75.0 % of the 8.0 ms of communication in the step. The remaining 2.0 ms is"
        " exposed, and 5.0 µs of it delays later work."
    )

    assert told(rank, 8_000_000, 2_000_000) == [found]
    assert told(rank, 8_000_000, 0) == ["Compute hides 100.0 % of the 8.0 ms of communication in the step."]


@pytest.mark.parametrize(
    ("union_ns", "exposed_ns", "is_told"),
    [
        pytest.param(2_500_000, 0, True, id="a quarter of the step"),
        pytest.param(2_499_999, 0, False, id="less than a quarter of it"),
        pytest.param(6_000_000, 2_999_999, True, id="most of it hidden"),
        pytest.param(6_000_000, 3_000_000, False, id="half of it exposed"),
        pytest.param(0, 0, False, id="no communication"),
    ],
)
def test_little_or_exposed_communication_is_not(rank, union_ns, exposed_ns, is_told):
    assert bool(told(rank, union_ns, exposed_ns)) == is_told


def test_a_window_without_length_tells_nothing(rank):
    assert told(rank, 0, 0, step_ns=0) == []
