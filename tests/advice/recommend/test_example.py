"""The fixes of the shipped example, from its export to the answer."""

import pytest

from tests.answered_once import analyze_once
from tests.shipped_example import EXAMPLE
from wallscope.advice.rules import fix_rules


@pytest.fixture(scope="module")
def answer():
    return analyze_once(EXAMPLE)


def test_the_exchange_comes_first_then_the_token_counts(answer):
    ids = [fix.id for fix in answer.fixes]

    assert ids[:4] == ["ep-overlap", "hybridep", "deepep", "experts-in-the-domain"]
    assert ids.index("sync-free-experts") < ids.index("data-workers") < ids.index("cpu-binding")
    assert not {
        "cuda-graphs-experts",
        "permute-fusion",
        "router-fusion",
        "tp-overlap",
        "larger-microbatch",
    } & {*ids}


def test_each_opportunity_names_the_fixes_that_answer_it(answer):
    known = {fix.id: fix for fix in answer.fixes}

    for entry in answer.opportunities:
        assert entry.fixes == tuple(fix.id for fix in answer.fixes if entry.cause in fix.causes)
    exchange = next(entry for entry in answer.opportunities if entry.cause == "communication/ep/unsplit")
    first = known[exchange.fixes[0]]
    assert first.recoverable_ns == first.replay.won_ns <= exchange.recoverable_ns
    assert known[exchange.fixes[0]].next_wall == "host"


def test_fixes_carry_what_their_rules_say(answer):
    rules = {rule.id: rule for rule in fix_rules()}
    overlap = answer.fixes[0]

    assert overlap.title == rules["ep-overlap"].title
    assert overlap.why.startswith(
        "Expert-parallel all-to-all (dispatch and combine), including waiting for peers: 12.8 ms (25.1 %). "
    )
    assert overlap.expected_gain == rules["ep-overlap"].gain.quote()
    assert [entry.id for entry in overlap.preconditions] == list(rules["ep-overlap"].preconditions)
    assert "CUDA_DEVICE_MAX_CONNECTIONS" in [entry.key for entry in overlap.settings]
