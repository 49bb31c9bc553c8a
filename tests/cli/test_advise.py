import json

import jsonschema
import pytest

from wallscope.files import read_report

DSV3 = ("advise", "--model", "deepseek-v3", "--hardware", "h100", "--seq-length", "131072")


@pytest.mark.parametrize("columns", [80, 140])
def test_a_plan_fits_the_terminal(wallscope, columns):
    shown = wallscope(*DSV3, "--gpus", "256", columns=columns)

    assert shown.code == 0
    assert "TP1 x CP32 x DP1 x PP8" in shown.out
    assert "ETP1 x EP32 x EDP1 x PP8" in shown.out
    assert all(len(line) <= columns for line in shown.out.splitlines())


def test_a_plan_as_json(wallscope):
    plan = json.loads(wallscope(*DSV3, "--gpus", "256", "--json", "-").out)

    jsonschema.validate(plan, json.loads(read_report("advice.schema.json")))
    assert plan["schema"] == "wallscope.advice/1"
    assert plan["layout"]["sizes"]["context"] == 32
    assert plan["layout"]["fewest_gpus"] == 256
    assert "LC-30" not in plan["items"][0]["facts"]


def test_a_layout_that_cannot_be_is_refused_in_one_line(wallscope):
    shown = wallscope(*DSV3, "--gpus", "128", "--layout", "cp32,pp8")

    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith("wallscope: TP1 CP32 PP8 EP32 ETP1 on 128 GPUs — needs PP x max(")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize("kind", ["yaml", "arguments"])
def test_a_plan_alone_passes_the_check(wallscope, tmp_path, kind):
    plan = wallscope(*DSV3, "--gpus", "256", "--precision", "fp8", "--as", kind)
    file = tmp_path / ("plan.yaml" if kind == "yaml" else "plan.sh")
    file.write_text(plan.out, encoding="utf-8")
    found = wallscope("check-config", file, "--hardware", "h100")

    assert (plan.code, found.code) == (0, 0)
    assert "no check finds an error" in found.out
    again = wallscope(
        *DSV3, "--gpus", "256", "--precision", "fp8", "--as", kind, "--layout", "tp1,cp32,pp8,vpp4,ep32"
    )
    assert again.out == plan.out
