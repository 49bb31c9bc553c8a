"""Links through waits that times alone tell, against the dull walk, in programs long enough to show them."""

from collections import Counter
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.attribution import brute, brute_waits
from tests.attribution.brute_programs import possible, stretched, unrecorded
from tests.attribution.slices.test_chain import found
from wallscope.trace import blocking_calls, waits_outside_calls


def few(queue, spins):
    """Let queues be full, and spins and locks recur, in programs of some launches."""
    return (
        patch.multiple(brute_waits, FULL_QUEUE=queue, FEWEST_SPINS=spins, FEWEST_LOCKS=spins),
        patch.multiple(blocking_calls, FULL_QUEUE_COUNT=queue),
        patch.multiple(waits_outside_calls, FEWEST_SPINS_COUNT=spins, FEWEST_LOCKS_COUNT=spins),
    )


def ways(trace, links):
    """What a trace shows, by name."""
    model = brute.Model(trace)
    told = model.inferred
    calls = range(len(trace.calls))
    return {
        "told by another stream": told.producers,
        "told by nothing": told.unexplained,
        "free": told.free - told.idle - set(told.producers),
        "held while idle": told.idle,
        "full queue": [call for call in calls if brute_waits.queued_behind(model, call)],
        "lock, for what its holder waits for": [
            call
            for call in calls
            if brute_waits.holder(model, call) is not None and model.holder(call) is None
        ],
        "lock, along its holder": [call for call in calls if model.holder(call) is not None],
        "lock outside of calls": model.locks,
        "alone outside of calls": model.alone,
        "queries": [call for call in calls if model.asks_since(call) is not None and model.waits_for(call)],
        "blocking call": [
            call
            for call in calls
            if trace.calls[call].what == "context" and (model.waits_for(call) or (0, 0))[1]
        ],
        "inferred link": [link for link in links if link.inferred],
        "time before a constraint is unresolved": [
            link for link in links if link.kind == "unresolved" and link.next_op >= 0
        ],
    }


def compare_with_the_dull_walk(examples):
    """Compare links of so many random traces; return how often each way to tell a wait occurs."""
    seen = Counter()

    @settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(
        trace=st.one_of(unrecorded(), unrecorded(), stretched(possible())),
        queue=st.sampled_from([1, 2]),
        spins=st.just(1),
    )
    def compare(trace, queue, spins):
        in_oracle, *in_code = few(queue, spins)
        with in_oracle, in_code[0], in_code[1]:
            links = brute.links(trace)
            seen.update(way for way, rows in ways(trace, links).items() if rows)
            assert brute.merged(found(trace)) == brute.merged(links)
            assert all(link.end - link.start <= 50_000 for link in links if link.kind == "hand-over")

    compare()
    return seen


def test_links_equal_those_of_the_dull_walk():
    assert len(compare_with_the_dull_walk(60)) > 4


@pytest.mark.slow
def test_links_equal_those_of_the_dull_walk_and_each_way_to_tell_a_wait_occurs():
    seen = compare_with_the_dull_walk(800)

    assert {way: count for way, count in seen.items() if count >= 2}.keys() == ways(
        brute.Trace((), ()), []
    ).keys()
