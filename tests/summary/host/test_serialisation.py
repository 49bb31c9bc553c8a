import pytest

from fixtures.export import ExportWriter, global_pid
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.writing import write_run
from tests.attribution.host_reading import details
from tests.conftest import run_part, slow
from wallscope.model.rank_summaries import Serialisation

US = 1_000
MAIN, SIDE = 7, 20
NULL, BLOCKING, FREE = 3, 1, 2


class Streams:
    """Kernels on two streams, times in µs; by default both streams are independent of each other."""

    def __init__(self, writer, main=FREE, side=FREE):
        self.writer = writer
        for number, flag in ((MAIN, main), (SIDE, side)):
            if flag is not None:
                target = {"hwId": 0, "vmId": 1, "processId": 1000, "contextId": 1}
                writer.row("TARGET_INFO_CUDA_STREAM", **target, streamId=number, priority=0, flag=flag)

    def kernel(self, issued, start, end, stream=MAIN, blocks=24, **more):
        launch = self.writer.call("cudaLaunchKernel", (issued - 2) * US, issued * US)
        kernel = {"stream": stream, "correlation": launch, "gridX": blocks, **more}
        self.writer.kernel("gemm", start * US, end * US, **kernel)

    def record(self, at, stream, event=1):
        number = self.writer.call("cudaEventRecord", at * US, (at + 1) * US)
        where = {"deviceId": 0, "contextId": 1, "streamId": stream, "globalPid": global_pid(1000)}
        self.writer.row(
            "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
            **where, timestamp=0, correlationId=number, eventId=event, eventSyncId=event,
        )  # fmt: skip

    def wait(self, at, stream, event=1, *, has_row=True):
        number = self.writer.call("cudaStreamWaitEvent", at * US, (at + 1) * US)
        where = {"deviceId": 0, "contextId": 1, "streamId": stream, "globalPid": global_pid(1000)}
        if has_row:
            self.writer.row(
                "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
                **where, start=at * US, end=(at + 1) * US, correlationId=number, syncType=2,
                eventId=event, eventSyncId=event,
            )  # fmt: skip


def of(path, write, *, flags=(FREE, FREE), gpu=True, **environment):
    with ExportWriter(path) as writer:
        if gpu:
            writer.gpu()
        writer.environment(**environment)
        write(Streams(writer, *flags))
    found = details(path)
    assert found is not None
    return found.serialisation


def held_back(streams):
    """The second kernel has been ready since 14 µs and starts 1 µs after the first one, at 101."""
    streams.kernel(10, 13, 100)
    streams.kernel(14, 101, 150, SIDE)


def test_a_kernel_that_waits_for_one_it_does_not_depend_on_is_held(tmp_path):
    found = of(tmp_path / "run.sqlite", held_back, CUDA_DEVICE_MAX_CONNECTIONS="1")

    assert found == Serialisation(
        max_connections=1, count=1.0, held_ns=86 * US, roomy_count=1.0, roomy_ns=86 * US, overlap_ns=0
    )


def test_behind_a_kernel_that_fills_the_gpu_there_was_no_room(tmp_path):
    def write(streams):
        streams.kernel(10, 13, 100, blocks=132)
        streams.kernel(14, 101, 150, SIDE)

    found = of(tmp_path / "run.sqlite", write)

    assert found == Serialisation(
        max_connections=None, count=1.0, held_ns=86 * US, roomy_count=0.0, roomy_ns=0, overlap_ns=0
    )


def test_without_a_gpu_the_room_is_unknown(tmp_path):
    found = of(tmp_path / "run.sqlite", held_back, gpu=False)

    assert found is not None
    assert (found.count, found.roomy_count, found.roomy_ns) == (1.0, None, None)


def event_between(streams):
    streams.kernel(10, 13, 100)
    streams.record(11, MAIN)
    streams.wait(12, SIDE)
    streams.kernel(16, 101, 150, SIDE)


def event_of_an_earlier_kernel(streams):
    streams.kernel(5, 8, 20)
    streams.record(6, MAIN)
    streams.kernel(10, 21, 100)
    streams.wait(12, SIDE)
    streams.kernel(16, 101, 150, SIDE)


def behind_one_that_depends(streams):
    event_between(streams)
    streams.kernel(18, 151, 160, SIDE)
    streams.kernel(19, 101, 149)  # behind the first one, in its own stream


@pytest.mark.parametrize(
    ("write", "count"),
    [
        pytest.param(event_between, 0, id="an event orders them"),
        pytest.param(event_of_an_earlier_kernel, 1, id="an event of an earlier kernel does not"),
        pytest.param(behind_one_that_depends, 0, id="what follows in a stream"),
        pytest.param(
            lambda s: (s.kernel(10, 13, 100), s.kernel(14, 101, 150)), 0, id="one stream is in order anyway"
        ),
        pytest.param(
            lambda s: (s.kernel(10, 13, 100), s.kernel(14, 17, 150, SIDE)), 0, id="side by side, no wait"
        ),
        pytest.param(
            lambda s: (s.kernel(10, 13, 100), s.kernel(95, 101, 150, SIDE)), 0, id="issued just before"
        ),
        pytest.param(
            lambda s: (s.kernel(10, 13, 100), s.kernel(90, 101, 150, SIDE)), 1, id="issued 10 µs before"
        ),
        pytest.param(
            lambda s: (s.kernel(10, 13, 100), s.kernel(104, 107, 150, SIDE)), 0, id="issued behind its end"
        ),
        pytest.param(
            lambda s: (s.kernel(10, 13, 100), s.kernel(14, 105, 150, SIDE)), 0, id="5 µs after its end"
        ),
        pytest.param(
            lambda s: (s.kernel(10, 13, 100), s.kernel(14, 104, 150, SIDE)), 1, id="4 µs after its end"
        ),
        pytest.param(
            lambda s: (s.kernel(10, 101, 150), s.kernel(14, 17, 100, SIDE)), 0, id="issued before the other"
        ),
        pytest.param(
            lambda s: (s.kernel(8, 11, 95, SIDE), s.kernel(10, 13, 100), s.kernel(14, 101, 150, SIDE)),
            0, id="its own stream was free just before",
        ),
        pytest.param(
            lambda s: (s.kernel(10, 13, 100), s.kernel(14, 101, 150, SIDE, graph_node=3)),
            0, id="a node of a graph has edges that nobody knows",
        ),
    ],
)  # fmt: skip
def test_only_kernels_without_a_reason_are_counted(write, count, tmp_path):
    found = of(tmp_path / "run.sqlite", write)

    assert found is not None
    assert found.count == count
    assert (found.held_ns > 0) == bool(count)


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        pytest.param((FREE, FREE), 1, id="neither waits for the null stream"),
        pytest.param((NULL, FREE), 1, id="the null stream, and one that does not wait for it"),
        pytest.param((NULL, BLOCKING), 0, id="the null stream, and one that waits for it"),
        pytest.param((BLOCKING, NULL), 0, id="one that the null stream waits for"),
        pytest.param((BLOCKING, BLOCKING), 1, id="without the null stream nothing orders them"),
        pytest.param((FREE, None), None, id="unknown for one"),
    ],
)
def test_the_null_stream_is_a_reason(flags, count, tmp_path):
    found = of(tmp_path / "run.sqlite", held_back, flags=flags)

    assert (None if found is None else found.count) == count


def test_waits_that_were_not_traced_may_be_a_reason(tmp_path):
    def write(streams):
        streams.kernel(10, 13, 100)
        streams.wait(11, SIDE, has_row=False)
        streams.kernel(14, 101, 150, SIDE)

    assert of(tmp_path / "run.sqlite", write) is None


def test_an_unresolved_wait_may_be_a_reason(tmp_path):
    def write(streams):
        streams.kernel(10, 13, 100)
        streams.record(11, MAIN, event=2)
        streams.wait(12, SIDE, event=9)
        streams.kernel(16, 101, 150, SIDE)

    found = of(tmp_path / "run.sqlite", write)

    assert found is not None
    assert found.count == 0


def test_copies_wait_for_their_engine(tmp_path):
    def write(streams):
        streams.kernel(2, 5, 10)
        launch = [streams.writer.call("cudaMemcpyAsync", at * US, (at + 1) * US) for at in (11, 13)]
        streams.writer.copy("host-to-device", 15 * US, 100 * US, 8, stream=MAIN, correlation=launch[0])
        streams.writer.copy(
            "host-to-device", 101 * US, 150 * US, 8, stream=SIDE, correlation=launch[1]
        )  # fmt: skip

    found = of(tmp_path / "run.sqlite", write)

    assert found is not None
    assert found.count == 0


def test_time_in_which_streams_run_together(tmp_path):
    def write(streams):
        streams.kernel(2, 5, 40)
        streams.kernel(4, 20, 60, SIDE)
        streams.kernel(6, 50, 80)

    found = of(tmp_path / "run.sqlite", write)

    assert found is not None
    assert found.overlap_ns == 30 * US


@pytest.mark.parametrize("value", ["one", "1; rm", ""])
def test_a_number_of_connections_that_is_none_is_unknown(value, tmp_path):
    found = of(tmp_path / "run.sqlite", held_back, CUDA_DEVICE_MAX_CONNECTIONS=value)

    assert found is not None
    assert found.max_connections is None


@pytest.mark.parametrize("story", run_part(stories(), name=lambda story: story.name))
def test_streams_of_a_story_never_wait_without_a_reason(story, tmp_path):
    """The simulated machine has a queue for each stream."""
    write_run(run(story.program), tmp_path / "run.sqlite", has_os_calls=story.has_os_calls)
    found = details(tmp_path / "run.sqlite")

    assert found is not None
    assert found.serialisation is not None
    assert found.serialisation.count == 0


@pytest.mark.parametrize("seed", [*range(3), *slow(*range(3, 10))])
def test_streams_of_a_random_program_never_wait_without_a_reason(seed, tmp_path):
    write_run(run(random_program(seed)), tmp_path / "run.sqlite")
    found = details(tmp_path / "run.sqlite")

    assert found is not None
    assert found.serialisation is not None
    assert found.serialisation.count == 0
