"""Rules are checked when they are read; what is wrong is named."""

import pytest

from wallscope.fixes.rules import read_rules, shipped_rules
from wallscope.model.fixes import Setting

GOOD = {
    "id": '"a-fix"',
    "title": '"Do it"',
    "wall": '"host"',
    "causes": '["host/*"]',
    "phase": '"retune"',
    "because": '"It helps"',
    "active": '"It runs"',
    "source": '"A book"',
}


def table(**changed):
    lines = {**GOOD, **changed}
    return "[[fix]]\n" + "\n".join(f"{key} = {value}" for key, value in lines.items() if value)


def test_a_rule_is_read_as_it_is_written():
    text = (
        table() + '\n[fix.settings]\nmegatron-lm = ["--a b=c", "--d"]\npytorch = ["x(y=1)"]\nnsys = ["--e=f"]'
    )
    (rule,) = read_rules(text, "good.toml")

    assert rule.all_settings() == (
        Setting("megatron-lm", "--a", "b=c"),
        Setting("megatron-lm", "--d", ""),
        Setting("pytorch", "x(y=1)", ""),
        Setting("nsys", "--e", "f"),
    )


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        pytest.param({"title": ""}, "title", id="missing"),
        pytest.param({"titel": '"x"'}, "titel", id="unknown key"),
        pytest.param({"wall": '"roof"'}, "wall", id="unknown wall"),
        pytest.param({"phase": '"later"'}, "phase", id="unknown phase"),
        pytest.param({"causes": '["host/nothing"]'}, "no cause matches", id="unknown cause"),
        pytest.param({"causes": "[]"}, "causes", id="no cause"),
        pytest.param({"id": '"A fix"'}, "id", id="id in the wrong form"),
        pytest.param({"facts": '["nothing"]'}, "facts", id="fact in the wrong form"),
        pytest.param({"when": "{ at_least = { luck = 1 } }"}, "luck", id="unknown measurement"),
        pytest.param({"when": "{ at_best = { share = 1 } }"}, "at_best", id="unknown predicate"),
        pytest.param({"when": '{ at_least = { share = "much" } }'}, "share", id="no number"),
        pytest.param({"settings": '{ fortran = ["a=b"] }'}, "fortran", id="unknown system"),
        pytest.param({"settings": '{ environment = ["NAME"] }'}, "without a value", id="no value"),
        pytest.param({"gain": '{ text = "2x" }'}, "context", id="a figure without its context"),
    ],
)
def test_a_wrong_rule_is_refused(changed, says):
    with pytest.raises(ValueError, match=says):
        read_rules(table(**changed), "bad.toml")


@pytest.mark.parametrize("rule", shipped_rules(), ids=lambda rule: rule.id)
def test_rules_of_megatron_name_both_systems_or_only_what_exists(rule):
    lm_only = {"fp16"}
    bridge_only = {
        "no-offload",
        "pin-batches",
        "fewer-fills",
        "lighter-capture",
        "asynchronous-readback",
    }

    assert ("megatron-bridge" in rule.settings) == ("megatron-lm" in rule.settings) or rule.id in (
        lm_only | bridge_only
    )


def test_a_published_gain_is_a_ratio_above_one_with_its_context():
    for rule in shipped_rules():
        if rule.gain is not None:
            assert (rule.gain.low is None) == (rule.gain.high is None)
            assert rule.gain.low is None or 1 < rule.gain.low <= rule.gain.high < 2


def test_ids_are_unique_and_titles_are_short_imperatives():
    rules = shipped_rules()

    assert len({rule.id for rule in rules}) == len(rules)
    assert all(len(rule.title) <= 80 and rule.title[0].isupper() and rule.title[-1] != "." for rule in rules)
