"""Rules are checked when they are read; what is wrong is named."""

import tomllib

import polars as pl
import pytest

from tests.advice.runs import run
from wallscope.advice.conditions import parse_clause
from wallscope.advice.measurements import MEASUREMENTS, MeasuredRun
from wallscope.advice.rules import check_rules, fix_rules
from wallscope.files import list_toml_paths, read_toml
from wallscope.model.advice import KnownSetting, RunConfiguration, Setting

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
    (rule,) = check_rules(tomllib.loads(text), "good.toml")

    assert rule.all_settings() == (
        Setting("megatron-lm", "--a", "b=c"),
        Setting("megatron-lm", "--d", ""),
        Setting("pytorch", "x(y=1)", ""),
        Setting("nsys", "--e", "f"),
    )


@pytest.mark.parametrize(
    ("changed", "says"),  # "": the reason is in the words of msgspec
    [
        pytest.param({"title": ""}, "", id="missing"),
        pytest.param({"titel": '"x"'}, "titel", id="unknown key"),
        pytest.param({"wall": '"roof"'}, "", id="unknown wall"),
        pytest.param({"phase": '"later"'}, "", id="unknown phase"),
        pytest.param({"causes": '["host/nothing"]'}, "no cause matches", id="unknown cause"),
        pytest.param({"causes": "[]"}, "", id="no cause"),
        pytest.param({"id": '"A fix"'}, "", id="id in the wrong form"),
        pytest.param({"facts": '["nothing"]'}, "", id="fact in the wrong form"),
        pytest.param({"when": '["luck >= 1"]'}, "luck", id="unknown measurement"),
        pytest.param({"when": '["share ~ 1"]'}, "share ~ 1", id="unknown operator"),
        pytest.param({"when": '["share >= much"]'}, "much", id="no number"),
        pytest.param({"when": '["share ="]'}, "share =", id="no value to compare with"),
        pytest.param({"when": "[1]"}, "1", id="no text"),
        pytest.param({"settings": '{ fortran = ["a=b"] }'}, "", id="unknown system"),
        pytest.param({"settings": '{ environment = ["NAME"] }'}, "without a value", id="no value"),
        pytest.param({"gain": '{ text = "twice" }'}, "", id="a figure without its context"),
        pytest.param(
            {"gain": '{ text = "twice", context = "here", much = 2 }'}, "much", id="unknown key of a figure"
        ),
    ],
)
def test_a_wrong_rule_is_refused(changed, says):
    with pytest.raises(ValueError, match=f"^bad.toml: (a-fix|A fix): .*{says}"):
        check_rules(tomllib.loads(table(**changed)), "bad.toml")


def test_two_rules_with_one_id_are_refused():
    with pytest.raises(ValueError, match="same id"):
        check_rules(tomllib.loads(f"{table()}\n{table()}"), "bad.toml")


def test_all_that_the_shipped_rules_name_is_there():
    paths = list_toml_paths("advice/rules")
    checked = [rule for path in paths for rule in check_rules(read_toml(path), path)]

    assert len(paths) > 5
    assert tuple(checked) == fix_rules()


@pytest.mark.parametrize("rule", fix_rules(), ids=lambda rule: rule.id)
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
    for rule in fix_rules():
        if rule.gain is not None:
            assert (rule.gain.low is None) == (rule.gain.high is None)
            assert rule.gain.low is None or 1 < rule.gain.low <= rule.gain.high < 5


def test_ids_are_unique_and_titles_are_short_imperatives():
    rules = fix_rules()

    assert len({rule.id for rule in rules}) == len(rules)
    assert all(len(rule.title) <= 80 and rule.title[0].isupper() and rule.title[-1] != "." for rule in rules)
    assert not [rule.id for rule in rules if ": " in rule.title]  # sentences go on behind a colon


def test_every_measurement_is_asked_for_and_has_its_words():
    conditions = [one for rule in fix_rules() for clause in rule.when for one in clause]
    asked = {name for one in conditions for name in one.names()} & set(MEASUREMENTS)
    view = MeasuredRun(run({"host/lock": 20}), RunConfiguration(), pl.Series(["x"]))

    assert asked == set(MEASUREMENTS)
    assert all(view.measure(name, ("host/lock",)) is not None for name in ("share", "experts", "window"))
    for name in MEASUREMENTS:
        view.measure(name, ("host/lock",))


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        pytest.param([], True, id="none"),
        pytest.param(["share >= 0.2"], True, id="at least, reached"),
        pytest.param(["share >= 0.21"], False, id="at least, missed"),
        pytest.param(["share <= 0.2"], True, id="at most, reached"),
        pytest.param(["share <= 0.19"], False, id="at most, missed"),
        pytest.param(["unfilled_share <= 1"], False, id="an unknown number is not at most"),
        pytest.param(["unfilled_share >= 0"], False, id="an unknown number is not at least"),
        pytest.param(["architecture in hopper blackwell"], True, id="one of"),
        pytest.param(["architecture = ampere"], False, id="another one"),
        pytest.param(["permute_fused = false"], False, id="unknown is not false"),
        pytest.param(["permute_fused != false"], True, id="unknown is none of them"),
        pytest.param(["architecture != hopper"], False, id="none of"),
        pytest.param(["architecture not-in ampere ada"], True, id="none of several"),
        pytest.param(["backends has deep-ep nccl"], False, id="no operation of the axis"),
        pytest.param(["backends lacks deep-ep nccl"], True, id="none of the axis"),
        pytest.param(["a in 1 2"], True, id="given"),
        pytest.param(["a = 3"], False, id="given as something else"),
        pytest.param(["b = 1"], False, id="not given"),
        pytest.param(["a != 1"], False, id="ruled out"),
        pytest.param(["b != 1"], True, id="not ruled out by what is unknown"),
        pytest.param(["b unset", "off unset"], True, id="unset, or off"),
        pytest.param(["a unset"], False, id="set"),
        pytest.param([["a = 3", "share >= 0.2"]], True, id="any of a clause"),
        pytest.param(["a = 1", "share >= 0.21"], False, id="all clauses"),
    ],
)
def test_conditions_hold_or_not(conditions, expected):
    configuration = RunConfiguration({"a": KnownSetting(1, "test"), "off": KnownSetting(False, "test")})
    view = MeasuredRun(run({"host/lock": 20}), configuration, pl.Series(["x"]))

    assert view.meets(tuple(map(parse_clause, conditions)), ("host/lock",)) is expected


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "hopper"),
        ("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", "blackwell"),
        ("cutlass3x_sm90_tensorop_s64x128x16gemm", "hopper"),
        ("fmhaSm100aKernel_QkvE4m3OBfloat16H64", "blackwell"),
        ("cutlass_80_tensorop_bf16_s16816gemm", None),
        ("ampere_sgemm_128x64_tn", None),
    ],
)
def test_kernels_name_the_architecture_if_the_capture_does_not(name, architecture):
    def told(gpu):
        view = MeasuredRun(run({"host/lock": 20}, gpu=gpu), RunConfiguration(), pl.Series([name]))
        return view.measure("architecture", ())

    assert told("unknown") == architecture
    assert told("A100") == "ampere"


@pytest.mark.parametrize(
    ("names", "framework"),
    [
        (["training_step_1", "nvte_rmsnorm_fwd"], "megatron"),
        (["megatron.core.transformer.attention.forward.qkv"], "megatron"),
        (["void hybrid_ep::dispatch_kernel<1>()"], "megatron"),
        (["void at::native::vectorized_elementwise_kernel<4>()"], "pytorch"),
        (["aten::mm, op_id = 3"], "pytorch"),
        (["triton_poi_fused_add_0"], "pytorch"),
        (["nvte_rmsnorm_fwd", "vllm::rms_norm_kernel"], "inference"),
        (["void deep_ep::intranode::dispatch<8>()"], "pytorch"),
        (["void deep_ep::intranode::dispatch<8>()", "sglang::moe_align"], "inference"),
        (["volta_sgemm_128x64_nn", "EigenMetaKernel"], "tensorflow"),
        (["loop_add_fusion_3", "volta_sgemm_128x64_nn"], "jax"),
        (["julia_broadcast(CuKernelContext)"], "julia"),
        (["test_84_gpu"], "directives"),
        (["__omp_offloading_31_18a80bc__Z_1"], "directives"),
        (["saxpy(double*, double*)", "fusion_of_my_own(int)"], "cuda"),
        ([], None),
    ],
)
def test_names_tell_the_framework(names, framework):
    view = MeasuredRun(run({"host/lock": 20}), RunConfiguration(), pl.Series(names, dtype=pl.String))

    assert view.framework == framework


@pytest.mark.parametrize(
    ("names", "world", "expected"),
    [
        pytest.param(["at::native::gelu_backward_kernel"], 1, True, id="a backward kernel"),
        pytest.param(["FusedAdam", "at::native::add"], 1, True, id="an optimizer"),
        pytest.param(["train_step_7", "decode"], 1, True, id="a step of training, whatever else is named"),
        pytest.param(["generate_training_samples"], 1, True, id="samples of training"),
        pytest.param(["nvte_rmsnorm_fwd", "request 3"], 16, False, id="requests"),
        pytest.param(["prefill", "my_kernel"], 16, False, id="prefill"),
        pytest.param(["at::native::add"], 1, False, id="PyTorch alone, without a backward pass"),
        pytest.param(["at::native::add"], 8, None, id="one of several ranks may have another part"),
        pytest.param(["my_kernel"], 1, None, id="a program that may not learn at all"),
        pytest.param(["constraint_batch"], 1, None, id="a word that only ends so"),
    ],
)
def test_a_backward_pass_or_an_optimizer_shows_training(names, world, expected):
    view = MeasuredRun(run({"host/lock": 20}, world=world), RunConfiguration(), pl.Series(names))

    assert view.measure("trains", ()) is expected


@pytest.mark.parametrize(
    ("gpu", "names", "vendor", "architecture"),
    [
        ("H100", ["x"], "nvidia", "hopper"),
        ("MI300X", ["x"], "amd", "cdna"),
        ("unknown", ["Cijk_Alik_Bljk_HHS_BH"], "amd", None),
        ("unknown", ["x"], None, None),
    ],
)
def test_the_maker_of_the_gpu_decides_what_its_architecture_is(gpu, names, vendor, architecture):
    view = MeasuredRun(run({"host/lock": 20}, gpu=gpu), RunConfiguration(), pl.Series(names))

    assert (view.measure("vendor", ()), view.measure("architecture", ())) == (vendor, architecture)
