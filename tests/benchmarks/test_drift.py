from benchmarks.drift import (
    compare_arguments,
    compare_presets,
    compare_releases,
    compare_settings,
    read_arguments,
    read_fields,
    read_layouts,
    read_release,
)
from wallscope.advice.framework_rules import framework_defaults
from wallscope.advice.published import presets

CONFIG = """
class TransformerConfig:
    moe_router_topk: int = 4
    recompute_modules: list = field(default=None, metadata={})
    fsdp_new_buffers: bool = False
    init_method: str = "normal"
"""
RECIPES = """
def deepseek_v3_pretrain_64gpu_h100_bf16_config():
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.expert_model_parallel_size = 64

def deepseek_v3_pretrain_32gpu_h100_bf16_config():
    cfg.model.expert_model_parallel_size = 32

def _common(cfg):
    cfg.model.tensor_model_parallel_size = 8
"""


def test_settings_and_defaults_that_a_checkout_changed_are_listed(tmp_path):
    folder = tmp_path / "megatron/core/transformer"
    folder.mkdir(parents=True)
    (folder / "transformer_config.py").write_text(CONFIG, encoding="utf-8")
    lines = list(compare_settings(read_fields(tmp_path)))

    assert "setting fsdp_new_buffers: in the checkout, not in settings.toml" in lines
    assert "default of moe_router_topk: 2 in defaults.toml, 4 in the checkout" in lines
    assert not [line for line in lines if "recompute_modules" in line or "setting init_method:" in line]
    gone = [line for line in lines if line.endswith("in defaults.toml, not in the checkout")]
    assert len(gone) == len(framework_defaults("megatron-core")) - 2


def test_arguments_that_a_checkout_added_are_listed(tmp_path):
    folder = tmp_path / "megatron/training"
    folder.mkdir(parents=True)
    (folder / "arguments.py").write_text(
        "group.add_argument('--new-rate')\ngroup.add_argument('-o', '--new_file')\n"
        "group.add_argument('--bf16')\n",
        encoding="utf-8",
    )
    (folder / "config.py").write_text(
        "@dataclass\nclass Some:\n    new_field: int = 1\n    micro_batch_size: int = 1\n", encoding="utf-8"
    )

    assert list(compare_arguments(read_arguments(tmp_path))) == [
        f"argument --{name}: in the checkout, not in arguments.txt"
        for name in ("new-field", "new-file", "new-rate")
    ]


def test_presets_that_a_checkout_changed_are_listed(tmp_path):
    folder = tmp_path / "src/megatron/bridge/perf_recipes/deepseek"
    folder.mkdir(parents=True)
    (folder / "v3.py").write_text(RECIPES, encoding="utf-8")
    lines = list(compare_presets(read_layouts(tmp_path)))

    changed = "tensor_model_parallel_size is 2 in presets.toml, 4 in the checkout"
    assert f"preset deepseek_v3_64gpu_h100_bf16: {changed}" in lines
    assert "preset deepseek_v3_32gpu_h100_bf16: in the checkout, not in presets.toml" in lines
    assert len([line for line in lines if line.endswith("not in the checkout")]) == len(presets()) - 1


def test_first_releases_that_a_checkout_contradicts_are_listed(tmp_path):
    folder = tmp_path / "megatron/core"
    folder.mkdir(parents=True)
    (folder / "package_info.py").write_text("MAJOR = 0\nMINOR = 18\nPATCH = 0\n", encoding="utf-8")
    fields = {"cuda_graph_modules": [], "moe_flex_dispatcher_num_sms": None}
    release = read_release(tmp_path)
    lines = list(compare_releases(fields, release))

    assert release == (0, 18)
    assert "setting moe_flex_dispatcher_num_sms: from 0.19 in releases.toml, in the checkout before" in lines
    assert "setting moe_paged_stash: from 0.18 in releases.toml, not in the checkout" in lines
    assert not [line for line in lines if "cuda_graph_modules" in line or "fake_process_group" in line]
    assert read_release(folder) is None
