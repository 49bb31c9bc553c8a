"""A stated release decides which assertions hold; without one the newest does, and the answer says so."""

import pytest

from wallscope.advice.assertion_releases import newest_releases, pair_releases, parse_span
from wallscope.advice.configuration import read_configuration
from wallscope.advice.preconditions import check_configuration, lookup_in, precondition_rows
from wallscope.advice.settings import check_value, complete_settings
from wallscope.model.advice import KnownSetting, RunConfiguration, TraceFacts

ROWS = precondition_rows()
SINCE = [span for row in ROWS.values() for span in row.spans if span.since]


def judged(row, **settings):
    known = {name: KnownSetting(check_value(name, value), "test") for name, value in settings.items()}
    lookup = lookup_in(RunConfiguration(complete_settings(known)), TraceFacts())
    return ROWS[row].judge(lookup, "the configuration file")


@pytest.mark.parametrize(
    ("release", "status"), [("0.18.0", "met"), ("0.18.2", "unmet"), ("0.19.0rc1", "unmet")]
)
def test_a_stated_release_decides(release, status):
    settings = {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"}
    found = judged("CFG-81", framework="megatron-lm", megatron_core_version=release, **settings)

    assert found.status == status
    assert "Megatron-LM from 0.18.2 on" in found.text
    assert "no release is stated" not in found.text


@pytest.mark.parametrize(
    ("each", "settings", "first", "before"),
    [
        ("EPO-P10", {"recompute_modules": ("moe",)}, "0.17.0", "0.16.1"),
        (
            "EPO-P13",
            {"cuda_graph_impl": "transformer_engine", "cuda_graph_modules": ("mlp",)},
            "0.16.0",
            "0.15.3",
        ),
        ("EPO-P15", {"overlap_dispatch_backward_with_experts_wgrad": True}, "0.18.0", "0.17.1"),
        ("EPO-P12", {"mtp_num_layers": 2}, "0.14.0", "0.13.1"),
        (
            "WF-38",
            {"num_moe_experts": 8, "add_bias_linear": True, "expert_tensor_parallel_size": 2},
            "0.15.0",
            "0.14.0",
        ),
    ],
)
def test_preconditions_know_releases_as_assertions_do(each, settings, first, before):
    on = {"overlap_moe_expert_parallel_comm": True, **settings}

    assert judged(each, megatron_core_version=first, **on).status == "unmet"
    assert judged(each, megatron_core_version=before, **on).status == "met"
    assert "so the newest counts" in judged(each, **on).text


def test_without_a_release_the_newest_decides_and_the_answer_says_so():
    found = judged("CFG-86", enable_mhc_connections=True, pipeline_model_parallel_size=2)

    assert found.status == "unmet"
    assert found.text.endswith("(Megatron Core from 0.20 on; no release is stated, so the newest counts)")
    assert "release" not in judged("CFG-38", bf16=True, fp16=True).text, "every release makes that check"


@pytest.mark.parametrize("span", sorted(set(SINCE), key=str), ids=lambda one: one.say())
def test_no_release_before_the_first_one_makes_an_assertion(span):
    major, minor, *patch = span.since
    before = (major, minor, patch[0] - 1) if patch else (major, minor - 1, 99)

    assert span.contains(span.since)
    assert not span.contains(before)
    assert span.contains((99,))


@pytest.mark.parametrize(
    ("bridge", "stops"), [("0.4.2", 0), ("0.5.1", 0), ("0.6.0", 0), ("0.7.0", 1), (None, 1)]
)
def test_the_release_of_bridge_brings_that_of_core(bridge, stops, tmp_path):
    file = tmp_path / "run.yaml"
    stated = f'megatron_bridge_version: "{bridge}"\n' if bridge else ""
    file.write_text(
        f"{stated}model:\n  enable_mhc_connections: true\n  mtp_num_layers: 1\n", encoding="utf-8"
    )
    read = read_configuration(file)
    found = check_configuration(read.configuration, TraceFacts(), read.findings, read.form)

    assert [row.precondition.id for row in found.stops] == ["CFG-86"] * stops


def test_either_release_brings_the_other():
    def pair(name, value):
        return {key: one.value for key, one in pair_releases({name: KnownSetting(value, "")}).items()}

    assert pair("megatron_bridge_version", "0.5.1") == {"megatron_core_version": "0.18.0"}
    assert pair("megatron_core_version", "0.17.1") == {"megatron_bridge_version": "0.4.0"}
    assert pair("megatron_core_version", "main") == pair("framework", "megatron-lm") == {}
    assert newest_releases() == {"megatron_core_version": "0.20.0", "megatron_bridge_version": "0.7.0"}


@pytest.mark.parametrize("text", ["te 0.1", "core x", "core 0.1 until 0.2"])
def test_what_is_no_span_is_refused(text):
    with pytest.raises(ValueError, match="is not a program"):
        parse_span(text)


def test_a_framework_that_does_not_make_a_check_passes_it():
    settings = {"use_megatron_fsdp": True, "fsdp_manual_registration": True, "nccl_ub": False}
    found = judged("CFG-75", framework="megatron-bridge", megatron_bridge_version="0.4.0", **settings)

    assert found.status == "met"
    assert found.text == (
        "does not apply: Megatron Bridge from 0.5 on makes this check, and the release is 0.4.0"
    )
