import json

import pytest

from tests.logs_written import write_megatron, write_torchtitan
from tests.shipped_example import EXAMPLE


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "run.log"
    path.write_text("\n".join(write_megatron([900.0, *[45.0] * 30])), encoding="utf-8")
    return path


def analyze(wallscope, *arguments):
    return json.loads(wallscope("analyze", EXAMPLE, *arguments, "--json", "-").out)


def find_messages(answer, code):
    return [one["message"] for one in answer["capture"]["findings"] if one["code"] == code]


def test_a_log_is_the_unprofiled_step_that_the_option_gives(wallscope, log):
    by_log, by_option = analyze(wallscope, "--log", log), analyze(wallscope, "--unprofiled-step-ms", "45")
    for answer in (by_log, by_option):
        answer["diagnosis"]["throughput"] = {
            name: value
            for name, value in answer["diagnosis"]["throughput"].items()
            if name not in {"logged", "logged_mfu", "peak"}
        }

    assert by_log == by_option


def test_the_walls_share_what_the_capture_adds(wallscope, log):
    answer = analyze(wallscope, "--log", log)
    found = answer["diagnosis"]["throughput"]
    by_wall = {one["wall"]: (one["inflated"], one["most_ns"]) for one in found["inflation"]}
    (profiler,) = [one for one in answer["ranks"][0]["causes"] if one["cause"] == "unattributed/profiler"]

    assert by_wall["host"] == ("yes", pytest.approx(profiler["typical_ns"], abs=1))
    assert by_wall["host"][1] == found["step_ns"] - found["unprofiled_step_ns"]
    assert {wall for wall, one in by_wall.items() if one == ("no", 0)} == set(by_wall) - {"host"}


def test_what_host_time_cannot_explain_may_be_in_other_walls(wallscope):
    found = analyze(wallscope, "--unprofiled-step-ms", "35")["diagnosis"]["throughput"]
    by_wall = {one["wall"]: one for one in found["inflation"]}
    rest_ns = found["step_ns"] - found["unprofiled_step_ns"] - by_wall["host"]["most_ns"]

    assert by_wall["compute"]["inflated"] == "no"
    assert by_wall["communication"] == {
        "wall": "communication",
        "inflated": "possible",
        "most_ns": pytest.approx(rest_ns, abs=rest_ns),
    }
    assert 0 < by_wall["communication"]["most_ns"] <= rest_ns


@pytest.mark.parametrize("medium", [("--full",), ("--markdown", "-"), ()])
def test_every_medium_says_what_the_step_rests_on(medium, wallscope, log):
    shown = " ".join(wallscope("analyze", EXAMPLE, "--log", log, *medium, columns=300).out.split())

    assert "Without the profiler, the step takes 45.0 ms" in shown
    assert "Step time from the Megatron-LM log: median of 30 reports" in shown
    assert "according to the Megatron-LM log: 412.3 TFLOP/s per GPU, MFU 41.7 %, loss scale 65,536" in shown
    assert "Profiling inflates host by 6.1 ms, and not compute, communication, memory or" in shown


def test_contradictions_are_said(wallscope, tmp_path, log):
    (tmp_path / "slow.log").write_text("\n".join(write_megatron([900.0, *[80.0] * 30])), encoding="utf-8")
    plain = [f"step {place} dt: 45.0ms tok/sec: 100000.0" for place in range(20)]
    (tmp_path / "plain.log").write_text("\n".join(plain), encoding="utf-8")
    slow = analyze(wallscope, "--log", tmp_path / "slow.log")
    tokens = analyze(wallscope, "--log", tmp_path / "plain.log", "--tokens-per-step", "9000")
    same = analyze(wallscope, "--log", tmp_path / "plain.log", "--tokens-per-step", "4500")
    flops = analyze(wallscope, "--log", log, "--flops-per-step", "1e12")

    assert "longer than the 51.1 ms of the captured step" in find_messages(slow, "log-contradiction")[0]
    assert find_messages(tokens, "log-contradiction") == [
        "A step has 4,500 tokens according to the log, but 9,000 according to --tokens-per-step."
    ]
    assert find_messages(same, "log-contradiction") == []
    assert find_messages(flops, "log-contradiction") == [
        (
            "A GPU does 1.86e+13 FLOP in a step according to the log, but 1e+12 FLOP according to"
            " --flops-per-step."
        )
    ]


def test_another_peak_behind_the_mfu_is_said(wallscope, tmp_path):
    lines = write_torchtitan([900.0, *[45.0] * 60])
    (tmp_path / "run.log").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "half.log").write_text("\n".join(lines).replace("41.69%", "83.38%"), encoding="utf-8")
    shown = {
        name: wallscope("analyze", EXAMPLE, "--log", name, columns=300).out
        for name in ("run.log", "half.log")
    }

    assert "assumes a peak" not in shown["run.log"]
    assert "The MFU in the log assumes a peak of 494.5 TFLOP/s" in shown["half.log"]


def test_an_unsteady_log_leaves_the_step_unknown(wallscope, tmp_path):
    lines = write_megatron([*[45.0] * 20, *[60.0] * 20])
    (tmp_path / "run.log").write_text("\n".join(lines), encoding="utf-8")
    answer = analyze(wallscope, "--log", "run.log")

    assert answer["diagnosis"]["throughput"]["unprofiled_step_ns"] is None
    assert answer["diagnosis"]["throughput"]["inflation"] == []
    assert "45.0 ms in its first half, 60.0 ms in its second" in find_messages(answer, "log-step-unknown")[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--log", "absent.log"), "absent.log — cannot be read"),
        (("--log", "empty.log"), "empty.log — states no time of a step"),
        (("--log", "run.log", "--unprofiled-step-ms", "3"), "--log and --unprofiled-step-ms — both give"),
        (("--log", "run.log", "--json", "run.log"), "run.log"),
    ],
)
def test_a_bad_log_is_one_line_and_exit_2(arguments, said, wallscope, log):
    (log.parent / "empty.log").touch()
    before = log.read_bytes()
    for command in ("analyze", "whatif"):
        ran = wallscope(command, EXAMPLE, *arguments)

        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert said in ran.err
    assert log.read_bytes() == before


def test_a_replay_wins_no_more_host_time_than_the_log_leaves(wallscope, log):
    asked = (EXAMPLE, "--without", "host/framework", "--json", "-")
    by_log = json.loads(wallscope("whatif", *asked, "--log", log).out)
    by_option = json.loads(wallscope("whatif", *asked, "--unprofiled-step-ms", "45").out)

    assert by_log == by_option
