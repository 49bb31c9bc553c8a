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
    assert [step["reason"] for step in rank["steps"]] == ["cut by --time", "cut by --time"]
    assert rank["steps"][-1]["end_ns"] <= 1_300_000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param(
            ("--device", "7"), "--device 7 — is not in this export — there are 0, 1", id="no such device"
        ),
        pytest.param(
            ("--rank", "0"), "--rank 0 — is not in this export — the export does not tell any", id="no rank"
        ),
        pytest.param(
            ("--steps", "9-12"), "--steps 9-12 — are not in this export — there are 0-5", id="no such steps"
        ),
        pytest.param(("--steps", "3-1"), "--steps 3-1 — is no stretch of steps", id="steps backwards"),
        pytest.param(("--steps", "a-b"), "--steps a-b — is no stretch of steps", id="no steps"),
        pytest.param(
            ("--time", "5-6"), "holds no device operation — they are between 0.0010005", id="another time"
        ),
        pytest.param(("--time", "6-5"), "--time 6-5 — is no stretch of time", id="time backwards"),
        pytest.param(("--time", "1h-2h"), "--time 1h-2h — is no stretch of time", id="unknown unit"),
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
