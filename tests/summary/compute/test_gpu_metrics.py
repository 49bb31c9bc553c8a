import sqlite3

import pytest

from fixtures.export import ExportWriter
from fixtures.simulation.program import HostThread, Program, stepped
from fixtures.simulation.run import run
from fixtures.simulation.story import STEPS, gemm
from fixtures.simulation.truth import truths
from fixtures.simulation.writing import write_run
from tests.attribution.host_reading import metrics
from wallscope.model.rank_summaries import GpuMetric, GpuMetrics, MetricMean

TYPE = 0x0001_0001_0000_0000  # machine 1, source 1, GPU 0
PERIOD_NS = 100
SM_ACTIVE, TENSOR, CLOCK = 0, 1, 2
NAMES = {
    SM_ACTIVE: "SMs Active [Throughput %]",
    TENSOR: "Tensor Active [Throughput %]",
    CLOCK: "GPC Clock Frequency [MHz]",
}


def describe(writer, names=NAMES, gpu=0):
    for number, name in names.items():
        row = {"typeId": TYPE | gpu, "sourceId": 1, "typeName": "", "metricId": number, "metricName": name}
        writer.row("TARGET_INFO_GPU_METRICS", **row)


def sample(writer, at_ns, values, gpu=0):
    for number, value in values.items():
        row = {"timestamp": at_ns, "rawTimestamp": 0, "typeId": TYPE | gpu, "metricId": number}
        writer.row("GPU_METRICS", **row, value=value)


def rank(writer, pid, gpu, start_ns=1_000, end_ns=2_000):
    """A process with one kernel; by default it runs from 1,000 to 2,000 ns, which is all of its window."""
    writer.kernel("gemm", start_ns, end_ns, pid=pid)
    if gpu is not None and writer.has("TARGET_INFO_CUDA_DEVICE"):
        writer.row("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=pid, uuid=f"GPU-{gpu}")


def test_the_mean_is_over_the_samples_whose_whole_time_lies_in_the_step(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.gpu()
        rank(writer, 1000, 0)
        describe(writer)
        for number in range(25):  # sample 10 ends as the step begins, 11 is its first, 20 its last
            active = 80 if 11 <= number <= 20 else 3
            sample(writer, PERIOD_NS * number, {SM_ACTIVE: active, TENSOR: 40, CLOCK: 1_980_000_000})

    assert metrics(tmp_path / "run.sqlite") == GpuMetrics(
        gpu=0,
        samples=10,
        exclusive_share=1.0,
        means=(MetricMean(GpuMetric.SM_ACTIVE, 0.8, 10), MetricMean(GpuMetric.TENSOR_ACTIVE, 0.4, 10)),
    )


def test_behind_a_hole_a_sample_is_no_longer_than_usual(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.gpu()
        rank(writer, 1000, 0)
        describe(writer)
        for at_ns in (100, 200, 300, 1_500, 1_600, 1_650):
            sample(writer, at_ns, {SM_ACTIVE: at_ns // 100})

    found = metrics(tmp_path / "run.sqlite")
    assert found is not None
    assert found.means == (MetricMean(GpuMetric.SM_ACTIVE, pytest.approx(47 / 300), 3),)


def sampled(writer, values, gpu=0, moments=range(0, 3_000, PERIOD_NS)):
    for at_ns in moments:
        sample(writer, at_ns, values, gpu)


@pytest.mark.parametrize(
    ("described", "values", "gpu", "moments"),
    [
        pytest.param(False, {}, 0, [], id="no tables"),
        pytest.param(True, {}, 0, [], id="names alone"),
        pytest.param(True, {SM_ACTIVE: 9}, 0, range(0, 1_100, 100), id="none in the step"),
        pytest.param(True, {SM_ACTIVE: 9}, 1, range(0, 3_000, 100), id="of another GPU"),
        pytest.param(True, {CLOCK: 9}, 0, range(0, 3_000, 100), id="of the clock alone"),
        pytest.param(False, {SM_ACTIVE: 9}, 0, range(0, 3_000, 100), id="without names"),
        pytest.param(True, {SM_ACTIVE: 9}, 0, [None] * 30, id="without times"),
        pytest.param(True, {SM_ACTIVE: 9}, 0, [1_500], id="one alone"),
    ],
)
def test_what_was_not_sampled_is_unknown_and_not_zero(described, values, gpu, moments, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", "3.7.2") as writer:
        writer.gpu()
        rank(writer, 1000, 0)
        if described:
            describe(writer, gpu=gpu)
        sampled(writer, values, gpu, moments)

    assert metrics(tmp_path / "run.sqlite") is None


def test_a_measured_zero_is_zero(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.gpu()
        rank(writer, 1000, 0)
        describe(writer)
        sampled(writer, {TENSOR: 0})

    found = metrics(tmp_path / "run.sqlite")
    assert found is not None
    assert found.means == (MetricMean(GpuMetric.TENSOR_ACTIVE, 0.0, 10),)


def test_numbers_of_metrics_mean_different_things_on_different_gpus(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.gpu(0)
        writer.gpu(1)
        rank(writer, 1000, 0)
        rank(writer, 2000, 1)
        describe(writer, {0: "SM Active"})
        describe(writer, {0: "DRAM Read Throughput"}, gpu=1)
        sampled(writer, {0: 50})
        sampled(writer, {0: 20}, gpu=1)

    first, second = (metrics(tmp_path / "run.sqlite", number) for number in range(2))
    assert first is not None
    assert second is not None
    assert (first.gpu, first.means) == (0, (MetricMean(GpuMetric.SM_ACTIVE, 0.5, 10),))
    assert (second.gpu, second.means) == (1, (MetricMean(GpuMetric.DRAM_READ, 0.2, 10),))


def test_user_data_of_requests_and_responses_is_the_payload(tmp_path):
    names = {
        0: "NVLink RX Requests User Data [Throughput %]",
        1: "NVLink RX Responses User Data [Throughput %]",
        2: "NVLink RX Requests Protocol Data [Throughput %]",
        3: "NVLink TX Responses User Data [Throughput %]",
        4: "PCIe RX Throughput [Throughput %]",
        5: "SM Active [Avg]",
    }
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.gpu()
        rank(writer, 1000, 0)
        describe(writer, names)
        sampled(writer, {number: 10 + number for number in names})

    found = metrics(tmp_path / "run.sqlite")
    assert found is not None
    assert [(one.metric, one.mean_share) for one in found.means] == [
        (GpuMetric.NVLINK_RECEIVED_REQUESTS, 0.10),
        (GpuMetric.NVLINK_RECEIVED_RESPONSES, 0.11),
        (GpuMetric.NVLINK_SENT_RESPONSES, 0.13),
        (GpuMetric.PCIE_RECEIVED, 0.14),
    ]


@pytest.mark.parametrize(
    ("gpu", "start_ns", "end_ns", "share"),
    [
        pytest.param(1, 1_000, 2_000, 1.0, id="on another GPU"),
        pytest.param(0, 2_000, 3_000, 1.0, id="behind the step"),
        pytest.param(0, 500, 1_000, 1.0, id="before the step"),
        pytest.param(0, 1_000, 1_500, 0.5, id="for half of it"),
        pytest.param(0, 1_099, 1_101, 0.8, id="in two samples"),
        pytest.param(0, 500, 5_000, 0.0, id="throughout"),
        pytest.param(None, 1_000, 1_500, None, id="nobody knows where"),
        pytest.param(None, 2_000, 3_000, 1.0, id="nobody knows where, behind the step"),
    ],
)
def test_samples_during_which_another_rank_ran_on_the_gpu_are_not_exclusive(
    gpu, start_ns, end_ns, share, tmp_path
):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.gpu(0)
        writer.gpu(1, "NVIDIA A100-SXM4-80GB")
        rank(writer, 1000, 0)
        rank(writer, 2000, gpu, start_ns, end_ns)
        describe(writer)
        for at_ns in range(0, 6_000, 100):
            sample(writer, at_ns, {SM_ACTIVE: 50})

    found = metrics(tmp_path / "run.sqlite")
    assert found is not None
    assert (found.samples, found.exclusive_share) == (10, pytest.approx(share))


def test_only_the_steps_of_the_typical_step_count(tmp_path):
    program = Program(((HostThread("python", stepped(STEPS, lambda _: [gemm(1_000)] * 3)),),))
    played = run(program)
    write_run(played, tmp_path / "run.sqlite")
    (truth,) = truths(played)
    period_ns = 10_000
    rows = range(0, truth.steps[-1].end_ns, period_ns)
    is_usual = [
        any(step.start_ns <= at_ns - period_ns and at_ns <= step.end_ns for step in truth.steady)
        for at_ns in rows
    ]
    with sqlite3.connect(tmp_path / "run.sqlite") as connection:
        connection.execute("CREATE TABLE GPU_METRICS (timestamp, typeId, metricId, value)")
        connection.execute(
            "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId, sourceId, typeName, metricId, metricName TEXT)"
        )
        connection.execute("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, 1, '', 0, 'SM Active')", (TYPE,))
        connection.executemany(
            "INSERT INTO GPU_METRICS VALUES (?, ?, 0, ?)",
            [(at_ns, TYPE, 80 if usual else 5) for at_ns, usual in zip(rows, is_usual, strict=True)],
        )
    connection.close()

    found = metrics(tmp_path / "run.sqlite")
    assert found is not None
    assert found.means == (MetricMean(GpuMetric.SM_ACTIVE, 0.8, sum(is_usual)),)


MEANS = """
SELECT described.metricName AS name, AVG(sampled.value) / 100 AS mean, COUNT(*) AS samples
FROM GPU_METRICS AS sampled
INNER JOIN TARGET_INFO_GPU_METRICS AS described
    ON described.typeId = sampled.typeId AND described.metricId = sampled.metricId
WHERE sampled.timestamp - 100000 >= (SELECT MIN(start) FROM CUPTI_ACTIVITY_KIND_KERNEL)
    AND sampled.timestamp <= (SELECT MAX(end) FROM CUPTI_ACTIVITY_KIND_KERNEL)
GROUP BY described.metricName
"""
REAL = {
    "SM Active": GpuMetric.SM_ACTIVE,
    "SM Issue": GpuMetric.SM_ISSUE,
    "Tensor Active": GpuMetric.TENSOR_ACTIVE,
    "DRAM Read Throughput": GpuMetric.DRAM_READ,
    "DRAM Write Throughput": GpuMetric.DRAM_WRITE,
    "PCIe RX Throughput": GpuMetric.PCIE_RECEIVED,
    "PCIe TX Throughput": GpuMetric.PCIE_SENT,
}


def test_means_of_a_real_export_are_those_that_sql_counts(traces):
    """An RTX 3090 sampled at 10 kHz; the capture is one window, from its first operation to its last."""
    path = traces / "als_gpumetrics.sqlite"
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    counted = {name: (mean, samples) for name, mean, samples in connection.execute(MEANS)}
    connection.close()

    found = metrics(path)
    assert found is not None
    assert (found.gpu, found.exclusive_share) == (0, 1.0)
    assert {one.metric: (one.mean_share, one.samples) for one in found.means} == {
        metric: (pytest.approx(counted[name][0]), counted[name][1]) for name, metric in REAL.items()
    }
    assert found.samples == 259
