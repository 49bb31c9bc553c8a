"""Every condition of every rule has a sentence for what holds, what must hold and what is unknown."""

import re
from pathlib import Path

import pytest

from wallscope.advice.condition_words import (
    BOTH,
    CAPTURE,
    CONFIGURATION,
    facts,
    say_holds,
    say_inapplicable,
    say_whether,
)
from wallscope.advice.conditions import evaluate
from wallscope.advice.measurements import MEASUREMENTS
from wallscope.advice.preconditions import lookup_in, precondition_rows
from wallscope.advice.rules import fix_rules
from wallscope.advice.settings import parse_value, vocabulary
from wallscope.model.advice import KnownSetting, RunConfiguration, TraceFacts

CASES = {
    row: (trips, clears)
    for line in (Path(__file__).parent / "precondition_cases.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
    for row, trips, clears in [map(str.strip, line.split(" | "))]
}
OF_RULES = {(clause, one.key): clause for rule in fix_rules() for clause in rule.when for one in clause}
STRUCTURAL = re.compile(
    r"[<>!|]=?|==|\bNone\b|\bTrue\b|\bFalse\b|[{}\[\]]|\b(not-in|not-like|has-all|divisible-by|not-empty)\b"
    r"|\b(lacks|unset|within|equals)\b|  |\b(is|be|to|not) none\b"
)
"""Operators of rules and how Python writes values."""
DOUBLED = re.compile(
    r"not (be |is |are )?(not|un\w+|none|empty|false)\b(?! or )|no \w+ (is|are) not|cannot not|is not false"
)
PLAIN = (
    "architecture backends collectives drained experts findings framework nccl pageable parts precision"
    " pressure ranks share window"
)
INSIDE = {name for name, fact in facts().items() if fact.name != name} - set(PLAIN.split())
"""Names that a sentence never shows; the others are plain words too."""


def configured(text):
    pairs = [pair.split("=", 1) for pair in text.split()]
    return RunConfiguration({name: KnownSetting(parse_value(name, value), "test") for name, value in pairs})


def judge(row, text, source=CAPTURE):
    return precondition_rows()[row].judge(lookup_in(configured(text), TraceFacts()), source)


def list_faults(text):
    """List what is rule code in a sentence, or says the opposite twice."""
    shown = re.sub(r"layout is \S+|expandable_segments:True", "layout", text)  # as a user writes them
    faults = [found[0] for pattern in (STRUCTURAL, DOUBLED) for found in pattern.finditer(shown)]
    return faults + [name for name in INSIDE if re.search(rf"(?<![\w/]){re.escape(name)}(?![\w/])", shown)]


@pytest.mark.parametrize("row", CASES)
def test_a_precondition_has_a_sentence_in_each_state(row):
    trips, clears = CASES[row]
    unmet, met, unknown = (judge(row, text) for text in (trips, clears, ""))

    assert [one.status for one in (unmet, met, unknown)] == ["unmet", "met", "unknown"]
    assert [list_faults(one.text) for one in (unmet, met, unknown)] == [[], [], []]
    assert " must " in unmet.text or " may " in unmet.text
    assert " but " in unmet.text
    assert " must " not in met.text
    assert unknown.text.startswith("not known from this capture: whether")
    assert unknown.text.endswith("; pass --config")
    assert len({unmet.text, met.text, unknown.text}) == 3


@pytest.mark.parametrize("row", CASES)
def test_what_is_not_met_is_told_with_what_is_the_case(row):
    trips, _ = CASES[row]
    lookup = lookup_in(configured(trips), TraceFacts())
    needs = precondition_rows()[row].needs
    failed = [one for clause in needs if evaluate((clause,), lookup) is False for one in clause]
    failed = [one for one in failed if one.key not in facts() and "*" not in one.key]
    text = judge(row, trips).text

    assert not failed or any(one.key in text for one in failed)


@pytest.mark.parametrize("clause", list(dict.fromkeys(OF_RULES.values())), ids=say_holds)
def test_a_condition_of_a_fix_has_a_sentence_in_each_state(clause):
    def lookup(key):
        return True, {"share": 0.001}.get(key, 7 if facts().get(key, None) is None else 0.001)

    met, unknown = say_holds(clause), say_whether(clause)
    unmet = say_inapplicable((clause,), lookup) if not any(one.evaluate(lookup) for one in clause) else met

    assert [list_faults(text) for text in (met, unmet, unknown)] == [[], [], []]
    assert not any(name in met for name in MEASUREMENTS if "_" in name)


def test_everything_that_conditions_look_up_is_a_setting_or_has_a_name():
    rows = precondition_rows().values()
    clauses = [clause for row in rows for clause in (*row.when, *row.needs)]
    asked = {name for clause in (*clauses, *OF_RULES.values()) for one in clause for name in one.names()}

    assert asked - set(vocabulary().kinds) - set(facts()) == set()
    assert set(facts()) - asked == set()
    assert set(MEASUREMENTS) <= set(facts())
    unreal = {
        name for name in asked if re.search(r"_is_|_are_|_installed$|_version$|^(layout|middle)_", name)
    }
    assert unreal - {"megatron_fsdp_version"} <= set(facts())


@pytest.mark.parametrize(
    ("row", "settings", "sentence"),
    [
        ("EPO-P08", "recompute_method=none", "recompute_method is not set"),
        (
            "EPO-P08",
            "recompute_method=uniform",
            (
                "recompute_method must not be set, but is uniform (Megatron Core from 0.14 on; no release is"
                " stated, so the newest counts)"
            ),
        ),
        (
            "EPO-P08",
            "",
            "not known from this capture: whether recompute_method is set; pass --config",
        ),
        (
            "CFG-03",
            "recompute_granularity=full recompute_num_layers=none",
            "where recompute_granularity is full, recompute_num_layers must be set, but is not",
        ),
        (
            "CFG-03",
            "recompute_granularity=full recompute_num_layers=2",
            "full recompute has a number of layers (recompute_num_layers is 2)",
        ),
        ("CFG-03", "recompute_granularity=none", "does not apply: recompute_granularity is not set"),
        (
            "CFG-03",
            "recompute_num_layers=none",
            (
                "not known from this capture: whether recompute_granularity is set, and not to selective;"
                " then recompute_num_layers must be set, but is not; pass --config"
            ),
        ),
        (
            "EPO-P13",
            "cuda_graph_impl=transformer_engine cuda_graph_modules=attn,mlp",
            (
                "where cuda_graph_impl is transformer_engine, cuda_graph_modules must not include moe or mlp,"
                " but it includes attn and mlp (Megatron Core from 0.16 on; no release is stated, so the"
                " newest counts)"
            ),
        ),
        (
            "EPO-P04",
            "bf16=false fp16=false",
            (
                "bf16 or fp16 must be true, but bf16 is false and fp16 is false: FP8 recipes run on top of"
                " BF16 (Megatron Core from 0.14 on; no release is stated, so the newest counts)"
            ),
        ),
        (
            "CFG-106",
            "framework=megatron-bridge async_save=true checkpoint_is_saved=false",
            (
                "where the framework is Megatron Bridge and async_save is true, checkpoints must be saved"
                " to a folder, but no folder for checkpoints is set"
            ),
        ),
        (
            "CFG-53",
            "hierarchical_context_product=8 context_parallel_size=16",
            (
                "the product of the hierarchical context-parallel sizes must be equal to"
                " context_parallel_size, but is 8 and context_parallel_size is 16"
            ),
        ),
    ],
)
def test_sentences_read_as_a_person_says_them(row, settings, sentence):
    assert judge(row, settings).text == sentence


def test_what_is_unknown_names_the_source_that_does_not_show_it():
    assert [judge("EPO-P08", "", source).text for source in (CONFIGURATION, BOTH)] == [
        "not known from this configuration: whether recompute_method is set",
        "not known from this capture and its configuration: whether recompute_method is set",
    ]


def test_what_a_fix_sets_is_told_with_its_value():
    before = lookup_in(configured("moe_token_dispatcher_type=allgather"), TraceFacts())
    after = lookup_in(configured("moe_token_dispatcher_type=flex"), TraceFacts())
    found = precondition_rows()["EPO-P03"].judge_with(before, after, CAPTURE)

    assert (found.status, found.unblock) == ("set", None)
    assert found.text == "the token dispatcher is alltoall or flex (moe_token_dispatcher_type is flex)"
    assert precondition_rows()["EPO-P03"].judge_with(before, before, CAPTURE).status == "unmet"
    assert precondition_rows()["EPO-P03"].judge_with(after, before, CAPTURE).status == "unmet"


def test_what_a_fix_makes_inapplicable_is_told_so_and_a_lower_bound_is_one():
    row = precondition_rows()["DSP-20"]
    trips, clears = (lookup_in(configured(text), TraceFacts()) for text in CASES["DSP-20"])
    others = lookup_in(configured("moe_flex_dispatcher_backend=deepep"), TraceFacts())
    bounded = lookup_in(RunConfiguration(), TraceFacts(least={"expert_model_parallel_size": 2}))

    assert row.judge_with(trips, clears, CAPTURE).status == "set"
    assert row.judge_with(trips, others, CAPTURE).text == (
        "no longer applies: moe_flex_dispatcher_backend is deepep"
    )
    assert precondition_rows()["EPO-P01"].judge(bounded, CAPTURE).text == (
        "EP is above 1 (expert_model_parallel_size is at least 2)"
    )
