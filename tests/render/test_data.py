import json

import jsonschema
import pytest

from fixtures.scenario import scenarios
from tests.answered_once import analyze_scenario_once
from tests.conftest import run_part
from wallscope.files import read_report
from wallscope.model.advice import Advice, ConfigurationCheck
from wallscope.model.analysis import Analysis
from wallscope.model.comparison import Comparison
from wallscope.model.ledger import Ledger
from wallscope.render.data import make_json_schema, write_json

SCHEMA = jsonschema.Draft202012Validator(json.loads(read_report("analysis.schema.json")))


def bare(schema):
    """The schema without its prose, which differs between versions of pydantic."""
    if isinstance(schema, dict):
        return {key: bare(value) for key, value in schema.items() if key not in {"title", "description"}}
    return [bare(entry) for entry in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize(
    ("name", "noun"),
    [
        pytest.param("analysis", Analysis, id="analyze"),
        pytest.param("comparison", Comparison, id="diff"),
        pytest.param("ledger", Ledger, id="ledger"),
        pytest.param("advice", Advice, id="advise"),
        pytest.param("check-config", ConfigurationCheck, id="check-config"),
    ],
)
def test_the_published_schema_is_that_of_the_nouns(name, noun, request):
    file = f"{name}.schema.json"
    if request.config.getoption("--golden"):
        (request.config.rootpath / "reports" / file).write_text(
            json.dumps(make_json_schema(noun), indent=1) + "\n", encoding="utf-8"
        )

    assert bare(make_json_schema(noun)) == bare(json.loads(read_report(file)))


@pytest.mark.parametrize("scenario", run_part(scenarios(), name=lambda scenario: scenario.name))
def test_every_answer_follows_the_schema_and_is_ascii(scenario):
    text = write_json(analyze_scenario_once(scenario.name))

    SCHEMA.validate(json.loads(text))
    assert text.isascii()


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        pytest.param(
            (), "schema wallscope_version inputs capture anchor ranks diagnosis opportunities fixes", id="top"
        ),
        pytest.param(
            ("inputs", 0),
            "name fingerprint size_bytes nsys_version schema_version hostname session_start_utc_ns gpus",
            id="inputs",
        ),
        pytest.param(
            ("capture",),
            "findings launch_correlation_share resolved_dependency_share cuda_graphs ranks_supplied",
            id="capture",
        ),
        pytest.param(("anchor",), "kind unit name steps dropped cross_check", id="anchor"),
        pytest.param(
            ("ranks", 0),
            "rank rank_source input pid device steps typical causes communication compute memory ranges"
            " profile",
            id="ranks",
        ),
        pytest.param(
            ("ranks", 0, "steps", 0),
            "index start_ns end_ns steady reason budget compute_absent walls",
            id="steps",
        ),
        pytest.param(
            ("ranks", 0, "communication"),
            "union_ns exposed_ns blocking_ns hidden_share operations",
            id="communication",
        ),
        pytest.param(
            ("ranks", 0, "communication", "operations", 0),
            "operation axis backend count work_ns exposed_ns bytes bus_bandwidth_bytes_per_s",
            id="operations",
        ),
        pytest.param(("ranks", 0, "compute", 0), "category work_ns share kernels", id="compute"),
        pytest.param(("ranks", 0, "memory"), "peak_bytes capacity_bytes allocator_calls copies", id="memory"),
        pytest.param(
            ("diagnosis",),
            "dominant_wall runner_up margin led_steps steady_steps walls next_wall memory_pressure verdict",
            id="diagnosis",
        ),
    ],
)
def test_the_keys_of_the_contract_are_there(where, keys):
    found = json.loads(write_json(analyze_scenario_once("communication-partly-hidden")))

    for key in where:
        found = found[key]
    assert set(keys.split()) <= set(found)
