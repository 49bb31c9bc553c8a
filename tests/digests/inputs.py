"""Inputs of digests: real exports, and exports made to measure."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.digests.outputs import KINDS

ROOT = Path(__file__).resolve().parent.parent.parent
TRACES = ROOT.parent / "shared" / "traces"
REAL, FOUND = "real/", ("*.sqlite", "*.parquetdir", "*.arrowdir", "*.nsys-rep")
PAIRS = (
    ("cs336_zx_2.7B", "cs336_zx_2.7B_clean"),
    ("cs336_zx_2.7B_nvtx", "cs336_zx_2.7B_compile_graph"),
    ("cs336_zx_result", "cs336_athrun"),
    ("fuser_h200", "fuser_h200_b"),
    ("mobilenet_infer_single", "mobilenet_infer_overlap"),
    ("mpi_v100_4rank", "mpi_v100_4rank_managed"),
    ("nersc_sc21_baseline", "nersc_sc21_8workers"),
    ("nersc_sc21_dali", "nersc_sc21_dali_amp"),
    ("nersc_sc22_4gpu_base", "nersc_sc22_4gpu_nobcast"),
    ("nersc_sc23_dali_bf16", "nersc_sc23_dali_bf16_fused_jit"),
    ("nsysai_mfu_before", "nsysai_mfu_after"),
    ("nsysai_healthy_1pct_SYNTHETIC", "nsysai_healthy_judged_SYNTHETIC"),
    ("ompoffload_2021_report2", "ompoffload_2021_report2_exp"),
    ("t4_streams_old", "t4_streams"),
)
TOGETHER = (
    ("mpi_v100_4rank", "mpi_v100_4rank_managed"),
    ("nsysai_mfu_before", "nsysai_mfu_after"),
    ("cs336_zx_2.7B", "cs336_zx_2.7B_clean"),
)
"""Real exports that are compared, and that are given as one job."""
OF_JOBS = ("json", "text", "markdown", "html", "csv", "perfetto", "diff")
OF_OPTIONS: dict[str, tuple[str, ...]] = {
    "selected-steps": ("--steps", "2-4"),
    "selected-rank": ("--rank", "3"),
    "selected-time": ("--time", "0.2-0.3"),
    "reader-sqlite": ("--reader", "sqlite"),
    "step-range": ("--step-range", "training_step"),
    "stream-axis": ("--stream", "23=ep"),
    "throughput": ("--tokens-per-step", "4096", "--flops-per-step", "1e12", "--unprofiled-step-ms", "20"),
    "gates": ("--fail-on", "step>3%", "--fail-on", "communication>5%", "--fail-on", "host/framework>2us"),
}


@dataclass(frozen=True)
class Input:
    """What is given to commands: files that are there, or made by a function; which kinds of outputs."""

    name: str
    kinds: tuple[str, ...]
    real: tuple[str, ...] = ()
    made: Callable[[Path], tuple[str, ...]] | None = None
    options: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """How large it is; of what is made, a guess."""
        return (
            sum((TRACES / file).stat().st_size for file in self.real if (TRACES / file).exists()) or 1 << 20
        )


@cache
def inputs() -> dict[str, Input]:
    """All inputs, by name."""
    found = [*real_inputs(), *made_inputs()]
    return {one.name: one for one in found}


def real_inputs() -> list[Input]:
    every = sorted(path.name for pattern in FOUND for path in TRACES.glob(pattern))
    alone = [Input(f"{REAL}{name}", tuple(KINDS), (name,)) for name in every]
    pairs = [
        Input(f"diff/{base}..{head}", ("diff",), (f"{base}.sqlite", f"{head}.sqlite"))
        for base, head in PAIRS
        if {f"{base}.sqlite", f"{head}.sqlite"} <= set(every)
    ]
    jobs = [
        Input(f"job/{left}+{right}", OF_JOBS, (f"{left}.sqlite", f"{right}.sqlite"))
        for left, right in TOGETHER
        if {f"{left}.sqlite", f"{right}.sqlite"} <= set(every)
    ]
    return [*alone, *pairs, *jobs]


def made_inputs() -> list[Input]:
    from fixtures.scenario import scenarios
    from fixtures.simulation.stories import stories

    found = [Input("example", tuple(KINDS), made=example)]
    found += [
        Input(f"example/{name}", ("json", "text", "markdown"), made=example, options=options)
        for name, options in OF_OPTIONS.items()
    ]
    found += [
        Input(f"scenario/{one.name}", tuple(KINDS), made=partial_of(scenario, one.name))
        for one in scenarios()
    ]
    found += [Input(f"story/{one.name}", tuple(KINDS), made=partial_of(story, one.name)) for one in stories()]
    found += [
        Input("ranks/bulk", tuple(KINDS), made=bulk),
        Input("job/bulk", OF_JOBS, made=bulk_job),
        Input("job/simulated", OF_JOBS, made=simulated_job),
        Input("diff/communication-halved", ("diff",), made=communication_halved),
    ]
    return found


def partial_of(made: Callable[[Path, str], tuple[str, ...]], name: str) -> Callable[[Path], tuple[str, ...]]:
    return lambda folder: made(folder, name)


def example(folder: Path) -> tuple[str, ...]:
    from wallscope.demo.example import write_example

    write_example(folder / "moe_step.sqlite")
    return ("moe_step.sqlite",)


def scenario(folder: Path, name: str) -> tuple[str, ...]:
    from fixtures.scenario import scenarios

    (one,) = (one for one in scenarios() if one.name == name)
    one.write(folder / f"{name}.sqlite")
    return (f"{name}.sqlite",)


def story(folder: Path, name: str) -> tuple[str, ...]:
    from fixtures.simulation.run import run
    from fixtures.simulation.stories import stories
    from fixtures.simulation.writing import write_run

    (one,) = (one for one in stories() if one.name == name)
    write_run(run(one.program), folder / "story.sqlite", has_os_calls=one.has_os_calls)
    return ("story.sqlite",)


def bulk(folder: Path) -> tuple[str, ...]:
    from fixtures.bulk import write_bulk

    write_bulk(folder / "bulk.sqlite", kernels=4_000, ranks=4, steps=6)
    return ("bulk.sqlite",)


def bulk_job(folder: Path) -> tuple[str, ...]:
    from fixtures.bulk import write_bulk_job

    names = tuple(f"bulk_rank{rank}.sqlite" for rank in range(3))
    write_bulk_job([folder / name for name in names], kernels=1_500, steps=6)
    return names


def simulated_job(folder: Path) -> tuple[str, ...]:
    from tests.jobs.simulated import write_job

    write_job(folder / "job")
    return ("job",)


def communication_halved(folder: Path) -> tuple[str, ...]:
    from fixtures.simulation import changed
    from fixtures.simulation.run import run
    from fixtures.simulation.stories import stories
    from fixtures.simulation.writing import write_run

    (one,) = (one for one in stories() if one.name == "exposed all-to-all")
    write_run(run(one.program), folder / "base.sqlite")
    write_run(run(changed.communication(one.program, 0.5)), folder / "head.sqlite")
    return ("base.sqlite", "head.sqlite")
