"""How to profile with PyTorch for wallscope: code, and settings of frameworks."""

from collections.abc import Iterator

from wallscope.model.advice import Framework
from wallscope.model.capture import Finding
from wallscope.model.section import Items, Section, Span
from wallscope.render.texts import visible
from wallscope.views.capture_help import CURED, list_curable_findings, write_lines

_CODE = """\
import os
import torch
from torch.profiler import ProfilerActivity, profile, schedule

rank = os.environ.get("RANK", "0")
with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=5, warmup=2, active=10, repeat=1),
    on_trace_ready=lambda p: p.export_chrome_trace(f"rank-{rank}.json.gz"),
    record_shapes=False,
    profile_memory=False,
    with_stack=False,
    experimental_config=torch._C._profiler._ExperimentalConfig(
        enable_cuda_sync_events=True
    ),
) as profiler:
    for batch in loader:
        train_step(batch)
        profiler.step()"""
_REASONS = (
    ("activities", "operators on the host, and what runs on the GPU"),
    ("schedule", "ten steps after warm-up: fewer do not show how steps vary"),
    ("profiler.step()", "marks the steps: without it they are inferred from kernels"),
    ("enable_cuda_sync_events", "records which stream waited for what; torch 2.1 or later"),
    ("record_shapes, with_stack", "off: they slow the host and inflate idle time"),
    ("profile_memory", "allocator memory over time; adds overhead per allocation"),
)
_FRAMEWORKS = """\
Megatron-LM, which writes torch_profile/rank-N.json.gz next to the TensorBoard folder:

--profile --use-pytorch-profiler --profile-step-start 10 \\
    --profile-step-end 20 --profile-ranks 0 1

Megatron Bridge writes the same:

profiling.use_pytorch_profiler=true
profiling.profile_step_start=10
profiling.profile_step_end=20
profiling.profile_ranks=[0,1]
profiling.pytorch_profiler_collect_shapes=false

Neither records synchronizations: waits are inferred from the order of calls and from times."""
_ANALYZE = """\
One rank, and all ranks of a job (each file holds its rank number):

wallscope analyze rank-0.json.gz
wallscope analyze torch_profile/"""


def write_profile_code() -> tuple[str, ...]:
    """Write the code that profiles a program, a line each."""
    return tuple(_CODE.split("\n"))


def build_torch_capture_help(
    name: str | None = None,
    findings: tuple[Finding, ...] = (),
    framework: Framework | None = None,  # noqa: ARG001  # as `build_capture_help` has it
) -> Iterator[Section]:
    """Make the code to profile with; first the limits of a trace of this `name` that a profile removes."""
    if name is not None:
        curable = tuple(finding for finding in findings if finding.code in CURED)
        yield list_curable_findings(visible(name, most=60), curable, has_marks=False)
    yield write_lines((Span("Profile", "strong"),))
    yield write_lines(*_CODE.split("\n"))
    rows = tuple((" ", (Span(what, None),), reason) for what, reason in _REASONS)
    yield Section("reasons", "", "", (Items(rows, ("mark", "mark", "text")),))
    yield from (write_lines(*paragraph.split("\n")) for paragraph in _FRAMEWORKS.split("\n\n"))
    yield write_lines((Span("Analyze", "strong"),))
    yield from (write_lines(*paragraph.split("\n")) for paragraph in _ANALYZE.split("\n\n"))
