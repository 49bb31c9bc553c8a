"""Occupancy that the profiler recorded: what of it is known, and what it gives without a described GPU."""

import pytest

from fixtures.torch_trace import BASE_NS, H100, TraceWriter
from wallscope.kineto.load_trace import read_trace_capture
from wallscope.model.capture import Options
from wallscope.pipeline import analyze

NORM, GEMM = "void layer_norm_kernel<float>(x)", "nvjet_tst_128x128_64x6_1x2_h_bz_coopA_TNT"
OCCUPANCY, BLOCKS, WARPS = "est. achieved occupancy %", "blocks per SM", "warps per SM"


def write(path, *kernels, gpus=()):
    """Kernels of (name, length, arguments), one after the other."""
    writer = TraceWriter(deviceProperties=list(gpus), baseTimeNanoseconds=BASE_NS)
    at_ns = 10_000
    for number, (name, length_ns, args) in enumerate(kernels, 1):
        writer.call("cudaLaunchKernel", at_ns - 5_000, at_ns - 4_000, number)
        writer.kernel(name, at_ns, at_ns + length_ns, number, **args)
        at_ns += length_ns
    return writer.write(path / "t.json")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        pytest.param({OCCUPANCY: 62, BLOCKS: 40.5, WARPS: 324.0}, [(40.5, 0.62)], id="recorded"),
        pytest.param({OCCUPANCY: 0, BLOCKS: 1.2, WARPS: 9.6}, [(1.2, None)], id="a 0 that is none"),
        pytest.param({OCCUPANCY: 0, BLOCKS: 0.007, WARPS: 0.027}, [(0.007, 0.0)], id="next to no warps"),
        pytest.param({OCCUPANCY: -100, BLOCKS: 1.2, WARPS: 9.6}, [(1.2, None)], id="negative"),
        pytest.param({OCCUPANCY: 120, BLOCKS: 1.2, WARPS: 9.6}, [(1.2, None)], id="above all"),
        pytest.param({OCCUPANCY: "62", BLOCKS: "40.5"}, [(40.5, 0.62)], id="texts"),
        pytest.param({OCCUPANCY: 62, BLOCKS: 0}, [], id="no blocks"),
        pytest.param({OCCUPANCY: None, BLOCKS: True}, [], id="no numbers"),
        pytest.param({}, [], id="absent"),
    ],
)
def test_occupancy_is_known_where_the_profiler_could_tell(args, expected, tmp_path):
    path = write(tmp_path, (NORM, 1_000, {}), (NORM, 1_000, args), (NORM, 1_000, {}))
    found = read_trace_capture(path, lambda _: None).kernel_occupancy

    assert found.select("blocks_per_sm", "achieved").rows() == expected
    assert found["op"].to_list() == [1] * len(expected)


def shapes(path):
    (rank,) = analyze(path, Options(), lambda _: None).ranks
    return rank.compute_details.launch_shapes


def test_without_a_description_of_the_gpu_its_multiprocessors_are_known_by_blocks_per_each(tmp_path):
    found = shapes(
        write(
            tmp_path,
            (NORM, 6_000, {BLOCKS: 0.25, WARPS: 2.0, OCCUPANCY: 3}),
            (NORM, 2_000, {BLOCKS: 30.0, WARPS: 240.0, OCCUPANCY: 75}),
            (GEMM, 2_000, {BLOCKS: 30.0, WARPS: 240.0, OCCUPANCY: 12}),
        )
    )

    assert (found.small_grid_kernels, found.small_grid_share) == (1, 0.6)
    assert found.unfilled_share == pytest.approx(0.6 * 0.75)
    assert found.occupancy == 0.75  # of the grid that does not limit it
    assert found.known_share == 0.4
    assert found.achieved_occupancy == pytest.approx((6 * 0.03 + 2 * 0.75) / 8)  # without the GEMM
    assert found.tail_share is None


def test_a_described_gpu_decides_on_its_own_limits(tmp_path):
    args = {"grid": [66, 1, 1], "registers per thread": 64, BLOCKS: 0.25, WARPS: 2.0, OCCUPANCY: 3}
    found = shapes(write(tmp_path, (NORM, 6_000, args), gpus=[{"id": 0, **H100}]))

    assert (found.occupancy, found.known_share) == (0.5, 1)
    assert found.unfilled_share == pytest.approx(0.5)
    assert found.achieved_occupancy == 0.03


def test_without_either_occupancy_is_unknown(tmp_path):
    found = shapes(write(tmp_path, (NORM, 6_000, {})))

    assert (found.known_share, found.small_grid_share, found.unfilled_share) == (0, None, None)
    assert (found.occupancy, found.achieved_occupancy, found.low_occupancy_share) == (None, None, None)
