"""Waits that no row names: programs of a simulator that recorded what each nanosecond waited for."""

import pytest

from tests.answered_once import analyze_once
from tests.real.answers import NEEDS_TRACES, TRACES
from wallscope.model.capture import Options
from wallscope.model.whatif import Asked, Question
from wallscope.pipeline import ask_what_if

pytestmark = NEEDS_TRACES

WAITS = TRACES / "minimal" / "waits"


@pytest.mark.parametrize(
    ("name", "wall", "shares"),
    [
        pytest.param(
            "poll_sleep_long",
            "communication",
            {"communication": 0.730, "host": 0.039},
            id="a thread asks for an event and sleeps 100 us in between",
        ),
        pytest.param(
            "lock_first",
            "memory",
            {"memory": 0.450, "host": 0.02},
            id="a thread needs a lock that another one holds in cudaMalloc",
        ),
        pytest.param("zero3_cpu_adam", "memory", {"memory": 0.339}, id="the optimizer runs on the host"),
        pytest.param("chunked_a2a", "communication", {"communication": 0.46}, id="tokens in four parts"),
    ],
)
def test_the_wall_is_what_the_program_waited_for(name, wall, shares):
    diagnosis = analyze_once(WAITS / f"{name}.sqlite").diagnosis

    assert diagnosis.dominant_wall == wall
    assert {one: diagnosis.share(one) for one in shares} == pytest.approx(shares, abs=0.02)


def test_a_stream_that_runs_host_functions_is_unknown_and_names_them():
    found = analyze_once(WAITS / "host_callback.sqlite")

    (finding,) = (one for one in found.capture.findings if one.code == "silent-waits")

    assert found.diagnosis.dominant_wall == "unknown"
    assert "cudaLaunchHostFunc" in finding.message


def test_a_lock_after_a_value_is_read_costs_what_its_holder_does():
    causes = {cause.cause: cause for cause in analyze_once(WAITS / "lock_after_read.sqlite").ranks[0].causes}
    step_ns = sum(cause.typical_ns for cause in causes.values())

    assert causes["host/lock"].typical_ns / step_ns == pytest.approx(0.82, abs=0.02)
    assert causes["host/queue-drained/cudaStreamSynchronize"].typical_ns / step_ns < 0.02


def test_a_server_that_waits_for_requests_loads_no_data():
    found = analyze_once(WAITS / "server.sqlite")

    assert "host/data-loading" not in {cause.cause for cause in found.ranks[0].causes}
    assert "data-workers" not in {fix.id for fix in found.fixes or ()}


def test_without_the_allocation_under_a_lock_the_waiter_need_not_wait():
    question = Question("without", "allocator", 0.0)
    told = ask_what_if(WAITS / "lock_first.sqlite", Options(), Asked((question,)), lambda _: None)

    step_ns = told.answers[0].step_ns + told.answers[0].won_ns
    assert told.answers[0].won_ns / step_ns == pytest.approx(0.441, abs=0.02)


def test_no_bound_leaves_less_than_the_work_of_the_communication_stream():
    """Three all-reduces of a step take 4.0 ms on one stream, whatever the host waits for."""
    found = analyze_once(WAITS / "poll_sleep_long.sqlite")
    left_ns = [
        one.step_ceiling_ns for one in found.opportunities if not one.cause.startswith("communication/")
    ]

    assert left_ns
    assert min(left_ns) >= 4_000_000
