"""Settings that not every release of a framework has."""

import pytest

from wallscope.advice.configuration import read_configuration
from wallscope.advice.preconditions import check_configuration
from wallscope.advice.rejected_settings import releases
from wallscope.advice.settings import vocabulary
from wallscope.model.advice import TraceFacts
from wallscope.model.capture import Severity


def findings(folder, text, name="run.yaml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    read = read_configuration(path, with_defaults=True)
    check = check_configuration(read.configuration, TraceFacts(), read.findings, read.form)
    return [one for one in read.findings if one.code == "configuration-release"], check.stop_count


BRIDGE = "model: {cuda_graph_modules: [attn], moe_flex_dispatcher_num_sms: 16, moe_paged_stash: false}\n"
FLAGS = """MODEL_ARGS:
  --num-layers: 4
  --hidden-size: 64
  --num-attention-heads: 4
  --max-position-embeddings: 64
  --seq-length: 64
  --micro-batch-size: 1
  --use-megatron-fsdp: true
  --ckpt-format: fsdp_dtensor
"""


def test_bridge_ignores_what_its_release_lacks(tmp_path):
    (one,), stops = findings(tmp_path, f'megatron_bridge_version: "0.4.2"\n{BRIDGE}')

    assert (one.severity, stops) == (Severity.WARNING, 0)
    assert (
        "Megatron Bridge 0.4 lacks cuda_graph_modules (from 0.5), moe_flex_dispatcher_num_sms (from 0.6);"
        in (one.message)
    )
    assert findings(tmp_path, f'megatron_bridge_version: "0.6.0"\n{BRIDGE}') == ([], 0)


@pytest.mark.parametrize(("release", "stops"), [("0.13.1", 1), ("0.14.0", 0)])
def test_megatron_lm_stops_at_an_argument_that_its_release_lacks(tmp_path, release, stops):
    found, stopped = findings(tmp_path, f'{FLAGS}megatron_core_version: "{release}"\n')

    assert stopped == len(found) == stops


@pytest.mark.parametrize(("release", "lacks"), [("0.13.0", False), ("0.14.0", True)])
def test_an_argument_that_was_removed_is_lacking_from_then_on(tmp_path, release, lacks):
    text = f'MODEL_ARGS:\n  --num-layers: 4\n  --use-custom-fsdp: true\nmegatron_core_version: "{release}"\n'
    found, _ = findings(tmp_path, text)

    assert [("use_custom_fsdp (before 0.14)" in one.message) for one in found] == [True] * lacks


def test_without_a_release_the_newest_setting_is_named_once(tmp_path):
    (one,), stops = findings(tmp_path, BRIDGE)

    assert (one.severity, stops) == (Severity.INFO, 0)
    assert "moe_flex_dispatcher_num_sms needs Megatron Bridge 0.6 or newer" in one.message
    assert findings(tmp_path, "model: {moe_paged_stash: false, num_layers: 4}\n") == ([], 0), "not in use"


@pytest.mark.parametrize("framework", ["megatron-lm", "megatron-bridge"])
def test_names_of_releases_are_names_of_settings(framework):
    words = vocabulary()

    for kind in ("since", "until"):
        assert {name for name in releases(kind, framework) if words.name(name) is None} == set()
    assert releases("since", framework)
