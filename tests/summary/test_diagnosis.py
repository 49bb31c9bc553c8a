import numpy as np
import pytest

from wallscope.model.diagnosis import Walls, WallShare
from wallscope.model.enums import Wall
from wallscope.summary.diagnosis import decide_wall, measure_wall_shares

NOTHING = (0, 0, 0)


def walls(communication, memory, host, *, unattributed=0, step=100):
    """A step; compute has the rest."""
    return (step - communication - memory - host - unattributed, communication, memory, host, unattributed)


def decision(*steps, unresolved=None):
    """What is decided on steps, of which the second part is time without an owner, in the same order."""
    return decide_wall(np.array(steps), np.array(unresolved or [NOTHING] * len(steps)))


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(walls(10, 0, 0), "communication", id="exactly a tenth"),
        pytest.param(walls(9, 0, 0), "compute", id="just below a tenth"),
        pytest.param(walls(0, 10, 7), "memory", id="exactly three points ahead"),
        pytest.param(walls(40, 0, 43), "host", id="three points, of large shares"),
        pytest.param(walls(33, 30, 0), "communication", id="three points, of others"),
        pytest.param(walls(12, 0, 9), "communication", id="three points, of small shares"),
        pytest.param(walls(12, 0, 10), "mixed", id="less than three points ahead"),
        pytest.param(walls(10, 0, 10), "mixed", id="equal, a fifth together"),
        pytest.param(walls(7, 7, 6), "mixed", id="exactly a fifth together"),
        pytest.param(walls(10, 9, 0), "compute", id="close, below a fifth together"),
        pytest.param(walls(9, 5, 6), "mixed", id="none a tenth, a fifth together"),
        pytest.param(walls(0, 0, 0), "compute", id="no loss"),
    ],
)
def test_thresholds_of_one_step(step, expected):
    assert decision(step).dominant == expected


@pytest.mark.parametrize("first", range(13, 51))
def test_exactly_three_points_ahead_are_enough_whatever_the_shares(first):
    assert decision(walls(first, first - 3, 0)).dominant == "communication"


@pytest.mark.parametrize(
    ("led", "steps", "expected"),
    [
        (2, 3, "communication"),
        (4, 6, "communication"),
        (3, 5, "mixed"),
        (6, 9, "communication"),
        (5, 9, "mixed"),
    ],
)
def test_the_wall_leads_on_two_thirds_of_the_steps(led, steps, expected):
    found = decision(*[walls(30, 10, 0)] * led, *[walls(30, 0, 31)] * (steps - led))

    assert (found.dominant, found.led_steps, found.step_count) == (expected, led, steps)


OPEN = 12


@pytest.mark.parametrize(
    ("step", "unresolved", "expected"),
    [
        pytest.param(walls(0, 0, 9, unattributed=10), (10, 0, 0), "unknown", id="a tenth, above all losses"),
        pytest.param(walls(0, 0, 9, unattributed=9), (9, 0, 0), "compute", id="less than a tenth"),
        pytest.param(
            walls(0, 0, OPEN, unattributed=OPEN), (OPEN, 0, 0), "unknown", id="a loss that equals it"
        ),
        pytest.param(walls(0, 0, 13, unattributed=OPEN), (OPEN, 0, 0), "host", id="a loss that exceeds it"),
        pytest.param(
            walls(20, 0, 5), (0, 12, 0), "unknown", id="a wall without its unresolved part does not exceed it"
        ),
        pytest.param(walls(30, 0, 5), (0, 12, 0), "communication", id="a wall that does without it"),
        pytest.param(walls(0, 22, 5), (0, 0, 11), "unknown", id="the same of memory"),
        pytest.param(
            walls(8, 4, 5, unattributed=4), (4, 4, 2), "unknown", id="unattributed and both others together"
        ),
    ],
)
def test_unknown_where_time_has_no_owner(step, unresolved, expected):
    assert decision(step, unresolved=[unresolved]).dominant == expected


def test_medians_decide_not_means():
    found = decision(*[walls(12, 0, 0)] * 3, walls(0, 0, 90))

    assert (found.dominant, found.led_steps) == ("communication", 3)
    assert found.shares[Wall.HOST] == 0


def test_the_runner_up_and_the_margin():
    found = decision(walls(30, 10, 20))

    assert (found.dominant, found.runner_up) == ("communication", Wall.HOST)
    assert found.margin == pytest.approx(0.1)


def test_where_compute_is_the_wall_the_largest_loss_is_the_runner_up():
    found = decision(walls(4, 1, 2))

    assert (found.dominant, found.runner_up) == ("compute", Wall.COMMUNICATION)
    assert found.margin == pytest.approx(0.89)


def test_shares_are_of_each_step_not_of_the_sum():
    found = decision(walls(100, 0, 0, step=1_000), walls(30, 0, 0), walls(30, 0, 0))

    assert found.shares[Wall.COMMUNICATION] == pytest.approx(0.3)


def test_shares_with_percentiles_of_steady_steps():
    table = np.array([walls(value, 0, 0) for value in (10, 20, 60)])

    steady = measure_wall_shares(table, Walls(80, 20, 0, 0, 0), steady=True)
    unsteady = measure_wall_shares(table, Walls(80, 20, 0, 0, 0), steady=False)

    assert steady.communication == WallShare(
        20, pytest.approx(0.2), pytest.approx(0.12), pytest.approx(0.52), pytest.approx(0.3)
    )
    assert unsteady.communication == WallShare(20, pytest.approx(0.2), None, None, pytest.approx(0.3))


def test_a_step_without_length_has_no_shares():
    assert decision((0, 0, 0, 0, 0)).dominant == "compute"


@pytest.mark.parametrize(
    ("step", "kernels", "expected", "hinges"),
    [
        pytest.param(walls(0, 0, 0, unattributed=9), 9, "compute", None, id="too little to be a wall"),
        pytest.param(
            walls(0, 0, 0, unattributed=10), 10, "unknown", ("compute", "communication"), id="compute or not"
        ),
        pytest.param(walls(30, 0, 5, unattributed=40), 40, "communication", None, id="communication anyway"),
        pytest.param(walls(0, 40, 0, unattributed=37), 37, "memory", None, id="memory leads by three points"),
        pytest.param(
            walls(0, 40, 0, unattributed=38), 38, "unknown", ("memory", "mixed"), id="by less than three"
        ),
        pytest.param(
            walls(0, 12, 0, unattributed=20), 20, "unknown", ("memory", "communication"), id="it overtakes"
        ),
        pytest.param(walls(0, 15, 14, unattributed=5), 5, "mixed", None, id="mixed either way"),
        pytest.param(
            walls(7, 0, 0, unattributed=3), 3, "unknown", ("compute", "communication"), id="the last straw"
        ),
    ],
)
def test_unknown_where_kernels_that_no_pattern_knows_could_change_the_wall(step, kernels, expected, hinges):
    found = decision(step, unresolved=[(kernels, 0, 0, kernels)])

    assert (found.dominant, found.hinges) == (expected, hinges)


def test_such_kernels_and_waits_of_unknown_origin_count_together():
    step = walls(0, 0, 3, unattributed=12)

    assert decision(step, unresolved=[(6, 0, 0, 6)]).dominant == "compute"
    assert decision(step, unresolved=[(12, 0, 0, 6)]).dominant == "unknown"


@pytest.mark.parametrize("seed", range(20))
def test_the_wall_is_known_only_if_moving_the_kernels_to_communication_leaves_it(seed):
    random = np.random.default_rng(seed)
    steps = [random.multinomial(1000, random.dirichlet(np.ones(6))) for _ in range(5)]
    parts = np.array(steps)
    kernels = parts[:, 5]
    as_compute, as_communication = parts[:, :5].copy(), parts[:, :5].copy()
    as_compute[:, 0] += kernels
    as_communication[:, 1] += kernels
    held = parts[:, :5].copy()
    resolved = held[:, 4].copy()
    held[:, 4] += kernels
    open_ns = np.column_stack([resolved, 0 * kernels, 0 * kernels])

    found = decide_wall(held, np.column_stack([held[:, 4], 0 * kernels, 0 * kernels, kernels])).dominant
    either = {decide_wall(one, open_ns).dominant for one in (as_compute, as_communication)}

    assert found == "unknown" or either == {found}
    assert found == "unknown" or len(either) == 1
