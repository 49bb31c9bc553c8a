"""What the terminal tells of the host and of sampled GPU metrics, from the nouns alone."""

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from wallscope.model.rank_summaries import (
    BlockingCall,
    CpuTime,
    GpuMetric,
    GpuMetrics,
    HostAhead,
    HostDetails,
    LaunchCost,
    MetricMean,
    OverlapTax,
    Serialisation,
)
from wallscope.model.section import Section
from wallscope.render.terminal import render_section
from wallscope.views.sections.depth import (
    build_compute_blocks,
    build_host_blocks,
    describe_communication,
    tabulate_metrics,
)

STEP_NS = 50_000_000
NOTHING = HostDetails((), None, None, None, None)
READ = BlockingCall(
    "cudaStreamSynchronize", 24.0, "layer", 1.0, 14_400_000, 4_600_000, "step / moe / .item()"
)
LAUNCHES = LaunchCost(1_478, 6_000_000, 4_500, 4_600, 30_000.0, 20_000, 0.124, is_launch_bound=False)
SERIAL = Serialisation(1, 3.0, 900_000, 2.0, 400_000, 0)


def told(section):
    page = io.StringIO()
    Console(file=page, width=100, markup=False, highlight=False).print(render_section(section))
    return " ".join(page.getvalue().split())


def of(details):
    rank = SimpleNamespace(host_details=details, typical=SimpleNamespace(step_ns=STEP_NS))
    return Section("host", "", "", build_host_blocks(rank, "typical step"))


def test_a_host_of_which_nothing_is_known_says_why():
    assert told(of(NOTHING)) == ""
    assert told(of(None)) == "The capture has no CUDA API calls, so host time is unknown."


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        pytest.param(
            replace(NOTHING, blocking_calls=(READ,)),
            "cudaStreamSynchronize in .item() 24, 1 per layer 14.4 ms 4.6 ms",
            id="a call that drains",
        ),
        pytest.param(
            replace(NOTHING, blocking_calls=(replace(READ, unit=None, per_unit=None, path=None),)),
            "cudaStreamSynchronize 24 14.4 ms 4.6 ms",
            id="outside ranges",
        ),
        pytest.param(
            replace(NOTHING, launches=LAUNCHES),
            "1,478 launch calls per step, median 4.5 µs, p90 4.6 µs; 12.4 % take longer than the kernel",
            id="launches",
        ),
        pytest.param(
            replace(NOTHING, launches=replace(LAUNCHES, is_launch_bound=True)),
            "so the host cannot launch as fast as the GPU executes (launch-bound).",
            id="launch-bound",
        ),
        pytest.param(
            replace(NOTHING, ahead=HostAhead(1_200_000, 120_400, 9)),
            "Compute kernels start 1.2 ms after their launch call ends (median; 10th percentile 120.4 µs)",
            id="ahead",
        ),
        pytest.param(
            replace(NOTHING, ahead=HostAhead(1_200_000, 0, 9)),
            "launch call ends (median; at least 10 % start before the call ends)",
            id="some start before the call ends",
        ),
        pytest.param(
            replace(NOTHING, ahead=HostAhead(0, 0, 9)),
            "At least half of the compute kernels start before their launch call ends.",
            id="most start before the call ends",
        ),
        pytest.param(
            replace(NOTHING, cpu=CpuTime(0.5, "samples", 9)),
            "50.0 % of the typical step (source: CPU samples)",
            id="cpu",
        ),
        pytest.param(
            replace(NOTHING, serialisation=SERIAL),
            "3 kernels per step waited for another stream without a dependency,"
            " 900.0 µs in total. The reason is a shared work queue, or a full GPU;"
            " CUDA_DEVICE_MAX_CONNECTIONS is 1.",
            id="serialised",
        ),
    ],
)
def test_the_host_is_told(details, expected):
    assert expected in told(of(details))


def test_kernels_that_hardly_waited_are_not_told():
    assert told(of(replace(NOTHING, serialisation=replace(SERIAL, held_ns=49_999)))) == ""


def test_long_ranges_are_told_by_their_end():
    path = "step / " + "m" * 60 + ".dispatch"
    assert f"in …{'m' * 18}.dispatch " in told(
        of(replace(NOTHING, blocking_calls=(replace(READ, path=path),)))
    )


@pytest.mark.parametrize(
    ("exclusive", "expected"),
    [
        (
            0.25,
            "Values are for the whole GPU; in 25.0 % of the samples no other rank of this export ran on it.",
        ),
        (None, "Values are for the whole GPU; it is unknown on which GPU the other ranks ran."),
    ],
)
def test_gpu_metrics_are_told_with_whose_they_are(exclusive, expected):
    metrics = GpuMetrics(0, 500, exclusive, (MetricMean(GpuMetric.TENSOR_ACTIVE, 0.31, 500),))
    section = told(tabulate_metrics(metrics, "typical step"))

    assert "tensor-active 31.0 % 500" in section
    assert expected in section


@pytest.mark.parametrize("metrics", [None, GpuMetrics(0, 0, None, ())])
def test_metrics_that_were_not_sampled_have_no_section(metrics):
    rank = SimpleNamespace(gpu_metrics=metrics, compute=(), compute_details=None, unmatched_kernels=())

    assert list(build_compute_blocks(rank, "typical step")) == []


def test_without_steps_counts_are_those_of_the_capture():
    rank = SimpleNamespace(
        host_details=replace(NOTHING, blocking_calls=(READ,), launches=LAUNCHES),
        typical=SimpleNamespace(step_ns=STEP_NS),
    )
    shown = told(Section("host", "", "", build_host_blocks(rank, "capture")))

    assert "launch calls in the capture, median" in shown
    assert "per step" not in shown


@pytest.mark.parametrize(
    ("hidden_share", "tax", "expected"),
    [
        pytest.param(0.8, None, "slows the kernels that it overlaps is unknown", id="never alone"),
        pytest.param(0.8, OverlapTax(1.2, 90_000, 40, 0.6), "1.20x as long as alone", id="measured"),
        pytest.param(0.0, None, "", id="nothing overlaps"),
        pytest.param(None, None, "", id="no communication"),
    ],
)
def test_slower_kernels_next_to_communication_are_measured_or_unknown(hidden_share, tax, expected):
    found = SimpleNamespace(
        blocking_ns=None, hidden_share=hidden_share, overlap_tax=tax, dispatcher=None, traffic=()
    )
    (sentence,) = [*describe_communication(found, "typical step")] or [""]

    assert expected in sentence
    assert bool(sentence) is bool(expected)
