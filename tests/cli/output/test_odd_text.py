"""Text that UTF-8 cannot hold is spelled out or refused when it is written, and poisons nothing for good."""

import json
import os
from dataclasses import replace

import pytest

from fixtures.scenario import scenarios
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.torch_writing import write_torch_run
from tests.compare.test_compare import steps
from tests.profile.random_profiles import profile_of, work
from wallscope.model.capture import Options
from wallscope.pipeline import analyze
from wallscope.profile.codec import pack_profile, read_profiles, unpack_profile
from wallscope.store import Store

BASE, HEAD = "a" * 40, "b" * 40


@pytest.fixture
def odd_file(tmp_path):
    place = tmp_path / os.fsdecode(b"run\xff.sqlite")
    try:
        next(one for one in scenarios() if one.name == "communication-partly-hidden").write(place)
    except OSError:
        pytest.skip("this file system takes no such names")
    return place


def test_a_file_name_of_any_bytes_reaches_no_result(odd_file, called, tmp_path):
    outputs = {"--json": "a.json", "--html": "a.html", "--markdown": "a.md", "--perfetto": "a.pftrace"}
    folders = {"--csv": "csv", "--parquet": "parquet"}
    words = [word for option, name in (outputs | folders).items() for word in (option, tmp_path / name)]
    assert called("analyze", odd_file, *words).code == 0
    for name in ("a.json", "a.html", "a.md", "csv/manifest.json"):
        (tmp_path / name).read_text(encoding="utf-8")
    assert json.loads((tmp_path / "a.json").read_text())["inputs"][0]["name"] == "run\\udcff.sqlite"
    assert read_profiles(tmp_path / "a.json")


def test_a_trace_with_a_name_of_any_bytes_is_spelled_out_too(tmp_path):
    place = tmp_path / os.fsdecode(b"run\xff.json")
    try:
        write_torch_run(run(random_program(2)), place)
    except OSError:
        pytest.skip("this file system takes no such names")

    assert analyze(place, Options(), lambda _: None).inputs[0].name == "run\\udcff.json"


def test_a_run_of_such_a_file_is_recorded_and_compared(odd_file, called, tmp_path):
    for commit in (BASE, HEAD):
        assert called("record", odd_file, "--commit", commit, "--store", tmp_path / "s").code == 0
    assert len(Store(tmp_path / "s").all_records()) == 2
    result = tmp_path / "diff.json"
    assert called("diff", BASE, HEAD, "--store", tmp_path / "s", "--json", result).code in {0, 2}
    assert called("diff", odd_file, odd_file, "--json", result, "--html", tmp_path / "d.html").code == 0
    json.loads(result.read_text(encoding="utf-8"))


def test_a_label_that_is_no_text_is_refused(answers, called, tmp_path):
    ran = called(
        "record", answers / "base.json", "--commit", BASE, "--store", tmp_path / "s", "--label", "k=a\udcff"
    )
    assert (ran.code, "is not a label" in ran.err) == (2, True)


def test_a_configuration_that_is_no_text_poisons_no_record():
    odd = replace(work(), settings=(("recipe", "a\ud800"),), name="step\udcff")
    stored = pack_profile(profile_of("run\udcff", steps(5, 1.0, 1), odd))
    found = unpack_profile(stored, "x")
    assert found.header.work.settings == (("recipe", "a\\ud800"),)
    assert found.header.work.name == "step\\udcff"


def write_odd_label(path, found):
    found["testbed"]["labels"] = {"k": "\udcff"}
    path.write_text(json.dumps(found))


def write_sparse_terabyte(path, _):
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize(
    ("poison", "why"),
    [
        pytest.param(write_odd_label, "is damaged", id="no text"),
        pytest.param(write_sparse_terabyte, "has 1.0 TiB, more than a store writes", id="sparse"),
    ],
)
def test_an_unreadable_record_is_left_out_and_named(answers, called, tmp_path, poison, why):
    store = tmp_path / "s"
    for name, commit in (("base", BASE), ("head", HEAD)):
        assert called("record", answers / f"{name}.json", "--commit", commit, "--store", store).code == 0
    poisoned = store / "records" / ("c" * 40) / f"{'0' * 32}.json"
    poisoned.parent.mkdir()
    (one,) = store.glob(f"records/{BASE}/*.json")
    poison(poisoned, json.loads(one.read_text()))
    before = sorted(path.name for path in store.glob("objects/*/*"))
    old = store.stat().st_mtime - 7_200
    for path in store.glob("objects/*/*"):
        os.utime(path, (old, old))

    compared = called("diff", BASE, HEAD, "--store", store)
    listed = called("history", "step", "--store", store)
    kept = called("record", answers / "head.json", "--commit", HEAD, "--store", store, "--keep", "1")

    for ran in (compared, listed, kept):
        assert ran.code == 0
        assert f"record left out: {poisoned} — {why}" in ran.err
    assert sorted(path.name for path in store.glob("objects/*/*")) == before  # it may name any of them
    ran = called("diff", "c" * 40, HEAD, "--store", store)
    assert (ran.code, why in ran.err) == (2, True)
