"""Every check can fire and be cleared: what cannot is dead, and here it fails."""

import random
from dataclasses import replace
from itertools import combinations, islice, product
from math import prod
from pathlib import Path

import pytest

from tests.advice.test_plan import wanted
from tests.conftest import run_part
from wallscope.advice.conditions import evaluate, parse_clause
from wallscope.advice.plan import _rules, plan_run
from wallscope.advice.preconditions import features, lookup_in, precondition_rows
from wallscope.advice.published import find_machine
from wallscope.advice.rules import fix_rules
from wallscope.advice.settings import complete_settings, vocabulary
from wallscope.model.advice import KnownSetting, RunConfiguration, TraceFacts
from wallscope.model.enums import Backend, Collective, CopyDirection, Precision
from wallscope.nsys.identity import _ALLOWED

MOST_TRIED = 12_000
FEATURES = {feature.id: feature for feature in features()}
ROWS = precondition_rows()


def values_of(conditions):
    """Values to try for each setting that the conditions name: those of their words, and others."""
    kinds, found = vocabulary().kinds, {}
    of_kind = {
        "switch": {True, False},
        "sizes": {None, 1, 2, 8},
        "whole": {None, 0, 1, 2, 8},
        "number": {None, -1.0, 0, 1.5},
        "version": {"0.1.0", "99.0.0"},
        "environment": {"0", "1", "32", "other"},
        "word": {None, "other"},
        "words": {(), ("other",)},
    }
    for one in conditions:
        for name in one.names():
            found.setdefault(name, set(of_kind[kinds[name]]))
        if one.key not in kinds:
            continue
        kind, words = (
            kinds[one.key],
            [word for word in one.words if not {word, *word.split("*")} & set(kinds)],
        )
        numbers = [int(word) for word in words if word.isdecimal()]
        match kind:
            case "words":
                found[one.key] |= {(word,) for word in words} | {tuple(words)}
            case "sizes" | "whole":
                found[one.key] |= {
                    near for number in numbers for near in (number - 1, number, number + 1) if near > 0
                }
            case "word" | "environment" | "version":
                found[one.key] |= {None if word == "none" else word for word in words}
    for name, tried in found.items():
        if kinds[name] == "words":
            found[name] = tried | set(
                combinations(sorted({word for several in tried for word in several}), 2)
            )
    return {name: sorted(tried, key=repr) for name, tried in found.items()}


def configurations(conditions):
    """All combinations of the values, or many of them, as a file that states them is read."""
    tried = values_of(conditions)
    every = product(*tried.values())
    if prod(map(len, tried.values())) > MOST_TRIED:
        drawn = random.Random(1)
        every = islice((tuple(map(drawn.choice, tried.values())) for _ in iter(int, 1)), MOST_TRIED)
    for values in every:
        settings = dict(zip(tried, values, strict=True))
        known = {name: KnownSetting(value, "test") for name, value in settings.items()}
        yield RunConfiguration(complete_settings(known))


def problems(row):
    """What is dead in a row: itself while its feature is on, or a condition that is always or never true."""
    on = FEATURES[row.feature].on
    conditions = [one for clause in (*row.when, *row.needs) for one in clause]
    outcomes, seen = set(), {one: set() for one in conditions}
    for configuration in configurations([*conditions, *(one for clause in on for one in clause)]):
        lookup = lookup_in(configuration, TraceFacts())
        for one in conditions:
            seen[one].add(one.evaluate(lookup))
        if evaluate((*on, *row.when), lookup) is True:
            outcomes.add(evaluate(row.needs, lookup))
    yield from ["never unmet"] * (False not in outcomes)
    yield from ["never met where it applies"] * (True not in outcomes)
    yield from (f"{one} is always one" for one in conditions if not {True, False} <= seen[one])


def parse_all(conditions):
    return tuple(map(parse_clause, conditions))


@pytest.mark.parametrize("name", run_part(ROWS, name=str))
def test_every_precondition_can_be_unmet_and_met_while_its_feature_is_on(name):
    assert list(problems(ROWS[name])) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param(
            {"when": ["overlap_moe_expert_parallel_comm = false"]}, "never unmet", id="feature is off"
        ),
        pytest.param(
            {
                "feature": "cuda-graphs",
                "when": ["cuda_graph_impl = local"],
                "needs": ["cuda_graph_modules has full_iteration"],
            },
            "never met",
            id="a value that reading replaces",
        ),
        pytest.param({"needs": ["moe_shared_expert_overlap in true false"]}, "always one", id="both values"),
    ],
)
def test_a_precondition_that_cannot_fire_is_found(changed, said):
    written = {name: changed[name] if name == "feature" else parse_all(changed[name]) for name in changed}
    dead = replace(ROWS["EPO-P01"], **written)

    assert any(said in problem for problem in problems(dead))


def test_what_conditions_ask_of_machine_and_environment_is_told_by_captures():
    asked = {key for row in ROWS.values() for key in row.keys()}  # noqa: SIM118  # no mapping
    asked |= {name for rule in fix_rules() for clause in rule.when for one in clause for name in one.names()}
    variables = {key for key in asked if vocabulary().kinds.get(key) == "environment"}
    set_by_fixes = {
        one.key
        for rule in fix_rules()
        for one in rule.all_settings()
        if one.system == "environment" and not one.value.startswith("<")
    }

    assert asked & {"compute_capability", "gpu_name", "nvlink_domain"} <= set(
        find_machine("h100").facts().settings()
    )
    assert variables | set_by_fixes <= set(_ALLOWED)


def test_what_no_framework_writes_into_a_file_is_said_to_be_added():
    told_by_forms = {"framework", "model_family"}  # tests/advice/test_configuration.py
    told_by_machines = {"compute_capability", "gpu_name", "nvlink_domain"}
    stated = {"torch_version", "transformer_engine_version", "deepep_installed", "hybridep_installed"}
    page = (Path(__file__).resolve().parents[2] / "docs" / "plan.md").read_text(encoding="utf-8")
    asked = {key for row in ROWS.values() for key in row.keys()}  # noqa: SIM118  # no mapping

    assert {name for name in stated if f"`{name}`" in page} == stated
    assert told_by_forms | told_by_machines | stated <= asked


VALUES = {
    "architecture": {"volta", "turing", "ampere", "ada", "hopper", "blackwell", "cdna", "rdna"},
    "backends": set(Backend),
    "collectives": set(Collective),
    "framework": {"megatron", "pytorch"},
    "pageable": set(CopyDirection),
    "precision": set(Precision),
    "pressure": {"none", "near", "high", "unknown"},
    "vendor": {"amd", "nvidia"},
    "window": {"step", "capture", "selected-time"},
}


def test_words_of_fixes_are_values_that_a_measurement_can_have():
    conditions = [one for rule in fix_rules() for clause in rule.when for one in clause]
    odd = {one for one in conditions if one.key in VALUES and not set(one.words) <= VALUES[one.key]}

    assert odd == set()


def test_every_entry_of_the_checklist_is_in_a_plan():
    runs = [
        wanted("qwen3-30b", 16, "h100"),
        wanted("dsv3", 256, "h100", 131072, global_batch=64),
        wanted("dsv3", 256, "gb200", precision="mxfp8"),
        wanted("dsv3", 256, "gb200", 131072),
        wanted("qwen3-vl-235b", 64, "gb200"),
        wanted("dsv3", 256, "a100", layout="tp16,pp16"),
        wanted("llama3-70b", 64, "gb200"),
        wanted("llama3-8b", 16, "l40s", 8192, "tp1,pp1,cp1,ep1"),
        wanted("nemotron-3-nano", 16, "h100"),
    ]
    found = {item.facts for run in runs for item in plan_run(run).items}

    assert {rule.item.facts for rule in _rules()} == found
