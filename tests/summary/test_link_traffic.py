"""What links carried in the steps, and while communication was exposed."""

import pytest

from fixtures.export import ExportWriter
from tests.answered_once import analyze_once
from wallscope.model.enums import Direction
from wallscope.model.rank_summaries import LinkTraffic
from wallscope.views.sections.depth import describe_communication, tabulate_traffic

TYPE = 0x0001_0001_0000_0000
NVLINK = (
    "NVLink RX Requests User Data [Throughput %]",
    "NVLink RX Responses User Data [Throughput %]",
)
RECEIVED, SENT = range(2)


@pytest.fixture
def measured(tmp_path):
    """A step from 0 to 10,000 ns: compute until 4,000, communication from 2,000, exposed from 4,000."""

    def measure(write):
        path = tmp_path / "run.sqlite"
        with ExportWriter(path) as writer:
            writer.gpu()
            writer.kernel("gemm", 0, 4_000)
            writer.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", 2_000, 10_000, stream=20)
            for number, way in enumerate(("received", "sent")):
                row = {"metricsIdx": number, "name": f"IB: Bytes {way}", "unit": "bytes/ms"}
                writer.row("TARGET_INFO_NETWORK_METRICS", metricsListId=1, description="", **row)
            for number, name in enumerate(NVLINK):
                row = {"typeId": TYPE, "sourceId": 1, "typeName": "", "metricId": number, "metricName": name}
                writer.row("TARGET_INFO_GPU_METRICS", **row)
            write(writer)
        (rank,) = analyze_once(path).ranks
        return rank.communication

    return measure


def card(writer, start, end, value, **more):
    row = {"start": start, "end": end, "globalId": 7, "portId": 1, "value": value, "metricsIdx": SENT}
    writer.row("NET_NIC_METRIC", metricsListId=1, **{**row, **more})


def nvlink(writer, at_ns, value, metric=0):
    row = {"timestamp": at_ns, "rawTimestamp": 0, "typeId": TYPE, "metricId": metric, "value": value}
    writer.row("GPU_METRICS", **row)


def test_samples_count_by_their_time(measured):
    def write(writer):
        card(writer, 0, 4_000, 10)
        card(writer, 4_000, 5_000, 40)
        card(writer, 5_000, 10_000, 20)

    assert measured(write).traffic == (
        LinkTraffic(
            "card 7 (IB)",
            Direction.SENT,
            bytes_per_s=pytest.approx(18_000.0),
            exposed_bytes_per_s=pytest.approx(140_000 / 6),
            peak_share=None,
            exposed_peak_share=None,
            samples=3,
            exposed_samples=2,
        ),
    )


def test_a_sample_counts_where_half_of_it_lies(measured):
    def write(writer):
        card(writer, -6_000, 5_000, 1)  # less than half in the step
        card(writer, 1_000, 6_900, 2)  # less than half of it exposed
        card(writer, 9_000, 11_000, 4)

    (found,) = measured(write).traffic
    assert (found.samples, found.exposed_samples, found.exposed_bytes_per_s) == (2, 1, 4_000.0)


def test_no_sample_of_exposed_communication_is_unknown_and_not_zero(measured):
    (found,) = measured(lambda writer: card(writer, 0, 3_000, 0)).traffic

    assert (found.bytes_per_s, found.exposed_bytes_per_s, found.exposed_samples) == (0.0, None, 0)


def test_the_busiest_link_comes_first_and_nvlink_last(measured):
    def write(writer):
        for number, value in enumerate((1, 5, 3)):
            card(writer, 0, 9_000, value, globalId=number)
        card(writer, 0, 9_000, 4, metricsIdx=RECEIVED, globalId=0)
        for metric in range(2):
            nvlink(writer, 0, 90, metric)
            nvlink(writer, 5_000, 10, metric)

    found = measured(write).traffic
    assert [(one.link, str(one.direction)) for one in found] == [
        ("card 1 (IB)", "sent"),
        ("card 0 (IB)", "received"),
        ("card 2 (IB)", "sent"),
        ("card 0 (IB)", "sent"),
        ("NVLink", "received"),
    ]
    assert found[-1].peak_share == pytest.approx(0.2)


def test_nvlink_needs_requests_and_responses(measured):
    def write(writer):
        for at_ns in range(0, 10_000, 1_000):
            nvlink(writer, at_ns, 50)

    assert measured(write).traffic is None


@pytest.mark.parametrize("is_sampled", [True, False])
def test_absent_counters_are_said_in_one_place(measured, is_sampled):
    found = measured(lambda writer: card(writer, 0, 9_000, 5) if is_sampled else None)
    lines = [line for line in describe_communication(found, "step") if "NVLink" in line]

    assert len(lines) == (0 if is_sampled else 1)
    if is_sampled:
        grid = tabulate_traffic(found.traffic, "step")
        assert [column.title for column in grid.columns][:4] == ["link", "direction", "rate", "rate, exposed"]
