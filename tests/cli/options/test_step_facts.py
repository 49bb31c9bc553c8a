import json

import pytest

from fixtures.export import ExportWriter
from tests.shipped_example import EXAMPLE


@pytest.fixture(scope="module")
def example():
    return EXAMPLE


def diagnosis(wallscope, *arguments):
    return json.loads(wallscope("analyze", *arguments, "--json", "-").out)["diagnosis"]


def test_facts_of_a_step_give_its_throughput(wallscope, example):
    facts = ("--unprofiled-step-ms", "40", "--tokens-per-step", "4096", "--flops-per-step", "8e12")
    found = diagnosis(wallscope, example, *facts)["throughput"]
    step_s = found["step_ns"] / 1e9

    assert found["unprofiled_step_ns"] == 40_000_000
    assert found["perturbation"] == pytest.approx(step_s / 0.04)
    assert found["tokens_per_s"] == pytest.approx(4096 / step_s)
    assert found["flops_per_s"] == pytest.approx(8e12 / step_s)
    assert (found["peak"]["flops_per_s"], found["peak"]["precision"]) == (989.4e12, "bf16")
    assert found["mfu"] == pytest.approx(8e12 / step_s / 989.4e12)


def test_what_is_not_told_is_unknown(wallscope, example):
    found = diagnosis(wallscope, example, "--tokens-per-step", "4096")["throughput"]

    assert {name for name, value in found.items() if value is None} == {
        "unprofiled_step_ns",
        "perturbation",
        "flops_per_s",
        "peak",
        "mfu",
        "flops_source",
        "flops_share",
        "logged",
        "logged_mfu",
    }
    assert diagnosis(wallscope, example)["throughput"] is None


def test_facts_of_a_step_need_steps(wallscope, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.kernel("nvjet", 5, 1_000)
    answer = json.loads(wallscope("analyze", "run.sqlite", "--flops-per-step", "1", "--json", "-").out)

    assert answer["diagnosis"]["throughput"] is None
    assert "throughput-unknown" in {finding["code"] for finding in answer["capture"]["findings"]}


@pytest.mark.parametrize("option", ["--unprofiled-step-ms", "--tokens-per-step", "--flops-per-step"])
@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "many", "", "1e31"])
def test_a_bad_value_is_one_line_and_exit_2(option, text, wallscope):
    ran = wallscope("analyze", "none.sqlite", f"{option}={text}")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"wallscope: {option} {text}")
    assert ran.err.count("\n") == 1


def test_tokens_are_whole(wallscope):
    assert wallscope("analyze", "none.sqlite", "--tokens-per-step", "1.5").err == (
        "wallscope: --tokens-per-step 1.5 — is not a whole number — write --tokens-per-step 4194304\n"
    )


def test_the_terminal_says_whose_count_it_is(wallscope, example):
    facts = ("--unprofiled-step-ms", "40", "--tokens-per-step", "4096", "--flops-per-step", "8e12")
    shown = wallscope("analyze", example, *facts, "--full", columns=140).out

    assert "\nWithout the profiler, the step takes 40.0 ms; in the capture, it takes 1.28x as long\n" in shown
    assert " per GPU, computed from your count\n" in shown
    assert " of the dense BF16 peak of 989.4 TFLOP/s (NVIDIA H100 Tensor Core GPU data sheet)\n" in shown


def test_a_selected_time_without_steps_is_not_called_the_capture(wallscope, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.kernel("nvjet", 5, 1_000)
    shown = wallscope("analyze", "run.sqlite", "--time", "0us-0.5us", "--full").out

    assert "No step was found, so the selected time is one window\n" in shown
    assert "Time breakdown of the selected time (495 ns)" in shown
    assert "capture is one window" not in shown
