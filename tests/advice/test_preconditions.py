from pathlib import Path

import pytest

from wallscope.advice.conditions import evaluate, parse_clause, parse_condition
from wallscope.advice.framework_rules import framework_defaults
from wallscope.advice.preconditions import features, lookup_in, precondition_rows
from wallscope.advice.settings import add_settings, check_value, parse_value, vocabulary
from wallscope.model.advice import KnownSetting, RunConfiguration, Setting, TraceFacts

CASES = [
    [part.strip() for part in line.split(" | ")]
    for line in (Path(__file__).parent / "precondition_cases.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


def configured(text):
    pairs = [pair.split("=", 1) for pair in text.split()]
    return RunConfiguration({name: KnownSetting(parse_value(name, value), "test") for name, value in pairs})


def status(row, text, trace=None):
    return precondition_rows()[row].find_status(lookup_in(configured(text), trace or TraceFacts()))


@pytest.mark.parametrize(("row", "trips", "clears"), CASES, ids=[case[0] for case in CASES])
def test_a_row_trips_on_one_configuration_and_not_on_another_and_is_unknown_without_any(row, trips, clears):
    assert (status(row, trips), status(row, clears), status(row, "")) == ("unmet", "met", "unknown")


def test_every_row_has_a_case_and_a_feature():
    assert {case[0] for case in CASES} == set(precondition_rows())
    assert {row.feature for row in precondition_rows().values()} == {feature.id for feature in features()}


def test_rows_ask_for_settings_that_can_be_read_and_say_what_to_do():
    for row in precondition_rows().values():
        assert row.keys(), row.id
        assert len(row.unblock) > 10
        for part in (*row.when, *row.needs):
            for one in part:
                assert set(one.key.split("*")) <= set(vocabulary().kinds), row.id


def test_the_trace_tells_machine_and_environment():
    machine = TraceFacts(architecture="sm_90", gpu="NVIDIA H100", environment={"NCCL_GRAPH_REGISTER": "0"})

    assert status("FP8-01", "fp8_recipe=mxfp8", machine) == "unmet"
    assert status("DSP-21", "moe_flex_dispatcher_backend=deepep", machine) == "met"
    assert (
        status("DSP-22", "moe_flex_dispatcher_backend=hybridep", TraceFacts(architecture="sm_120")) == "unmet"
    )
    graphs = "cuda_graph_impl=transformer_engine PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert status("CG-31", graphs, machine) == "met"


def test_communication_that_ran_bounds_the_sizes_that_nobody_told():
    exchanged = TraceFacts(least={"expert_model_parallel_size": 2, "num_moe_experts": 2})

    assert [status(row, "", exchanged) for row in ("EPO-P01", "EPO-P02", "EPO-P03")] == [
        "met",
        "met",
        "unknown",
    ]
    assert status("EPO-P01", "expert_model_parallel_size=1", exchanged) == "unmet", (
        "a file's word comes first"
    )
    staged = TraceFacts(least={"pipeline_model_parallel_size": 2})
    assert status("EPO-P06", "virtual_pipeline_model_parallel_size=none", staged) == "unmet"


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("size > 1", True),
        ("size >= 2", True),
        ("size > 2", None),
        ("size < 2", False),
        ("size <= 1", False),
        ("size <= 2", None),
        ("size = 1", False),
        ("size != 1", True),
        ("size = 2", None),
        ("size != none", True),
        ("size in 2 4", None),
        ("size divisible-by 2", None),
        ("size > other", None),
        ("size*known > 7", True),
        ("size*known > 8", None),
        ("size*other > 1", None),
        ("size*off > 1", None),
        ("other > 1", None),
    ],
)
def test_the_least_that_a_number_can_be_decides_what_it_can(text, holds):
    told = {"size at least": 2, "known": 4, "off": None}

    assert evaluate([parse_clause(text)], lambda key: (key in told, told.get(key))) is holds


def test_a_row_is_judged_with_the_settings_of_a_fix():
    run = configured("moe_token_dispatcher_type=alltoall moe_flex_dispatcher_backend=none")
    fix = [
        Setting("megatron-bridge", "model.moe_token_dispatcher_type", "flex"),
        Setting("megatron-lm", "--moe-flex-dispatcher-backend", "hybridep"),
        Setting("megatron-bridge", "model.cuda_graph_scope", "[attn, full_iteration]"),
        Setting("environment", "SOMETHING_ELSE", "1"),
    ]
    mended = add_settings(run, fix)

    assert mended.get("cuda_graph_impl") == "full_iteration"
    gate = precondition_rows()["DSP-22"]
    assert gate.find_status(lookup_in(mended, TraceFacts(architecture="sm_120"))) == "unmet"
    assert status("DSP-22", "moe_flex_dispatcher_backend=none", TraceFacts(architecture="sm_120")) == "met"


@pytest.mark.parametrize(
    ("text", "settings", "holds"),
    [
        pytest.param("num_moe_experts divisible-by expert_model_parallel_size", "", None, id="unknown"),
        pytest.param("torch_version >= 2.9.0", "torch_version=2.10.1", True, id="versions are no decimals"),
        pytest.param("torch_version >= 2.6.0", "torch_version=2.6.0a0+git", True, id="suffix of a version"),
        pytest.param("mtp_num_layers > 0", "mtp_num_layers=none", False, id="none is not above anything"),
        pytest.param("bucket_size divisible-by 0", "bucket_size=4", False, id="nothing divides by 0"),
    ],
)
def test_conditions(text, settings, holds):
    run = configured(settings)

    assert evaluate([parse_clause(text)], lambda key: (run.knows(key), run.get(key))) is holds


@pytest.mark.parametrize("text", ["a", "a ~ b", "a =", "a = b c", "a empty b"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(ValueError, match="is not a condition"):
        parse_condition(text)


@pytest.mark.parametrize("framework", ["megatron-core", "megatron-lm", "megatron-bridge"])
def test_defaults_are_values_of_known_settings(framework):
    odd = {
        name: value
        for name, value in framework_defaults(framework).items()
        if value is not None and check_value(name, value) != value
    }

    assert odd == {"moe_layer_freq": 1, "moe_router_load_balancing_type": "aux_loss"}, "as files write them"
