"""Samples of GPU metrics while kernels multiply: why these are below the peak."""

import pytest

from fixtures.export import ExportWriter
from tests.summary.compute.test_gpu_metrics import TYPE
from tests.summary.speed_of_light.test_lines import BF16
from wallscope.model.capture import Options
from wallscope.model.enums import ComputeCategory
from wallscope.model.speed_of_light import BelowPeak, LedgerLine, SampledWork
from wallscope.pipeline import analyze
from wallscope.views.light import explain_light

PERIOD_NS, LENGTH_NS = 1_000, 100_000
METRICS = {
    0: "SMs Active [Throughput %]",
    1: "Tensor Active [Throughput %]",
    2: "DRAM Read Bandwidth [Throughput %]",
    3: "DRAM Write Bandwidth [Throughput %]",
}
GEMM, ELEMENTWISE = ComputeCategory.GEMM, ComputeCategory.ELEMENTWISE
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"


@pytest.fixture
def ledger(tmp_path):
    def build(values, kernels, *, metrics=METRICS, blocks=1_320, operator=""):
        """The ledger of kernels, (name, start, end), with samples by the values of all metrics at a time.

        With an operator, a range of this name contains the launch of each.
        """
        with ExportWriter(tmp_path / "run.sqlite") as writer:
            writer.gpu(0)
            for name, start_ns, end_ns in kernels:
                called_ns = start_ns - 5_000
                call = writer.call("cudaLaunchKernel", called_ns, called_ns + 100) if operator else None
                if operator:
                    writer.range(operator, called_ns - 10, called_ns + 200)
                writer.kernel(name, start_ns, end_ns, pid=1_000, gridX=blocks, correlation=call)
            writer.row("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=1_000, uuid="GPU-0")
            for number, name in metrics.items():
                row = {"typeId": TYPE, "sourceId": 1, "typeName": "", "metricId": number}
                writer.row("TARGET_INFO_GPU_METRICS", **row, metricName=name)
            for at_ns in range(0, 2 * LENGTH_NS, PERIOD_NS):
                for number in metrics:
                    row = {"timestamp": at_ns, "rawTimestamp": 0, "typeId": TYPE, "metricId": number}
                    writer.row("GPU_METRICS", **row, value=values(at_ns)[number])
        return analyze(tmp_path / "run.sqlite", Options(), lambda _: None).ranks[0].speed_of_light

    return build


def in_gemm(own, others):
    """Values while products run, which is the first half, and else."""
    return lambda at_ns: own if at_ns <= LENGTH_NS else others


KERNELS = [
    *((BF16, at_ns, at_ns + 9_990) for at_ns in range(0, LENGTH_NS, 10_000)),
    (ADD, LENGTH_NS, 2 * LENGTH_NS),
]


def test_means_are_those_of_samples_in_which_only_products_run(ledger):
    found = ledger(in_gemm((80, 40, 20, 10), (100, 0, 60, 30)), KERNELS)

    (one,) = found.sampled
    assert (one.category, one.sm_active, one.tensor_active, one.dram) == (
        GEMM,
        pytest.approx(0.8),
        pytest.approx(0.4),
        pytest.approx(0.3),
    )
    assert 90 <= one.samples <= LENGTH_NS // PERIOD_NS


def test_idle_multiprocessors_and_full_bandwidth_are_reasons(ledger):
    idle = ledger(in_gemm((80, 40, 20, 10), (100, 0, 60, 30)), KERNELS)
    full = ledger(in_gemm((99, 10, 50, 20), (100, 0, 60, 30)), KERNELS)

    assert [one.reasons for one in idle.uncounted] == [(BelowPeak.UNFILLED_GPU,)]
    assert [one.reasons for one in full.uncounted] == [(BelowPeak.BANDWIDTH,)]
    assert list(explain_light(full))[-1] == (
        "Kernel names, grid sizes and samples suggest why these kernels are slow: memory bandwidth."
    )


PEAK_MHZ, SLOW_MHZ = 1_830, 1_464
"""The clock of the peak of an H100, and four fifths of it."""
CLOCK = {0: "GPC Clock Frequency"}


def test_a_clock_below_that_of_the_peak_is_a_reason(ledger):
    found = ledger(in_gemm((SLOW_MHZ * 1_000_000,), (PEAK_MHZ * 1_000_000,)), KERNELS, metrics=CLOCK)

    (one,) = found.clocks
    assert (one.category, one.clock_mhz, one.peak_share) == (GEMM, SLOW_MHZ, pytest.approx(0.8, abs=1e-3))
    assert one.samples == LENGTH_NS // PERIOD_NS
    assert [one.reasons for one in found.uncounted] == [(BelowPeak.LOW_CLOCK,)]
    assert found.sampled == ()


def test_a_low_clock_costs_its_share_of_what_other_reasons_leave(ledger):
    """Of 200 blocks on 132 multiprocessors, those of the last wave leave 24 % of the arithmetic unused."""
    kernels = [(BF16, at_ns, at_ns + 15_000) for at_ns in range(0, LENGTH_NS - 20_000, 20_000)]
    found = ledger(
        lambda _: (SLOW_MHZ * 1_000_000,),
        kernels,
        metrics=CLOCK,
        blocks=200,
        operator="aten::mm, sizes = [[2048, 512], [512, 2048]]",
    )

    (below,) = [one for one in found.lines if one.line is LedgerLine.BELOW_PEAK]
    sizes = {one.reason: one.ns for one in below.explained_by}
    assert list(sizes) == [BelowPeak.LAST_WAVE, BelowPeak.LOW_CLOCK]
    left_ns = below.ns - sizes[BelowPeak.LAST_WAVE]
    assert sizes[BelowPeak.LOW_CLOCK] == pytest.approx(left_ns * (1 - SLOW_MHZ / PEAK_MHZ), abs=1)


@pytest.mark.parametrize(
    ("clock_mhz", "metrics"),
    [
        pytest.param(PEAK_MHZ, CLOCK, id="at the clock of the peak"),
        pytest.param(1_980, CLOCK, id="above it"),
        pytest.param(0, CLOCK, id="not measured"),
        pytest.param(SLOW_MHZ, {0: "SYS Clock Frequency"}, id="another clock"),
    ],
)
def test_other_clocks_are_no_reason(clock_mhz, metrics, ledger):
    found = ledger(lambda _: (clock_mhz * 1_000_000,), KERNELS, metrics=metrics)

    assert [one.reasons for one in found.uncounted] == [()]
    assert [one.clock_mhz for one in found.clocks] == [clock_mhz] * (clock_mhz >= PEAK_MHZ)


def test_samples_beside_other_kernels_say_nothing_of_products(ledger):
    beside = [(BF16, at_ns, at_ns + 5_000) for at_ns in range(0, LENGTH_NS, 10_000)]
    beside += [(ADD, at_ns, at_ns + 10_000) for at_ns in range(0, LENGTH_NS, 10_000)]

    assert ledger(in_gemm((80, 40, 20, 10), (0, 0, 0, 0)), beside).sampled == ()


def test_metrics_that_were_not_sampled_are_unknown(ledger):
    found = ledger(lambda _: (95,), KERNELS, metrics={0: METRICS[0]})

    assert found.sampled == (SampledWork(GEMM, found.sampled[0].samples, 0.95, None, None),)
    assert [one.reasons for one in found.uncounted] == [()]
