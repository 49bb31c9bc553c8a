"""Stops are found by their words, and compared with the releases that assertions name."""

import subprocess

import pytest

from benchmarks.stops import (
    compare_assertions,
    list_release_tags,
    read_checkout,
    read_release_at,
    read_stops,
    words_of_assertions,
)
from wallscope.advice.preconditions import precondition_rows

CONFIG = """
class TransformerConfig:
    def __post_init__(self):
        if self.cuda_graph_impl != "none":
            assert self.cuda_graph_impl in ["local", "transformer_engine"], "no"
        for module in self.recompute_modules:
            with lock:
                if module == "gdn_norm_out":
                    raise ValueError("no")
                else:
                    try:
                        raise TypeError(module)
                    except KeyError:
                        pass
"""


def test_a_stop_has_the_words_of_its_test_and_of_those_around_it():
    found = list(read_stops(CONFIG))

    assert [(one.function, one.line) for one in found] == [
        ("__post_init__", 5),
        ("__post_init__", 9),
        ("__post_init__", 12),
    ]
    assert found[0].words == {"cuda_graph_impl", "none", "local", "transformer_engine"} - {"none"}
    assert found[1].words == found[2].words == {"recompute_modules", "module", "gdn_norm_out"}
    assert list(read_stops("print 'of another version'")) == []


def test_assertions_are_compared_with_a_release(tmp_path):
    folder = tmp_path / "megatron/core"
    folder.mkdir(parents=True)
    (folder / "config.py").write_text(CONFIG, encoding="utf-8")
    lines = list(compare_assertions(read_checkout(tmp_path, "megatron"), (0, 14, 0), "megatron"))

    assert "assertion CFG-30: Megatron Core from 0.15 on, but 0.14.0 stops before" in lines
    assert "assertion CFG-09: Megatron Core from 0.19 on, but 0.14.0 stops before" in lines
    assert "assertion CFG-01: core, but 0.14.0 does not stop" in lines
    assert not [line for line in lines if "CFG-10:" in line or "no words" in line]


def test_a_clone_is_read_at_its_tags(tmp_path):
    folder = tmp_path / "megatron/core"
    folder.mkdir(parents=True)
    (folder / "config.py").write_text(CONFIG, encoding="utf-8")

    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", tmp_path, *who, *words], check=True, capture_output=True)

    for words in (("init",), ("add", "."), ("commit", "-m", "a"), ("tag", "core_v0.15.1"), ("tag", "v1.0")):
        git(*words)

    assert list_release_tags(tmp_path, "megatron") == {(0, 15, 1): "core_v0.15.1"}
    assert list_release_tags(tmp_path, "bridge") == {(1, 0): "v1.0"}
    assert read_release_at(tmp_path, "core_v0.15.1", "megatron") == read_checkout(tmp_path, "megatron")


@pytest.mark.parametrize("row", [row for row in precondition_rows().values() if row.id.startswith("CFG")])
def test_every_assertion_names_its_releases_and_its_words(row):
    assert row.spans
    assert all(words_of_assertions()[row.id, span.program] for span in row.spans)
