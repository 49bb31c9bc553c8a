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
