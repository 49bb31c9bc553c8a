"""Captures whose authors changed one thing and captured again: what is said, advised and compared is that.

The figures are from the rows and from what the authors published, not from wallscope: the captures of NERSC's
deep-learning tutorials of 2021 to 2023 (A100).
"""

from dataclasses import dataclass

import pytest

from tests.answered_once import compare_once
from tests.conftest import run_part
from tests.real.answers import NEEDS_TRACES, ROOT, TRACES, answer, rank_of
from wallscope.errors import NothingToAnalyzeError

PAGE = ROOT / "docs" / "programs.md"
FRAMEWORK_SYSTEMS = {
    "megatron": {"megatron-bridge", "megatron-lm", "pytorch"},
    "pytorch": {"pytorch"},
    "jax": {"jax"},
    "tensorflow": {"tensorflow"},
    "inference": {"inference"},
    "directives": {"directives"},
    "julia": {"julia"},
    "cuda": {"program"},
    None: set(),
}
GENERAL = {"environment", "launcher", "nsys"}
ABOUT_CAPTURE = {
    "mark-the-steps",
    "look-into-the-host",
    "name-kernels",
    "name-the-axis",
    "trace-events",
    "trace-graph-nodes",
    "trace-synchronizations",
    "lighter-capture",
    "copies-of-known-kind",
    "kernel-analysis",
}
CAPTURES = [
    *sorted(path.stem for path in TRACES.glob("*.sqlite")),
    *sorted(f"kineto/{path.name}" for path in (TRACES / "kineto").glob("*.json.gz")),
]

pytestmark = NEEDS_TRACES


def answer_if_any(name):
    """The answer; captures without any GPU work are refused, as test_traces tells."""
    try:
        return answer(name)
    except NothingToAnalyzeError:
        pytest.skip("holds no GPU work")


@dataclass(frozen=True, slots=True)
class Intervention:
    """A capture, what an expert says of it, and what the next version of the program did.

    Attributes:
        name: of the capture.
        walls: the right ones.
        causes: of which one must own something of the step, or of all time on few steps.
        made: ids of fixes of which one is the change that was made.
        within: the place among the fixes that it must have.
        won_ms: what the change won of a step, where its own recommendation must come near.
        tolerance: least and largest share of that.
        bound: a cause that the change removed, and the next step in ms.
        next_name: the capture of the next version.
        changed: cause or wall, by how many ms it changed, and how exactly.
        verdicts: of the comparison.
    """

    name: str
    walls: tuple[str, ...]
    causes: tuple[str, ...]
    made: tuple[str, ...]
    within: int = 3
    won_ms: float | None = None
    tolerance: tuple[float, float] = (0.5, 1.5)
    bound: tuple[str, float] | None = None
    next_name: str | None = None
    changed: tuple[str, str, float, float] | None = None
    verdicts: tuple[str, ...] = ("improvement",)


INTERVENTIONS = (
    Intervention(
        "nersc_sc21_baseline",
        ("host",),
        ("host/data-loading",),
        ("data-workers",),
        within=1,
        bound=("host/data-loading", 176.7),
        next_name="nersc_sc21_8workers",
        changed=("cause", "host/data-loading", -541.0, 0.3),
    ),
    Intervention(
        "nersc_sc21_8workers",
        ("memory", "host", "mixed"),
        ("memory/staging", "host/data-loading"),
        ("gpu-data-pipeline",),
        won_ms=43.1,
        bound=("memory/staging", 166.8),
        next_name="nersc_sc21_dali",
        changed=("cause", "memory/staging", -26.4, 0.3),
    ),
    Intervention(
        "nersc_sc21_8workers",
        ("memory", "host", "mixed"),
        ("memory/staging",),
        ("prefetch-batches",),
        won_ms=26.4,
    ),
    Intervention(
        "nersc_sc21_dali",
        ("compute",),
        ("compute/convolution",),
        ("bf16", "fp16"),
        within=1,
        won_ms=40.7,
        next_name="nersc_sc21_dali_amp",
        changed=("cause", "compute/convolution", -53.0, 0.3),
    ),
    Intervention(
        "nersc_sc21_dali_amp",
        ("memory", "host", "mixed"),
        ("memory/staging", "host/launch-call", "host/data-loading"),
        ("deeper-data-pipeline", "prefetch-batches"),
    ),
    Intervention(
        "nersc_sc22_4gpu_base",
        ("compute",),
        ("memory/device-copy",),
        ("gradient-bucket-views",),
        within=5,
        won_ms=0.86,
        bound=("memory/device-copy", 29.98),
        next_name="nersc_sc22_4gpu_nobcast",
        changed=("cause", "memory/device-copy", -0.86, 0.3),
        verdicts=("improvement", "inconclusive", "no-change"),
    ),
    Intervention(
        "nersc_sc23_dali",
        ("compute",),
        ("compute/attention",),
        ("bf16",),
        within=1,
        won_ms=827.5,
        next_name="nersc_sc23_dali_bf16",
        changed=("cause", "compute/attention", -781.0, 0.1),
    ),
    Intervention(
        "nersc_sc23_dali_bf16",
        ("compute",),
        ("compute/attention",),
        ("fuse-elementwise",),
        next_name="nersc_sc23_dali_bf16_fused_jit",
        changed=("wall", "compute", -3.7, 0.3),
        verdicts=("improvement", "inconclusive", "no-change"),
    ),
)
IDS = [f"{one.name}-{one.made[0]}" for one in INTERVENTIONS]


@pytest.mark.parametrize("one", INTERVENTIONS, ids=IDS)
def test_the_wall_and_its_cause_are_those_of_the_expert(one):
    found = answer(one.name)
    rank = rank_of(found)
    told = {cause["cause"] for cause in rank["causes"] if cause["share"] >= 0.03}
    told |= {stall["cause"] for stall in rank["rare_stalls"]}

    assert found["diagnosis"]["dominant_wall"] in one.walls
    assert told & set(one.causes)


@pytest.mark.parametrize("one", INTERVENTIONS, ids=IDS)
def test_the_change_that_was_made_is_among_the_first(one):
    fixes = answer(one.name)["fixes"]
    (made, *_) = [fix for fix in fixes if fix["id"] in one.made]

    assert fixes.index(made) < one.within
    assert made["settings"]
    assert made["evidence"]
    assert made["refuted_by"]
    if one.won_ms is not None:
        least, most = one.tolerance
        assert least * one.won_ms <= made["recoverable_ns"] / 1e6 <= most * one.won_ms
        assert made["replay"]["won_ns"] > 0


@pytest.mark.parametrize("one", [one for one in INTERVENTIONS if one.bound], ids=lambda one: one.name)
def test_the_upper_bound_is_near_the_next_step(one):
    cause, next_ms = one.bound
    (told,) = [entry for entry in answer(one.name)["opportunities"] if entry["cause"] == cause]

    assert told["step_ceiling_ns"] / 1e6 == pytest.approx(next_ms, rel=0.15)


@pytest.mark.parametrize(
    "one", run_part([one for one in INTERVENTIONS if one.next_name], name=lambda one: one.name)
)
def test_the_comparison_with_the_next_version_is_right(one):
    what, name, change_ms, share = one.changed
    found = compare_once(*(TRACES / f"{side}.sqlite" for side in (one.name, one.next_name)))
    rows = found.deltas.walls if what == "wall" else found.deltas.causes
    (row,) = [row for row in rows if str(getattr(row, what)) == name]

    assert found.comparable
    assert found.verdict in one.verdicts
    assert row.delta_ns / 1e6 == pytest.approx(change_ms, rel=share)


def test_a_larger_batch_is_no_answer_to_a_slow_loader():
    ids = {fix["id"] for fix in answer("nersc_sc21_baseline")["fixes"]}

    assert not ids & {"larger-microbatch", "cuda-graphs-pytorch", "fewer-launches"}


def test_reductions_of_the_backward_thread_are_of_gradients():
    for name in ("nersc_sc22_4gpu_base", "nersc_sc22_4gpu_nobcast"):
        (reduced,) = rank_of(answer(name))["communication"]["operations"]

        assert (reduced["operation"], reduced["axis"]) == ("all-reduce", "dp-gradient")
        assert reduced["count"] == 8
        assert "backward" in reduced["evidence"][0]


def test_sends_and_receives_of_sequence_parallelism_are_of_no_gradients():
    rank = rank_of(answer("nsysai_mfu_before"))

    assert all(one["axis"] != "dp-gradient" for one in rank["communication"]["operations"])


@pytest.mark.parametrize("name", CAPTURES)
def test_advice_fits_the_program_and_its_replays(name):
    """The law of advice, for every capture: whose program it is, what it may set, what that wins."""
    found = answer_if_any(name)
    program, rank = found["program"], rank_of(found)
    step_ns = rank["typical"]["step_ns"]
    whole_ns = max(step_ns, rank["mean_step_ns"] or 0)
    framework = program["framework"] if program else None

    assert (framework is None) == (not program or not program["evidence"])
    for fix in found["fixes"]:
        assert {setting["system"] for setting in fix["settings"]} <= FRAMEWORK_SYSTEMS[framework] | GENERAL
        assert (fix["recoverable_ns"] is None) == (fix["speedup_ceiling"] is None)
        if fix["replay"] is not None:
            assert fix["recoverable_ns"] >= max(0.01 * step_ns, fix["replay"]["won_ns"])
        if fix["recoverable_ns"] is not None:
            bounds = [one / max(one - fix["recoverable_ns"], 1) for one in (step_ns, whole_ns)]
            assert any(fix["speedup_ceiling"] == pytest.approx(bound) for bound in bounds)
    told = {fix["id"] for fix in found["fixes"]}
    assert not told & {fix["id"] for fix in found["dismissed"]}
    of_program = {wall for fix in found["fixes"] if fix["id"] not in ABOUT_CAPTURE for wall in walls_of(fix)}
    for fix in found["fixes"]:  # a change of the capture stands in for walls that no other fix addresses
        assert fix["id"] not in ABOUT_CAPTURE or walls_of(fix) - of_program
    assert {fix["id"] for fix in found["capture_advice"]} <= ABOUT_CAPTURE


def walls_of(fix):
    return {cause.split("/")[0] for cause in fix["causes"]}


PROGRAMS = {
    "a40_cutlass": ("cuda", ()),
    "abacus_report1": ("pytorch", ()),
    "clue_r3": ("cuda", ()),
    "cs336_tianshi_small": ("pytorch", ("torch-compile",)),
    "flux_2020_1080ti": ("julia", ()),
    "flux_2020_darknet53": ("julia", ()),
    "ingp_r12": ("cuda", ()),
    "jax_alpa_mem": ("jax", ()),
    "mpi_v100_4rank": ("directives", ()),
    "nersc_sc21_baseline": ("pytorch", ()),
    "nersc_sc21_dali": ("pytorch", ("dali",)),
    "nersc_sc22_4gpu_base": ("pytorch", ("dali",)),
    "nersc_sc23_dali_bf16_fused_jit": ("pytorch", ("dali", "torch-compile")),
    "newboyleo_a100": ("cuda", ()),
    "nsysai_h100_2gpu_1s": ("pytorch", ("fsdp",)),
    "ompoffload_2021_report2": ("directives", ()),
    "tf_2020_report23": ("tensorflow", ()),
}
"""Whose program the captures are, as their sources say (CATALOG.md), and what else is seen in them."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_is_recognized_with_evidence(name):
    framework, parts = PROGRAMS[name]
    program = answer(name)["program"]

    assert (program["framework"], tuple(program["parts"])) == (framework, parts)
    assert len(program["evidence"]) == 1 + len(parts)


def write_page():
    rows = []
    for name in CAPTURES:
        try:
            found = answer(name)
        except NothingToAnalyzeError:
            continue
        program = found["program"]
        evidence = "; ".join(program["evidence"]).replace("|", "\\|") if program else "no kernel ran"
        framework = program["name"] if program else "none"
        first = ", ".join(f"`{fix['id']}`" for fix in found["fixes"][:3]) or "none"
        rows.append(f"| `{name}` | {framework} | {evidence} | {first} |")
    return (
        "# Programs recognized in public captures\n\n"
        "Recommended settings depend on the program's framework. wallscope recognizes the framework by the\n"
        "names of kernels, NVTX ranges and loaded libraries, and by the process name.\n"
        "[programs.toml](../wallscope/advice/programs.toml) lists the patterns in the order in which they\n"
        "are tried. For example, a kernel named `fusion` is evidence for JAX only if no name belongs to\n"
        "TensorFlow or PyTorch. A name that has a line number and `_gpu`, such as `test_55_gpu`, comes from\n"
        "an OpenACC or OpenMP compiler.\n\n"
        "The table lists public captures and what wallscope finds in them. The captures are not part of\n"
        "this repository. If a capture has `SYNTHETIC` in its name, its authors generated the rows. In the\n"
        "*evidence* column, *name* is the name of a kernel or an NVTX range. The last column lists the\n"
        "first three recommended [fixes](fixes.md).\n\n"
        "| capture | framework | evidence | recommendations |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def test_the_page_lists_the_programs(request):
    if request.config.getoption("--golden"):
        PAGE.write_text(write_page(), encoding="utf-8")

    assert PAGE.read_text(encoding="utf-8") == write_page()
