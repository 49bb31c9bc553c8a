import sqlite3
from pathlib import Path

import polars as pl
import pytest

from fixtures.export import ExportWriter
from wallscope.attribution.prepared import measure_rank_work
from wallscope.model.capture import Options
from wallscope.model.enums import Precision
from wallscope.model.rank_summaries import ComputeDetails, LaunchShapes, PrecisionWork, SmallMultiplications
from wallscope.preparation import read_trace
from wallscope.summary.compute import summarize_compute

ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(x)"
CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(x), LoadWithCast<1>>"
FLASH = "void flash::flash_fwd_kernel<x>(y)"
DISPATCH = "void deep_ep::intranode::dispatch<8, 768, 8192>(x)"


def details(path: Path) -> ComputeDetails | None:
    parts = read_trace(path, Options(), lambda _: None)
    rank = parts.capture.ranks.row(0, named=True)
    return summarize_compute(
        measure_rank_work(parts, 0), parts.capture, parts.capture.export.gpu(rank["gpu"])
    )


def of_kernels(path: Path, *kernels: tuple, gpu: bool = True) -> ComputeDetails | None:
    """Kernels of (name, duration in µs, further columns), one after the other on one stream."""
    with ExportWriter(path) as writer:
        if gpu:
            writer.gpu()
        at_ns = 0
        for name, length_us, *more in kernels:
            columns = {"stream": 7, **(more[0] if more else {})}
            writer.kernel(name, at_ns, at_ns + 1_000 * length_us, **columns)
            at_ns += 1_000 * length_us + 100
    return details(path)


def test_precisions_are_shares_of_the_matrix_multiplications_and_unknown_is_said(tmp_path):
    found = of_kernels(
        tmp_path / "run.sqlite",
        ("nvjet_tst_1", 50),
        ("nvjet_qqtst_1", 30),
        ("_grouped_gemm_forward_kernel", 20),
        (FLASH.replace("x", "cutlass::half_t"), 100),
    )

    assert found is not None
    assert found.precisions == (
        PrecisionWork(Precision.BF16, 50_000, 0.5, 1),
        PrecisionWork(Precision.FP8, 30_000, 0.3, 1),
        PrecisionWork(Precision.UNKNOWN, 20_000, 0.2, 1),
    )
    assert (found.work_ns, found.grouped_kernels, found.grouped_share) == (200_000, 1, 0.1)


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        pytest.param([("nvjet_tst_1", 10)] * 8, (1, 8), id="eight in a row"),
        pytest.param([("nvjet_tst_1", 10)] * 3, (0, 0), id="three, as query, key and value"),
        pytest.param([("nvjet_tst_1", 50)] * 8, (0, 0), id="50 microseconds"),
        pytest.param([("nvjet_tst_1", 10), (ELEMENTWISE, 1)] * 8, (0, 0), id="with others between"),
        pytest.param(
            [("nvjet_tst_1", 10)] * 4 + [("nvjet_tst_2", 10)] * 4, (2, 8), id="two layers of experts"
        ),
        pytest.param([("nvjet_tst_1", 10), ("nvjet_tst_2", 10)] * 4, (0, 0), id="in turns"),
        pytest.param(
            [("nvjet_tst_1", 10, {"stream": 7 + row % 2}) for row in range(8)], (2, 8), id="on two streams"
        ),
        pytest.param([(ELEMENTWISE, 10)] * 8, (0, 0), id="no multiplications"),
    ],
)
def test_runs_of_small_multiplications(kernels, expected, tmp_path):
    found = of_kernels(tmp_path / "run.sqlite", *kernels)

    assert found is not None
    runs = found.small_multiplications
    assert (runs.runs, runs.kernels) == expected
    assert runs.work_ns == 10_000 * expected[1]


def test_single_operations_casts_and_quantisation_have_their_shares(tmp_path):
    found = of_kernels(
        tmp_path / "run.sqlite",
        (ELEMENTWISE, 20),
        (CAST, 10),
        ("triton_poi_fused_add_0", 30),
        ("void transformer_engine::quantize_mxfp8_kernel<1>(x)", 40),
    )

    assert found is not None
    assert found.unfused_elementwise_share == 0.3
    assert found.cast_share == 0.1
    assert found.quantize_share == 0.4


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(["_permute_kernel", "_row_id_map_pass_1_kernel"], (True, None), id="Triton's permute"),
        pytest.param(["void hybrid_ep::permute_kernel<x>(y)"], (True, None), id="HybridEP's permute"),
        pytest.param(
            [DISPATCH, "void at::native::indexSelectLargeIndex<float>(x)"], (False, None), id="gathers"
        ),
        pytest.param(["void at::native::indexSelectLargeIndex<float>(x)"], (None, None), id="no experts"),
        pytest.param(["fused_topk_with_score_function_forward_kernel"], (None, True), id="fused router"),
        pytest.param(
            [DISPATCH, "void at::native::sbtopk::gatherTopK<float>(x)"], (None, False), id="loose router"
        ),
        pytest.param(["void at::native::sbtopk::gatherTopK<float>(x)"], (None, None), id="sampling"),
        pytest.param(["nvjet_tst_1"], (None, None), id="neither"),
    ],
)
def test_permute_and_router_are_fused_where_names_say_so(names, expected, tmp_path):
    found = of_kernels(tmp_path / "run.sqlite", *((name, 10) for name in [*names, "nvjet_tst_1"]))

    assert found is not None
    assert (found.permute_fused, found.router_fused) == expected


def test_launch_shapes_against_the_gpu(tmp_path):
    """132 multiprocessors, 8 blocks of 256 threads each: a wave is 1,056 blocks."""
    found = of_kernels(
        tmp_path / "run.sqlite",
        (ELEMENTWISE, 50, {"gridX": 1_584}),
        (ELEMENTWISE, 25, {"gridX": 131, "registersPerThread": 255}),
        ("nvjet_tst_1", 25, {"gridX": 132, "registersPerThread": 255}),
    )

    assert found is not None
    assert found.launch_shapes == LaunchShapes(
        known_share=1.0,
        small_grid_kernels=1,
        small_grid_share=0.25,
        tail_share=0.0,
        occupancy=pytest.approx((0.5 * 50 + 0.125 * 25) / 75),
        low_occupancy_share=0.25,
        unfilled_share=pytest.approx(0.25 * 1 / 132),
    )


def test_the_last_wave_counts_by_work(tmp_path):
    found = of_kernels(
        tmp_path / "run.sqlite",
        (ELEMENTWISE, 50, {"gridX": 1_584, "registersPerThread": 32}),
        (ELEMENTWISE, 50, {"gridX": 1_056, "registersPerThread": 32}),
    )

    assert found is not None
    assert found.launch_shapes.tail_share == 0.125


def test_without_a_gpu_launch_shapes_are_unknown_not_zero(tmp_path):
    found = of_kernels(tmp_path / "run.sqlite", ("nvjet_tst_1", 10), gpu=False)

    assert found is not None
    assert found.launch_shapes == LaunchShapes(0.0, None, None, None, None, None)


def test_without_compute_there_are_no_details(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.copy("host-to-device", 0, 10, 100)

    assert details(tmp_path / "run.sqlite") is None


def test_no_run_of_small_multiplications_is_zero(tmp_path):
    found = of_kernels(tmp_path / "run.sqlite", (ELEMENTWISE, 10))

    assert found is not None
    assert found.small_multiplications == SmallMultiplications(0, 0, 0, 0.0)
    assert found.precisions == ()


SMALL_GRIDS = """
SELECT SUM(kernel.gridX * kernel.gridY * kernel.gridZ < gpu.smCount) AS small_kernels,
    1.0 * SUM((kernel.gridX * kernel.gridY * kernel.gridZ < gpu.smCount) * (kernel.end - kernel.start))
    / SUM(kernel.end - kernel.start) AS small_share,
    SUM(
        MAX(0, 1.0 - 1.0 * kernel.gridX * kernel.gridY * kernel.gridZ / gpu.smCount)
        * (kernel.end - kernel.start)
    ) / SUM(kernel.end - kernel.start) AS unfilled_share
FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel
INNER JOIN TARGET_INFO_GPU AS gpu ON gpu.id = 0
"""


@pytest.mark.parametrize(
    "stem",
    [
        pytest.param("brainstorm_report2", id="RTX 3090"),
        pytest.param("fuser_h200", id="H200"),
        pytest.param("tf_2020_report23", id="GTX 1650"),
    ],
)
def test_small_grids_of_real_exports_are_those_that_sql_counts(stem, traces):
    path = traces / f"{stem}.sqlite"
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    kernels, share, unfilled = connection.execute(SMALL_GRIDS).fetchone()
    connection.close()

    found = details(path)

    assert found is not None
    assert found.launch_shapes.small_grid_kernels == kernels
    assert found.launch_shapes.small_grid_share == pytest.approx(share)
    assert found.launch_shapes.unfilled_share == pytest.approx(unfilled)


@pytest.mark.parametrize(
    ("stem", "precision"),
    [
        pytest.param("cs336_tianshi_result", "bf16", id="autocast"),
        pytest.param("cs336_zx_2.7B", "fp32", id="full precision"),
        pytest.param("nsysai_mfu_before", "bf16", id="nvjet"),
    ],
)
def test_real_runs_multiply_in_one_precision(stem, precision, traces):
    found = details(traces / f"{stem}.sqlite")

    assert found is not None
    assert [(entry.precision, entry.share) for entry in found.precisions] == [(precision, 1.0)]


def test_a_real_elementwise_kernel_has_the_tail_that_its_grid_leaves(traces):
    """vectorAdd on a T4: 40 multiprocessors hold 4 blocks of 256 threads each."""
    path = traces / "t4_streams_old.sqlite"
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    ((blocks, threads),) = connection.execute(
        "SELECT DISTINCT kernel.gridX, kernel.blockX FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel"
    ).fetchall()
    connection.close()
    wave = 40 * (1_024 // threads)

    found = details(path)

    assert found is not None
    assert found.launch_shapes.tail_share == pytest.approx(1 - blocks / (-(-blocks // wave) * wave))


def test_shares_of_parts_stay_within_one(traces):
    found = details(traces / "cs336_tianshi_result.sqlite")

    assert found is not None
    parts = pl.Series(
        [found.unfused_elementwise_share, found.cast_share, found.quantize_share, found.grouped_share]
    )
    assert parts.is_between(0, 1).all()
    assert found.cast_share <= found.unfused_elementwise_share
