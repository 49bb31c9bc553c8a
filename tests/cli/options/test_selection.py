import json

import pytest

from fixtures.export import ExportWriter


@pytest.fixture
def export(tmp_path):
    """Two processes on two devices, six steps of 100 µs each, ten kernels a step."""
    path = tmp_path / "run.sqlite"
    with ExportWriter(path) as writer:
        for pid, device in ((101, 0), (102, 1)):
            for index in range(6):
                at = 1_000_000 + 100_000 * index
                writer.range(f"training_step_{index}", at - 10, at + 95_000, pid=pid)
                for kernel in range(10):
                    number = writer.call(
                        "cudaLaunchKernel_v7000", at + 9_000 * kernel, at + 9_000 * kernel + 10, pid=pid
                    )
                    start_ns = at + 9_000 * kernel + 500
                    where = {"pid": pid, "device": device, "correlation": number}
                    writer.kernel(f"nvjet_{kernel}", start_ns, start_ns + 5_000, **where)
    return path


def answer(wallscope, export, *options):
    ran = wallscope("analyze", export, *options, "--json", "-")
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out)


def test_a_device_leaves_its_ranks_alone(wallscope, export):
    found = answer(wallscope, export, "--device", "1")

    assert [(rank["pid"], rank["device"]) for rank in found["ranks"]] == [(102, 1)]
    assert found["capture"]["ranks_supplied"] == 1


def test_selected_steps_alone_make_the_typical_step(wallscope, export):
    (rank, _) = answer(wallscope, export, "--steps", "1-2")["ranks"]

    assert [step["steady"] for step in rank["steps"]] == [False, True, True, False, False, False]
    assert rank["steps"][0]["reason"] == "not among --steps 1-2"
    assert rank["typical"]["step_ns"] == 100_000


@pytest.mark.parametrize(
    "time", ["0.00110275-0.0013", "1102750ns-1300us", "1.10275ms-1.3ms"], ids=["seconds", "ns and us", "ms"]
)
def test_a_stretch_of_time_clips_what_straddles_it(time, wallscope, export):
    (rank, _) = answer(wallscope, export, "--time", time)["ranks"]

    assert rank["steps"][0]["start_ns"] == 1_102_750  # in the middle of a kernel
    assert rank["steps"][0]["budget"]["compute"] == 2_750 + 9 * 5_000
    assert [step["reason"] for step in rank["steps"]] == ["cut by --time", None, "cut by --time"]
    assert rank["steps"][-1]["end_ns"] <= 1_300_000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param(
            ("--device", "7"), "--device 7 — is not in this export — it has device 0, 1", id="no such device"
        ),
        pytest.param(
            ("--rank", "0"), "--rank 0 — is not in this export — it has no rank number", id="no rank"
        ),
        pytest.param(
            ("--steps", "9-12"),
            "--steps 9-12 — are not in this export — it has steps 0-5",
            id="no such steps",
        ),
        pytest.param(("--steps", "3-1"), "--steps 3-1 — is not a range of steps", id="steps backwards"),
        pytest.param(("--steps", "a-b"), "--steps a-b — is not a range of steps", id="no steps"),
        pytest.param(
            ("--time", "5-6"),
            "holds no part of a step — the windows are between 0.000999990",
            id="another time",
        ),
        pytest.param(("--time", "6-5"), "--time 6-5 — is not a range of time", id="time backwards"),
        pytest.param(("--time", "1h-2h"), "--time 1h-2h — is not a range of time", id="unknown unit"),
    ],
)
def test_what_is_not_there_is_one_line_and_exit_2(options, said, wallscope, export):
    ran = wallscope("analyze", export, *options)

    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("command", ["steps", "kernels", "ranges"])
def test_tables_know_the_same_selection(command, wallscope, export):
    ran = wallscope(command, export, "--device", "1", "--steps", "2", "--csv", "-")

    assert ran.code == 0
    assert {line.split(",")[1] for line in ran.out.splitlines()[1:]} == {"102"}


def test_selected_steps_make_the_typical_step_though_none_is_steady(wallscope, export):
    (rank, _) = answer(wallscope, export, "--steps", "5")["ranks"]
    of_first, of_last = (kernels(wallscope, export, "--steps", step) for step in "05")

    assert rank["typical"]["step_ns"] == 95_010  # the last step ends with its range
    assert [row["step_share"] for row in of_last[:10]] == pytest.approx([5_000 / 95_010] * 10)
    assert [row["step_share"] for row in of_first[:10]] == [5_000 / 100_000] * 10


def kernels(wallscope, export, *options):
    ran = wallscope("kernels", export, *options, "--json", "-")
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out)


def test_steps_that_the_time_leaves_whole_make_the_typical_step(wallscope, export):
    (rank, _) = answer(wallscope, export, "--time", "1450us-1600us")["ranks"]

    assert [(step["index"], step["reason"]) for step in rank["steps"]] == [
        (4, "cut by --time"),
        (5, "ends with the capture"),
    ]
    assert rank["typical"]["step_ns"] == 95_010
    assert rank["outside_ns"] == 0


def test_a_time_does_not_change_the_numbers_of_steps(wallscope, export):
    (whole, _), (part, _) = (
        answer(wallscope, export, *options)["ranks"] for options in ((), ("--time", "1250us-1450us"))
    )

    assert [step["index"] for step in part["steps"]] == [2, 3, 4]
    assert part["steps"][1] == whole["steps"][3]
    both = answer(wallscope, export, "--time", "1250us-1450us", "--steps", "3")
    assert both["ranks"][0]["typical"] == answer(wallscope, export, "--steps", "3")["ranks"][0]["typical"]


def test_kernels_that_the_time_cuts_count_with_their_part_and_their_whole_length(wallscope, export):
    found = kernels(wallscope, export, "--time", "1102750ns-1158us", "--device", "0")

    assert {
        row["name"]: (row["count"], row["work_ns"], row["median_ns"], row["most_ns"]) for row in found
    } == {
        "nvjet_0": (0, 2_750, None, None),  # began before
        **{f"nvjet_{kernel}": (1, 5_000, 5_000, 5_000) for kernel in range(1, 6)},
        "nvjet_6": (1, 3_500, 5_000, 5_000),
    }


def host(writer, count):
    """Steps of ten kernels; at every tenth of a step a range of 8 µs and an allocation begin."""
    for index in range(count):
        at = 1_000_000 + 100_000 * index
        for part in range(10):
            begin_ns = at + 10_000 * part
            number = writer.call("cudaLaunchKernel_v7000", begin_ns + 100, begin_ns + 200)
            writer.kernel(f"nvjet_{part}", begin_ns + 500, begin_ns + 4_000, correlation=number)
            writer.range("part", begin_ns, begin_ns + 8_000)
            writer.call("cudaMalloc_v3020", begin_ns + 1_000, begin_ns + 2_000)


@pytest.mark.parametrize("marks", [pytest.param(6, id="in a step"), pytest.param(0, id="without steps")])
@pytest.mark.parametrize(
    "step", [pytest.param(2, id="in the middle"), pytest.param(5, id="of the last step")]
)
def test_the_host_counts_in_the_selected_time_alone(marks, step, wallscope, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        host(writer, 6 if marks else 1)
        for index in range(marks):
            writer.range(f"training_step_{index}", 999_990 + 100_000 * index, 1_095_000 + 100_000 * index)
    begin_ns = 1_020_000 + 100_000 * (step if marks else 0)

    found = answer(wallscope, tmp_path / "run.sqlite", "--time", f"{begin_ns}ns-{begin_ns + 35_000}ns")
    (rank,) = found["ranks"]
    (part,) = (entry for entry in rank["ranges"] if entry["name"] == "part")

    assert (part["count"], part["host_ns"]) == (4, 3 * 8_000 + 5_000)
    assert rank["memory"]["allocator_calls"] == 4


def test_what_the_user_left_out_is_no_fault_of_the_capture(wallscope, export):
    whole, few, none = (
        {entry["code"]: (entry["message"], entry["cure"]) for entry in found["capture"]["findings"]}
        for found in (
            answer(wallscope, export),
            answer(wallscope, export, "--steps", "3"),
            answer(wallscope, export, "--time", "1310us-1320us"),
        )
    )

    assert "few-steps" not in whole
    said = "which is too few to show how much steps vary."
    assert few["few-steps"] == (f"Only 1 step of --steps 3 is steady, {said}", "")
    spelled = "--time 0.001310000-0.001320000"
    assert none["few-steps"] == (
        f"No step of {spelled} is steady, and steps that are not steady are used instead, {said}",
        "",
    )
    assert "no-steps" not in none


def test_of_a_rank_without_steps_the_capture_is_blamed_only_if_it_is_the_whole_of_it(wallscope, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.kernel("nvjet", 1_000, 2_000)
        writer.kernel("nvjet", 1_000, 2_000, device=1)

    whole, part = (
        {entry["code"]: entry for entry in found["capture"]["findings"]}["no-steps"]
        for found in (
            answer(wallscope, tmp_path / "run.sqlite"),
            answer(wallscope, tmp_path / "run.sqlite", "--device", "1", "--time", "1500ns-1600ns"),
        )
    )

    assert "Mark the steps with NVTX" in whole["cure"]
    assert part["cure"] == ""
    assert part["message"] == (
        "No steps were found on the ranks of --device 1, so"
        " the time of --time 0.000001500-0.000001600 is analyzed as one window."
    )


def test_a_rank_that_did_nothing_in_the_time_is_left_out_and_said(wallscope, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.kernel("nvjet", 1_000, 2_000)
        writer.kernel("nvjet", 5_000, 6_000, device=1)

    found = answer(wallscope, tmp_path / "run.sqlite", "--time", "5us-6us")

    assert [rank["device"] for rank in found["ranks"]] == [1]
    assert "Excluded 1 rank without a window in --time 0.000005000-0.000006000." in [
        entry["message"] for entry in found["capture"]["findings"]
    ]


@pytest.mark.parametrize("end", ["999999999999", "9999999999.5"])
def test_a_time_beyond_all_clocks_is_the_rest_of_the_capture(end, wallscope, export):
    assert answer(wallscope, export, "--time", f"0-{end}")["ranks"] == answer(wallscope, export)["ranks"]


@pytest.mark.parametrize("option", ["--rank", "--device"])
@pytest.mark.parametrize("number", ["9" * 40, "-1"])
def test_a_number_that_no_rank_can_have_is_bad_usage(option, number, wallscope, export):
    ran = wallscope("analyze", export, option, number)

    assert (ran.code, ran.out) == (2, "")
    assert option in ran.err.splitlines()[-1]


def test_a_time_without_a_kernel_has_no_verdict(wallscope, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.copy("host-to-device", 1_000, 1_200, 4_096)
        writer.kernel("gemm", 5_000, 9_000)
        writer.copy("host-to-device", 9_500, 9_600, 4_096)
    found = answer(wallscope, tmp_path / "run.sqlite", "--time", "900ns-4000ns")["diagnosis"]

    assert found["dominant_wall"] == "unknown"
    assert (
        found["verdict"]
        == "No kernel ran in the analyzed time: there is no verdict. Analyze a time with kernels."
    )
    assert answer(wallscope, tmp_path / "run.sqlite")["diagnosis"]["dominant_wall"] != "unknown"
