import json

import pytest

from fixtures.example import write_example


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "moe.sqlite"
    write_example(path)
    return path


def test_what_a_trace_contradicts_is_a_finding(wallscope, example, tmp_path):
    (tmp_path / "run.toml").write_text('fp8 = "e4m3"\nmoe_token_dispatcher_type = "flex"\n', encoding="utf-8")
    ran = wallscope("analyze", example, "--config", "run.toml", "--json", "-")
    found = json.loads(ran.out)["capture"]["findings"]

    assert [each["message"] for each in found if each["code"] == "configuration-contradicted"] == [
        "run.toml: fp8 says e4m3, but no matrix multiplication in low precision ran"
    ]


def test_a_bad_configuration_is_refused_before_the_work(wallscope, tmp_path):
    (tmp_path / "run.toml").write_text("nonsense = 1\n", encoding="utf-8")
    ran = wallscope("analyze", "absent.sqlite", "--config", "run.toml")

    assert ran.code == 2
    assert "nonsense is no setting that is known" in ran.err


def test_a_fix_that_the_configuration_forbids_is_blocked_and_says_by_what(wallscope, example, tmp_path):
    told = (
        'moe_token_dispatcher_type = "alltoall"\nrecompute_granularity = "full"\nrecompute_method = "block"\n'
    )
    (tmp_path / "run.toml").write_text(told, encoding="utf-8")
    shown = wallscope("analyze", example, "--config", "run.toml", "--json", "run.json").out
    found = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["fixes"]
    overlap = next(fix for fix in found if fix["id"] == "ep-overlap")

    assert overlap["blocked"]
    assert [each["id"] for each in overlap["preconditions"] if each["status"] == "unmet"] == [
        "EPO-P07",
        "EPO-P08",
    ]
    assert not found[0]["blocked"]
    assert "Held back: Hide dispatch and combine" in shown
    assert "set recompute_method=null" in shown
