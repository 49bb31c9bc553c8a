import re
from collections import Counter

import numpy as np
import pytest

from fixtures.export import ExportWriter, global_pid
from fixtures.simulation.program import (
    Copy,
    Graph,
    GraphLaunch,
    Node,
    Pop,
    Push,
    SyncDevice,
    SyncStream,
    Work,
)
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.story import CALL_NS, LATENCY_NS, US, alone, gemm
from fixtures.simulation.truth import truths
from fixtures.simulation.writing import write_run
from tests.attribution.host_reading import details
from tests.conftest import run_part, slow
from wallscope.model.rank_summaries import CpuTime, HostAhead

SEEDS = (0, 1, *slow(2, 3, 4, 5))
DRAINED = "host/queue-drained/"


def of_program(path, program):
    write_run(run(program), path)
    found = details(path)
    assert found is not None
    return found


def of_steps(path, one):
    return of_program(path, alone(lambda _: one))


def told(found):
    """What was found of blocking calls, in whole numbers over five steps."""
    return {
        call.name: (round(5 * call.count), call.waited_ns, call.drained_ns) for call in found.blocking_calls
    }


def true_calls(played):
    """What the notes of the run tell of rank 0: count over the steady steps, mean time waited and drained."""
    truth = truths(played)[0]
    counts, waited_ns = Counter(), Counter()
    for call in played.ranks[0].calls:
        if call.drains and any(step.start_ns <= call.end_ns < step.end_ns for step in truth.steady):
            name = re.sub(r"_v\d+$", "", call.name)
            counts[name] += 1
            waited_ns[name] += call.end_ns - call.start_ns
    drained_ns = {
        cause.removeprefix(DRAINED): time_ns
        for cause, time_ns in truth.causes.items()
        if cause.startswith(DRAINED)
    }
    steps = len(truth.steady)
    return {
        name: (counts[name], waited_ns[name] / steps, drained_ns.get(name, 0) / steps)
        for name in counts | dict.fromkeys(drained_ns, 0)
    }


def assert_calls_are_true(path, played):
    found = details(path)
    assert found is not None
    expected = true_calls(played)
    steps = len(truths(played)[0].steady)
    assert {call.name for call in found.blocking_calls} == set(expected)
    for call in found.blocking_calls:
        count, waited_ns, drained_ns = expected[call.name]
        assert call.count * steps == pytest.approx(count)
        assert call.waited_ns == pytest.approx(waited_ns, abs=1)
        assert call.drained_ns == pytest.approx(drained_ns, abs=1)


@pytest.mark.parametrize("story", run_part(stories(), name=lambda story: story.name))
def test_blocking_calls_of_a_story_are_those_that_drained(story, tmp_path):
    played = run(story.program)
    write_run(played, tmp_path / "run.sqlite", has_os_calls=story.has_os_calls)

    assert_calls_are_true(tmp_path / "run.sqlite", played)


@pytest.mark.parametrize("seed", SEEDS)
def test_blocking_calls_of_a_random_program_are_those_that_drained(seed, tmp_path):
    played = run(random_program(seed))
    write_run(played, tmp_path / "run.sqlite")

    assert_calls_are_true(tmp_path / "run.sqlite", played)


READ = (Copy("device-to-host", 1_024, 2 * US), SyncStream(), Work(50 * US))


def layers(name, count, *inside):
    return [action for layer in range(count) for action in (Push(f"{name} {layer}"), *inside, Pop())]


@pytest.mark.parametrize(
    ("one", "unit", "per_unit", "path"),
    [
        pytest.param(
            layers("layer", 4, gemm(50), *READ, gemm(50)), "layer", 1.0, "layer #", id="once a layer"
        ),
        pytest.param(
            layers("layer", 4, gemm(50), Push("router"), *READ, Pop(), gemm(50), *READ),
            "layer", 2.0, "layer #", id="twice a layer",
        ),
        pytest.param(
            layers("microbatch", 3, gemm(50), *layers("layer", 3, gemm(50), *READ)),
            "layer", 1.0, "microbatch # / layer #", id="layers before microbatches",
        ),
        pytest.param(
            layers("microbatch", 3, gemm(50), *READ, *layers("layer", 3, gemm(50))),
            "microbatch", 1.0, "microbatch #", id="once a microbatch, beside layers",
        ),
        pytest.param(
            [*layers("layer", 4, gemm(50)), gemm(50), *READ], None, None, None, id="outside of layers"
        ),
        pytest.param(
            [*layers("layer", 4, gemm(50)), Push("layer 9"), gemm(50), *READ, Pop()],
            None, None, "layer #", id="in one layer of five",
        ),
        pytest.param(
            [gemm(50), Push("layer 0"), gemm(50), *READ, Pop(), gemm(50)],
            None, None, "layer #", id="one layer does not repeat",
        ),
        pytest.param(layers("sublayer", 4, gemm(50), *READ), None, None, "sublayer #", id="no known unit"),
    ],
)  # fmt: skip
def test_calls_are_counted_for_the_unit_that_holds_them(one, unit, per_unit, path, tmp_path):
    (call,) = of_steps(tmp_path / "run.sqlite", one).blocking_calls

    assert (call.name, call.unit, call.per_unit) == ("cudaStreamSynchronize", unit, per_unit)
    whole = "megatron.bridge.training.train.train.training_step_#"
    assert call.path == (whole if path is None else f"{whole} / {path}")


def test_a_synchronisation_under_a_full_queue_drains_nothing(tmp_path):
    story = next(story for story in stories() if story.name == "synchronisation while the device computes")

    assert of_program(tmp_path / "run.sqlite", story.program).blocking_calls == ()


def test_calls_that_cost_most_come_first(tmp_path):
    one = [gemm(300), SyncDevice(), Work(10 * US), gemm(10), SyncStream(), Work(90 * US), gemm(10)]
    found = of_steps(tmp_path / "run.sqlite", one)

    assert [call.name for call in found.blocking_calls] == ["cudaStreamSynchronize", "cudaDeviceSynchronize"]
    assert [call.drained_ns for call in found.blocking_calls] == [90 * US, 10 * US]


def test_a_driver_call_inside_a_runtime_call_counts_once(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        for at_ns in (0, 200_000):
            launch = writer.call("cudaLaunchKernel", at_ns, at_ns + 4_000)
            writer.kernel("gemm", at_ns + 8_000, at_ns + 100_000, correlation=launch)
        writer.call("cudaDeviceSynchronize", 10_000, 105_000)
        writer.call("cuCtxSynchronize", 11_000, 104_000)

    found = details(tmp_path / "run.sqlite")
    assert found is not None
    assert told(found) == {"cudaDeviceSynchronize": (5, 95_000, 95_000)}


def test_a_deep_queue_is_far_ahead_and_not_launch_bound(tmp_path):
    found = of_steps(tmp_path / "run.sqlite", [gemm(50)] * 10)

    assert found.launches is not None
    assert found.ahead is not None
    assert (found.launches.calls, found.launches.median_ns, found.launches.p90_ns) == (10, CALL_NS, CALL_NS)
    assert found.launches.call_ns == 10 * CALL_NS
    assert found.launches.calls_per_s == pytest.approx(10 / 510e-6)
    assert (found.launches.kernel_median_ns, found.launches.outpaced_share) == (50 * US, 0)
    assert not found.launches.is_launch_bound
    assert found.ahead.median_ns > found.ahead.p10_ns > 50 * US


def test_kernels_shorter_than_their_launch_on_an_idle_device_are_launch_bound(tmp_path):
    found = of_steps(tmp_path / "run.sqlite", [Work(20 * US), gemm(2)] * 5)

    assert found.launches is not None
    assert (found.launches.kernel_median_ns, found.launches.outpaced_share) == (2 * US, 1)
    assert found.launches.is_launch_bound
    assert found.ahead == HostAhead(LATENCY_NS, LATENCY_NS, 5)


def test_short_kernels_behind_a_long_one_are_outpaced_but_not_launch_bound(tmp_path):
    found = of_steps(tmp_path / "run.sqlite", [gemm(1_000), *[gemm(2)] * 20])

    assert found.launches is not None
    assert found.launches.outpaced_share == pytest.approx(20 / 21)
    assert not found.launches.is_launch_bound


def test_a_graph_is_one_launch_for_all_its_kernels(tmp_path):
    graph = Graph(tuple(Node(gemm(2).kernel, 2 * US) for _ in range(10)))
    found = of_steps(tmp_path / "run.sqlite", [Work(20 * US), GraphLaunch(graph)])

    assert found.launches is not None
    assert found.ahead is not None
    assert (found.launches.calls, found.launches.median_ns) == (1, 2 * CALL_NS)
    assert (found.launches.outpaced_share, found.launches.kernel_median_ns) == (0, 2 * US)
    assert found.ahead.launches == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_how_far_the_host_was_ahead_is_what_the_run_says(seed, tmp_path):
    played = run(random_program(seed))
    write_run(played, tmp_path / "run.sqlite")
    steady = truths(played)[0].steady
    first_ns: dict[int, int] = {}
    for operation in played.ranks[0].operations:
        begins = any(step.start_ns <= operation.start_ns < step.end_ns for step in steady)
        if operation.computes and begins:
            number = operation.call.number
            first_ns[number] = min(operation.start_ns, first_ns.get(number, operation.start_ns))
    end_ns = {call.number: call.end_ns for call in played.ranks[0].calls}
    ahead_ns = [max(0, at_ns - end_ns[number]) for number, at_ns in first_ns.items()]

    found = details(tmp_path / "run.sqlite")
    assert found is not None
    assert found.ahead is not None
    assert found.ahead.median_ns == int(np.percentile(ahead_ns, 50))
    assert found.ahead.p10_ns == int(np.percentile(ahead_ns, 10))


def one_kernel(writer):
    launch = writer.call("cudaLaunchKernel", 0, 4_000)
    writer.kernel("gemm", 1_000_000, 101_000_000, correlation=launch)


def switch(writer, at_ns, *, on, thread=1000):
    writer.row("SCHED_EVENTS", start=at_ns, cpu=0, isSchedIn=int(on), globalTid=global_pid(1000) + thread)


def sample(writer, at_ns, *, cycles=1, thread=1000):
    row = {"start": at_ns, "cpu": 0, "threadState": 1, "globalTid": global_pid(1000) + thread}
    writer.row("COMPOSITE_EVENTS", **row, cpuCycles=cycles)


def cpu_time(path):
    found = details(path)
    assert found is not None
    return found.cpu


def test_switches_tell_how_long_the_thread_was_on_a_cpu(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        one_kernel(writer)
        switch(writer, 500_000, on=False)
        switch(writer, 11_000_000, on=True)
        switch(writer, 51_000_000, on=False)
        switch(writer, 66_000_000, on=True)
        sample(writer, 70_000_000)

    assert cpu_time(tmp_path / "run.sqlite") == CpuTime(0.75, "switches", 1)


def test_samples_tell_it_where_switches_were_not_traced(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        one_kernel(writer)
        for number in range(50):
            sample(writer, 1_500_000 + 1_000_000 * number)
            sample(writer, 1_700_000 + 1_000_000 * number, cycles=0)
            sample(writer, 1_800_000 + 1_000_000 * number, thread=1001)

    assert cpu_time(tmp_path / "run.sqlite") == CpuTime(0.5, "samples", 50)


@pytest.mark.parametrize("count", [pytest.param(0, id="none"), pytest.param(19, id="nineteen")])
def test_with_few_samples_the_time_on_a_cpu_is_unknown(count, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        one_kernel(writer)
        for number in range(count):
            sample(writer, 1_500_000 + 1_000_000 * number)
        for number in range(50):
            sample(writer, 1_500_000 + 1_000_000 * number, thread=1001)

    assert cpu_time(tmp_path / "run.sqlite") is None


def test_without_calls_there_are_no_details(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.kernel("gemm", 0, 100)

    assert details(tmp_path / "run.sqlite") is None


def test_a_real_run_launches_as_often_as_sql_counts(traces):
    """Each step of this run makes 385 launches; it has no NVTX and no blocking call."""
    found = details(traces / "abacus_report1.sqlite")

    assert found is not None
    assert found.launches is not None
    assert found.launches.calls == 385
    assert found.blocking_calls == ()
