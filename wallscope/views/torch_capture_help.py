"""How to profile with PyTorch's profiler so that wallscope can answer: code, and settings of frameworks."""

from collections.abc import Iterator

from wallscope.model.capture import Finding
from wallscope.model.section import Items, Section, Span
from wallscope.render.texts import visible
from wallscope.views.capture_help import CURED, list_curable_findings, write_lines

_CODE = """\
import torch
from torch.profiler import ProfilerActivity, profile, schedule

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
    ("schedule", "ten steps behind warm-up: fewer do not tell what varies from step to step"),
    ("profiler.step()", "marks the steps: without it they are guessed from kernels"),
    ("enable_cuda_sync_events", "which stream waited for what; torch 2.1 or later"),
    ("record_shapes, with_stack", "off: they slow the host, so that idle time grows"),
    ("profile_memory", "memory of PyTorch's allocator over time, for a cost at every allocation"),
)
_FRAMEWORKS = """\
Megatron-LM, which writes torch_profile/rank-N.json.gz beside the folder of TensorBoard:

--profile --use-pytorch-profiler --profile-step-start 10 \\
    --profile-step-end 20 --profile-ranks 0 1

Megatron Bridge writes the same:

profiling.use_pytorch_profiler=true
profiling.profile_step_start=10
profiling.profile_step_end=20
profiling.profile_ranks=[0,1]
profiling.record_shapes=false

Neither asks for synchronizations: waits are told by the order of calls and by times."""
_ANALYZE = """\
One rank, and the ranks of a job; a file says itself which rank it is of:

wallscope analyze rank-0.json.gz
wallscope analyze torch_profile/"""


def write_profile_code() -> tuple[str, ...]:
    """Write the code that profiles a program, a line each."""
    return tuple(_CODE.split("\n"))


def build_torch_capture_help(
    name: str | None = None, findings: tuple[Finding, ...] = ()
) -> Iterator[Section]:
    """Make the code to profile with; with the `name` of a trace what another profile of it cures first."""
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
