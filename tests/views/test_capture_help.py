import io
import re
import shlex
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from fixtures.export import ExportWriter
from fixtures.torch_trace import TraceWriter
from wallscope.cli.advise import capture_help
from wallscope.model.capture import Finding, Severity
from wallscope.model.finding_codes import FindingCode
from wallscope.render.terminal import render_sections
from wallscope.views.capture_help import CURED, build_capture_help

PACKAGE = Path(__file__).resolve().parents[2] / "wallscope"
NOT_BY_CAPTURE = {
    "export-left-out",
    "log-contradiction",
    "log-step-unknown",
    "configuration-contradicted",
    "configuration-impossible",
    "configuration-disputed",
    "configuration-ineffective",
    "configuration-repeated",
    "configuration-former-name",
    "configuration-framework",
    "configuration-release",
    "configuration-misspelled",
    "configuration-unreadable",
    "configuration-unused",
    "anchors-disagree",  # --step-range
    "inferred-steps",
    "communication-inferred",  # --kernels
    "unmatched-kernels",  # --kernels
    "outside-steps",
    "silent-waits",  # calls of the program that no profiler follows
    "other-process",  # a fact about the run
    "slower-kernels",  # a fact about the run
    "one-gap",  # --time
    "lock-hidden",  # a fact about the run
    "ranks-left-out",  # --steps, --time
    "unattributed-time",
    "replay-unfaithful",
    "capture-range",  # what is recommended
    "perhaps-incomplete",
    "rank-contradiction",  # --rank
    "torch-profiler",  # another profiler
    "trace-filtered",  # the whole file
}

app = typer.Typer()
app.command()(capture_help)


def shown(*arguments: str, columns: int = 80) -> str:
    ran = CliRunner().invoke(app, list(arguments), env={"COLUMNS": str(columns)}, catch_exceptions=False)
    assert ran.exit_code == 0
    return ran.output


def command(text: str, start: str) -> list[str]:
    """The words of the pasted command that starts so."""
    (found,) = re.findall(rf"^{start}(?:.*\\\n)*.*$", text, re.MULTILINE)
    return shlex.split(found.replace("\\\n", " "))


def marked(text: str) -> list[str]:
    return re.findall(r"^\* (\S+)", text, re.MULTILINE)


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_commands_can_be_pasted(columns):
    text = shown(columns=columns)

    assert command(text, "nsys profile") == [
        "nsys",
        "profile",
        "--output=run_%h_%p",
        "--force-overwrite=true",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--cuda-graph-trace=node",
        "--cuda-event-trace=true",
        "--cuda-memory-usage=true",
        "python",
        "train.py",
    ]
    assert command(text, "nsys export")[2:4] == ["--type=sqlite", "--include-blobs=true"]
    assert command(text, "--profile ") == [
        *("--profile", "--profile-step-start", "10", "--profile-step-end", "20"),
        *("--profile-ranks", "0", "--nvtx-ranges"),
    ]
    assert all(len(line) <= columns for line in text.splitlines())


def test_the_loop_for_pytorch_is_python():
    loops = re.findall(r"^for step, .*\n(?: .*\n)*", shown(), re.MULTILINE)

    assert len(loops) == 2
    for loop in loops:
        compile(loop, "loop", "exec")


def test_every_flag_has_its_reason_and_nothing_is_marked_without_an_export():
    text = shown()

    flags = [word.partition("=")[0] for word in command(text, "nsys profile")[2:-2]]
    assert flags == re.findall(r"^  (--[a-z-]+)=\S+ +\w", text.split("\nExport\n")[0], re.MULTILINE)
    assert marked(text) == []


@pytest.fixture
def export(tmp_path):
    """One kernel; a stream waited for an event, of which there is no record."""
    path = tmp_path / "run.sqlite"
    with ExportWriter(path) as writer:
        writer.gpu()
        writer.capture_option("CAPTURE_EVENT_TYPE", "Cuda")
        writer.kernel("nvjet_tst_128x128", 1_000, 2_000, correlation=1)
        writer.call("cudaLaunchKernel_v7000", 500, 600, correlation=1)
        writer.call("cudaStreamWaitEvent_v3020", 700, 800, correlation=2)
    return path


def test_findings_of_an_export_come_first_and_their_flags_are_marked(export):
    text = shown(str(export))

    assert text.startswith("run.sqlite: limits that a new capture would remove\n• ")
    assert "For 1 wait, the awaited work was inferred" in text.split("nsys profile")[0]
    assert marked(text) == ["--trace=cuda,nvtx", "--cuda-event-trace=true", "NVTX"]
    assert "→ Export the report with nsys 2024.2 or later." in text
    assert "Flags marked * below remove the limits without a remedy above." in text
    assert "--cuda-flush-interval" not in text


def test_lost_records_add_a_flag(export):
    text = shown(str(_with_loss(export)))

    assert "--cuda-flush-interval=100" in command(text, "nsys profile")
    assert "--cuda-flush-interval=100" in marked(text)


def _with_loss(export: Path) -> Path:
    path = export.with_name("lossy.sqlite")
    with ExportWriter(path) as writer:
        writer.row("DIAGNOSTIC_EVENT", severity=3, text="CUPTI dropped 7 records.")
        writer.kernel("nvjet_tst_128x128", 1_000, 2_000)
    return path


def test_an_export_without_device_operations_gets_its_command_too(tmp_path):
    with ExportWriter(tmp_path / "empty.sqlite") as writer:
        writer.range("forward", 0, 10)

    text = shown(str(tmp_path / "empty.sqlite"))

    assert "holds no GPU operation" in text
    assert marked(text) == ["--trace=cuda,nvtx"]


def test_a_capture_without_limits_is_said_to_have_none():
    limits = build_capture_help("run.sqlite", (Finding("anchors-disagree", Severity.WARNING, "x", "y"),))

    assert next(limits).blocks[0].lines[0][0].text == "run.sqlite: no limit that another capture would remove"


def test_every_finding_is_cured_by_a_capture_or_known_not_to_be():
    raised = {
        str(FindingCode[name])
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r"inding\(\s*FindingCode\.([A-Z_]+)", path.read_text(encoding="utf-8"))
    }

    assert raised == CURED | NOT_BY_CAPTURE
    assert CURED.isdisjoint(NOT_BY_CAPTURE)


def test_the_code_for_the_profiler_of_pytorch_is_python_that_marks_steps():
    text = shown("--profiler", "torch", columns=140)
    code = text[text.index("import torch") : text.index("profiler.step()") + len("profiler.step()")]

    compile(code, "shown", "exec")
    assert "enable_cuda_sync_events=True" in code
    assert "nsys profile" not in text


def test_a_trace_gets_the_help_of_its_own_profiler(tmp_path):
    writer = TraceWriter()
    writer.call("cudaLaunchKernel", 500, 600, 1)
    writer.kernel("nvjet_tst_128x128", 1_000, 2_000, 1)
    text = shown(str(writer.write(tmp_path / "trace.json")))

    assert text.startswith("trace.json: limits that a new capture would remove\n• No steps were found")
    assert "calling prof.step() after it" in text
    assert "import torch" in text


@pytest.mark.parametrize(
    ("framework", "program", "shows", "hides"),
    [
        pytest.param("cuda", "./program", "nvtxRangePushA", "train.py", id="native"),
        pytest.param("pytorch", "python train.py", "torch.cuda.nvtx.range", "Megatron", id="pytorch"),
        pytest.param("jax", "python train.py", "nvtx.annotate", "Megatron", id="jax"),
        pytest.param(
            "megatron", "python train.py", "profiling.profile_ranks=[0]", "nvtxRangePushA", id="megatron"
        ),
    ],
)
def test_help_fits_the_program_of_the_export(framework, program, shows, hides):
    text = drawn(build_capture_help("run.sqlite", (), framework))

    assert f"    {program}\n" in text
    assert shows in text
    assert hides not in text


@pytest.mark.parametrize(("code", "ranks"), [("one-rank", "[]"), ("few-steps", "[0]")])
def test_where_all_ranks_are_wanted_all_are_captured(code, ranks):
    finding = Finding(code, Severity.WARNING, "It is so.", "Capture otherwise.")
    text = drawn(build_capture_help("run.sqlite", (finding,), "megatron"))

    assert f"profiling.profile_ranks={ranks}\n" in text
    assert ("* All ranks: torchrun" in text) is (code == "one-rank")


def drawn(sections) -> str:
    page = io.StringIO()
    Console(file=page, width=100, markup=False, highlight=False).print(render_sections(sections))
    return "\n".join(line.rstrip() for line in page.getvalue().split("\n"))
